"""The processes that belong to a kernel: its children, theirs, and those that tried to get away.

All but `usage` from ``/proc``, without a library, because the process that asks is kept small. Where there is no
``/proc`` nothing is found, and a kernel's own process group is all that can be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MARK = "NBTOOLS_KERNEL"
"""Variable in the environment of everything a kernel starts: the kernel's id."""

_THREAD_NAME = b"nbk"
# The kernel takes 15 bytes of a name: three for the prefix, twelve for the id.
_ID_LENGTH = 12
_PROC = "/proc"
_FREEZING_S = 2.0
_STILL = (b"T", b"t", b"Z", b"X", b"")  # states of a thread that does nothing until it is let go on
_DEAD = (b"Z", b"X")
_BLOCK = 512  # the unit of st_blocks
# Files that occupy memory: those without a name, and those of a file system in memory.
_IN_MEMORY = (b"/memfd:", b"/dev/shm/")
_DELETED = b" (deleted)"
_TRACKERS = (b"multiprocessing.resource_tracker", b"loky.backend.resource_tracker", b"multiprocess.resource_tracker")


def children(pid: int) -> list[int]:
    """Return the processes that `pid` started or inherited and has not buried yet."""
    pids: list[int] = []
    try:
        tasks = [entry.name for entry in os.scandir(f"{_PROC}/{pid}/task")]
    except OSError:
        return pids
    for task in tasks:
        # A thread that ended between the listing and the reading has handed its children to another.
        with contextlib.suppress(OSError):
            pids += map(int, Path(f"{_PROC}/{pid}/task/{task}/children").read_bytes().split())
    return pids


def descendants(roots: Iterable[int], *, most: int = 1 << 16) -> list[int]:
    """Return the roots and everything below them, at most `most` processes."""
    todo, pids, seen = list(roots), list[int](), set[int]()
    while todo and len(pids) < most:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            pids.append(pid)
            todo += children(pid)
    return pids


def freeze(roots: Iterable[int]) -> list[int]:
    """Stop processes and all below them, and return them.

    Each is stopped before its children are looked for, so it can start no more of them; a fork that is under way when
    the signal comes is given up by the system. The roots are subreapers of those below: what loses its parent meanwhile
    is found among their children.
    """
    roots = list(roots)
    todo, pids = list(roots), dict[int, None]()
    deadline = time.monotonic() + _FREEZING_S
    while todo and time.monotonic() < deadline:
        pid = todo.pop()
        # One that lost its parent meanwhile may have been seen twice.
        if pid not in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                pids[pid] = None
                todo += children(pid)
        if not todo:
            todo = [orphan for root in roots for orphan in children(root) if orphan not in pids]
    return list(pids)


def wait_frozen(pids: Iterable[int]) -> None:
    """Wait until no thread of processes that were stopped runs on: the signal takes effect as a system call ends."""
    deadline = time.monotonic() + _FREEZING_S
    for pid in pids:
        while _runs_on(pid) and time.monotonic() < deadline:
            time.sleep(0.0005)


def _runs_on(pid: int) -> bool:
    try:
        threads = os.listdir(f"{_PROC}/{pid}/task")  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return False
    return any(_state(_stat(f"{pid}/task/{thread}")) not in _STILL for thread in threads)


def is_tracker(pid: int) -> bool:
    """Tell whether a process says of itself that it removes the shared memory which its program leaves.

    Anything can say so: it decides about a moment more to live, and nothing else.
    """
    try:
        words = Path(f"{_PROC}/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name in words for name in _TRACKERS)


class Use(NamedTuple):
    """What processes take of the system together.

    Attributes
    ----------
    alive
        How many of them have not ended.
    numbers
        The numbers of processes that they occupy: each thread has one, and who has ended until someone buries it.
    ticks
        Their processor time, in the system's unit.
    """

    alive: int = 0
    numbers: int = 0
    ticks: int = 0


def use(pids: Iterable[int]) -> Use:
    """Return what processes take of the system."""
    stats = [fields for fields in (_stat(pid).rpartition(b") ")[2].split() for pid in pids) if len(fields) > 17]
    alive = [fields for fields in stats if fields[0] not in _DEAD]
    threads = sum(int(fields[17]) for fields in alive)
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in stats)
    return Use(len(alive), threads + len(stats) - len(alive), ticks)


def is_dead(pid: int) -> bool:
    """Tell whether a process has ended and waits to be buried."""
    return _state(_stat(pid)) in _DEAD


def _state(stat: bytes) -> bytes:
    """Return the letter after the name, which may hold anything."""
    return stat.rpartition(b") ")[2][:1]


def _stat(pid: int | str) -> bytes:
    try:
        return Path(f"{_PROC}/{pid}/stat").read_bytes()
    except OSError:
        return b""


def deleted_bytes(pids: Iterable[int]) -> int:
    """Return the bytes on disk of files that have no name any more, and which one of the processes has open."""
    sizes: dict[tuple[int, int], int] = {}
    for state, name in _opened(pids):
        if name.endswith(_DELETED) and not name.startswith(_IN_MEMORY):
            sizes[state.st_dev, state.st_ino] = state.st_blocks * _BLOCK
    return sum(sizes.values())


def is_beyond(limit: int, pids: Sequence[int]) -> bool:
    """Tell whether processes occupy more bytes of memory than `limit`, files that lie in memory included.

    The first is the one that the others descend from: it may have its own ``/dev/shm``.
    """
    device, shared = _own_shared_memory(pids[0]) if pids else (None, 0)
    files = _open_files(pids, but=device)
    in_files = sum(files.values()) + shared
    # Forks of a zygote share most of their pages, which the quick count takes for each one's own.
    if _quick(pids) + in_files <= limit:
        return False
    mapped = _mapped(pids, files, device) if in_files else 0
    return proportional(pids) + max(0, in_files - mapped) > limit


def _own_shared_memory(pid: int) -> tuple[int | None, int]:
    """Return the device of a ``/dev/shm`` that only the process and those below it see, and the bytes in it."""
    shared_memory = f"{_PROC}/{pid}/root/dev/shm"
    try:
        device = os.stat(shared_memory).st_dev  # noqa: PTH116 - ten times a second
        if device == os.stat("/dev/shm").st_dev:  # noqa: PTH116, S108 - same
            return None, 0
        state = os.statvfs(shared_memory)
    except OSError:
        return None, 0
    return device, (state.f_blocks - state.f_bfree) * state.f_frsize


def data_bytes(pid: int) -> int:
    """Return what the system's limit of memory counts of a process: heap and private mappings."""
    return _kilobytes(f"{_PROC}/{pid}/status", (b"VmData:",)) * 1024


def _quick(pids: Iterable[int]) -> int:
    return sum(_kilobytes(f"{_PROC}/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids) * 1024


def proportional(pids: Iterable[int]) -> int:
    """Return the bytes of memory that the processes occupy, each shared page divided among its owners: exact, slow."""
    exact = (b"Pss_Anon:", b"Pss_Shmem:")
    # A process that lets nobody look at its mappings is counted in full.
    return sum(_kilobytes(f"{_PROC}/{pid}/smaps_rollup", exact) * 1024 or _quick([pid]) for pid in pids)


def own_bytes(pids: Iterable[int]) -> int:
    """Return the bytes of memory that no other process shares, and which come back when these have ended."""
    return sum(_kilobytes(f"{_PROC}/{pid}/smaps_rollup", (b"Private_Clean:", b"Private_Dirty:")) for pid in pids) * 1024


def _open_files(pids: Iterable[int], *, but: int | None) -> dict[tuple[int, int], int]:
    """Return device, inode and bytes of each file in memory that one of the processes has open, one device left out."""
    return {
        (state.st_dev, state.st_ino): state.st_blocks * _BLOCK
        for state, name in _opened(pids)
        if name.startswith(_IN_MEMORY) and state.st_dev != but
    }


def _opened(pids: Iterable[int]) -> Iterator[tuple[os.stat_result, bytes]]:
    """Yield what the processes have open and is in memory or deleted: its state and its name."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"{_PROC}/{pid}/fd".encode()):
                with contextlib.suppress(OSError):
                    name = os.readlink(entry.path)  # noqa: PTH115 - thousands of them, in bytes
                    if name.startswith(_IN_MEMORY) or name.endswith(_DELETED):
                        yield entry.stat(), name


def _mapped(pids: Iterable[int], files: Iterable[tuple[int, int]], device: int | None) -> int:
    """Return the bytes of certain files, and of all on a device, that are memory of the processes already."""
    keys = {(_device(at), b"%d" % inode) for at, inode in files}
    whole = _device(device) if device is not None else b""
    total, is_wanted = 0, False
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"{_PROC}/{pid}/smaps").read_bytes().splitlines():
                words = line.split(None, 5)
                if b"-" in words[0] and len(words) >= 5:
                    is_wanted = words[3] == whole or (words[3], words[4]) in keys
                elif is_wanted and words[0] == b"Pss:":
                    total += int(words[1]) * 1024
    return total


def _device(number: int) -> bytes:
    return b"%02x:%02x" % (os.major(number), os.minor(number))


def _kilobytes(path: str, fields: tuple[bytes, ...]) -> int:
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(fields))


def kernel_of(pid: int) -> str | None:
    """Return the id of the kernel that a process descends from by its environment or its inherited name.

    Both can be chosen by the process, so it serves only where the tree is lost: when the warden itself was killed.
    """
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


def usage(pid: int) -> tuple[float, int]:
    """Return seconds of processor time and bytes of memory of a process and everything below it."""
    import psutil

    pids = descendants([pid])
    cpu, memory = 0.0, proportional(pids)
    for one in pids:
        try:
            process = psutil.Process(one)
            times = process.cpu_times()
            cpu += times.user + times.system
            # Where there is no /proc the exact measure is 0, and the resident size has to do.
            if memory == 0:
                memory = int(process.memory_info().rss)
        except psutil.Error:
            continue  # it ended meanwhile, or belongs to another user
    return cpu, memory
