"""Which files a script wrote in its working folder, and what becomes of them.

A file counts when a listing that was taken before the script began lacks it, or shows it with another inode, size or
time. No clock decides this: file systems take their times from one that may be behind ours or, where they keep fine
times for files that somebody looked at, ahead of it; a server's is another clock altogether.

What lies in a folder of the kernel's own is taken out of the script's reach before anybody looks at it: a process that
still runs could put a link, a pipe or a device in its place. It is moved, or copied where a session goes on with it, to
a folder of the owner; what arrives there and is no regular file is removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from nbtools.errors import NbtoolsError
from nbtools.folder import Folder
from nbtools.kernels.warden.runtime_dir import remove_tree
from nbtools.paths import Roots

MOST_FILES = 1_000
"""How many files of one run are told, and how many are kept of all runs."""

# A script may unpack a data set or install packages in its folder: the look at it must stay short.
_MOST_ENTRIES = 20_000
# The look before it, too, and the script waits for it: about 5 microseconds an entry.
_MOST_LISTED = 5_000
_COARSEST_NS = 2 * 10**9  # the times of FAT
_TICK_S = 0.01  # of Linux, at most
_CLOCK_REALTIME_COARSE = 5  # <linux/time.h>, which Python's `time` has no name for
_MOST_COPIED = 256 * 2**20
_BLOCK = 1 << 20
_DEPTH = 6
_KEEPER = ".keeper"
# What tools make by the thousand, and nobody means as a result.
_SKIPPED = frozenset({"__pycache__", "node_modules"})


class FolderState:
    """What lay in a folder before a script ran there.

    Hidden files and folders, caches and links are left out, and what nbtools itself stores: its home, and a memory file
    with the folder of its keeper. The first 5,000 entries are listed, nearest first. What
    lies beyond them is judged by its change time alone: it counts as written when that is at most 2 s before the
    listing, or later.

    Parameters
    ----------
    folder
        The script's working folder. It need not exist.
    other
        A path outside of it that is looked at too, such as the place of a picture.
    home
        The home of nbtools, which may lie below the folder.
    """

    def __init__(self, folder: Path, other: Path | None = None, home: Path | None = None) -> None:
        self._folder, self._home = folder, home
        self._begun = time.time_ns()
        found, self._is_whole = _files(folder, _MOST_LISTED, home)
        self._before = {entry.path: state for entry in found if (state := _state(entry)) is not None}
        if other is not None and (state := _state(other)) is not None:
            self._before[str(other)] = state
        if sys.platform == "linux" and self._before:
            _pass_tick(max(changed for *_, changed in self._before.values()))

    def has_changed(self, path: Path) -> bool:
        """Tell whether a regular file exists that is not as it was; the path is in the folder, or is the other one."""
        return (now := _state(path)) is not None and now != self._before.get(str(path))

    def written(self) -> tuple[Path, ...]:
        """Return the files below the folder that were made or changed, at most 1,000, sorted by path.

        A folder with more than 20,000 entries is looked through in part, nearest first.
        """
        made: list[Path] = []
        for entry in _files(self._folder, _MOST_ENTRIES, self._home)[0]:
            if (now := _state(entry)) is None:
                continue
            before = self._before.get(entry.path)
            is_listed = before is not None or self._is_whole
            if now != before if is_listed else now[-1] >= self._begun - _COARSEST_NS:
                made.append(Path(entry.path))
                if len(made) >= MOST_FILES:
                    break
        return tuple(sorted(made))


def _state(place: os.DirEntry[str] | Path) -> tuple[int, int, int, int] | None:
    """Return what tells a regular file from an earlier one of its name, the change time last; `None` for others."""
    try:
        found = place.stat(follow_symlinks=False)
    except OSError:
        return None  # gone meanwhile, or never there
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _pass_tick(newest: int) -> None:
    """Wait until the clock of file systems is later than a change, so that the next one gets another time."""
    # At most 10 ms, and only when a file was just written. A change in the future is of another machine's clock.
    end = time.monotonic() + _TICK_S
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) <= newest <= time.time_ns() and time.monotonic() < end:
        time.sleep(0.0005)


def _files(folder: Path, most: int, home: Path | None = None) -> tuple[list[os.DirEntry[str]], bool]:
    """Return the files below a folder, and whether these are all of them."""
    # Breadth first, so that what is cut off lies deep.
    found: list[os.DirEntry[str]] = []
    todo, seen = [(str(folder), 0)], 0
    while todo:
        path, depth = todo.pop(0)
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        # A memory file is told by the folder of its keeper, whoever opened it; logs of DuckDB lie beside it.
        memories = tuple(
            entry.name.removesuffix(_KEEPER)
            for entry in entries
            if entry.name.endswith(_KEEPER) and Path(entry.path, "lock").is_file()
        )
        own = {*memories, *(f"{name}{suffix}" for name in memories for suffix in (_KEEPER, ".wal"))}
        for entry in entries:
            seen += 1
            if seen > most:
                return found, False
            if entry.name.startswith(".") or entry.name in _SKIPPED or entry.name in own or entry.path == str(home):
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH:
                    todo.append((entry.path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                found.append(entry)
    return found, True


def keep(found: Iterable[Path], folder: Path, place: Path, *, move: bool) -> tuple[dict[Path, Path], tuple[str, ...]]:
    """Take files out of a folder that a script may still change.

    Parameters
    ----------
    found
        What `FolderState.written` found.
    folder
        The script's folder.
    place
        The owner's folder, where a file replaces one of the same name; the newest 1,000 files stay there.
    move
        Whether the files are moved; else they are copied, 256 MiB at the most.

    Returns
    -------
    tuple
        Each file that is kept to where it is now, and sentences about the others.
    """
    kept: dict[Path, Path] = {}
    lost: list[str] = []
    room = _MOST_COPIED
    place.mkdir(mode=0o700, exist_ok=True)
    for path in found:
        target = place / path.relative_to(folder)
        try:
            with (
                Roots([folder]).folder(path.parent) as source,
                Roots([place]).folder(place) as hall,
                Roots([place]).folder(target.parent, make=True, mode=0o700) as shelf,
            ):
                room -= _take(source, hall, shelf, path.name, None if move else room)
            kept[path] = target
        except (NbtoolsError, OSError):
            lost.append(path.name)
    _make_room(place)
    if not lost:
        return kept, ()
    shown = ", ".join(lost[:5]) + (", …" if len(lost) > 5 else "")
    why = "they are no regular files that can be read" + ("" if move else f", or more than {_MOST_COPIED:,} bytes")
    return kept, (f"{len(lost)} of the files that the script left are not kept ({shown}): {why}",)


def _take(source: Folder, hall: Folder, shelf: Folder, name: str, room: int | None) -> int:
    """Bring a file to the shelf, by way of a name in the hall that no script knows; return the bytes copied."""
    # First under a name that no script can guess, then to its place in one step: a reader sees a whole file or none.
    draft = f".{secrets.token_hex(8)}"
    copied = 0
    try:
        if room is None:
            source.move(name, hall, draft, overwrite=True)
            # Opening refuses what is no regular file, such as a pipe that the script put in the place of its file.
            os.close(hall.open_file(draft))
        else:
            copied = _copy(source, hall, name, draft, room)
        hall.move(draft, shelf, name, overwrite=True)
    except BaseException:
        left = hall.path / draft
        if left.is_dir() and not left.is_symlink():
            remove_tree(left)
        else:
            left.unlink(missing_ok=True)
        raise
    return copied


def _copy(source: Folder, hall: Folder, name: str, draft: str, room: int) -> int:
    with (
        os.fdopen(source.open_file(name), "rb") as read,
        os.fdopen(hall.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as write,
    ):
        left = size = os.fstat(read.fileno()).st_size
        if size > room:
            raise OSError(f"{name} does not fit")
        # The size counts as of the start, so that a file that still grows does not copy for ever.
        while left > 0 and (block := read.read(min(left, _BLOCK))):
            write.write(block)
            left -= len(block)
    return size - left


def _make_room(place: Path) -> None:
    """Remove the oldest files when there are too many."""
    files = [Path(entry.path) for entry in _files(place, _MOST_ENTRIES)[0]]
    if len(files) > MOST_FILES:
        aged = sorted(files, key=lambda path: path.lstat().st_ctime_ns)
        for path in aged[: len(files) - MOST_FILES]:
            with contextlib.suppress(OSError):
                path.unlink()
