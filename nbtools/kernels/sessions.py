"""The named sessions of one owner: found, started, revived, listed and ended when idle."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.kernels.interface import Profile
from nbtools.kernels.pool import Lease, Pool
from nbtools.kernels.session import Session

__all__ = ["Sessions"]


class Sessions:
    """All sessions. Everything but `shown` is called on the nbtools loop.

    Parameters
    ----------
    pool
        Gives the pool that kernels come from.
    dispose
        Ends a lease beside the caller's way.
    idle
        Seconds after which an unused session is ended; `None` never ends one.
    """

    def __init__(self, pool: Callable[[], Pool], dispose: Callable[[Lease], None], idle: float | None) -> None:
        self._pool = pool
        self._dispose = dispose
        self._idle = idle
        self._by_name: dict[str, Session] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def shown(self) -> list[dict[str, Any]]:
        """Return what the monitor shows of each."""
        return [session.to_dict() for session in list(self._by_name.values())]

    def known(self, name: str) -> Session:
        """Return a session that exists.

        Raises
        ------
        InvalidArguments
            There is none of that name.
        """
        found = self._by_name.get(name)
        if found is None:
            raise InvalidArguments(
                f"There is no session {name!r}.",
                hint=did_you_mean(name, self._by_name, "See %kernels for what there is."),
                tried="looking for a session",
            )
        return found

    def obtain(self, name: str, profile: Profile) -> Session:
        """Return the session of that name, made now if need be.

        Raises
        ------
        InvalidArguments
            It speaks another language, or is confined in another way.
        """
        if profile.language != "python" and not profile.language.startswith("kernel:"):
            profile = dataclasses.replace(profile, lasting=True)
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Session(name=name, language=profile.language, profile=profile)
        if found.language != profile.language:
            raise InvalidArguments(
                f"Session {name!r} speaks {found.language}, not {profile.language}.",
                hint=f"Use another name, or end it first: %kernels stop {name}",
                tried=f"running code in session {name!r}",
            )
        if found.profile != profile:
            if found.is_alive:
                raise InvalidArguments(
                    f"Session {name!r} was started with other rights (sandbox={found.profile.sandbox!r}), "
                    "and those of a running kernel cannot be changed.",
                    hint=f"Use another name, or end it first: %kernels stop {name}",
                    tried=f"running code in session {name!r}",
                )
            found.profile = profile
        return found

    async def revive(self, session: Session) -> tuple[str, ...]:
        """See to it that the session has a living kernel; return what its user should know."""
        notes: tuple[str, ...] = ()
        if session.lease is not None and not session.is_alive:
            self.lose(session, "its kernel died")
        if session.lease is None:
            if session.lost is not None:
                notes = (f"session {session.name!r} had lost its state ({session.lost}) and was started anew",)
            pool = self._pool()
            session.lease = await pool.take(session.profile)
            pool.refill(session.profile)
            session.lost = None
        self._watch()
        return notes

    def lose(self, session: Session, why: str) -> None:
        """Give up a session's kernel; the name stays, and the next run starts it anew."""
        session.lost = why
        if session.lease is not None:
            self._dispose(session.lease)
            session.lease = None

    async def stop(self, name: str) -> None:
        """End a session; a run under way in it ends too."""
        session = self.known(name)
        del self._by_name[name]
        if session.lease is not None:
            await session.lease.kernel.kill()
            await session.lease.close()

    async def restart(self, name: str) -> None:
        """End a session's kernel and start a fresh one under the same name."""
        session = self.known(name)
        if session.lease is not None:
            await session.lease.kernel.kill()
        async with session.lock:
            if session.lease is not None:
                await session.lease.close()
            session.lease, session.lost = None, None
            await self.revive(session)

    async def interrupt(self, name: str) -> None:
        """Interrupt what a session runs."""
        session = self.known(name)
        if session.lease is not None:
            await session.lease.kernel.interrupt()

    async def variables(self, name: str) -> list[dict[str, Any]]:
        """List what a session has defined."""
        session = self.known(name)
        async with session.lock:
            ask = getattr(session.lease.kernel, "variables", None) if session.lease is not None else None
            return list(await ask()) if ask is not None else []

    async def close(self) -> None:
        """End all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sessions, self._by_name = list(self._by_name.values()), {}
        await asyncio.gather(*(session.lease.close() for session in sessions if session.lease is not None))

    def _watch(self) -> None:
        """Look after idle sessions from time to time, as long as there are any."""
        if self._timer is None and self._idle is not None and self._by_name:
            pause = max(0.05, min(60.0, self._idle / 4))
            self._timer = asyncio.get_running_loop().call_later(pause, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        for name, session in list(self._by_name.items()):
            is_idle = self._idle is not None and time.monotonic() - session.used_at > self._idle
            if is_idle and not session.lock.locked():
                del self._by_name[name]
                if session.lease is not None:
                    self._dispose(session.lease)
        self._watch()
