"""Streamable HTTP: a server on nbtools' own loop, and the configuration with which clients reach it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbtools.assembly.workbench import Workbench
from nbtools.errors import ConfigInvalid
from nbtools.ground import aio
from nbtools.ground.config import Config
from nbtools.ground.lazy import need
from nbtools.mcp_server.tool_server import WHY, make_server

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]+)?", re.IGNORECASE)
_ORIGIN = re.compile(rb"https?://" + _HOST.pattern, re.IGNORECASE)


class HttpServer:
    """A server over streamable HTTP, on nbtools' own loop.

    Parameters
    ----------
    bench
        The workbench.
    port
        Port; 0 takes a free one.
    host
        Address to listen on. Anything but loopback needs a token.
    token
        What clients send as ``Authorization: Bearer …``; `None` makes one. An empty text asks for none, on loopback
        only.
    make
        Makes the low-level server; for those who add to it.

    Raises
    ------
    ConfigInvalid
        The host is not a loopback address and no token is wanted.
    """

    def __init__(
        self,
        bench: Workbench,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        token: str | None = None,
        make: Callable[[Workbench], Any] = make_server,
    ) -> None:
        if token == "" and host not in _LOOPBACK:
            raise ConfigInvalid(
                f"{host} can be reached from other machines, so it needs a token.",
                hint="Omit token: nbtools then makes one.",
            )
        self.token = secrets.token_urlsafe(24) if token is None else token
        self.host = host
        self.port = port
        self._bench = bench
        self._make = make
        self._uvicorn: Any = None
        self._done: Any = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/mcp"

    async def astart(self) -> None:
        """Start serving; return once connections are accepted.

        Raises
        ------
        ConfigInvalid
            The port is in use, or may not be opened.
        """
        uvicorn = need("uvicorn", extra="mcp", why=WHY)
        app = self._make(self._bench).streamable_http_app(host=self.host)
        guarded = _TokenGuard(app, self.token, self.host)
        settings = uvicorn.Config(guarded, host=self.host, port=self.port, log_level="warning", access_log=False)
        settings.load()
        self._uvicorn = uvicorn.Server(settings)
        self._uvicorn.install_signal_handlers = lambda: None
        self._done = asyncio.ensure_future(self._serve())
        while not self._uvicorn.started:
            if self._done.done():
                raise ConfigInvalid(
                    f"port {self.port} of {self.host} is in use or may not be opened.", hint="Choose another port."
                )
            await asyncio.sleep(0.01)
        self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]

    async def _serve(self) -> None:
        with contextlib.suppress(SystemExit):  # how uvicorn says that a port is taken
            await self._uvicorn.serve()

    start = aio.blocking(astart)

    async def await_end(self) -> None:
        """Wait until the server was stopped."""
        await asyncio.shield(self._done)

    wait = aio.blocking(await_end)

    async def aclose(self) -> None:
        """Stop serving, dropping connections that do not leave within a second."""
        if self._uvicorn is None:
            return
        self._uvicorn.should_exit = True
        _, pending = await asyncio.wait([self._done], timeout=1.0)
        if pending:
            self._uvicorn.force_exit = True
            await asyncio.wait([self._done], timeout=2.0)

    close = aio.blocking(aclose)


class _TokenGuard:
    """Admits requests that carry the token; blanks around the values of headers are removed (RFC 9110, 5.5).

    On loopback, the Host and Origin headers of a request have to name loopback too.
    """

    def __init__(self, app: Any, token: str, host: str) -> None:
        self._app = app
        self._names = {b"host": _HOST, b"origin": _ORIGIN} if host in _LOOPBACK else {}
        self._expected = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
            header = dict(scope["headers"]).get(b"authorization", b"")
            if self._expected and not hmac.compare_digest(header, self._expected):
                await _refuse(send, 401, b"a token is needed", (b"www-authenticate", b"Bearer"))
                return
            if any(name in self._names and not self._names[name].fullmatch(value) for name, value in scope["headers"]):
                await _refuse(send, 421, b"this server is for its own machine")
                return
        await self._app(scope, receive, send)


async def _refuse(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    content_type = (b"content-type", b"text/plain")
    await send({"type": "http.response.start", "status": status, "headers": [content_type, *headers]})
    await send({"type": "http.response.body", "body": body})


def client_config(*, url: str | None = None, token: str = "", config: Config | None = None) -> dict[str, Any]:
    """Return the configuration of this server for MCP clients.

    Parameters
    ----------
    url
        Of an HTTP server; `None` means stdio: then the client starts the server, and the folder to work in, the
        folders that are open and the settings of this process's variables are part of the configuration.
    token
        Of the HTTP server.
    config
        The settings of a server over stdio; `None` reads them.
    """
    if url is None:
        started = ["-m", "nbtools.cli", "mcp", "--folder", str(Path.cwd())]
        variables = (config or Config.load()).environment()
        return {"mcpServers": {"nbtools": {"command": sys.executable, "args": started, "env": variables}}}
    headers = {"headers": {"Authorization": f"Bearer {token}"}} if token else {}
    return {"mcpServers": {"nbtools": {"type": "http", "url": url, **headers}}}
