"""Named sessions: kernels whose state lasts from one run to the next, and the table of all sessions of one owner."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.tool import Effects
from nbtools.errors import InvalidArguments, LimitExceeded, NbtoolsError, did_you_mean, of_the_system
from nbtools.ground import aio
from nbtools.ground.folder_state import FolderState
from nbtools.kernels import artifacts
from nbtools.kernels.interface import BEGAN_EMPTY, Execution, KernelOptions
from nbtools.kernels.planted import awake
from nbtools.kernels.pool import Lease, Pool
from nbtools.processes import process_tree

# Seconds until a session that is to end is killed: for what it runs, and then for its end.
_STOP_S, _END_S = 2.0, 5.0

_ENDS = Effects(destructive=True, idempotent=True)
CHANGES: Mapping[str, tuple[str, Effects]] = {
    "start": ("runs", Effects()),
    "stop": ("ended", _ENDS),
    "restart": ("runs again", _ENDS),
    "interrupt": ("was interrupted", Effects()),
    "adopt": ("has taken the place of the session that it was copied from", Effects(destructive=True)),
}
"""What people do with sessions: how it is told, and what it does to the world."""


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
    """

    lease: Lease
    runs: int
    files: tuple[str, ...] = ()


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
        Those states, the oldest first.
    copy_of, runs_before
        The session of which it is a copy, and how many runs that had had; `None` for one that began empty.
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
            async with asyncio.timeout(_STOP_S), self.lock:
                await self._come_to_the_end(lease, artifacts_folder)
        await lease.kernel.kill()
        # Again: a run that had just begun may have kept one more.
        await asyncio.gather(lease.close(), self.forget())

    async def _come_to_the_end(self, lease: Lease, artifacts_folder: Path | None) -> None:
        kernel: Any = lease.kernel
        finish = getattr(kernel, "finish", None)
        if finish is None or not kernel.alive or not self.runs:
            return
        own = lease.folder if artifacts_folder is not None else None
        before = None if own is None else await aio.in_thread(FolderState, own)
        if self.guards is None:
            await finish(timeout=_END_S)
        else:
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
            "undoable": len(self.states),
            "sandbox": self.lease.kernel.sandbox if self.lease is not None else self.options.sandbox,
        }


def _refuse_busy(session: NamedSession, doing: str) -> None:
    if session.lock.locked():
        hint = f"Wait for the end of its run, or stop it: %kernels interrupt {session.name}"
        raise InvalidArguments(
            f"Session {session.name!r} is running code.", hint=hint, tried=f"{doing} session {session.name!r}"
        )


def _pids(session: NamedSession) -> list[int]:
    leases = [session.lease, *(state.lease for state in session.states)]
    return [pid for lease in leases if lease is not None and (pid := lease.kernel.pid) is not None]


async def _wake(lease: Lease, guards: Path | None, *, is_heir: bool) -> None:
    """Let a copy that waits become a kernel; where it is guarded it stands still before and after that."""
    kernel: Any = lease.kernel
    try:
        if guards is None:
            await kernel.wake(is_heir=is_heir)
            return
        async with awake(kernel, guards):
            await kernel.wake(is_heir=is_heir)
    except BaseException:
        await lease.close()
        raise


def _refuse_kernel(session: NamedSession) -> Lease:
    """Return the lease of a session whose kernel can be copied; refuse any other."""
    whose, lease = f"Session {session.name!r}", session.lease
    if lease is None or not session.is_alive:
        raise InvalidArguments(f"{whose} has no kernel to be copied.", hint="The next run in it starts one.")
    if not hasattr(lease.kernel, "copy"):
        hint = "Python's can be where kernels are forked, which is the default on Linux: see nbtools doctor."
        raise InvalidArguments(f"{whose} cannot be copied: its kernel is not a fork.", hint=hint)
    if session.options.sandbox == "strict" and session.options.network:
        hint = "Sessions without network, or with sandbox='limits', can be copied."
        raise InvalidArguments(f"{whose} cannot be copied: it is confined strictly, with network.", hint=hint)
    return lease


async def copy_kernel(session: NamedSession) -> Lease:
    """Return the lease of a copy of a session's kernel, which waits."""
    lease, whose = _refuse_kernel(session), f"Session {session.name!r}"
    copy = lease.kernel.copy  # type: ignore[attr-defined]  # it has one, as was seen
    try:
        if session.guards is None:
            return lease.with_copy(await copy(whose))
        async with awake(lease.kernel, session.guards):
            twin = await copy(whose)
            # Neither goes on while nobody looks.
            if not await twin.process.freeze():
                await twin.kill()
        return lease.with_copy(twin)
    except OSError as exc:  # a full disk, no descriptor left, or someone has removed its folder
        hint = "Stop it, or restart it, then copy it again."
        raise of_the_system(exc) or InvalidArguments(f"{whose} cannot be copied: {exc}.", hint=hint) from exc


def _first_line(code: str) -> str:
    line = next((line.strip() for line in code.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"


def _refuse_newer(original: NamedSession, copy: NamedSession) -> None:
    """Refuse that a copy takes the place of a session with runs that the copy does not have."""
    # By its count of runs, and by the time: a session that was stopped and begun under its name counts from the start.
    if original.runs > copy.runs_before or original.used_at > copy.started_at:
        last = f", last {original.last_call!r}" if original.last_call else ""
        raise InvalidArguments(
            f"Session {original.name!r} has run since {copy.name!r} was copied from it{last}, and that would be lost.",
            hint=f"%kernels stop {copy.name} drops the copy. To let the copy take the name all the same: "
            f"%kernels stop {original.name}, and then this again.",
            tried=f"adopting session {copy.name!r}",
        )


class Sessions:
    """All sessions. Everything but `to_list` is called on the nbtools loop.

    Parameters
    ----------
    pool
        Gives the pool that kernels come from.
    dispose
        Closes a lease in the background.
    artifacts_folder
        Gives the folder for files that the end of a session wrote.
    idle
        Seconds after which an unused session is ended; `None` never ends one.

    Attributes
    ----------
    most
        How many may run: nobody is asked for one, and each has limits of its own.
    """

    most = 64

    def __init__(
        self,
        pool: Callable[[], Pool],
        dispose: Callable[[Lease], None],
        artifacts_folder: Callable[[], Path | None],
        idle: float | None,
    ) -> None:
        self._pool = pool
        self._artifacts_folder = artifacts_folder
        self._ending: set[asyncio.Task[None]] = set()
        self._dispose = dispose
        self._idle = idle
        self._by_name: dict[str, NamedSession] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def to_list(self) -> list[dict[str, Any]]:
        """Return what the monitor shows of each."""
        return [session.to_dict() for session in list(self._by_name.values())]

    def find(self, name: str) -> NamedSession:
        """Return a session that exists.

        Raises
        ------
        InvalidArguments
            There is none of that name.
        """
        session = self._by_name.get(name)
        if session is None:
            raise InvalidArguments(
                f"There is no session {name!r}.",
                hint=did_you_mean(name, self._by_name, "See %kernels for what there is."),
            )
        return session

    def obtain(self, name: str, options: KernelOptions) -> NamedSession:
        """Return the session of that name, made now if need be.

        Raises
        ------
        InvalidArguments
            It speaks another language, or is confined in another way.
        """
        if options.language != "python" and not options.language.startswith("kernel:"):
            # A program for one script would end with the first run.
            options = dataclasses.replace(options, lasting=True)
        session = self._by_name.get(name)
        if session is None:
            self._refuse_more()
            session = self._by_name[name] = NamedSession(name=name, language=options.language, options=options)
        if session.language != options.language:
            raise InvalidArguments(
                f"Session {name!r} speaks {session.language}, not {options.language}.",
                hint=f"Use another name, or end it first: %kernels stop {name}",
                tried=f"running code in session {name!r}",
            )
        if session.options != options:
            if session.is_alive:
                raise InvalidArguments(
                    f"Session {name!r} was started with other rights (sandbox={session.options.sandbox!r}), "
                    "and those of a running kernel cannot be changed.",
                    hint="Use another name: a person's code and a model's have different rights, so they share no "
                    "session, but a file or a note (memory.write) takes values from one to the other.",
                    tried=f"running code in session {name!r}",
                )
            session.options = options
        return session

    async def revive(self, session: NamedSession) -> tuple[str, ...]:
        """Start a kernel if the session has none that lives; return notes for its user."""
        notes: tuple[str, ...] = ()
        if session.lease is not None and not session.is_alive:
            self.lose(session, "its kernel died")
        if session.lease is None:
            if session.lost is not None:
                why = f"it had lost its state ({session.lost})"
                notes = (f"{BEGAN_EMPTY}session {session.name!r} was started again, {why}",)
            pool = self._pool()
            session.lease = await pool.take(session.options)
            pool.refill(session.options)
            session.lost = None
        self._watch()
        return notes

    async def fork(self, name: str, copy: str) -> None:
        """Copy a session to another name.

        Raises
        ------
        InvalidArguments
            It cannot be copied now, or at all.
        KernelDied
            It, or its copy, ended meanwhile.
        """
        original = self.find(name)
        self._refuse_name(copy)
        self._refuse_more()
        _refuse_busy(original, "copying")
        session = dataclasses.replace(original, name=copy, lease=None, lock=asyncio.Lock(), states=[], copy_of=name)
        async with original.lock:
            session.started_at, session.runs_before = time.monotonic(), original.runs
            session.lease = await copy_kernel(original)
            await _wake(session.lease, original.guards, is_heir=False)
        try:
            self._refuse_name(copy)  # again: a run may have begun one meanwhile
        except InvalidArguments:
            self._dispose(session.lease)
            raise
        self._by_name[copy] = session
        self._watch()

    async def adopt(self, name: str, new_name: str | None) -> None:
        """Let a copy take the place and the name of the session that it was made from, which ends; or a new name.

        Raises
        ------
        InvalidArguments
            It is not a copy and has no new name, another session has that, one of the two is running code, or the
            other has run since.
        """
        copy = self.find(name)
        above = new_name or copy.copy_of
        if above != copy.copy_of and above is not None:
            self._refuse_name(above)
        if above is None:
            raise InvalidArguments(f"Session {name!r} is not a copy.", hint="%kernels tree shows which ones are.")
        original = self._by_name.get(above)
        for session in filter(None, (copy, original)):
            _refuse_busy(session, "adopting a copy of")
        if original is not None:
            _refuse_newer(original, copy)
        del self._by_name[name]
        for session in self._by_name.values():
            session.copy_of = above if session.copy_of == name else session.copy_of
        self._by_name[above], copy.name = copy, above
        copy.copy_of = None if copy.copy_of == above else copy.copy_of
        if original is None:
            return
        # Of its states those that the copy has come from. Its end is the copy's now: what it was to remove is used.
        states = {state.runs: state for state in original.states if state.runs <= copy.runs_before}
        original.states = [state for state in original.states if state.runs > copy.runs_before]
        copy.states = list((states | {state.runs: state for state in copy.states}).values())
        copy.copy_of, copy.runs_before = original.copy_of, original.runs_before
        if original.lease is not None:
            self._dispose(original.lease)
        await asyncio.gather(original.forget(), copy.forget(most=copy.keeps))

    def _refuse_more(self) -> None:
        if (count := sum(session.is_alive for session in self._by_name.values())) >= self.most:
            hint = "End one that is not needed any more: %kernels stop NAME."
            raise LimitExceeded(f"{count} sessions run, and {self.most} may.", hint=hint)

    def _refuse_name(self, copy: str) -> None:
        if copy in self._by_name:
            hint = f"Use another name, or end it first: %kernels stop {copy}"
            raise InvalidArguments(f"There is a session {copy!r} already.", hint=hint)

    async def keep(self, name: str, states: int) -> None:
        """Keep the state before so many of the last runs from now on.

        Raises
        ------
        InvalidArguments
            The kernel cannot be copied.
        """
        session = self.find(name)
        if states:
            _refuse_kernel(session)
        session.keeps = states
        await session.forget(most=states)

    async def keep_state(self, session: NamedSession) -> tuple[str, ...]:
        """Keep the state before a run, where that is asked for; return notes for the person who runs it."""
        if not session.keeps:
            return ()
        try:
            state = EarlierState(lease=await copy_kernel(session), runs=session.runs)
        except NbtoolsError as exc:  # it ends no run
            return (f"this run cannot be undone: {exc}",)
        session.states.append(state)
        for lease in session.give_up(most=session.keeps):
            self._dispose(lease)
        notes: tuple[str, ...] = ()
        limit = session.options.memory_bytes
        while (
            limit is not None and session.states and await aio.in_thread(process_tree.is_beyond, limit, _pids(session))
        ):
            await session.forget(most=len(session.states) - 1)
            notes = ("the oldest states for an undo were given up: with them the session reaches its limit of memory",)
        return notes

    async def undo(self, name: str, runs: int) -> tuple[str, ...]:
        """Take a session back to its state before its last runs; return the files that they wrote, which stay.

        Raises
        ------
        InvalidArguments
            That state was not kept, or the session is running code.
        KernelDied
            The state has ended.
        """
        session = self.find(name)
        _refuse_busy(session, "undoing a run of")
        async with session.lock:
            at = next((at for at, state in enumerate(session.states) if state.runs == session.runs - runs), None)
            if at is None:
                counts = ", ".join(str(session.runs - state.runs) for state in session.states)
                hint = (
                    "It keeps the state before its next run." if session.keeps else f"Say first: %kernels keep {name}"
                )
                hint = f"It can go back by these numbers of runs: {counts}." if counts else hint
                last = "run" if runs == 1 else f"{runs} runs"
                raise InvalidArguments(f"the state of session {name!r} before its last {last} was not kept.", hint=hint)
            undone, session.states = session.states[at:], session.states[:at]
            left = [state.lease for state in undone[1:]]
            try:
                await _wake(undone[0].lease, session.guards, is_heir=True)
                left += [session.lease] if session.lease is not None else []
                session.lease, session.runs, session.lost = undone[0].lease, undone[0].runs, None
            finally:
                for lease in left:
                    # Before its run is told of as undone: it may have been about to write.
                    await lease.kernel.kill()
                    self._dispose(lease)
        return tuple(dict.fromkeys(name for state in undone for name in state.files))

    def lose(self, session: NamedSession, why: str) -> None:
        """Close a session's kernel and keep the name; the next run starts another kernel."""
        session.lost = why
        if session.lease is not None:
            self._dispose(session.lease)
            session.lease = None

    async def stop(self, name: str) -> None:
        """End a session; a run under way in it ends too."""
        session = self.find(name)
        del self._by_name[name]
        await session.finish(self._artifacts_folder())

    async def restart(self, name: str) -> None:
        """End a session's kernel and start a fresh one under the same name."""
        session = self.find(name)
        await session.finish(self._artifacts_folder())
        async with session.lock:
            session.lease, session.lost = None, None
            await self.revive(session)

    async def interrupt(self, name: str) -> None:
        """Interrupt what a session runs."""
        session = self.find(name)
        if session.lease is not None:
            await session.lease.kernel.interrupt()

    async def variables(self, name: str) -> list[dict[str, Any]]:
        """List what a session has defined."""
        session = self.find(name)
        async with session.lock:
            # Only kernels of Python can say it.
            kernel: Any = session.lease.kernel if session.lease is not None else None
            ask = getattr(kernel, "variables", None)
            if ask is None:
                return []
            if session.guards is None:
                return list(await ask())
            async with awake(kernel, session.guards):
                return list(await ask())

    async def close(self) -> None:
        """End all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sessions, self._by_name = list(self._by_name.values()), {}
        await asyncio.gather(*(session.finish(self._artifacts_folder()) for session in sessions), *self._ending)

    def _watch(self) -> None:
        """Look after idle sessions from time to time, as long as there are any."""
        if self._timer is None and self._idle is not None and self._by_name:
            # A quarter of the time is precise enough; more often would wake an idle machine for nothing.
            pause = max(0.05, min(60.0, self._idle / 4))
            self._timer = asyncio.get_running_loop().call_later(pause, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        for name, session in list(self._by_name.items()):
            is_idle = self._idle is not None and time.monotonic() - session.used_at > self._idle
            if is_idle and not session.lock.locked():
                del self._by_name[name]
                task = asyncio.ensure_future(session.finish(self._artifacts_folder()))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
        self._watch()
