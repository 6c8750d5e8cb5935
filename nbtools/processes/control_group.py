"""A control group of Linux (cgroup v2) for a warden and all it starts: one write ends everything in it.

Nothing that is started can leave it without the right to write to another group, and no fork is fast enough to be
missed. It stands behind the tree of processes, which tells one kernel's family from another's: entering a group takes
the system some 10 ms, too long for each kernel.

A separate group may hide the limits of the group it lies in from programs that size themselves by them. Where there
are such limits none is made.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path

_PREFIX = "nbk-"
# What programs look at to learn how much memory and how many processors they have.
_SIZES = ("memory.max", "memory.high", "cpu.max", "cpuset.cpus")
_EMPTY_S = 2.0
_YOUNG_S = 60.0


@functools.cache
def _parent_group() -> Path:
    """Return the folder of the group that this process is in, where groups below it can be made.

    Raises
    ------
    OSError
        None can be made; the message says why.
    """
    own = _own()
    for name in _SIZES:
        with contextlib.suppress(FileNotFoundError):
            if not (own / name).read_text().startswith(("max", "\n")):
                raise OSError(f"its own group has a limit ({name}), which programs read")
    trial = own / f"{_PREFIX}trial-{os.getpid()}"
    trial.mkdir()
    try:
        if not os.access(trial / "cgroup.kill", os.W_OK) or not os.access(own / "cgroup.procs", os.W_OK):
            raise OSError("groups cannot be entered, or cannot be ended as a whole (Linux 5.14)")
    finally:
        trial.rmdir()
    return own


def _own() -> Path:
    """Return the folder of this process' group."""
    lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    inner = next((line[3:] for line in lines if line.startswith("0::")), None)
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        before, _, after = line.partition(" - ")
        root, mounted = before.split()[3:5]
        if after.startswith("cgroup2 ") and inner is not None and inner.startswith(root):
            return Path(mounted, inner.removeprefix(root).strip("/"))
    raise OSError("this system has no groups of version 2 to be seen")


def describe() -> str:
    """Return, for the doctor, whether groups are available here, or why not."""
    try:
        _parent_group()
    except OSError as exc:
        return f"no control group: {exc}"
    return "and by a control group"


def enter() -> Path | None:
    """Move this process into its own group and return its folder; `None` where that cannot be had."""
    try:
        own = _parent_group()
        _sweep(own)
        group = own / f"{_prefix()}{os.getpid()}-{time.monotonic_ns():x}"
        group.mkdir()
    except OSError:
        return None
    try:
        (group / "cgroup.procs").write_text("0")
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None
    return group


def move(pid: int, group: Path | None) -> None:
    """Move a process into a group; nothing happens where there is none, or the process has ended."""
    if group is not None:
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(str(pid))


def end(group: Path) -> bool:
    """End all that is in a group, and remove it; tell whether it is gone."""
    deadline = time.monotonic() + _EMPTY_S
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            # Below are those of wardens that a script started, and that were killed with it.
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)  # noqa: PTH106 - the walk gives texts
            return True
        time.sleep(0.002)
    return not group.exists()


def end_from_outside(group: Path) -> None:
    """Leave a process outside of the group that ends it, and what is still in it, when the caller has ended."""
    caller = os.getpid()
    if os.fork():
        return
    with contextlib.suppress(OSError):
        os.setsid()
        (group.parent / "cgroup.procs").write_text("0")
        while os.getppid() == caller:
            time.sleep(0.001)
        end(group)
    os._exit(0)


def _prefix() -> str:
    """Return how the names of groups begin that this process can judge: it sees their members by these numbers."""
    return f"{_PREFIX}{os.stat('/proc/self/ns/pid').st_ino:x}-"  # noqa: PTH116 - one number


def _sweep(own: Path) -> None:
    """Remove groups whose warden is gone, with what is left in them."""
    prefix = _prefix()
    for entry in own.glob(f"{prefix}*-*"):
        pid, _, stamp = entry.name.removeprefix(prefix).partition("-")
        # Entering takes a busy system long, and a warden on its way in would be ended with the group.
        is_old = time.monotonic_ns() - int(stamp, 16) > _YOUNG_S * 1e9
        with contextlib.suppress(OSError):
            if is_old and pid not in (entry / "cgroup.procs").read_text().split():
                end(entry)
