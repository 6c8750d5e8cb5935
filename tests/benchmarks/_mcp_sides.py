"""The servers that the MCP benchmark compares, each with the same trivial tool; run as a script, one server each.

``_mcp_sides.py SIDE stdio`` serves over standard input and output; ``_mcp_sides.py SIDE PORT`` over HTTP on loopback,
until its standard input ends. Start it with ``python -P``, or the benchmark's own file would be taken for the package
``mcp``.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from typing import Any


def ours(port: int | None) -> None:
    """Serve a whole workbench: the shelf, the door, spans, and records in a memory on disk."""
    from nbtools.assembly.workbench import Workbench
    from nbtools.contract.tool import tool
    from nbtools.mcp_server import HttpServer, serve_stdio

    @tool(read_only=True)
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with tempfile.TemporaryDirectory() as home, Workbench(home=home, tools=[add]) as bench:
        if port is None:
            serve_stdio(bench)
            return
        server = HttpServer(bench, port=port, token="")
        server.start()
        sys.stdin.read()
        server.close()


def official(port: int | None) -> None:
    """Serve one function by the official package's high-level server."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("official", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    if port is None:
        server.run("stdio")
    else:
        end_with_stdin()
        server.run("streamable-http", port=port)


def bare(port: int | None) -> None:
    """Serve one function by the official package's low-level server: nothing is validated, logged or limited."""
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool(name="add", input_schema={"type": "object"})])

    async def call(context: Any, params: Any) -> Any:
        total = params.arguments["a"] + params.arguments["b"]
        text = types.TextContent(type="text", text=str(total))
        return types.CallToolResult(content=[text], structured_content={"result": total})

    server = Server("bare", on_list_tools=tools, on_call_tool=call)

    async def serve() -> None:
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    if port is None:
        asyncio.run(serve())
    else:
        import uvicorn

        end_with_stdin()
        uvicorn.run(server.streamable_http_app(), port=port, log_level="error")


def end_with_stdin() -> None:
    """End the process as soon as its standard input ends."""
    import os

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


SIDES = {"ours": ours, "official": official, "bare": bare}

if __name__ == "__main__":
    SIDES[sys.argv[1]](None if sys.argv[2] == "stdio" else int(sys.argv[2]))
