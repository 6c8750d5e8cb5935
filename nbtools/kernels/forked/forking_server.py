"""A process that forks for each connection: who may be served, and how a fork becomes like the process that asks.

Only this user can open the socket. A fork refuses those who cannot be served as well as by a separate process: another
user, one in other namespaces, under other rules of security, or with limits that cannot be taken on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nbtools.kernels.forked.packages import fingerprint
from nbtools.kernels.forked.sameness import SOCKET
from nbtools.processes.fd_socket import FdSocket
from nbtools.processes.forks import leave_behind

_LOOK_S = 1.0
_HANDSHAKE_S = 5.0
_WAITING = 128
_REFUSED = 77  # exit code of a fork that served nobody
_ROOM = 512 << 20  # of addresses, beyond what the fork has, for the threads of a kernel and what a script loads
_PEER = struct.Struct("3i")
# What must be the same in both processes, or the fork would have more rights than who asks, or fewer.
_RIGHTS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd")
_SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def listen_at(folder: Path) -> socket.socket:
    """Return a socket in a folder, to which only this user can connect."""
    with contextlib.suppress(FileNotFoundError):
        (folder / SOCKET).unlink()
    listener = socket.socket(socket.AF_UNIX)
    os.umask(0o177)
    listener.bind(str(folder / SOCKET))
    os.umask(0o077)
    listener.listen(_WAITING)
    return listener


class ForkingServer:
    """Forks a process for each connection, as long as it can be found and is up to date, and someone uses it."""

    def __init__(
        self,
        folder: Path,
        listener: socket.socket,
        origin: Mapping[str, Any],
        *,
        become: Callable[[socket.socket, Any], None],
        idle_s: float,
        successor: int | None = None,
    ) -> None:
        self._become = become
        self._folder = folder
        self._listener = listener
        self._origin = origin
        self._idle_s = idle_s
        self._successor = successor
        self._packages = fingerprint(origin["path"])
        self._inode = (folder / SOCKET).stat().st_ino
        self._owners: set[int] = set()
        self._used = time.monotonic()

    def run(self) -> None:
        """Serve owners until the process is no longer needed."""
        waited_for: list[Any] = [self._listener, *([] if self._successor is None else [self._successor])]
        self._listener.setblocking(False)
        while True:
            ready = select.select(waited_for, [], [], _LOOK_S)[0]
            # Behind the wait: before it, the last one that was served was not buried yet.
            if self._successor in ready or not self._is_wanted():
                return
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue
            with connection:
                self._serve(connection)

    def _is_wanted(self) -> bool:
        """Tell whether owners can find the process, its packages are those on disk, and it was not idle too long."""
        self._bury()
        is_used = self._owners or time.monotonic() - self._used < self._idle_s
        return bool(is_used) and self.is_found() and fingerprint(self._origin["path"]) == self._packages

    def is_found(self) -> bool:
        """Tell whether the socket at the known place is the one on which the process listens."""
        try:
            return (self._folder / SOCKET).stat().st_ino == self._inode
        except OSError:
            return False

    def _bury(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                self._owners.discard(ended[0])
                # A refused client does not need the process: others might be served by the next one.
                if os.waitstatus_to_exitcode(ended[1]) != _REFUSED:
                    self._used = time.monotonic()

    def _serve(self, connection: socket.socket) -> None:
        details = {**self._origin, "warm": os.getpid()}  # as a parent it may be gone when the fork asks
        pid = os.fork()
        if pid:
            self._owners.add(pid)
            return
        try:
            os.setsid()
            connection.setblocking(True)
            # The lock among them: the next warm process need not wait for the end of this one's zygotes.
            leave_behind([self._listener], keep=[connection.fileno()])
            self._become(connection, details)
        finally:
            os._exit(_REFUSED)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user of who is at the other end."""
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid


def admit(connection: socket.socket) -> tuple[FdSocket, dict[str, Any], int] | None:
    """In a fork: check the client, copy its process's settings, and report a refusal to it.

    Returns
    -------
    tuple
        The line to it, what it asks for, and a descriptor of its process; `None` when it is refused.
    """
    pid, uid = peer_of(connection)
    connection.settimeout(_HANDSHAKE_S)
    pipe = FdSocket(connection)
    request = pipe.wait()
    if request is None:
        return None
    owner = -1
    try:
        owner = os.pidfd_open(pid)  # first: from here on the number cannot be another process'
        reason = _reason_against(pid, uid) or _take_on(pid)
    except (OSError, ValueError, AttributeError) as exc:
        reason = f"its process cannot be looked at ({exc})"
    if reason is not None:
        pipe.send({"event": "hello", "pid": os.getpid(), "refused": reason})
        return None
    return pipe, request[0], owner


def _reason_against(pid: int, uid: int) -> str | None:
    """Return why a process is not served; `None` when it is like this one."""
    if pid == 0 or uid != os.getuid():
        return "it is another user's, or in another namespace of processes"
    theirs, ours = _read_status(pid), _read_status("self")
    for name in _RIGHTS:
        if theirs.get(name) != ours.get(name):
            return f"its rights differ ({name})"
    for name in _SPACES:
        if Path(f"/proc/{pid}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink():
            return f"it is in another namespace ({name})"
    if Path(f"/proc/{pid}/root").readlink() != Path("/proc/self/root").readlink():
        return "it has another root"
    return None


def _read_status(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _take_on(pid: int) -> str | None:
    """Take on umask, processors, priority, control group and limits of a process; return what cannot be had."""
    os.umask(int(_read_status(pid)["Umask"], 8))
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, pid))
    except OSError:
        return "its priority is higher"
    group = Path(f"/proc/{pid}/cgroup").read_text()
    if group != Path("/proc/self/cgroup").read_text():
        try:
            Path("/sys/fs/cgroup" + group.strip().rpartition("::")[2], "cgroup.procs").write_text("0")
        except OSError:
            return "it is in another control group"
    for name in (name for name in dir(resource) if name.startswith("RLIMIT_")):
        number = getattr(resource, name)
        limits = resource.prlimit(pid, number)
        if name == "RLIMIT_AS" and 0 <= limits[0] < _addresses() + _ROOM:
            return "its limit of memory is below what the libraries take"
        if limits != resource.getrlimit(number):
            try:
                resource.setrlimit(number, limits)
            except (OSError, ValueError):
                return f"its limits are higher ({name})"
    return None


def _addresses() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
