"""The session: what every magic runs in. It reads the line, performs through the workbench's door, binds and shows."""

from __future__ import annotations

import builtins
import functools
import importlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from nbtools import aio
from nbtools.errors import Cancelled, NbtoolsError
from nbtools.jupyter.arguments import Parser
from nbtools.jupyter.catalogue import Entry
from nbtools.jupyter.live import Live
from nbtools.jupyter.magic import Magic, Request
from nbtools.jupyter.words import check_name, fill, split, take_target
from nbtools.tool import Effects

if TYPE_CHECKING:
    from nbtools.jupyter.options import NBTools
    from nbtools.memory import AgentMemory
    from nbtools.result import ToolResult
    from nbtools.sql import QueryResult
    from nbtools.workbench import Workbench

__all__ = ["Session"]

T = TypeVar("T")

_SEMICOLON = re.compile(r";\s*\Z")


class Session:
    """The magics of one notebook at work.

    Parameters
    ----------
    shell
        The IPython shell.
    options
        The interactive options.
    short_names
        Returns each magic's name that works here.
    """

    def __init__(self, shell: Any, options: NBTools, *, short_names: Callable[[], Mapping[str, str]]) -> None:
        self.shell = shell
        self.options = options
        self.short_names = short_names
        self._scope: dict[str, Any] = {}
        self._prepared: Workbench | None = None

    # -- reading -------------------------------------------------------------------------------------------------------

    def magic(self, entry: Entry) -> Magic:
        """Return the code of a magic, importing it at first use."""
        found: Magic = importlib.import_module(entry.module).MAGIC
        return found

    def parser(self, entry: Entry, name: str, *, cell: bool) -> Parser:
        """Return the parser of a magic as it is written here."""
        return self.magic(entry).usage(f"{'%%' if cell else '%'}{name}", cell).finish()

    def usage(self, entry: Entry, name: str) -> str:
        """Return what ``?`` and ``--help`` print: the usage of each form the magic has."""
        return "\n".join(self.parser(entry, name, cell=kind == "cell").format_help() for kind in entry.kinds)

    def run(self, entry: Entry, name: str, line: str, cell: str | None) -> Any:
        """Answer a magic.

        Raises
        ------
        NbtoolsError
            An expected failure; it shows three lines.
        """
        try:
            request = self._read(entry, name, line, cell)
            if request is None:
                return None
            return self._deliver(request, self.magic(entry).run(request))
        except NbtoolsError as exc:
            exc.tried = exc.tried or f"running %{name}"
            if self.options.traceback or "--traceback" in line:
                exc._render_traceback_ = functools.partial(self._traceback, exc)  # type: ignore[method-assign]  # IPython's hook, for this error alone
            raise

    def _read(self, entry: Entry, name: str, line: str, cell: str | None) -> Request | None:
        """Return what is asked, or print the usage when that is what was asked."""
        magic, parser = self.magic(entry), self.parser(entry, name, cell=cell is not None)
        target, rest = take_target(line)
        shown = _SEMICOLON.sub("", rest)
        start = magic.free_from(self, parser, shown) if magic.free_from else len(shown)
        words = split(shown[:start])
        if magic.refine is not None:
            parser = magic.refine(self, parser.prog, words, False).finish()
        asked = parser.asks_help(words)
        if asked is not None:
            whole = asked is parser and magic.refine is None
            print(self.usage(entry, name) if whole else asked.format_help())  # noqa: T201 - help is for the cell
            return None
        args = parser.read([fill(word, self.shell.user_ns) for word in words])
        out = target or args.out
        return Request(
            session=self,
            args=args,
            cell=cell,
            text=shown[start:].strip(),
            out=check_name(out) if out else None,
            muted=shown != rest,
        )

    def _deliver(self, request: Request, value: Any) -> Any:
        from nbtools.jupyter.shown import shown

        request.bind(value)
        return None if request.quiet else shown(value, streamed=request.streamed)

    def _traceback(self, exc: NbtoolsError) -> list[str]:
        told: list[str] = self.shell.InteractiveTB.structured_traceback(type(exc), exc, exc.__traceback__)
        return told

    # -- performing ----------------------------------------------------------------------------------------------------

    @property
    def workbench(self) -> Workbench:
        """The notebook's workbench, opened at first use; it sees the notebook's frames and may ask its user."""
        from nbtools.gate import AskTerminal, Nobody
        from nbtools.workbench import shared

        found = shared()
        if self._prepared is not found:
            found.use_frames(self.shell.user_ns.get)
            if isinstance(found.door.approver, Nobody):
                found.door.approver = AskTerminal(reader=_read_line)
            self._prepared = found
        return found

    def opened(self, part: str) -> Any:
        """Return a service of the workbench when it runs already, `None` otherwise: completion starts nothing."""
        if self._prepared is None:
            return None
        if part == "memory" and self._prepared.opened("memory") is not None:
            return self.memory
        return self._prepared.opened(part)

    def tool_names(self) -> list[str]:
        """Return the names of the tools."""
        return list(self.workbench.executor.tools())

    @property
    def memory(self) -> AgentMemory:
        """The memory of the scope that ``%memory scope`` chose."""
        memory = self.workbench.memory
        return memory.scoped(**self._scope) if self._scope else memory

    def choose_scope(self, **scope: Any) -> None:
        """Let the memory magics work in another scope; nothing given means the agent's own."""
        self._scope = scope

    def bind(self, name: str, value: Any) -> None:
        """Put a value into the user's namespace."""
        self.shell.push({name: value})

    def live(self, label: str) -> Live:
        """Return what shows the output of one piece of work."""
        return Live(label, self.shell, progress=self.options.progress)

    def drive(
        self, label: str, work: Callable[[Live], Awaitable[T]], *, stopped: Callable[[Any], None]
    ) -> tuple[T, Live]:
        """Run work on the loop and show its output; Stop ends it.

        Parameters
        ----------
        label
            What runs.
        work
            Starts it, given where its output goes.
        stopped
            Gets what the work returned when it was stopped, `None` when nothing.

        Raises
        ------
        Cancelled
            The user stopped it.
        """
        live = self.live(label)

        async def watched() -> T:
            return await live.watch(work(live))

        try:
            return aio.run(watched()), live
        except aio.Interrupted as exc:
            stopped(exc.value)
            raise Cancelled(
                "you stopped it; what it showed so far is above.",
                hint="Run the cell again when you are ready.",
                tried=f"running {label}",
            ) from None

    def call(
        self,
        request: Request,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        keep_nulls: bool = False,
    ) -> ToolResult:
        """Call a tool for a magic, show its output, and return the result.

        Parameters
        ----------
        tool, arguments
            What to call; an argument that is `None` counts as not given, unless `keep_nulls`.
        timeout
            Seconds; `None` takes the tool's own.

        Raises
        ------
        NbtoolsError
            It failed, or was stopped; the result so far is bound first.
        """
        given = {name: value for name, value in arguments.items() if value is not None or keep_nulls}
        workbench = self.workbench
        result, live = self.drive(
            tool,
            lambda live: workbench.acall(tool, given, caller="magic", timeout=timeout, on_output=live),
            stopped=request.bind,
        )
        request.streamed = live.stdout
        if not result.ok:
            request.bind(result)
        return result.raise_for_error()

    def ask(self, request: Request, query: str, **options: Any) -> QueryResult:
        """Ask by SQL through the door, and return what came back.

        Raises
        ------
        NbtoolsError
            The query is refused, wrong, too slow, or was stopped.
        """
        workbench = self.workbench

        def work(live: Live) -> Awaitable[QueryResult]:
            def report(share: float) -> None:
                live("progress", f"· {share:.0%}")

            return workbench.aquery(query, caller="magic", on_progress=report, **options)

        return self.drive("sql_query", work, stopped=lambda _: None)[0]

    def perform(
        self,
        request: Request,
        name: str,
        work: Callable[[], T],
        *,
        arguments: Mapping[str, Any] | None = None,
        effects: Effects,
        said: Callable[[T], str] = lambda _: "",
    ) -> tuple[T, ToolResult]:
        """Do something that is no tool through the same door, so that it is judged, timed and recorded alike.

        Parameters
        ----------
        name
            Under which it is judged and recorded.
        work
            Does it, in a thread.
        arguments
            What the record tells.
        effects
            What it does to the world.
        said
            Returns the text of the result.
        """
        from nbtools.parameters import SchemaParameters
        from nbtools.result import Output
        from nbtools.tool import Tool, ToolCall

        kept: list[T] = []

        def function(**given: Any) -> Output:
            kept.append(work())
            return Output(text=said(kept[0]))

        tool = Tool(name=name, function=function, parameters=SchemaParameters({}), effects=effects, about=name)
        told = {key: value for key, value in (arguments or {}).items() if value is not None}
        asked = ToolCall(tool=name, arguments=told, caller="magic")
        door = self.workbench.door
        result, _ = self.drive(name, lambda _: door.admit(tool, asked), stopped=request.bind)
        result.raise_for_error()
        return kept[0], result


def _read_line(prompt: str) -> str:
    """Read a line as the front end of the moment does; one that cannot ask is at its end."""
    try:
        return builtins.input(prompt)  # looked up now: a kernel replaces it while a cell runs
    except NotImplementedError:  # StdinNotImplementedError, under nbclient for one
        raise EOFError from None
