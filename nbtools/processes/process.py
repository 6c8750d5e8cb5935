"""The process that starts kernels, watches them, and ends them with all they started.

``python -m nbtools.processes FD FOLDER`` is a small single-threaded process that does what its owner says over one
socket. Being a separate process is the point:

- End-of-file on the socket means that the owner is gone, however it went. Then everything is ended and the folder
  removed. (The parent-death signal would not do: it follows the *thread* that started the child.)
- It tells whose a process is by the tree of processes alone, never by a name, a session or an environment, which a
  script can choose. Each kernel is the subreaper of all that it starts: a daemon that forked twice to get away becomes
  the kernel's child. What becomes the warden's own child belonged to a kernel that is dead, and is ended.
- A family is frozen before it is killed, each process before its children are looked for, so that none of them can
  start others meanwhile (see `process_tree.freeze`).
- Where groups of processes can be made (cgroup v2), all of it is in one, which the owner ends when the warden is gone.
- It is single-threaded, so it may fork and prepare the child in Python before the program is executed.
- It buries the dead, so a process id cannot be reused between a decision and a signal.

The zygote (`nbtools.kernels.forked.zygote`) is a warden that has loaded libraries and can fork kernels as well.

Messages from the owner: ``spawn``, ``signal``, ``adopt``, ``interrupt``, ``freeze``, ``thaw``, ``stop`` (and ``fork``
for the zygote); to the owner: ``hello``, ``started``, ``ready``, ``failed``, ``done``, ``exit``.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbtools import confine
from nbtools.processes import control_group, process_tree, siblings
from nbtools.processes.child import become_subreaper, end_with_parent, execute, leave, take_name
from nbtools.processes.fd_socket import FdSocket
from nbtools.processes.file_count import FileCount
from nbtools.processes.forks import leave_behind
from nbtools.processes.runtime_dir import is_left, remove, remove_tree

# Seconds: between two looks at memory and number, and at a kernel that rests; between two sweeps; how long sweeps go on
# after a kernel's end.
_WATCH_S, _REST_S, _SWEEP_S, _SWEEPING_S = 0.1, 1.5, 0.05, 2.0
# Seconds a resource tracker gets to remove segments of shared memory that its program left, and how many of them.
_TRACKER_S, _TRACKERS = 0.5, 4
_WATCHFUL = -10
# Bytes of raw output that are kept: enough for the end of a traceback.
_LAST_WORDS = 4_000
# How many are buried before the watch has its turn: some milliseconds, and more than a bomb leaves meanwhile.
_BURIED_AT_ONCE = 4096
# The most processes where no limit is set. For each that is allowed, this many numbers may be taken: by its threads,
# which libraries make for each processor, and by the dead that nobody buries. The kernel's own threads come on top: it
# has a dozen when it is ready, and starts under any limit.
_OWN_NUMBERS = 32
_MOST, _NUMBERS = 4096, max(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0)
# A family that grows is looked at less exactly, because the exact look takes time that a bomb would use.
_SMALL = 32
# Seconds for a kernel's copy to leave it.
_COPIED_S = 20.0
# How programs end that got no memory; what part of it has to be in use for that to be the likely reason.
_CRASHES, _NEARLY = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS}), 0.75
_KILOBYTE = 1 if sys.platform == "darwin" else 1024  # macOS tells bytes


@dataclasses.dataclass(kw_only=True)
class WatchedKernel:
    """One kernel: the process that was started, and its limits."""

    id: str
    pid: int
    memory_bytes: int | None = None
    processes: int | None = None
    files: FileCount | None = None
    used: process_tree.Use = dataclasses.field(default_factory=process_tree.Use)
    copied_until: float = 0.0
    rests: bool = False
    look_at: float = 0.0
    data: int = 0
    ended_by: str | None = None
    ends_whole: bool = False
    output_fd: int = -1
    last_output: collections.deque[bytes] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=8))

    @property
    def is_limited(self) -> bool:
        """Whether it must be looked after."""
        return bool(self.memory_bytes or self.processes or self.files)


class Warden:
    """The loop of the process.

    Parameters
    ----------
    pipe
        The connection to the owner.
    folder
        What to remove in the end; it lies in the owner's folder, which goes too when the owner is gone.
    owner
        A descriptor of the owner's process, where that is not the parent: it can be read when the owner has ended.
    """

    def __init__(self, pipe: FdSocket, folder: str, *, owner: int | None = None) -> None:
        self.pipe = pipe
        self.folder = folder
        self.kernels: dict[str, WatchedKernel] = {}
        self._by_pid: dict[int, str] = {}
        self._awaited: dict[str, WatchedKernel] = {}
        self._selector = selectors.DefaultSelector()
        self._trackers: dict[int, float] = {}
        self._sweep_until = 0.0
        self._parent = os.getppid() if owner is None else None
        if owner is not None:
            self._selector.register(owner, selectors.EVENT_READ, self._dismiss)
        self._nice = 0
        self._dismissed = False
        self._group: pathlib.Path | None = None
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()

    def run(self, hello: Mapping[str, Any]) -> None:
        """Serve until the owner says stop or is gone."""
        os.set_blocking(self._wake[0], False)
        os.set_blocking(self._wake[1], False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        # Ctrl-C in a terminal goes to the whole foreground group; what it means is the owner's to decide.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        become_subreaper(whether=True)
        self._go_first()
        self._selector.register(self.pipe.fileno(), selectors.EVENT_READ, self._from_owner)
        self._selector.register(self._wake[0], selectors.EVENT_READ, self._reap)
        self.pipe.send({"event": "hello", "pid": os.getpid(), **hello})
        self._enter_early()
        while self.pipe.is_open and self._parent in (None, os.getppid()):
            for key, _ in self._selector.select(self._pause()):
                key.data()
            self._look_after()
        self.stop()

    def _enter_early(self) -> None:
        """Enter a control group before any program is started: it may run before its process could be moved."""
        self._enter_group()

    def _enter_group(self) -> None:
        self._group = control_group.enter()
        if self._group is not None:
            self.pipe.send({"event": "group", "group": str(self._group)})

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
            case "adopt":
                self._expect(message["id"], self.kernels.get(message["of"]), os.dup(descriptors[0]))
            case "signal":
                self._signal(message["id"], message["signal"], group=message.get("group", True))
            case "watch" | "rest" as what:
                if (watched := self.kernels.get(message["id"])) is not None:
                    watched.rests, watched.look_at = what == "rest", 0.0
            case "interrupt" | "freeze" | "thaw" as what:
                if what == "interrupt":
                    self._signal(message["id"], signal.SIGINT, group=True)
                else:
                    self._hold(message["id"], still=what == "freeze")
                self.pipe.send({"event": "done", "id": message["id"]})
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
            id=message["id"],
            pid=pid,
            memory_bytes=message.get("memory_bytes"),
            processes=message.get("processes"),
            files=_count_files(message.get("confinement") or {}),
        )
        self.kernels[watched.id] = watched
        self._by_pid[pid] = watched.id
        watched.output_fd = said_r
        self._selector.register(said_r, selectors.EVENT_READ, lambda: self._listen(watched))
        self.pipe.send({"event": "started", "id": watched.id, "pid": pid})

    def _expect(self, name: str, original: WatchedKernel | None, line: int) -> None:
        """Wait for the copy of a kernel, which says its number on a line and becomes a child of this one."""
        copy = WatchedKernel(id=name, pid=0)
        if original is None:
            os.close(line)
            self._bury(copy, 0, 0)
            return
        copy.memory_bytes, copy.processes = original.memory_bytes, original.processes
        copy.files = None if original.files is None else original.files.again()
        copy.output_fd, original.copied_until = line, time.monotonic() + _COPIED_S
        self._awaited[name] = copy
        os.set_blocking(line, False)
        self._selector.register(line, selectors.EVENT_READ, lambda: self._adopt(copy, original))

    def _adopt(self, copy: WatchedKernel, original: WatchedKernel, *, may_fork: bool = True) -> None:
        """Hear of a copy: its number, and then that it is a child of this process, or why it is not."""
        line, word = copy.output_fd, b""
        if line < 0:
            return  # it has ended, and was buried in the same moment
        with contextlib.suppress(OSError):
            word = os.read(line, _LAST_WORDS)
        if word == b"?" and may_fork:
            # Once: it takes a while, in which nothing else is looked after.
            self._selector.modify(line, selectors.EVENT_READ, lambda: self._adopt(copy, original, may_fork=False))
            is_held = siblings.seize(original.pid)
            _quietly(os.write, line, b"!")
            pid = siblings.let_fork(original.pid) if is_held else 0
            if pid > 0:
                self._take_in(copy, pid)
            elif pid < 0:
                copy.last_output.append(b"what it did before its fork waits in the system, and nothing can stop that")
        elif word.isdigit() and (int(word) == copy.pid or self._is_below(int(word), original)):
            if not copy.pid:
                self._take_in(copy, int(word))
            _quietly(os.write, line, b"!")
        elif word[:1] == b"!" and copy.pid in process_tree.children(os.getpid()):
            # A copy that has its orders already says more.
            copy.last_output.append(word[1:])
            del self._awaited[copy.id]
            self._selector.modify(line, selectors.EVENT_READ, lambda: self._listen(copy))
            self.pipe.send({"event": "ready", "id": copy.id})
        else:
            self._give_up(copy, word)

    def _take_in(self, copy: WatchedKernel, pid: int) -> None:
        copy.pid = pid
        self.kernels[copy.id], self._by_pid[pid] = copy, copy.id
        self.pipe.send({"event": "started", "id": copy.id, "pid": pid})

    def _give_up(self, copy: WatchedKernel, word: bytes = b"") -> None:
        """Wait for a copy no longer, which ends at the end of its line."""
        self._selector.unregister(copy.output_fd)
        os.close(copy.output_fd)
        copy.output_fd = -1
        copy.last_output.append(word)
        if copy.pid in process_tree.children(os.getpid()):
            self._end(copy)  # its burial says how it ended
            return
        self.kernels.pop(copy.id, None)
        self._by_pid.pop(copy.pid, None)
        self._bury(copy, 0, 0)

    def _is_below(self, pid: int, original: WatchedKernel) -> bool:
        return pid not in self._by_pid and pid in process_tree.descendants([original.pid])

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
        """Answer a strict child that changes a file's mode or times, until all of it has ended."""

        def answer() -> None:
            is_needed = False
            # What goes wrong ends this supervisor, and nothing of the other kernels.
            with contextlib.suppress(Exception):
                is_needed = supervisor.answer()
            if not is_needed:
                self._selector.unregister(supervisor)
                supervisor.close()

        self._selector.register(supervisor, selectors.EVENT_READ, answer)

    def _become(self, name: str, output_fd: int, keep: set[int]) -> None:
        """In the child: leave everything of the warden behind."""
        # Its own session and group: one signal to the group reaches all that it starts.
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, self._nice)
        # The warden has one thread, so here the signal follows the process.
        end_with_parent()
        become_subreaper(whether=True)
        take_name(name)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        leave_behind(self._owners(), keep=keep - {output_fd})

    def _owners(self) -> Iterator[Any]:
        """Yield all through which this process owns descriptors; what it waits for is known to the selector alone."""
        # Not taken out one by one: that would take them out of the parent's selector too, which is the same one.
        yield from [key.fileobj for key in self._selector.get_map().values()]
        yield self._selector
        yield self.pipe
        yield from (watched.files for watched in self.kernels.values() if watched.files is not None)

    def _pause(self) -> float | None:
        if time.monotonic() < self._sweep_until:
            return _SWEEP_S
        due = (watched.look_at for watched in self.kernels.values() if watched.is_limited)
        return max(0.0, min((5.0, *(at - time.monotonic() for at in due))))

    def _dismiss(self) -> None:
        self.pipe.is_open = False

    def _from_owner(self) -> None:
        for message, descriptors in self.pipe.receive():
            self.handle(message, descriptors)

    def _listen(self, watched: WatchedKernel) -> None:
        """Keep the last words of a child's raw output: they explain a failed start."""
        if watched.output_fd < 0:
            return  # read whole at its end, which came in the same moment
        try:
            data = os.read(watched.output_fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            watched.last_output.append(data[-_LAST_WORDS:])
            return
        self._selector.unregister(watched.output_fd)
        os.close(watched.output_fd)
        watched.output_fd = -1

    def _signal(self, name: str, number: int, *, group: bool) -> None:
        watched = self.kernels.get(name)
        if watched is None:
            if number == signal.SIGKILL and (copy := self._awaited.get(name)) is not None:
                self._give_up(copy)
            return
        if number == signal.SIGKILL:
            self._end(watched)
        elif group:
            _quietly(os.killpg, watched.pid, number)
        else:
            _quietly(os.kill, watched.pid, number)

    def _hold(self, name: str, *, still: bool) -> None:
        """Stop all processes of a kernel, or let them go on."""
        if (watched := self.kernels.get(name)) is None:
            return
        watched.ends_whole = True  # anything can say that it is a tracker, and this may do nothing unseen
        if still:
            process_tree.wait_frozen(process_tree.freeze([watched.pid]))
        else:
            for pid in process_tree.descendants([watched.pid]):
                _quietly(os.kill, pid, signal.SIGCONT)

    def _end(self, watched: WatchedKernel) -> None:
        """Kill a kernel and its family."""
        # The group first, in one step that no fork can outrun. Looking for the others takes time.
        _quietly(os.killpg, watched.pid, signal.SIGSTOP)
        self._kill_frozen(process_tree.freeze([watched.pid]), whole=watched.ends_whole)

    def _kill_frozen(self, frozen: Sequence[int], *, whole: bool = False) -> None:
        """Kill processes that are stopped; trackers of shared memory clean up for a moment before, unless `whole`."""
        process_tree.wait_frozen(frozen if whole else ())
        for pid in frozen:
            spares = not whole and len(self._trackers) < _TRACKERS
            if spares and pid not in self._trackers and pid not in self._by_pid and process_tree.is_tracker(pid):
                self._trackers[pid] = time.monotonic() + _TRACKER_S
                _quietly(os.kill, pid, signal.SIGCONT)
            else:
                _quietly(os.kill, pid, signal.SIGKILL)
        self._sweep_until = time.monotonic() + _SWEEPING_S

    def _reap(self) -> None:
        # Another signal's wake-up may have emptied the pipe.
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 4096)
        for _ in range(_BURIED_AT_ONCE):
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._by_pid.pop(pid, None)
            if name is not None:
                self._bury(self.kernels.pop(name), os.waitstatus_to_exitcode(status), usage.ru_maxrss * _KILOBYTE)
            # Its number may be another process' from now on.
            self._trackers.pop(pid, None)
        # The dead of a fork bomb come without end: the watch must have its turn, then we go on here.
        _quietly(os.write, self._wake[1], b"!")

    def _bury(self, watched: WatchedKernel, code: int, most_resident: int) -> None:
        self._awaited.pop(watched.id, None)
        used = max(watched.data, most_resident)
        if -code in _CRASHES and watched.memory_bytes and used > _NEARLY * watched.memory_bytes:
            # Many libraries do not expect that they may get no memory.
            watched.ended_by = watched.ended_by or "memory_limit"
        if watched.files is not None:
            watched.files.close()
        self._listen(watched)  # the news of its end may come before its last words
        self._sweep_until = time.monotonic() + _SWEEPING_S
        self._sweep(whole=watched.ends_whole)  # before the news of its end
        self.pipe.send(
            {
                "event": "exit",
                "id": watched.id,
                "code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "ended_by": watched.ended_by,
                "last_words": b"".join(watched.last_output)[-_LAST_WORDS:].decode("utf-8", "replace"),
            }
        )

    def _look_after(self) -> None:
        now = time.monotonic()
        if now < self._sweep_until:
            self._sweep()
        due = [watched for watched in self.kernels.values() if watched.is_limited and watched.look_at <= now]
        if due:
            self._sweep()
        for watched in due:
            self._watch(watched, now)

    def _watch(self, watched: WatchedKernel, now: float) -> None:
        """End a family that has grown too large: in memory, shared memory included, in number, or in its files.

        Who runs nothing for its owner, has started nothing, and has used no processor since the last look, is looked at
        less often.
        """
        most = (watched.processes or _MOST) * _NUMBERS + _OWN_NUMBERS
        pids = process_tree.descendants([watched.pid], most=most + 1)
        before, watched.used = watched.used, process_tree.use(pids)
        is_busy = not watched.rests or before != watched.used or len(pids) > 1
        is_busy = is_busy or (watched.files is not None and watched.files.is_looking)
        # All that rest are looked at together.
        watched.look_at = now + (_WATCH_S if is_busy else _REST_S - now % _REST_S)
        if not is_busy:
            return
        grew = watched.used.alive > before.alive
        # Who is ending has given its memory back before it is dead: what it had then is told by the look before.
        watched.data = process_tree.data_bytes(watched.pid) or watched.data
        # A copy, and who forks it, are below it for a moment.
        alive = watched.used.alive - 2 * (now < watched.copied_until)
        if watched.processes and (alive > watched.processes or watched.used.numbers > most):
            watched.ended_by = "process_limit"
        elif (
            watched.memory_bytes
            and (not grew or len(pids) <= _SMALL)
            and process_tree.is_beyond(watched.memory_bytes, pids)
        ):
            watched.ended_by = "memory_limit"
        elif watched.files is not None and watched.files.is_beyond(pids):
            watched.ended_by = "file_limit"
        if watched.ended_by:
            self._end(watched)

    def _sweep(self, *, whole: bool = False) -> None:
        """End what has come to this process: all of it belonged to kernels that are dead."""
        now = time.monotonic()
        strays = [pid for pid in process_tree.children(os.getpid()) if pid not in self._by_pid]
        # Who has ended already waits for nothing but its burial.
        strays = [pid for pid in strays if self._trackers.get(pid, 0.0) < now and not process_tree.is_dead(pid)]
        if strays:
            # Some may be of a kernel whose end is not news yet.
            whole = whole or any(one.ends_whole and process_tree.is_dead(one.pid) for one in self.kernels.values())
            self._kill_frozen(process_tree.freeze(strays), whole=whole)

    def stop(self) -> None:
        """End everything, remove the folder, and leave."""
        deadline = time.monotonic() + 3.0
        for watched in list(self.kernels.values()):
            self._end(watched)
        self._by_pid.clear()
        while time.monotonic() < deadline and self._bury_all():
            self._sweep()
            time.sleep(0.002)
        remove_tree(pathlib.Path(self.folder))
        owners = pathlib.Path(self.folder).parent
        # An owner that has given up waiting for this process lives, and so do its other kernels.
        if not self._dismissed and is_left(owners):
            remove(owners)
        if not self._dismissed and self._group is not None:
            control_group.end_from_outside(self._group)
        os._exit(0)

    def _bury_all(self) -> bool:
        """Bury who is dead, at the end of the process; tell whether anybody is left."""
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._trackers.pop(pid, None)
        except ChildProcessError:
            return False
        return True


def _count_files(confinement: Mapping[str, Any]) -> FileCount | None:
    """Begin to count the files of a kernel that is being started, where they have a limit."""
    most = confinement.get("file_bytes")
    if most is None or confinement["level"] == "off":
        return None
    files = FileCount(confinement["write"], most)
    # What lies there now is not its own. In a folder of the kernel's own that is nothing, and the look ends at once.
    files.is_beyond(())
    return files


def _quietly(step: Any, *args: Any) -> None:
    # A process that is gone is what was wanted.
    with contextlib.suppress(OSError):
        step(*args)


def serve() -> None:
    """Run the process: ``FD FOLDER`` are its arguments."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    Warden(FdSocket(sock), sys.argv[2]).run({"threads": 1})
