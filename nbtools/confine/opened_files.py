"""Which files were opened below folders: what a program has read, whatever its text says.

Linux tells it (inotify) of each program, and of every name and link that leads to the file. Where it does not, or more
was opened than it counts, nothing is known, and that is said.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import struct
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

_MOST_FILES = 50_000
# <sys/inotify.h>
_OPEN, _MOVED_TO, _CREATE, _OVERFLOW, _IS_FOLDER = 0x20, 0x80, 0x100, 0x4000, 0x40000000
_NOT_THROUGH_LINKS = 0x02000000
_WATCHED = _OPEN | _MOVED_TO | _CREATE | _NOT_THROUGH_LINKS
_EVENT = struct.Struct("iIII")


class OpenedFiles:
    """The files, and the folders, that are opened below folders while this is open.

    Parameters
    ----------
    folders
        Folders or single files; links in them are not followed.
    skipped
        A folder that is not looked into unless it is one of them; `None` for none.
    most_folders
        How many folders are watched; where there are more, nothing is known.
    """

    def __init__(self, folders: Iterable[Path], skipped: Path | None = None, *, most_folders: int = 10_000) -> None:
        self._folders, self._skipped, self._most_folders = set[Path](), skipped, most_folders
        self._lock = threading.Lock()
        self._moments, self._opened = itertools.count(1), dict[str, int]()
        self._watches: dict[int, str] = {}
        self._descriptor = -1
        self.is_whole = sys.platform == "linux"
        """Whether all is known that was opened so far."""
        self.has_lost = False
        """Whether that is so because too much was opened at once: a new look would tell again."""
        if self.is_whole:
            self._system = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self.is_whole = self._descriptor >= 0
        self._end = weakref.finalize(self, os.close, self._descriptor) if self.is_whole else lambda: None
        self.add(folders)

    def add(self, folders: Iterable[Path]) -> None:
        """Look at more folders from now on; those that it has are left as they are."""
        with self._lock:
            new = dict.fromkeys(folder for folder in folders if folder not in self._folders)
            self._folders |= new.keys()
            self._watch(path for folder in new for path in self._folders_below(str(folder)))

    def close(self) -> None:
        """Look no longer; what was opened is not known any more."""
        with self._lock:
            self.is_whole = False
            self._end()

    def moment(self) -> int:
        """Return the number of this moment, for `since`."""
        with self._lock:
            self._take_in()
            return next(self._moments)

    def since(self, moment: int) -> tuple[Path, ...] | None:
        """Return what was opened since a moment; `None` where that is not known."""
        with self._lock:
            self._take_in()
            if not self.is_whole:
                return None
            return tuple(Path(path) for path, last in self._opened.items() if last > moment)

    def _folders_below(self, folder: str) -> Iterator[str]:
        """Return a folder and all below it; looking into them opens them, so it is done before they are watched."""
        folders, todo = [folder], [folder]
        while todo and len(folders) <= self._most_folders:
            with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
                todo += (new := [path for path in below if path != str(self._skipped)])
                folders += new
        return iter(folders)

    def _watch(self, folders: Iterable[str]) -> None:
        for path in folders:
            if not self.is_whole:
                break
            watch = self._system.inotify_add_watch(self._descriptor, os.fsencode(path), _WATCHED)
            if watch >= 0:
                self._watches[watch] = path
            # What is gone, or may not be read by us, no program of ours reads.
            elif os.access(path, os.R_OK):
                self.is_whole = False
            self.is_whole &= len(self._watches) <= self._most_folders

    def _take_in(self) -> None:
        """Store what was opened since the last look."""
        now = next(self._moments)
        while self.is_whole:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                break
            start = 0
            while start < len(data):
                watch, mask, _, size = _EVENT.unpack_from(data, start)
                start += _EVENT.size + size
                name = os.fsdecode(data[start - size : start].rstrip(b"\0"))
                self._see(watch, mask, name, now)
        self.has_lost |= len(self._opened) > _MOST_FILES
        self.is_whole &= not self.has_lost

    def _see(self, watch: int, mask: int, name: str, now: int) -> None:
        self.has_lost |= bool(mask & _OVERFLOW)
        self.is_whole &= not self.has_lost
        folder = self._watches.get(watch)
        if folder is None:
            return
        path = os.path.join(folder, name) if name else folder  # noqa: PTH118 - thousands of them
        if mask & _OPEN:
            self._opened[path] = now
        elif mask & _IS_FOLDER:  # made, or moved here: what lies in it may have been opened before it was watched
            self._watch(self._folders_below(path))
            below = (os.path.join(parent, one) for parent, _, names in os.walk(path) for one in names)  # noqa: PTH118 - same
            self._opened.update(dict.fromkeys(itertools.islice(below, _MOST_FILES + 1), now))
