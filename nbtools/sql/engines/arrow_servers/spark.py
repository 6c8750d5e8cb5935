"""Spark through Spark Connect: ``sc://host:port``, SQL goes out as text, rows come back as Arrow.

Spark has no transaction that cannot write. The second wall is its own analyzer: a text that is not SHOW, DESCRIBE or
EXPLAIN is analyzed as a subquery first, which no statement but a query can be, and run only then. One session of the
server serves all statements of the engine; it holds nothing of ours, because no statement that changes settings or
makes views passes. A ``session_id`` in the URL joins a session that someone else has set up.

Stop asks the server to interrupt the operation, by its tag, and again until the rows end. A server that does not end it
within seconds is not waited for: the channel is closed, and the next query opens another. A request that cannot reach
the server fails at once, where pyspark would try for ten minutes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import sys
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

from nbtools.errors import (
    ConfigInvalid,
    NbtoolsError,
    NetworkError,
    PermissionDenied,
    SqlFailed,
    SqlInvalid,
    SqlNotAllowed,
)
from nbtools.ground.lazy import has, need
from nbtools.sql.engines.fetch import read_arrow
from nbtools.sql.engines.protocol import (
    CatalogColumn,
    CatalogTable,
    EngineAnswer,
    QueriesAlone,
    QueryControl,
    QueryRequest,
)
from nbtools.sql.engines.urls import mask_url, resolve_url
from nbtools.sql.results.rows import ArrowRows

_WHY = "Connecting to Spark"
# The columns of each table are a separate question to the server.
_TABLES = 200
_NO_SUBQUERY = frozenset({"show", "describe", "desc", "explain"})
# A new channel tries to connect at once, whatever came of the last one.
_CHANNEL = [("grpc.use_local_subchannel_pool", 1)]
_REFUSED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})


def load_client() -> Any:
    """Import what pyspark has of Spark Connect, and return the module of its client.

    Raises
    ------
    MissingExtra
        The extra ``spark`` is not installed.
    """
    with warnings.catch_warnings(), _plain_main():
        # What pyspark says about pandas does not concern us: no value goes through pandas.
        warnings.simplefilter("ignore")
        for module in ("functions", "plan"):
            need(f"pyspark.sql.connect.{module}", extra="spark", why=_WHY)
        return need("pyspark.sql.connect.client", extra="spark", why=_WHY)


@contextlib.contextmanager
def _plain_main() -> Iterator[None]:
    """Keep pyspark from taking a program without a file (``python -c``) for its doctests: it would end the process."""
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = ""
    try:
        yield
    finally:
        del main.__file__


class SparkEngine(QueriesAlone):
    """A Spark server that speaks Spark Connect.

    Parameters
    ----------
    url
        ``sc://host:port/;use_ssl=true;token=${NAME}``, as pyspark takes it; ``${NAME}`` stands for an environment
        variable.

    Raises
    ------
    MissingExtra
        The extra ``spark`` is not installed.
    """

    dialect = "spark"
    name = "Spark (Connect)"
    backslash_probe = r"SELECT length('\\') AS n"
    """Is 1 where a backslash escapes in texts, as the verdict takes it to; a setting of Spark's changes that."""
    interrupt_s = 5.0
    """Seconds for the server to end an interrupted statement; after them it is not waited for."""

    def __init__(self, url: str) -> None:
        if not has("pyspark"):  # imported by the first query, because that takes a third of a second
            need("pyspark", extra="spark", why=_WHY)
        self._url = url
        self._lock = threading.Lock()
        self._client: Any = None

    def _open(self) -> Any:
        """Return the client, opened at its first use."""
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
                self._end = weakref.finalize(self, self._client.close)
                # At the end of a program, its own finalizer waits for a thread that has been ended, and one that is
                # registered before gRPC's own end comes after it and waits as well.
                self._end.atexit = False
                atexit.register(self._end)
            return self._client

    def _new_client(self) -> Any:
        connect = load_client()
        errors = need("pyspark.errors", extra="spark", why=_WHY)
        try:
            client = connect.SparkConnectClient(resolve_url(self._url), channel_options=_CHANNEL)
        except (errors.PySparkException, ValueError) as exc:
            raise ConfigInvalid(
                f"{mask_url(self._url)!r} is not an address of Spark Connect: {_message_of(exc)}",
                hint="Write sc://host:port, or sc://host:port/;use_ssl=true;token=${NAME}.",
            ) from exc
        client.set_retry_policies([])
        return client

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        client = self._open()
        if "\\" in request.sql and request.sql != self.backslash_probe:
            self._check_backslash(control)
        tag = f"nbtools-{uuid.uuid4()}"
        with control.attach(_Interrupter(self, client, tag)), self._translate_errors(client, control):
            client.add_tag(tag)
            try:
                if request.sql.split(None, 1)[0].lower() not in _NO_SUBQUERY:
                    client.schema(_plan(request, client, "SELECT * FROM (\n{}\n)"))
                answers = client.to_table_as_iterator(_plan(request, client), {})
                try:
                    # The schema comes first, then the rows, in one table or more.
                    schema = next(answers)
                    rows, cut = read_arrow(_BatchReader(schema, answers), request, control)
                finally:
                    # The server is told that nobody reads on.
                    answers.close()
            finally:
                client.remove_tag(tag)
        types = tuple(field.dataType.simpleString() for field in schema.fields)
        return EngineAnswer(columns=tuple(schema.names), types=types, rows=ArrowRows(rows), cut_by=cut)

    def _check_backslash(self, control: QueryControl) -> None:
        probe = self.run(QueryRequest(sql=self.backslash_probe), control).rows.to_lists()
        if probe != [[1]]:
            raise SqlNotAllowed(
                "the server does not read a backslash as an escape (spark.sql.parser.escapedStringLiterals), so the "
                "server and the verdict may read the text differently.",
                hint="Write the text without backslashes.",
            )

    @contextlib.contextmanager
    def _translate_errors(self, client: Any, control: QueryControl) -> Iterator[None]:
        import grpc
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, grpc.RpcError) as exc:
            control.check()
            if "INVALID_HANDLE" in str(exc) or isinstance(exc, AssertionError):
                self._forget(client)
                raise NetworkError(
                    f"the session at {mask_url(self._url)} is gone: the server was restarted, or ended it.",
                    hint="Ask again: the next query opens a new session.",
                    retryable=True,
                ) from exc
            if isinstance(error := _error_of(exc, self._url), NetworkError):
                self._forget(client)
            raise error from exc

    def _forget(self, client: Any) -> None:
        with self._lock:
            if self._client is not None and self._client is client:
                self._client = None
                self._end.detach()
                atexit.unregister(self._end)

    def _give_up(self, client: Any) -> None:
        """Wait for nothing more from a server that does not answer."""
        self._forget(client)
        client.close()

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views of the current database with their columns, 200 at the most."""
        control = QueryControl()

        def ask(sql: str) -> list[dict[str, Any]]:
            result = self.run(QueryRequest(sql=sql, max_bytes=None), control)
            return [dict(zip(result.columns, row, strict=True)) for row in result.rows.to_lists()]

        tables = []
        views = {str(row.get("tableName", row.get("viewName"))) for row in ask("SHOW VIEWS")}
        for row in ask("SHOW TABLES")[:_TABLES]:
            name = str(row["tableName"])
            described = ask(f"DESCRIBE TABLE `{name.replace('`', '``')}`")
            columns = [
                CatalogColumn(name=str(column["col_name"]), type=str(column["data_type"]))
                for column in described
                # Behind the columns stand partitions and properties, below headings.
                if column["col_name"] and not str(column["col_name"]).startswith("#")
            ]
            kind: Literal["view", "table"] = "view" if name in views else "table"
            tables.append(CatalogTable(name=name, kind=kind, columns=tuple(dict.fromkeys(columns))))
        return tables

    def discard(self, control: QueryControl) -> None:
        """Open a new session for the next statement; the thread that is stuck keeps the old one."""
        self._forget(self._client)

    def close(self) -> None:
        """Close the channel to the server."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            self._end()
            atexit.unregister(self._end)


class _BatchReader:
    """The batches of a result, whose schema is that of the first; Spark's own stands in where there is none."""

    def __init__(self, schema: Any, tables: Iterator[Any]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        batches = (batch for table in tables for batch in table.to_batches())
        first = next(batches, None)
        self.schema = to_arrow_schema(schema) if first is None else first.schema
        self._batches = batches if first is None else itertools.chain([first], batches)

    def read_next_batch(self) -> Any:
        """Return the next batch, or raise StopIteration behind the last."""
        return next(self._batches)


def _plan(request: QueryRequest, client: Any, form: str = "{}") -> Any:
    from pyspark.sql.connect.functions import lit
    from pyspark.sql.connect.plan import SQL

    values = request.parameters if isinstance(request.parameters, dict) else {}
    text = form.format(request.sql.rstrip().rstrip(";"))
    return SQL(text, named_args={name: lit(value) for name, value in values.items()}).to_proto(client)


class _Interrupter:
    """Asks the server to interrupt an operation, in a thread: the caller must not wait for an answer."""

    def __init__(self, engine: SparkEngine, client: Any, tag: str) -> None:
        self._ask = functools.partial(client.interrupt_tag, tag)
        self._give_up = functools.partial(engine._give_up, client)  # noqa: SLF001 - its helper
        self._seconds = engine.interrupt_s
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None
        self._is_given_up = False

    def __call__(self) -> None:
        if self._is_given_up:
            return
        now = time.monotonic()
        self._deadline = self._deadline or now + self._seconds
        self._is_given_up = now > self._deadline
        # An interrupt is lost as long as the server has not begun: it is repeated, one at a time.
        if self._is_given_up or self._thread is None or not self._thread.is_alive():
            work = self._give_up if self._is_given_up else self._ask
            self._thread = threading.Thread(target=_quietly, args=(work,), name="nbtools-spark", daemon=True)
            self._thread.start()


def _quietly(work: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        work()


def _message_of(exc: Exception) -> str:
    return " ".join(str(exc).split())[:400]


def _error_of(exc: Any, url: str) -> NbtoolsError:
    """Return the error that fits one of pyspark's; the code of gRPC tells the faults of the connection."""
    from pyspark.errors import AnalysisException, IllegalArgumentException

    code = exc.getGrpcStatusCode() if hasattr(exc, "getGrpcStatusCode") else getattr(exc, "code", lambda: None)()
    name = getattr(code, "name", "")
    if name == "UNAVAILABLE":
        return NetworkError(f"Spark at {mask_url(url)} cannot be reached.", hint="Is the server running?")
    if name in _REFUSED:
        return PermissionDenied(
            f"Spark at {mask_url(url)} refuses the user: {_message_of(exc)}",
            hint="A token may have expired: set a new one, and open the notebook's connection again.",
        )
    kind = SqlInvalid if isinstance(exc, AnalysisException | IllegalArgumentException) else SqlFailed
    return kind(_message_of(exc))
