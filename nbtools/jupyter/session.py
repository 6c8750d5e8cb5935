"""The session: what the magics of one notebook share. Its workbench, its scope of memory, and how work is driven."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from nbtools import aio
from nbtools.errors import Cancelled
from nbtools.jupyter.display.streaming import Live
from nbtools.jupyter.serving import Serving

if TYPE_CHECKING:
    from nbtools.jupyter.options import NBTools
    from nbtools.memory import AgentMemory
    from nbtools.workbench import Workbench

__all__ = ["NotebookSession", "read_line"]

T = TypeVar("T")


class NotebookSession:
    """The magics of one notebook at work.

    Parameters
    ----------
    shell
        The IPython shell.
    options
        The interactive options.
    short_names
        Returns each magic's name that works here.

    Attributes
    ----------
    file_columns
        The columns of files that completion asked for, by path, time of change and size.
    completion_timeout
        Seconds that a completion waits for a slow source.
    agent_run
        The run that the next ``%%agent`` goes on from; `None` starts afresh.
    """

    def __init__(self, shell: Any, options: NBTools, *, short_names: Callable[[], Mapping[str, str]]) -> None:
        self.shell = shell
        self.options = options
        self.short_names = short_names
        self.serving = Serving()
        self.completion_timeout = 0.25
        self.file_columns: dict[tuple[str, int, int], tuple[str, ...]] = {}
        self.agent_run: str | None = None
        self._scope: dict[str, Any] = {}
        self._prepared: Workbench | None = None

    @property
    def workbench(self) -> Workbench:
        """The notebook's workbench, opened at first use; it sees the notebook's frames and may ask its user."""
        from nbtools.gate import AskTerminal, Nobody, Rule
        from nbtools.shared import shared

        found = shared()
        asking = Rule(action="ask", effects=("destructive",), callers=("magic",))
        if self.options.confirm is not (asking in found.door.rules):
            # Behind the rules of the settings, before the defaults.
            others = tuple(rule for rule in found.door.rules if rule != asking)
            found.door.rules = (*others, asking) if self.options.confirm else others
        if self._prepared is not found:
            found.use_frames(self.shell.user_ns.get)
            if isinstance(found.door.approver, Nobody):
                found.door.approver = AskTerminal(reader=read_line)
            self._prepared = found
        return found

    def opened(self, part: str) -> Any:
        """Return a service of the workbench when it runs already, `None` otherwise: completion starts nothing."""
        return None if self._prepared is None else self._prepared.opened(part)

    def memory_at_hand(self) -> AgentMemory | None:
        """Return the memory for completion: when it is open, or lies in a file whose keeper answers at once."""
        workbench = self.workbench
        if workbench.opened("memory") is None:
            config = workbench.config
            if config.memory_url is not None or not (config.home / "memory.duckdb").is_file():
                return None
        return self.memory

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

    def close(self) -> None:
        """Stop serving; the workbench is closed by whoever unloads the extension."""
        self.serving.stop()

    def bind(self, name: str, value: Any) -> None:
        """Put a value into the user's namespace."""
        self.shell.push({name: value})

    def drive(
        self,
        label: str,
        work: Callable[[Live], Awaitable[T]],
        *,
        stopped: Callable[[Any], None],
        shows_time: bool = True,
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
        shows_time
            Whether the time of long work is shown; not where the work has a display of its own.

        Raises
        ------
        Cancelled
            The user stopped it.
        """
        from nbtools.result import ToolResult

        live = Live(label, self.shell, progress=shows_time and self.options.progress)

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
                data=exc.value.data if isinstance(exc.value, ToolResult) else None,
            ) from None


def read_line(prompt: str) -> str:
    """Read a line as the front end of the moment does; one that cannot ask is at its end."""
    try:
        return builtins.input(prompt)  # looked up now: a kernel replaces it while a cell runs
    except NotImplementedError:  # StdinNotImplementedError, under nbclient for one
        raise EOFError from None
