"""How a kernel forks a copy of itself that lives on beside it, with all that the session has.

A fork keeps the thread that forks, and no other: code that waits for one of the others in the copy waits for ever. So a
copy is made only where each thread is known to be made again. Python's own are the kernel's; any other is told by the
library that its stack lies in. DuckDB's are ended before, and counted after. What else would be lost, or used by two
processes that do not know of each other, refuses the copy too: a child process, a connection, a lock on a file.

The kernel leaves its loop first, so that a copy starts where the kernel started, above everything that it runs. It
becomes the child of the warden and not of its original, which it may outlive: see `nbtools.processes.siblings`. Where
that did not come about, the fork forks the copy and goes, and the original is not a subreaper meanwhile. The copy waits
until the warden has written it down, and then for its owner.
"""

from __future__ import annotations

import bisect
import contextlib
import contextvars
import errno
import fcntl
import gc
import importlib
import json
import os
import random
import re
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.processes import process_tree
from nbtools.processes.child import become_subreaper, end_with_parent

# Libraries that make their threads again after a fork, or whose threads nobody asks there, by the names of their files.
_RECOVER = ("libzmq", "libscipy_openblas", "libopenblas", "libarrow")
# What is on many stacks, and says nothing of whose the thread is.
_OF_PYTHON = ("libpython", "python", "_zmq.", "select.", "_asyncio.", "_queue.")
_OF_ALL = ("libc.so", "libc-", "libpthread", "ld-", "libm.so", "libm-", "libstdc++", "libgcc_s", "[")
_DUCKDB = "_duckdb"
_NAMED = "jemalloc_bg_thd"  # which recovers
# What serves the kernel itself, and is made again with it.
_SERVING = frozenset({"ipykernel", "tornado", "zmq", "IPython"})
_STACK = 4096
# Seconds for a thread to come to rest; for the warden's answer; and for the descriptors that the owner has sent.
_REST_S, _ANSWER_S = 1.0, 10.0
_QUIET = {"threads": 1, "async_threads": 0}
_ORDER = b"!"  # which no answer begins with: that is its length
_LOCK = "hhqqi4x"  # struct flock
# Of the system's list: what can be executed, by the file that it is in.
_CODE = r"^([0-9a-f]+)-([0-9a-f]+) ..x. \S+ \S+ \S+ +(\S.*)$"


class _CannotCopyError(Exception):
    """Why a copy cannot be made, and what its person can do."""


class Copier:
    """Copies the kernel of this process, and remembers what of it belongs to the kernel.

    Parameters
    ----------
    app
        The kernel's application.
    hooks
        Its hooks, which hold its memory and know its end.
    channel
        Descriptor of the local socket to the process that forks kernels.

    Attributes
    ----------
    is_asked
        Whether the kernel has left its loop to be copied.
    context
        The context variables of cells, which a copy has too.
    random
        State of Python's random numbers, which a fork would begin again.
    """

    def __init__(self, app: Any, hooks: Any, channel: int) -> None:
        self._app, self._hooks, self._channel = app, hooks, channel
        self.is_asked = self._had_databases = False
        self.context, self.random = contextvars.Context(), random.getstate()

    def take_place(self, before: tuple[set[int], set[int]]) -> None:
        """Take threads and descriptors that are new for those of the kernel; `before` are the others: see `parts`.

        From now on the kernel can be asked for a copy.
        """
        # Its first event loop is made here at the latest.
        self._loop = importlib.import_module("tornado.ioloop").IOLoop.current()
        self._loop.add_handler(self._channel, self._hear, self._loop.READ)
        self._threads = set(threading.enumerate())
        self._descriptors, self._recover = (now - others for now, others in zip(parts(), before, strict=True))

    def _hear(self, *_: int) -> None:
        """Leave the loop, to be copied, where the owner has sent what that takes."""
        first = b""
        # Whatever else comes is for a call of memory, in a thread that waits for it, or interrupted.
        with contextlib.suppress(BlockingIOError), socket.socket(fileno=os.dup(self._channel)) as end:
            first = end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if not first:  # the owner is gone
                self._loop.remove_handler(self._channel)
        if first == _ORDER:
            self.is_asked, self.random = True, random.getstate()
            self._loop.stop()
        elif first:
            with contextlib.suppress(OSError):  # the owner is gone
                self._hooks.memory._hear()  # noqa: SLF001 - a script would see a public name

    def copy(self) -> dict[str, Any] | None:
        """Fork a copy; return in the copy, once it is to be a kernel, its orders, and `None` here."""
        self.is_asked = False
        try:
            line, channel = self._receive()
        except (OSError, ValueError):
            return None  # the owner has given up
        settings: list[tuple[Any, str, int]] = []
        orders = None
        try:
            self._refuse_what_would_be_lost()
            self._end_database_threads(settings)
            self._hooks.end.flush_files()
            positions = _positions()
            orders = self._fork(line, channel, positions)
        except _CannotCopyError as exc:
            _tell(line, str(exc))
        except Exception as exc:
            # Whatever it is, the session itself goes on.
            _tell(line, f"the system refuses it ({exc!r})\nFree memory or processes, then try again.")
        for database, name, value in reversed(settings):
            with contextlib.suppress(Exception):
                database.execute(f"set global {name} = {value}")
        os.close(line)
        if orders is None:
            os.close(channel)
        return orders

    def _receive(self) -> tuple[int, int]:
        """Return the line to the warden and the channel of the copy, which the owner has sent."""
        with socket.socket(fileno=os.dup(self._channel)) as end:
            line, channel = socket.recv_fds(end, 1, 2)[1]
        return line, channel

    def _refuse_what_would_be_lost(self) -> None:
        """Refuse what a copy would lack, or would share with its original without either knowing of it."""
        for pid in process_tree.children(os.getpid()):
            if not process_tree.is_dead(pid):
                raise _CannotCopyError(f"process {pid}, which it started, is still running\nEnd that process first.")
        for number, mode in _descriptors().items():
            if stat.S_ISREG(mode) and (name := _locked(number)):
                raise _CannotCopyError(
                    f"it has {name} open and locked, and two processes would write it\nClose it first."
                )
            if stat.S_ISSOCK(mode) and (what := self._connection(number)):
                raise _CannotCopyError(f"it {what}, and two processes would use that\nClose it first.")
        if tasks := self._hooks.end.tasks(self._loop.asyncio_loop):
            raise _CannotCopyError(f"{len(tasks)} tasks of asyncio are waiting in it\nAwait or cancel them first.")
        # IPython keeps a thread for cells such as %%bash, and starts it again for the next one; what `--out` has named
        # is read by it.
        shell = self._app.shell
        magics, names = shell.magics_manager.registry.get("ScriptMagics"), list(shell.user_ns.values())
        if hasattr(magics, "stop_event_loop") and not any(type(one).__name__ == "_AsyncIOProxy" for one in names):
            magics.stop_event_loop()
        threads_by_ident = {one.ident: one for one in threading.enumerate()}
        for ident in sys._current_frames():  # noqa: SLF001 - there is no public way
            thread = threads_by_ident.get(ident)
            is_serving = thread is not None and type(thread).__module__.partition(".")[0] in _SERVING
            if not is_serving and thread not in self._threads:
                name = "of Python" if thread is None else repr(thread.name)
                raise _CannotCopyError(f"its thread {name} is running\nEnd the thread, or its executor, first.")

    def _has_database_threads(self) -> bool:
        """Tell whether there are threads of DuckDB, which it can end; refuse where others are not made again."""
        threads, has_some = _native_threads(), False
        # A number comes again once all others had their turn, so no thread of another library has it meanwhile.
        self._recover &= threads
        # Where all are known, nobody asks for all that is mapped: the list takes as long as a small fork.
        unknown = threads - self._recover
        for thread, libraries in _libraries(unknown) if unknown else ():
            # A thread may have got its stack from one that has ended, with what that has left there.
            names = [name for name in libraries if not name.startswith(_OF_PYTHON)] or ["an unknown library"]
            foreign = [name for name in names if not name.startswith(_RECOVER)]
            if foreign and foreign[0].startswith(_DUCKDB):
                has_some = self._had_databases = True
            elif foreign:
                hint = "Copy the session before it first uses that library, or use it in another one."
                raise _CannotCopyError(f"a thread of {foreign[0]} is running in it, which a copy would lack\n{hint}")
            else:
                self._recover.add(thread)
        return has_some

    def _end_database_threads(self, settings: list[tuple[Any, str, int]]) -> None:
        """End the threads of DuckDB; add to `settings` what gives them back: a connection, a name, and its value."""
        # They come back after each copy, and to look for them takes longer than to end them.
        is_sure = self._had_databases
        for find in (_named_databases, _all_databases):
            if not is_sure and not self._has_database_threads():
                return
            is_sure = False
            for connection in find():
                with contextlib.suppress(Exception):  # it is closed
                    # Another connection to the same database: one that gives rows piece by piece would lose them.
                    _quiet(connection.cursor(), settings)
        if self._has_database_threads():
            hint = "Close the databases that are not needed, then copy the session."
            raise _CannotCopyError(f"a thread of DuckDB is running in it, which a copy would lack\n{hint}")

    def _connection(self, number: int) -> str | None:
        """Return what the session does through a socket; `None` for the kernel's own and for pairs within it."""
        with socket.socket(fileno=os.dup(number)) as end:
            if self._is_own(end) or not end.type & (socket.SOCK_STREAM | socket.SOCK_SEQPACKET):
                return None
            if end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return f"listens on {_address(end.getsockname())}"
            with contextlib.suppress(OSError):
                if peer := end.getpeername():
                    return f"is connected to {_address(peer)}"
        return None

    def _is_own(self, end: socket.socket) -> bool:
        """Tell whether a socket is one of the kernel's, or leads to one: by the place that its owner gave them."""
        names = [end.getsockname()]
        with contextlib.suppress(OSError):
            names.append(end.getpeername())
        return end.family == socket.AF_UNIX and any(str(name).startswith(self._app.ip) for name in names)

    def _fork(self, line: int, channel: int, positions: Mapping[int, int]) -> dict[str, Any] | None:
        """Fork the copy as the warden's child; where it cannot make it one, by a process that forks it and goes."""
        warden = os.getppid()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        _tell(line, "?")
        _answer(line)
        become_subreaper(whether=False)
        try:
            if pid := _quiet_fork():
                with contextlib.suppress(ChildProcessError):  # a sibling
                    os.waitpid(pid, 0)
                return None
            try:
                hold = None if os.getppid() == warden else _fork_and_go()
                _become_the_wardens(line, warden, hold)
                self._leave_behind(line, positions)
                os.write(line, b"!")
                return self._wait_for_orders(channel)
            except BaseException as exc:
                # Nothing that goes wrong in a copy may let it go on as if it were the original.
                os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
                os._exit(1)
        finally:
            become_subreaper(whether=True)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _leave_behind(self, line: int, positions: Mapping[int, int]) -> None:
        """In the copy: close what belongs to the original's kernel, which goes on by now; read files where it was."""
        own = self._descriptors | {self._channel}
        for number, mode in _descriptors().items():
            with contextlib.suppress(OSError):
                if stat.S_ISREG(mode):
                    _reopen(number, positions[number])
                elif number in own:
                    continue
                elif stat.S_ISSOCK(mode):
                    with socket.socket(fileno=os.dup(number)) as end:
                        own |= {number} if self._is_own(end) else set()
                elif not stat.S_IFMT(mode) and "[eventfd]" in os.readlink(f"/proc/self/fd/{number}"):  # noqa: PTH115 - not a path
                    own.add(number)  # ZeroMQ's
        for number in (1, 2):
            os.dup2(line, number)
        for number in own - {0, 1, 2, line}:
            with contextlib.suppress(OSError):
                os.close(number)

    def _wait_for_orders(self, channel: int) -> dict[str, Any]:
        """In the copy: wait until it is to be a kernel; end where nobody is left who could ask for that."""
        data = bytearray()
        while not data.endswith(b"\n"):
            piece = os.read(channel, 1 << 16)
            if not piece:
                os._exit(0)
            data += piece
        self._channel = channel
        orders: dict[str, Any] = json.loads(data)
        return {**orders, "channel": channel}


def _fork_and_go() -> int:
    """Fork the copy, in which this returns what it is to close; the process itself waits for that, and ends."""
    end, hold = os.pipe()
    if _quiet_fork():
        # Until the copy lets go, or ends.
        os.close(hold)
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    return hold


def _become_the_wardens(line: int, warden: int, hold: int | None) -> None:
    """In the copy: return as the warden's child, which writes it down."""
    if hold is not None:
        _tell(line, str(os.getpid()))
        if not _answer(line):
            os._exit(1)
        os.close(hold)
    os.setsid()
    deadline = time.monotonic() + _ANSWER_S
    while os.getppid() != warden and time.monotonic() < deadline:
        time.sleep(0.0005)
    end_with_parent()
    if os.getppid() != warden:
        os._exit(1)


def _tell(line: int, reason: str) -> None:
    with contextlib.suppress(OSError):  # nobody is there to be told
        os.write(line, reason.encode())


def _answer(line: int) -> bytes:
    """Return what the warden answers; nothing where it waits for no copy any more."""
    _wait(line)
    with contextlib.suppress(ConnectionError):
        return os.read(line, 1)
    return b""


def _wait(descriptor: int) -> None:
    """Wait until there is something to read, or nobody who could write.

    Raises
    ------
    TimeoutError
        Nothing came in time.
    """
    waiting = select.poll()  # which knows of high numbers
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(1000 * _ANSWER_S):
        raise TimeoutError(errno.ETIMEDOUT, "no answer in time")


def _quiet_fork() -> int:
    with warnings.catch_warnings():
        # Python warns of threads, which were looked at.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def parts() -> tuple[set[int], set[int]]:
    """Return the descriptors that are open, and the threads that are not Python's."""
    return set(_descriptors()), _native_threads()


def _descriptors() -> dict[int, int]:
    """Return the modes of the descriptors that are open."""
    modes = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with contextlib.suppress(OSError):  # the one of the listing is closed by now
            modes[int(name)] = os.fstat(int(name)).st_mode
    return modes


def _positions() -> dict[int, int]:
    """Return where files are read and written, by their descriptors."""
    files = (number for number, mode in _descriptors().items() if stat.S_ISREG(mode))
    return {number: os.lseek(number, 0, os.SEEK_CUR) for number in files}


def _reopen(number: int, position: int) -> None:
    """Give an open file its own position, which it would share with the original's; a closed folder keeps it."""
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    is_inherited = os.get_inheritable(number)
    # Temporary files are opened with these, which are of the opening and would fail here.
    own = os.open(f"/proc/self/fd/{number}", flags & ~(os.O_TMPFILE | os.O_NOFOLLOW))
    os.lseek(own, position, os.SEEK_SET)
    os.dup2(own, number, inheritable=is_inherited)
    os.close(own)


def _locked(number: int) -> str | None:
    """Return the name of a file on which this process holds a lock: a database that is open, for example.

    The system says so to who asks for a lock of the opening's own, which those of the process would keep out.
    """
    with contextlib.suppress(OSError):
        lock = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = struct.unpack(_LOCK, fcntl.fcntl(number, fcntl.F_OFD_GETLK, lock))
        if kind != fcntl.F_UNLCK and pid == os.getpid():
            return os.path.basename(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115, PTH119 - a name
    return None


def _address(name: Any) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)


def _native_threads() -> set[int]:
    """Return the numbers of the threads that are not Python's, by whose word the others are told."""
    dummies: Any = threading
    python = {one.native_id for one in threading.enumerate() if not isinstance(one, dummies._DummyThread)}  # noqa: SLF001 - others' threads that came by
    return {int(name) for name in os.listdir("/proc/self/task")} - python - {os.getpid()}  # noqa: PTH208 - numbers


def _libraries(threads: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
    """Yield each thread with the files of the libraries that its stack leads through; none where it does not rest."""
    codes = [
        (int(start, 16), int(end, 16), path.rpartition("/")[2])
        for start, end, path in re.findall(_CODE, Path("/proc/self/maps").read_text(), re.MULTILINE)
    ]
    starts = [start for start, _, _ in codes]
    with Path("/proc/self/mem").open("rb", 0) as memory:
        for thread in threads:
            with contextlib.suppress(FileNotFoundError):
                data = _stack(thread, memory)
                pointers = [word for (word,) in struct.iter_unpack("=Q", data[: len(data) & ~7])]
                regions = ((word, codes[bisect.bisect_right(starts, word) - 1]) for word in pointers)
                names = dict.fromkeys(file for word, (start, end, file) in regions if start <= word < end)
                # Who has got a name of its own is more than one of a pool's threads, such as those of S3 in Arrow.
                own = [] if _name(thread) in {_name(os.getpid()), _NAMED} else [_name(thread)]
                yield thread, [*(name for name in names if not name.startswith(_OF_ALL)), *own]


def _name(thread: int) -> str:
    return Path(f"/proc/self/task/{thread}/comm").read_text().strip()


def _stack(thread: int, memory: Any) -> bytes:
    """Return the end of a thread's stack, as soon as it rests."""
    deadline = time.monotonic() + _REST_S
    while (words := Path(f"/proc/self/task/{thread}/syscall").read_text().split())[:1] == ["running"]:
        if time.monotonic() > deadline:
            return b""
        time.sleep(0.001)
    try:
        memory.seek(int(words[-2], 16))
        data: bytes = memory.read(_STACK)
    except OSError:
        return b""
    return data


def _quiet(database: Any, settings: list[tuple[Any, str, int]]) -> None:
    for name, value in _QUIET.items():
        before = database.execute(f"select current_setting('{name}')").fetchall()[0][0]
        database.execute(f"set global {name} = {value}")
        settings.append((database, name, int(before)))


def _named_databases() -> list[Any]:
    """Return DuckDB's own connection and those that have a name."""
    duckdb: Any = sys.modules["duckdb"]
    names = sys.modules["__main__"].__dict__
    return [duckdb.default_connection(), *(one for one in list(names.values()) if _is_connection(one))]


def _all_databases() -> list[Any]:
    """Return the connections that any object holds, which takes long where there are many objects."""
    return [one for holder in gc.get_objects() for one in gc.get_referents(holder) if _is_connection(one)]


def _is_connection(value: Any) -> bool:
    return issubclass(type(value), sys.modules["duckdb"].DuckDBPyConnection)
