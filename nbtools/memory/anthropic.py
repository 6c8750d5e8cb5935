"""The memory tool of Anthropic's SDK over `MemoryFiles`: pass one to ``client.beta.messages.run_tools(tools=[…])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbtools.contract.result import ToolResult
from nbtools.ground.lazy import need
from nbtools.memory.files.tool import MemoryFiles

_tools: Any = need("anthropic.lib.tools", extra="anthropic", why="Anthropic's memory tool")


class _OverFiles:
    """What both tools share.

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


def _fields(command: Any) -> dict[str, Any]:
    """Return a command as a dict; the SDK hands in models or, for commands that it does not know, dicts."""
    return dict(command) if isinstance(command, Mapping) else dict(command.model_dump(exclude_none=True))


def _text_of(result: ToolResult) -> str:
    if not result.ok:
        raise _tools.ToolError(result.text)
    return result.text


class MemoryTool(_OverFiles, _tools.BetaAbstractMemoryTool):
    """The blocking memory tool of the Anthropic SDK, for `files` (`MemoryFiles`) and the options of the SDK's class."""

    def execute(self, command: Any) -> str:
        """Perform a command; called by the SDK.

        Raises
        ------
        ToolError
            The command failed; the SDK hands its text to the model as an error.
        """
        return _text_of(self._files.call(_fields(command)))

    view = create = str_replace = insert = delete = rename = execute


class AsyncMemoryTool(_OverFiles, _tools.BetaAsyncAbstractMemoryTool):
    """The async memory tool of the Anthropic SDK, for `files` (`MemoryFiles`) and the options of the SDK's class."""

    async def execute(self, command: Any) -> str:
        """Perform a command; called by the SDK.

        Raises
        ------
        ToolError
            The command failed; the SDK hands its text to the model as an error.
        """
        return _text_of(await self._files.acall(_fields(command)))

    view = create = str_replace = insert = delete = rename = execute
