"""Which files a script wrote in its working folder, and what becomes of them.

A file counts when its status changed after the moment the script began: the change time is set by the system and
cannot be turned back, and both sides of the comparison come from the file system.

What lies in a folder of the kernel's own is taken out of the script's reach before anybody looks at it: a process that
still runs could put a link, a pipe or a device in its place. It is moved, or copied where a session goes on with it, to
a folder of the owner; what arrives there and is no regular file is removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from nbtools.errors import NbtoolsError
from nbtools.paths import Folder, Roots

__all__ = ["MOST_FILES", "is_written_since", "keep", "moment", "written_since"]

MOST_FILES = 1_000
"""How many files of one run are told, and how many are kept of all runs."""

# A script may unpack a data set or install packages in its folder: the look at it must stay short.
_MOST_ENTRIES = 20_000
_MOST_COPIED = 256 * 2**20
_BLOCK = 1 << 20
_DEPTH = 6
_TICK_PART_S = 0.0005
# What tools make by the thousand, and nobody means as a result.
_SKIPPED = frozenset({"__pycache__", "node_modules"})


def moment() -> int:
    """Return now, in nanoseconds, as file systems tell it: what is written later has this time or a later one.

    No clock of ours will do. Files get their times from a coarse clock, up to 10 ms behind the fine one, and newer
    kernels of Linux give a finer time to a file that somebody has looked at. A file of our own is touched twice: what
    was written before the second touch is older, because there the kernel gives the finer time, or the tick has passed.
    """
    if sys.platform != "linux":
        return time.time_ns()
    probe = os.memfd_create("nbtools-clock")
    try:
        first = _touched(probe)
        while (now := _touched(probe)) == first:
            time.sleep(_TICK_PART_S)
        return now
    finally:
        os.close(probe)


def _touched(descriptor: int) -> int:
    """Let a file change now, and return when that was."""
    os.utime(descriptor)
    return os.fstat(descriptor).st_ctime_ns


def is_written_since(path: Path, begun: int) -> bool:
    """Tell whether a regular file exists and was made or changed after `begun`."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_ctime_ns >= begun


def written_since(folder: Path, begun: int) -> tuple[Path, ...]:
    """Return the files below `folder` that were made or changed after `begun`, sorted by path.

    Hidden files and folders, caches and links are left out. A folder with more than 20,000 entries is looked through
    in part, nearest first.
    """
    found = []
    for entry in _walk(folder):
        try:
            if entry.stat(follow_symlinks=False).st_ctime_ns >= begun:
                found.append(Path(entry.path))
        except OSError:
            continue  # gone meanwhile
        if len(found) >= MOST_FILES:
            break
    return tuple(sorted(found))


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    # Breadth first, so that what is cut off lies deep.
    todo, seen = [(str(folder), 0)], 0
    while todo:
        path, depth = todo.pop(0)
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        for entry in entries:
            seen += 1
            if seen > _MOST_ENTRIES:
                return
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH:
                    todo.append((entry.path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                yield entry


def keep(found: Iterable[Path], folder: Path, place: Path, *, move: bool) -> tuple[dict[Path, Path], tuple[str, ...]]:
    """Take files out of a folder that a script may still change.

    Parameters
    ----------
    found
        What `written_since` found.
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
            shutil.rmtree(left, ignore_errors=True)
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
    files = [Path(entry.path) for entry in _walk(place)]
    if len(files) > MOST_FILES:
        aged = sorted(files, key=lambda path: path.lstat().st_ctime_ns)
        for path in aged[: len(files) - MOST_FILES]:
            with contextlib.suppress(OSError):
                path.unlink()
