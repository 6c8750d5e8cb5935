"""SQLite files, opened read-only.

The second wall: the file is opened with ``mode=ro``; an authorizer refuses whatever is not reading (ATTACH, pragmas
that set something, extensions); a progress handler ends a statement whose time is over; values have a length limit.

Reading leaves nothing behind and changes nothing, the index of a write-ahead log included. What a program left that
did not end well (a log without its index, a transaction to be rolled back) is read in a copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, FileMissing, LimitExceeded, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.ground.paths import stamp_of
from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.protocol import CatalogTable, EngineAnswer, QueriesAlone, QueryControl, QueryRequest, tables_of
from nbtools.sql.engines.temp_dirs import make_temp_dir
from nbtools.texts.parsing import word_lists

_CHUNK = 1_000
# Virtual machine steps between two looks at the clock: well below a millisecond.
_STEPS = 20_000
_COPIED_BYTES = 1_000_000
# SQLite's own limit is 1 GB, for each of the values that a statement has at one time.
_VALUE_BYTES = 100_000_000
_READING = frozenset({sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
_WRITING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_LISTS = word_lists(__file__, "sqlite.words")
# Only SQLite's message says what is missing.
_NO_COLUMN = re.compile(r"no such column: (?:.*\.)?(\w+)")
_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
    """Decide on one thing that a statement would do; SQLite asks while it prepares the statement."""
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _LISTS["functions"] else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        # Table functions such as json_each declare themselves so; the file itself is open for reading only.
        return sqlite3.SQLITE_OK
    if action in _WRITING and (first or "").endswith(_LISTS["shadows"]):
        # A full-text index or an R*Tree prepares what it would write when it is opened, and runs none of it.
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _LISTS["pragmas"]:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


class SQLiteEngine(QueriesAlone):
    """A SQLite file, read-only.

    Parameters
    ----------
    database
        The file; `None` for an empty database in memory.
    """

    dialect = "sqlite"
    explain_word = "EXPLAIN QUERY PLAN"

    def __init__(self, database: Path | None) -> None:
        self.name = f"SQLite {sqlite3.sqlite_version}"
        self._database = database

    @contextlib.contextmanager
    def _open(self, control: QueryControl) -> Iterator[sqlite3.Connection]:
        with contextlib.ExitStack() as stack:
            if self._database is None:
                uri = "file::memory:"
            elif not self._database.is_file():
                raise FileMissing(f"{str(self._database)!r} does not exist.")
            elif _is_left_unfinished(self._database):
                uri = f"{stack.enter_context(_copied(self._database, control)).as_uri()}?mode=rw"
            else:
                uri = f"{self._database.as_uri()}?mode=ro{_log_options(self._database)}"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            yield stack.enter_context(contextlib.closing(connection))

    @contextlib.contextmanager
    def _connect(self, control: QueryControl) -> Iterator[sqlite3.Connection]:
        try:
            with self._open(control) as connection:
                # The connection cannot write already, or has a copy; this refuses temporary tables too.
                connection.execute("PRAGMA query_only = ON")
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
                connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                connection.set_authorizer(_authorize)
                connection.set_progress_handler(lambda: control.reason is not None, _STEPS)
                with control.attach(connection.interrupt):
                    yield connection
        except sqlite3.Error as exc:
            control.check()
            raise _error_of(exc, self._database) from exc

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        with self._connect(control) as connection:
            cursor = connection.execute(request.sql, request.parameters or ())
            if cursor.description is None:
                raise SqlNotAllowed("the statement returns no rows; nbtools SQL is read-only.")
            names = tuple(column[0] for column in cursor.description)
            kinds: list[set[type]] = [set() for _ in names]

            def fetch() -> list[tuple[Any, ...]]:
                chunk = cursor.fetchmany(_CHUNK)
                for index, seen in enumerate(kinds):
                    seen.update(type(row[index]) for row in chunk)
                return chunk

            rows, cut = read_tuples(names, fetch, request, control)
        types = tuple(map(_type, kinds))
        return EngineAnswer(columns=names, types=types, rows=rows, cut_by=cut)

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return SQLite's query plan, indented as a tree."""
        plan = self.run(dataclasses.replace(request, sql=f"{self.explain_word} {request.sql}"), control)
        depth = {0: 0}
        lines = []
        for step, parent, _, detail in plan.rows.to_lists():
            depth[step] = depth.get(parent, 0) + 1
            lines.append("   " * (depth[step] - 1) + f"└─ {detail}")
        return "\n".join(lines)

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views with their columns."""
        with self._connect(QueryControl()) as connection:
            rows = connection.execute(
                "SELECT 'main', m.name, m.type, p.name, ifnull(p.type, '') "
                "FROM sqlite_master m, pragma_table_xinfo(m.name) p "
                "WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid"
            ).fetchall()
        return tables_of(rows, default_schema="main")

    def can_write(self) -> str | None:
        """Return `None`: the file is opened read-only."""
        return None


def _beside(database: Path, ending: str) -> Path:
    return database.with_name(f"{database.name}-{ending}")


def _log_options(database: Path) -> str:
    """Return the option that keeps SQLite from writing beside a file in WAL mode; empty for other files."""
    if _beside(database, "wal").exists():
        return "&readonly_shm=1"
    # SQLite would make the log and its index.
    return "&immutable=1" if not _is_open_here(database) and _has_wal_mode(database) else ""


def _has_wal_mode(database: Path) -> bool:
    """Tell whether a file was last written in WAL mode: its header says so."""
    try:
        with database.open("rb") as file:
            return file.read(20)[18:20] == b"\2\2"
    except OSError:
        return False  # SQLite itself says what is wrong with it.


def _is_open_here(database: Path) -> bool:
    """Tell whether this process has the file open: closing it once more would drop its locks."""
    try:
        status, numbers = database.stat(), os.listdir("/dev/fd")  # noqa: PTH208 - their numbers alone
    except OSError:
        return False  # no such folder: on Windows locks are another matter, a confined process opens nothing else
    for number in numbers:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(int(number)), status):
                return True
    return False


def _is_left_unfinished(database: Path) -> bool:
    """Tell whether reading a file would have to write first: a log without its index, a transaction to roll back."""
    if _is_open_here(database):
        return False
    if _beside(database, "wal").exists():
        return not _beside(database, "shm").exists()
    if not _beside(database, "journal").exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.Error as exc:
        return exc.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK
    return False


@contextlib.contextmanager
def _copied(database: Path, control: QueryControl) -> Iterator[Path]:
    """Lend a copy of a file and its log or journal, which SQLite may write to."""
    parts = [path for path in (database, _beside(database, "wal"), _beside(database, "journal")) if path.exists()]
    with contextlib.ExitStack() as stack:
        folder = make_temp_dir()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            before = list(map(stamp_of, parts))
            for path in parts:
                with path.open("rb") as source, (folder / path.name).open("wb") as target:
                    while block := source.read(_COPIED_BYTES):
                        control.check()
                        target.write(block)
            is_same = before == list(map(stamp_of, parts))
        except OSError as exc:
            raise SqlFailed(
                f"{str(database)!r} was not closed properly by another program and cannot be copied: {exc}.",
                hint="Open it once with a program that can write to it, such as sqlite3 FILE .tables.",
            ) from exc
        if not is_same:
            what = f"{str(database)!r} was changed while it was copied."
            raise SqlFailed(what, retryable=True)
        yield folder / database.name


def _type(types_seen: Iterable[type]) -> str:
    """Return the type of a column from those of its values, the only types that SQLite has."""
    kinds = set(types_seen) - {type(None)}
    if kinds == {int, float}:
        return "REAL"
    return _TYPES.get(kinds.pop(), "TEXT") if len(kinds) == 1 else "ANY"


def _error_of(exc: sqlite3.Error, database: Path | None) -> NbtoolsError:
    """Return the error that fits one of SQLite's, by its code."""
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    message = f"{exc}"
    if code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}:
        return SqlNotAllowed(f"SQLite refuses it: {message}; nbtools SQL is read-only.")
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT}:
        return ConfigInvalid(f"{str(database)!r} cannot be read: {message}.")
    if code in {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM}:
        return LimitExceeded(f"a value is too large: {message}.", hint="Select less: substr(), or fewer columns.")
    if code == sqlite3.SQLITE_ERROR or isinstance(exc, sqlite3.ProgrammingError):
        column = _NO_COLUMN.fullmatch(message)
        hint = "SQLite needs SELECT * before FROM." if message.startswith('near "from":') else None
        return SqlInvalid(f"{message}.", hint=hint, data={"unknown_column": column[1]} if column else None)
    return SqlFailed(f"{message}.")
