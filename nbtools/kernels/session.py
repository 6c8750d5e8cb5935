"""A named kernel whose state lasts from one run to the next."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from nbtools.kernels.interface import Execution, Profile
from nbtools.kernels.pool import Lease
from nbtools.kernels.warden import process_tree

__all__ = ["Session", "usage"]


@dataclasses.dataclass(kw_only=True)
class Session:
    """One session: its kernel, and what the monitor shows.

    Attributes
    ----------
    lease
        The kernel; `None` before the first run and after its state was lost.
    lock
        Held by the run under way: a session runs one thing at a time.
    lost
        Why the state of the last kernel is gone; told with the next run.
    """

    name: str
    language: str
    profile: Profile
    lease: Lease | None = None
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    started_at: float = dataclasses.field(default_factory=time.monotonic)
    used_at: float = dataclasses.field(default_factory=time.monotonic)
    last_call: str = ""
    last_status: str = ""
    runs: int = 0
    lost: str | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it has a kernel that can run code."""
        return self.lease is not None and self.lease.kernel.alive

    @property
    def state(self) -> str:
        """``"busy"``, ``"idle"``, or ``"dead"`` when the next run starts a new kernel."""
        if not self.is_alive:
            return "dead"
        return "busy" if self.lock.locked() else "idle"

    def begin(self, code: str) -> None:
        """Note that a run begins."""
        self.used_at = time.monotonic()
        self.last_call = _first_line(code)
        self.runs += 1

    def end(self, execution: Execution) -> None:
        """Note how it ended."""
        self.used_at = time.monotonic()
        self.last_status = execution.status

    def to_dict(self) -> dict[str, Any]:
        """Return what the monitor shows."""
        now = time.monotonic()
        pid = self.lease.kernel.pid if self.lease is not None and self.lease.kernel.alive else None
        cpu, memory = usage(pid) if pid is not None else (0.0, 0)
        return {
            "name": self.name,
            "language": self.language,
            "state": self.state,
            "pid": pid,
            "age_s": round(now - self.started_at, 3),
            "idle_s": 0.0 if self.lock.locked() else round(now - self.used_at, 3),
            "cpu_s": round(cpu, 2),
            "memory_bytes": memory,
            "last_call": self.last_call,
            "last_status": self.last_status,
            "runs": self.runs,
            "confinement": self.lease.kernel.confinement if self.lease is not None else self.profile.sandbox,
        }


def _first_line(code: str) -> str:
    line = next((line.strip() for line in code.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"


def usage(pid: int) -> tuple[float, int]:
    """Return seconds of processor time and bytes of memory of a process and everything below it."""
    import psutil

    pids = process_tree.descendants([pid])
    cpu, memory = 0.0, process_tree.proportional(pids)
    for one in pids:
        try:
            process = psutil.Process(one)
            times = process.cpu_times()
            cpu += times.user + times.system
            if memory == 0:
                memory = int(process.memory_info().rss)
        except psutil.Error:
            continue  # it ended meanwhile, or belongs to another user
    return cpu, memory
