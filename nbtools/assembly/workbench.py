"""The workbench: what people call. Its parts are built by `nbtools.assembly.parts`, each at its first use."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack, cast

from nbtools.assembly.parts import Parts
from nbtools.assembly.tool_functions import ToolFunctions
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Approver
from nbtools.contract.prepared import prepare
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Caller, Effects, Tool, ToolCall
from nbtools.errors import FileMissing, InvalidArguments, NbtoolsError, circumstances
from nbtools.ground import aio
from nbtools.ground.config import Config, Settings, with_settings
from nbtools.ground.lazy import until_closed
from nbtools.ground.paths import real_path
from nbtools.texts.other_words import check_names
from nbtools.toolbox.sql_tools import ACTS

if TYPE_CHECKING:
    import pandas as pd

    from nbtools.agent import AgentRun
    from nbtools.agent.settings import RunSettings
    from nbtools.assembly.health import Check
    from nbtools.kernels import Kernels
    from nbtools.kernels.backends import Choice
    from nbtools.memory import AgentMemory
    from nbtools.sql import QueryResult
    from nbtools.sql.frames import Frames
    from nbtools.sql.results.export import WrittenRows
    from nbtools.widgets.chat import Chat
    from nbtools.widgets.explorer import ExploredPlace, Explorer
    from nbtools.widgets.kernel_monitor import KernelMonitor
    from nbtools.widgets.memory_browser import MemoryBrowser
    from nbtools.widgets.tool_form import ToolForm

_GRACE_S = 10.0
_FEW_CELLS = 5_000  # a frame of so many takes a fraction of a millisecond


class Workbench(Parts):
    """A memory, managed kernels, read-only SQL and the tools that stand on them.

    Parameters
    ----------
    config
        Settings that were read already; `None` reads them.
    approver
        Who answers when the gate asks; `None` means nobody.
    tools
        More tools, beside the shelf and those of installed packages; a mapping is the setting of that name.
    frames
        The DataFrames that SQL sees: by name, or a function that returns the one of a name, or `None`.
    kernels
        A backend, see `nbtools.kernels.Kernels`; or kernels of your own (`nbtools.kernels.FakeKernels` in tests), which
        run the scripts of every caller under their own settings, and stay yours to close.
    **settings
        Settings given explicitly, see `nbtools.ground.config.Config`; one that is `None` counts as not given. Those
        with a default of ``...`` take it from the machine.

    Raises
    ------
    ConfigInvalid
        A setting is unknown or does not fit.

    Examples
    --------
    >>> with Workbench(memory_url=":memory:") as wb:
    ...     wb.call("calculator", {"expression": "6*7"}).data["value"]
    42
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        approver: Approver | None = None,
        tools: Iterable[Tool | Callable[..., Any]] | Mapping[str, Any] = (),
        frames: Frames | None = None,
        kernels: Choice | Kernels | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        options_given: dict[str, Any] = {**settings, "kernels": kernels if isinstance(kernels, str) else None}
        options_given["tools"] = tools if isinstance(tools, Mapping) else None
        super().__init__(
            Config.load(**options_given) if config is None else config.but(**options_given),
            approver=approver,
            tools=() if isinstance(tools, Mapping) else tools,
            frames=frames,
            kernels=None if isinstance(kernels, str) else kernels,
        )
        if self.config.file is not None:
            self.config.file.tell()

    async def acall(
        self,
        tool: str | ToolCall,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: Caller = "python",
        timeout: float | None = None,
        on_output: Callable[[str, str, Any], None] | None = None,
    ) -> ToolResult:
        """Call a tool, from any event loop.

        Parameters
        ----------
        tool
            Name of the tool, or a whole call, which says all that the others say here.
        arguments
            Its arguments; they are validated.
        caller
            The face that asks.
        timeout
            Seconds; `None` takes the tool's own.
        on_output
            Called with ``(kind, text, data)`` as output appears.

        Returns
        -------
        ToolResult
            Never raises for an expected failure: the error is in the result.
        """
        if isinstance(tool, ToolCall):
            call = tool
        else:
            fields: dict[str, Any] = {"caller": caller, "timeout": timeout, "on_output": on_output}
            call = ToolCall(tool=tool, arguments=dict(arguments or {}), **fields)
        if "executor" not in self.__dict__:
            # Built beside the loop: connecting to outside servers is work for the loop itself.
            await aio.in_thread(lambda: self.executor)
        return await aio.here(self.executor.acall(call))

    call = aio.blocking(acall)

    @until_closed
    def tools(self) -> ToolFunctions:
        """The tools as functions: ``wb.tools.data_analyze(input_file_path=…, analysis_script=…)``."""
        return ToolFunctions(self.executor.tools, self.call, self.acall)

    async def aquery(
        self,
        query: str,
        *,
        params: Mapping[str, Any] | None = None,
        connection: str | None = None,
        limit: int | None = None,
        caller: Caller = "python",
        **options: Any,
    ) -> QueryResult:
        """Return the whole result of a read-only query; it goes through the door like any call.

        Parameters
        ----------
        query
            One SELECT in the dialect of the connection.
        params
            Values for ``:name`` or ``$name``; they are bound, never pasted.
        connection
            A name from the settings or a URL; `None` is the local engine, which sees DataFrames and files.
        limit
            Rows at the most; `None` for all.
        caller
            The face that asks.
        **options
            More for `nbtools.sql.SqlSession.aquery`: ``frames``, ``dialect``, ``isolated``, ``timeout``, ``max_bytes``.

        Raises
        ------
        SqlNotAllowed
            The statement is not read-only, or reads what it may not.
        SqlInvalid
            It cannot be parsed or bound.
        SqlFailed, CallTimeout, LimitExceeded
            It failed while it ran; the last when it needs too much, or its result is larger than ``sql_max_bytes``.
        """
        fields: dict[str, Any] = {"connection": connection, "limit": limit}

        async def ask() -> QueryResult:
            return await self.sql_session.aquery(query, params=params, **fields, **options)

        call = self._sql_call("sql_query", {"query": query, **fields}, caller, options)
        result, _ = await self.aperform(call, ask, text_of=lambda answer: answer.footer(), **ACTS["sql_query"])
        return cast("QueryResult", result)

    query = aio.blocking(aquery)

    async def aexport(
        self,
        query: str,
        to: str | os.PathLike[str] | BinaryIO,
        *,
        overwrite: bool = False,
        caller: Caller = "python",
        **options: Any,
    ) -> WrittenRows:
        """Write the rows of a read-only query to a file, however many there are, and return their number.

        What the file has no room for, such as moments finer than Excel's, is told by the number's `notes`.

        Parameters
        ----------
        query
            One SELECT in the dialect of the connection.
        to
            A name that ends in ``.csv``, ``.json``, ``.parquet`` or ``.xlsx``, below the allowed folders; the file is
            put in place once it is whole. Or a file that is open for writing bytes: then `form` says what is written.
        overwrite
            Whether a file of that name is replaced; otherwise it is an error.
        caller
            The face that asks.
        **options
            As for `aquery`, which also tells the errors: ``params``, ``connection``, ``limit``, ….
        """
        chosen: dict[str, Any] = {name: options[name] for name in ("connection", "limit") if name in options}
        path = os.fspath(to) if isinstance(to, str | os.PathLike) else None

        async def write() -> WrittenRows:
            if isinstance(to, str | os.PathLike):
                return await self._write_file(query, os.fspath(to), overwrite, options)
            return await self.sql_session.aexport(query, to, **options)

        arguments = {"query": query, **chosen} if path is None else {"query": query, **chosen, "to": path}
        call = self._sql_call("sql_export", arguments, caller, options)
        act = ACTS["sql_export" if path is None else "sql_export to" if overwrite else "sql_export new"]
        rows, _ = await self.aperform(call, write, text_of=lambda n: f"{n:,} rows written", **act)
        return cast("WrittenRows", rows)

    export = aio.blocking(aexport)

    def check_export(self, path: str, *, overwrite: bool = False) -> None:
        """Raise what `export` would raise about the file, so that nothing long is done for rows that cannot be kept.

        The parameters and errors are those of `export`.
        """
        _, real = self._export_target(path)
        if real.parent.is_dir():  # else it will be made
            with self.roots.folder(real.parent) as folder:
                folder.may_write(real.name, overwrite=overwrite)

    @circumstances()
    def explore(
        self,
        source: Any,
        *,
        connection: str | None = None,
        compare: Any = None,
        key: str | Sequence[str] = (),
        caller: Caller = "python",
        read_only: bool | None = None,
    ) -> Explorer:
        r"""Return a table of a file, a frame or a query to look at, sort and filter, with the SQL that gives its rows.

        Parameters
        ----------
        source
            A file, a DataFrame or its name, or a SELECT; on a connection a table, or a SELECT in its dialect.
        connection
            A name from the settings, or a URL without a password; `None` stands for files and DataFrames.
        compare
            Another source: what is shown then are the rows that differ between the two, cell beside cell.
        key
            The columns that tell which rows of the two belong together.
        caller
            The face that asks.
        read_only
            Whether its views only look; `None` takes the setting ``widgets_read_only``, and without one they do where
            a page is served to others. The same holds for all widgets, each of which has ``hold(read_only)`` too.

        Raises
        ------
        SqlNotAllowed, SqlInvalid, FileMissing
            It may not be read, or there is no such thing.

        Examples
        --------
        >>> import pandas as pd
        >>> with Workbench(memory_url=":memory:") as wb:
        ...     wb.explore(pd.DataFrame({"a": [1, 2]})).sql
        'SELECT *\nFROM "frame"'
        """
        from nbtools.widgets.explorer import Explorer, prepared, without_rows
        from nbtools.widgets.sources_at_hand import place_in, query_of

        shape, frames = query_of(source, self._frames, self.sql_session, connection, compare, key)
        explored = self._explored_place(frames, connection, caller)
        open_pages = functools.partial(explored.open_pages, connection=connection)
        problem = None
        try:
            pager = explored.check(shape.to_text(), connection, lambda: prepared(shape, open_pages))
        except NbtoolsError as exc:
            # The bytes of a file tell what its name does not; and where a person looks on, options are a click away.
            if compare is None and str(reader := exc.data.get("reader")).startswith("FROM "):
                return self.explore(reader, caller=caller, read_only=read_only)
            place_in(exc, self.sql_session, source)
            if caller != "magic" or connection is not None:
                raise
            pager, problem = without_rows(shape, explored, exc), exc
        explorer = Explorer(shape, pager, explored, connection or "", problem)
        self._explorers.add(explorer)
        return explorer.hold(self._read_only(read_only))

    def _read_only(self, chosen: bool | None) -> bool | None:
        return self.config.widgets_read_only if chosen is None else chosen

    def _explored_place(
        self, frames: Mapping[str, Any] | None, connection: str | None, caller: Caller
    ) -> ExploredPlace:
        """Return what an explorer may read: each query is judged, goes through the door, and is recorded."""
        from nbtools.sql.files.dictionary import meanings_of
        from nbtools.sql.results.texts import type_name
        from nbtools.widgets.explorer import ExploredPlace
        from nbtools.widgets.sources_at_hand import sources_at_hand

        session = self.sql_session

        def check(text: str, at: str | None, then: Callable[[], Any] = lambda: None) -> Any:
            def work() -> Any:
                session.check(text, frames=frames, connection=at).raise_if_refused()
                return then()

            call = self._sql_call("sql_query", {"query": text, "connection": at}, caller, {"timeout": math.inf})
            return self.perform(call, work, **ACTS["sql_query"])[0]

        async def run_script(code: str, rows: str, frame: Any, show: Callable[..., None]) -> ToolResult:
            # Under the SQL of its rows, which is what the record of the call says of it.
            self._lent[rows] = frame
            arguments_of_call = {"analysis_script": code, "inputs": {"df": rows}}
            try:
                return await self.acall("data_analyze", arguments_of_call, caller="form", on_output=show)
            finally:
                self._lent.pop(rows, None)

        def sources(at: str | None) -> list[dict[str, Any]]:
            if at is None:
                return sources_at_hand(self.roots, frames)
            return [{"name": one["name"], "columns": one["columns"]} for one in session.catalog(at)]

        def columns(source: str, at: str | None) -> list[tuple[str, ...]]:
            text = f"SELECT * FROM {source}"
            head = check(text, at, lambda: session.query(text, frames=frames, connection=at, limit=0))
            meanings: Mapping[str, str] = {}
            with contextlib.suppress(InvalidArguments):  # opening the file says what is wrong with its dictionary
                meanings = meanings_of(Path(source[1:-1].replace("''", "'"))) if source.startswith("'") else {}
            names = zip(head.columns, head.types, strict=True)
            return [(name, type_name(kind), meanings.get(name, "")) for name, kind in names]

        return ExploredPlace(
            open_pages=functools.partial(session.open_pages, frames=frames),
            check=check,
            dialect=session.dialect,
            file_options=session.file_options,
            sources=sources,
            columns=columns,
            connections=lambda: sorted({*self.config.connections, *filter(None, [connection])}),
            run_script=run_script,
        )

    def _sql_call(
        self, tool: str, arguments: Mapping[str, Any], caller: Caller, options: Mapping[str, Any]
    ) -> ToolCall:
        """Return a call that lets the query's own clock end it, which says more than the door's."""
        names = _names_of_query()
        check_names(options, (*names, "form") if tool == "sql_export" else names, tool.removeprefix("sql_"))
        timeout = options.get("timeout")
        seconds = self.config.sql_timeout if timeout is None else timeout
        # The engine says how far it came and how to allow more; the door could only say that time is up.
        limit = max(seconds, 0) + _GRACE_S if math.isfinite(seconds) else None
        return ToolCall(tool=tool, arguments=arguments, caller=caller, timeout=limit)

    def _export_target(self, path: str) -> tuple[str, Path]:
        from nbtools.sql.results.export import form_of

        return form_of(path), self.roots.resolve(path, must_exist=False, for_writing=True)

    async def _write_file(self, query: str, path: str, overwrite: bool, options: Mapping[str, Any]) -> WrittenRows:
        form, real = self._export_target(path)
        notes: tuple[str, ...] = () if real.parent.is_dir() else ("its folder is new",)
        # Rows go into a draft: a query that fails half-way leaves the file that was there as it was.
        with self.roots.folder(real.parent, make=True) as folder, folder.draft(real.name, overwrite=overwrite) as draft:
            rows = await self.sql_session.aexport(query, draft, form=form, **options)
        if rows.come_from(real):
            notes += ("it has replaced a file that the query reads",)
        rows.notes = (*rows.notes, *notes)
        return rows

    async def asql(self, query: str, **options: Any) -> pd.DataFrame:
        """Return all rows of a read-only query as a DataFrame; `aquery` tells the options and errors.

        A result that ``limit`` cut says so in ``.attrs["truncated"]``; ``.attrs["notes"]`` says how files were read.
        """
        result = await self.aquery(query, **options)
        # To wait for a thread takes longer than to convert few cells, unless pandas must be imported first.
        is_quick = "pandas" in sys.modules and result.row_count * len(result.columns) <= _FEW_CELLS
        frame: pd.DataFrame = result.to_pandas() if is_quick else await aio.in_thread(result.to_pandas)
        # A frame has no other place for it, and a cut result that looks whole leads to wrong sums.
        frame.attrs |= {"truncated": result.truncated, "notes": [*map(str, result.notes)]}
        return frame

    sql = aio.blocking(asql)

    @property
    def calls(self) -> pd.DataFrame:
        """The recorded calls, newest first; see `nbtools.contract.record.CallRecord` for the columns.

        Of a process that was killed, the calls of its last quarter of a second may be missing. Those that had run for
        longer are here without an end.
        """
        from nbtools.memory.export import frame_of_calls

        frame: pd.DataFrame = frame_of_calls(self.call_records(), nested=True)
        return frame

    def call_records(self, limit: int = 1_000) -> list[dict[str, Any]]:
        """Return the recorded calls, newest first; only those of this process when the memory is unavailable.

        Calls that wait for a memory which cannot be written are among them; `CallRecorder.told` says so.
        """
        from nbtools.errors import MemoryWriteFailed

        self.recorder.flush()
        try:
            records = [*self._call_log.list(limit=limit), *self.recorder.unwritten()]
            # The end of a call takes the place of its beginning.
            records = list({record["call_id"]: record for record in records}.values())[-limit:]
        except MemoryWriteFailed:
            records = [record.to_dict() for record in self.recorder.recent(limit)]
        # A call is kept when it ends: the one that made others follows them, and began before.
        return sorted(records, key=lambda call: float(call.get("started_at") or 0), reverse=True)

    def monitor(self, *, read_only: bool | None = None) -> KernelMonitor:
        """Return the sessions as a widget that follows them, with buttons to stop, restart and end each."""
        from nbtools.widgets.kernel_monitor import KernelMonitor

        return KernelMonitor(self.kernels, self._act).hold(self._read_only(read_only))

    def browse_memory(self, memory: AgentMemory | None = None, *, read_only: bool | None = None) -> MemoryBrowser:
        """Return the notes as a widget: found while one types, edited, deleted, restored; those of `memory` first."""
        from nbtools.widgets.memory_browser import MemoryBrowser

        browser = MemoryBrowser(self.memory if memory is None else memory, self._act)
        return browser.hold(self._read_only(read_only))

    def form(self, tool: str, **values: Any) -> ToolForm:
        """Return a form for a tool as a widget; `values` stand in its fields at first."""
        from nbtools.widgets.tool_form import ToolForm

        return ToolForm(self.executor.tools()[tool], self.acall, values).hold(self.config.widgets_read_only)

    def chat(self, run: AgentRun | None = None, **settings: Unpack[RunSettings]) -> Chat:
        """Return a conversation with an agent as a widget.

        Parameters
        ----------
        run
            A run that it goes on from; `None` starts afresh.
        **settings
            Of each run, see `nbtools.agent.settings.RunSettings`.
        """
        return self._chat(run, can_write=True, settings=settings).hold(self.config.widgets_read_only)

    def pending_card(self, run: AgentRun, *, read_only: bool | None = None) -> Chat:
        """Return the card of a run that waits for approval; the run goes on when all its calls are answered."""
        return self._chat(run, can_write=False, settings={}).hold(self._read_only(read_only))

    def _chat(self, run: AgentRun | None, *, can_write: bool, settings: Mapping[str, Any]) -> Chat:
        from nbtools.widgets.chat import Chat

        async def request(tool: Tool, arguments: Mapping[str, Any], reason: str) -> ApprovalRequest:
            call = ToolCall(tool=tool.name, arguments=dict(arguments), caller="model")
            return await self.door.request(await prepare(tool, call, services), services, reason)

        # What the card says a call would change is looked up with the model's rights: the call will have no others.
        services, tools = self.door.for_models, self.executor.tools
        return Chat(self.agent, tools=tools, request=request, run=run, can_write=can_write, settings=settings)

    def _act(self, name: str, work: Callable[[], Any], *, arguments: Mapping[str, Any], **how: Any) -> Any:
        """Do what someone clicked on, through the door."""
        return self.perform(ToolCall(tool=name, arguments=dict(arguments), caller="form"), work, **how)[0]

    def have_read(
        self, file: str | os.PathLike[str] | None = None, *, note: str | None = None, caller: Caller = "python"
    ) -> str:
        """Say that you have read what strangers may have written, so that it is not marked any more.

        Parameters
        ----------
        file
            A file, or a folder for all below it.
        note
            Or the key of a note of the memory.
        caller
            The face that asked.

        Returns
        -------
        str
            What came of it. A conversation that has read it already stays as it is.

        Raises
        ------
        FileMissing
            There is no such file.
        MemoryNotFound
            There is no such note.
        InvalidArguments
            Neither of them is named, or both are.
        LimitExceeded
            The folder has too many files.
        """
        if bool(file) == bool(note):
            raise InvalidArguments("this takes one thing that you have read.", hint="Name a file, a folder or a note.")
        path = real_path(Path(file).absolute()) if file else None
        if path is not None and not path.exists():
            raise FileMissing(f"{path} does not exist.", hint="Name a file or a folder, or a note with --note KEY.")
        lift = functools.partial(self._marks.lift, path, note or "", None if note is None else self.memory[note])
        arguments = {"note": note} if path is None else {"file": str(path)}
        call = ToolCall(tool="marks_lift", arguments=arguments, caller=caller)
        count, _ = self.perform(call, lift, effects=Effects(idempotent=True), text_of=lambda n: f"{n} marks lifted")
        if path is not None and self._marks.knows_file(path):
            return f"{path}: it is still marked because of a folder above it: say that you have read that folder"
        is_lifted = "what strangers may have written in it counts as read by you, and is no longer marked"
        return f"{path or note}: {is_lifted if count else 'it was not marked'}"

    def status(self) -> dict[str, Any]:
        """Return what a status card shows: version, memory, kernels, tools, engine, limits; nothing is started."""
        from nbtools.assembly.health import status

        self.check_open()
        return status(self.config, *map(self.opened, ("kernels", "memory", "recorder")))

    def doctor(self) -> list[Check]:
        """Check each part, starting it where that is needed, and say what is missing and how to get it."""
        from nbtools.assembly.health import doctor

        self.check_open()
        return doctor(self)

    def __repr__(self) -> str:
        return f"Workbench(home={str(self.config.home)!r}, allowed_paths={[*map(str, self.config.allowed_paths)]})"


Workbench.__signature__ = with_settings(inspect.signature(Workbench))  # type: ignore[attr-defined]  # `inspect` reads it


@functools.cache
def _names_of_query() -> tuple[str, ...]:
    """Return the options of a query; to read them takes longer than to judge a call."""
    from nbtools.sql.session import SqlSession

    return tuple(inspect.signature(SqlSession.aquery).parameters)[2:]
