"""An outside server that is connected when it is needed: for a call of one of its tools, or for the list of all.

One that does not answer so holds up those alone who ask for it. It is tried once: what went wrong is a warning at
that moment, and the answer to every later call of its tools.
"""

from __future__ import annotations

import asyncio
import threading
import warnings

from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import ToolCall
from nbtools.errors import CallTimeout, NetworkError, ToolNotFound
from nbtools.ground import aio
from nbtools.mcp_client.executor import McpExecutor


class LazyExecutor:
    """The tools of one outside MCP server, which is connected at first use.

    Parameters
    ----------
    server
        Not connected yet; it is closed with this.

    Attributes
    ----------
    prefix
        What the names of all its tools begin with.
    """

    def __init__(self, server: McpExecutor) -> None:
        self.prefix = f"{server.name}__"
        self._server = server
        self._lock = threading.Lock()
        self._tried = False
        self._closed = False
        self._failure: NetworkError | None = None

    def listed(self) -> Registry:
        """Return the tools that were listed so far, without waiting."""
        return self._server.tools()

    def tools(self) -> Registry:
        """Return the tools of the server, connecting to it first; none when it cannot be used."""
        self._connect()
        return self._server.tools()

    async def acall(self, call: ToolCall) -> ToolResult:
        """Perform a call, connecting first; an expected failure is in the result, never an exception."""
        try:
            if not self._tried:
                # A time that makes no sense is refused later, with all other arguments.
                async with asyncio.timeout(call.timeout if call.timeout is not None and call.timeout > 0 else None):
                    # Beside the loop, because connecting is work for the loop itself.
                    await aio.in_thread(self._connect)
        except TimeoutError:
            late = CallTimeout(f"the MCP server {self._server.name!r} did not answer within {call.timeout:g} s.")
            return self._server.refuse(call, late)
        if self._failure is not None:
            return self._server.refuse(call, self.missing(call.tool))
        return await self._server.acall(call)

    call = aio.blocking(acall)

    def missing(self, name: str) -> ToolNotFound:
        """Return the error for a tool that is not there: it says why the server, or the tool, is missing."""
        if self._failure is None:
            return self._server.missing(name)
        return ToolNotFound(
            f"there is no tool {name!r}: the server {self._server.name!r} is unreachable: {self._failure.message}",
            hint=f"Check mcp_servers.{self._server.name} in the settings, then open the workbench anew.",
        )

    def _connect(self) -> None:
        with self._lock:
            if self._tried or self._closed:
                return
            problems: list[str] = []
            try:
                self._server.connect()
                problems = [f"the MCP server {self._server.name!r}: {problem}" for problem in self._server.problems]
            except NetworkError as exc:
                self._failure = exc
                problems = [str(exc)]
            self._tried = True
        if problems and not self._closed:
            warnings.warn("\n".join(problems), stacklevel=2)

    def close(self) -> None:
        """End the connection, and the server that was started for it."""
        self._closed = True
        self._server.close()
