"""MCP: the tools of a workbench for any client, over stdio or streamable HTTP.

::

    session      what a server offers: tools, memory items and artifacts, through the door (caller ``"mcp"``)
    approval     the gate asks the client
    stdio, http  the two ways in
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.mcp_server.approval import ElicitationApprover, McpClient
    from nbtools.mcp_server.http import HttpServer, client_config
    from nbtools.mcp_server.stdio import serve_stdio
    from nbtools.mcp_server.tool_server import make_server

__all__ = ["ElicitationApprover", "HttpServer", "McpClient", "client_config", "make_server", "serve_stdio"]

__getattr__ = facade(__name__)
