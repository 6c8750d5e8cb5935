"""Tools of outside MCP servers, as ``server__tool``, behind the same door.

::

    executor       what a server offers, as tools; their calls
    connection     one connection, from its opening to its end
    process        a server that is started for it
    tool_filter    lists without tools whose declarations are invalid
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.mcp_client.executor import McpExecutor

__all__ = ["McpExecutor"]

__getattr__ = facade(__name__)
