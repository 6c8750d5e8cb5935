"""One connection to an outside server: a task from its opening to its end, and requests that notice that end.

It lives in one task because a client's scopes must be left in the task that entered them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from nbtools.contract.wire.mcp_lines import LineReader
from nbtools.errors import ExecutionFailed, InvalidArguments, NetworkError
from nbtools.ground.lazy import need
from nbtools.mcp_client.process import server_process
from nbtools.mcp_client.tool_filter import MAX_TOOLS, filter_tools

_WHY = "Using tools of an MCP server"
_MAX_PAGES = 100
_MAX_TOLD = 2_000


class ServerConnection:
    """One connection: a task that opens the client, waits until it is told to leave, and closes it.

    Parameters
    ----------
    name
        Of the server, for messages.
    entry
        Its settings; see `McpExecutor`.
    problems
        Gets a sentence for each fault of the server that does not prevent its use.
    timeout
        Seconds that opening it, and listing the tools, may take.
    """

    def __init__(self, name: str, entry: Mapping[str, Any], problems: list[str], *, timeout: float) -> None:
        self._timeout = timeout
        self._name = name
        self._problems = problems
        self._entry = entry
        self._client: Any = None
        self._leave = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._silence: TextIO | None = None

    @property
    def ended(self) -> bool:
        """Whether it is over, or never began."""
        return self._task is None or self._task.done()

    async def open(self) -> None:
        """Open it.

        Raises
        ------
        NetworkError
            The server does not start, does not answer within `timeout` seconds, or is not an MCP server.
        """
        self._task = asyncio.create_task(self._live())
        await self._in_time(asyncio.shield(self._ready))

    async def list_tools(self) -> list[Any]:
        """Return the tools that the server lists.

        Raises
        ------
        NetworkError
            It does not list them within `timeout` seconds, or the list is not valid MCP.
        """
        try:
            tools: list[Any] = await self._in_time(self.do(_all_tools))
        except (ExecutionFailed, InvalidArguments) as exc:
            await self.close()
            raise self._unreachable(exc) from None
        return tools

    async def _in_time(self, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError:
            await self.close()
            raise NetworkError(
                f"the MCP server {self._name!r} did not answer within {self._timeout:g} s.",
                hint=f"Check mcp_servers.{self._name} in the settings.",
            ) from None

    async def _live(self) -> None:
        try:
            async with self._open_client() as client:
                self._client = client
                self._ready.set_result(None)
                await self._leave.wait()
        except Exception as exc:
            if not self._ready.done():
                self._ready.set_exception(self._unreachable(exc))
        finally:
            self._client = None
            if not self._ready.done():
                # Cancelled on its way, by `close`: a caller that still waits need not wait for the time to be over.
                self._ready.set_exception(
                    NetworkError(f"the connection to the MCP server {self._name!r} was closed before it answered.")
                )
                self._ready.exception()  # or asyncio would report it, where nobody waits
            if self._silence is not None:
                self._silence.close()

    def _open_client(self) -> Any:
        # What goes wrong is told by our own errors. Where nobody set up logging, Python would print the official
        # package's tracebacks into the notebook as well; a user who did set it up gets them all the same.
        quiet = logging.getLogger("mcp")
        if not quiet.handlers:
            quiet.addHandler(logging.NullHandler())
        client = need("mcp.client.client", extra="mcp", why=_WHY).Client
        timeout = {"read_timeout_seconds": None}
        if "url" in self._entry:
            http = need("mcp.client.streamable_http", extra="mcp", why=_WHY)
            headers = self._entry.get("headers")
            session = None
            if headers:
                session = need("httpx2", extra="mcp", why=_WHY).AsyncClient(headers=dict(headers), timeout=None)
            size = {"max_sse_event_size": LineReader.max_bytes}  # as over stdio; the default is too small for a picture
            transport = http.streamable_http_client(self._entry["url"], http_client=session, **size)
            return client(filter_tools(transport, self._version, self._problems), **timeout)
        stdio = need("mcp.client.stdio", extra="mcp", why=_WHY)
        server = stdio.StdioServerParameters(
            command=self._entry["command"],
            args=[str(item) for item in self._entry.get("args", ())],
            env={name: str(value) for name, value in self._entry.get("env", {}).items()} or None,
            cwd=self._entry.get("cwd"),
        )
        # In a notebook sys.stderr is not a file, and what a server says there belongs to nobody's cell.
        self._silence = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - closed with the connection
        transport = server_process(server, self._silence, self._problems)
        return client(filter_tools(transport, self._version, self._problems), **timeout)

    def _version(self) -> str | None:
        return self._client.protocol_version if self._client is not None else None

    def _unreachable(self, exc: BaseException) -> NetworkError:
        while isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        return NetworkError(
            f"the MCP server {self._name!r} cannot be used: {type(exc).__name__}: {str(exc)[:_MAX_TOLD]}",
            hint=f"Check mcp_servers.{self._name} in the settings.",
        )

    def _bad_answer(self, exc: BaseException) -> ExecutionFailed:
        message = " ".join(str(exc).split())
        return ExecutionFailed(f"the MCP server {self._name!r} sent an answer that is not valid MCP: {message:.300}")

    async def do(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Await `work` of the client; raise where the connection ends first.

        Raises
        ------
        NetworkError
            The connection ended.
        InvalidArguments
            The server refused the request.
        ExecutionFailed
            The answer is not valid MCP.
        """
        if self._client is None or self._task is None:
            raise NetworkError(f"the MCP server {self._name!r} is not connected.")
        mcp_error = need("mcp", extra="mcp", why=_WHY).MCPError
        task = asyncio.ensure_future(work(self._client))
        try:
            await asyncio.wait({task, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise NetworkError(f"the MCP server {self._name!r} ended.")
            return task.result()
        except mcp_error as exc:
            if exc.error.code == need("mcp.types", extra="mcp", why=_WHY).CONNECTION_CLOSED:
                raise NetworkError(f"the MCP server {self._name!r} ended ({str(exc)[:_MAX_TOLD]}).") from None
            if exc.error.code == need("mcp.types", extra="mcp", why=_WHY).PARSE_ERROR:
                raise self._bad_answer(exc) from None
            raise InvalidArguments(f"the MCP server {self._name!r} refused: {str(exc)[:_MAX_TOLD]}") from None
        except (OSError, EOFError) as exc:
            raise self._unreachable(exc) from None
        except ValueError as exc:  # pydantic's, by way of the official package
            raise self._bad_answer(exc) from None
        finally:
            if not task.done():
                task.cancel()

    async def close(self) -> None:
        """Close it, and end the server that was started for it."""
        self._leave.set()
        if self._task is not None:
            if not self._ready.done():
                self._task.cancel()  # it waits for an answer, not for the word to leave
            _, pending = await asyncio.wait({self._task}, timeout=5.0)
            for task in pending:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._task}, timeout=2.0)


async def _all_tools(client: Any) -> list[Any]:
    tools: list[Any] = []
    cursors = {None}
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or cursor in cursors or len(cursors) > _MAX_PAGES or len(tools) >= MAX_TOOLS:
            return tools[:MAX_TOOLS]  # a list that ends, or one that never would
        cursors.add(cursor)
