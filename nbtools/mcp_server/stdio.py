"""Standard input and output as the wire of MCP, read and written by the event loop itself.

The official package hands every line to a thread and back, three times for each call, which costs more than the call.
Clients start servers with pipes or sockets, and those the loop can read and write without help. For anything else, a
file, a terminal or another system than POSIX, the official transport is taken.

While serving, descriptor 0 is the null device and 1 is standard error: what a tool prints or reads misses the wire.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO, Self

from nbtools import aio
from nbtools.lazy import need
from nbtools.mcp_server.session import WHY, make_server
from nbtools.workbench import Workbench

__all__ = ["serve_stdio"]

_MANY_LINES = 1_000
_DRAIN_S = 5.0


class _Reader(asyncio.Protocol):
    """The lines that come in, as the stream of messages that the official server reads."""

    def __init__(self) -> None:
        self._types = need("mcp.types", extra="mcp", why=WHY)
        self._message = need("mcp.shared.message", extra="mcp", why=WHY).SessionMessage
        self._end = need("anyio", extra="mcp", why=WHY).EndOfStream
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []  # pieces of a line that has not ended yet
        self._waiting: asyncio.Future[None] | None = None
        self._transport: Any = None
        self._paused = False
        self._ended = False

    # -- what the loop calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._begun.append(data)
            return
        *lines, rest = b"".join([*self._begun, data]).split(b"\n")
        self._begun = [rest] if rest else []
        self._lines.extend(lines)
        if len(self._lines) > _MANY_LINES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        """Let the server find the end of the stream, after the lines that came."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # -- what the server calls

    async def receive(self) -> Any:
        """Return the next message, or the exception that says what is wrong with a line."""
        while not self._lines:
            if self._ended:
                raise self._end
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        line = self._lines.popleft()
        if self._paused and not self._lines:
            self._paused = False
            self._transport.resume_reading()
        try:
            text = line.decode("utf-8", "replace")
            return self._message(self._types.jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError as exc:
            return exc

    async def aclose(self) -> None:
        self._transport.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except self._end:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class _Writer(asyncio.Protocol):
    """The stream that the official server writes messages to, as lines that go out."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._broken = need("anyio", extra="mcp", why=WHY).BrokenResourceError
        self._transport: Any = None
        self._ready = asyncio.Event()
        self._ready.set()
        self._lost = False

    # -- what the loop calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        self._ready.clear()

    def resume_writing(self) -> None:
        self._ready.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._ready.set()
        # Nobody reads the answers any more, so nobody is to be served.
        self._reader.end()

    # -- what the server calls

    async def send(self, item: Any) -> None:
        """Write a message, and wait while the client is slow to read."""
        if self._lost:
            raise self._broken
        self._transport.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        await self._ready.wait()

    async def drained(self) -> None:
        """Wait a bounded time until everything was written."""
        self._transport.set_write_buffer_limits(high=0)  # now anything left is too much, and told when it is gone
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self._ready.wait()

    async def aclose(self) -> None:
        """Keep the transport: what was written last is still on its way."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _loop_can_serve() -> bool:
    """Tell whether standard input and output are two pipes or sockets of this process."""
    if os.name != "posix":
        return False
    try:
        if (sys.stdin.fileno(), sys.stdout.fileno()) != (0, 1):
            return False
        ends = [os.fstat(fd) for fd in (0, 1)]
    except (AttributeError, OSError, ValueError):
        return False
    apart = (ends[0].st_dev, ends[0].st_ino) != (ends[1].st_dev, ends[1].st_ino)
    return apart and all(stat.S_ISFIFO(end.st_mode) or stat.S_ISSOCK(end.st_mode) for end in ends)


@contextlib.contextmanager
def _claimed() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Keep the wire in descriptors that no child inherits, and divert the standard ones."""
    import fcntl

    sys.stdout.flush()
    # Never below 3: one of the standard descriptors may be free.
    wire, kept = ([fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)] for _ in range(2))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        os.dup2(null, 1)
    os.close(null)
    try:
        yield os.fdopen(wire[0], "rb", 0), os.fdopen(wire[1], "wb", 0)
    finally:
        sys.stdout.flush()
        for fd, spare in enumerate(kept):
            os.set_blocking(spare, True)
            os.dup2(spare, fd)
            os.close(spare)


@contextlib.asynccontextmanager
async def _streams() -> AsyncIterator[tuple[Any, Any]]:
    if not _loop_can_serve():
        async with need("mcp.server.stdio", extra="mcp", why=WHY).stdio_server() as official:
            yield official
        return
    loop = asyncio.get_running_loop()
    with _claimed() as (incoming, outgoing):
        reader = _Reader()
        writer = _Writer(reader)
        ends = [
            (await loop.connect_read_pipe(lambda: reader, incoming))[0],
            (await loop.connect_write_pipe(lambda: writer, outgoing))[0],
        ]
        try:
            yield reader, writer
            await writer.drained()
        finally:
            for end in ends:
                end.close()


async def _over_stdio(server: Any) -> None:
    async with _streams() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def serve_stdio(bench: Workbench) -> None:
    """Serve over standard input and output until the client leaves.

    Parameters
    ----------
    bench
        The workbench; it stays its owner's to close.
    """
    bench.executor  # noqa: B018 - built here, because connecting to outside servers blocks
    aio.run(_over_stdio(make_server(bench)))
