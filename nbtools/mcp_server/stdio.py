"""Standard input and output as the wire of MCP, read and written by the event loop itself.

Clients start servers with pipes or sockets, and those the loop can read and write without help. For a
file, a terminal, or a system other than POSIX, the official transport is used, at three thread switches a call.

While serving, descriptor 0 is the null device and 1 is standard error, so that no tool prints to the wire or reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO

from nbtools.assembly.workbench import Workbench
from nbtools.contract.wire.mcp_lines import LineReader, LineWriter
from nbtools.ground import aio
from nbtools.ground.lazy import need
from nbtools.mcp_server.tool_server import WHY, make_server


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
def _claim_wire() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Move the wire to descriptors that no child inherits, and redirect standard input and output."""
    import fcntl

    sys.stdout.flush()
    # Never below 3: one of the standard descriptors may be free.
    wire, spares = ([fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)] for _ in range(2))
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
        for fd, spare in enumerate(spares):
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
    with _claim_wire() as (incoming, outgoing):
        reader = LineReader()
        writer = LineWriter(reader)
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
