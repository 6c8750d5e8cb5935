"""MCP: calls a second of our server against the official package's own, and what a call costs our client and door.

Every server is a process with the same trivial tool, stays connected, and is called in turns by the official client,
so the client's share is the same for all. Ours goes through the whole door: validation, gate, limits, span, record.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from benchmarks.paired import row, take_turns

SCRIPT = Path(__file__).with_name("_mcp_sides.py")
PEERS = {"official": "official SDK, MCPServer", "bare": "official SDK, low-level, nothing validated"}
ARGUMENTS = {"a": 1, "b": 2}
LISTED = """
import time
from nbtools.contract.schema import FORMATS
from nbtools.assembly.workbench import Workbench
tools = list(Workbench(memory_url=":memory:").registry.values())
begun, used = time.perf_counter(), time.process_time()
[FORMATS[{form!r}](tool) for tool in tools]
print(1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - used), len(tools))
"""


def command(side: str, place: str | int) -> list[str]:
    """Return the command line of a server."""
    return [sys.executable, "-P", str(SCRIPT), side, str(place)]


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def listening(side: str) -> Any:
    """Start a server over HTTP and yield its process and address."""
    port = free_port()
    process = subprocess.Popen(command(side, port), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield process.pid, f"http://127.0.0.1:{port}/mcp"
    finally:
        process.stdin.close()
        process.wait(20)


class Side:
    """A server of one kind with the official client connected to it."""

    def __init__(self, client: Any, process: Any) -> None:
        self.client = client
        self.process = process
        self.errors = 0
        self.cpu: list[float] = []

    async def load(self, calls: int, at_once: int) -> float:
        """Return calls a second with so many of them on their way at once."""
        queue = iter(range(calls))

        async def work() -> None:
            for _ in queue:
                said = await self.client.call_tool("add", ARGUMENTS)
                self.errors += said.is_error or said.structured_content["result"] != 3

        used, begun = sum(self.process.cpu_times()[:2]), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
        seconds = time.perf_counter() - begun
        self.cpu.append(1_000 * (sum(self.process.cpu_times()[:2]) - used) / calls)
        return calls / seconds


@contextlib.asynccontextmanager
async def connected(side: str, transport: str) -> AsyncIterator[Side]:
    """Start a server and connect the official client to it."""
    import psutil
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    with contextlib.ExitStack() as stack:
        if transport == "HTTP":
            pid, url = stack.enter_context(listening(side))
            async with Client(url, read_timeout_seconds=None) as client:
                yield Side(client, psutil.Process(pid))
        else:
            name, *arguments = command(side, "stdio")
            server = StdioServerParameters(command=name, args=arguments, env=dict(os.environ))
            before = set(psutil.Process().children())
            async with Client(stdio_client(server), read_timeout_seconds=None) as client:
                (process,) = set(psutil.Process().children()) - before
                yield Side(client, process)


async def turns(sides: Mapping[str, Callable[[], Coroutine[Any, Any, float]]], rounds: int) -> dict[str, list[float]]:
    """Let coroutines take turns."""
    loop = asyncio.get_running_loop()

    def blocking(side: Callable[[], Coroutine[Any, Any, float]]) -> Callable[[], float]:
        return lambda: asyncio.run_coroutine_threadsafe(side(), loop).result()

    return await asyncio.to_thread(take_turns, {name: blocking(side) for name, side in sides.items()}, rounds)


async def servers(transport: str, *, quick: bool) -> list[dict[str, Any]]:
    """Compare the servers over one transport."""
    rows = []
    calls = 200 if quick else 600
    async with contextlib.AsyncExitStack() as stack:
        sides = {name: await stack.enter_async_context(connected(name, transport)) for name in ("ours", *PEERS)}
        for at_once in (1, 10):
            for side in sides.values():
                side.cpu.clear()
            loads = {name: functools.partial(side.load, calls, at_once) for name, side in sides.items()}
            values = await turns(loads, 3 if quick else 9)
            case = f"server, {transport}, {at_once} at once"
            goal = "goal: at least 500; " if (transport, at_once) == ("stdio", 10) else ""
            for peer, told in PEERS.items():
                errors = f"{goal}errors {sides['ours'].errors} against {sides[peer].errors}"
                rows.append(row(case, values["ours"], told, values[peer], unit="calls/s", note=errors))
            for peer, told in PEERS.items():
                # The first round, which warms up, is not a round.
                cpu = [sides[name].cpu[1:] for name in ("ours", peer)]
                rows.append(row(f"{case}: CPU of the server", cpu[0], told, cpu[1], unit="ms/call"))
    return rows


async def client(transport: str, *, quick: bool) -> list[dict[str, Any]]:
    """Compare calls through our client, door included, with the official client's own."""
    from nbtools.contract.tool import ToolCall
    from nbtools.mcp_client import McpExecutor

    rows = []
    calls = 100 if quick else 300
    for name, told in {"ours": "our server", **PEERS}.items():
        async with contextlib.AsyncExitStack() as stack:
            side = await stack.enter_async_context(connected(name, transport))
            if transport == "HTTP":
                _, url = stack.enter_context(listening(name))
                given: dict[str, Any] = {"url": url}
            else:
                executable, *arguments = command(name, "stdio")
                given = {"command": executable, "args": arguments, "env": dict(os.environ)}
            executor = McpExecutor("out", {**given, "trusted": True})
            await executor.aconnect()

            async def median(call: Callable[[], Coroutine[Any, Any, Any]]) -> float:
                values = []
                for _ in range(calls):
                    begun = time.perf_counter()
                    await call()
                    values.append(time.perf_counter() - begun)
                return 1_000 * statistics.median(values)

            async def ours(using: Any = executor) -> None:
                result = await using.acall(ToolCall(tool="out__add", arguments=ARGUMENTS))
                assert result.data["result"] == 3, result

            async def theirs(using: Any = side) -> None:
                await using.client.call_tool("add", ARGUMENTS)

            try:
                both = {"ours": functools.partial(median, ours), "theirs": functools.partial(median, theirs)}
                values = await turns(both, 3 if quick else 9)
            finally:
                await executor.aclose()
            case = f"client call, {transport}, to {told}"
            rows.append(
                row(case, values["ours"], "official client", values["theirs"], unit="ms", note="goal: at most 2 ms")
            )
    return rows


def door(rounds: int) -> list[dict[str, Any]]:
    """Measure what the door adds to a trivial tool: through the door, less the function where it would run anyway."""
    import tempfile

    from nbtools.assembly.workbench import Workbench
    from nbtools.contract.tool import ToolCall, tool
    from nbtools.ground import aio

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def aadd(a: int, b: int) -> int:
        """Add two numbers, on the loop."""
        return a + b

    async def each(work: Callable[[], Any]) -> tuple[float, float]:
        begun, used = time.perf_counter(), time.process_time()
        for _ in range(300):
            await work()
        return (time.perf_counter() - begun) / 0.3, (time.process_time() - used) / 0.3

    rows = []
    with tempfile.TemporaryDirectory() as home:
        with Workbench(home=home, tools=[tool(read_only=True)(add), tool(read_only=True)(aadd)]) as bench:
            acall = bench.executor.acall
            cpu: dict[str, list[float]] = {}
            cases = {
                "async": lambda: acall(ToolCall(tool="aadd", arguments=ARGUMENTS)),
                "sync": lambda: acall(ToolCall(tool="add", arguments=ARGUMENTS)),
                "plain async": lambda: aadd(1, 2),
                "plain thread": lambda: aio.in_thread(add, 1, 2),
            }

            def measure(name: str) -> float:
                wall, used = aio.run(each(cases[name]))
                cpu.setdefault(name, []).append(used)
                return wall

            values = take_turns({name: lambda n=name: measure(n) for name in cases}, rounds)
        for name, peer in (("async", "plain async"), ("sync", "plain thread")):
            for figures, unit in ((values, "ms"), ({n: found[1:] for n, found in cpu.items()}, "ms CPU")):
                added = [a - b for a, b in zip(figures[name], figures[peer], strict=True)]
                note = f"goal: at most 0.3 ms; whole call {statistics.median(figures[name]):.3f} ms"
                rows.append(row(f"door, added to a trivial {name} tool", added, unit=unit, note=note))
    return rows


def schemas(rounds: int) -> list[dict[str, Any]]:
    """Measure all schemas of the shelf in a fresh process, once for each format."""
    from nbtools.contract.schema import FORMATS

    def cold(form: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", LISTED.format(form=form)], capture_output=True, text=True, check=True
        )
        wall, used, count = done.stdout.split()
        cpu.setdefault(form, []).append(float(used))
        counts[form] = int(count)
        return float(wall)

    cpu: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    values = take_turns({form: lambda f=form: cold(f) for form in FORMATS}, rounds)
    return [
        row(
            f"all {counts[form]} schemas, cold: {form}",
            values[form],
            unit="ms",
            note=f"goal: at most 200 ms; CPU {statistics.median(cpu[form][1:]):.0f} ms",
        )
        for form in FORMATS
    ]


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure servers, client, door and schemas."""
    from nbtools.ground import aio

    rounds = 3 if quick else 9
    rows: list[dict[str, Any]] = []
    for transport in ("stdio", "HTTP"):
        rows += aio.run(servers(transport, quick=quick))
    for transport in ("stdio", "HTTP"):
        rows += aio.run(client(transport, quick=quick))
    return rows + door(rounds) + schemas(rounds)
