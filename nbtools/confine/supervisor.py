"""What a strict process may not do itself, done on its behalf where it may write: metadata and local connections.

Landlock governs who may write a file but not who may change its mode or times, and a filter cannot see
which file a call means. So the filter hands these calls over: the process waits, a supervisor outside the sandbox (the
process that started it) opens the file, looks where it really lies, makes the change through that very descriptor, and
answers. The process cannot swap the file in between, because its own call is never carried out.

In the same way a process connects to local sockets that lie where it may write, so that multiprocessing's servers work
while every other service of the machine stays out of reach: the supervisor connects its own socket, which the
process cannot name until it gets it in place of the one it asked for.

The supervisor believes nothing of the process. It uses the numbers of the notice, never a name or a text that the
process could choose; a path leads through no descriptor of the supervisor's own, however it is spelled; a call that
takes too long is given up; and whatever goes wrong is an error only for that call.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from nbtools.confine import linux, seccomp
from nbtools.confine.alarm import interrupted_after

_RECEIVE, _SEND, _ID_VALID, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_ADDITION = struct.Struct("=QIIII")  # id, flags, descriptor here, descriptor there, flags there
_IN_ITS_PLACE = 1
_HOW = struct.Struct("=3Q")  # flags, mode, how to resolve
_NO_MAGIC_LINKS, _IN_ROOT = 2, 16
_SHARED_MEMORY = b"/dev/shm/"
_NOTICE = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_ANSWER = struct.Struct("=QqiI")
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = -100, 0x100, 0x1000
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_MODES = 0o1777  # neither set-user-id nor set-group-id
_MAX_PATH = 4096
_SECOND = 1_000_000_000
_FAMILY, _TIMEVAL = struct.Struct("=H"), struct.Struct("@ll")
_ADDRESS_BYTES = 110
_CONNECT_US = 50_000
_ANSWER_S = 0.5
_NO_CHANGE = 0xFFFFFFFF
# What is answered for a call that the process may make itself, and the flag that says so to the kernel.
_ITSELF, _CONTINUE = -1, 1
_MOST_ANCESTORS = 64


class Supervisor:
    """Answer for one confined process and all it starts.

    Parameters
    ----------
    listener
        The descriptor from `AppliedConfinement.listener`, which the supervisor owns from now on.
    write
        The files and folders where metadata may be changed.

    Notes
    -----
    Wait until `fileno` can be read, then call `answer`; when it returns false, everybody has ended: `close`.
    """

    def __init__(self, listener: int, write: Iterable[str]) -> None:
        self._listener = listener
        self._write = tuple(os.path.realpath(path) for path in write)
        self._calls = {number: name for name, number in seccomp.NUMBERS[linux.machine()].items()}

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._listener

    def close(self) -> None:
        """Stop answering: calls under way fail for the process. Harmless when repeated."""
        if self._listener >= 0:
            os.close(self._listener)
            self._listener = -1

    def answer(self) -> bool:
        """Answer one waiting call; false when no one is left to answer."""
        events = select.poll()
        events.register(self._listener, select.POLLIN)
        ready = events.poll(0)
        if not ready:
            return True
        if not ready[0][1] & select.POLLIN:
            return False
        notice = bytearray(_NOTICE.size)
        try:
            _ioctl(self._listener, _RECEIVE, notice)
        except OSError as exc:
            return exc.errno in (errno.ENOENT, errno.EINTR)  # the caller was killed while it waited
        notice_id, pid, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        with interrupted_after(_ANSWER_S):
            code = self._carry_out(notice_id, pid, self._calls.get(number, ""), arguments)
        try:
            answer = (0, _CONTINUE) if code == _ITSELF else (-code, 0)
            _ioctl(self._listener, _SEND, _ANSWER.pack(notice_id, 0, *answer))
        except OSError as exc:
            return exc.errno == errno.ENOENT
        return True

    def _carry_out(self, notice_id: int, pid: int, call: str, arguments: Sequence[int]) -> int:
        """Do what a call asks for, where allowed; return an error number, 0 for success, `_ITSELF` to let it go on."""
        try:
            with _Caller(pid, notice_id) as caller:
                # The process may have died and its number be someone else's by now: then what was opened is wrong.
                _ioctl(self._listener, _ID_VALID, struct.pack("=Q", notice_id))
                change = _CHANGES.get(call)
                if change is None:
                    return errno.EPERM
                return change(self, caller, call, list(arguments)) or 0
        except OSError as exc:
            return exc.errno or errno.EPERM
        except Exception:
            # Whatever a process sends, only its own call fails.
            return errno.EINVAL

    @contextlib.contextmanager
    def _target(self, caller: _Caller, directory: int, path: bytes | None, *, follow: bool = True) -> Iterator[Path]:
        """Open the file that is meant, if it lies where this process may write; yield the path of its descriptor."""
        handle = caller.open(ctypes.c_int(directory & 0xFFFFFFFF).value, path, follow=follow)
        try:
            target_path = Path(f"/proc/self/fd/{handle}")
            real = os.fspath(target_path.readlink())
            mine = target_path.stat().st_uid == caller.uid
            inside = any(real == root or real.startswith(root + "/") for root in self._write)
            # What has no path (a pipe, a memory file) is nobody else's, when it is a descriptor of the process itself.
            nameless = not real.startswith("/") or real.startswith("/memfd:")
            is_own = (
                nameless and caller.names_own(path) is not None
            ) or target_path.stat().st_dev == caller.own_shared_memory()
            if not (inside or is_own) or not mine:
                raise PermissionError(errno.EPERM, "outside")
            yield target_path
        finally:
            os.close(handle)

    def _mode(self, caller: _Caller, call: str, arguments: list[int]) -> None:
        target: contextlib.AbstractContextManager[Path]
        if call == "fchmod":
            target, mode = self._target(caller, arguments[0], None), arguments[1]
        elif call == "chmod":
            target, mode = self._target(caller, _AT_FDCWD, caller.path(arguments[0])), arguments[1]
        else:
            flags = arguments[3] if call == "fchmodat2" else 0
            target, mode = self._at(caller, arguments[0], arguments[1], flags), arguments[2]
        with target as path:
            path.chmod(mode & _MODES)

    def _owner(self, caller: _Caller, call: str, arguments: list[int]) -> int:
        """Refuse to give files away; allow to keep them, because unpacking an archive asks for it."""
        owners = arguments[2:4] if call == "fchownat" else arguments[1:3]
        own = (os.geteuid(), _NO_CHANGE), (os.getegid(), _NO_CHANGE)
        return 0 if all(value & _NO_CHANGE in fine for value, fine in zip(owners, own, strict=True)) else errno.EPERM

    def _times(self, caller: _Caller, call: str, arguments: list[int]) -> None:
        target: contextlib.AbstractContextManager[Path]
        if call == "utimensat":
            path = caller.path(arguments[1]) if arguments[1] else None
            follow = not arguments[3] & _AT_SYMLINK_NOFOLLOW
            target = self._target(caller, arguments[0], path, follow=follow)
            unit, address = 1, arguments[2]
        elif call == "futimesat":
            target = self._at(caller, arguments[0], arguments[1], 0)
            unit, address = 1000, arguments[2]
        else:
            target = self._target(caller, _AT_FDCWD, caller.path(arguments[0]))
            unit, address = (1000 if call == "utimes" else 0), arguments[1]
        with target as target_path:
            if not address:
                os.utime(target_path)
                return
            now = target_path.stat()
            os.utime(target_path, ns=_read_times(caller, address, unit, (now.st_atime_ns, now.st_mtime_ns)))

    def _connect(self, caller: _Caller, call: str, arguments: list[int]) -> int | None:
        descriptor, address, size = arguments[:3]
        if not _FAMILY.size < size <= _ADDRESS_BYTES:
            return errno.EPERM
        data = caller.read(address, size)
        path = data[_FAMILY.size :].partition(b"\0")[0]
        if _FAMILY.unpack_from(data)[0] != socket.AF_UNIX or not path:
            return errno.EPERM
        flags = caller.socket_flags(ctypes.c_int(descriptor & 0xFFFFFFFF).value)
        with self._target(caller, _AT_FDCWD, path) as socket_path:
            if not stat.S_ISSOCK(socket_path.stat().st_mode):
                return errno.ECONNREFUSED
            with _connected(os.fspath(socket_path)) as ours:
                ours.setblocking(not flags & os.O_NONBLOCK)
                addition = (caller.notice, _IN_ITS_PLACE, ours.fileno(), descriptor & 0xFFFFFFFF, flags & os.O_CLOEXEC)
                _ioctl(self._listener, _ADD, _ADDITION.pack(*addition))
        return None

    def _act_on(self, caller: _Caller, call: str, arguments: list[int]) -> int:
        """Let a call go on that is about its own thread or about what it started; the number is all that it says.

        The filter hands over numbers that are lower than its own: those of older processes, or of younger ones since
        the numbers wrapped around.
        """
        at = 1 if call in ("setpriority", "ioprio_set") else 0
        return _ITSELF if caller.owns(ctypes.c_int(arguments[at] & 0xFFFFFFFF).value) else errno.EPERM

    def _at(self, caller: _Caller, directory: int, address: int, flags: int) -> contextlib.AbstractContextManager[Path]:
        path = caller.path(address)
        empty = not path and flags & _AT_EMPTY_PATH
        return self._target(caller, directory, None if empty else path, follow=not flags & _AT_SYMLINK_NOFOLLOW)


_CHANGES: dict[str, Callable[[Supervisor, _Caller, str, list[int]], int | None]] = {
    "connect": Supervisor._connect,  # noqa: SLF001 - a table of its methods
    **dict.fromkeys(("chmod", "fchmod", "fchmodat", "fchmodat2"), Supervisor._mode),  # noqa: SLF001 - a table of its methods
    **dict.fromkeys(("chown", "fchown", "lchown", "fchownat"), Supervisor._owner),  # noqa: SLF001 - same
    **dict.fromkeys(("utime", "utimes", "futimesat", "utimensat"), Supervisor._times),  # noqa: SLF001 - same
    **dict.fromkeys(
        ("setpriority", "ioprio_set", *seccomp.SCHEDULING, *seccomp.SIGNALLING),
        Supervisor._act_on,  # noqa: SLF001 - same
    ),
}


class _Caller:
    """The process that waits for an answer: its memory, folders and descriptors."""

    def __init__(self, pid: int, notice: int) -> None:
        self.notice = notice
        # By descriptor, so that a later process of the same number is not mistaken for it.
        self._proc = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._memory = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
            self.uid = os.stat("mem", dir_fd=self._proc, follow_symlinks=False).st_uid
        except OSError:
            os.close(self._proc)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)
        os.close(self._proc)

    def read(self, address: int, size: int) -> bytes:
        """Return bytes of its memory."""
        data = os.pread(self._memory, size, address)
        if len(data) < size:
            raise OSError(errno.EFAULT, "memory")
        return data

    def socket_flags(self, descriptor: int) -> int:
        """Return the flags of a socket of its; what is none is refused."""
        if not os.readlink(f"fd/{descriptor}", dir_fd=self._proc).startswith("socket:"):
            raise OSError(errno.ENOTSOCK, "no socket")
        handle = os.open(f"fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            # The kernel's own numbers, one a line: "pos:", "flags:" in octal, and more.
            return int(os.read(handle, 4096).partition(b"flags:")[2].split()[0], 8)
        finally:
            os.close(handle)

    def owns(self, number: int) -> bool:
        """Tell whether a number is that of one of its threads, or of a process that it started, or these did."""
        with contextlib.suppress(OSError):
            os.stat(f"task/{number}", dir_fd=self._proc)
            return True
        own = linux.process_status("status", self._proc)["Tgid"]
        for _ in range(_MOST_ANCESTORS):
            parent = linux.process_status(f"/proc/{number}/status")["PPid"]
            if parent == own:
                return True
            number = int(parent)
            if number <= 1:
                break
        return False

    def path(self, address: int) -> bytes:
        """Return a NUL-terminated string of its memory, read by pages because the next one may not be there."""
        text = b""
        while len(text) < _MAX_PATH:
            at = address + len(text)
            part = os.pread(self._memory, 4096 - at % 4096, at)
            if not part:
                raise OSError(errno.EFAULT, "memory")
            head, end, _ = part.partition(b"\0")
            text += head
            if end:
                return text
        raise OSError(errno.ENAMETOOLONG, "path")

    def open(self, directory: int, path: bytes | None, *, follow: bool) -> int:
        """Open what it means by a directory and a path; `None` means the descriptor itself."""
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        if path is None:
            return os.open(f"fd/{directory}", flags & ~os.O_NOFOLLOW, dir_fd=self._proc)
        own = self.names_own(path)
        if own is not None:
            return os.open(own, flags, dir_fd=self._proc)
        if not path:
            raise FileNotFoundError(errno.ENOENT, "empty path")
        if path.startswith(_SHARED_MEMORY):
            # It may see another one than we do.
            start, resolve = "root", _NO_MAGIC_LINKS | _IN_ROOT
        elif path.startswith(b"/"):
            return _open_plain(path, flags, _AT_FDCWD)
        else:
            start, resolve = "cwd" if directory == _AT_FDCWD else f"fd/{directory}", _NO_MAGIC_LINKS
        base = os.open(start, os.O_PATH | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            return _open_plain(path, flags, base, resolve)
        finally:
            os.close(base)

    def own_shared_memory(self) -> int | None:
        """Return the device of its ``/dev/shm``, when that is another one than ours."""
        try:
            device = os.stat("root" + os.fsdecode(_SHARED_MEMORY), dir_fd=self._proc).st_dev
            return device if device != os.stat(_SHARED_MEMORY).st_dev else None  # noqa: PTH116 - bytes
        except OSError:
            return None

    @staticmethod
    def names_own(path: bytes | None) -> bytes | None:
        """Return a path below the process' folder in ``/proc``, empty for the descriptor itself; else `None`."""
        if path is None:
            return b""
        for own, inner in ((b"/proc/self/", b""), (b"/proc/thread-self/", b""), (b"/dev/fd/", b"fd/")):
            rest = path.removeprefix(own)
            # Only a descriptor: what leads on from there could lead back to one of the supervisor.
            if rest != path and (inner + rest).startswith(b"fd/") and rest.rpartition(b"/")[2].isdigit():
                return inner + rest if (inner + rest).count(b"/") == 1 else None
        return None


def _open_plain(path: bytes, flags: int, base: int, resolve: int = _NO_MAGIC_LINKS) -> int:
    """Open a path in which no link of ``/proc`` is followed: there lie the descriptors of the process that opens it."""
    how = _HOW.pack(flags, 0, resolve)
    number = seccomp.NUMBERS[linux.machine()]["openat2"]
    return linux.syscall("openat2", number, base, path, how, len(how))


@contextlib.contextmanager
def _connected(path: str) -> Iterator[socket.socket]:
    """Connect a socket of our own; a queue that stays full is given up after 50 ms."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, _CONNECT_US))
            try:
                ours.connect(path)
            except OSError as exc:
                if exc.errno == errno.EPROTOTYPE and kind == socket.SOCK_STREAM:
                    continue
                raise
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))
            yield ours
            return


def _ioctl(descriptor: int, request: int, argument: bytes | bytearray) -> None:
    import fcntl  # absent on Windows, where this module is imported all the same

    fcntl.ioctl(descriptor, request, argument)


def _read_times(caller: _Caller, address: int, unit: int, now: tuple[int, int]) -> tuple[int, int]:
    """Return access and modification time in nanoseconds.

    `unit` is what the second number of each pair counts, in nanoseconds; 0 means that there are no pairs but seconds.
    """
    if unit == 0:
        first, second = struct.unpack("=qq", caller.read(address, 16))
        return first * _SECOND, second * _SECOND
    numbers = struct.unpack("=4q", caller.read(address, 32))
    times = []
    for seconds, part, old in ((numbers[0], numbers[1], now[0]), (numbers[2], numbers[3], now[1])):
        if unit == 1 and part == _UTIME_OMIT:
            times.append(old)
        elif unit == 1 and part == _UTIME_NOW:
            times.append(time.time_ns())
        else:
            times.append(seconds * _SECOND + part * unit)
    return times[0], times[1]
