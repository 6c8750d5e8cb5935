"""Executors: whoever can name tools and perform calls. All of them lead through the one door."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from nbtools.aio import blocking
from nbtools.door import Door
from nbtools.errors import InvalidArguments, ToolNotEnabled, ToolNotFound
from nbtools.registry import Registry
from nbtools.result import ToolResult
from nbtools.tool import Tool, ToolCall

__all__ = ["CompositeExecutor", "Executor", "LocalExecutor"]


class Executor(Protocol):
    """Offers tools and performs calls."""

    def tools(self) -> Registry:
        """Return the tools that may be called."""

    async def acall(self, call: ToolCall) -> ToolResult:
        """Perform a call; an expected failure is in the result, never an exception."""


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
        self._enabled = self._all.select(*enabled)
        self.door = door or Door()

    def tools(self) -> Registry:
        """Return the tools that are enabled."""
        return self._enabled

    async def acall(self, call: ToolCall) -> ToolResult:
        """Perform a call; an expected failure is in the result, never an exception."""
        try:
            if call.tool in self._all and call.tool not in self._enabled:
                raise ToolNotEnabled(
                    f"the tool {call.tool!r} is not enabled here.",
                    hint=f"Enabled are {', '.join(self._enabled) or 'none'}.",
                )
            found = self._enabled[call.tool]
        except (ToolNotFound, ToolNotEnabled) as exc:
            return self.door.refuse(call, exc)
        return await self.door.admit(found, call, self.acall)

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
        self._merged()

    def _merged(self) -> tuple[Registry, dict[str, Executor]]:
        # Asked anew each time: an outside server may come, go, or change its tools.
        routes: dict[str, Executor] = {}
        tools: list[Tool] = []
        for executor in self._executors:
            for name, found in executor.tools().items():
                if name in routes:
                    raise InvalidArguments(
                        f"the tool {name!r} is offered twice.",
                        hint="Give one executor's tools a prefix: registry.prefixed('x_').",
                    )
                routes[name] = executor
                tools.append(found)
        return Registry(tools), routes

    def tools(self) -> Registry:
        """Return the tools of all executors, in order."""
        return self._merged()[0]

    async def acall(self, call: ToolCall) -> ToolResult:
        """Route a call to the executor that offers the tool."""
        for executor in self._executors:
            if call.tool in executor.tools():
                return await executor.acall(call)
        refused = await self._executors[0].acall(call)
        try:
            self.tools()[call.tool]
        except ToolNotFound as exc:
            # The first one knows the names of its own tools only; one it has and does not offer, it says so itself.
            if refused.error is not None and refused.error.code == exc.code:
                error = dataclasses.replace(refused.error, message=exc.message, hint=exc.hint)
                return dataclasses.replace(refused, text=str(exc), error=error)
        return refused

    call = blocking(acall)
