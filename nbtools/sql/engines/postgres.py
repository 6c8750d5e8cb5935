"""PostgreSQL, through psycopg.

The second wall: every statement runs alone in a ``READ ONLY`` transaction that is rolled back; it is sent by the
extended protocol, which takes one statement and no more; the server ends it at ``statement_timeout``; and a session is
used again only after ``DISCARD ALL``, so that nothing of one query reaches the next.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from nbtools.errors import LimitExceeded, NbtoolsError, NetworkError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.lazy import need
from nbtools.sql.engines.errors import from_position, server_timeout
from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.protocol import CatalogTable, Fetched, QueryControl, QueryRequest, tables_of
from nbtools.sql.engines.urls import mask_url, resolve_url
from nbtools.sql.results.rows import PythonRows
from nbtools.sql.verdict.verdict import line_and_column

__all__ = ["PostgresEngine", "begin_read_only"]

_CHUNK = 1_000
# Without a limit libpq waits as long as the system's TCP does: minutes.
_CONNECT_S = 10
# Each cancel opens a connection of its own.
_CANCEL_EVERY_S = 0.2
_WRITABLE = """
SELECT current_user, rolsuper, (
    SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^(pg_|information_schema$)'
    AND (has_table_privilege(c.oid, 'INSERT') OR has_table_privilege(c.oid, 'UPDATE')
         OR has_table_privilege(c.oid, 'DELETE')))
FROM pg_roles WHERE rolname = current_user
"""
_COLUMNS = """
SELECT c.table_schema, c.table_name, t.table_type, c.column_name, c.data_type
FROM information_schema.columns c JOIN information_schema.tables t USING (table_catalog, table_schema, table_name)
WHERE c.table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, c.ordinal_position
"""


class PostgresEngine:
    """A PostgreSQL database.

    Parameters
    ----------
    url
        As libpq takes it; ``${NAME}`` stands for an environment variable.
    """

    dialect = "postgres"
    takes_frames = False

    def __init__(self, url: str) -> None:
        self.name = "PostgreSQL"
        self._url = url
        self._psycopg = need("psycopg", extra="postgres", why="Connecting to PostgreSQL")
        # Append and pop are atomic, so threads need no lock.
        self._idle: collections.deque[Any] = collections.deque()

    # -- connections -------------------------------------------------------------------------------------------------

    def _libpq_url(self) -> str:
        return resolve_url(self._url).replace("postgresql+psycopg://", "postgresql://", 1)

    def _connect(self) -> Any:
        try:
            connection = self._psycopg.connect(
                self._libpq_url(),
                autocommit=True,
                # A prepared statement goes by the extended protocol, which carries exactly one.
                prepare_threshold=0,
                cursor_factory=self._psycopg.RawCursor,
                connect_timeout=_CONNECT_S,
            )
        except self._psycopg.Error as exc:
            raise NetworkError(
                f"{mask_url(self._url)} cannot be reached: {_message_of(exc)}",
                hint="Check host, port, user and password; the password may come from ${PGPASSWORD} or the keyring.",
                tried="opening a connection",
            ) from exc
        version = connection.info.server_version
        self.name = f"PostgreSQL {version // 10_000}.{version % 10_000}"
        return connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        """Lend a connection; only one that was wiped clean goes back to the idle ones."""
        connection = self._take()
        try:
            yield connection
        finally:
            if not self._give_back(connection):
                connection.close()

    def _take(self) -> Any:
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                # The server may have restarted, or dropped what was idle for long.
                with contextlib.suppress(self._psycopg.Error):
                    connection.execute("SELECT 1")
                    return connection
                connection.close()
        return self._connect()

    def _give_back(self, connection: Any) -> bool:
        try:
            connection.execute("ROLLBACK")
            # Closes prepared statements too, so psycopg has to forget the ones that it remembers.
            connection.execute("DISCARD ALL")
            connection._prepared.clear()  # noqa: SLF001 - there is no public way
        except (self._psycopg.Error, AttributeError):
            return False
        self._idle.append(connection)
        return True

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, request: QueryRequest, control: QueryControl) -> Fetched:
        """Run one judged statement and read its rows up to the caps."""
        with (
            self._connection() as connection,
            self._map_errors(request, control),
            control.attach(_throttle(connection.cancel)),
        ):
            begin_read_only(connection, request.timeout)
            return self._read(connection, request, control)

    def _read(self, connection: Any, request: QueryRequest, control: QueryControl) -> Fetched:
        cursor = connection.cursor()
        stream = cursor.stream(request.sql, request.parameters or None)
        try:
            first = next(stream, None)
            names, types = (
                _columns_of(connection, cursor) if first is not None else _columns_by_prepare(connection, request.sql)
            )
            rows, cut = read_tuples(names, _chunks(first, stream), request, control)
        finally:
            # Cancels what is still to come and reads the connection empty.
            stream.close()
        return Fetched(columns=names, types=types, rows=PythonRows(names, rows), cut_by=cut)

    @contextlib.contextmanager
    def _map_errors(self, request: QueryRequest, control: QueryControl) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as exc:
            control.check()
            raise self._error_of(exc, request) from exc

    def _error_of(self, exc: Any, request: QueryRequest) -> NbtoolsError:
        """Return the error that fits one of PostgreSQL's, by its SQLSTATE."""
        state = exc.sqlstate or ""
        if state == "57014":
            return server_timeout()
        kind: type[NbtoolsError] = SqlFailed
        if state in {"25006", "42501"}:
            kind = SqlNotAllowed
        elif state.startswith("42"):
            kind = SqlInvalid
        # 53 is out of resources, 54 a program limit, 08 a connection, 57 an operator who intervened.
        elif state.startswith(("53", "54")):
            kind = LimitExceeded
        elif state.startswith(("08", "57")) or not state:
            kind = NetworkError
        hint = exc.diag.message_hint
        position = exc.diag.statement_position
        if position is None:
            return kind(_message_of(exc), hint=hint, tried="running SQL")
        line, column = line_and_column(request.sql, int(position) - 1)
        return from_position(kind, _message_of(exc), request.sql, line, column, hint=hint)

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return the plan, which PostgreSQL indents as a tree."""
        found = self.run(dataclasses.replace(request, sql=f"EXPLAIN {request.sql}"), control)
        return "\n".join(str(row[0]) for row in found.rows.to_lists())

    # -- what there is -----------------------------------------------------------------------------------------------

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views with their columns."""
        with self._connection() as connection:
            return tables_of(connection.execute(_COLUMNS).fetchall(), default_schema="public")

    def can_write(self) -> str | None:
        """Say why the role could write; `None` when it could not."""
        with self._connection() as connection:
            user, superuser, tables = connection.execute(_WRITABLE).fetchone()
        if superuser:
            return f"the role {user} is a superuser"
        return f"the role {user} may change {tables} tables" if tables else None

    def discard(self, control: QueryControl) -> None:
        """Forget the idle connections; one that is stuck is not among them."""
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


def begin_read_only(cursor: Any, timeout: float | None) -> None:
    """Begin the transaction of one query, which the server ends after `timeout` seconds; `None` for no limit."""
    cursor.execute("BEGIN READ ONLY")
    if timeout is not None:
        cursor.execute(f"SET LOCAL statement_timeout = {max(1, int(timeout * 1_000))}")


def _throttle(cancel: Callable[[], None]) -> Callable[[], None]:
    last = 0.0

    def call() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _CANCEL_EVERY_S:
            last = now
            with contextlib.suppress(Exception):
                cancel()

    return call


def _chunks(first: Any, stream: Iterator[Any]) -> Callable[[], list[tuple[Any, ...]]]:
    waiting = [] if first is None else [first]

    def fetch() -> list[tuple[Any, ...]]:
        chunk = [waiting.pop()] if waiting else []
        for row in stream:
            chunk.append(row)
            if len(chunk) >= _CHUNK:
                break
        return chunk

    return fetch


def _columns_of(connection: Any, cursor: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    columns = cursor.description or ()
    return tuple(column.name for column in columns), tuple(
        _type_name(connection, column.type_code) for column in columns
    )


def _columns_by_prepare(connection: Any, sql: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ask the server for the columns of a statement that returned no row, with which they would have come."""
    wire, encoding = connection.pgconn, connection.info.encoding
    wire.prepare(b"", sql.encode(encoding))
    told = wire.describe_prepared(b"")
    if not told.nfields:
        raise SqlNotAllowed("the statement returns no rows; nbtools SQL is read-only.", tried="running SQL")
    names = tuple(told.fname(index).decode(encoding) for index in range(told.nfields))
    return names, tuple(_type_name(connection, told.ftype(index)) for index in range(told.nfields))


def _type_name(connection: Any, oid: int) -> str:
    known = connection.adapters.types.get(oid)
    if known is None:
        return "unknown"
    return f"{known.name}[]" if oid == known.array_oid else str(known.name)


def _message_of(exc: Exception) -> str:
    diag = getattr(exc, "diag", None)
    primary = getattr(diag, "message_primary", None)
    return " ".join(str(primary or exc).split())
