"""Messages of MCP as lines of two pipes, read and written by the event loop itself.

The official package hands every line to other tasks, and on the server to threads and back, which costs more than the
call does. Its sessions take any pair of streams, so they are given these.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import Any, Self

from nbtools.ground.lazy import need

_WHY = "Talking MCP"
_MANY_LINES = 1_000
_TURN = 20


class _MessageStream(asyncio.BaseProtocol):
    """What the official package asks of a stream of either direction."""

    async def aclose(self) -> None:
        """Keep the pipe, which is its owner's to close: what was written last is still on its way."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class LineReader(_MessageStream):
    """The lines that come in, as the stream of messages that the official package reads.

    Attributes
    ----------
    max_bytes
        Length of a line above which nobody means it, and it must not fill the memory: then the stream ends.
    """

    max_bytes = 256 * 2**20

    def __init__(self) -> None:
        self._types = need("mcp.types", extra="mcp", why=_WHY)
        self._message = need("mcp.shared.message", extra="mcp", why=_WHY).SessionMessage
        self._end = need("anyio", extra="mcp", why=_WHY).EndOfStream
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []  # pieces of a line that has not ended yet
        self._length = 0
        self._waiting: asyncio.Future[None] | None = None
        self._transport: Any = None
        self._paused = False
        self._ended = False
        self._closed = False
        self._read = 0

    # -- what the loop calls

    def connection_made(self, transport: Any) -> None:
        """Take the pipe that is read."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take a piece of the stream, which may end anywhere."""
        if self._closed:
            return  # the writer may finish, though nobody listens
        if b"\n" not in data:
            self._begun.append(data)
            self._length += len(data)
            if self._length > self.max_bytes:
                self._begun.clear()
                self._closed = True
                self.end()
            return
        self._length = 0
        *lines, rest = b"".join([*self._begun, data]).split(b"\n")
        self._begun = [rest] if rest else []
        self._lines.extend(lines)
        if len(self._lines) > _MANY_LINES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Take note that nothing more will come."""
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the pipe is gone."""
        self.end()

    def end(self) -> None:
        """Let the reading find the end of the stream, after the lines that came."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # -- what the official package calls

    async def receive(self) -> Any:
        """Return the next message, or the exception that says what is wrong with a line."""
        while True:
            while not self._lines:
                if self._ended:
                    raise self._end
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
            line = self._lines.popleft()
            if self._paused and not self._lines:
                self._paused = False
                self._transport.resume_reading()
            self._read += 1
            if self._read % _TURN == 0:
                await asyncio.sleep(0)  # a flood of lines must not hold up the loop
            if self.takes(line):
                return self.parsed(line.decode("utf-8", "replace"))

    def takes(self, line: bytes) -> bool:
        """Tell whether a line is to be read at all; overridden where the other side may say too much."""
        return True

    def parsed(self, text: str) -> Any:
        """Return the message of a line, or the exception that says what is wrong with it."""
        try:
            return self._message(self._types.jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError as exc:
            return exc

    async def aclose(self) -> None:
        """Let go of what comes from now on; the pipe is its owner's to close."""
        self._closed = True
        self._lines.clear()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except self._end:
            raise StopAsyncIteration from None


class LineWriter(_MessageStream):
    """The stream that the official package writes messages to, as lines that go out.

    Parameters
    ----------
    reader
        The other direction, which ends when nobody takes what is written.
    """

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._broken = need("anyio", extra="mcp", why=_WHY).BrokenResourceError
        self._transport: Any = None
        self._ready = asyncio.Event()
        self._ready.set()
        self._lost = False

    # -- what the loop calls

    def connection_made(self, transport: Any) -> None:
        """Take the pipe that is written to."""
        self._transport = transport

    def pause_writing(self) -> None:
        """Take note that the pipe is full."""
        self._ready.clear()

    def resume_writing(self) -> None:
        """Take note that the pipe is free again."""
        self._ready.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that nobody reads any more."""
        self._lost = True
        self._ready.set()
        self._reader.end()

    # -- what the official package calls

    async def send(self, item: Any) -> None:
        """Write a message, and wait while the other side is slow to read."""
        if self._lost:
            raise self._broken
        self._transport.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        await self._ready.wait()

    async def drained(self, timeout: float = 5.0) -> None:
        """Wait at most so many seconds until everything was written."""
        self._transport.set_write_buffer_limits(high=0)  # now anything left is too much, and told when it is gone
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ready.wait()

    def close(self) -> None:
        """Let the other side find the end of its input."""
        self._transport.close()
