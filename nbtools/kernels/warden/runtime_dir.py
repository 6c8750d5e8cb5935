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

__all__ = ["OWNER_LOCK", "RuntimeDir", "sweep"]

_PREFIX = "nbk-"
OWNER_LOCK = "owner"
"""Name of the file in the folder that its living owner holds a lock on."""

# Between making a folder and locking it there is a moment; a younger folder is left alone.
_YOUNG_S = 30.0
_SOCKET_PATH_BYTES = 107


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
        sweep(place)
        self.path = place / f"{_PREFIX}{secrets.token_hex(4)}"
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Nobody else can hold it: the name is random and the folder is new.
        _try_lock(self._lock)
        if holding is not None:
            self.make(holding)

    def make(self, name: str) -> Path:
        """Make a folder inside, for one kernel."""
        made = self.path / name
        made.mkdir(mode=0o700)
        return made

    def close(self) -> None:
        """Remove the folder with all that is in it. Harmless when repeated."""
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def _short_place(otherwise: Path | None) -> Path:
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()]  # noqa: S108 - folders in it are private
    for place in candidates:
        # What follows: our name, a kernel's id, a socket's name.
        is_short = len(os.fsencode(place)) + 40 <= _SOCKET_PATH_BYTES
        if is_short and os.access(place, os.W_OK | os.X_OK):
            return place
    place = otherwise or candidates[0]
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


def _try_lock(descriptor: int) -> bool:
    """Take the lock without waiting; false when its owner lives."""
    if sys.platform == "win32":
        return False  # a file that is open cannot be removed there, which protects the living just as well
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sweep(place: Path) -> int:
    """Remove the folders of owners that are gone; return how many."""
    removed = 0
    for found in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            removed += _sweep_one(found)
    return removed


def _sweep_one(found: Path) -> bool:
    state = found.stat()
    if state.st_uid != os.getuid() or time.time() - state.st_mtime < _YOUNG_S:
        return False
    descriptor = os.open(found / OWNER_LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        if not _try_lock(descriptor):
            return False
        shutil.rmtree(found, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)
