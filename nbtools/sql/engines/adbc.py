"""PostgreSQL, with the rows of plain queries taken through ADBC: as Arrow, without a Python object for each value.

Whatever ADBC would give in another form than psycopg does (numbers of any precision, times with a zone, JSON, arrays,
parameters, EXPLAIN) goes by psycopg still, so that a query means the same whatever is installed. The columns are asked
for first: that also has the server prepare the text, by the extended protocol, which takes one statement and no more.

The second wall is the same as in `postgres_engine`: each query alone in a ``READ ONLY`` transaction with a
``statement_timeout`` that is rolled back, and ``DISCARD ALL`` before the session is used again. SQLite's ADBC driver
has neither an authorizer nor a progress handler, so SQLite stays with Python's own module.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any

from nbtools.sql.engines.errors import server_timeout
from nbtools.sql.engines.fetch import read_arrow
from nbtools.sql.engines.postgres import OWN_PATH, PostgresEngine, begin_read_only
from nbtools.sql.engines.protocol import Fetched, QueryControl, QueryRequest
from nbtools.sql.results.rows import ArrowRows

# What ADBC and psycopg give the same values for.
_PLAIN = frozenset(
    {
        *("bool", "bpchar", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "name", "text", "timestamp"),
        "varchar",
    }
)
_TYPE = b"POSTGRESQL:type"
# The driver's own 16 MB are more than most caps: the reader would wait for rows that it drops.
_BATCH_BYTES = 1_000_000
_BATCH_OPTION = "adbc.postgresql.batch_size_hint_bytes"
# The driver asks the server for its types when it connects, by operators without a schema: what someone planted on the
# search path would run there. Queries get the path that the role has.
_GUARD = f"-c search_path={OWN_PATH.replace(' ', '')} -c default_transaction_read_only=on"
_MOST_DAYS = 10_000_000
_NOT_COPIED = frozenset({"explain", "show", "describe"})


class AdbcPostgresEngine(PostgresEngine):
    """A PostgreSQL database, read through ADBC where the columns are plain."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._adbc_idle: collections.deque[Any] = collections.deque()

    def run(self, request: QueryRequest, control: QueryControl) -> Fetched:
        """Run one judged statement and read its rows up to the caps."""
        # Rows that `on_rows` has got cannot be taken back, when psycopg must read the result after all.
        handed_on = request.on_rows is not None
        if request.parameters or handed_on or request.sql.split(None, 1)[0].lower() in _NOT_COPIED:
            return super().run(request, control)
        with self._session() as cursor:
            rows = None if cursor is None else self._read_arrow(cursor, request, control)
        return super().run(request, control) if rows is None else rows

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _guarded_url(self) -> str:
        from psycopg import conninfo

        url = self._libpq_url()
        own_options = conninfo.conninfo_to_dict(url).get("options")
        return conninfo.make_conninfo(url, options=f"{own_options or ''} {_GUARD}")

    @functools.cached_property
    def _search_path(self) -> str:
        """The path of the role and the URL, as SET takes it."""
        with self._connection() as connection:
            return connection.execute("SHOW search_path").fetchone()[0] or "''"

    @contextlib.contextmanager
    def _session(self) -> Iterator[Any]:
        """Lend a cursor, or `None` when there is no connection: psycopg then says what is wrong."""
        import adbc_driver_manager.dbapi as manager
        import adbc_driver_postgresql.dbapi as adbc

        connection = None
        with contextlib.suppress(IndexError):
            connection = self._adbc_idle.pop()
        if connection is None:
            with contextlib.suppress(manager.Error):
                connection = adbc.connect(self._guarded_url(), autocommit=True)
        if connection is None:
            yield None
            return
        clean = False
        try:
            with connection.cursor(adbc_stmt_kwargs={_BATCH_OPTION: str(_BATCH_BYTES)}) as cursor:
                yield cursor
            clean = _reset(connection, manager.Error)
        finally:
            if clean:
                self._adbc_idle.append(connection)
            else:
                connection.close()

    def _read_arrow(self, cursor: Any, request: QueryRequest, control: QueryControl) -> Fetched | None:
        """Run the statement if its columns are plain; return `None` where psycopg must run it."""
        import adbc_driver_manager.dbapi as manager

        # A comment at the end must not swallow the bracket that ADBC closes behind the text.
        text = f"{request.sql.rstrip().rstrip(';')}\n"
        begun = time.monotonic()
        with control.attach(cursor.adbc_cancel):
            try:
                begin_read_only(cursor, request.timeout)
                cursor.execute(f"SET LOCAL search_path = {self._search_path}")
                schema = cursor.adbc_execute_schema(text)
            except manager.Error:
                control.check()
                return None
            types = tuple((field.metadata or {}).get(_TYPE, b"").decode() for field in schema)
            if not types or not _PLAIN.issuperset(types):
                return None
            try:
                cursor.execute(text)
                rows, cut = read_arrow(cursor.fetch_record_batch(), request, control)
                if any(map(_is_wrapped, rows.columns)):
                    return None
            except (manager.Error, OSError, ValueError) as exc:
                control.check()
                if request.timeout is not None and time.monotonic() - begun >= request.timeout:
                    raise server_timeout() from exc
                # It fails by psycopg as well, which says where and why.
                return None
            finally:
                with contextlib.suppress(manager.Error, OSError):
                    # What is still to come is not waited for.
                    cursor.adbc_cancel()
        names = tuple(field.name for field in schema)
        return Fetched(columns=names, types=types, rows=ArrowRows(rows), cut_by=cut)

    def close(self) -> None:
        """Close the idle connections of both kinds."""
        super().close()
        with contextlib.suppress(IndexError):
            while True:
                self._adbc_idle.pop().close()


def _is_wrapped(column: Any) -> bool:
    """Tell whether a column holds an infinite moment: the driver counts from another year, and such numbers wrap."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)):
        return False
    is_date = pa.types.is_date32(column.type)
    least = pc.min_max(column.cast(pa.int32() if is_date else pa.int64()))["min"].as_py()
    # PostgreSQL has no moment before the year 4713 BC.
    return least is not None and least < (-_MOST_DAYS if is_date else -_MOST_DAYS * 86_400_000_000)


def _reset(connection: Any, error: type[Exception]) -> bool:
    """End the transaction and discard all state of the session; return whether that succeeded."""
    with contextlib.suppress(error, OSError), connection.cursor() as cursor:
        cursor.execute("ROLLBACK")
        cursor.execute("DISCARD ALL")
        return True
    return False
