"""The private folder of one owner: sockets, working folders, and a lock that says whether the owner lives.

The name is short, because the path of a local socket may have 107 bytes. The lock is held as long as the owner's
process exists, however it ends, so that a folder whose lock can be had is nobody's: it is swept at the next start.

Folders for temporary files are cleaned, by systemd for example, while an owner lives. Its folder is locked itself,
which systemd respects, and looks used; what is removed all the same is made again under its name when it is needed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path

from nbtools.ground.folder_state import OWNER_LOCK, RUNTIME_PREFIX

# A folder in memory, and the link to ours in it: who removes the one removes the other.
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - ours in it is private
_LINK = "memory"
# Containers may have 64 MB there, which no frame worth the name fits into.
_LEAST_ROOM = 1 << 30

# Between making a folder and locking it there is a moment; a younger folder is left alone.
_YOUNG_S = 30.0
_END_S = 2.0
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
        from nbtools.ground.aio import start_thread  # the process that only removes such folders has no loop

        parent = _short_place(otherwise)
        # Beside the first script, which need not wait: a dead owner may have left thousands of files.
        start_thread(sweep, parent, name="nbtools-sweep")
        self.path = parent / f"{RUNTIME_PREFIX}{os.urandom(4).hex()}"
        self._locks: list[int] = []
        self._restoring = threading.Lock()
        self._lasting: set[str] = set()
        self._is_in_memory = False
        self.path.mkdir(mode=0o700)
        self._lock()
        if holding is not None:
            self.hold(holding)

    def _lock(self) -> None:
        """Lock the folder, and the file in it that says so to other owners; nobody else has ever had them."""
        self._unlock()
        self._locks.append(os.open(self.path / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if hasattr(os, "O_DIRECTORY"):
            self._locks.append(os.open(self.path, _FOLDER | os.O_CLOEXEC))
        for descriptor in self._locks:
            try_lock(descriptor)

    def _unlock(self) -> None:
        while self._locks:
            os.close(self._locks.pop())

    def make(self, name: str) -> Path:
        """Make a folder inside, for one kernel."""
        self.restore()
        folder = self.path / name
        folder.mkdir(mode=0o700)
        return folder

    def hold(self, name: str) -> Path:
        """Return a folder inside that is there as long as this one, made if need be."""
        self._lasting.add(name)
        self.restore()
        return self.path / name

    def restore(self) -> None:
        """Make again what someone has removed of this folder and those that last as long, and show that it is used.

        Raises
        ------
        OSError
            It cannot be made, or another user has made something under its name.
        """
        if not self._locks:
            return
        with self._restoring:  # several runs may leave files at once
            if not self._is_whole():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _make_own(self.path)
                self._lock()
        for name in self._lasting:
            (self.path / name).mkdir(mode=0o700, exist_ok=True)
        if self._is_in_memory:
            self._link_memory()
        with contextlib.suppress(OSError):
            os.utime(self.path)
            os.utime(self.path / OWNER_LOCK)

    def _is_whole(self) -> bool:
        """Tell whether the file that is locked is the one that others find."""
        with contextlib.suppress(OSError):
            return os.path.samestat((self.path / OWNER_LOCK).stat(), os.fstat(self._locks[0]))
        return False

    def hold_in_memory(self) -> Path:
        """Return a folder whose files lie in memory where the system has that, with room; it lasts as long as this one.

        It lies in this one where there is no such room.
        """
        try:
            room = os.statvfs(_IN_MEMORY)
            self._is_in_memory = room.f_bavail * room.f_frsize >= _LEAST_ROOM
            if self._is_in_memory:
                self._link_memory()
        except (OSError, AttributeError):  # no such folder, or none that we may write to
            self._is_in_memory = False
        return _IN_MEMORY / self.path.name if self._is_in_memory else self.hold(_LINK)

    def _link_memory(self) -> None:
        """Make the folder in memory, and the links by which each of the two leads to the other, where they are gone."""
        memory_folder = _IN_MEMORY / self.path.name
        _make_own(memory_folder)
        for path, target in ((self.path / _LINK, memory_folder), (memory_folder / OWNER_LOCK, self.path)):
            if not path.is_symlink():
                path.symlink_to(target)

    def close(self) -> None:
        """Remove the folder with all that is in it. Harmless when repeated."""
        if self._locks:
            remove(self.path)
            self._unlock()


class HeldFolder:
    """A folder that several kernels stand in: it is removed when the last of them lets go.

    Parameters
    ----------
    path
        The folder; the maker of this object holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._holders = 1

    @property
    def is_shared(self) -> bool:
        """Whether it is held more than once."""
        return self._holders > 1

    def hold(self) -> HeldFolder:
        """Hold it once more."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Let go."""
        self._holders -= 1
        if not self._holders:
            remove_tree(self.path)


def _make_own(path: Path) -> None:
    """Make a private folder, unless it is there; raise what says that someone else has made it."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise PermissionError(f"{path} was removed, and what lies there by now is someone else's")


def _short_place(otherwise: Path | None) -> Path:
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()]  # noqa: S108 - folders in it are private
    for candidate in candidates:
        # What follows: our name, a kernel's id, a socket's name.
        is_short = len(os.fsencode(candidate)) + 40 <= SOCKET_PATH_BYTES
        if is_short and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    candidate = otherwise or candidates[0]
    candidate.mkdir(parents=True, exist_ok=True)
    return candidate.resolve()


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


def is_left(folder: Path) -> bool:
    """Tell whether the owner of a folder is gone: it holds the lock as long as it lives, and a moment of its end."""
    deadline, is_free = time.monotonic() + _END_S, False
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / OWNER_LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            while not (is_free := try_lock(descriptor)) and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            os.close(descriptor)
    return is_free


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
    names = []
    for entry in os.scandir(here):
        if entry.is_dir(follow_symlinks=False):
            names.append(entry.name)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.name, dir_fd=here)
    return names


def sweep(folder: Path) -> int:
    """Remove the folders of owners that are gone; return how many."""
    removed = 0
    for path in folder.glob(f"{RUNTIME_PREFIX}*"):
        with contextlib.suppress(OSError):
            removed += _sweep_one(path)
    for path in _IN_MEMORY.glob(f"{RUNTIME_PREFIX}*"):
        # Its owner's folder is gone, by whatever means. Another user's cannot be looked into.
        owner = path / OWNER_LOCK
        with contextlib.suppress(OSError):
            if owner.is_symlink() and not owner.exists():
                remove_tree(path)
                removed += 1
    return removed


def _sweep_one(path: Path) -> bool:
    state = path.stat()
    if state.st_uid != os.getuid() or time.time() - state.st_mtime < _YOUNG_S:
        return False
    # The process that was at it may have been cut off when the file was gone already.
    locks = [os.open(path, _FOLDER | os.O_CLOEXEC)] if hasattr(os, "O_DIRECTORY") else []
    try:
        # A cleaner may have removed the file of an owner that lives, but not the lock on the folder.
        if not all(map(try_lock, locks)):
            return False
        locks.append(os.open(path / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not try_lock(locks[-1]):
            return False
        remove(path)
        return True
    finally:
        for descriptor in locks:
            os.close(descriptor)
