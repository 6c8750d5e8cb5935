"""The private folder of one owner: sockets, working folders, and a lock that says whether the owner lives.

The name is short, because the path of a local socket may have 107 bytes. The lock is held as long as the owner's
process exists, however it ends, so that a folder whose lock can be had is nobody's: it is swept at the next start.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from nbtools.aio import start_thread

__all__ = ["OWNER_LOCK", "SOCKET_PATH_BYTES", "RuntimeDir", "remove", "remove_tree", "sweep", "try_lock"]

_PREFIX = "nbk-"
OWNER_LOCK = "owner"
"""Name of the file in the folder that its living owner holds a lock on."""

# A folder in memory, and the link to ours in it: who removes the one removes the other.
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - ours in it is private
_LINK = "memory"
# Containers may have 64 MB there, which no frame worth the name fits into.
_LEAST_ROOM = 1 << 30

# Between making a folder and locking it there is a moment; a younger folder is left alone.
_YOUNG_S = 30.0
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
SOCKET_PATH_BYTES = 107


class RuntimeDir:
    """A folder that goes when its owner goes.

    Parameters
    ----------
    otherwise
        Where to make it when the system has no folder for temporary files that can be written.
    holding
        Name of a folder to make in it at once; `None` makes none.
    """

    def __init__(self, otherwise: Path | None = None, *, holding: str | None = None) -> None:
        place = _short_place(otherwise)
        # Beside the first script, which need not wait: a dead owner may have left thousands of files.
        start_thread(sweep, place, name="nbtools-sweep")
        self.path = place / f"{_PREFIX}{secrets.token_hex(4)}"
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Nobody else can hold it: the name is random and the folder is new.
        try_lock(self._lock)
        if holding is not None:
            self.make(holding)

    def make(self, name: str) -> Path:
        """Make a folder inside, for one kernel."""
        made = self.path / name
        made.mkdir(mode=0o700)
        return made

    def make_in_memory(self) -> Path:
        """Make a folder whose files lie in memory where the system has that, with room; it goes with this one."""
        made = _IN_MEMORY / self.path.name
        try:
            room = os.statvfs(_IN_MEMORY)
            if room.f_bavail * room.f_frsize < _LEAST_ROOM:
                return self.make(_LINK)
            made.mkdir(mode=0o700)
            (self.path / _LINK).symlink_to(made)
            (made / OWNER_LOCK).symlink_to(self.path)
        except (OSError, AttributeError):  # no such folder, or none that we may write to
            return self.make(_LINK)
        return made

    def close(self) -> None:
        """Remove the folder with all that is in it. Harmless when repeated."""
        if self._lock < 0:
            return
        remove(self.path)
        os.close(self._lock)
        self._lock = -1


def _short_place(otherwise: Path | None) -> Path:
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()]  # noqa: S108 - folders in it are private
    for place in candidates:
        # What follows: our name, a kernel's id, a socket's name.
        is_short = len(os.fsencode(place)) + 40 <= SOCKET_PATH_BYTES
        if is_short and os.access(place, os.W_OK | os.X_OK):
            return place
    place = otherwise or candidates[0]
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


def try_lock(descriptor: int) -> bool:
    """Take the lock without waiting; false when its owner lives."""
    if sys.platform == "win32":
        return False  # a file that is open cannot be removed there, which protects the living just as well
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove(folder: Path) -> None:
    """Remove the folder of an owner, and that of its files in memory."""
    link = folder / _LINK
    if link.is_symlink() and link.readlink().parent == _IN_MEMORY:
        remove_tree(link.readlink())
    remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a script may have filled, also what it has closed or nested too deep for a path."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.open in os.supports_dir_fd and folder.is_dir() and not folder.is_symlink():
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            _empty(folder)
            folder.rmdir()


def _empty(folder: Path) -> None:
    """Remove what is in a folder, step by step from where it stands: by names, never by a path."""
    here = os.open(folder, _FOLDER)
    names, left = list[str](), [_subfolders(here)]
    try:
        while names or left[0]:
            if not left[-1]:
                here = _go(here, "..")
                left.pop()
                with contextlib.suppress(OSError):
                    os.rmdir(names.pop(), dir_fd=here)
                continue
            name = left[-1].pop()
            with contextlib.suppress(OSError):
                os.chmod(name, 0o700, dir_fd=here)
                here = _go(here, name)
                names.append(name)
                left.append(_subfolders(here))
    finally:
        os.close(here)


def _go(here: int, name: str) -> int:
    there = os.open(name, _FOLDER, dir_fd=here)
    os.close(here)
    return there


def _subfolders(here: int) -> list[str]:
    """Remove the files of a folder, and return the names of its folders."""
    found = []
    for entry in os.scandir(here):
        if entry.is_dir(follow_symlinks=False):
            found.append(entry.name)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.name, dir_fd=here)
    return found


def sweep(place: Path) -> int:
    """Remove the folders of owners that are gone; return how many."""
    removed = 0
    for found in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            removed += _sweep_one(found)
    for found in _IN_MEMORY.glob(f"{_PREFIX}*"):
        # Its owner's folder is gone, by whatever means. Another user's cannot be looked into.
        owner = found / OWNER_LOCK
        with contextlib.suppress(OSError):
            if owner.is_symlink() and not owner.exists():
                remove_tree(found)
                removed += 1
    return removed


def _sweep_one(found: Path) -> bool:
    state = found.stat()
    if state.st_uid != os.getuid() or time.time() - state.st_mtime < _YOUNG_S:
        return False
    # Whoever was at it may have been cut off when the file was gone already.
    descriptor = os.open(found / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor):
            return False
        remove(found)
        return True
    finally:
        os.close(descriptor)
