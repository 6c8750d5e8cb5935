"""Which files a script wrote in its working folder.

A file counts when its status changed after the moment the script began: the change time is set by the system and
cannot be turned back, and both sides of the comparison come from the same coarse clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_written_since", "moment", "written_since"]

_MOST_ENTRIES = 20_000
_MOST_FILES = 1_000
_DEPTH = 6
_SKIPPED = frozenset({"__pycache__", "node_modules"})


def moment() -> int:
    """Return now, in nanoseconds, on the clock that file systems use."""
    clock = getattr(time, "CLOCK_REALTIME_COARSE", None)
    return time.time_ns() if clock is None else time.clock_gettime_ns(clock)


def is_written_since(path: Path, begun: int) -> bool:
    """Tell whether a file exists and was made or changed after `begun`."""
    try:
        return path.stat().st_ctime_ns > begun
    except OSError:
        return False


def written_since(folder: Path, begun: int) -> tuple[Path, ...]:
    """Return the files below `folder` that were made or changed after `begun`, sorted by path.

    Hidden files and folders, caches and links are left out. A folder with more than 20,000 entries is looked through
    in part, nearest first.
    """
    found = []
    for entry in _walk(folder):
        try:
            if entry.stat(follow_symlinks=False).st_ctime_ns > begun:
                found.append(Path(entry.path))
        except OSError:
            continue  # gone meanwhile
        if len(found) >= _MOST_FILES:
            break
    return tuple(sorted(found))


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
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
