"""`SqlSession`: read-only SQL over frames, files and databases.

One path for everybody: bind the parameters, judge the text (`Policy`), find exactly the frames that it names, run it
on an engine that cannot write, read all rows, or as many as were asked for. A query of a person runs in this process,
without copying frames; with ``isolated=True``, as for whatever a model sends, it runs in a confined worker process that
is killed half a second after its time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from nbtools import telemetry
from nbtools.aio import blocking
from nbtools.errors import InvalidArguments, SqlInvalid
from nbtools.paths import Roots
from nbtools.sql.connections import SessionEngines
from nbtools.sql.csv_gaps import told_gaps
from nbtools.sql.ending import run_supervised
from nbtools.sql.engines.protocol import EngineOptions, OnRows, QueryControl, QueryRequest, SqlEngine
from nbtools.sql.frames import EXCEL, Frames, as_lookup, find_frames, read_excel
from nbtools.sql.parameters import Style, bind, placeholders
from nbtools.sql.profile import Profile, profile_table, quoting, source_of
from nbtools.sql.results.export import FORMS, RowSink
from nbtools.sql.results.result import QueryResult
from nbtools.sql.suggestions import names_behind, suggest
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.verdict.verdict import Verdict
from nbtools.sql.worker.client import IsolatedEngine

__all__ = ["SqlSession"]

T = TypeVar("T")
# How the placeholders of a dialect look; all others write :name.
_STYLES: dict[str, Style] = {"duckdb": "dollar", "postgres": "numbered"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Call:
    """One query as it was asked for: the request with the text as written, and what decides how it is prepared."""

    request: QueryRequest
    params: Mapping[str, Any] | Sequence[Any] | None = None
    connection: str | None = None
    dialect: str | None = None
    isolated: bool = False
    frames: Frames | None = None


class SqlSession:
    """Read-only SQL over frames, files and databases.

    Parameters
    ----------
    allowed_paths
        Folders whose files may be read; none by default.
    artifacts
        One more such folder, whose files are named ``artifacts/…``.
    connections
        Databases by name: URLs such as ``"sqlite:///sales.db"``. A password belongs into an environment variable
        (``postgresql://me:${PGPASSWORD}@host/db``) or the keyring, and is never shown.
    frames
        Frames by name, or a function that returns the frame of a name, or `None`.
    frame_names
        Returns the names of the notebook's frames, to suggest one; `None` takes those of a mapping.
    tables
        Records that queries may name, such as ``nbtools.memory``; each call returns a snapshot as a frame.
    timeout
        Seconds a query may take; `None` for no limit.
    memory_bytes, spill_bytes
        What the engine may use, in memory and in temporary files.
    limit
        Rows of a result that need not be whole, unless the query's own call says otherwise.
    max_bytes
        Bytes a result may have in memory, unless the query's own call says otherwise.
    check_open
        Raises when whoever owns the session has closed it: then nothing is asked any more.

    Examples
    --------
    >>> with SqlSession() as session:
    ...     session.query("select :a + 1 as b", params={"a": 41}).to_rows()
    [[42]]
    """

    def __init__(
        self,
        *,
        allowed_paths: Iterable[str | Path] = (),
        artifacts: Path | None = None,
        connections: Mapping[str, str] | None = None,
        frames: Frames | None = None,
        frame_names: Callable[[], Iterable[str]] | None = None,
        tables: Mapping[str, Callable[[], Any]] | None = None,
        timeout: float | None = 30.0,
        memory_bytes: int = 1_000_000_000,
        spill_bytes: int = 1_000_000_000,
        limit: int = 10_000,
        max_bytes: int = 512 * 2**20,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_open = check_open
        self.connections: dict[str, str] = dict(connections or {})
        self.timeout = timeout
        self.limit = limit
        self.max_bytes = max_bytes
        self._roots = Roots(allowed_paths, artifacts=lambda: artifacts) if allowed_paths else None
        readable = (*(self._roots.roots if self._roots else ()), *filter(None, [artifacts]))
        self._frames = as_lookup(frames)
        self._frame_names = frame_names or (lambda: names_behind(frames))
        self._tables = dict(tables or {})
        options = EngineOptions(
            roots=readable,
            memory_bytes=memory_bytes,
            spill_bytes=spill_bytes,
            schemas=tuple(sorted({name.rpartition(".")[0] for name in self._tables if "." in name})),
        )
        self._engines = SessionEngines(self.connections, options, self._roots)
        self._running: set[QueryControl] = set()

    def __enter__(self) -> Self:
        """Return the session; leaving the block closes it."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- asking ------------------------------------------------------------------------------------------------------

    async def aquery(
        self,
        sql: str,
        *,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        connection: str | None = None,
        limit: int | None = None,
        dialect: str | None = None,
        isolated: bool = False,
        frames: Frames | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        whole: bool = True,
        on_progress: Callable[[float], None] | None = None,
    ) -> QueryResult:
        """Run one read-only statement, in the dialect of its connection, and return its rows, all or `limit` of them.

        Parameters
        ----------
        params
            Values for ``:name`` or ``$name`` (a mapping), or for ``?`` or ``$1`` (a sequence).
        connection
            Name or URL of a database; `None` for frames and files, by DuckDB.
        limit, max_bytes, timeout
            Rows (a longer result is cut, and says so), bytes, seconds; `None` for all rows, the session's bytes, time.
        dialect
            That of the text, when it is to be translated for the connection, such as ``"duckdb"``.
        isolated
            Run in the confined worker process.
        frames
            Tables for this query alone, or functions that return them, by name, or a function that returns the table of
            a name, or `None`; they win over all others.
        whole
            Whether a result of more bytes is an error. Otherwise, for a model, it is cut, as at the session's limit.
        on_progress
            Gets the share that is done, now and then.

        Raises
        ------
        SqlNotAllowed, SqlInvalid
            It is not read-only or reads what it may not; it cannot be parsed or bound. The message points at the place.
        LimitExceeded, SqlFailed, CallTimeout, Cancelled
            It failed while it ran; the first when its result, or what it needs, is too large.
        """
        call = self._call(
            sql,
            params=params,
            connection=connection,
            limit=limit,
            dialect=dialect,
            isolated=isolated,
            frames=frames,
            timeout=timeout,
            max_bytes=max_bytes,
            whole=whole,
            progress=on_progress is not None,
        )
        return await self._supervise(call, functools.partial(self._answer, call), on_progress)

    query = blocking(aquery)

    async def aexport(
        self,
        sql: str,
        file: BinaryIO,
        *,
        form: str = "csv",
        on_progress: Callable[[float], None] | None = None,
        **options: Any,
    ) -> int:
        """Run one read-only statement, write its rows to a file as they come, and return how many there were.

        Nothing is kept in memory, so there is no limit on the size.

        Parameters
        ----------
        file
            Open for writing bytes; what was written before an error stays in it.
        form
            ``"csv"``, ``"json"`` or ``"parquet"``.
        **options
            The other parameters of `aquery`, which also lists the errors.
        """
        sink = RowSink(FORMS[form](file))
        call = self._call(sql, progress=on_progress is not None, on_rows=sink, **options)

        def work(control: QueryControl) -> int:
            with sink.finishing():
                result = self._answer(call, control)
                if not sink.parts:
                    sink(result.columns, result.rows)
            return sink.rows

        return await self._supervise(call, work, on_progress)

    export = blocking(aexport)

    async def aexplain(
        self,
        sql: str,
        *,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        connection: str | None = None,
        dialect: str | None = None,
        isolated: bool = False,
        frames: Frames | None = None,
    ) -> str:
        """Return the plan of a read-only statement as a readable tree; it is not run."""
        call = self._call(sql, params=params, connection=connection, dialect=dialect, isolated=isolated, frames=frames)

        def work(control: QueryControl) -> str:
            engine, request, _ = self._prepare(call)
            with self._suggest_names(call, engine, request):
                return engine.explain(request, control)

        return await self._supervise(call, work)

    explain = blocking(aexplain)

    # -- looking around ----------------------------------------------------------------------------------------------

    async def acatalog(self, connection: str | None = None) -> list[dict[str, Any]]:
        """Return what a query can name: tables and views of a connection, or the records of the toolkit.

        Each is a dictionary of ``name``, ``kind``, ``schema`` and ``columns``, the columns being pairs of name and
        type.
        """

        def work(control: QueryControl) -> list[dict[str, Any]]:
            tables = self._engines.engine(connection, isolated=False).catalog()
            found = [
                {
                    "name": table.full_name,
                    "kind": table.kind,
                    "schema": table.schema,
                    "columns": [(column.name, column.type) for column in table.columns],
                }
                for table in tables
            ]
            records = self._tables if connection is None else {}
            return found + [{"name": name, "kind": "record", "schema": None, "columns": []} for name in records]

        return await self._supervise(self._call("", connection=connection), work)

    catalog = blocking(acatalog)

    async def aprofile(self, table: str, *, connection: str | None = None, isolated: bool = False) -> Profile:
        """Return counts, nulls, distinct values, extremes and a small histogram of each column.

        Parameters
        ----------
        table
            A table, a schema and a table, a frame, or a file.
        connection
            Name or URL of a database; `None` for frames and files.
        isolated
            Run in the confined worker process.
        """

        def work(control: QueryControl) -> Profile:
            engine = self._engines.engine(connection, isolated=isolated)
            quote = quoting(engine.dialect)
            source = source_of(table, quote)

            def ask(sql: str, rows: int = 1_000) -> QueryResult:
                call = self._call(sql, connection=connection, isolated=isolated, limit=rows)
                return self._answer(call, control)

            head = ask(f"SELECT * FROM {source}", 100)
            return profile_table(table, source, head.columns, head.types, lambda sql: ask(sql).to_rows(), quote)

        return await self._supervise(self._call("", connection=connection, isolated=isolated), work)

    profile = blocking(aprofile)

    # -- one query ---------------------------------------------------------------------------------------------------

    def _call(
        self,
        sql: str,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        whole: bool = True,
        timeout: float | None = None,
        progress: bool = False,
        on_rows: OnRows | None = None,
        **more: Any,
    ) -> _Call:
        rows = self.limit if limit is None and not whole else limit
        size = self.max_bytes if max_bytes is None else _not_negative("max_bytes", max_bytes)
        request = QueryRequest(
            sql=sql,
            max_rows=None if rows is None else _not_negative("limit", rows),
            # Rows that are handed on are not kept, so their size does not matter.
            max_bytes=None if on_rows is not None else size,
            whole=whole,
            timeout=self.timeout if timeout is None else _seconds(timeout),
            progress=progress,
            on_rows=on_rows,
        )
        return _Call(request=request, **more)

    async def _supervise(
        self, call: _Call, work: Callable[[QueryControl], T], on_progress: Callable[[float], None] | None = None
    ) -> T:
        self._check_open()
        control = QueryControl()
        self._running.add(control)
        try:
            return await run_supervised(
                work,
                control,
                timeout=call.request.timeout,
                abandon=lambda: self._engines.engine(call.connection, isolated=call.isolated).discard(control),
                killed=call.isolated,
                on_progress=on_progress,
            )
        finally:
            self._running.discard(control)

    def _answer(self, call: _Call, control: QueryControl) -> QueryResult:
        begun = time.perf_counter()
        with telemetry.span("sql.query", isolated=call.isolated) as span:
            engine, request, sources = self._prepare(call)
            span.facts["engine"] = engine.name
            with self._suggest_names(call, engine, request):
                fetched = engine.run(request, control)
            sources = told_gaps(engine, sources, fetched.columns, control)
            span.facts |= {"rows": len(fetched.rows), "truncated": fetched.cut_by is not None}
        return QueryResult(
            columns=fetched.columns,
            types=fetched.types,
            row_count=len(fetched.rows),
            truncated=fetched.cut_by is not None,
            cut_by=fetched.cut_by,
            duration_s=time.perf_counter() - begun,
            engine=engine.name,
            sources=sources,
            rows=fetched.rows,
            sql=request.sql,
            isolated=isinstance(engine, IsolatedEngine),
        )

    def _prepare(self, call: _Call) -> tuple[SqlEngine, QueryRequest, tuple[str, ...]]:
        """Return the engine, the request that may run on it, and phrases for what it reads."""
        engine, text, values, verdict = self._verdict(call)
        # The caret points into what was written, where binding has not moved anything.
        unbound = placeholders(text) if verdict.code == "SQL_INVALID" and not call.params else ()
        verdict.raise_if_refused(
            call.request.sql if len(call.request.sql) == len(text) and call.dialect is None else None,
            hint=f"If :{unbound[0]} is a parameter, give it a value." if unbound else None,
        )
        self._engines.warn_once(call.connection, engine)
        frames, sources = self._find_sources(call, engine, verdict)
        return engine, dataclasses.replace(call.request, sql=text, parameters=values, frames=frames), sources

    def _verdict(self, call: _Call) -> tuple[SqlEngine, str, dict[str, Any] | list[Any] | None, Verdict]:
        """Return the engine, its text and the values to bind, and the verdict on that text."""
        sql = call.request.sql
        if not isinstance(sql, str):
            raise InvalidArguments(f"the query is {type(sql).__name__}, not text.", tried="running SQL")
        engine = self._engines.engine(call.connection, isolated=call.isolated)
        text = sql if call.dialect in {None, engine.dialect} else self._transpile(call, engine)
        text, values = bind(text, call.params, _STYLES.get(engine.dialect, "colon"))
        return engine, text, values, self._engines.policy(engine.dialect, call.connection, engine).check(text)

    def _find_sources(self, call: _Call, engine: SqlEngine, verdict: Verdict) -> tuple[dict[str, Any], tuple[str, ...]]:
        files = tuple(f"file {name}" for name in verdict.files)
        if not engine.takes_frames:
            return {}, (*(f"table {name}" for name in verdict.tables), *files)
        frames, found = find_frames(verdict.tables, given=call.frames, tables=self._tables, lookup=self._frames)
        for name in (*verdict.tables, *verdict.files):
            if name.lower().endswith(EXCEL) and name not in frames and self._roots is not None:
                frames[name] = read_excel(self._roots.resolve(name))
        rest = (f"table {name}" for name in verdict.tables if name not in frames and call.connection is not None)
        return frames, (*found, *rest, *files)

    @contextlib.contextmanager
    def _suggest_names(self, call: _Call, engine: SqlEngine, request: QueryRequest) -> Iterator[None]:
        """Add a suggestion to the error of a statement that names an unknown table or column."""
        try:
            yield
        except SqlInvalid as exc:
            given = call.frames if isinstance(call.frames, Mapping) else names_behind(call.frames)
            known = [*given, *self._tables, *self._frame_names()] if engine.takes_frames else []
            named = self._engines.policy(engine.dialect, call.connection, engine).check(request.sql).tables
            hint = suggest(named, known, engine, exc.data.get("unknown_column"))
            # DuckDB does not know the frames that it was not given; a server knows best what it has.
            exc.hint = (hint or exc.hint) if engine.takes_frames else (exc.hint or hint)
            raise

    def _transpile(self, call: _Call, engine: SqlEngine) -> str:
        """Return the text in the engine's dialect; its placeholders are made readable for the parser first."""
        from nbtools.sql.verdict.transpile import transpile

        assert call.dialect is not None
        text, _ = bind(call.request.sql, call.params, "dollar")
        return transpile(text, read=call.dialect, write=engine.dialect)

    # -- engines -----------------------------------------------------------------------------------------------------

    def check(self, sql: str, **options: Any) -> Verdict:
        """Return the verdict that decides whether a statement runs, without running it.

        Parameters
        ----------
        **options
            What `aquery` would be given: ``connection``, ``params``, ``dialect``, ``isolated``.
        """
        return self._verdict(self._call(sql, **options))[-1]

    def policy(self, dialect: str = "duckdb") -> Policy:
        """Return the policy that judges texts of a dialect."""
        return self._engines.policy(dialect)

    @property
    def is_running(self) -> bool:
        """Whether a statement is on an engine at this moment."""
        return any(control.is_running_statement for control in tuple(self._running))

    def interrupt(self) -> None:
        """Stop every query that is running; each raises `Cancelled` in its caller."""
        for control in tuple(self._running):
            control.stop("stop")

    def close(self) -> None:
        """Stop what runs, end the worker, close the connections."""
        for control in tuple(self._running):
            control.stop("closed")
        self._engines.close()


def _seconds(value: float) -> float:
    if not 0 < value < math.inf:  # neither is NaN
        raise InvalidArguments(
            f"timeout={value!r} is no time that a query can be given.",
            hint="Use a number of seconds above 0; leave it out for the session's own.",
            tried="running SQL",
        )
    return value


def _not_negative(name: str, value: int) -> int:
    if value < 0:
        raise InvalidArguments(f"{name} is {value!r}; it must be a whole number of 0 or more.", tried="running SQL")
    return value
