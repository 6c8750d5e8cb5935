"""One named session: its kernel, how it ends, and its states from before its runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.ground import aio
from nbtools.ground.folder_state import FolderState
from nbtools.kernels import artifacts
from nbtools.kernels.interface import STATES_ENDED, Execution, KernelOptions
from nbtools.kernels.planted import awake
from nbtools.kernels.pool import Lease
from nbtools.processes import process_tree

# Seconds until a session that is to end is killed: for what it runs, and then for its end.
_STOP_S, _END_S = 2.0, 5.0


@dataclasses.dataclass(kw_only=True)
class EarlierState:
    """A session as it was before one of its runs: a copy that waits.

    Attributes
    ----------
    lease
        The copy.
    runs
        How many runs the session had had.
    files
        What the run that followed wrote, which no undo takes back.
    own_bytes
        How much memory was the session's alone, before this shared it; 0 if not measured.
    """

    lease: Lease
    runs: int
    files: tuple[str, ...] = ()
    own_bytes: int = 0

    @property
    def is_alive(self) -> bool:
        """Whether the session can go back to it."""
        return self.lease.kernel.alive


@dataclasses.dataclass(kw_only=True)
class NamedSession:
    """One session: its kernel, and what the monitor shows.

    Attributes
    ----------
    lease
        The kernel; `None` before the first run and after its state was lost.
    lock
        Held by the run under way: a session runs one thing at a time.
    lost
        Why the state of the last kernel is gone; told with the next run.
    keeps
        Before how many runs, the last ones, its state is kept for an undo.
    states
        The states before earlier runs, the oldest first.
    ahead
        Done once the state before the next run is made; `None` where none is being made.
    news
        What became of states since the last run; told with the next one.
    unkept
        Why the state before the last run was not kept.
    copy_of
        Name of the session that this one is a copy of; `None` for one that began empty.
    runs_before
        How many runs that session had had when it was copied.
    guards
        The folder in which it is not to change what decides about runs, so that its processes stand still between them.
    is_theirs
        Whether it took strangers' texts: nobody knows which of its variables have them, and its copies have all.
    """

    name: str
    language: str
    options: KernelOptions
    lease: Lease | None = None
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    started_at: float = dataclasses.field(default_factory=time.monotonic)
    used_at: float = dataclasses.field(default_factory=time.monotonic)
    last_call: str = ""
    last_status: str = ""
    runs: int = 0
    lost: str | None = None
    keeps: int = 0
    states: list[EarlierState] = dataclasses.field(default_factory=list)
    ahead: asyncio.Future[None] | None = None
    news: tuple[str, ...] = ()
    unkept: NbtoolsError | None = None
    copy_of: str | None = None
    runs_before: int = 0
    guards: Path | None = None
    is_theirs: bool = False

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

    @property
    def undoable(self) -> list[int]:
        """By how many runs it can go back."""
        return [self.runs - state.runs for state in self.states if state.runs < self.runs and state.is_alive]

    @property
    def is_kept(self) -> bool:
        """Whether its state before the next run is kept already."""
        return bool(self.states) and self.states[-1].runs == self.runs and self.states[-1].is_alive

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the session, and no state of it is being made meanwhile."""
        async with self.lock:
            await self.settle()
            yield

    async def settle(self) -> None:
        """Wait until no state is being made."""
        if self.ahead is not None:
            await asyncio.wait({self.ahead})

    def begin(self, code: str) -> None:
        """Store that a run begins."""
        self.used_at = time.monotonic()
        self.last_call = _first_line(code)
        self.runs += 1

    def end(self, execution: Execution) -> None:
        """Store how it ended."""
        self.used_at = time.monotonic()
        self.last_status = execution.status
        if self.states and self.states[-1].runs == self.runs - 1:
            self.states[-1].files = tuple(path.name for path in execution.artifacts)

    def drop_dead(self) -> list[Lease]:
        """Return the leases of the states that have ended, which the next run tells of."""
        states, self.states, dead = self.states, [], []
        for state in states:
            if state.is_alive:
                self.states.append(state)
                continue
            dead.append(state.lease)
            if self.states:
                # An undo to the state before it takes back the run that wrote them, too.
                self.states[-1].files += state.files
        if dead:
            what = (
                "one of the kept states, which has" if len(dead) == 1 else f"{len(dead)} of the kept states, which have"
            )
            self.add_news(f"{STATES_ENDED}{what} ended")
        return dead

    def add_news(self, text: str) -> None:
        """Tell something with the next run, once."""
        self.news = tuple(dict.fromkeys((*self.news, text)))

    async def forget(self, *, most: int = 0) -> None:
        """End the oldest states that are kept for an undo, all but `most`."""
        await asyncio.gather(*(lease.close() for lease in self.give_up(most=most)))

    def give_up(self, *, most: int) -> list[Lease]:
        """Return the leases of the oldest states, all but `most`, which are not kept any more."""
        count = max(0, len(self.states) - most)
        old, self.states = self.states[:count], self.states[count:]
        return [state.lease for state in old]

    async def finish(self, artifacts_folder: Path | None) -> None:
        """End what it runs, and then the session as a script ends, in bounded time; close its kernel.

        Parameters
        ----------
        artifacts_folder
            Where files go that its end wrote in a folder of the kernel's own.
        """
        await self.forget()
        lease = self.lease
        if lease is None:
            return
        if self.lock.locked():
            await lease.kernel.interrupt()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S), self.alone():
                await self._come_to_the_end(lease, artifacts_folder)
        await lease.kernel.kill()
        await self.settle()
        # Again: there may be one more by now.
        await asyncio.gather(lease.close(), self.forget())

    async def _come_to_the_end(self, lease: Lease, artifacts_folder: Path | None) -> None:
        kernel: Any = lease.kernel
        finish = getattr(kernel, "finish", None)
        if finish is None or not kernel.alive or not self.runs:
            return
        own = lease.folder if artifacts_folder is not None else None
        before = None if own is None else await aio.in_thread(FolderState, own)
        async with awake(kernel, self.guards):
            await finish(timeout=_END_S)
        if (
            own is not None
            and before is not None
            and artifacts_folder is not None
            and (files := before.changed_files())
        ):
            # The copies of a session go on working with the files.
            move = lease.shared_folder is None or not lease.shared_folder.is_shared
            await aio.in_thread(functools.partial(artifacts.keep, files, own, artifacts_folder, move=move))

    def to_dict(self) -> dict[str, Any]:
        """Return what the monitor shows."""
        now = time.monotonic()
        pid = self.lease.kernel.pid if self.lease is not None and self.lease.kernel.alive else None
        cpu, memory = process_tree.usage(pid) if pid is not None else (0.0, 0)
        return {
            "name": self.name,
            "language": self.language,
            "state": self.state,
            "pid": pid,
            "kernel": self.lease.name if self.is_alive and self.lease is not None else None,
            "age_s": round(now - self.started_at, 3),
            "idle_s": 0.0 if self.lock.locked() else round(now - self.used_at, 3),
            "cpu_s": round(cpu, 2),
            "memory_bytes": memory,
            "last_call": self.last_call,
            "last_status": self.last_status,
            "runs": self.runs,
            "copy_of": self.copy_of,
            "undoable": len(self.undoable),
            "own_bytes": self.states[-1].own_bytes if self.is_kept else 0,
            "sandbox": self.lease.kernel.sandbox if self.lease is not None else self.options.sandbox,
        }


def _first_line(code: str) -> str:
    line = next((line.strip() for line in code.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"
