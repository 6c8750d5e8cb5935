"""The schema of a DuckDB memory file, its migrations, and how such a file is opened.

Two versions stand in the file's ``meta`` table: that of the schema, and ``applied``, the sequence number up to which
the journal is merged. A file with a newer schema is refused, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import MemoryDamaged, MemoryUnavailable

MEMORY_LIMIT = "512MB"

_META = """
CREATE TABLE nbtools_meta (name VARCHAR PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO nbtools_meta VALUES ('schema', 0), ('applied', 0);
"""
MIGRATIONS: tuple[str, ...] = (Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8"),)

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    # No extension can be had offline, and each attempt to load one costs seconds.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # Older releases of DuckDB can read the file.
    "storage_compatibility_version": "v1.5.0",
    "threads": "2",
    "memory_limit": MEMORY_LIMIT,
    # A checkpoint of a large write-ahead log takes long; small ones are not noticed.
    "checkpoint_threshold": "8MB",
}


def connect(path: Path | None) -> Any:
    """Open a memory file, `None` for one in memory, and bring its schema up to date.

    Raises
    ------
    MemoryUnavailable
        Someone else holds the file, it may not be written, is not a memory file, or has a newer schema.
    MemoryDamaged
        It was a memory file once.
    """
    import duckdb

    if path is not None:
        _look_at(path)
    try:
        connection = duckdb.connect(":memory:" if path is None else str(path), config=_CONFIG)
    except (duckdb.Error, RuntimeError, UnicodeError) as exc:
        assert path is not None, "a database in memory opens"
        raise _why_not(path, exc) from exc
    try:
        migrate(connection, path)
    except MemoryUnavailable:
        connection.close()
        raise
    except duckdb.Error as exc:
        connection.close()
        raise MemoryDamaged(str(exc)) from exc
    return connection


def migrate(connection: Any, path: Path | None, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Apply the migrations that a file lacks, each in its own transaction.

    Parameters
    ----------
    connection
        The open DuckDB connection.
    path
        The file, for errors; `None` for a database in memory.
    migrations
        The statements that lead from each schema to the next; a file's schema is the number of those applied to it.

    Raises
    ------
    MemoryUnavailable
        The file has a newer schema, or tables that are not ours.
    """
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if tables and "nbtools_meta" not in tables:
        raise MemoryUnavailable(
            f"{path} is a DuckDB file with other tables ({', '.join(sorted(tables)[:5])}), not a memory.",
            hint="choose another file for the memory",
        )
    if not tables:
        _run(connection, _META)
    (version,) = connection.execute("SELECT value FROM nbtools_meta WHERE name = 'schema'").fetchone()
    if version > len(migrations):
        raise MemoryUnavailable(
            f"{path} has the schema {version} of a newer nbtools; this one knows {len(migrations)}.",
            hint="update nbtools-kit",
        )
    for number, statements in enumerate(migrations[version:], version + 1):
        _run(connection, f"{statements}; UPDATE nbtools_meta SET value = {number} WHERE name = 'schema'")


def _run(connection: Any, statements: str) -> None:
    """Run statements in one transaction: a file whose disk is full keeps the schema that it has."""
    connection.begin()
    try:
        connection.execute(statements)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _look_at(path: Path) -> None:
    """Refuse what is not a database before DuckDB sees it: it would read a CSV file as one."""
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise MemoryUnavailable(
            f"{path} cannot be read: {exc.strerror}.", hint="look at the permissions of file and folder"
        ) from exc
    if not head:
        path.unlink()  # What a process leaves that is killed while it makes the file; DuckDB would refuse it.
    elif head[8:] != b"DUCK":
        raise MemoryDamaged(f"{path} is not a DuckDB file")


def _why_not(path: Path, exc: Exception) -> Exception:
    text = str(exc)
    holder = re.search(r"Conflicting lock is held in (.+?)(?:\. See also|$)", text, re.DOTALL)
    if holder or "Could not set lock" in text:
        who = holder[1].strip() if holder else "another process"
        return MemoryUnavailable(
            f"{path} is held by {who}.",
            hint="close it there: only nbtools may open a memory file",
            retryable=True,
        )
    if not path.exists():
        return MemoryUnavailable(f"{path} cannot be created: {text}", hint="choose another file for the memory")
    if "ermission denied" in text or "ead-only file system" in text:
        return MemoryUnavailable(f"{path} cannot be written.", hint="look at the permissions of file and folder")
    return MemoryDamaged(text)
