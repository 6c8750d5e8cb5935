"""The process that starts kernels, watches them, and ends them with all they started.

``python -m nbtools.kernels.warden FD FOLDER`` is a small single-threaded process that does what its owner says over one
socket. Being a process of its own is the point:

- End-of-file on the socket means that the owner is gone, however it went. Then everything is ended and the folder
  removed. (The parent-death signal would not do: it follows the *thread* that started the child.)
- It is the subreaper of all kernels, so a daemon that forked twice to get away becomes its child and is ended with its
  kernel.
- It is single-threaded, so it may fork and prepare the child in Python before the program is executed.
- It buries the dead, so a process id cannot be reused between a decision and a signal.

The zygote (`nbtools.kernels.forked.zygote`) is a warden that has loaded libraries and can fork kernels as well.

Messages from the owner: ``spawn``, ``signal``, ``stop`` (and ``fork`` for the zygote); to the owner: ``hello``,
``started``, ``ready``, ``failed``, ``exit``.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nbtools import confine
from nbtools.kernels.warden import process_tree
from nbtools.kernels.warden.fd_socket import FdSocket
from nbtools.kernels.warden.runtime_dir import OWNER_LOCK

__all__ = ["Warden", "WatchedKernel", "close_all_but", "end_group", "execute", "leave", "prctl", "prepare", "serve"]

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
# Seconds: between two looks at memory and number; between two sweeps; how long sweeps go on after a kernel's end.
_WATCH_S, _SWEEP_S, _SWEEPING_S = 0.1, 0.05, 2.0
_WATCHFUL = -10
# Bytes of raw output that are kept: enough for the end of a traceback.
_LAST_WORDS = 4_000
_MAX_DESCRIPTOR = 1 << 16
_MOST = 4096
_MOST_AT_ONCE = 4096
_ENDED_KEPT = 64
_BURIED_AT_ONCE = 64
_ABOVE_ALL = 200


@dataclasses.dataclass(kw_only=True)
class WatchedKernel:
    """One kernel: the process that was started, its limits, and the escaped processes known to be its own."""

    id: str
    pid: int
    memory_bytes: int | None = None
    processes: int | None = None
    seen: int = 1
    known: set[int] = dataclasses.field(default_factory=set)
    ended_by: str | None = None
    said: collections.deque[bytes] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=8))


class Warden:
    """The loop of the process.

    Parameters
    ----------
    pipe
        The connection to the owner.
    folder
        What to remove in the end; it lies in the owner's folder, which goes too when the owner is gone.
    """

    def __init__(self, pipe: FdSocket, folder: str) -> None:
        self.pipe = pipe
        self.folder = folder
        self.kernels: dict[str, WatchedKernel] = {}
        self._by_pid: dict[int, str] = {}
        self._selector = selectors.DefaultSelector()
        self._ended: collections.deque[int] = collections.deque(maxlen=_ENDED_KEPT)
        self._sweep_until = 0.0
        self._next_watch = 0.0
        self._parent = os.getppid()
        self._nice = 0
        self._dismissed = False
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()

    def run(self, hello: Mapping[str, Any]) -> None:
        """Serve until the owner says stop or is gone."""
        os.set_blocking(self._wake[0], False)
        os.set_blocking(self._wake[1], False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        # Ctrl-C in a terminal goes to the whole foreground group; what it means is the owner's to decide.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._go_first()
        self._selector.register(self.pipe.fileno(), selectors.EVENT_READ, self._from_owner)
        self._selector.register(self._wake[0], selectors.EVENT_READ, self._reap)
        self.pipe.send({"event": "hello", "pid": os.getpid(), **hello})
        while self.pipe.is_open and os.getppid() == self._parent:
            for key, _ in self._selector.select(self._pause()):
                key.data()
            self._look_after()
        self.stop()

    def _go_first(self) -> None:
        """Ask for the processor before the kernels, where that is allowed: a fork bomb must not starve its watch."""
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, min(self._nice, _WATCHFUL))

    def handle(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        """Do what the owner says."""
        match message["do"]:
            case "spawn":
                self.begin(message, descriptors, lambda: execute(message, descriptors))
            case "signal":
                self._signal(message["id"], message["signal"], group=message.get("group", True))
            case "stop":
                self._dismissed = True
                self.pipe.is_open = False
        for descriptor in descriptors:
            os.close(descriptor)

    def begin(self, message: Mapping[str, Any], descriptors: Sequence[int], body: Any) -> None:
        """Fork a child that runs `body`, which does not return; send the owner its process id."""
        said_r, said_w = os.pipe()
        handover = self._offer_supervision(message.get("confinement") or {})
        pid = os.fork()
        if pid == 0:
            self._become(message["id"], said_w, keep={*descriptors, *handover, said_w})
            leave(body)
        for descriptor in (said_w, *handover):
            os.close(descriptor)
        os.set_blocking(said_r, False)
        watched = WatchedKernel(
            id=message["id"], pid=pid, memory_bytes=message.get("memory_bytes"), processes=message.get("processes")
        )
        self.kernels[watched.id] = watched
        self._by_pid[pid] = watched.id
        self._selector.register(said_r, selectors.EVENT_READ, lambda: self._listen(said_r, watched))
        self.pipe.send({"event": "started", "id": watched.id, "pid": pid})

    def _offer_supervision(self, confinement: dict[str, Any]) -> list[int]:
        """Prepare to receive the listener of a supervised child; return the descriptor for sending it, if any."""
        if not confinement.get("supervised"):
            return []
        near, far = socket.socketpair()
        confinement["handover"] = far.fileno()

        def receive() -> None:
            self._selector.unregister(near)
            # None comes when the child ended before it confined itself.
            _, handed, _, _ = socket.recv_fds(near, 1, 1)
            near.close()
            for listener in handed:
                self._supervise(confine.Supervisor(listener, confinement["write"]))

        self._selector.register(near, selectors.EVENT_READ, receive)
        return [far.detach()]

    def _supervise(self, supervisor: confine.Supervisor) -> None:
        """Answer a strict child that changes a file's mode, times or attributes, until all of it has ended."""

        def answer() -> None:
            if not supervisor.answer():
                self._selector.unregister(supervisor)
                supervisor.close()

        self._selector.register(supervisor, selectors.EVENT_READ, answer)

    def _become(self, name: str, said: int, keep: set[int]) -> None:
        """In the child: leave everything of the warden behind."""
        # Its own session and group: one signal to the group reaches all that it starts.
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, self._nice)
        # The warden has one thread, so here the signal follows the process.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(_PR_SET_NAME, ("nbk" + name[:12]).encode())
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        close_all_but(keep - {said})

    def _pause(self) -> float | None:
        if time.monotonic() < self._sweep_until:
            return _SWEEP_S
        if any(watched.memory_bytes or watched.processes for watched in self.kernels.values()):
            return _WATCH_S
        return 5.0

    def _from_owner(self) -> None:
        for message, descriptors in self.pipe.receive():
            self.handle(message, descriptors)

    def _listen(self, descriptor: int, watched: WatchedKernel) -> None:
        """Keep the last words of a child's raw output: they explain a failed start."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            watched.said.append(data[-_LAST_WORDS:])
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def _signal(self, name: str, number: int, *, group: bool) -> None:
        watched = self.kernels.get(name)
        if watched is None:
            return
        if number == signal.SIGKILL:
            self._end(watched)
        elif group:
            _quietly(os.killpg, watched.pid, number)
        else:
            _quietly(os.kill, watched.pid, number)

    def _end(self, watched: WatchedKernel) -> None:
        """Kill a kernel and its family; what slips away meanwhile is caught by the sweep.

        The group goes first, in one step that no fork can outrun. Looking for the others takes time in which a bomb
        would grow.
        """
        end_group(watched.pid)
        for pid in process_tree.descendants([watched.pid, *watched.known], most=_MOST):
            if pid not in self._by_pid:
                end_group(pid)
        self._sweep_until = time.monotonic() + _SWEEPING_S

    def _reap(self) -> None:
        # Another signal's wake-up may have emptied the pipe.
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 4096)
        for _ in range(_BURIED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._by_pid.pop(pid, None)
            if name is not None:
                self._bury(self.kernels.pop(name), os.waitstatus_to_exitcode(status))
            for watched in self.kernels.values():
                # Its number may be another process' from now on.
                watched.known.discard(pid)
        # The dead of a fork bomb come without end: the watch must have its turn, then we go on here.
        _quietly(os.write, self._wake[1], b"!")

    def _bury(self, watched: WatchedKernel, code: int) -> None:
        end_group(watched.pid)
        self._ended.append(watched.pid)
        for pid in watched.known:
            end_group(pid)
        self._sweep_until = time.monotonic() + _SWEEPING_S
        self.pipe.send(
            {
                "event": "exit",
                "id": watched.id,
                "code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "ended_by": watched.ended_by,
                "said": b"".join(watched.said)[-_LAST_WORDS:].decode("utf-8", "replace"),
            }
        )
        self._adopt()

    def _look_after(self) -> None:
        now = time.monotonic()
        if now < self._sweep_until:
            self._adopt()
        if now < self._next_watch:
            return
        self._next_watch = now + _WATCH_S
        self._adopt()
        for watched in list(self.kernels.values()):
            if watched.memory_bytes or watched.processes:
                self._watch(watched)

    def _watch(self, watched: WatchedKernel) -> None:
        """End a family that has grown too large: in memory, shared memory included, or in number."""
        most = (watched.processes or _MOST_AT_ONCE) + 1
        pids = process_tree.descendants([watched.pid, *watched.known], most=most)
        grew, watched.seen = len(pids) > watched.seen, len(pids)
        if watched.processes and len(pids) > watched.processes:
            watched.ended_by = "process_limit"
        elif watched.memory_bytes and not grew and _is_beyond(watched.memory_bytes, pids):
            # Not while the family grows: the exact count takes milliseconds a process, time that a bomb would use.
            watched.ended_by = "memory_limit"
        if watched.ended_by:
            self._end(watched)

    def _adopt(self) -> None:
        """Store for each orphan which kernel it belongs to; end those of dead kernels."""
        noted = set(self._by_pid).union(*(watched.known for watched in self.kernels.values()))
        for pid in process_tree.children(os.getpid()):
            if pid in noted:
                continue
            session = _session_of(pid)
            watched = self.kernels.get(self._by_pid.get(session, ""))
            if watched is None and session not in self._ended:
                # It made a session of its own. Its environment is read last, because that waits for a lock which a
                # process that forks all the time holds all the time.
                watched = self.kernels.get(process_tree.kernel_of(pid) or "")
            if watched is not None:
                watched.known.add(pid)
            elif session in self._ended or time.monotonic() < self._sweep_until:
                end_group(pid)

    def stop(self) -> None:
        """End everything, remove the folder, and leave."""
        deadline = time.monotonic() + 3.0
        for pid in self._by_pid:
            end_group(pid)
        while time.monotonic() < deadline:
            left = process_tree.descendants(process_tree.children(os.getpid()), most=_MOST) or list(self._by_pid)
            for pid in left:
                end_group(pid)
            try:
                while True:
                    pid, _ = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    self._by_pid.pop(pid, None)
            except ChildProcessError:
                break
            time.sleep(0.002)
        shutil.rmtree(self.folder, ignore_errors=True)
        owners = pathlib.Path(self.folder).parent
        if not self._dismissed and (owners / OWNER_LOCK).exists():
            # Nobody else is left to remove the owner's folder; another warden may be at it at the same time.
            shutil.rmtree(owners, ignore_errors=True)
        os._exit(0)


def _is_beyond(limit: int, pids: Sequence[int]) -> bool:
    # Forks of a zygote share most of their pages, which the quick count takes for each one's own.
    return process_tree.footprint(pids) > limit and process_tree.proportional(pids) > limit


def prctl(option: int, value: int | bytes) -> None:
    """Call Linux's ``prctl``; nothing happens elsewhere."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _quietly(step: Any, *args: Any) -> None:
    # A process that is gone is what was wanted.
    with contextlib.suppress(OSError):
        step(*args)


def end_group(pid: int) -> None:
    """Kill a process and, when it leads one, its group."""
    _quietly(os.kill, pid, signal.SIGKILL)
    if pid > 1 and pid != os.getpgrp():
        _quietly(os.killpg, pid, signal.SIGKILL)


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor above the standard three that is not to be kept."""
    low = 3
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _MAX_DESCRIPTOR)


def prepare(message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """In the child: folder, descriptors and confinement of a spawned program."""
    confinement = dict(message.get("confinement") or {})
    held = [_out_of_the_way(descriptor) for descriptor in descriptors]
    if confinement.get("handover") is not None:
        confinement["handover"] = _out_of_the_way(confinement["handover"])
    for descriptor, target in zip(held, message.get("targets", ()), strict=True):
        os.dup2(descriptor, target)
    if message.get("cwd"):
        os.chdir(message["cwd"])
    if message.get("confines_itself") is not None:
        # The program does it when it is ready for it; it needs only the way to its supervisor.
        if confinement.get("handover") is not None:
            os.dup2(confinement["handover"], message["confines_itself"])
    elif confinement:
        confine.apply(confine.Confinement.from_dict(confinement))


def _out_of_the_way(descriptor: int) -> int:
    """Move a descriptor above all that a program is given, where it ends with the exec."""
    import fcntl  # absent on Windows, which has no warden

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL)
    os.close(descriptor)
    return moved


def execute(message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """In the child: become the program."""
    environment = {**message["env"], process_tree.MARK: message["id"]}
    prepare(message, descriptors)
    # Python ignores it, and a program would inherit that: `yes | head -1` is to end quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvpe(message["argv"][0], message["argv"], environment)  # noqa: S606 - a list, no shell, on purpose


def leave(body: Any) -> None:
    """In the child: run its body and end the process, whatever happens; reasons go to standard error."""
    code = 127
    try:
        body()
        code = 0
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException as exc:
        # No traceback machinery here: this process has none of its libraries in a known state.
        os.write(2, f"{type(exc).__name__}: {exc}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def serve() -> None:
    """Run the process: ``FD FOLDER`` are its arguments."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    Warden(FdSocket(sock), sys.argv[2]).run({"threads": 1})
