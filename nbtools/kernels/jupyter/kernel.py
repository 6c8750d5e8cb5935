"""A Jupyter kernel seen from its owner: sockets on the nbtools loop, and one run at a time.

The sockets are plain ZeroMQ sockets whose descriptor the loop watches. By ZeroMQ's own rules that descriptor becomes
readable only once for all that has arrived: after every send and every read the socket is polled again, or a message
would wait until the next one arrives.

Forked and spawned kernels are both a `JupyterKernel`; they differ in how their process is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import secrets
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from nbtools.errors import KernelDied, NbtoolsError
from nbtools.ground.aio import in_thread, start_thread
from nbtools.ground.paths import open_plain
from nbtools.kernels.inside.hooks import REPORT
from nbtools.kernels.inside.streams import NO_MEMORY, LastWords
from nbtools.kernels.interface import STILL_RUNNING, Execution, RunContext, Status
from nbtools.kernels.jupyter import bootstrap
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.jupyter.messages import Message, MessageCodec
from nbtools.kernels.runs.ending import Ending, to_the_end
from nbtools.kernels.runs.local import LocalBackend, LocalKernel, OngoingRun
from nbtools.kernels.runs.output import Collector
from nbtools.processes.client import describe_early_end

# With ipc the "ports" are the ends of the sockets' file names.
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "hb": 4, "control": 5}
# Seconds of reading in one go. A flood of output must not keep a Stop, or another kernel, from its turn on the loop.
_TURN_S = 0.01
# What is looked at, when a run has gone beyond its limits, and before; all else is for widgets and debuggers.
_LAST_WANTED, _MOST_LAST = frozenset({"error", "status", "execute_reply"}), 1 << 20
_SHOWN = frozenset({"stream", "display_data", "execute_result", "update_display_data"})
_WANTED = _LAST_WANTED | _SHOWN | {"clear_output"}
# The short parts of a message, which are copied; the others lie in memory only once.
_SHORT_PARTS = 5
# Messages that wait for their turn, at most, where the kernel itself holds the others.
_WAITING = 2
# A longer message is taken in a thread: it is decoded, and searched for secrets before it is shown.
_LONG = 1 << 19
# A run may send this much, and so many times as its limits allow; a message counts as so many bytes at least.
_MOST_SENT, _MOST_TIMES, _LEAST = 1 << 30, 64, 512
# After the reply the "idle" follows what was shown, unless a publisher without room dropped it: then comes silence.
_IDLE_S = 2.0
# How often a running kernel's sockets are asked although nothing was signalled.
_ASK_S = 0.5
# What a dead kernel had sent is all there when nothing has come for so long.
_LAST_WORDS_S = 0.05
_NO_THREAD_S = 5.0
# A kernel that has not announced its subscription answers a request at least: it is asked soon, and then less often.
_FIRST_ASK_S = 0.02
_LAST_ASK_S = 0.4
_SILENT_S = 10.0
_LAST_GRACE_S = 1.0
_MOST_BYTES = 1 << 27


class ConnectionInfo:
    """Where the sockets of a kernel are, and the key that signs its messages.

    Parameters
    ----------
    folder
        A private folder for the sockets.
    key
        The key; `None` makes one.
    """

    def __init__(self, folder: Path, key: str | None = None) -> None:
        self.key = secrets.token_hex(16) if key is None else key
        self.base = str(folder / "s")

    def address(self, channel: str) -> str:
        """Return the address of a channel."""
        return f"ipc://{self.base}-{_PORTS[channel]}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a connection file holds it."""
        ports = {f"{name}_port": port for name, port in _PORTS.items()}
        return {"transport": "ipc", "ip": self.base, "key": self.key, "signature_scheme": "hmac-sha256", **ports}


class JupyterRun(OngoingRun):
    """A run whose messages go to a collector until the reply and the idle status have arrived.

    Parameters
    ----------
    msg_id
        The number of the request.
    collector
        Takes what the run prints and shows.
    look
        Reads the messages that wait in the sockets.

    Attributes
    ----------
    messages
        How many messages were read since the run began, of whatever kind.
    """

    def __init__(self, msg_id: str, collector: Collector, look: Callable[[], None] = lambda: None) -> None:
        super().__init__(collector)
        self.msg_id = msg_id
        self.messages = 0
        self._look = look
        self.reply: dict[str, Any] | None = None
        self.report: dict[str, Any] = {}
        # Bytes of each stream; and the file that the script stands in.
        self.heard = {"stdout": 0, "stderr": 0}
        self.file: Path | None = None
        # Takes a long message; those behind it wait.
        self.taking: asyncio.Task[None] | None = None
        limits = collector.limits
        # Text may be escaped.
        self.most = 3 * max(limits.text_bytes, limits.display_bytes) // 2 + (1 << 20)
        self.room = max(_MOST_SENT, _MOST_TIMES * (limits.text_bytes + limits.display_bytes))
        self._is_idle = False

    def finish(self) -> None:
        """End the waiting for this run, once all that has come of it is taken."""
        if self.taking is None:
            super().finish()
        else:
            self.taking.add_done_callback(lambda _: self.finish())

    def end_in_silence(self, wait: float, end: Callable[[], None], before: int | None = None, left: float = 60) -> None:
        """Call `end` when no message has come for so many seconds: a slow reader may have many before it.

        `before` is how many had come when the waiting began, `None` if it begins now; `left` is the most time, as a
        thread that the code left may show something for ever.
        """
        if before is not None and not self.done.done():
            self._look()
        if self.taking is None and (before == self.messages or left <= 0):
            end()
        elif not self.done.done():
            asyncio.get_running_loop().call_later(wait, self.end_in_silence, wait, end, self.messages, left - wait)

    def take(self, message: Message) -> None:
        """Take a message that belongs to the request."""
        content = message.content
        match message.type:
            case "stream":
                name: Literal["stdout", "stderr"] = "stderr" if content.get("name") == "stderr" else "stdout"
                self.heard[name] += len(content["text"].encode("utf-8", "surrogatepass"))
                self.collector.stream(name, content["text"])
            case "display_data" | "execute_result" | "update_display_data":
                self._display(message.type, content)
            case "too_large":
                self.collector.drop(content["bytes"])
            case "clear_output":
                self.collector.clear(wait=bool(content.get("wait")))
            case "error":
                self._add_error(content)
            case "status":
                if content["execution_state"] == "idle" and not self._is_idle:
                    self._is_idle = True
                    self.end_in_silence(_IDLE_S, self._end_without_reply)
            case "execute_reply":
                self.reply = content
                self.end_in_silence(_IDLE_S, self.finish)
        if self.reply is not None and self._is_idle:
            self.finish()

    def _end_without_reply(self) -> None:
        # An interrupt that strikes the kernel's own steps around the code takes the reply along.
        if self.reply is None and not self.done.done():
            self.reply = {"status": "error", "ename": "KeyboardInterrupt", "evalue": ""}
            self.finish()

    def _display(self, kind: str, content: Mapping[str, Any]) -> None:
        data = content.get("data", {})
        report = data.get(REPORT)
        if report is None:
            name = content.get("transient", {}).get("display_id")
            self.collector.display(data, display_id=name, update=kind == "update_display_data")
        elif report.get("overflow"):
            self.collector.overflow()
        elif "dropped" in report:
            self.collector.drop(int(report["dropped"]))
        else:
            self.report.update(report)

    def _add_error(self, content: Mapping[str, Any]) -> None:
        self.collector.add_error(content["ename"], content["evalue"], "\n".join(content.get("traceback", ())))

    def take_last_words(self, path: Path) -> str:
        """Take what the script had written and its kernel did not send any more; return how that died, if it did."""
        data = b""
        with contextlib.suppress(NbtoolsError, OSError), os.fdopen(open_plain(path), "rb") as file:
            for name in ("stdout", "stderr"):
                data, is_whole = LastWords.missing(file.fileno(), name, self.heard[name])
                self.collector.truncated |= not is_whole
                self.collector.raw(name, data, final=True)
        return "memory_limit" if data.endswith(NO_MEMORY.encode()) else "died"

    def execution(self, ending: str | None, *, notes: tuple[str, ...] = (), **facts: Any) -> Execution:
        """Return what became of the run; `ending` says what ended it, `None` that the code came to its own end."""
        if figure := self.report.get("figure"):
            notes = (*notes, f"figure {figure}")
        if note := self.report.get("value_note"):
            notes = (*notes, note)
        if note := self.report.get("cancelled"):
            notes = (*notes, note)
        if ending is not None and (running := self.report.get("running")):
            notes = (*notes, f"{', '.join(running)}{STILL_RUNNING}")
        status = self._own_status() if ending is None else cast("Status", ending)
        if status == "ok" and (unwritten := self.report.get("unwritten")):
            message = f"files could not be written to their end: {'; '.join(unwritten)}"
            self.collector.add_error("OSError", message, f"OSError: {message}\n")
            status = "error"
        facts["others"] = None if (names := self.report.get("others")) is None else frozenset(map(str, names))
        facts["has_children"] = bool(self.report.get("has_children"))
        return self.collector.execution(status, notes=notes, value=self.report.get("data"), **facts)

    def _own_status(self) -> Status:
        """Return how the code ended by itself, and find the error that ended it.

        The reply names that error and may arrive before the error does.
        """
        collector, reply, report = self.collector, self.reply, self.report
        if reply is not None:
            is_error = reply["status"] == "error"
            if collector.error is not None and not is_error:
                collector.clear_error()
            elif collector.error is None and is_error:
                self._add_error(reply)
            elif is_error:
                collector.set_error(reply.get("ename", ""), reply.get("evalue", ""))
        if "exit_code" in report:
            collector.exit_code = report["exit_code"]
            if collector.error is not None:
                # IPython's, about a traceback that nobody asked for.
                collector.error = dataclasses.replace(collector.error, traceback="")
            if report["exit_code"] == 0:
                return "ok"
        if error := collector.error:
            value, line = report.get("value", error.value), report.get("line")
            collector.error = dataclasses.replace(error, value=value, line=line)
        return "error" if reply is None or reply["status"] != "ok" else "ok"


class JupyterKernel(LocalKernel[JupyterRun]):
    """A kernel process that speaks Jupyter's protocol over local sockets.

    Parameters
    ----------
    connection
        Its sockets.
    zmq_context
        The ZeroMQ context of the backend.
    python
        How the hooks get in: ``"loaded"`` (a fork has them), ``"text"`` (sent once), or `None` for another language.
    interrupts
        Whether an interrupt is a signal or a message.
    memory_rpc
        Our end of the socket for ``memory``; `None` when the kernel has none.
    **rest
        Those of `LocalKernel`.
    """

    def __init__(
        self,
        *,
        connection: ConnectionInfo,
        zmq_context: Any,
        python: Literal["loaded", "text"] | None,
        interrupts: Literal["signal", "message"] = "signal",
        memory_rpc: MemoryRpc | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self._connection = connection
        self._words = str(self._folder / "last-words")
        self._zmq_context = zmq_context
        self._python = python
        self._interrupts = interrupts
        self._memory_rpc = memory_rpc
        self._codec = MessageCodec(connection.key.encode())
        self._sockets: dict[str, Any] = {}
        self._heard = asyncio.Event()
        self._hooks_sent = False

    async def connect(self, *, timeout: float) -> None:
        """Open the sockets and wait until output can be heard.

        Raises
        ------
        KernelDied
            The kernel ended, or did not answer in time.
        """
        import zmq

        for name, kind in (("iopub", zmq.SUB), ("shell", zmq.DEALER), ("control", zmq.DEALER)):
            sock = self._zmq_context.socket(kind)
            # Closing must not wait for messages to a kernel that is dead.
            sock.linger = 0
            # ZeroMQ waits 100 ms before it tries again to reach a socket that is not bound yet.
            sock.reconnect_ivl = 5
            if kind == zmq.SUB:
                # At the mark messages are dropped, and the "idle" could be among them; a fork holds them in its memory.
                sock.rcvhwm = _WAITING if self._python == "loaded" else 100_000
                # No honest kernel sends more at once; a message takes memory here before anybody can look at it.
                sock.maxmsgsize = _MOST_BYTES
                sock.subscribe(b"")
            else:
                sock.identity = self._codec.session.encode()
            sock.connect(self._connection.address(name))
            self._sockets[name] = sock
            asyncio.get_running_loop().add_reader(sock.fd, self._drain, name)
        self._drain("iopub")
        await self._hear(timeout)
        self.process.watch(rests=True)

    async def _hear(self, timeout: float) -> None:
        """Wait for the first message on iopub: ipykernel 7 greets a subscriber, others answer a request."""
        loop, exited = asyncio.get_running_loop(), self.process.exited
        deadline, wait = loop.time() + timeout, _FIRST_ASK_S
        heard = asyncio.ensure_future(self._heard.wait())
        try:
            while not self._heard.is_set():
                waiters: set[asyncio.Future[Any]] = {heard, exited}
                await asyncio.wait(waiters, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                wait = min(2 * wait, _LAST_ASK_S)
                if exited.done():
                    raise KernelDied(describe_early_end(self.process), data={"said": exited.result().last_words})
                if loop.time() > deadline:
                    raise KernelDied(f"The kernel did not answer within {timeout:g} s of its start.")
                # A greeting may wait in a socket whose descriptor was quiet: asking is what moves it.
                self._drain("iopub")
                if not self._heard.is_set():
                    self._send("shell", "kernel_info_request", {})
        finally:
            heard.cancel()

    async def variables(self) -> list[dict[str, Any]]:
        """List what the session has defined."""
        return list((await self._run_silently(bootstrap.variables_code(), None)).report.get("variables", ()))

    async def warm(self) -> None:
        """Run something small once, so that the first script does not pay for what happens once."""
        code = bootstrap.rehearse_code() if self._python == "loaded" else ""
        # A silent request takes only half of the steps of a script, so where the hooks are it is not silent.
        await self._run_silently(code, RunContext() if self._python else None, silent=not self._python)

    async def _run_silently(self, code: str, context: RunContext | None, *, silent: bool = True) -> JupyterRun:
        """Run code of ours, which does not enter the history."""
        run = self._request(code, Collector(), context, silent=silent, recorded=False)
        await asyncio.wait({run.done}, timeout=_SILENT_S)
        self._run = None
        return run

    async def finish(self, *, timeout: float) -> None:
        """End a session as a script ends, in so many seconds; the process is still to be closed."""
        if self._python is None:
            self._send("control", "shutdown_request", {"restart": False})
            await asyncio.wait({self.process.exited}, timeout=timeout)
        else:
            await self.run("pass", timeout=timeout, grace=_LAST_GRACE_S, context=RunContext(ends="session"))

    async def _begin(self, code: str, collector: Collector, context: RunContext) -> JupyterRun:
        if self._memory_rpc is not None:
            self._memory_rpc.memory = context.memory
        self.process.watch()
        file: Path | None = None
        # Beside its data where it asks for its own place, else in the kernel's folder. A script that does not guard its
        # main part has no file: processes that it spawns would run it again, each with its own processes.
        is_asked = self._python is not None and ("__file__" in code or "argv" in code)
        is_named = is_asked or "__name__" in code
        for folder_tried in (context.cwd if is_asked else None, self._folder if is_named else None):
            if folder_tried is not None and file is None:
                with contextlib.suppress(OSError):
                    own = folder_tried / f".nbtools-{secrets.token_hex(4)}.py"
                    with own.open("x", encoding="utf-8", errors="surrogatepass") as script:
                        script.write(code)
                    file = own
        run = self._request(code, collector, context, file=None if file is None else str(file))
        run.file = file
        return run

    def _request(
        self,
        code: str,
        collector: Collector,
        context: RunContext | None,
        *,
        silent: bool = False,
        recorded: bool = True,
        file: str | None = None,
    ) -> JupyterRun:
        """Send the request, behind those that must come before it."""
        metadata: dict[str, Any] = {}
        if self._python == "text" and (context is not None or not self._hooks_sent):
            steps = (bootstrap.load_code(),) if not self._hooks_sent else ()
            # Only once: the whole text of the module is sent and compiled.
            self._hooks_sent = True
            begin = bootstrap.begin_code(context or RunContext(), collector.limits, last_words=self._words, file=file)
            for step in (*steps, begin):
                self._send("shell", "execute_request", code_content(step, silent=True))
        elif self._python == "loaded" and context is not None:
            metadata["nbtools"] = bootstrap.context_as_text(
                context, collector.limits, last_words=self._words, file=file
            )
        content = code_content(code, silent=silent, recorded=recorded)
        run = self._run = JupyterRun(self._send("shell", "execute_request", content, metadata), collector, self._look)
        self._ask_again(run)
        return run

    def _ask_again(self, run: JupyterRun) -> None:
        """Look into the sockets now and then: their descriptors have been seen quiet while a message waited."""
        if self._run is run and not run.done.done():
            self._look()
            asyncio.get_running_loop().call_later(_ASK_S, self._ask_again, run)

    def _look(self) -> None:
        self._drain("iopub")
        self._drain("shell")

    def _send(
        self, channel: str, kind: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Send a message and return its id."""
        msg_id, frames = self._codec.pack(kind, content, metadata)
        self._sockets[channel].send_multipart(frames)
        asyncio.get_running_loop().call_soon(self._drain, channel)
        return msg_id

    def _drain(self, channel: str) -> None:
        """Read what waits on a socket for a moment, so that other work on the loop gets its turn."""
        import zmq

        loop, count = asyncio.get_running_loop(), 0
        began = loop.time()
        while (sock := self._sockets.get(channel)) is not None:
            if self._run is not None and self._run.taking is not None:
                loop.remove_reader(sock.fd)  # `_take_long` reads on
                return
            try:
                # Only the first parts are copied.
                frames = [sock.recv(zmq.NOBLOCK)]
                while sock.getsockopt(zmq.RCVMORE):
                    frames.append(sock.recv(zmq.NOBLOCK, copy=len(frames) < _SHORT_PARTS))
            except zmq.Again:
                if count and channel == "shell":
                    # What was shown before a reply is here as well, even if its descriptor was quiet.
                    self._drain("iopub")
                return
            count += 1
            if channel == "iopub":
                self._heard.set()
            if self._run is not None:
                self._take(self._run, frames)
            if channel in self._sockets and (spent := loop.time() - began) > _TURN_S:
                # Who sends what takes long to read waits twice as long: whatever else is to be done comes first.
                loop.remove_reader(sock.fd)
                loop.call_later(2 * (spent - _TURN_S), self._go_on, channel)
                return

    def _go_on(self, channel: str) -> None:
        if (sock := self._sockets.get(channel)) is not None:
            asyncio.get_running_loop().add_reader(sock.fd, self._drain, channel)
            self._drain(channel)

    def _take(self, run: JupyterRun, frames: Sequence[Any]) -> None:
        """Take a message, if it is one of a run; a kernel that sends without end is heard no more, and ended."""
        # Whatever it is: all that comes takes the time of its reader.
        run.messages += 1
        run.room -= (size := sum(map(len, frames))) + _LEAST
        if run.room < 0:
            run.collector.overflow()
            run.runaway.set()
            self._hang_up()
            self._is_used_up = True
            self.process.signal(signal.SIGKILL)
        elif size > _LONG:
            run.taking = asyncio.ensure_future(self._take_long(run, frames, size))
        elif message := self._unpacked(run, frames):
            self._give(run, message, size)

    async def _take_long(self, run: JupyterRun, frames: Sequence[Any], size: int) -> None:
        """Take a long message beside the loop, and then those that came behind it."""
        try:
            message = await in_thread(self._unpacked, run, frames)
            del frames
            if message is not None and message.type in _SHOWN:
                await in_thread(self._give, run, message, size)
            elif message is not None:
                self._give(run, message, size)
        except NbtoolsError:  # the system gives no more threads
            run.collector.drop(size)
        finally:
            run.taking = None
            for channel in ("iopub", "shell"):
                self._go_on(channel)

    def _unpacked(self, run: JupyterRun, frames: Sequence[Any]) -> Message | None:
        types, most = (_LAST_WANTED, _MOST_LAST) if run.runaway.is_set() else (_WANTED, run.most)
        return self._codec.unpack(frames, types, run.msg_id, most=most)

    def _give(self, run: JupyterRun, message: Message, size: int) -> None:
        try:
            run.take(message)
        except (KeyError, TypeError, ValueError, AttributeError):
            # A script that can sign may still send what is not a content.
            run.collector.drop(size)
        if run.collector.is_runaway:
            run.done.get_loop().call_soon_threadsafe(run.runaway.set)

    def _on_exit(self) -> None:
        if self._run is not None:
            # What it had sent is on its way: the code may have ended properly just before.
            self._run.end_in_silence(_LAST_WORDS_S, self._run.finish)

    async def _finish(self, run: JupyterRun, ending: Ending | None) -> Execution:
        if self._memory_rpc is not None:
            self._memory_rpc.memory = None
        self._run = None
        if run.taking is not None:
            await to_the_end(run.taking)
        self.process.watch(rests=True)
        if run.file is not None:
            run.file.unlink(missing_ok=True)
        if not self.process.exited.done() or run.reply is not None:
            return run.execution(ending, sandbox=self.sandbox)
        how = self.process.exited.result()
        death = run.take_last_words(Path(self._words))
        return run.execution(
            how.ended_by or ending or death,
            exit_code=how.code,
            signal=how.signal_name,
            sandbox=self.sandbox,
        )

    async def interrupt(self) -> None:
        """Interrupt the running code."""
        if self._run is None:
            return  # what comes late would strike the next run
        if self._interrupts == "message":
            self._send("control", "interrupt_request", {})
        else:
            await self.process.interrupt()

    def _hang_up(self) -> None:
        for sock in self._sockets.values():
            asyncio.get_running_loop().remove_reader(sock.fd)
            sock.close(0)
        self._sockets.clear()

    def _release(self) -> None:
        self._hang_up()
        if self._memory_rpc is not None:
            self._memory_rpc.close()


def code_content(code: str, *, silent: bool, recorded: bool = False) -> dict[str, Any]:
    """Return the content of a request to execute code."""
    return {
        "code": code,
        "silent": silent,
        "store_history": recorded,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }


class JupyterBackend(LocalBackend[JupyterKernel]):
    """A backend of Jupyter kernels, which share one ZeroMQ context."""

    @functools.cached_property
    def zmq_context(self) -> Any:
        """The ZeroMQ context; it has one thread."""
        import zmq

        # The library ends this very process where its two threads cannot be started; Python's threads say so.
        both = threading.Barrier(3)
        for _ in range(2):
            start_thread(both.wait, _NO_THREAD_S, name="nbtools-trial")
        both.wait(_NO_THREAD_S)
        return zmq.Context()

    async def close(self) -> None:
        """End all kernels and the process that starts them. Harmless when repeated."""
        await super().close()
        if (context := self.__dict__.pop("zmq_context", None)) is not None:
            context.destroy(linger=0)  # a socket that is still open would make it wait without end
