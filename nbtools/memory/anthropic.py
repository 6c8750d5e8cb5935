"""Anthropic's memory tool over our files: hand one of these to ``client.beta.messages.run_tools(tools=[…])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbtools.lazy import need
from nbtools.memory.files.tool import MemoryFiles

__all__ = ["BETA_HEADER", "AsyncMemoryTool", "MemoryTool"]

BETA_HEADER = "context-management-2025-06-27"
_tools: Any = need("anthropic.lib.tools", extra="anthropic", why="Anthropic's memory tool")


def _given(command: Any) -> dict[str, Any]:
    given: dict[str, Any] = dict(command) if isinstance(command, Mapping) else command.model_dump(exclude_none=True)
    return given


class MemoryTool(_tools.BetaAbstractMemoryTool):
    """The blocking memory tool of the Anthropic SDK.

    Parameters
    ----------
    files
        Where the files lie.
    **options
        Those of the SDK's class, such as ``cache_control``.
    """

    def __init__(self, files: MemoryFiles, **options: Any) -> None:
        super().__init__(**options)
        self._files = files

    def execute(self, command: Any) -> str:
        """Perform a command; called by the SDK.

        Raises
        ------
        ToolError
            The command failed; the SDK hands its text to the model as an error.
        """
        result = self._files.call(_given(command))
        if not result.ok:
            raise _tools.ToolError(result.text)
        return result.text

    view = create = str_replace = insert = delete = rename = execute


class AsyncMemoryTool(_tools.BetaAsyncAbstractMemoryTool):
    """The async memory tool of the Anthropic SDK.

    Parameters
    ----------
    files
        Where the files lie.
    **options
        Those of the SDK's class, such as ``cache_control``.
    """

    def __init__(self, files: MemoryFiles, **options: Any) -> None:
        super().__init__(**options)
        self._files = files

    async def execute(self, command: Any) -> str:
        """Perform a command; called by the SDK.

        Raises
        ------
        ToolError
            The command failed; the SDK hands its text to the model as an error.
        """
        result = await self._files.acall(_given(command))
        if not result.ok:
            raise _tools.ToolError(result.text)
        return result.text

    view = create = str_replace = insert = delete = rename = execute
