"""Named sessions: kernels whose state lasts from one run to the next, and the table of all sessions of one owner."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.tool import Effects
from nbtools.errors import InvalidArguments, KernelDied, LimitExceeded, NbtoolsError, did_you_mean, nearest
from nbtools.ground import aio
from nbtools.kernels.interface import BEGAN_EMPTY, CANNOT_UNDO, STATES_GONE, KernelOptions
from nbtools.kernels.planted import awake
from nbtools.kernels.pool import Lease, Pool
from nbtools.kernels.sessions.copies import copy_kernel, refuse_kernel, refuse_newer, wake
from nbtools.kernels.sessions.session import EarlierState, NamedSession
from nbtools.processes import process_tree

# Seconds from a run to the copy of its state, in which its result reaches its caller.
_AHEAD_S = 0.005

_ENDS = Effects(destructive=True, idempotent=True)
CHANGES: Mapping[str, tuple[str, Effects]] = {
    "start": ("runs", Effects()),
    "stop": ("ended, and its variables are gone", _ENDS),
    "restart": ("runs again, without variables", _ENDS),
    "interrupt": ("was interrupted", Effects()),
    "adopt": ("has taken the place of the session that it was copied from", Effects(destructive=True)),
}
"""What people do with sessions: how it is told, and what it does to the world."""


def _refuse_busy(session: NamedSession, doing: str) -> None:
    if session.lock.locked():
        hint = f"Wait for the end of its run, or stop it: %kernels interrupt {session.name}"
        raise InvalidArguments(
            f"Session {session.name!r} is running code.", hint=hint, tried=f"{doing} session {session.name!r}"
        )


def _pids(session: NamedSession) -> list[int]:
    leases = [session.lease, *(state.lease for state in session.states)]
    return [pid for lease in leases if lease is not None and (pid := lease.kernel.pid) is not None]


def _how_far(session: NamedSession) -> str:
    """Return how far a session can go back, or what has to be said first."""
    if counts := ", ".join(map(str, session.undoable)):
        return f"It can be undone by these numbers of runs: {counts}."
    if session.unkept is not None:
        return session.unkept.hint or "The same reason may prevent it again."
    return (
        "It keeps the state before its next run." if session.keeps else f"Run this first: %kernels keep {session.name}"
    )


def _why_not(session: NamedSession, runs: int) -> str:
    """Return why the state before so many runs was not kept, where that is known."""
    if session.unkept is None or (runs > 1 and session.undoable):
        return "."
    return f": {session.unkept.message}"


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
        self._going_on: set[asyncio.Task[None]] = set()
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
                hint=did_you_mean(name, self._by_name, "%kernels in a notebook, kernels.list() in Python list them."),
            )
        return session

    def obtain(self, name: str, options: KernelOptions) -> NamedSession:
        """Return the session of that name, made now if need be.

        Raises
        ------
        InvalidArguments
            It speaks another language, or has rights that the options do not give.
        """
        session = self._by_name.get(name)
        if session is None:
            self._refuse_more()
            session = self._by_name[name] = NamedSession(name=name, language=options.language, options=options)
        self.settle_rights(session, options)
        return session

    def settle_rights(self, session: NamedSession, options: KernelOptions) -> None:
        """Give a session without a kernel these options; refuse a caller who has fewer rights than one that runs.

        Raises
        ------
        InvalidArguments
            See `obtain`.
        """
        name = session.name
        if options.language != "python" and not options.language.startswith("kernel:"):
            # A program for one script would end with the first run.
            options = dataclasses.replace(options, lasting=True)
        if session.language != options.language:
            raise InvalidArguments(
                f"Session {name!r} speaks {session.language}, not {options.language}.",
                hint=f"Use another name, or end it first: %kernels stop {name}",
                tried=f"running code in session {name!r}",
            )
        if session.options != options:
            # What runs in a strict session, such as a model's, has the session's rights and not its caller's.
            if session.is_alive and session.options.sandbox == "strict" != options.sandbox:
                return
            if session.is_alive:
                raise InvalidArguments(
                    f"Session {name!r} was started with other rights (sandbox={session.options.sandbox!r}), "
                    "and those of a running kernel cannot be changed.",
                    hint="Use another name; a file or a note (memory.write) takes values from one to the other.",
                    tried=f"running code in session {name!r}",
                )
            session.options = options
            # They have the other rights.
            for lease in session.give_up(most=0):
                self._dispose(lease)

    async def revive(self, session: NamedSession) -> tuple[str, ...]:
        """Start a kernel if the session has none that lives; return notes for its user.

        Raises
        ------
        KernelDied
            It was stopped while the caller waited for it.
        """
        if self._by_name.get(session.name) is not session:
            hint = "Run it again to begin in a session without variables."
            raise KernelDied(f"Session {session.name!r} was stopped before this began.", hint=hint)
        notes: tuple[str, ...] = ()
        if session.lease is not None and not session.is_alive:
            self.lose(session, "its kernel died")
        if session.lease is None:
            if session.lost is not None:
                why = f"it had lost its state ({session.lost})"
                notes = (f"{BEGAN_EMPTY}session {session.name!r} was started again, {why}",)
            else:
                others = [name for name, one in self._by_name.items() if one is not session and one.is_alive]
                near = nearest(session.name, others)
                notes = (f"{BEGAN_EMPTY}session {session.name!r}; there is {near!r} too",) if near else ()
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
        own: dict[str, Any] = {
            "lock": asyncio.Lock(),
            "lease": None,
            "states": [],
            "ahead": None,
            "news": (),
            "unkept": None,
        }
        session = dataclasses.replace(original, name=copy, copy_of=name, **own)
        async with original.alone():
            session.started_at, session.runs_before = time.monotonic(), original.runs
            session.lease = await copy_kernel(original)
            await wake(session.lease, original.guards, is_heir=False)
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
        both = [session for session in (copy, original) if session is not None]
        await asyncio.gather(*(session.settle() for session in both))
        for session in both:
            _refuse_busy(session, "adopting a copy of")
        if original is not None:
            refuse_newer(original, copy)
        del self._by_name[name]
        for session in self._by_name.values():
            session.copy_of = above if session.copy_of == name else session.copy_of
        self._by_name[above], copy.name = copy, above
        copy.copy_of = None if copy.copy_of == above else copy.copy_of
        if original is None:
            return
        # Of its states those that the copy has come from. Its end is the copy's now: what it was to remove is used.
        states = {state.runs: state for state in original.states if state.runs < copy.runs_before}
        original.states = [state for state in original.states if state.runs >= copy.runs_before]
        copy.states = list((states | {state.runs: state for state in copy.states}).values())
        copy.copy_of, copy.runs_before = original.copy_of, original.runs_before
        if original.lease is not None:
            self._dispose(original.lease)
        await asyncio.gather(original.forget(), copy.forget(most=copy.keeps + copy.is_kept))

    def _refuse_more(self) -> None:
        if (count := sum(session.is_alive for session in self._by_name.values())) >= self.most:
            hint = "End one that is not needed any more: %kernels stop NAME."
            raise LimitExceeded(f"{count} sessions run, and {self.most} may.", hint=hint)

    def _refuse_name(self, copy: str) -> None:
        if copy in self._by_name:
            hint = f"Use another name, or end it first: %kernels stop {copy}"
            raise InvalidArguments(f"A session {copy!r} already exists.", hint=hint)

    async def keep(self, name: str, states: int) -> None:
        """Keep the state before so many of the last runs from now on.

        Raises
        ------
        InvalidArguments
            The kernel cannot be copied.
        """
        session = self.find(name)
        if states:
            refuse_kernel(session)
        await session.settle()
        # What only a copy finds out, such as threads, is told now; a run under way is not waited for.
        if states and not session.lock.locked():
            async with session.alone():
                if not session.is_kept:
                    await self._add_state(session)
        session.keeps = states
        await session.forget(most=states and states + session.is_kept)
        self.keep_ahead(session)

    async def keep_state(self, session: NamedSession) -> tuple[str, ...]:
        """Keep the state before a run, where that is asked for; return notes for the person who runs it."""
        if not session.keeps:
            return ()
        for lease in session.drop_dead():
            self._dispose(lease)
        try:
            session.unkept = None
            if not session.is_kept:
                await self._add_state(session)
        except NbtoolsError as exc:  # it ends no run
            session.unkept = exc
            return (f"{CANNOT_UNDO}{exc}",)
        for lease in session.give_up(most=session.keeps):
            self._dispose(lease)
        notes, session.news = session.news, ()
        return notes

    def keep_ahead(self, session: NamedSession) -> None:
        """Keep the state before the next run when the caller of the last one has its result."""

        def begin() -> None:
            is_there = self._by_name.get(session.name) is session and session.is_alive and not session.is_kept
            # What runs by now does it for itself.
            if is_there and not session.lock.locked() and (session.ahead is None or session.ahead.done()):
                session.ahead = asyncio.ensure_future(keep())

        async def keep() -> None:
            # Whatever refuses it may have gone when the next run begins, which tries again, and tells it.
            with contextlib.suppress(NbtoolsError):
                own_bytes = await aio.in_thread(process_tree.own_bytes, _pids(session)[:1])
                await self._add_state(session, own_bytes)

        if session.keeps:
            asyncio.get_running_loop().call_later(_AHEAD_S, begin)

    async def _add_state(self, session: NamedSession, own_bytes: int = 0) -> None:
        state = EarlierState(lease=await copy_kernel(session), runs=session.runs, own_bytes=own_bytes)
        session.states.append(state)
        # To look takes longer than to copy, where there is much memory.
        aio.spawn(self._bound(session), self._going_on)

    async def _bound(self, session: NamedSession) -> None:
        """Give up the oldest states where the session and they together are beyond its limit of memory."""
        limit = session.options.memory_bytes
        while (
            limit
            and (count := len(session.states))
            and await aio.in_thread(process_tree.is_beyond, limit, _pids(session))
        ):
            # What another look has given up meanwhile counts.
            await session.forget(most=max(count, len(session.states)) - 1)
            session.add_news(f"{STATES_GONE}: with them the session reaches its limit of memory")

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
        async with session.alone():
            # The last one: before it one that has ended may lie.
            at = max((at for at, state in enumerate(session.states) if state.runs == session.runs - runs), default=None)
            what = f"the state of session {name!r} before its last {'run' if runs == 1 else f'{runs} runs'}"
            if at is None:
                raise InvalidArguments(f"{what} was not kept{_why_not(session, runs)}", hint=_how_far(session))
            undone, session.states = session.states[at:], session.states[:at]
            try:
                await wake(undone[0].lease, session.guards, is_heir=True)
            except BaseException as exc:
                session.states += undone[1:]
                if isinstance(exc, KernelDied):
                    raise KernelDied(f"{what} has ended: {exc}", hint=_how_far(session)) from exc
                raise
            left = [state.lease for state in undone[1:]] + ([session.lease] if session.lease is not None else [])
            session.lease, session.runs, session.lost = undone[0].lease, undone[0].runs, None
            session.unkept = None
            for lease in left:
                # Before its run is told of as undone: it may have been about to write.
                await lease.kernel.kill()
                self._dispose(lease)
        self.keep_ahead(session)
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
        async with session.alone():
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
        async with session.alone():
            # Only kernels of Python can say it.
            kernel: Any = session.lease.kernel if session.lease is not None else None
            ask = getattr(kernel, "variables", None)
            if ask is None:
                return []
            async with awake(kernel, session.guards):
                return list(await ask())

    async def close(self) -> None:
        """End all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sessions, self._by_name = list(self._by_name.values()), {}
        await asyncio.gather(*(session.finish(self._artifacts_folder()) for session in sessions))
        await asyncio.gather(*self._going_on)

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
                aio.spawn(session.finish(self._artifacts_folder()), self._going_on)
        self._watch()
