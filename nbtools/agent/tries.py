"""Several tries of one prompt, from one state of sessions: each is a run of its own, and one of them is kept."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nbtools.agent.records.events import AgentEvent
from nbtools.agent.records.lines import RunLines, usage_words
from nbtools.agent.run import AgentRun
from nbtools.agent.sharing import Sharing, is_own
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Approver, Reply
from nbtools.contract.door import Door
from nbtools.contract.tool import Effects, Tool, ToolCall, tool_of
from nbtools.errors import InvalidArguments
from nbtools.ground.telemetry import fresh_id
from nbtools.toolbox.session_tools import session_fork

if TYPE_CHECKING:
    from nbtools.kernels import Kernels

# Two tries that copy the same session wait for each other; by what they share.
_COPYING: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
_NAMING_SESSIONS = ("session", "copy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tries:
    """What several tries share.

    Attributes
    ----------
    models
        The model of each; `None` takes the one that is set.
    at_once
        Whether they run side by side, rather than one after the other.
    id
        By which they are found.
    asking
        Held while a person is asked.
    turn
        Held by the one that runs, where they run one after the other.
    number
        Which of them it is about, from 1; 0 where it is about all.
    """

    models: tuple[Any, ...]
    at_once: bool = True
    id: str = dataclasses.field(default_factory=lambda: fresh_id()[:8])
    asking: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    turn: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    number: int = 0

    @classmethod
    def of(cls, tries: int | Sequence[Any], *, at_once: bool) -> Tries:
        """Return what so many tries share, or those of these models.

        Raises
        ------
        InvalidArguments
            They are fewer than two.
        """
        models = (None,) * tries if isinstance(tries, int) else tuple(tries)
        if len(models) < 2 or isinstance(tries, str):
            raise InvalidArguments(f"tries are at least two, not {tries!r}.", hint="Give a number, or several models.")
        return cls(models=models, at_once=at_once)

    def sessions_end(self, number: int) -> str:
        """Return what the names of the sessions of a try end in."""
        return f"-try{number}-{self.id[:4]}"

    def has_turn(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return what a try holds while it runs."""
        return contextlib.nullcontext() if self.at_once else self.turn


class OneAtATime:
    """Asks for one call at a time, and says which try it is of.

    Parameters
    ----------
    behind
        Who is asked.
    tries
        What the tries share, and which of them it is.
    """

    def __init__(self, behind: Approver, tries: Tries) -> None:
        self._behind, self._tries = behind, tries

    async def approve(self, request: ApprovalRequest) -> Any:
        """Return the answer."""
        which = f"try [{self._tries.number}] of {len(self._tries.models)} asks"
        request = dataclasses.replace(request, reason=f"{which}; {request.reason}")
        async with self._tries.asking:
            return Reply.of(await self._behind.approve(request))


class OwnSessions:
    """The sessions of one try: copies of those that its calls name, so that no try sees what another one does.

    Parameters
    ----------
    door
        What each copy is made through.
    tries
        The id that all tries of the prompt share.
    ending
        The suffix of the names of this try's sessions.
    sharing
        What the model of the try may see of an error.
    """

    def __init__(self, door: Door, tries: str, ending: str, sharing: Sharing) -> None:
        self._door, self._ending, self._sharing = door, ending, sharing
        self._copying = _COPYING.setdefault(tries, asyncio.Lock())
        self._forking: set[str] = set()

    async def rename(self, tool: Tool, call: ToolCall) -> ToolCall:
        """Return a call that names only sessions of the try, which are copied now where they are not.

        Raises
        ------
        InvalidArguments
            A session cannot be copied.
        """
        if not is_own(tool) or call.call_id in self._forking:
            return call
        names = {name: call.arguments.get(name) for name in _NAMING_SESSIONS if name in tool.parameters.outline()}
        own = {name: f"{str(value).removesuffix(self._ending)}{self._ending}" for name, value in names.items() if value}
        if "session" in own:
            await self._copy(own["session"], call)
        return call.but(arguments={**call.arguments, **own})

    async def _copy(self, copy: str, call: ToolCall) -> None:
        from nbtools.kernels import Kernels

        kernels, session = self._door.for_models[Kernels](), copy.removesuffix(self._ending)
        async with self._copying:
            names = {one["name"] for one in kernels.list()}
            if session in names and copy not in names:
                own: dict[str, Any] = {"call_id": fresh_id(), "parent_id": call.call_id, "on_output": None}
                arguments = {"session": session, "copy": copy}
                forking = call.but(tool="session_fork", arguments=arguments, timeout=None, journal=None, **own)
                self._forking.add(forking.call_id)
                fork = tool_of(session_fork)
                result = await self._door.admit(fork, forking)
                if not result.ok:
                    why = self._sharing.text_of(fork, result)
                    raise InvalidArguments(f"this try works in a copy of session {session!r}, which failed: {why}")


async def keep_sessions(
    kernels: Kernels, ending: str, others: Collection[str], end_others: Callable[[], Awaitable[None]]
) -> None:
    """Give the sessions of a try the names that its model knows them by, and then end the others and theirs."""
    # Where that is refused, the others are still there.
    for name in [one["name"] for one in kernels.list() if one["name"].endswith(ending)]:
        await kernels.aadopt(name, name.removesuffix(ending))
    await end_others()
    for name in [one["name"] for one in kernels.list()]:
        if name.endswith(tuple(others)):
            await kernels.astop(name)


KEEPS = Effects(destructive=True)
"""What keeping one of several tries does: the others and their sessions end."""


async def follow(runs: Sequence[AgentRun], tell: Callable[[int, AgentEvent], None]) -> None:
    """Hand on what happens in tries, with the number of each, to their end; who is cancelled meanwhile stops them."""

    async def follow_one(number: int, run: AgentRun) -> None:
        try:
            async for event in run:
                tell(number, event)
        except asyncio.CancelledError:
            run.interrupt()
            await run.await_end()

    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*(follow_one(number, run) for number, run in enumerate(runs, 1)))


def in_columns(runs: Sequence[AgentRun]) -> tuple[tuple[str, ...], ...]:
    """Return tries as a table with a column for each: its model, what it did, its outcome, its answer, its cost."""
    return (
        ("", *(f"try {number}" for number in range(1, len(runs) + 1))),
        ("run", *(run.run_id[:8] for run in runs)),
        ("model", *(run.label or run.model for run in runs)),
        *_block("did", [_calls_of(run) for run in runs]),
        ("outcome", *(run.state if run.error is None else f"{run.state}: {run.error.message}" for run in runs)),
        *_block("answer", [run.text.splitlines() for run in runs]),
        ("cost", *(" · ".join(usage_words(run.usage)) for run in runs)),
    )


def _calls_of(run: AgentRun) -> list[str]:
    lines = RunLines()
    events = [(event.kind, lines.line(event.to_dict())) for event in run.events]
    return [line for kind, line in events if kind == "call_ended"]


def _block(name: str, columns: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    for at, row in enumerate(itertools.zip_longest(*columns, fillvalue="")):
        yield ("" if at else name, *row)
