"""Reset: what a home keeps is removed, between two lessons; settings and what was trusted stay.

The file of the memory is removed under its lock: the process that has it open is asked to leave, and none comes in
between. Other notebooks that use the home go on with a memory that is empty.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from nbtools.errors import MemoryUnavailable
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.texts.visible import counted

_KEPT: Mapping[str, str] = {
    "notes in memory": "memory.duckdb*",
    "tables in memory": "memory_tables",
    "runs of workflows and agents": "*runs",
    "downloads": "downloads",
}
_PATIENCE_S = 15.0


def kept_in(home: Path) -> dict[str, list[Path]]:
    """Return the files and folders that a home keeps, by what they are."""
    paths_of = {what: sorted(home.glob(pattern)) for what, pattern in _KEPT.items()}
    return {what: paths for what, paths in paths_of.items() if paths}


def to_lines(contents: Mapping[str, list[Path]]) -> Iterator[str]:
    """Yield a line for each kind of what is kept: how many files and bytes."""
    for what, paths in contents.items():
        files = [one for path in paths for one in (path.rglob("*") if path.is_dir() else [path]) if one.is_file()]
        yield f"{what}: {counted(len(files), 'file')}, {sum(file.stat().st_size for file in files):,} bytes"


def reset(home: Path) -> list[Path]:
    """Remove what a home keeps, and return it; the workbench that used it is closed before.

    Raises
    ------
    MemoryUnavailable
        Another process has the memory open, and does not leave; nothing was removed.
    """
    directory = MemoryDirectory(home / "memory.duckdb")
    paths = [path for each in kept_in(home).values() for path in each]
    if not directory.folder.exists():
        return _remove(paths)
    # The lock is held while files go: a notebook that opens the memory meanwhile would write into what is removed.
    if not directory.acquire(0.0):
        pid = directory.holder().get("pid")
        if isinstance(pid, int) and not directory.is_elsewhere():
            os.kill(pid, signal.SIGTERM)  # a keeper finishes what it does
        if not directory.acquire(_PATIENCE_S):
            hint = "Close the notebooks that use it, and reset again."
            raise MemoryUnavailable(f"The memory is held by {directory.held_by()}.", hint=hint)
    try:
        return _remove(paths)
    finally:
        directory.release()


def _remove(paths: list[Path]) -> list[Path]:
    for path in paths:
        # The keeper removes some of its files as it ends.
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return paths
