"""PostgreSQL, through psycopg.

The second wall: every statement runs alone in a ``READ ONLY`` transaction that is rolled back; it is sent by the
extended protocol, which accepts only one statement; the server ends it at ``statement_timeout``; and a session is used
again only after ``DISCARD ALL``, so that nothing of one query reaches the next.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from nbtools.errors import LimitExceeded, NbtoolsError, NetworkError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.ground.lazy import need
from nbtools.sql.engines import protocol
from nbtools.sql.engines.errors import from_position, server_timeout
from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.urls import mask_url, resolve_url
from nbtools.sql.results.moments import iso_text
from nbtools.sql.results.rows import DATE, DECIMAL, TIMESTAMP
from nbtools.sql.verdict.verdict import line_and_column
from nbtools.texts.visible import counted

_CHUNK = 1_000
_TIMES = ("date", "time", "timestamp", "timestamptz", "interval")
_YEARS = re.compile(rb"([-+]?\d+) year")
# What pandas calls the types, for columns that a plain reader of rows and Arrow shall give alike.
_DTYPES = {
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "bool": "bool",
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "str"),
    "date": DATE,
    "timestamp": TIMESTAMP,
    "bytea": "object",
    "numeric": DECIMAL,
}
# Without a limit libpq waits as long as the system's TCP does: minutes.
_CONNECT_S = 10
# What a role or a URL may have set in another way. With the first one off, a backslash would end a string in another
# place than the verdict saw; the others change the text of values, which psycopg then reads wrongly or not at all.
_READABLE = {
    "standard_conforming_strings": "on",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
# Types whose values Python has whole.
_OF_PYTHON = (*_DTYPES, "oid")
# For a question of our own about the catalog.
_OWN_S = 30.0
# Each cancel opens its own connection.
_CANCEL_EVERY_S = 0.2
# A user who may create something in a schema of the search path can plant a function or an operator there that fits a
# question better than the server's own. So questions of our own look nowhere but in the server's schema.
OWN_PATH = "pg_catalog, pg_temp"


class PostgresEngine(protocol.QueriesAlone):
    """A PostgreSQL database.

    Parameters
    ----------
    url
        As libpq takes it; ``${NAME}`` stands for an environment variable.
    """

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.name = "PostgreSQL"
        self._url = url
        self._psycopg = need("psycopg", extra="postgres", why="Connecting to PostgreSQL")
        # Append and pop are atomic, so threads need no lock.
        self._idle: collections.deque[Any] = collections.deque()

    # -- connections -------------------------------------------------------------------------------------------------

    def _connect(self) -> Any:
        try:
            connection = self._psycopg.connect(
                resolve_url(self._url).replace("postgresql+psycopg://", "postgresql://", 1),
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
            ) from exc
        load_exactly(connection)
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

    def run(self, request: protocol.QueryRequest, control: protocol.QueryControl) -> protocol.EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        with (
            self._connection() as connection,
            self._map_errors(request, control),
            control.attach(_throttle(connection.cancel)),
        ):
            begin_read_only(connection, request.timeout)
            return self._read(connection, request, control)

    def _read(
        self, connection: Any, request: protocol.QueryRequest, control: protocol.QueryControl
    ) -> protocol.EngineAnswer:
        cursor = connection.cursor()
        stream = cursor.stream(request.sql, request.parameters or None)
        try:
            first = next(stream, None)
            names, types = (
                _columns_of(connection, cursor) if first is not None else _columns_by_prepare(connection, request.sql)
            )
            rows, cut = read_tuples(
                names, _chunks(first, stream), request, control, [_DTYPES.get(kind) for kind in types]
            )
        finally:
            # Cancels what is still to come and reads the connection empty.
            stream.close()
        return protocol.EngineAnswer(columns=names, types=types, rows=rows, cut_by=cut)

    @contextlib.contextmanager
    def _map_errors(self, request: protocol.QueryRequest, control: protocol.QueryControl) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as exc:
            control.check()
            raise self._error_of(exc, request) from exc

    def _error_of(self, exc: Any, request: protocol.QueryRequest) -> NbtoolsError:
        """Return the error that fits one of PostgreSQL's, by its SQLSTATE."""
        state = exc.sqlstate or ""
        if state == "57014":
            return server_timeout()
        kind: type[NbtoolsError] = SqlFailed
        # The client's library has no code for what it runs out of.
        if not state and "memory" in str(exc):
            return LimitExceeded(_message_of(exc), hint="Ask for less at once.")
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
            return kind(_message_of(exc), hint=hint)
        line, column = line_and_column(request.sql, int(position) - 1)
        return from_position(kind, _message_of(exc), request.sql, line, column, hint=hint)

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a question of our own; nothing that the database defines can take part in it."""
        with self._connection() as connection:
            begin_read_only(connection, _OWN_S)
            connection.execute(f"SET LOCAL search_path = {OWN_PATH}")
            rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
            return rows

    # -- what there is -----------------------------------------------------------------------------------------------

    def catalog(self) -> list[protocol.CatalogTable]:
        """Return the tables and views with their columns."""
        return protocol.tables_of(self._ask(protocol.catalog_query("postgres", "columns")), default_schema="public")

    def can_write(self) -> str | None:
        """Say why the role could write; `None` when it could not."""
        ((user, superuser, tables),) = self._ask(protocol.catalog_query("postgres", "writable"))
        if superuser:
            return f"the role {user} is a superuser"
        return f"the role {user} may change {counted(tables, 'table')}" if tables else None

    def row_functions(self) -> frozenset[str]:
        """Return the names of functions that a query can call as if they were columns.

        Those that take no row, but a value, have a dot before their name.
        """
        rows = self._ask(protocol.catalog_query("postgres", "row_functions"))
        return frozenset(f"{'' if takes_row else '.'}{str(name).lower()}" for name, takes_row in rows)

    def discard(self, control: protocol.QueryControl) -> None:
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
    settings = _READABLE if timeout is None else {**_READABLE, "statement_timeout": max(1, int(timeout * 1_000))}
    # One way to the server instead of one for each.
    calls = ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings.items())
    cursor.execute(f"SELECT {calls}")


def load_exactly(connection: Any) -> None:
    """Let a connection, or a cursor alone, give values as the server means them.

    What Python has no value for stays the server's text: infinity, 24:00:00, years before Christ. So does each type of
    which Python's value says less, or which Arrow lacks: JSON, UUID, networks, ranges. A year of an interval has twelve
    months of 30 days, as DuckDB has it.
    """
    from psycopg import DataError
    from psycopg.adapt import Loader
    from psycopg.pq import Format
    from psycopg.types.string import TextLoader

    adapters = connection.adapters
    loaders = {adapters.types[name].oid: adapters.get_loader(adapters.types[name].oid, Format.TEXT) for name in _TIMES}
    interval = adapters.types["interval"].oid

    class ExactLoader(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._loader = loaders[oid](oid, context)
            self._is_interval = oid == interval

        def load(self, data: Any) -> Any:
            if self._is_interval and b"infinity" in bytes(data):
                return bytes(data).decode()
            try:
                value = self._loader.load(data)
            except DataError:
                return iso_text(bytes(data).decode())
            years = _YEARS.match(bytes(data)) if self._is_interval else None
            return value if years is None else value - dt.timedelta(days=5 * int(years[1]))

    for info in adapters.types:
        if info.name in _TIMES:
            adapters.register_loader(info.oid, ExactLoader)
        elif info.name not in _OF_PYTHON:
            adapters.register_loader(info.oid, TextLoader)


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
    description = wire.describe_prepared(b"")
    if not description.nfields:
        raise SqlNotAllowed("the statement returns no rows; nbtools SQL is read-only.")
    names = tuple(description.fname(index).decode(encoding) for index in range(description.nfields))
    return names, tuple(_type_name(connection, description.ftype(index)) for index in range(description.nfields))


def _type_name(connection: Any, oid: int) -> str:
    type_info = connection.adapters.types.get(oid)
    if type_info is None:
        return "unknown"
    return f"{type_info.name}[]" if oid == type_info.array_oid else str(type_info.name)


def _message_of(exc: Exception) -> str:
    diag = getattr(exc, "diag", None)
    primary = getattr(diag, "message_primary", None)
    return " ".join(str(primary or exc).split())
