"""Tools of outside MCP servers, as ``server__tool``, behind the same door.

A server is connected when it is needed: for a call of one of its tools, or for the list of all. A server that does not
answer thus delays only those who use it. It is tried once: a failure is a warning at that moment, and the answer to
every later call of its tools.

The effects that a server declares are claims, so its tools ask for approval unless the server is trusted. A server
that dies is started again once per call; the call is repeated only if the tool declares that this does no harm.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import mimetypes
import re
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools import errors
from nbtools.contract.door import Door
from nbtools.contract.registry import Registry
from nbtools.contract.result import Artifact, Output, ToolResult
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.signature.schema_mistakes import mistakes_of
from nbtools.contract.tool import Effects, Tool, ToolCall
from nbtools.ground import aio
from nbtools.ground.lazy import need
from nbtools.ground.telemetry import fresh_id
from nbtools.mcp_client.connection import ServerConnection
from nbtools.mcp_client.tool_filter import plain_words
from nbtools.texts.units import parse_seconds

_WHY = "Using tools of an MCP server"
_KEYS = ("command", "args", "env", "cwd", "url", "headers", "trusted", "timeout", "enabled_tools")
_TOLD = 5
_MAX_SCHEMA = 256 * 1024
_MAX_FILES = 100
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class McpExecutor:
    """The tools of one outside MCP server.

    Parameters
    ----------
    name
        Prefix of the tools: ``name__tool``.
    entry
        ``command`` and optionally ``args``, ``env``, ``cwd`` for a server over stdio; or ``url`` and optionally
        ``headers`` for one over HTTP. And ``trusted`` (believe its effects), ``timeout`` (of a call, seconds),
        ``enabled_tools`` (a list; all when absent).
    door
        What every call goes through.
    connect_timeout
        Seconds that connecting, and listing the tools, may take.

    Attributes
    ----------
    prefix
        What the names of all its tools begin with.

    Raises
    ------
    ConfigInvalid
        The settings do not fit.
    MissingExtra
        The extra ``mcp`` is not installed.
    """

    def __init__(
        self, name: str, entry: Mapping[str, Any], *, door: Door | None = None, connect_timeout: float = 20.0
    ) -> None:
        for key in entry:
            if key not in _KEYS:
                raise errors.ConfigInvalid(
                    f"mcp_servers.{name}: {key!r} is unknown.", hint=errors.did_you_mean(key, _KEYS)
                )
        if ("command" in entry) == ("url" in entry):
            raise errors.ConfigInvalid(f"mcp_servers.{name}: give either command or url.")
        need("mcp", extra="mcp", why=_WHY)
        self.name, self.prefix = name, f"{name}__"
        self.problems: list[str] = []
        self._entry = dict(entry)
        self._trusted = bool(entry.get("trusted", False))
        self._connect_timeout = connect_timeout
        self._timeout = parse_seconds(entry.get("timeout", 60.0))
        self._door = door or Door()
        self._connection: ServerConnection | None = None
        self._tools = Registry()
        self._folder: Path | None = None
        self._lock, self._connecting = threading.Lock(), threading.Lock()
        self._was_tried = self._is_closed = False
        self._failure: errors.NetworkError | None = None

    # -- Executor

    def listed(self) -> Registry:
        """Return the tools that were listed so far, without waiting."""
        return self._tools

    def tools(self) -> Registry:
        """Return the tools of the server, connecting to it first; none when it cannot be used."""
        self._try_once()
        return self._tools

    async def acall(self, call: ToolCall) -> ToolResult:
        """Perform a call, connecting first; an expected failure is in the result, never an exception."""
        try:
            if not self._was_tried:
                # A time that makes no sense is refused later, with all other arguments.
                async with asyncio.timeout(call.timeout if call.timeout is not None and call.timeout > 0 else None):
                    # Beside the loop, because connecting is work for the loop itself.
                    await aio.in_thread(self._try_once)
        except TimeoutError:
            late = errors.CallTimeout(f"the MCP server {self.name!r} did not answer within {call.timeout:g} s.")
            return self._door.refuse(call, late)
        if call.tool not in self._tools:
            return self._door.refuse(call, self.missing(call.tool))
        return await self._door.admit(self._tools[call.tool], call)

    call = aio.blocking(acall)

    def missing(self, name: str) -> errors.ToolNotFound:
        """Return the error for a missing tool: it says why the server, or the tool, is missing."""
        if self._failure is not None:
            return errors.ToolNotFound(
                f"the tool {name!r} is missing: the server {self.name!r} is unreachable: {self._failure.message}",
                hint=f"Check mcp_servers.{self.name} in the settings, then open the workbench again.",
            )
        hint = errors.did_you_mean(name, self._tools, f"Its tools: {', '.join(self._tools) or 'none'}.")
        problems = f" Problems of its list: {'; '.join(self.problems[:_TOLD])}." if self.problems else ""
        return errors.ToolNotFound(f"the MCP server {self.name!r} has no tool {name!r}.{problems}", hint=hint)

    # -- connection

    def _try_once(self) -> None:
        """Connect at the first use; a failure becomes a warning."""
        with self._connecting:
            if self._was_tried or self._is_closed:
                return
            problems: list[str] = []
            try:
                self.connect()
                problems = [f"the MCP server {self.name!r}: {problem}" for problem in self.problems]
            except errors.NetworkError as exc:
                self._failure, self._was_tried = exc, True
                problems = [str(exc)]
        if problems and not self._is_closed:
            warnings.warn("\n".join(problems), stacklevel=2)

    async def aconnect(self) -> None:
        """Connect and list the tools.

        Raises
        ------
        NetworkError
            The server does not start, does not answer within `connect_timeout` seconds, or is not an MCP server.
        """
        connection = await self._open_connection()
        listed = await connection.list_tools()
        # Beside the loop: a thousand schemas take their time.
        self._tools = await aio.in_thread(self._registry, listed)
        self._was_tried = True

    connect = aio.blocking(aconnect)

    def _registry(self, listed: list[Any]) -> Registry:
        enabled = self._entry.get("enabled_tools")
        tools: dict[str, Tool] = {}
        for item in listed:
            name = f"{self.name}__{_ODD.sub('_', item.name) or '_'}"[:64]
            if enabled is not None and item.name not in enabled:
                continue
            if name in tools:
                self.problems.append(f"two tools would have the name {name!r}; the second is left out")
                continue
            try:
                tools[name] = self._tool(name, item)
            except (errors.InvalidArguments, TypeError, ValueError) as exc:
                self.problems.append(f"the tool {item.name!r:.80} has an invalid schema and is left out: {exc}")
        return Registry(tools.values())

    def _tool(self, name: str, item: Any) -> Tool:
        schema = item.input_schema
        size = len(json.dumps(schema))
        if size > _MAX_SCHEMA:
            raise ValueError(f"it has {size:,} characters, and the limit is {_MAX_SCHEMA:,}")
        if mistakes := mistakes_of(schema):
            raise ValueError("; ".join(mistakes[:3]))
        hints = item.annotations
        words = (item.description or item.title or item.name, item.title, schema)
        about, title, schema = redacted = plain_words(words)
        if redacted != words:
            self.problems.append(
                f"the description of the tool {item.name!r:.80} is too long or has hidden characters; it was cut"
            )

        async def perform(**arguments: Any) -> Output[Any]:
            return await self._perform(item.name, arguments, again=bool(hints and hints.idempotent_hint))

        declared = self._declared_output(item)
        return Tool(
            name=name,
            function=perform,
            returns=lambda: declared,
            parameters=SchemaParameters(schema),
            effects=_effects_of(hints),
            title=title,
            timeout=self._timeout,
            about=about,
            trusted=self._trusted,
        )

    def _declared_output(self, item: Any) -> Any:
        """Return the output schema that a tool declares, or `Any` where the schema cannot be handed on unchanged."""
        schema = item.output_schema
        if schema is None:
            return Any
        if len(json.dumps(schema)) > _MAX_SCHEMA or "type" not in schema or mistakes_of(schema):
            self.problems.append(f"the output schema of the tool {item.name!r:.80} is invalid and is ignored")
            return Any
        # One that says other words would not fit what the tool gives.
        return schema if plain_words(schema) == schema else Any

    async def _perform(self, name: str, arguments: dict[str, Any], *, again: bool) -> Output[Any]:
        connection = self._connection
        if connection is None or connection.ended:
            connection = await self._restart("was not running")
        try:
            answer = await connection.do(lambda client: client.call_tool(name, arguments))
        except errors.NetworkError as exc:
            connection = await self._restart("ended while it was called")
            if not again:
                raise errors.NetworkError(
                    f"{exc.message.rstrip('.')} while {name} ran; it has been started again.",
                    hint="Check what the call did before you try again.",
                ) from None
            answer = await connection.do(lambda client: client.call_tool(name, arguments))
        output = await aio.in_thread(self._output, answer)
        if answer.is_error:
            raise errors.ExecutionFailed(f"{self.name}: {output.text or 'the tool failed'}", data={"data": output.data})
        return output

    async def _restart(self, why: str) -> ServerConnection:
        connection = await self._open_connection()
        self.problems.append(f"the server {why} and was started again")
        return connection

    async def _open_connection(self) -> ServerConnection:
        """Close the old connection, and open a new one, until this client itself is closed."""
        if self._is_closed:
            raise errors.NetworkError(f"{self.name}: the connection to this MCP server was closed.")
        if self._connection is not None:
            await self._connection.close()
        # Kept before it is open: closing ends one that is still on its way.
        connection = self._connection = ServerConnection(
            self.name, self._entry, self.problems, timeout=self._connect_timeout
        )
        await connection.open()
        return connection

    def _output(self, answer: Any) -> Output[Any]:
        texts: list[str] = []
        artifacts: list[Artifact] = []
        for block in answer.content:
            kind = block.type
            if kind == "text":
                texts.append(block.text)
            elif kind in {"image", "audio"} and len(artifacts) == _MAX_FILES:
                raise errors.LimitExceeded(f"{self.name}: the answer has more than {_MAX_FILES} pictures and sounds.")
            elif kind in {"image", "audio"}:
                artifacts.append(self._save(block.data, block.mime_type))
            elif kind == "resource_link":
                texts.append(f"{block.name}: {block.uri}")
            elif kind == "resource":
                texts.append(getattr(block.resource, "text", None) or str(block.resource.uri))
        text = "\n".join(texts)
        data = answer.structured_content if answer.structured_content is not None else {"text": text}
        return Output(data=data, text=text, artifacts=tuple(artifacts))

    def _save(self, content: str, mime: str) -> Artifact:
        try:
            decoded = base64.b64decode(content, validate=True)
        except ValueError:
            raise errors.ExecutionFailed(
                f"{self.name}: a picture or sound in the answer is not valid base64."
            ) from None
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="nbtools-mcp-"))
                # With this object; a TemporaryDirectory that goes with its owner warns of that.
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            path = self._folder / (fresh_id() + (mimetypes.guess_extension(mime) or ".bin"))
        path.write_bytes(decoded)
        return dataclasses.replace(Artifact.from_path(path), mime=mime)

    async def aclose(self) -> None:
        """End the connection, and the server that was started for it."""
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    close = aio.blocking(aclose)


def _effects_of(hints: Any) -> Effects:
    """Return the effects that a server declares for a tool; for others, the protocol's cautious defaults hold."""
    if hints is None:
        return Effects(destructive=True, open_world=True, undeclared=True)
    return Effects(
        read_only=bool(hints.read_only_hint),
        destructive=hints.destructive_hint is not False and not hints.read_only_hint,
        idempotent=bool(hints.idempotent_hint),
        open_world=hints.open_world_hint is not False,
    )
