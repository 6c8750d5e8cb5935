"""Trimming: what is old, or too much, goes from the folders in which nbtools keeps things, the least used first."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 where there is none."""
    if not path.is_dir():
        return path.stat().st_size if path.is_file() else 0
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                total += Path(folder, name).lstat().st_size
    return total


def trim(
    folder: Path,
    *,
    seconds: float,
    most_bytes: int,
    least: int = 20,
    may_go: Callable[[Path], bool] = lambda _: True,
) -> tuple[int, int]:
    """Remove entries that were not used for so long, and the least used beyond a size; return how many, and bytes.

    Parameters
    ----------
    folder
        Whose entries.
    seconds
        Entries that have not been used for longer than this are removed.
    most_bytes
        Beyond this many bytes in all, the least recently used entries are removed.
    least
        So many of the newest stay whatever their age: a clock that jumps must not empty the folder.
    may_go
        Tells whether an entry may be removed.
    """
    try:
        files = [(_last_use(path), path) for path in folder.iterdir()]
    except OSError:
        return 0, 0
    count = freed = total = 0
    for number, (used, path) in enumerate(sorted(files, reverse=True)):
        size = size_of(path)
        total += size
        is_due = number >= least and (time.time() - used > seconds or total > most_bytes)
        if is_due and may_go(path):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                count, freed, total = count + 1, freed + size, total - size
    return count, freed


def _last_use(path: Path) -> float:
    """Return when a file, or something directly in a folder, was last written."""
    try:
        return float(max(entry.lstat().st_mtime for entry in (path, *(path.iterdir() if path.is_dir() else ()))))
    except OSError:
        return 0.0
