"""`SqlSession`: read-only SQL over frames, files and databases.

One path for all callers: bind the parameters, judge the text (`Policy`), find exactly the frames that it names, run it
on an engine that cannot write, read all rows, or as many as were asked for. A query of a person runs in this process,
without copying frames; with ``isolated=True``, as for whatever a model sends, it runs in a confined worker process that
is killed half a second after its time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from nbtools.errors import NbtoolsError, SqlInvalid
from nbtools.ground import telemetry
from nbtools.ground.aio import blocking, in_thread, run
from nbtools.ground.lazy import ClosedAtEnd
from nbtools.ground.paths import MayGrow, Roots
from nbtools.sql.call import Call, not_negative, seconds
from nbtools.sql.connections import SessionEngines
from nbtools.sql.ending import run_supervised
from nbtools.sql.engines.protocol import CatalogTable, EngineOptions, OnRows, QueryControl, QueryRequest
from nbtools.sql.engines.urls import mask_url
from nbtools.sql.files.cells import SMALL_BYTES
from nbtools.sql.files.changes import read_steadily
from nbtools.sql.files.csv import MISSING_WORDS
from nbtools.sql.files.encodings import Utf8Copies
from nbtools.sql.files.options import OptionsOfFile
from nbtools.sql.files.reading import point_back
from nbtools.sql.files.remote import Download, RemoteFiles
from nbtools.sql.frames import Frames, as_lookup
from nbtools.sql.pages.pager import Pager
from nbtools.sql.preparation import Preparation, PreparedQuery
from nbtools.sql.profile import Profile, profile_table, quoting, source_of
from nbtools.sql.results.engine_copy import FileCopy, changes_of, parquet_limits
from nbtools.sql.results.export import FORMS, RowSink, WrittenRows
from nbtools.sql.results.result import QueryResult
from nbtools.sql.suggestions import hint_for, names_behind
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.verdict.verdict import Verdict
from nbtools.sql.worker.client import IsolatedEngine

T = TypeVar("T")


class SqlSession(ClosedAtEnd):
    """Read-only SQL over frames, files and databases.

    Parameters
    ----------
    allowed_paths
        Folders whose files may be read; none by default.
    may_grow
        See `nbtools.ground.paths.MayGrow`.
    artifacts
        One more such folder, whose files are named ``artifacts/…``.
    connections
        Databases by name: URLs such as ``"sqlite:///sales.db"``. A password belongs into an environment variable
        (``postgresql://me:${PGPASSWORD}@host/db``) or the keyring, and is never shown.
    waiting
        Which others wait for their settings file to be trusted, in a sentence.
    frames
        Frames by name, or a function that returns the frame of a name, or `None`.
    frame_names
        Returns the names of the notebook's frames, to suggest one; `None` takes those of a mapping.
    tables
        Records that queries may name, such as ``nbtools.memory``; each call returns a snapshot as a frame.
    timeout
        Seconds a query may take; `None` for no limit.
    memory_bytes
        Bytes that the engine may use in memory.
    spill_bytes
        Bytes that the engine may use in temporary files.
    limit
        Rows of a result that need not be whole, unless the query's own call says otherwise.
    max_bytes
        Bytes a result may have in memory, unless the query's own call says otherwise.
    downloads
        Fetches the files of URLs that a query names in place of files; `None` refuses them.
    missing_words
        Whether words such as ``N/A`` are missing values in columns of numbers, dates and truth values of files.
    check_open
        Raises when the owner of the session has closed it: then nothing is asked any more.

    Examples
    --------
    >>> with SqlSession() as session:
    ...     session.query("select :a + 1 as b", params={"a": 41}).to_rows()
    [[42]]
    """

    only_shown = False
    """Whether nothing but the text of results is wanted; frames made of them may have other types then."""

    def __init__(
        self,
        *,
        allowed_paths: Iterable[str | Path] = (),
        may_grow: MayGrow = True,
        artifacts: Path | None = None,
        connections: Mapping[str, str] | None = None,
        waiting: str = "",
        frames: Frames | None = None,
        frame_names: Callable[[], Iterable[str]] | None = None,
        tables: Mapping[str, Callable[[], Any]] | None = None,
        timeout: float | None = 30.0,
        memory_bytes: int = 1_000_000_000,
        spill_bytes: int = 1_000_000_000,
        limit: int = 10_000,
        max_bytes: int = 512 * 2**20,
        downloads: Download | None = None,
        missing_words: bool = True,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_open = check_open
        self.connections: dict[str, str] = dict(connections or {})
        self.timeout = timeout
        self.limit = limit
        self.max_bytes = max_bytes
        self._artifacts = lambda: artifacts
        self._roots = Roots(allowed_paths, artifacts=self._artifacts, may_grow=may_grow) if allowed_paths else None
        cache = None if downloads is None else downloads.folder
        readable = (*(self._roots.roots if self._roots else ()), *filter(None, [artifacts, cache]))
        self._frames = as_lookup(frames)
        self._frame_names = frame_names or (lambda: names_behind(frames))
        self._tables = dict(tables or {})
        own = () if downloads is None or downloads.places is not None else (downloads.folder,)
        copies = Utf8Copies(spill_bytes)
        folders = (*readable, copies.own, copies.shared)
        self._options = EngineOptions(roots=folders, memory_bytes=memory_bytes, spill_bytes=spill_bytes)
        self._engines = SessionEngines(self.connections, self._options, self._roots, (*own, copies.own), waiting)
        self._preparation = Preparation(
            self._engines,
            lambda: self._roots,
            tables=self._tables,
            lookup=self._frames,
            remote=None if downloads is None else RemoteFiles(downloads),
            words=MISSING_WORDS if missing_words else (),
            copies=copies,
        )
        self._running: set[QueryControl] = set()

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
        sql
            The statement.
        params
            Values for ``:name`` or ``$name`` (a mapping), or for ``?`` or ``$1`` (a sequence).
        connection
            Name or URL of a database; `None` for frames and files, by DuckDB.
        limit
            Rows of the result; a longer one is cut, and says so. `None` returns all rows.
        dialect
            That of the text, when it is to be translated for the connection, such as ``"duckdb"``.
        isolated
            Run in the confined worker process.
        frames
            Tables only for this query, or functions that return them, by name, or a function that returns the table of
            a name, or `None`; they win over all others.
        timeout
            Seconds; `None` takes the session's.
        max_bytes
            Bytes of the result; `None` takes the session's.
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
    ) -> WrittenRows:
        """Run one read-only statement, write its rows to a file as they come, and return how many there were.

        Nothing is kept in memory, so there is no limit on the size. How files were read, and what the file has no room
        for, is told by `notes`.

        Parameters
        ----------
        sql
            The statement.
        file
            Open for writing bytes; what was written before an error stays in it.
        form
            ``"csv"``, ``"json"``, ``"parquet"`` or ``"xlsx"``.
        on_progress
            Gets the share that is done, now and then.
        **options
            The other parameters of `aquery`, which also lists the errors.
        """
        sink = RowSink(await in_thread(FORMS[form], file))  # which may have to import what writes it
        copy = FileCopy.of(file, form)
        call = self._call(sql, progress=on_progress is not None, on_rows=sink, copy=copy, **options)
        return await self._supervise(call, functools.partial(self._write_rows, call, sink), on_progress)

    export = blocking(aexport)

    def _write_rows(self, call: Call, sink: RowSink, control: QueryControl) -> WrittenRows:
        """Let the rows of a call be written, by the sink or the engine itself, and return how many there were."""
        copy, sink.writer.check = call.request.copy, control.check
        with sink.finishing(), parquet_limits(copy):
            result = self._answer(call, control)
            if not sink.parts and (copy is None or copy.rows is None):
                sink(result.columns, result.rows)
        count = WrittenRows(sink.rows if copy is None or copy.rows is None else copy.rows)
        count.notes, count.files = (*map(str, result.notes), *sink.notes(), *changes_of(copy, result)), result.files
        return count

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
            ready = self._preparation.prepare(call, control)
            with self._suggest_names(call, ready, control):
                return ready.engine.explain(ready.request, control)

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
            records = self._tables if connection is None else {}
            return [each.to_dict() for each in (*tables, *(CatalogTable(name=name, kind="record") for name in records))]

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
            profile = profile_table(table, source, head.columns, head.types, lambda sql: ask(sql).to_rows(), quote)
            return dataclasses.replace(profile, notes=head.notes)

        return await self._supervise(self._call("", connection=connection, isolated=isolated), work)

    profile = blocking(aprofile)

    async def afile_options(self, sql: str, **bounds: int) -> tuple[OptionsOfFile, ...]:
        """Return how each file of a query is read, and the query with other options; bounds as of `TextFiles.options`.

        It answers for files that cannot be read as the query says, too.

        Raises
        ------
        SqlNotAllowed, SqlInvalid
            The query is not read-only or reads what it may not; it cannot be parsed.
        """
        call = self._call(sql)

        def work(control: QueryControl) -> tuple[OptionsOfFile, ...]:
            engine, _, _, verdict = self._preparation.verdict(call, control)
            verdict.raise_if_refused(sql)
            return self._preparation.texts.options(verdict, engine, control, **bounds)

        return await self._supervise(call, work)

    file_options = blocking(afile_options)

    def open_pages(
        self,
        source: str,
        *,
        frames: Frames | None = None,
        connection: str | None = None,
        control: QueryControl | None = None,
    ) -> Pager:
        """Open the pages of what stands behind FROM: a file in quotes, a frame, or a query in brackets and its name.

        Parameters
        ----------
        source
            The file, the frame or the query.
        frames
            As for `aquery`.
        connection
            Name or URL of the database of a table or a query, in its dialect; `None` for frames and files.
        control
            Stops the reading of the first rows.

        Raises
        ------
        SqlNotAllowed, SqlInvalid, FileMissing
            It may not be read, or there is no such thing.
        """
        from nbtools.sql.pages.opening import open_answer, open_pager, watch
        from nbtools.sql.pages.source import HEAD

        self._check_open()
        call = self._call(f"SELECT * FROM {source}", frames=frames, connection=connection)
        control = control or QueryControl()
        # First rows are read by a sample, unless the files are small; all lines are looked at when all rows are read.
        ready = self._preparation.prepare(call, control, most_bytes=SMALL_BYTES)
        texts, named = self._preparation.texts, ready.verdict.files
        files = [path for name in filter(texts.is_single, named) if (path := self._preparation.readable(name))]
        names = [connection, *map(self._engines.name_in, ready.verdict.tables)]
        databases = [path for name in names if name for path in self._engines.files_of(name)]
        is_changed = watch([*files, *databases, *ready.stamps], named, ready.request.frames, self._frames)
        if connection or ready.request.catalogs:
            first = call.asking(max_rows=HEAD)
            head = run(self._supervise(call, functools.partial(self._answer, first), None, control))
            return open_answer(head, functools.partial(self._copy_answer, call), is_changed, self._options)
        with self._suggest_names(call, ready, control):
            pager = open_pager(
                ready.request.sql.removeprefix("SELECT * FROM "),
                ready.request.frames,
                files,
                self._options,
                is_changed,
                control,
                functools.partial(texts.read, ready.verdict, ready.engine, begun=ready.begun),
                ready.notes,
                ready.renames,
                has_more=len(files) < len(ready.verdict.files),
            )
            pager.hint = functools.partial(texts.hint, ready.verdict, ready.engine)
            return pager

    def _copy_answer(self, call: Call, target: Path, control: QueryControl) -> int:
        """Write all rows of what connections answer to a Parquet file, however long that takes."""
        with target.open("wb") as file:
            sink = RowSink(FORMS["parquet"](file))
            call = call.asking(on_rows=sink, max_bytes=None, timeout=None)
            return run(self._supervise(call, functools.partial(self._write_rows, call, sink), None, control))

    def dialect(self, connection: str | None) -> str:
        """Return the name of the dialect in which a connection is asked."""
        return self._engines.engine(connection, isolated=False).dialect

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
        copy: FileCopy | None = None,
        **more: Any,
    ) -> Call:
        rows = self.limit if limit is None and not whole else limit
        size = self.max_bytes if max_bytes is None else not_negative("max_bytes", max_bytes)
        request = QueryRequest(
            sql=sql,
            max_rows=None if rows is None else not_negative("limit", rows),
            # Rows that are handed on are not kept, so their size does not matter.
            max_bytes=None if on_rows is not None else size,
            whole=whole,
            timeout=self.timeout if timeout is None else seconds(timeout),
            progress=progress,
            only_shown=self.only_shown,
            on_rows=on_rows,
            copy=copy,
        )
        return Call(request=request, **more)

    async def _supervise(
        self,
        call: Call,
        work: Callable[[QueryControl], T],
        on_progress: Callable[[float], None] | None = None,
        control: QueryControl | None = None,
    ) -> T:
        self._check_open()
        control = control or QueryControl()
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

    def _answer(self, call: Call, control: QueryControl) -> QueryResult:
        return read_steadily(functools.partial(self._answer_once, control=control), call)

    def _answer_once(self, call: Call, control: QueryControl) -> QueryResult:
        begun = time.perf_counter()
        with telemetry.span("sql.query", isolated=call.isolated) as span:
            ready = self._preparation.prepare(call, control)
            engine = ready.engine
            span.facts["engine"] = engine.name
            with self._suggest_names(call, ready, control):
                fetched = ready.run(control, again=call.growing is not None)
            span.facts |= {"rows": len(fetched.rows), "truncated": fetched.cut_by is not None}
        return QueryResult(
            columns=fetched.columns,
            types=fetched.types,
            row_count=len(fetched.rows),
            truncated=fetched.cut_by is not None,
            cut_by=fetched.cut_by,
            duration_s=time.perf_counter() - begun,
            engine=engine.name,
            sources=ready.sources,
            notes=(*ready.notes, *(() if ready.reading is None else ready.reading.changes())),
            rows=fetched.rows,
            sql=ready.verdict.sql,
            zone=ready.request.zone,
            isolated=isinstance(engine, IsolatedEngine),
            connection=None if call.connection is None else mask_url(call.connection),
        )

    @contextlib.contextmanager
    def _suggest_names(self, call: Call, ready: PreparedQuery, control: QueryControl) -> Iterator[None]:
        """Let an error point into the text that was written, with a suggestion for an unknown table or column."""
        try:
            yield
        except NbtoolsError as exc:
            ran, source = ready.verdict.sql, call.request.sql
            # :name becomes $name; of what is longer or translated the places are others.
            is_same = call.dialect is None and len(source) == len(ran)
            point_back(exc, ready.reading, ran, source if is_same else ran)
            exc.message = self._preparation.name(self._preparation.texts.name(exc.message), ran)
            exc.hint = self._preparation.hint(call, ready, exc, control) or exc.hint
            if not isinstance(exc, SqlInvalid):
                raise
            if better := self._preparation.texts.reader_error(exc.data.get("unknown_table", "\0")):
                raise better from None
            frames = call.frames if isinstance(call.frames, Mapping) else names_behind(call.frames)
            names = [*frames, *self._tables, *self._frame_names()] if ready.engine.takes_frames else []
            exc.hint = hint_for(exc, ready.verdict.tables, names, ready.engine, self._frames, call.connection)
            raise

    # -- engines -----------------------------------------------------------------------------------------------------

    def connect(self, name: str, url: str) -> None:
        """Give a database a name, in place of one that has it; it is opened by the first query.

        Parameters
        ----------
        name
            The name that queries use.
        url
            As for the ``connections`` of the session.
        """
        self.disconnect(name)
        self.connections[name] = url

    def disconnect(self, name: str) -> None:
        """Close what a named database has open, and forget the name; harmless where there is none."""
        self._engines.release(name)
        self.connections.pop(name, None)

    def is_connected(self, name: str) -> bool:
        """Tell whether a connection has been used."""
        return self._engines.is_open(name)

    def allow(self, folder: Path) -> None:
        """Let queries read the files below one more folder; what is open is closed, and opened again by the next query.

        Raises
        ------
        Cancelled
            In the queries that run: they end.
        """
        self._roots = Roots([*(self._roots.roots if self._roots else ()), folder], artifacts=self._artifacts)
        self._options = dataclasses.replace(self._options, roots=tuple(dict.fromkeys((*self._options.roots, folder))))
        self._engines.reopen(self._options, self._roots)

    def check(self, sql: str, **options: Any) -> Verdict:
        """Return the verdict that decides whether a statement runs, without running it or fetching what it reads.

        Parameters
        ----------
        sql
            The statement.
        **options
            What `aquery` would be given: ``connection``, ``params``, ``dialect``, ``isolated``.
        """
        return self._preparation.check(self._call(sql, **options), QueryControl())

    def names_read(self, verdict: Verdict) -> tuple[str, ...]:
        """Return what a verdict says is read, with URLs in place of the files that stand for them."""
        return (*verdict.tables, *map(self._preparation.name, verdict.files))

    def files_read(self, verdict: Verdict, connection: str | None) -> tuple[str, ...]:
        """Return the files that a judged statement reads, those of databases too."""
        return (*verdict.files, *self._engines.files_asked(verdict.tables, connection))

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
