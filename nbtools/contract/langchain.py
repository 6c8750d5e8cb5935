"""Offer our tools to LangChain with the same names, descriptions, schemas, errors and artifacts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Tool, ToolCall
from nbtools.ground.aio import here, run
from nbtools.ground.lazy import need


def structured_tools(tools: Iterable[Tool], call: Callable[[ToolCall], Awaitable[ToolResult]]) -> list[Any]:
    """Return LangChain structured tools that send their calls through `call`.

    Each gives its text as content and the whole `ToolResult` as artifact. A failed call raises LangChain's
    ``ToolException``, which its agents hand to the model.

    Parameters
    ----------
    tools
        The tools.
    call
        Coroutine function that performs a call on nbtools' loop.

    Raises
    ------
    MissingExtra
        langchain-core is not installed.
    """
    langchain = need("langchain_core.tools", extra="langchain", why="Handing tools to LangChain")

    async def perform(name: str, arguments: dict[str, Any]) -> tuple[str, ToolResult]:
        result = await call(ToolCall(tool=name, arguments=arguments, caller="model"))
        if not result.ok:
            raise langchain.ToolException(str(result))
        return result.text, result

    def from_tool(tool: Tool) -> Any:
        def blocking(**arguments: Any) -> tuple[str, ToolResult]:
            return run(perform(tool.name, arguments))

        async def awaited(**arguments: Any) -> tuple[str, ToolResult]:
            return await here(perform(tool.name, arguments))

        return langchain.StructuredTool(
            name=tool.name,
            description=tool.description,
            args_schema=tool.schema,
            func=blocking,
            coroutine=awaited,
            response_format="content_and_artifact",
            handle_tool_error=True,
        )

    return [from_tool(tool) for tool in tools]
