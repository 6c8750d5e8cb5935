"""Executors: what can name tools and perform calls. All of them lead through the one door."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from nbtools.contract.door import Door
from nbtools.contract.failures import failure
from nbtools.contract.registry import Registry
from nbtools.contract.result import Output, ToolResult
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Context, Effects, Tool, ToolCall
from nbtools.errors import InvalidArguments, NbtoolsError, ToolNotEnabled, ToolNotFound
from nbtools.ground.aio import blocking, in_thread


class Executor(Protocol):
    """Offers tools and performs calls."""

    def tools(self) -> Registry:
        """Return the tools that may be called."""

    async def acall(self, call: ToolCall) -> ToolResult:
        """Perform a call; an expected failure is in the result, never an exception."""


@runtime_checkable
class _Remote(Executor, Protocol):
    """An executor that may keep one waiting for its tools, and so is asked only for names with its prefix."""

    prefix: str

    def listed(self) -> Registry:
        """Return the tools that were fetched so far, without waiting."""

    def missing(self, name: str) -> ToolNotFound:
        """Return the error for a tool that it does not have, which says why."""


class LocalExecutor:
    """Performs the tools of a registry in this process.

    Parameters
    ----------
    tools
        A registry, or functions and tools to make one of.
    door
        What every call goes through; `None` makes one without services.
    enabled
        Names of the tools that may be called; ``"*"`` stands for all.

    Raises
    ------
    ToolNotFound
        A name in `enabled` is unknown.

    Examples
    --------
    >>> def add(a: int, b: int) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> LocalExecutor([add]).call(ToolCall(tool="add", arguments={"a": 1, "b": 2})).data
    3
    """

    def __init__(
        self,
        tools: Registry | Iterable[Tool | Callable[..., Any]],
        *,
        door: Door | None = None,
        enabled: Sequence[str] = ("*",),
    ) -> None:
        self._all = tools if isinstance(tools, Registry) else Registry(tools)
        chosen = self._all.select(*enabled)
        self._enabled = Registry(chosen.values(), disabled=self._all.keys() - chosen.keys())
        self.door = door or Door()

    def tools(self) -> Registry:
        """Return the tools that are enabled."""
        return self._enabled

    async def acall(self, call: ToolCall) -> ToolResult:
        """Perform a call; an expected failure is in the result, never an exception."""
        try:
            registered = self._enabled[call.tool]
        except (ToolNotFound, ToolNotEnabled) as exc:
            return self.door.refuse(call, exc)
        return await self.door.admit(registered, call, self.acall)

    call = blocking(acall)


class CompositeExecutor:
    """An ordered list of executors as one: tools are merged, calls are routed by name.

    Parameters
    ----------
    executors
        The first one refuses the calls that none knows.

    Raises
    ------
    InvalidArguments
        A name is offered twice, or there is no executor.
    """

    def __init__(self, executors: Sequence[Executor]) -> None:
        if not executors:
            raise InvalidArguments("a composite executor needs at least one executor.")
        self._executors = tuple(executors)
        self._remotes = tuple(e for e in self._executors if isinstance(e, _Remote))
        self._near = tuple(e for e in self._executors if not isinstance(e, _Remote))
        # Two tools of one name are told when the workbench opens, and not at a call; who is far is not waited for.
        self.merged(self._near)

    def merged(self, executors: Iterable[Executor] | None = None) -> Registry:
        """Return the tools of executors, in order, each asked again: its server may come, go, or change its tools.

        Parameters
        ----------
        executors
            `None` for all, which waits for those that are far.

        Raises
        ------
        InvalidArguments
            A name is offered twice.
        """
        tools: dict[str, Tool] = {}
        disabled: set[str] = set()
        for executor in self._executors if executors is None else executors:
            offered = executor.tools()
            disabled |= offered.disabled
            for name, item in offered.items():
                if name in tools:
                    raise InvalidArguments(
                        f"the tool {name!r} is offered twice.",
                        hint="Give one executor's tools a prefix: registry.prefixed('x_').",
                    )
                tools[name] = item
        return Registry(tools.values(), disabled=disabled)

    def tools(self) -> Registry:
        """Return the tools of all executors, in order; who is far is asked when its tools are looked at."""
        return _LazyRegistry(self) if self._remotes else self.merged()

    def find(self, name: str) -> Tool:
        """Return a tool, asking only executors that may have it.

        Raises
        ------
        ToolNotFound
            There is none; the nearest known name is in the hint.
        """
        remotes = [remote for remote in self._remotes if name.startswith(remote.prefix)]
        for executor in (*self._near, *remotes):
            tools = executor.tools()
            if name in tools:
                return tools[name]
        raise remotes[-1].missing(name) if remotes else self._unknown(name)

    async def acall(self, call: ToolCall) -> ToolResult:
        """Route a call to the executor that offers the tool."""
        for executor in self._near:
            if call.tool in executor.tools():
                return await executor.acall(call)
        remotes = [remote for remote in self._remotes if call.tool.startswith(remote.prefix)]
        for remote in remotes[:-1]:
            # Names of servers may begin alike. Asking waits, and what is waited for is work for the loop.
            if call.tool in await in_thread(remote.tools):
                return await remote.acall(call)
        # The last one knows why it does not have a tool.
        return await (remotes[-1].acall(call) if remotes else self._refuse(call))

    call = blocking(acall)

    async def _refuse(self, call: ToolCall) -> ToolResult:
        refused = await self._executors[0].acall(call)
        exc = self._unknown(call.tool)
        # The first one knows the names of its own tools only; one it has and does not offer, it says so itself.
        if refused.error is not None and refused.error.code == exc.code:
            error = dataclasses.replace(refused.error, message=exc.message, hint=exc.hint)
            return dataclasses.replace(refused, text=str(exc), error=error)
        return refused

    def _unknown(self, name: str) -> ToolNotFound | ToolNotEnabled:
        """Return the error for a name that nobody offers, with the nearest of those known without waiting."""
        tools: dict[str, Tool] = {}
        for executor in self._executors:
            tools |= executor.listed() if isinstance(executor, _Remote) else executor.tools()
        disabled = {name for executor in self._near for name in executor.tools().disabled}
        try:
            Registry(tools.values(), disabled=disabled)[name]
        except (ToolNotFound, ToolNotEnabled) as exc:
            return exc
        raise AssertionError(name)


class _LazyRegistry(Registry):
    """The tools of a composite: one can be had by its name without waiting for servers that do not have it."""

    def __init__(self, owner: CompositeExecutor) -> None:
        self._owner = owner

    @functools.cached_property
    def _tools(self) -> dict[str, Tool]:  # type: ignore[override]  # filled when all are looked at
        return {item.name: item for item in self._owner.merged().values()}

    def __getitem__(self, name: str) -> Tool:
        return self._owner.find(name)

    def __contains__(self, name: object) -> bool:
        try:
            return bool(self._owner.find(str(name)))
        except ToolNotFound:
            return False


async def perform(
    door: Door,
    call: ToolCall,
    work: Callable[[], Any],
    *,
    effects: Effects | Callable[[Context], Effects],
    origins: tuple[str, ...] = (),
    text_of: Callable[[Any], str] = lambda _: "",
    error_of: Callable[[Any], NbtoolsError | None] = lambda _: None,
) -> tuple[Any, ToolResult]:
    """Do something that is not a tool through a door, so that it is judged, timed and recorded like a call.

    Returns what `work` returned, and the result.

    Parameters
    ----------
    door
        The door.
    call
        Under which name, with which arguments and for whom it is judged and recorded.
    work
        Does it: a coroutine function, or a function that runs in a thread.
    effects
        What it does to the world, or a function that tells it of who calls.
    origins
        Tools whose rules hold for it too.
    text_of
        Returns the text of the result.
    error_of
        Returns the error that a value of `work` tells: the call has failed then, and its record says so.

    Raises
    ------
    NbtoolsError
        It may not be done, or failed; the cause is there where that was not an expected failure.
    """
    box: list[Any] = []
    failed: list[Exception] = []

    async def function(**arguments: Any) -> Output[Any] | ToolResult:
        try:
            box.append(await (work() if inspect.iscoroutinefunction(work) else in_thread(work)))
        except Exception as exc:
            failed.append(exc)
            raise
        if (error := error_of(box[0])) is not None:
            return failure(call, error)
        return Output(text=text_of(box[0]), value=box[0])

    tool = _tool_of(call.tool, function, effects, origins)
    result = await door.admit(tool, call)
    if result.error is None or (box and error_of(box[0]) is not None):
        return box[0], result
    cause = failed[0] if failed else None
    # The door has taken secrets out of the text of an unknown error; the error itself still has them.
    if not isinstance(cause, NbtoolsError):
        raise result.to_error() from cause
    # Its own class says more than the code's, and the result has its words without secrets.
    cause.message, cause.hint = result.error.message, result.error.hint
    raise cause


def _tool_of(
    name: str, function: Callable[..., Any], effects: Effects | Callable[[Context], Effects], origins: tuple[str, ...]
) -> Tool:
    return Tool(
        name=name,
        function=function,
        parameters=SchemaParameters({}),
        effects=effects if isinstance(effects, Effects) else Effects(),
        # They are those of this very call.
        effects_of=lambda _values, ctx: effects if isinstance(effects, Effects) else effects(ctx),
        about=name,
        origins=origins,
    )
