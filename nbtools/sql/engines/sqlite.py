"""SQLite files, opened read-only.

The second wall: the file is opened with ``mode=ro``; an authorizer refuses whatever is not reading (ATTACH, pragmas
that set something, extensions); a progress handler ends a statement whose time is over; values have a length limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, FileMissing, LimitExceeded, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.protocol import CatalogTable, Fetched, QueryControl, QueryRequest, tables_of
from nbtools.sql.results.rows import PythonRows

__all__ = ["SQLiteEngine"]

_CHUNK = 1_000
# Virtual machine steps between two looks at the clock: well below a millisecond.
_STEPS = 20_000
# SQLite's own limit is 1 GB, for each of the values that a statement has at one time.
_VALUE_BYTES = 100_000_000
_READING = frozenset({sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
_DENIED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
# Pragmas that only tell; with an argument they name a table or an index.
_PRAGMAS = frozenset(
    {
        *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"),
        *("database_list", "collation_list", "function_list", "compile_options"),
    }
)
# SQLite tells what it missed in its message alone.
_NO_COLUMN = re.compile(r"no such column: (?:.*\.)?(\w+)")
_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
    """Decide on one thing that a statement would do; SQLite asks while it prepares the statement."""
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _DENIED_FUNCTIONS else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        # Table functions such as json_each declare themselves so; the file itself is open for reading only.
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


class SQLiteEngine:
    """A SQLite file, read-only.

    Parameters
    ----------
    database
        The file; `None` for an empty database in memory.
    at_rest
        Open a file in WAL mode as immutable when no other process has it open: SQLite wants to create a file of
        shared memory beside it, which a confined process cannot.
    """

    dialect = "sqlite"
    takes_frames = False

    def __init__(self, database: Path | None, *, at_rest: bool = False) -> None:
        self.name = f"SQLite {sqlite3.sqlite_version}"
        self._database = database
        self._at_rest = at_rest

    def _uri(self) -> str:
        if self._database is None:
            return "file::memory:"
        if not self._database.is_file():
            raise FileMissing(f"{str(self._database)!r} does not exist.", tried="opening a SQLite database")
        resting = self._at_rest and not self._database.with_name(self._database.name + "-wal").exists()
        return f"{self._database.as_uri()}?mode=ro{'&immutable=1' if resting else ''}"

    @contextlib.contextmanager
    def _connect(self, control: QueryControl) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._uri(), uri=True, isolation_level=None, check_same_thread=False)
        try:
            # The connection cannot write already; this refuses temporary tables too.
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
        finally:
            connection.close()

    def run(self, request: QueryRequest, control: QueryControl) -> Fetched:
        """Run one judged statement and read its rows up to the caps."""
        with self._connect(control) as connection:
            cursor = connection.execute(request.sql, request.parameters or ())
            if cursor.description is None:
                raise SqlNotAllowed("the statement returns no rows; nbtools SQL is read-only.", tried="running SQL")
            names = tuple(column[0] for column in cursor.description)
            kinds: list[set[type]] = [set() for _ in names]

            def fetch() -> list[tuple[Any, ...]]:
                chunk = cursor.fetchmany(_CHUNK)
                for index, seen in enumerate(kinds):
                    seen.update(type(row[index]) for row in chunk)
                return chunk

            rows, cut = read_tuples(names, fetch, request, control)
        types = tuple(map(_type, kinds))
        return Fetched(columns=names, types=types, rows=PythonRows(names, rows), cut_by=cut)

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return SQLite's query plan, indented as a tree."""
        found = self.run(dataclasses.replace(request, sql=f"EXPLAIN QUERY PLAN {request.sql}"), control)
        depth = {0: 0}
        lines = []
        for step, parent, _, detail in found.rows.to_lists():
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

    def discard(self, control: QueryControl) -> None:
        """Do nothing: every statement has a connection of its own."""

    def close(self) -> None:
        """Do nothing: every statement closes its connection."""


def _type(found: Iterable[type]) -> str:
    """Return the type of a column from those of its values: SQLite has no other."""
    kinds = set(found) - {type(None)}
    if kinds == {int, float}:
        return "REAL"
    return _TYPES.get(kinds.pop(), "TEXT") if len(kinds) == 1 else "ANY"


def _error_of(exc: sqlite3.Error, database: Path | None) -> NbtoolsError:
    """Return the error that fits one of SQLite's, by its code."""
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    said = f"{exc}"
    if code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}:
        return SqlNotAllowed(f"SQLite refuses it: {said}; nbtools SQL is read-only.", tried="running SQL")
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT}:
        return ConfigInvalid(f"{str(database)!r} cannot be read: {said}.", tried="opening a SQLite database")
    if code in {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM}:
        return LimitExceeded(f"a value is too large: {said}.", hint="Ask for less of it.", tried="running SQL")
    if code == sqlite3.SQLITE_ERROR or isinstance(exc, sqlite3.ProgrammingError):
        column = _NO_COLUMN.fullmatch(said)
        return SqlInvalid(f"{said}.", tried="running SQL", data={"unknown_column": column[1]} if column else None)
    return SqlFailed(f"{said}.", tried="running SQL")
