"""Connections that a notebook has open itself: they are asked, and left as they are.

A DuckDB connection is queried through its cursors, which see what it has committed. What only the connection itself
sees (temporary tables, registered frames, the schema of USE) is read through the connection, as relations are. SQLite's
belong to the thread that made them, so a file is opened once more, read-only, and a database in memory is copied for
each query. The connections of other drivers are asked themselves, one query at a time; what their own transaction holds
stays as it is.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from nbtools.errors import InvalidArguments, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql.engines import protocol
from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.postgres import load_exactly
from nbtools.sql.engines.sqlite import SQLiteEngine

_CHUNK = 1_000
# The dialect of a driver's connections, by the package of their class.
_DRIVERS = {
    **dict.fromkeys(("psycopg", "psycopg2", "pg8000"), "postgres"),
    **dict.fromkeys(("pymysql", "MySQLdb", "mysql", "mariadb"), "mysql"),
    **dict.fromkeys(("pyodbc", "pymssql"), "tsql"),
    "databricks": "spark",
    "snowflake": "snowflake",
    "trino": "trino",
}
_IN_TRANSACTION = "in a transaction: uncommitted changes are not visible"


def is_connection(value: object) -> bool:
    """Tell whether a variable is a connection that can be asked: of DuckDB, SQLAlchemy, or a driver."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package in {"_duckdb", "duckdb"}:
        return kind.__name__ == "DuckDBPyConnection"
    if package == "sqlalchemy":
        return hasattr(value, "dialect") and (hasattr(kind, "connect") or hasattr(kind, "connection"))
    return isinstance(value, sqlite3.Connection) or (hasattr(kind, "cursor") and hasattr(kind, "rollback"))


class LentConnection(str):
    """Stands where the URL of a connection stands; its text tells what it is.

    Parameters
    ----------
    name
        The variable.
    connection
        The connection. What must be made in its own thread, is made now.

    Raises
    ------
    InvalidArguments
        It is closed, belongs to another thread, or nothing is known of how its driver writes SQL.
    """

    __slots__ = ("connection", "engine", "name")
    name: str
    connection: Any
    engine: protocol.SqlEngine

    def __new__(cls, name: str, connection: Any) -> Self:
        """Make what stands for a variable, in the thread that owns its connection."""
        lent = super().__new__(cls, f"the notebook's {type(connection).__name__}")
        lent.name, lent.connection, lent.engine = name, connection, _engine_of(connection, name)
        return lent

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = str.__hash__

    def now(self, connection: Any) -> LentConnection:
        """Return what stands for the variable now: the same, unless it holds another connection, or a copy is asked."""
        _check_open(connection, self.name)
        is_copied = isinstance(self.engine, _LentSQLite)
        return self if connection is self.connection and not is_copied else LentConnection(self.name, connection)


def _check_open(connection: Any, name: str) -> None:
    # Of a connection of SQLAlchemy the driver's own goes on, for others.
    if getattr(connection, "closed", False):
        raise InvalidArguments(f"the connection {name} is closed.", hint=_open_again("its driver"))


def _engine_of(connection: Any, name: str) -> protocol.SqlEngine:
    _check_open(connection, name)
    module = type(connection).__module__
    if "duckdb" in module.partition(".")[0]:
        from nbtools.sql.engines.duckdb.lent import LentDuckDB

        return LentDuckDB(connection, name)
    if module.startswith("sqlalchemy."):
        is_engine = hasattr(connection, "raw_connection")
        if is_engine and connection.dialect.name != "sqlite":
            from nbtools.sql.engines.sqlalchemy import AlchemyEngine

            return AlchemyEngine(connection.url.render_as_string(), connection)
        connection = (connection.raw_connection() if is_engine else connection.connection).driver_connection
    if isinstance(connection, sqlite3.Connection):
        return _LentSQLite(connection, name)
    package = type(connection).__module__.partition(".")[0]
    if package in _DRIVERS:
        return _DriverEngine(connection, name, _DRIVERS[package])
    raise InvalidArguments(
        f"{name} is a connection of {package}, and its SQL dialect is not known here.",
        hint="Open the database by its URL: %nbsql --connect NAME URL.",
    )


class _LentSQLite(SQLiteEngine):
    """A SQLite connection of the notebook: its file opened once more, or a copy of what it has in memory."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        try:
            places = connection.execute("PRAGMA database_list").fetchall()
            file = next((file for _, schema, file in places if schema == "main"), "")
            # A database without pages has nothing to copy, and cannot be.
            is_empty = file or not connection.execute("PRAGMA page_count").fetchone()[0]
            self._content = b"" if is_empty else connection.serialize()
            self.note = f"{name} is {_IN_TRANSACTION}" if file and connection.in_transaction else None
        except sqlite3.Error as exc:
            what = "is closed" if "closed" in str(exc) else f"cannot be asked: {exc}".rstrip(".")
            what = "belongs to another thread" if "thread" in str(exc) else what
            raise InvalidArguments(f"the connection {name} {what}.", hint=_open_again("sqlite3.connect")) from exc
        super().__init__(Path(file) if file else None)

    @contextlib.contextmanager
    def _open(self, control: protocol.QueryControl) -> Iterator[sqlite3.Connection]:
        with super()._open(control) as connection:
            if self._content:
                connection.deserialize(self._content)
            yield connection


class _DriverEngine(protocol.QueriesAlone):
    """A connection of a DB-API driver, asked itself; statements wait for each other. Its owner closes it."""

    def __init__(self, connection: Any, name: str, dialect: str) -> None:
        self._connection, self._variable, self.dialect = connection, name, dialect
        self.name = f"{dialect} ({type(connection).__module__.partition('.')[0]})"
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _cursor(self, control: protocol.QueryControl) -> Iterator[Any]:
        interrupt = getattr(self._connection, "cancel", lambda: None)
        with self._lock, contextlib.closing(self._connection.cursor()) as cursor, control.attach(interrupt):
            if type(self._connection).__module__.startswith("psycopg."):
                load_exactly(cursor)
            try:
                with _reading(self._connection, cursor) if self.dialect == "postgres" else contextlib.nullcontext():
                    yield cursor
            except NbtoolsError:
                raise
            except Exception as exc:  # each driver has its own errors, named by PEP 249
                control.check()
                bases = {base.__name__ for base in type(exc).__mro__}
                kind = SqlInvalid if "ProgrammingError" in bases else SqlFailed
                raise kind(" ".join(str(exc).split())[:400]) from exc

    def run(self, request: protocol.QueryRequest, control: protocol.QueryControl) -> protocol.EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        with self._cursor(control) as cursor:
            cursor.execute(request.sql, *([request.parameters] if request.parameters else []))
            if cursor.description is None:
                raise SqlNotAllowed("the statement returns no rows; nbtools SQL is read-only.")
            names = tuple(str(column[0]) for column in cursor.description)
            rows, cut = read_tuples(names, lambda: list(map(tuple, cursor.fetchmany(_CHUNK))), request, control)
        return protocol.EngineAnswer(columns=names, types=("",) * len(names), rows=rows, cut_by=cut)

    def catalog(self) -> list[protocol.CatalogTable]:
        """Return the tables and views with their columns."""
        with self._cursor(protocol.QueryControl()) as cursor:
            cursor.execute(protocol.catalog_query("driver", "columns"))
            return protocol.tables_of(cursor.fetchall(), default_schema="public")

    def can_write(self) -> str | None:
        """Return `None`: its person knows what their own connection may do."""
        return None


@contextlib.contextmanager
def _reading(connection: Any, cursor: Any) -> Iterator[None]:
    """Keep a block from writing, and leave the transaction of a PostgreSQL connection as it was, or none."""
    status = getattr(getattr(connection, "info", None), "transaction_status", 0)
    if int(status):  # in a transaction already: an error must not end it
        begin, end = "SAVEPOINT nbtools", "ROLLBACK TO SAVEPOINT nbtools; RELEASE SAVEPOINT nbtools"
    else:
        begin, end = "BEGIN" if connection.autocommit else "SELECT 1", "ROLLBACK"
    for order in (begin, "SET LOCAL transaction_read_only = on"):
        cursor.execute(order)
    try:
        yield
    finally:
        with contextlib.closing(connection.cursor()) as last:
            for order in end.split("; "):
                last.execute(order)


def _open_again(how: str) -> str:
    return f"Open it again here, by {how}."
