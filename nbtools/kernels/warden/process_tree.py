"""The processes that belong to a kernel: its children, theirs, and those that tried to get away.

All from ``/proc``, without a library, because the process that asks is kept small. Where there is no ``/proc`` nothing
is found, and a kernel's own process group is all that can be ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["MARK", "children", "descendants", "find_marked", "footprint", "kernel_of", "proportional"]

MARK = "NBTOOLS_KERNEL"
"""Variable in the environment of everything a kernel starts: the kernel's id."""

_THREAD_NAME = b"nbk"
# The kernel takes 15 bytes of a name: three for the prefix, twelve for the id.
_ID_LENGTH = 12
_PROC = "/proc"


def children(pid: int) -> list[int]:
    """Return the processes that `pid` started or inherited and has not buried yet."""
    found: list[int] = []
    try:
        tasks = [entry.name for entry in os.scandir(f"{_PROC}/{pid}/task")]
    except OSError:
        return found
    for task in tasks:
        # A thread that ended between the listing and the reading has handed its children to another.
        with contextlib.suppress(OSError):
            found += map(int, Path(f"{_PROC}/{pid}/task/{task}/children").read_bytes().split())
    return found


def descendants(roots: Iterable[int], *, most: int = 1 << 16) -> list[int]:
    """Return the roots and everything below them, at most `most` processes."""
    todo, found, seen = list(roots), list[int](), set[int]()
    while todo and len(found) < most:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            found.append(pid)
            todo += children(pid)
    return found


def footprint(pids: Iterable[int]) -> int:
    """Return the bytes of memory that the processes occupy, pages they share with a parent counted in each: quick."""
    return sum(_kilobytes(f"{_PROC}/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids) * 1024


def proportional(pids: Iterable[int]) -> int:
    """Return the bytes of memory that the processes occupy, each shared page divided among its owners: exact, slow."""
    return sum(_kilobytes(f"{_PROC}/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids) * 1024


def _kilobytes(path: str, fields: tuple[bytes, ...]) -> int:
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(fields))


def kernel_of(pid: int) -> str | None:
    """Return the id of the kernel that a process descends from: by its environment, or by its inherited name."""
    try:
        # What the process was started with; a script cannot change it afterwards.
        environment = Path(f"{_PROC}/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in environment.split(b"\0"):
        if entry.startswith(MARK.encode() + b"="):
            return entry.partition(b"=")[2].decode("ascii", "replace")
    try:
        name = Path(f"{_PROC}/{pid}/comm").read_bytes().strip()
    except OSError:
        return None
    # A fork of the zygote shows the zygote's environment, but inherits the name given to the kernel.
    if name.startswith(_THREAD_NAME) and len(name) == len(_THREAD_NAME) + _ID_LENGTH:
        return name[len(_THREAD_NAME) :].decode("ascii", "replace")
    return None


def find_marked(ids: frozenset[str]) -> list[int]:
    """Return all processes of this machine that descend from one of the kernels."""
    try:
        numbers = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
    except OSError:
        return []
    return [pid for pid in numbers if kernel_of(pid) in ids]
