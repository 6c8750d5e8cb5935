"""A server that is started for one connection, in its own group, with its pipes on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from typing import Any, TextIO

from nbtools.contract.wire.mcp_lines import LineReader, LineWriter
from nbtools.ground.lazy import need

_WHY = "Using tools of an MCP server"
# Seconds a server is given to leave by itself once its input has ended, and again after each signal.
_LEAVE_S = 2.0
# More than a server has to say on its own account; answers are not counted.
_NOTICES_A_SECOND = 200
_HEAD = 200
_ID = re.compile(r'"id"\s*:\s*(\d+|"[^"]*")')


class _Answers(LineReader):
    """The lines of a server: a broken answer fails its request at once, and excess notifications are dropped.

    Parameters
    ----------
    problems
        Gets a sentence when notifications are dropped.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__()
        self._problems = problems
        self._second = 0
        self._notices = 0

    def takes(self, line: bytes) -> bool:
        """Tell whether a line is an answer, or a notification within the limit for this second."""
        if b'"method"' not in line[:_HEAD] or b'"result"' in line[:_HEAD]:
            return True
        now = int(time.monotonic())
        if now != self._second:
            self._second, self._notices = now, 0
        self._notices += 1
        problem = f"the server sends more than {_NOTICES_A_SECOND:,} notifications a second; the rest are dropped"
        if self._notices == _NOTICES_A_SECOND and problem not in self._problems:
            self._problems.append(problem)
        return self._notices < _NOTICES_A_SECOND

    def parsed(self, text: str) -> Any:
        """Return the message of a line; of a broken line an error, so that its request does not wait."""
        message = super().parsed(text)
        if not isinstance(message, Exception):
            return message
        # The fast parser refuses what is nested deeply, and then all tools of a list would be lost for one of them.
        try:
            document = json.loads(text)
            if isinstance(document, dict):
                return self._message(self._types.jsonrpc_message_adapter.validate_python(document))
        except (ValueError, RecursionError):
            pass
        number = None if '"method"' in text[:_HEAD] else _ID.search(text)
        if number is None:
            return message  # a line of a log, say
        error = {"code": self._types.PARSE_ERROR, "message": " ".join(str(message).split())[:_HEAD]}
        broken = {"jsonrpc": "2.0", "id": json.loads(number[1]), "error": error}
        return self._message(self._types.jsonrpc_message_adapter.validate_python(broken))


class _ServerProcess(asyncio.SubprocessProtocol):
    """Hands on what the loop says of the process."""

    def __init__(self, problems: list[str]) -> None:
        self.reader = _Answers(problems)
        self.writer = LineWriter(self.reader)
        self.exited = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self.writer.connection_made(transport.get_pipe_transport(0))
        self.reader.connection_made(transport.get_pipe_transport(1))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.reader.data_received(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        (self.reader if fd == 1 else self.writer).connection_lost(exc)

    def pause_writing(self) -> None:
        self.writer.pause_writing()

    def resume_writing(self) -> None:
        self.writer.resume_writing()

    def process_exited(self) -> None:
        self.exited.set()
        # A child of the server may keep the pipe open; what the server itself wrote last is read before.
        self._loop.call_later(0.5, self.reader.end)


@contextlib.asynccontextmanager
async def server_process(parameters: Any, silence: TextIO, problems: list[str]) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server over stdio, yield the streams of its messages, and end it and what it started.

    Parameters
    ----------
    parameters
        The official package's ``StdioServerParameters``.
    silence
        Gets the server's standard error.
    problems
        Gets a sentence for each fault of its output that does not prevent its use.

    Raises
    ------
    OSError
        It cannot be started.
    """
    official = need("mcp.client.stdio", extra="mcp", why=_WHY)
    if os.name != "posix":
        async with official.stdio_client(parameters, errlog=silence) as streams:
            yield streams
        return
    transport, process = await asyncio.get_running_loop().subprocess_exec(
        lambda: _ServerProcess(problems),
        parameters.command,
        *parameters.args,
        stderr=silence,
        env=official.get_default_environment() | (parameters.env or {}),
        cwd=parameters.cwd,
        start_new_session=True,
    )
    try:
        yield process.reader, process.writer
        await process.writer.drained(0.5)
        process.writer.close()
        for ask in (None, signal.SIGTERM, signal.SIGKILL):
            if ask is not None:
                _signal(transport, ask)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await process.exited.wait()
                    break
    finally:
        # Whatever is left of the group: the server itself, or what it started and forgot.
        _signal(transport, signal.SIGKILL)
        transport.close()


def _signal(transport: Any, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), number)
