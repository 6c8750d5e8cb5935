"""What one server offers: the tools of a workbench, memory items and artifacts as resources, and prompts.

A call comes in, goes through the same door as every other (caller ``"mcp"``), and its result goes back with text,
structured content, pictures and links to the files it made. Whole numbers that a float would round are text in the
structured content, because many clients read its numbers as floats.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import dataclasses
import glob
import hashlib
import json
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from nbtools.agent.notebook.cells import CELL_TOOLS, NotebookCells
from nbtools.assembly.health import not_offered
from nbtools.assembly.workbench import Workbench
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.execute import Executor, LocalExecutor
from nbtools.contract.failures import failure
from nbtools.contract.label import UNLABELLED, Label
from nbtools.contract.result import Artifact, Output, ToolResult
from nbtools.contract.schema import to_mcp
from nbtools.contract.tool import Effects, Tool, ToolCall
from nbtools.contract.wire.json_values import replace_nested
from nbtools.errors import FileMissing, MemoryNotFound, NbtoolsError, PathNotAllowed, ToolNotEnabled, ToolNotFound
from nbtools.ground import aio
from nbtools.ground.lazy import need
from nbtools.ground.telemetry import fresh_id
from nbtools.mcp_server.approval import CLIENT, ElicitationApprover, McpClient, Questions, client_forms
from nbtools.mcp_server.arguments import decoded
from nbtools.mcp_server.notebooks import OpenNotebooks
from nbtools.mcp_server.prompts import PROMPTS, Prompts
from nbtools.mcp_server.subscriptions import Subscriptions, call_at_end
from nbtools.texts.redaction import redact
from nbtools.toolbox.memory_tools import ACTS
from nbtools.workflow.offered import QuestionForms

WHY = "Serving tools over MCP"
_MEMORY, _ARTIFACTS = "nbtools://memory/", "nbtools://artifacts/"
_RETRIEVE = "memory_retrieve"
_MOST_IN_A_FLOAT = 2**53
_MAX_MEDIA = 5 * 2**20
_MAX_TEXT = 64 * 1024
_MAX_RESOURCES = 500
_PROGRESS_S = 0.1
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_STREAMS = {"stdout": "info", "stderr": "warning"}


class _ToolServer:
    """What one server offers: the tools, the memory's items and the files that calls made."""

    def __init__(
        self, bench: Workbench, executor: Executor, prompts: Iterable[Callable[..., Any]], own: LocalExecutor
    ) -> None:
        self.types = need("mcp.types", extra="mcp", why=WHY)
        self._mcp_error = need("mcp", extra="mcp", why=WHY).MCPError
        self._bench = bench
        self._executor, self._own = executor, own
        self._listed: tuple[tuple[Tool, ...], Any] | None = None
        self._door = executor.door if isinstance(executor, LocalExecutor) else bench.door
        self._id = fresh_id()
        self._secret = secrets.token_bytes(16)
        self._questions = Questions()
        self._files: collections.OrderedDict[str, tuple[str | None, Artifact]] = collections.OrderedDict()
        self._levels: dict[str | None, int | None] = {}
        self._seen: dict[str | None, tuple[Label, int]] = {}
        self.subscriptions = Subscriptions(self._versions)
        completions = {"path": self._paths_like, "key": self._keys_like, "topic": self._keys_like}
        self.prompts = Prompts(prompts, blocks=self._prompt_blocks, completions=completions, client=self._client)

    def _who(self, context: Any) -> str | None:
        """Return an id of the connection that a request came over; `None` for HTTP without a session."""
        if context.request is None:
            return self._id
        # Over stdio there is one client for the whole process; over HTTP the header is all that tells one from another.
        session: str | None = context.request.headers.get("mcp-session-id")
        return session

    # -- tools

    async def list_tools(self, context: Any, params: Any) -> Any:
        """Answer ``tools/list``; a tool that cannot work here is left out, and a call of it says why."""
        idle = not_offered(self._bench.config)
        offered = {**self._own.tools(), **self._executor.tools()}
        tools = tuple(tool for name, tool in offered.items() if name not in idle)
        # Clients list tools often, and to describe all of them takes as long as 200 small calls (0.1 s).
        if self._listed is None or self._listed[0] != tools:
            described = [self._described(tool) for tool in tools]
            result = self.types.ListToolsResult(tools=[tool for tool in described if tool is not None])
            # As it goes over the wire: the package would turn the models into that for each request.
            self._listed = (tools, result.model_dump(by_alias=True, mode="json", exclude_none=True))
        return self._listed[1]

    def _described(self, tool: Tool) -> Any:
        """Return a tool as it is listed; `None`, with a warning, for one whose arguments have no schema."""
        try:
            return self.types.Tool.model_validate(to_mcp(tool))
        except Exception as exc:  # whatever the types of its function raise: the others are listed all the same
            warnings.warn(f"the tool {tool.name} is not offered: {exc}", stacklevel=2)
            return None

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema against which the headers of a call over HTTP are checked, without listing all tools."""
        tools = self._executor_of(name).tools()
        return tools[name].schema if name in tools else None

    def _executor_of(self, tool: str) -> Executor:
        """Return the executor of a tool: one in the workbench has precedence over ours of the same name."""
        is_own = tool in self._own.tools() and tool not in self._executor.tools()
        return self._own if is_own else self._executor

    async def call_tool(self, context: Any, params: Any) -> Any:
        """Answer ``tools/call``."""
        executor = self._executor_of(params.name)
        tool = executor.tools().get(params.name)
        if tool is None:
            raise self._mcp_error(self.types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        who = self._who(context)
        progress = _Progress(context, params.name, self._levels.get(who))
        arguments = dict(params.arguments or {})
        with contextlib.suppress(Exception):  # one without a schema was not listed, and the door says what is wrong
            arguments = decoded(arguments, tool.schema)
        call = self._call(who, params.name, arguments).but(on_output=progress.show)
        client = self._client(context, params)
        token = CLIENT.set(client)
        # A separate task: a cancelled kernel takes a moment to stop in order, which the transport would not wait for.
        task = asyncio.create_task(executor.acall(call))
        try:
            try:
                result = await asyncio.shield(task)
            except NbtoolsError as exc:  # the tool's on_error is "fail"
                result = failure(call, exc)
            if (required := client.asked_for()) is not None:
                return required
            if client.pending is not None:
                return self._ask_client(client, client.pending)
            self._keep(result, who)
            self._see(who, result.label)
            if _is_quick(result):
                return self._to_call_result(result)
            # Beside the loop, because files are read for it.
            return await aio.in_thread(self._to_call_result, result)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            CLIENT.reset(token)
            progress.end()

    def _client(self, context: Any, params: Any) -> McpClient:
        return McpClient(context, params, self._questions, lasting=self._who(context) is not None)

    def _call(self, who: str | None, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        # Without a session, "always this session" is a promise to nobody; one from before strangers' texts is none.
        label, times = self._seen.get(who, (UNLABELLED, 0))
        session = f"{who} {times}" if who and times else who or fresh_id()
        return ToolCall(tool=tool, arguments=arguments, caller="mcp", run_id=who, session=session, label=label)

    def _see(self, who: str | None, label: Label) -> None:
        """Record what a client has seen; clients without a session count as one."""
        before, times = self._seen.get(who, (UNLABELLED, 0))
        # The count is a part of the session's name: what was granted before strangers' texts came lapses by itself.
        self._seen[who] = before | label, times + label.strangers

    def _see_names(self, who: str | None, label: Label) -> None:
        """Record that strangers may have chosen a name; clients list keys and files unasked; these are not values."""
        self._see(who, dataclasses.replace(label, private=False))

    def _ask_client(self, client: McpClient, request: ApprovalRequest) -> Any:
        text, schema, state = client.question(request)
        params = self.types.ElicitRequestFormParams(message=text, requested_schema=schema)
        requests = {"approval": self.types.ElicitRequest(params=params)}
        return self.types.InputRequiredResult(input_requests=requests, request_state=state)

    def _to_call_result(self, result: ToolResult) -> Any:
        text = _encodable(result.text if result.ok else str(result))
        content: list[Any] = [self.types.TextContent(type="text", text=text)]
        content += [block for artifact in result.artifacts for block in self._blocks(result, artifact)]
        data = result.data if isinstance(result.data, dict) else {"result": result.data}
        if result.error is not None:
            data = {**data, "error": result.error.to_dict()} if result.data else {"error": result.error.to_dict()}
        return self.types.CallToolResult(content=content, structured_content=_encodable(data), is_error=not result.ok)

    def _keep(self, result: ToolResult, who: str | None) -> None:
        """Offer the files of a result as resources; beyond a number, the oldest are dropped."""
        for artifact in result.artifacts:
            self._files[self._uri(result, artifact)] = (who, artifact)
        while len(self._files) > _MAX_RESOURCES:
            self._files.popitem(last=False)

    def _uri(self, result: ToolResult, artifact: Artifact) -> str:
        # Not to be guessed: over HTTP without a session, who knows the address is who was given it.
        tag = hashlib.blake2b(result.call_id.encode(), key=self._secret, digest_size=16).hexdigest()
        return f"{_ARTIFACTS}{result.call_id}-{tag}/{quote(Path(artifact.path).name)}"

    def _blocks(self, result: ToolResult, artifact: Artifact) -> list[Any]:
        uri, name = self._uri(result, artifact), Path(artifact.path).name
        link = self.types.ResourceLink(type="resource_link", uri=uri, name=name, mime_type=artifact.mime)
        with contextlib.suppress(OSError, NbtoolsError, UnicodeDecodeError):
            block = self._content_block(uri, artifact)
            return [link] if block is None else [block, link]
        return [link]

    def _content_block(self, uri: str, artifact: Artifact) -> Any:
        """Return an artifact's content as a block: pictures and sounds, and texts that are short."""
        # SVG is text that can hold scripts, and clients show what is called a picture without looking.
        kind, types = artifact.mime.partition("/")[0], self.types
        if artifact.size <= _MAX_MEDIA and kind in {"image", "audio"} and artifact.mime != "image/svg+xml":
            data = base64.b64encode(artifact.read()).decode()
            block = types.ImageContent if kind == "image" else types.AudioContent
            return block(type=kind, data=data, mime_type=artifact.mime)
        if artifact.size <= _MAX_TEXT and (kind == "text" or artifact.mime == "application/json"):
            text = redact(artifact.read().decode())
            content = types.TextResourceContents(uri=uri, mime_type=artifact.mime, text=text)
            return types.EmbeddedResource(type="resource", resource=content)
        return None

    # -- resources

    async def list_resources(self, context: Any, params: Any) -> Any:
        """Answer ``resources/list``: the newest memory items, and the files that calls of this session made."""
        who = self._who(context)
        resources = [
            self.types.Resource(uri=_MEMORY + quote(record.key, safe=""), name=record.key, mime_type="application/json")
            for record in await self._records(who)
        ]
        resources += [
            self.types.Resource(uri=uri, name=Path(a.path).name, mime_type=a.mime, size=a.size)
            for uri, (owner, a) in self._files.items()
            if owner == who and who is not None
        ]
        return self.types.ListResourcesResult(resources=resources)

    async def list_templates(self, context: Any, params: Any) -> Any:
        """Answer ``resources/templates/list``."""
        key = "The value of a memory key, as JSON."
        file = "A file that a call created; the result of the call links to it."
        templates = [
            self.types.ResourceTemplate(
                uri_template=_MEMORY + "{key}", name="memory", description=key, mime_type="application/json"
            ),
            self.types.ResourceTemplate(uri_template=_ARTIFACTS + "{id}/{name}", name="artifact", description=file),
        ]
        return self.types.ListResourceTemplatesResult(resource_templates=templates)

    async def subscribe(self, context: Any, params: Any) -> Any:
        """Answer ``resources/subscribe``, of the protocol's older era."""
        await self.subscriptions.subscribe(self._session_of(context), context.session, str(params.uri))
        return self.types.EmptyResult()

    async def unsubscribe(self, context: Any, params: Any) -> Any:
        """Answer ``resources/unsubscribe``."""
        self.subscriptions.unsubscribe(self._session_of(context), str(params.uri))
        return self.types.EmptyResult()

    async def set_level(self, context: Any, params: Any) -> Any:
        """Answer ``logging/setLevel``: from now on calls of this session send what they print as log messages."""
        self._levels[self._session_of(context)] = _LEVELS.index(params.level)
        return self.types.EmptyResult()

    def _session_of(self, context: Any) -> str:
        who = self._who(context)
        if who is None:
            raise self._mcp_error(
                self.types.INVALID_REQUEST, f"{context.method} needs a session, but this request has none."
            )
        # The first request that needs the session is the first moment at which its end can be asked for.
        if who not in self._levels:
            self._levels[who] = None
            call_at_end(context.session, lambda: self._forget(who))
        return who

    def _forget(self, who: str) -> None:
        """Drop all records of a session that its client, or its idle time, has ended."""
        self._levels.pop(who, None)
        self._seen.pop(who, None)
        self.subscriptions.forget(who)

    async def _versions(self, uris: frozenset[str], state: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the memory's count of changes, and the versions of items; of none when that count is the given one."""

        def look() -> tuple[Any, dict[str, Any]]:
            memory = self._bench.memory
            now = memory.info().get("changes")
            if now is not None and now == state:
                return now, {}
            keys = {uri: unquote(uri.removeprefix(_MEMORY)) for uri in uris if uri.startswith(_MEMORY)}
            records = {uri: memory.record(key) for uri, key in keys.items()}
            return now, {uri: record and record.version for uri, record in records.items()}

        versions: tuple[Any, dict[str, Any]] = await aio.in_thread(look)
        return versions

    # -- prompts

    def _prompt_blocks(self, context: Any, output: Output[Any]) -> list[Any]:
        text = [self.types.TextContent(type="text", text=output.text)] if output.text else []
        holder = ToolResult(ok=True, tool="prompt", call_id=fresh_id(), artifacts=output.artifacts)
        self._keep(holder, self._who(context))
        files = [block for artifact in holder.artifacts for block in self._blocks(holder, artifact)]
        return [*(block for block in files if block.type != "resource_link"), *text]

    async def _paths_like(self, context: Any, begun: str) -> Iterable[str]:
        who = self._who(context)
        result = await self._executor.acall(self._call(who, "file_glob", {"pattern": f"{glob.escape(begun)}*"}))
        self._see_names(who, result.label)
        return result.data["matches"] if result.ok else ()

    async def _keys_like(self, context: Any, begun: str) -> Iterable[str]:
        return [record.key for record in await self._records(self._who(context)) if record.key.startswith(begun)]

    async def _records(self, who: str | None) -> list[Any]:
        if _RETRIEVE not in self._executor.tools():
            return []
        call = self._call(who, "memory_list", {})
        # Denied, or a memory that cannot be had: neither takes the other resources away.
        with contextlib.suppress(NbtoolsError):
            # Opening the memory is a part of the work: it takes a moment, in a thread.
            def work() -> Any:
                return self._bench.memory.list(limit=_MAX_RESOURCES)

            records, result = await self._bench.aperform(call, work, door=self._door, **ACTS[call.tool])
            self._see_names(who, result.label)
            # A key can hold a secret; such an item has no address that could be given out.
            return [record for record in records if redact(record.key) == record.key]
        return []

    async def read_resource(self, context: Any, params: Any) -> Any:
        """Answer ``resources/read``, a call like any other: of ``memory_retrieve``, or under ``artifact_read``."""
        uri, who = str(params.uri), self._who(context)
        missing = self._mcp_error(self.types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        try:
            if uri.startswith(_MEMORY):
                return await self._item(who, uri)
            owner, artifact = self._files[uri]
            if owner != who:
                raise missing
            call = self._call(who, "artifact_read", {"uri": uri, "path": artifact.path})
            how: dict[str, Any] = {"effects": Effects(read_only=True), "door": self._door}
            content, result = await self._bench.aperform(call, artifact.read, **how)
            self._see(who, result.label)
        except (FileMissing, PathNotAllowed, MemoryNotFound, ToolNotFound, ToolNotEnabled, KeyError):
            raise missing from None
        except NbtoolsError as exc:
            raise self._mcp_error(self.types.INVALID_PARAMS, str(exc), {"uri": uri}) from None
        with contextlib.suppress(UnicodeDecodeError):  # what is not text holds no secret that one could read
            content = redact(content.decode()).encode()
        blob = base64.b64encode(content).decode()
        contents = self.types.BlobResourceContents(uri=uri, mime_type=artifact.mime, blob=blob)
        return self.types.ReadResourceResult(contents=[contents])

    async def _item(self, who: str | None, uri: str) -> Any:
        arguments = {"key": unquote(uri.removeprefix(_MEMORY))}
        result = (await self._executor.acall(self._call(who, _RETRIEVE, arguments))).raise_for_error()
        self._see(who, result.label)
        text = json.dumps(result.data, ensure_ascii=False)
        content = self.types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return self.types.ReadResourceResult(contents=[content])


class _Progress:
    """Tells the client what a running call prints, at most ten times a second."""

    def __init__(self, context: Any, tool: str, level: int | None) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._tool = tool
        self._level = level
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._next = 0.0
        self._ended = False
        self._sent: set[asyncio.Task[None]] = set()

    def show(self, kind: str, text: str, data: Any) -> None:
        """Send a piece of output, from any thread; `data` of a progress may be ``{"progress": …, "total": …}``."""
        level = _STREAMS.get(kind)
        if level is not None and self._level is not None and _LEVELS.index(level) >= self._level and text.strip():
            self._loop.call_soon_threadsafe(self._log, level, text)
        fields = data if kind == "progress" and isinstance(data, dict) else {}
        due = bool(fields) or (kind in {"stdout", "progress"} and text.strip() and time.monotonic() >= self._next)
        if due:
            self._next = time.monotonic() + _PROGRESS_S
            self._loop.call_soon_threadsafe(self._send, text.strip()[-200:], fields)

    def _send(self, text: str, fields: dict[str, Any]) -> None:
        if not self._ended:
            self._count += 1
            progress = float(fields.get("progress", self._count))
            self._start(self._session.report_progress(progress, fields.get("total"), text or None))

    def _log(self, level: str, text: str) -> None:
        if not self._ended:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the newest protocol advises against log messages
                work = self._session.send_log_message(level, text, self._tool, self._request_id)
            self._start(work)

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._sent.add(task)
        task.add_done_callback(self._gone)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._sent.discard(task)
        if not task.cancelled():
            task.exception()  # a client that is gone must not turn a finished call into a failure

    def end(self) -> None:
        """Send nothing from now on: progress may not follow the result."""
        self._ended = True


def _is_quick(result: ToolResult) -> bool:
    """Tell whether a result has neither files nor values within values: a thread would take longer than its answer."""
    values = result.data.values() if isinstance(result.data, dict) else (result.data,)
    return result.ok and not result.artifacts and not any(isinstance(value, list | dict) for value in values)


def _encodable(value: Any) -> Any:
    """Return a value that every client reads unchanged.

    A lone surrogate, which Python strings may contain, becomes a question mark; a whole number that a float would round
    becomes text.
    """

    def encoded(one: Any) -> Any:
        if isinstance(one, int) and abs(one) > _MOST_IN_A_FLOAT:
            return str(one)
        return one.encode("utf-8", "replace").decode() if isinstance(one, str) and not one.isascii() else one

    return replace_nested(value, encoded, names=True)


def make_server(
    bench: Workbench, *, executor: Executor | None = None, prompts: Iterable[Callable[..., Any]] = ()
) -> Any:
    """Return a low-level MCP server over a workbench.

    Parameters
    ----------
    bench
        The workbench; it stays its owner's to close.
    executor
        Performs the calls; `None` takes the workbench's tools behind an `ElicitationApprover`.
    prompts
        More prompts, beside the ready-made ones: functions as `nbtools.mcp_server.prompts` has them.

    Raises
    ------
    MissingExtra
        The extra ``mcp`` is not installed.
    """
    server = need("mcp.server.lowlevel", extra="mcp", why=WHY).Server
    asking: dict[type, Callable[[], Any]] = {McpClient: CLIENT.get, QuestionForms: client_forms}
    has_cells = executor is None and "*" in bench.config.enabled_tools
    executor = executor or bench.executor_with(ElicitationApprover(), asking)
    cells = NotebookCells(OpenNotebooks(bench.config.home).ask)
    door = bench.door.but(services={NotebookCells: lambda: cells})
    own = LocalExecutor(CELL_TOOLS if has_cells else (), door=door)
    offered = _ToolServer(bench, executor, (*PROMPTS, *prompts), own)
    from importlib.metadata import version

    built = server(
        "nbtools",
        version=version("nbtools-kit"),
        title="nbtools",
        instructions="Notebook tools: memory, scripts in clean kernels, read-only SQL, files, web and text.",
        on_list_tools=offered.list_tools,
        on_call_tool=offered.call_tool,
        on_list_resources=offered.list_resources,
        on_list_resource_templates=offered.list_templates,
        on_read_resource=offered.read_resource,
        on_subscribe_resource=offered.subscribe,
        on_unsubscribe_resource=offered.unsubscribe,
        on_subscriptions_listen=offered.subscriptions.listen,
        on_list_prompts=offered.prompts.list,
        on_get_prompt=offered.prompts.get,
        on_completion=offered.prompts.complete,
    )
    built.add_request_handler("logging/setLevel", offered.types.SetLevelRequestParams, offered.set_level)
    built.get_tool_input_schema = offered.input_schema
    # What goes to a client as the state of a question comes back from it as it was, or not at all.
    sealing = need("mcp.server.request_state", extra="mcp", why=WHY)
    security = sealing.RequestStateSecurity.ephemeral()
    built.middleware.append(sealing.RequestStateBoundary(security, default_audience="nbtools"))
    return built
