"""Tools of outside MCP servers, as ``server__tool``, behind the same door.

::

    late         servers that are connected when they are needed
    executor     what a server offers, as tools; their calls
    connection   one connection, from its opening to its end
    process      a server that is started for it
    sieve        lists without the tools that are declared badly
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.lazy import facade

if TYPE_CHECKING:
    from nbtools.mcp_client.executor import McpExecutor
    from nbtools.mcp_client.late import LateExecutor

__all__ = ["LateExecutor", "McpExecutor"]

__getattr__ = facade(
    __name__, {"LateExecutor": "nbtools.mcp_client.late", "McpExecutor": "nbtools.mcp_client.executor"}
)
