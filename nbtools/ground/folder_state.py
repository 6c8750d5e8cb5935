"""What lay in a folder, and which files were written there since.

A file counts when a listing that was taken before lacks it, or shows it with another inode, size or time. No clock
decides this: file systems take their times from one that may be behind ours or, where they keep fine times for files
that someone looked at, ahead of it; a server's is another clock altogether.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path

MOST_FILES = 1_000
"""How many written files are told of one folder."""

MOST_ENTRIES = 20_000
"""How many entries are looked at afterwards: someone may unpack a data set, or install packages, in the folder."""

# The look before it, too, and what is to run waits for it: about 5 microseconds an entry.
_MOST_LISTED = 5_000
_COARSEST_NS = 2 * 10**9  # the times of FAT
_TICK_S = 0.01  # of Linux, at most
_BLURRED_NS = 20_000_000  # two of them
_CLOCK_REALTIME_COARSE = 5  # <linux/time.h>, which Python's `time` has no name for
_DEPTH = 6
_KEEPER = ".keeper"
RUNTIME_PREFIX, OWNER_LOCK = "nbk-", "owner"
"""The beginning of the name of a runtime folder of kernels, and the file in it that its owner locks."""
# What tools make by the thousand, and nobody means as a result.
_SKIPPED = frozenset({"__pycache__", "node_modules"})


class FolderState:
    """What lay in a folder before something ran there.

    Caches and links are left out, and what nbtools itself stores: its home, and a memory file with the folder of its
    keeper. The first 5,000 entries are listed, nearest first. What lies beyond them is judged only by its change time:
    it counts as written when that is at most 2 s before the listing, or later.

    Parameters
    ----------
    folder
        Where files may be written. It need not exist.
    other
        A path outside of it that is looked at too, such as the place of a picture.
    home
        The home of nbtools, which may lie below the folder.
    hidden
        Whether hidden files and folders count too.
    """

    def __init__(
        self, folder: Path, other: Path | None = None, home: Path | None = None, *, hidden: bool = False
    ) -> None:
        self._folder, self._home, self._hidden = folder, home, hidden
        self._begun = time.time_ns()
        entries, folders, self._is_whole = files_below(folder, _MOST_LISTED, home, hidden=hidden)
        self._folders = dict.fromkeys(entry.path for entry in folders)
        self._before = {entry.path: state for entry in entries if (state := _state(entry)) is not None}
        if other is not None and (state := _state(other)) is not None:
            self._before[str(other)] = state
        if sys.platform == "linux" and self._before:
            _pass_tick(max(changed for *_, changed in self._before.values()))

    def folders(self, most: int = 200) -> tuple[Path, ...]:
        """Return the folder and those that lay below it, nearest first, so many at the most."""
        return (self._folder, *map(Path, itertools.islice(self._folders, most - 1)))

    def has_changed(self, path: Path) -> bool:
        """Tell whether a regular file exists that is not as it was; the path is in the folder, or is the other one."""
        return (now := _state(path)) is not None and now != self._before.get(str(path))

    def changed_files(self) -> tuple[Path, ...]:
        """Return the files below the folder that were made or changed, at most 1,000, sorted by path.

        A folder with more than 20,000 entries is looked through in part, nearest first.
        """
        return self.changes()[0]

    def changes(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Return the files that were made or changed, as `changed_files`, and the folders that were made."""
        changed: list[Path] = []
        files, folders, _ = files_below(self._folder, MOST_ENTRIES, self._home, hidden=self._hidden)
        for entry in files:
            if (now := _state(entry)) is None:
                continue
            before = self._before.get(entry.path)
            is_listed = before is not None or self._is_whole
            if now != before if is_listed else now[-1] >= self._begun - _COARSEST_NS:
                changed.append(Path(entry.path))
                if len(changed) >= MOST_FILES:
                    break
        return tuple(sorted(changed)), tuple(Path(entry.path) for entry in folders if entry.path not in self._folders)


class AtWork:
    """Who writes in which folder, and when: a file that changed while two did may be of either."""

    def __init__(self) -> None:
        self._stays: list[_Stay] = []

    def enter(self, folder: Path) -> _Stay:
        """Say that someone begins to write in a folder, and below it."""
        stay = _Stay(folder, time.time_ns())
        self._stays.append(stay)
        return stay

    def leave(self, stay: _Stay) -> None:
        """Say that they have ended."""
        stay.ended_ns = time.time_ns()
        first = min((one.begun_ns for one in self._stays if one.ended_ns is None), default=stay.ended_ns)
        self._stays = [one for one in self._stays if one.ended_ns is None or one.ended_ns > first]

    def shared(self, stay: _Stay, files: Iterable[Path]) -> tuple[Path, ...]:
        """Return those of the files that changed while someone else wrote in the same folder, above or below it."""
        others = [
            one
            for one in self._stays
            if one is not stay
            and (one.ended_ns is None or one.ended_ns > stay.begun_ns)
            and (one.folder == stay.folder or stay.folder in one.folder.parents or one.folder in stay.folder.parents)
        ]
        return tuple(file for file in files if others and any(one.covers(file) for one in others))


@dataclasses.dataclass(eq=False)
class _Stay:
    folder: Path
    begun_ns: int
    ended_ns: int | None = None

    def covers(self, file: Path) -> bool:
        """Tell whether a file changed then, as far as the clock of a file system says."""
        changed = file.lstat().st_ctime_ns if file.exists() else 0
        return self.begun_ns - _BLURRED_NS <= changed and (
            self.ended_ns is None or changed <= self.ended_ns + _BLURRED_NS
        )


def _state(entry: os.DirEntry[str] | Path) -> tuple[int, int, int, int] | None:
    """Return what tells a regular file from an earlier one of its name, the change time last; `None` for others."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # gone meanwhile, or never there
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _pass_tick(newest: int) -> None:
    """Wait until the clock of file systems is later than a change, so that the next one gets another time."""
    # At most 10 ms, and only when a file was just written. A change in the future is of another machine's clock.
    end = time.monotonic() + _TICK_S
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) <= newest <= time.time_ns() and time.monotonic() < end:
        time.sleep(0.0005)


def files_below(
    folder: Path, most: int, home: Path | None = None, *, hidden: bool = False
) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]], bool]:
    """Return the files below a folder, the folders, and whether these are all of them."""
    # Breadth first, so that what is cut off lies deep.
    files, folders = list[os.DirEntry[str]](), list[os.DirEntry[str]]()
    todo, seen = [(str(folder), 0)], 0
    while todo:
        path, depth = todo.pop(0)
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        # A memory file is told by the folder of its keeper, no matter who opened it; logs of DuckDB lie beside it.
        memories = tuple(
            entry.name.removesuffix(_KEEPER)
            for entry in entries
            if entry.name.endswith(_KEEPER) and Path(entry.path, "lock").is_file()
        )
        own = {*memories, *(f"{name}{suffix}" for name in memories for suffix in (_KEEPER, ".wal"))}
        for entry in entries:
            seen += 1
            if seen > most:
                return files, folders, False
            is_skipped = entry.name in _SKIPPED or entry.name in own or entry.path == str(home)
            if is_skipped or (not hidden and (entry.name.startswith(".") or _is_runtime(entry))):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry)
                if depth < _DEPTH:
                    todo.append((entry.path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                files.append(entry)
    return files, folders, True


def _is_runtime(entry: os.DirEntry[str]) -> bool:
    """Tell whether a folder is one of kernels, which lie in the folder of temporary files: people work there too."""
    return entry.name.startswith(RUNTIME_PREFIX) and Path(entry.path, OWNER_LOCK).is_file()
