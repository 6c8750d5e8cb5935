"""MemoryDirectory: the private folder beside a memory file, and the lock that says who has the file open.

Beside ``m.duckdb`` is the private folder ``m.duckdb.keeper``::

    lock         the one process that has the file open holds a lock on it; who that is stands in it as JSON
    socket       where a keeper listens, when the path is short enough for a socket; else it is in a temporary folder
    log/         the journal, and what of it was damaged and set aside (*.damaged)
    snapshot     the newest copy of the file
    index        keys, tags and words of the live records, derived from them; may be removed while nobody has it open
    index.sum    a checksum of that file as it was left
    opened       there while the file is open: found on opening, it shows a crash
    keeper.log   what the keeper had to say

The lock is the operating system's, so it goes when its holder dies. A process whose lock file was removed holds
nothing any more: it finishes, and touches nothing in the folder, which may be a successor's by then. The successor has
the lock, but waits until DuckDB lets it have the file too. Between machines that share a disk without sharing
locks, the holder renews the lock file's time every few seconds, and a newcomer from another machine waits for it to
grow old.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import stat
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from nbtools.errors import MemoryUnavailable
from nbtools.ground.home import facts_in, make_private

HEARTBEAT = 5.0
_SUN_PATH = 107


class MemoryDirectory:
    """The private folder of a memory file.

    Parameters
    ----------
    path
        The memory file, links resolved.
    user
        The number of the user whose folder it must be; `None` takes the user of this process.
    """

    def __init__(self, path: Path, *, user: int | None = None) -> None:
        self.path = path
        self._user = _user() if user is None else user
        self.folder = path.with_name(path.name + ".keeper")
        self.lock = self.folder / "lock"
        self.log = self.folder / "log"
        self.snapshot = self.folder / "snapshot"
        self.index = self.folder / "index"
        self.opened = self.folder / "opened"
        self.messages = self.folder / "keeper.log"
        self._fd = -1
        self._mine = (0, 0)

    def make(self) -> None:
        """Make the folder, and the one that the file lies in.

        Raises
        ------
        MemoryUnavailable
            It cannot be made, or belongs to someone else.
        """
        try:
            make_private(self.path.parent)
            status = None
            while status is None:
                self.folder.mkdir(mode=0o700, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):  # Someone removed it in this moment.
                    status = self.folder.stat()
            if status.st_uid != self._user:
                raise MemoryUnavailable(
                    f"{self.folder} belongs to user {status.st_uid}, not to you ({self._user}).",
                    hint="choose another file for your memory, or let its owner move it",
                )
            if stat.S_IMODE(status.st_mode) & 0o077:
                self.folder.chmod(0o700)
        except OSError as exc:
            if isinstance(exc, MemoryUnavailable):
                raise
            raise self.refusal(exc) from exc

    def refusal(self, exc: OSError) -> MemoryUnavailable:
        """Return the error for what the operating system refused beside the file."""
        return MemoryUnavailable(
            f"The memory cannot be kept at {self.path}: {exc.strerror or exc}.",
            hint="set NBTOOLS_HOME or NBTOOLS_MEMORY_URL to a place that can be written",
        )

    def acquire(self, timeout: float) -> bool:
        """Acquire the lock of the file; return whether that succeeded within `timeout` seconds.

        Raises
        ------
        MemoryUnavailable
            The lock cannot be made, on a disk that is read-only for instance.
        """
        end = time.monotonic() + timeout
        while not self._try():
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
        return True

    def _try(self) -> bool:
        import fcntl

        try:
            self._fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self.make()  # Someone removed the folder in this moment.
            return False
        except OSError as exc:
            raise self.refusal(exc) from exc
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(self._fd)
            self._mine = (status.st_ino, status.st_dev)
            # Had too late if the lock file was removed meanwhile: then someone else may hold the one that is there.
            if not self.is_lost() and not self._is_held_elsewhere():
                return True
        os.close(self._fd)
        self._fd = -1
        return False

    def announce(self, **facts: Any) -> None:
        """Write facts about this holder to the lock file; without arguments, only renew the file's time."""
        if facts:
            mine = {"pid": os.getpid(), "host": socket.gethostname(), "machine": _machine(), "user": _user()}
            text = json.dumps(mine | facts)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        else:
            os.utime(self._fd)

    def is_lost(self) -> bool:
        """Return whether the lock file that this process holds was removed or replaced: then it holds nothing."""
        if self._fd < 0:
            return True
        try:
            status = self.lock.stat()
        except OSError:
            return True
        return (status.st_ino, status.st_dev) != self._mine

    def release(self) -> None:
        """Release the lock of the file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def holder(self) -> dict[str, Any]:
        """Return what the holder announced, or an empty dict."""
        return facts_in(self.lock)

    def held_by(self) -> str:
        """Return who holds the file, in words."""
        facts = self.holder()
        if not facts:
            return "another process"
        what = "the keeper" if facts.get("address") else "a process"
        where = f" on the machine {facts.get('host')}" if _is_of_another(facts) else ""
        return f"{what} {facts.get('pid')} of user {facts.get('user')}{where}"

    def is_elsewhere(self) -> bool:
        """Return whether another machine's process holds the file."""
        return _is_of_another(self.holder())

    def socket_path(self) -> Path:
        """Return where the keeper listens: beside the file, or in a private temporary folder if that is too long."""
        return socket_place(self.folder / "socket", self.path)

    def _is_held_elsewhere(self) -> bool:
        # Asked after the lock was had: without shared locks the other machine's holder is known by its heart only.
        if not self.is_elsewhere():
            return False
        with contextlib.suppress(OSError):
            return abs(time.time() - self.lock.stat().st_mtime) < 4 * HEARTBEAT
        return False


def socket_place(path: Path, owner: Path) -> Path:
    """Return the path of a socket; one in a private temporary folder, named for its owner, where it is too long.

    Raises
    ------
    MemoryUnavailable
        No such folder has a path that is short enough.
    """
    if len(os.fsencode(path)) <= _SUN_PATH:
        return path
    name = f"{zlib.crc32(os.fsencode(owner)):08x}{zlib.adler32(os.fsencode(owner)):08x}.sock"
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - private below
        if parent and len(os.fsencode(parent)) + len(name) + 24 <= _SUN_PATH:
            return _private(Path(parent) / f"nbtools-{_user()}") / name
    raise MemoryUnavailable("No folder for a socket has a path that is short enough.", hint="set TMPDIR")


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    # Anybody may make a folder of that name in a shared place: a link, or someone else's, is not trusted.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != _user() or stat.S_IMODE(status.st_mode) & 0o077:
        raise MemoryUnavailable(f"{folder} is not a private folder of yours.", hint="remove it, or set TMPDIR")
    return folder


def _is_of_another(facts: dict[str, Any]) -> bool:
    """Return whether another machine's process announced itself so."""
    if facts.get("machine") and _machine():
        return bool(facts["machine"] != _machine())
    return bool(facts) and facts.get("host") != socket.gethostname()


@functools.cache
def _machine() -> str:
    """Return an identifier of this machine that does not depend on its name; empty where there is none.

    On Linux it is the running kernel: processes that share it share locks and sockets too, containers included.
    """
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    import uuid

    number = uuid.getnode()
    # With this bit it is not an address of a network card but was made up, in each process again.
    return "" if number >> 40 & 1 else f"{number:x}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
