"""Copies of the kernels of sessions: how one is made and woken, and what refuses that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments, of_the_system
from nbtools.kernels.planted import awake
from nbtools.kernels.pool import Lease
from nbtools.kernels.sessions.session import NamedSession


def refuse_newer(original: NamedSession, copy: NamedSession) -> None:
    """Refuse that a copy takes the place of a session with runs that the copy does not have."""
    # By its count of runs, and by the time: a session that was stopped and begun under its name counts from the start.
    if original.runs > copy.runs_before or original.used_at > copy.started_at:
        last = f", last {original.last_call!r}" if original.last_call else ""
        raise InvalidArguments(
            f"Session {original.name!r} has run since {copy.name!r} was copied from it{last}, and that would be lost.",
            hint=f"%kernels stop {copy.name} drops the copy. To give the copy the name anyway: "
            f"%kernels stop {original.name}, and then repeat this.",
            tried=f"adopting session {copy.name!r}",
        )


async def wake(lease: Lease, guards: Path | None, *, is_heir: bool) -> None:
    """Let a copy that waits become a kernel; where it is guarded it stands still before and after that."""
    kernel: Any = lease.kernel
    try:
        async with awake(kernel, guards):
            await kernel.wake(is_heir=is_heir)
    except BaseException:
        await lease.close()
        raise


def refuse_kernel(session: NamedSession) -> Lease:
    """Return the lease of a session whose kernel can be copied; refuse any other."""
    whose, lease = f"Session {session.name!r}", session.lease
    if lease is None or not session.is_alive:
        raise InvalidArguments(f"{whose} has no kernel to copy.", hint="The next run in it starts one.")
    if not hasattr(lease.kernel, "copy"):
        hint = "Python's can be where kernels are forked, which is the default on Linux: see nbtools doctor."
        raise InvalidArguments(f"{whose} cannot be copied: its kernel is not a fork.", hint=hint)
    if session.options.sandbox == "strict" and session.options.network:
        hint = "Sessions without network, or with sandbox='limits', can be copied."
        raise InvalidArguments(f"{whose} cannot be copied: it is confined strictly, with network.", hint=hint)
    return lease


async def copy_kernel(session: NamedSession) -> Lease:
    """Return the lease of a copy of a session's kernel, which waits."""
    lease, whose = refuse_kernel(session), f"Session {session.name!r}"
    copy = lease.kernel.copy  # type: ignore[attr-defined]  # it has one, as was seen
    try:
        async with awake(lease.kernel, session.guards):
            twin = await copy(whose)
            if session.guards is not None:
                await twin.settle()
                # Neither goes on while nobody looks.
                if not await twin.process.freeze():
                    await twin.kill()
        return lease.with_copy(twin)
    except OSError as exc:  # a full disk, no descriptor left, or someone has removed its folder
        hint = "Stop it, or restart it, then copy it again."
        raise of_the_system(exc) or InvalidArguments(f"{whose} cannot be copied: {exc}.", hint=hint) from exc
