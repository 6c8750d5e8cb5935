"""MCP: the tools of a workbench for any client, over stdio or streamable HTTP.

A call comes in, goes through the same door as every other (caller ``"mcp"``), and its result goes back with text,
structured content, pictures and links to the files it made. Approval is asked for by elicitation: in the older
protocol by a request to the client while the call waits, in the newer one (2026-07-28) by answering
``input_required``, whereupon the client repeats the call with the answer. Memory items and artifacts are resources.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import contextvars
import hmac
import json
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from nbtools import aio
from nbtools.errors import ConfigInvalid, NbtoolsError
from nbtools.execute import Executor
from nbtools.gate import Answer, ApprovalRequest
from nbtools.lazy import need
from nbtools.result import Artifact, ToolResult
from nbtools.schema import to_mcp
from nbtools.tool import ToolCall
from nbtools.workbench import Workbench

__all__ = ["ElicitationApprover", "HttpServer", "McpClient", "client_config", "make_server", "serve_stdio"]

_WHY = "Serving tools over MCP"
_MEMORY, _ARTIFACTS = "nbtools://memory/", "nbtools://artifacts/"
_MAX_MEDIA = 5 * 2**20
_MAX_TEXT = 64 * 1024
_MAX_RESOURCES = 500
_PROGRESS_S = 0.1
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANSWERS: dict[str, Answer] = {"yes, once": "once", "yes, this tool all session": "tool", "no": "no"}


class _InputRequired(Exception):
    """The client must be asked before the call can run: no failure, it leaves the door to ask."""

    def __init__(self, request: ApprovalRequest) -> None:
        super().__init__(request.tool.name)
        self.request = request


class McpClient:
    """The client of the request that a call came with; a tool gets it by ``ctx.use(McpClient)``.

    Attributes
    ----------
    session
        The official package's session: for asking the client for more than a yes (``elicit_form``, ``create_message``).
    request_id
        What the client is told its answer belongs to.
    """

    def __init__(self, context: Any, params: Any) -> None:
        self._context = context
        self._given = (getattr(params, "input_responses", None) or {}).get("approval")
        self.session = context.session
        self.request_id = context.request_id

    @property
    def can_elicit(self) -> bool:
        """Whether the client declared that it shows forms."""
        capabilities = self._context.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Return the client's answer, or leave the call to ask for it."""
        if self._given is not None:
            return _answer(self._given)
        if not self.can_elicit:
            return "no"
        if not self._context.session.can_send_request:
            raise _InputRequired(request)
        said = await self._context.session.elicit_form(
            request.text(), _form(), related_request_id=self._context.request_id
        )
        return _answer(said)


_CLIENT: contextvars.ContextVar[McpClient | None] = contextvars.ContextVar("nbtools_mcp_client", default=None)


class ElicitationApprover:
    """Asks the client of the request that the call came with; a client that shows no forms is nobody."""

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Ask, and take anything but a clear yes as a no."""
        client = _CLIENT.get()
        return await client.ask(request) if client is not None else "no"


def _form() -> dict[str, Any]:
    choice = {"type": "string", "title": "May it run?", "enum": list(_ANSWERS)}
    return {"type": "object", "properties": {"answer": choice}, "required": ["answer"]}


def _answer(said: Any) -> Answer:
    if getattr(said, "action", None) != "accept":
        return "no"
    # A client may show the form as a bare yes or no.
    return _ANSWERS.get(str((said.content or {}).get("answer", "yes, once")), "no")


class _Session:
    """What one server offers: the tools, the memory's items and the files that calls made."""

    def __init__(self, bench: Workbench, executor: Executor) -> None:
        self.types = need("mcp.types", extra="mcp", why=_WHY)
        self._mcp_error = need("mcp", extra="mcp", why=_WHY).MCPError
        self._bench = bench
        self._executor = executor
        self._files: collections.OrderedDict[str, Artifact] = collections.OrderedDict()

    # -- tools

    async def list_tools(self, context: Any, params: Any) -> Any:
        """Answer ``tools/list``."""
        tools = [self.types.Tool.model_validate(to_mcp(tool)) for tool in self._executor.tools().values()]
        return self.types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Any, params: Any) -> Any:
        """Answer ``tools/call``."""
        if params.name not in self._executor.tools():
            raise self._mcp_error(self.types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        progress = _Progress(context)
        call = ToolCall(tool=params.name, arguments=params.arguments or {}, caller="mcp", on_output=progress.show)
        token = _CLIENT.set(McpClient(context, params))
        # A task of its own: a cancelled kernel takes a moment to stop in order, which the transport would not wait for.
        task = asyncio.create_task(self._executor.acall(call))
        try:
            return self._answered(await asyncio.shield(task))
        except _InputRequired as exc:
            ask = self.types.ElicitRequest(
                params=self.types.ElicitRequestFormParams(message=exc.request.text(), requested_schema=_form())
            )
            return self.types.InputRequiredResult(input_requests={"approval": ask})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            _CLIENT.reset(token)
            progress.end()

    def _answered(self, result: ToolResult) -> Any:
        content: list[Any] = [self.types.TextContent(type="text", text=result.text if result.ok else str(result))]
        content += [block for artifact in result.artifacts for block in self._blocks(result, artifact)]
        data = result.data if isinstance(result.data, dict) else {"result": result.data}
        if result.error is not None:
            data = {**data, "error": result.error.to_dict()} if result.data else {"error": result.error.to_dict()}
        return self.types.CallToolResult(content=content, structured_content=data, is_error=not result.ok)

    def _blocks(self, result: ToolResult, artifact: Artifact) -> list[Any]:
        uri = f"{_ARTIFACTS}{result.call_id}/{quote(Path(artifact.path).name)}"
        self._files[uri] = artifact
        while len(self._files) > _MAX_RESOURCES:
            self._files.popitem(last=False)
        name = Path(artifact.path).name
        link = self.types.ResourceLink(type="resource_link", uri=uri, name=name, mime_type=artifact.mime)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            shown = self._shown(uri, artifact)
            return [link] if shown is None else [shown, link]
        return [link]

    def _shown(self, uri: str, artifact: Artifact) -> Any:
        """Return an artifact's content as a block: pictures and sounds, and texts that are short."""
        kind, types = artifact.mime.partition("/")[0], self.types
        if artifact.size <= _MAX_MEDIA and kind in {"image", "audio"} and artifact.mime != "image/svg+xml":
            data = base64.b64encode(Path(artifact.path).read_bytes()).decode()
            block = types.ImageContent if kind == "image" else types.AudioContent
            return block(type=kind, data=data, mime_type=artifact.mime)
        if artifact.size <= _MAX_TEXT and (kind == "text" or artifact.mime == "application/json"):
            text = Path(artifact.path).read_text(encoding="utf-8")
            content = types.TextResourceContents(uri=uri, mime_type=artifact.mime, text=text)
            return types.EmbeddedResource(type="resource", resource=content)
        return None

    # -- resources

    async def list_resources(self, context: Any, params: Any) -> Any:
        """Answer ``resources/list``: the newest memory items, and the files that calls of this server made."""
        records = await aio.in_thread(self._records)
        found = [
            self.types.Resource(uri=_MEMORY + quote(record.key, safe=""), name=record.key, mime_type="application/json")
            for record in records
        ]
        found += [
            self.types.Resource(uri=uri, name=Path(a.path).name, mime_type=a.mime, size=a.size)
            for uri, a in self._files.items()
        ]
        return self.types.ListResourcesResult(resources=found)

    def _records(self) -> list[Any]:
        try:
            return list(self._bench.memory.list(limit=_MAX_RESOURCES))
        except NbtoolsError:
            return []  # a memory that cannot be had takes the other resources not away

    async def read_resource(self, context: Any, params: Any) -> Any:
        """Answer ``resources/read``."""
        uri = str(params.uri)
        with contextlib.suppress(NbtoolsError, OSError, KeyError):
            if uri.startswith(_MEMORY):
                value = await aio.in_thread(self._bench.memory.__getitem__, unquote(uri.removeprefix(_MEMORY)))
                text = json.dumps(value, ensure_ascii=False)
                content = self.types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
                return self.types.ReadResourceResult(contents=[content])
            artifact = self._files[uri]
            blob = base64.b64encode(await aio.in_thread(Path(artifact.path).read_bytes)).decode()
            content = self.types.BlobResourceContents(uri=uri, mime_type=artifact.mime, blob=blob)
            return self.types.ReadResourceResult(contents=[content])
        raise self._mcp_error(self.types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})


class _Progress:
    """Tells the client what a running call prints, at most ten times a second."""

    def __init__(self, context: Any) -> None:
        self._session = context.session
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._next = 0.0
        self._ended = False
        self._sent: set[asyncio.Task[None]] = set()

    def show(self, kind: str, text: str, data: Any) -> None:
        """Take a piece of output, from any thread; `data` of a progress may be ``{"progress": …, "total": …}``."""
        told = data if kind == "progress" and isinstance(data, dict) else {}
        due = bool(told) or (kind in {"stdout", "progress"} and text.strip() and time.monotonic() >= self._next)
        if due:
            self._next = time.monotonic() + _PROGRESS_S
            self._loop.call_soon_threadsafe(self._send, text.strip()[-200:], told)

    def _send(self, text: str, told: dict[str, Any]) -> None:
        if not self._ended:
            self._count += 1
            progress = float(told.get("progress", self._count))
            task = self._loop.create_task(self._session.report_progress(progress, told.get("total"), text or None))
            self._sent.add(task)
            task.add_done_callback(self._gone)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._sent.discard(task)
        if not task.cancelled():
            task.exception()  # a client that is gone must not turn a finished call into a failure

    def end(self) -> None:
        """Send nothing any more: progress may not follow the result."""
        self._ended = True


def make_server(bench: Workbench, *, executor: Executor | None = None) -> Any:
    """Return a low-level MCP server over a workbench.

    Parameters
    ----------
    bench
        The workbench; it stays its owner's to close.
    executor
        Performs the calls; `None` takes the workbench's tools behind an `ElicitationApprover`.

    Raises
    ------
    MissingExtra
        The extra ``mcp`` is not installed.
    """
    server = need("mcp.server.lowlevel", extra="mcp", why=_WHY).Server
    session = _Session(bench, executor or bench.executor_with(ElicitationApprover(), {McpClient: _CLIENT.get}))
    from importlib.metadata import version

    return server(
        "nbtools",
        version=version("nbtools-kit"),
        title="nbtools",
        instructions="Tools of a notebook: memory, scripts in clean kernels, read-only SQL, files, web, text.",
        on_list_tools=session.list_tools,
        on_call_tool=session.call_tool,
        on_list_resources=session.list_resources,
        on_read_resource=session.read_resource,
    )


async def _over_stdio(server: Any) -> None:
    stdio = need("mcp.server.stdio", extra="mcp", why=_WHY)
    async with stdio.stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def serve_stdio(bench: Workbench) -> None:
    """Serve over standard input and output until the client leaves."""
    bench.executor  # noqa: B018 - built here, because connecting to outside servers blocks
    aio.run(_over_stdio(make_server(bench)))


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
        The host is no loopback address and no token is wanted.
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
                f"{host} can be reached from other machines, so a token is needed.", hint="Leave the token to nbtools."
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
        """Start serving; returns when connections are taken.

        Raises
        ------
        ConfigInvalid
            The port cannot be had.
        """
        uvicorn = need("uvicorn", extra="mcp", why=_WHY)
        app = self._make(self._bench).streamable_http_app(host=self.host)
        settings = uvicorn.Config(
            _Guarded(app, self.token), host=self.host, port=self.port, log_level="warning", access_log=False
        )
        settings.load()
        self._uvicorn = uvicorn.Server(settings)
        self._uvicorn.install_signal_handlers = lambda: None
        self._done = asyncio.ensure_future(self._serve())
        while not self._uvicorn.started:
            if self._done.done():
                raise ConfigInvalid(f"port {self.port} of {self.host} cannot be had.", hint="Choose another port.")
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


class _Guarded:
    """Lets requests through that carry the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self._wanted:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._wanted):
                headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b"a token is needed"})
                return
        await self._app(scope, receive, send)


def client_config(*, url: str | None = None, token: str = "") -> dict[str, Any]:
    """Return the configuration that MCP clients take for this server.

    Parameters
    ----------
    url
        Of an HTTP server; `None` means stdio.
    token
        Of the HTTP server.
    """
    if url is None:
        return {"mcpServers": {"nbtools": {"command": sys.executable, "args": ["-m", "nbtools.cli", "mcp"]}}}
    headers = {"headers": {"Authorization": f"Bearer {token}"}} if token else {}
    return {"mcpServers": {"nbtools": {"type": "http", "url": url, **headers}}}
