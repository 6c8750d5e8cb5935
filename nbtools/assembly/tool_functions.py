"""Tools as functions with their own signatures, for people who write Python."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Tool


class ToolFunctions:
    """The tools of a workbench as functions that go through the door: ``wb.tools.data_analyze(…)``.

    Each takes keyword arguments and returns a `ToolResult`; ``.acall`` is its async twin.

    Parameters
    ----------
    tools
        Returns the tools that may be called.
    call
        Calls a tool, by its name and arguments, and returns the result.
    acall
        The same as a coroutine function.
    """

    def __init__(
        self,
        tools: Callable[[], Registry],
        call: Callable[[str, Mapping[str, Any]], ToolResult],
        acall: Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]],
    ) -> None:
        self._tools = tools
        self._call = call
        self._acall = acall

    def __getattr__(self, name: str) -> Callable[..., ToolResult]:
        # Python and notebooks look for such names on any object, and no tool can have one.
        if name.startswith("__"):
            raise AttributeError(name)
        item = self._tools()[name]

        def call(**arguments: Any) -> ToolResult:
            return self._call(name, arguments)

        async def acall(**arguments: Any) -> ToolResult:
            return await self._acall(name, arguments)

        twins: tuple[Any, ...] = (call, acall)
        for twin in twins:
            twin.__name__ = twin.__qualname__ = name
            twin.__doc__ = item.function.__doc__ if item.about is None else item.description
            twin.__signature__ = _signature(item)  # help() and completion read it
        twins[0].acall = acall
        return call

    def __dir__(self) -> list[str]:
        return list(self._tools())

    def __repr__(self) -> str:
        return f"ToolFunctions({', '.join(dir(self))})"


def _signature(tool: Tool) -> inspect.Signature:
    """Return the signature that callers see: keywords only, without what is handed in or fixed."""
    schema = tool.schema
    required = schema.get("required", ())
    keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    parameters = [
        inspect.Parameter(name, keyword, default=empty if name in required else prop.get("default"))
        for name, prop in schema["properties"].items()
        # Schemas of outside servers may name arguments as Python cannot.
        if name.isidentifier()
    ]
    return inspect.Signature(parameters, return_annotation=ToolResult)
