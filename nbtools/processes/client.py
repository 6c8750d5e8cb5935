"""The owner's end: starts a warden (or a zygote), asks it for kernels, and learns at once when one ends.

Everything here runs on the nbtools loop. When the warden itself dies, its kernels die with it; what they had started
outside their process groups is then looked for by its mark and ended from here.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import os
import secrets
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import KernelDied, LimitExceeded
from nbtools.ground import aio
from nbtools.processes import control_group, process_tree
from nbtools.processes.fd_socket import FdSocket
from nbtools.processes.runtime_dir import RuntimeDir

_HELLO_S = 20.0
_STOP_S = 5.0
# Seconds to wait for the warden's word that a signal was sent; who wants a run ended does not wait for ever.
_SENT_S = 2.0
_FROZEN_S = 10.0
# Seconds until the warden is told that a process works, or rests. Its look takes the time of the work, and most runs
# are over before; what has begun to work is seen by the looks at those that rest, too.
_LASTING_S = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exit:
    """How a process ended.

    Attributes
    ----------
    code
        The exit code; `None` where a signal ended it.
    signal
        Number of the signal that ended it; `None` where it exited by itself.
    ended_by
        ``"memory_limit"``, ``"process_limit"`` or ``"file_limit"`` when the warden ended it.
    last_words
        The end of what it wrote to its raw standard output and error.
    """

    code: int | None = None
    signal: int | None = None
    ended_by: str | None = None
    last_words: str = ""

    @property
    def signal_name(self) -> str | None:
        """Return ``"SIGKILL"`` and the like."""
        if self.signal is None:
            return None
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"

    def __str__(self) -> str:
        """Return ``killed by SIGKILL``, ``exit code 3`` or ``ended by its file limit``."""
        if self.ended_by is not None:
            return f"ended by its {self.ended_by.replace('_', ' ')}"
        return f"killed by {self.signal_name}" if self.signal is not None else f"exit code {self.code}"


class WatchedProcess:
    """A process that the warden watches.

    Attributes
    ----------
    id
        Twelve hexadecimal digits, also in the environment of all it starts.
    started
        Future of the process id.
    ready
        Future of what a forked kernel says when it can be talked to.
    asked
        Futures of what the warden has still to do, in their order.
    exited
        Future of the `Exit`; done as soon as the end is known.
    """

    def __init__(self, warden: WardenClient, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.id = name
        self._warden = warden
        self.pid: int | None = None
        self.started: asyncio.Future[int] = loop.create_future()
        self.ready: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.requests: collections.deque[asyncio.Future[None]] = collections.deque()
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self._rests = self._is_told_to_rest = False
        self._telling: asyncio.TimerHandle | None = None

    def signal(self, number: int, *, group: bool = True) -> None:
        """Send a signal to its process group; SIGKILL goes to the whole family."""
        if not self.exited.done():
            self._warden.send({"do": "signal", "id": self.id, "signal": int(number), "group": group})

    def begin_copy(self, name: str, line: int) -> WatchedProcess:
        """Let the warden take in a copy of this process, which tells its number at the other end of a line."""
        return self._warden.begin({"do": "adopt", "id": name, "of": self.id}, [line])

    def watch(self, *, rests: bool = False) -> None:
        """Have it looked at closely, as it is from its start; or less often, as it runs nothing for its owner."""
        self._rests = rests
        if self._telling is None and rests != self._is_told_to_rest:
            self._telling = asyncio.get_running_loop().call_later(_LASTING_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        if self._rests != self._is_told_to_rest and not self.exited.done():
            self._is_told_to_rest = self._rests
            self._warden.send({"do": "rest" if self._rests else "watch", "id": self.id})

    async def interrupt(self) -> None:
        """Send SIGINT to its process group, and wait until the warden has done so.

        What the process is told next, on another way, would overtake a signal that the warden has still to send: an
        interrupt that is meant for one run would end the next.
        """
        await self._ask("interrupt", _SENT_S)

    async def freeze(self) -> bool:
        """Stop it and all that it started, until `thaw`; tell whether that is certain."""
        return await self._ask("freeze", _FROZEN_S)

    async def thaw(self) -> None:
        """Let go on what `freeze` has stopped."""
        await self._ask("thaw", _SENT_S)

    async def _ask(self, what: str, seconds: float) -> bool:
        """Let the warden do something, and wait until it has, or the process has ended."""
        if not self.exited.done():
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.requests.append(done)
            self._warden.send({"do": what, "id": self.id})
            either: set[asyncio.Future[Any]] = {done, self.exited}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return done.done() or self.exited.done()
        return True


class WardenClient:
    """A warden process and the children it keeps.

    Parameters
    ----------
    sock
        The connection to it, which the client owns from now on.
    process
        The process, where it was started here; `None` where it is someone else's child.
    """

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self.children: dict[str, WatchedProcess] = {}
        self.hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._process = process
        self._pipe = FdSocket(sock)
        # When the warden is gone nothing happens, and `gone` says so soon.
        self.send = self._pipe.send
        # A process that user code forks from the owner must not keep the connection open after the owner's end.
        os.register_at_fork(after_in_child=_make_closer(weakref.ref(self._pipe)))
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Held, because the loop keeps only weak references to tasks.
        self._hunt: asyncio.Future[None] | None = None
        self._group: Path | None = None
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._on_readable)

    @classmethod
    def spawn(
        cls,
        command: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        extra: Sequence[str] = (),
    ) -> WardenClient:
        """Start a warden.

        Parameters
        ----------
        command
            What follows the interpreter: options, ``-m``, the module. Descriptor, folder and `extra` are appended.
        folder
            Removed by the warden when it ends.
        env
            The environment of the warden.
        extra
            More arguments.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, *command, str(theirs.fileno()), str(folder), *extra],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C in a terminal goes to the group of the owner; the warden and its kernels are not to get it.
                start_new_session=True,
                env=make_importable(env),
            )
        return cls(ours, process)

    @property
    def alive(self) -> bool:
        """Whether the warden is there."""
        return not self.gone.done()

    @property
    def pid(self) -> int:
        """The warden's process id; one that is not our child tells it when it says hello."""
        return self._process.pid if self._process is not None else int(self.hello.result()["pid"])

    def begin(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> WatchedProcess:
        """Start a process: `message` says how (``spawn`` or ``fork`` with its fields).

        Raises
        ------
        KernelDied
            The warden is gone.
        """
        if not self.alive:
            raise KernelDied("The process that starts kernels is gone.", hint="Try again: it is started again.")
        child = WatchedProcess(self, message.get("id") or secrets.token_hex(6))
        self.children[child.id] = child
        self.send({**message, "id": child.id}, descriptors)
        return child

    async def close(self, *, timeout: float = _STOP_S) -> None:
        """Ask the warden to end everything and remove its folder; after `timeout` seconds kill the warden itself."""
        self.send({"do": "stop"})
        await asyncio.wait({self.gone}, timeout=timeout)
        if not self.gone.done() and self._process is not None:
            self._process.kill()
            await asyncio.wait({self.gone}, timeout=1.0)
        if not self.gone.done():
            # One that is someone else's child sees the end of the connection, and ends what it has.
            self._lost()
        if self._process is not None:
            with contextlib.suppress(LimitExceeded):  # no thread to wait in; it is buried at the next start
                await aio.in_thread(self._process.wait)
        if self._hunt is not None:
            await self._hunt

    def _on_readable(self) -> None:
        for message, _ in self._pipe.receive():
            self._take(message)
        if not self._pipe.is_open:
            self._lost()

    def _take(self, message: Mapping[str, Any]) -> None:
        event = message["event"]
        if event == "hello":
            self.hello.set_result(dict(message))
            return
        if event == "group":
            self._group = Path(message["group"])
            return
        child = self.children.get(message["id"])
        if child is None:
            return
        if event == "started":
            child.pid = message["pid"]
            child.started.set_result(message["pid"])
        elif event == "ready":
            child.ready.set_result(dict(message))
        elif event == "done":
            child.requests.popleft().set_result(None)
        elif event == "exit":
            self._end(child, Exit(**{field.name: message[field.name] for field in dataclasses.fields(Exit)}))

    def _end(self, child: WatchedProcess, how: Exit) -> None:
        self.children.pop(child.id, None)
        child.exited.set_result(how)
        for future in (child.started, child.ready):
            if not future.done():
                future.cancel()

    def _lost(self) -> None:
        if self.gone.done():
            return
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.close()
        marks = frozenset(self.children)
        for child in list(self.children.values()):
            if child.pid is not None:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
            self._end(child, Exit(signal=signal.SIGKILL, last_words="the process that started it is gone"))
        if not self.hello.done():
            self.hello.cancel()
        self.gone.set_result(None)
        if marks or self._group is not None:
            self._hunt = asyncio.ensure_future(aio.in_thread(_end_left, marks, self._group))
        if self._process is not None:
            self._process.poll()  # reads the exit code, so that no zombie is left


def describe_early_end(child: WatchedProcess) -> str:
    """Return the message for a kernel that ended before it was used."""
    how, is_ready = child.exited.result(), child.ready.done() and not child.ready.cancelled()
    when = "" if is_ready else " before it was ready"
    lines = how.last_words.strip().splitlines()
    return f"The kernel ended{when}: {how}." + (f" It said: {lines[-1]}" if lines else "")


async def wait_or_died(future: asyncio.Future[Any], child: WatchedProcess, *, timeout: float, what: str) -> Any:
    """Await a future of a child; its end and a lack of time are errors.

    Raises
    ------
    KernelDied
        The child ended first, or the time ran out.
    """
    waiters: set[asyncio.Future[Any]] = {future, child.exited}
    await asyncio.wait(waiters, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    if child.exited.done():
        raise KernelDied(describe_early_end(child), data={"said": child.exited.result().last_words})
    if not future.done():
        with contextlib.suppress(OSError):
            child.signal(signal.SIGKILL)
        raise KernelDied(f"The kernel {what} within {timeout:g} s.")
    return future.result()


async def start_with_retry(start: Callable[[], WardenClient], *, timeout: float, what: str) -> WardenClient:
    """Start a warden and wait until it says hello; when it does not, end it and start another one, once.

    Parameters
    ----------
    start
        Starts it.
    timeout
        Seconds to wait for each.
    what
        What the process does, for the error.

    Raises
    ------
    KernelDied
        Neither said hello.
    """
    # A machine that was too busy for the first start is often ready for the second.
    for _ in range(2):
        warden = start()
        waiters: set[asyncio.Future[Any]] = {warden.hello, warden.gone}
        try:
            await asyncio.wait(waiters, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await warden.close()
            raise
        if warden.hello.done() and not warden.hello.cancelled():
            return warden
        with contextlib.suppress(Exception):
            await warden.close(timeout=0.2)
    raise KernelDied(f"The process that {what} did not start.", hint="Try again, or see: nbtools doctor.")


async def open_warden(folder: RuntimeDir) -> WardenClient:
    """Start a warden with its own folder below `folder`; errors are those of `start_with_retry`."""

    def start() -> WardenClient:
        own = folder.make(f"w{secrets.token_hex(3)}")
        return WardenClient.spawn(("-P", "-m", "nbtools.processes"), folder=own, env=dict(os.environ))

    return await start_with_retry(start, timeout=_HELLO_S, what="starts other processes")


def _make_closer(pipe: weakref.ref[FdSocket]) -> Any:
    def close() -> None:
        end = pipe()
        if end is not None:
            end.close()

    return close


def _end_left(marks: frozenset[str], group: Path | None) -> None:
    """End what the kernels of a dead warden left behind: by its control group, or by their marks where it had none."""
    if group is not None and control_group.end(group):
        return
    for pid in process_tree.find_marked(marks):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def make_importable(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment, with this package importable even when it runs from a plain checkout."""
    from importlib import metadata  # takes longer than all else here

    variables = dict(env)
    try:
        # An installed package is found by itself, and a PYTHONPATH would be inherited by every kernel.
        metadata.distribution("nbtools-kit")
    except metadata.PackageNotFoundError:
        root = str(Path(__file__).parents[2])
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH", ""), root]))
    return variables
