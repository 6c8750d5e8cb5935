"""The session: what the magics of one notebook share. Its workbench, its scope of memory, and how work is driven."""

from __future__ import annotations

import builtins
import collections
import contextlib
import contextvars
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from nbtools.assembly.shared import prepare_shared, shared
from nbtools.assembly.workbench import Workbench
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Answer, Approver, AskTerminal, Nobody, Reply, Rule
from nbtools.contract.approval.label_rules import Marks
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Effects, ToolCall
from nbtools.errors import RUN_AGAIN, Cancelled, Interrupted
from nbtools.ground import aio
from nbtools.jupyter.connections import NotebookConnections
from nbtools.jupyter.display.streaming import Live
from nbtools.jupyter.namespace import NotebookLook
from nbtools.jupyter.notebook.page import NotebookPage
from nbtools.jupyter.serving import Serving

if TYPE_CHECKING:
    from nbtools.jupyter.notebook.socket import NotebookSocket
    from nbtools.jupyter.options import NBTools
    from nbtools.memory import AgentMemory
    from nbtools.sql.saved import SavedQueries
    from nbtools.widgets import LiveWidget

T = TypeVar("T")

# Where the work of a magic shows its output: what it displays beside that would vanish when the cell is drawn again.
_LIVE: contextvars.ContextVar[Live | None] = contextvars.ContextVar("nbtools_live", default=None)


class _CardWhenAsked:
    """Asks by a card, see `nbtools.widgets.approval_card.CardApprover`; widgets are imported for the first question."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    @functools.cached_property
    def _card(self) -> Approver:
        from nbtools.widgets.approval_card import CardApprover

        return CardApprover(*self._arguments)

    async def approve(self, request: ApprovalRequest) -> Answer | Reply:
        """Show a card and wait for the answer."""
        approver = await aio.in_thread(lambda: self._card)
        return await approver.approve(request)


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
    names
        The variables that a magic sees: those of the notebook, behind those of the function that calls it.
    connections
        The databases that queries go to.
    completion_timeout
        Seconds that a completion waits for a slow source.
    agent_run
        The run that the next ``%%agent`` goes on from; `None` starts afresh.
    agent_look
        What its model sees of the variables; it knows what that has seen.
    page
        The page that shows the notebook.
    """

    def __init__(self, shell: Any, options: NBTools, *, short_names: Callable[[], Mapping[str, str]]) -> None:

        self.shell = shell
        self.options = options
        self.short_names = short_names
        self.serving = Serving()
        self.completion_timeout = 0.25
        self.file_columns: dict[tuple[str, int, int], tuple[str, ...]] = {}
        self.column_meanings: dict[str, str] = {}
        self.names = collections.ChainMap(shell.user_ns)
        self.connections = NotebookConnections(lambda: self.workbench, self.names)
        self.agent_run: str | None = None
        self._scripted: list[tuple[tuple[str, str], str | None]] = []
        self.agent_look = NotebookLook(self.shell)
        self._scope: dict[str, Any] = {}
        self._prepared: Workbench | None = None
        self.page = NotebookPage(shell, self._record_outcome)
        self._socket: NotebookSocket | None = None
        prepare_shared(self._prepare)
        options.observe(self._set_rules, "confirm")

    @property
    def workbench(self) -> Workbench:
        """The workbench of this process, opened at first use; see `_prepare` for what the notebook does to it then."""
        return shared()

    def _prepare(self, workbench: Workbench) -> None:
        """Let a workbench see the notebook's frames and ask its user."""
        self._prepared = workbench
        workbench.use_frames(self.names.get)
        workbench.page = lambda: self.page.ask if self.page.answers() else None
        self.listen()
        # An approver that someone has chosen for their own workbench stays.
        if isinstance(workbench.door.approver, Nobody):
            by_input = AskTerminal(reader=read_line)
            workbench.door.approver = by_input if workbench.config.widgets_read_only else self._person(by_input)
        self._set_rules()

    def listen(self) -> None:
        """Let other processes of this user read the notebook, and propose cells; harmless when repeated."""
        if self._socket is None and getattr(self.shell, "kernel", None) is not None:
            from nbtools.ground.config import Config
            from nbtools.jupyter.notebook.socket import NotebookSocket

            self._socket = NotebookSocket(Config.load().home, self.page.ask)

    def _record_outcome(self, question: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Record what a person made of a proposal, beside the call that made it; this may not block."""
        arguments = {name: question[name] for name in ("notebook", "action", "cell", "source")}
        whose = question.get("call", {})
        call = ToolCall(
            tool="notebook_propose",
            arguments={**arguments, "proposal": question["proposal"]},
            caller="form",
            run_id=whose.get("run_id"),
            parent_id=whose.get("call_id"),
        )
        outcome = f"{state['outcome']} at {state['at']}"
        work = self.workbench.aperform(call, lambda: outcome, effects=Effects(), text_of=str)
        aio.loop().call_soon_threadsafe(functools.partial(aio.loop().create_task, work))

    def _set_rules(self, _: object = None) -> None:
        """Have magics ask before they destroy, where the option says so: after the settings' rules, before defaults."""
        if self._prepared is not None:
            door = self._prepared.door
            asking = Rule(action="ask", effects=("destructive",), callers=("magic",))
            # Without the one of before, so that the option can be turned on and off as often as people like.
            others = tuple(rule for rule in door.rules if rule != asking)
            door.rules = (*others, asking) if self.options.confirm else others

    def _person(self, asked_by_input: Approver) -> Approver:
        """Return who asks the person at the cell: by a card in a kernel, at a prompt elsewhere."""
        if not hasattr(self.shell, "kernel"):
            return asked_by_input
        return _CardWhenAsked(asked_by_input, self.show)

    @property
    def is_alone(self) -> bool:
        """Whether the person at the cell would be asked, and there is none: a runner of notebooks says so."""
        asks_here = isinstance(self.workbench.door.approver, _CardWhenAsked)
        # What runs notebooks by itself, such as nbclient, allows no input, and an approval would wait for ever.
        return asks_here and not getattr(self.shell.kernel, "_allow_stdin", False)

    def show(self, widget: LiveWidget) -> None:
        """Show a widget in the cell that runs."""
        live = _LIVE.get()
        for data, metadata in widget.outputs():
            if live is not None:
                live("display", data=data)
            else:
                self.shell.display_pub.publish(data=data, metadata=metadata)

    @functools.cached_property
    def saved_queries(self) -> SavedQueries:
        """The queries that ``%%nbsql --save`` keeps."""
        from nbtools.sql.saved import SavedQueries

        # The agent's own memory, whatever scope the magics of the memory work in.
        return SavedQueries(
            lambda: self.workbench.memory,
            lambda: None if self.memory_at_hand() is None else self.workbench.memory,
            lambda note: self.workbench.door.services[Marks]().knows_value(note),
        )

    def frame_of(self, name: str) -> Any:
        """Return the DataFrame that a variable is, or `None`."""
        from nbtools.sql.frames import is_frame

        value = self.names.get(name)
        return value if is_frame(value) else None

    @contextlib.contextmanager
    def within(self, variables: Mapping[str, Any]) -> Iterator[None]:
        """Let a magic that a function calls see the function's variables, before those of the notebook."""
        inner = [] if variables is self.shell.user_ns else [dict(variables)]
        self.names.maps[:0] = inner
        try:
            yield
        finally:
            del self.names.maps[: len(inner)]

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

    def go_on_from(self, run_id: str | None) -> None:
        """Let the next ``%%agent`` go on from a run, or start afresh; its model has seen no variables."""
        self.agent_run, self.agent_look = run_id, NotebookLook(self.shell)
        self._scripted.clear()

    def play_again(self, script: str, prompt: str) -> None:
        """Let a cell whose script was played before go on from where it did then, for its turns are used up since."""
        began = [cell for cell, _ in self._scripted]
        if (script, prompt) in began:
            again = began.index((script, prompt))
            self.agent_run = self._scripted[again][1]
            # The cells below it played on from this one, and play again from it as they are run again.
            del self._scripted[again:]
        self._scripted.append(((script, prompt), self.agent_run))

    def close(self) -> None:
        """Stop serving, listening and preparing; the workbench is closed by the code that unloads the extension."""
        prepare_shared(None)
        self.serving.stop()
        if self._socket is not None:
            self._socket.close()

    def bind(self, name: str, value: Any) -> None:
        """Put a value into the user's namespace."""
        self.shell.push({name: value})

    def drive(
        self,
        label: str,
        work: Callable[[Live], Awaitable[T]],
        *,
        stopped: Callable[[Any], None] | None = None,
        hint: Callable[[Any], str] | None = None,
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
        hint
            Returns what to do after a Stop, given the same; `None` says that the cell can be run again.
        shows_time
            Whether the time of long work is shown; not where the work has its own display.

        Raises
        ------
        Cancelled
            The user stopped it.
        """
        live = Live(label, self.shell, progress=shows_time and self.options.progress)

        async def watched() -> T:
            _LIVE.set(live)
            return await live.watch(work(live))

        try:
            return aio.run(watched()), live
        except Interrupted as exc:
            if stopped is not None:
                stopped(exc.value)
            raise Cancelled(
                "you stopped it; its output until then remains.",
                hint=RUN_AGAIN if hint is None else hint(exc.value),
                tried=f"running {label}",
                data=exc.value.data if isinstance(exc.value, ToolResult) else None,
            ) from None


def read_line(prompt: str) -> str:
    """Read a line as the front end of the moment does; one that cannot ask is at its end."""
    try:
        return builtins.input(prompt)  # looked up now: a kernel replaces it while a cell runs
    except NotImplementedError:  # StdinNotImplementedError, for example under nbclient
        raise EOFError from None
