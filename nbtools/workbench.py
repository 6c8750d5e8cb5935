"""The workbench: what people call. Its parts are built by `nbtools.parts`, each at its first use."""

from __future__ import annotations

import inspect
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack, cast

from nbtools import aio
from nbtools.config import Config, Settings, with_settings
from nbtools.gate import Approver
from nbtools.lazy import until_closed
from nbtools.parts import Parts
from nbtools.result import ToolResult
from nbtools.tool import Caller, Tool, ToolCall
from nbtools.tool_functions import ToolFunctions
from nbtools.toolbox.sql_tools import ACTS

if TYPE_CHECKING:
    import pandas as pd

    from nbtools.health import Check
    from nbtools.kernels import Kernels
    from nbtools.kernels.backends import Choice
    from nbtools.sql import QueryResult
    from nbtools.sql.frames import Frames

__all__ = ["Workbench"]

_GRACE_S = 10.0


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
        Settings given explicitly, see `nbtools.config.Config`; one that is `None` counts as not given. Those with a
        default of ``...`` take it from the machine.

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
        given: dict[str, Any] = {**settings, "kernels": kernels if isinstance(kernels, str) else None}
        given["tools"] = tools if isinstance(tools, Mapping) else None
        super().__init__(
            Config.load(**given) if config is None else config.but(**given),
            approver=approver,
            tools=() if isinstance(tools, Mapping) else tools,
            frames=frames,
            kernels=None if isinstance(kernels, str) else kernels,
        )

    async def acall(
        self,
        tool: str,
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
            Name of the tool.
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
        call = ToolCall(tool=tool, arguments=dict(arguments or {}), caller=caller, timeout=timeout, on_output=on_output)
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
        given: dict[str, Any] = {"connection": connection, "limit": limit}

        async def ask() -> QueryResult:
            return await self.sql_session.aquery(query, params=params, **given, **options)

        call = self._sql_call("sql_query", {"query": query, **given}, caller, options.get("timeout"))
        result, _ = await self.aperform(call, ask, said=lambda found: found.footer(), **ACTS["sql_query"])
        return cast("QueryResult", result)

    query = aio.blocking(aquery)

    async def aexport(
        self, query: str, to: str | os.PathLike[str] | BinaryIO, *, caller: Caller = "python", **options: Any
    ) -> int:
        """Write the rows of a read-only query to a file, however many there are, and return their number.

        Parameters
        ----------
        query
            One SELECT in the dialect of the connection.
        to
            A name that ends in ``.csv``, ``.json`` or ``.parquet``, below the allowed folders; the file is put in
            place once it is whole. Or a file that is open for writing bytes: then `form` says what is written.
        caller
            The face that asks.
        **options
            As for `aquery`, which also tells the errors: ``params``, ``connection``, ``limit``, ….
        """
        told: dict[str, Any] = {name: options[name] for name in ("connection", "limit") if name in options}
        path = os.fspath(to) if isinstance(to, str | os.PathLike) else None

        async def write() -> int:
            if isinstance(to, str | os.PathLike):
                return await self._write_file(query, os.fspath(to), options)
            return await self.sql_session.aexport(query, to, **options)

        arguments = {"query": query, **told} if path is None else {"query": query, **told, "to": path}
        call = self._sql_call("sql_export", arguments, caller, options.get("timeout"))
        act = ACTS["sql_export" if path is None else "sql_export to"]
        rows, _ = await self.aperform(call, write, said=lambda n: f"{n:,} rows written", **act)
        return cast("int", rows)

    export = aio.blocking(aexport)

    def _sql_call(self, tool: str, arguments: Mapping[str, Any], caller: Caller, timeout: float | None) -> ToolCall:
        """Return a call that lets the query's own clock end it, which says more than the door's."""
        seconds = self.config.sql_timeout if timeout is None else timeout
        given = max(seconds, 0) + _GRACE_S if math.isfinite(seconds) else None
        return ToolCall(tool=tool, arguments=arguments, caller=caller, timeout=given)

    async def _write_file(self, query: str, path: str, options: Mapping[str, Any]) -> int:
        from nbtools.sql.results.export import form_of

        form = form_of(path)
        real = self.roots.resolve(path, must_exist=False, for_writing=True)
        with tempfile.TemporaryFile() as draft:
            rows = await self.sql_session.aexport(query, draft, form=form, **options)
            draft.seek(0)
            await aio.in_thread(self.roots.write_file, real, draft)
        return rows

    async def asql(self, query: str, **options: Any) -> pd.DataFrame:
        """Return all rows of a read-only query as a DataFrame; `aquery` tells the options and errors.

        A result that ``limit`` cut says so in ``.attrs["truncated"]``.
        """
        result = await self.aquery(query, **options)
        frame: pd.DataFrame = await aio.in_thread(result.to_pandas)
        frame.attrs["truncated"] = result.truncated
        return frame

    sql = aio.blocking(asql)

    @property
    def calls(self) -> pd.DataFrame:
        """The recorded calls, newest first; see `nbtools.record.CallRecord` for the columns."""
        from nbtools.memory.export import frame_of_calls

        frame: pd.DataFrame = frame_of_calls(self.call_records(), nested=True)
        return frame

    def call_records(self, limit: int = 1_000) -> list[dict[str, Any]]:
        """Return the recorded calls, newest first; those of this process alone when the memory cannot be had."""
        from nbtools.errors import MemoryWriteFailed

        self.recorder.flush()
        try:
            found = self._call_log.list(limit=limit)
        except MemoryWriteFailed:
            found = [record.to_dict() for record in self.recorder.recent(limit)]
        # A call is kept when it ends: the one that made others follows them, and began before.
        return sorted(found, key=lambda call: float(call.get("started_at") or 0), reverse=True)

    def status(self) -> dict[str, Any]:
        """Return what a status card shows: version, memory, kernels, tools, engine, limits; nothing is started."""
        from nbtools.health import status

        self.check_open()
        return status(self.config, self.opened("kernels"), self.opened("memory"))

    def doctor(self) -> list[Check]:
        """Check each part, starting it where that is needed, and say what is missing and how to get it."""
        from nbtools.health import doctor

        self.check_open()
        return doctor(
            self.config,
            memory=lambda: self.memory,
            kernels=lambda: self.kernels,
            sql=lambda: self.sql_session,
            left_out=lambda: self._shelf_and_faults[1],
        )

    def __repr__(self) -> str:
        return f"Workbench(home={str(self.config.home)!r}, allowed_paths={[*map(str, self.config.allowed_paths)]})"


Workbench.__signature__ = with_settings(inspect.signature(Workbench))  # type: ignore[attr-defined]  # `inspect` reads it
