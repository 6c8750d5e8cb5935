"""How many processors this process may use, which in a container or on a cluster is fewer than the machine has."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path

# Where the groups that share out processors are mounted, of version 2 and 1, and how each version writes a quota.
_MOUNTS = ("", "unified", "cpu", "cpu,cpuacct")


@functools.cache
def count_processors(root: Path = Path("/")) -> int:
    """Return how many processors may be used at once: by the affinity of the process and the quotas of its groups.

    Parameters
    ----------
    root
        Where ``proc`` and ``sys`` are.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the processors of each quota that holds for the process; nothing where the system has no such groups."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, inner = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = Path(inner.lstrip("/"))
        for mount in _MOUNTS:
            # A quota of a group holds for all groups below it; a container may see its own as the topmost.
            for folder in (group, *group.parents):
                yield from _quota(root / "sys/fs/cgroup" / mount / folder)


def _quota(folder: Path) -> Iterator[float]:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        yield int(quota) / int(period)  # "max" is not a number
    with contextlib.suppress(OSError, ValueError):
        quota = (folder / "cpu.cfs_quota_us").read_text()
        if int(quota) > 0:
            yield int(quota) / int((folder / "cpu.cfs_period_us").read_text())
