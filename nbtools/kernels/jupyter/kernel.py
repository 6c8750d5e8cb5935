"""A Jupyter kernel seen from its owner: sockets on the nbtools loop, and one run at a time.

The sockets are plain ZeroMQ sockets whose descriptor the loop watches. That descriptor is edge-triggered by ZeroMQ's
own rules: after every send and every read the socket is asked again whether something waits, or a message would lie
there until the next one.

Forked and spawned kernels are both a `JupyterKernel`; they differ in how their process came to be.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.errors import KernelDied
from nbtools.kernels.inside.hooks import REPORT
from nbtools.kernels.interface import Execution, OnOutput, OutputLimits, RunContext, Status
from nbtools.kernels.jupyter import bootstrap
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.jupyter.messages import Message, MessageCodec
from nbtools.kernels.runs.ending import supervise
from nbtools.kernels.runs.output import Collector
from nbtools.kernels.warden.client import WatchedProcess, describe_early_end

__all__ = ["ConnectionInfo", "JupyterKernel", "JupyterRun"]

_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "hb": 4, "control": 5}
_BATCH = 100
# After the reply the "idle" follows at once, unless a publisher without room dropped it.
_IDLE_S = 2.0
_ASK_S = 0.5
# What a dead kernel had sent arrives within this time.
_LAST_WORDS_S = 0.05
# A kernel that has not announced its subscription answers a request at least.
_WELCOME_S = 0.4
_SILENT_S = 10.0
_CAP, _WORLD = OutputLimits(), RunContext()


class ConnectionInfo:
    """Where a kernel's sockets are, and the key its messages are signed with.

    Parameters
    ----------
    folder
        A private folder for the sockets.
    key
        The key, as text.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.key = key
        self.base = str(folder / "s")

    def address(self, channel: str) -> str:
        """Return the address of a channel."""
        return f"ipc://{self.base}-{_PORTS[channel]}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a connection file holds it."""
        return {
            "transport": "ipc",
            "ip": self.base,
            "key": self.key,
            "signature_scheme": "hmac-sha256",
            **{f"{name}_port": port for name, port in _PORTS.items()},
        }


class JupyterRun:
    """One request under way: its messages go to a collector until reply and idle are there."""

    def __init__(self, msg_id: str, collector: Collector) -> None:
        self.msg_id = msg_id
        self.collector = collector
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.runaway = asyncio.Event()
        self.reply: dict[str, Any] | None = None
        self.idle = False
        self.report: dict[str, Any] = {}

    def take(self, message: Message) -> None:
        """Take a message that belongs to the request."""
        content = message.content
        match message.type:
            case "stream":
                self.collector.stream("stderr" if content.get("name") == "stderr" else "stdout", content["text"])
            case "display_data" | "execute_result" | "update_display_data":
                self._display(message.type, content)
            case "clear_output":
                self.collector.clear()
            case "error":
                self._fail(content)
            case "status":
                self.idle = self.idle or content["execution_state"] == "idle"
            case "execute_reply":
                self.reply = content
        if self.collector.runaway:
            self.runaway.set()
        self._settle()

    def finish(self) -> None:
        """Wait no longer."""
        if not self.done.done():
            self.done.set_result(None)

    def _display(self, kind: str, content: Mapping[str, Any]) -> None:
        data = content.get("data", {})
        report = data.get(REPORT)
        if report is None:
            name = content.get("transient", {}).get("display_id")
            self.collector.display(data, display_id=name, update=kind == "update_display_data")
        elif report.get("overflow"):
            self.collector.overflow()
        else:
            self.report.update(report)

    def _judge(self) -> None:
        """Find the error that ended the code: the reply names it, and may be here before the errors are."""
        reply = self.reply
        if reply is None:
            return
        if reply["status"] != "error":
            self.collector.clear_error()
        elif self.collector.error is None:
            self._fail(reply)
        else:
            self.collector.set_error(reply.get("ename", ""), reply.get("evalue", ""))

    def _fail(self, content: Mapping[str, Any]) -> None:
        self.collector.fail(content["ename"], content["evalue"], "\n".join(content.get("traceback", ())))

    def _settle(self) -> None:
        if self.reply is None or self.done.done():
            return
        if self.idle:
            self.done.set_result(None)
        else:
            asyncio.get_running_loop().call_later(_IDLE_S, self.finish)

    def status(self) -> Status:
        """Return how the code ended by itself, with the report worked into the error."""
        self._judge()
        error, report = self.collector.error, self.report
        if "exit_code" in report:
            self.collector.exit_code = report["exit_code"]
            if report["exit_code"] == 0:
                return "ok"
        if error is not None:
            value, line = report.get("value", error.value), report.get("line")
            self.collector.error = dataclasses.replace(error, value=value, line=line)
        return "error" if self.reply is None or self.reply["status"] != "ok" else "ok"


class JupyterKernel:
    """A kernel process that speaks Jupyter's protocol over local sockets.

    Parameters
    ----------
    child
        Its process.
    connection
        Its sockets.
    context
        The ZeroMQ context of the backend.
    confinement, missing
        The level in force, and what of it this host cannot enforce.
    python
        How the hooks get in: ``"loaded"`` (a fork has it), ``"text"`` (sent once), or `None` for another language.
    interrupts
        Whether an interrupt is a signal or a message.
    channel
        Our end of the memory channel; `None` when the kernel has none.
    on_close
        Called once when everything is released.
    """

    def __init__(
        self,
        *,
        child: WatchedProcess,
        connection: ConnectionInfo,
        context: Any,
        confinement: str,
        missing: tuple[str, ...] = (),
        python: Literal["loaded", "text"] | None,
        interrupts: Literal["signal", "message"] = "signal",
        channel: MemoryRpc | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.child = child
        self.missing = missing
        self._confinement = confinement
        self._connection = connection
        self._context = context
        self._python = python
        self._interrupts = interrupts
        self._channel = channel
        self._on_close = on_close
        self._wire = MessageCodec(connection.key.encode())
        self._sockets: dict[str, Any] = {}
        self._run: JupyterRun | None = None
        self._heard = asyncio.Event()
        self._killed = False
        self._closed = False
        self._hooks_sent = False
        child.exited.add_done_callback(lambda _: self._on_exit())

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self.child.pid

    @property
    def alive(self) -> bool:
        """Whether it can run code."""
        return not (self._closed or self._killed or self.child.exited.done())

    @property
    def confinement(self) -> str:
        """The level of confinement in force."""
        return self._confinement

    async def connect(self, *, seconds: float) -> None:
        """Open the sockets and wait until output can be heard.

        Raises
        ------
        KernelDied
            The kernel ended, or did not answer in time.
        """
        import zmq

        for name, kind in (("iopub", zmq.SUB), ("shell", zmq.DEALER), ("control", zmq.DEALER)):
            sock = self._context.socket(kind)
            sock.linger = 0
            # ZeroMQ waits 100 ms before it tries again to reach a socket that is not bound yet.
            sock.reconnect_ivl = 5
            if kind == zmq.SUB:
                sock.rcvhwm = 100_000
                sock.subscribe(b"")
            else:
                sock.identity = self._wire.session.encode()
            sock.connect(self._connection.address(name))
            self._sockets[name] = sock
            asyncio.get_running_loop().add_reader(sock.fd, self._drain, name)
        self._drain("iopub")
        await self._hear(seconds)

    async def _hear(self, seconds: float) -> None:
        """Wait for the first message on iopub: ipykernel 7 greets a subscriber, others answer a request."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        heard = asyncio.ensure_future(self._heard.wait())
        try:
            while not self._heard.is_set():
                waiters: set[asyncio.Future[Any]] = {heard, self.child.exited}
                await asyncio.wait(waiters, timeout=_WELCOME_S, return_when=asyncio.FIRST_COMPLETED)
                if self.child.exited.done():
                    raise KernelDied(describe_early_end(self.child), data={"said": self.child.exited.result().said})
                if loop.time() > deadline:
                    raise KernelDied(f"The kernel did not answer within {seconds:g} s of its start.")
                # A greeting may wait in a socket whose descriptor was quiet: asking is what moves it.
                self._drain("iopub")
                if not self._heard.is_set() and self._python != "loaded":
                    self._send("shell", "kernel_info_request", {})
        finally:
            heard.cancel()

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = 300.0,
        grace: float = 2.0,
        on_output: OnOutput | None = None,
        cap: OutputLimits = _CAP,
        world: RunContext = _WORLD,
    ) -> Execution:
        """Run code; see `nbtools.kernels.interface.Kernel.run`."""
        collector = Collector(on_output, cap)
        if not self.alive:
            return collector.execution("died", confinement=self._confinement)
        if self._channel is not None:
            self._channel.grant(world.memory)
        run = self._begin(code, collector, world)
        ending = await supervise(
            run.done, timeout=timeout, grace=grace, interrupt=self.interrupt, kill=self.kill, runaway=run.runaway
        )
        if self._channel is not None:
            self._channel.grant(None)
        self._run = None
        return self._execution(run, ending)

    async def variables(self) -> list[dict[str, Any]]:
        """List what the session has defined."""
        return list((await self._unrecorded(bootstrap.variables_code(), None)).report.get("variables", ()))

    async def warm(self) -> None:
        """Run something small, once, so that the first run finds all paths walked before."""
        code = bootstrap.rehearse_code() if self._python == "loaded" else ""
        # A silent request is spared half of the way that a script goes.
        await self._unrecorded(code, RunContext() if self._python else None, silent=not self._python)

    async def _unrecorded(self, code: str, world: RunContext | None, *, silent: bool = True) -> JupyterRun:
        run = self._begin(code, Collector(), world, silent=silent, recorded=False)
        await asyncio.wait({run.done}, timeout=_SILENT_S)
        self._run = None
        return run

    def _begin(
        self, code: str, collector: Collector, world: RunContext | None, *, silent: bool = False, recorded: bool = True
    ) -> JupyterRun:
        """Send the request, with what must come before it."""
        metadata: dict[str, Any] = {}
        if self._python == "text" and (world is not None or not self._hooks_sent):
            if not self._hooks_sent:
                self._hooks_sent = True
                self._execute(bootstrap.load_code(), silent=True)
            self._execute(bootstrap.begin_code(world or RunContext()), silent=True)
        elif self._python == "loaded" and world is not None:
            metadata["nbtools"] = {**bootstrap.world_as_json(world), "text_bytes": collector.cap.text_bytes}
        msg_id = self._execute(code, silent=silent, recorded=recorded, metadata=metadata)
        run = self._run = JupyterRun(msg_id, collector)
        self._ask_again(run)
        return run

    def _ask_again(self, run: JupyterRun) -> None:
        """Look into the sockets now and then: their descriptors have been seen quiet while a message waited."""
        if self._run is run and not run.done.done():
            self._drain("iopub")
            self._drain("shell")
            asyncio.get_running_loop().call_later(_ASK_S, self._ask_again, run)

    def _execute(
        self, code: str, *, silent: bool, recorded: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> str:
        content = {
            "code": code,
            "silent": silent,
            "store_history": recorded,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return self._send("shell", "execute_request", content, metadata)

    def _send(
        self, channel: str, kind: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> str:
        msg_id, frames = self._wire.pack(kind, content, metadata)
        self._sockets[channel].send_multipart(frames)
        asyncio.get_running_loop().call_soon(self._drain, channel)
        return msg_id

    def _drain(self, channel: str) -> None:
        """Read what waits on a socket, a batch at a time so that the loop can breathe."""
        import zmq

        sock = self._sockets.get(channel)
        if sock is None:
            return
        for count in range(_BATCH):
            try:
                frames = sock.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                if count and channel == "shell":
                    # What was shown before a reply is here as well, even if its descriptor was quiet.
                    self._drain("iopub")
                return
            message = self._wire.unpack(frames)
            if channel == "iopub":
                self._heard.set()
            if message is not None and self._run is not None and message.parent_id == self._run.msg_id:
                self._run.take(message)
        asyncio.get_running_loop().call_soon(self._drain, channel)

    def _on_exit(self) -> None:
        run = self._run
        if run is not None:
            # What it had sent is on its way: the code may have ended properly just before.
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, run.finish)

    def _execution(self, run: JupyterRun, ending: str | None) -> Execution:
        facts: dict[str, Any] = {"confinement": self._confinement}
        status: Status
        ended = run.reply is not None
        if self.child.exited.done() and not ended:
            how = self.child.exited.result()
            facts |= {"exit_code": how.code, "signal": how.signal_name}
            status = how.ended_by or ending or "died"  # type: ignore[assignment]  # all are statuses
        elif ending is not None:
            status = ending  # type: ignore[assignment]  # same
        else:
            status = run.status()
        if figure := run.report.get("figure"):
            facts["notes"] = (f"figure {figure}",)
        return run.collector.execution(status, **facts)

    async def interrupt(self) -> None:
        """Interrupt the running code."""
        if self._interrupts == "message":
            self._send("control", "interrupt_request", {})
        else:
            self.child.signal(signal.SIGINT)

    async def kill(self) -> None:
        """End the kernel and all it started."""
        self._killed = True
        self.child.signal(signal.SIGKILL)

    async def close(self) -> None:
        """End it and release its sockets and files."""
        if self._closed:
            return
        self._closed = True
        self.child.signal(signal.SIGKILL)
        loop = asyncio.get_running_loop()
        for sock in self._sockets.values():
            loop.remove_reader(sock.fd)
            sock.close(0)
        self._sockets.clear()
        if self._channel is not None:
            self._channel.close()
        await asyncio.wait({self.child.exited}, timeout=5.0)
        if self._on_close is not None:
            self._on_close()
