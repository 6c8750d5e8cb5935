"""One running statement under supervision: its time limit, its Stop button, its progress.

The statement runs in a thread. The coroutine that awaits it watches the clock: when the time is over, or the caller is
cancelled, it interrupts the engine again and again until the thread returns, because an engine loses an interrupt that
arrives while it prepares a statement. An engine that does not return within the grace period is abandoned: its thread
ends some time later, and the next statement gets a fresh connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from nbtools.errors import CallTimeout
from nbtools.ground import aio
from nbtools.sql.engines.protocol import GRACE_S, QueryControl

T = TypeVar("T")

# An interrupt costs microseconds, and a lost one costs the rest of the grace: 25 fit into it.
_INTERRUPT_EVERY_S = 0.02
# People see progress five times a second as continuous; asking a worker for it takes two messages.
_LOOK_S = 0.2


async def run_supervised(
    work: Callable[[QueryControl], T],
    control: QueryControl,
    *,
    timeout: float | None,
    abandon: Callable[[], None],
    on_progress: Callable[[float], None] | None = None,
    killed: bool = False,
) -> T:
    """Run `work` in a thread until it ends, its time is over, or the caller is cancelled.

    Parameters
    ----------
    work
        Gets `control`, which interrupts it.
    control
        Interrupts the statement, and is told why it was stopped.
    timeout
        Seconds; `None` waits for ever.
    abandon
        Called when the engine did not react to interrupts.
    on_progress
        Called about five times a second with the share that is done, where the engine knows it.
    killed
        Whether abandoning ends the process that runs the statement.

    Raises
    ------
    CallTimeout
        The time ran out.
    """
    future = asyncio.ensure_future(aio.in_thread(work, control))
    # An abandoned thread may fail much later, when nobody awaits it: reading the error avoids asyncio's warning.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    end = None if timeout is None else time.monotonic() + timeout
    try:
        await _watch(future, control, end, on_progress)
        if not future.done():
            control.stop("timeout")
            await _interrupt_until_back(future, control)
    except asyncio.CancelledError:
        control.stop("stop")
        if not await _interrupt_until_back(future, control):
            abandon()
        raise
    if not future.done():
        abandon()
        raise _timeout_error(timeout, killed=killed)
    return future.result()


def _timeout_error(timeout: float | None, *, killed: bool) -> CallTimeout:
    what = "its worker process was killed" if killed else "it was abandoned"
    hint = (
        "Ask for less (fewer rows, a filter, an aggregate), or allow more time."
        if killed
        else "It may continue to use memory in this process. Run such queries isolated: then they are killed."
    )
    return CallTimeout(
        f"the query exceeded its {timeout:g} s and did not stop when it was interrupted; {what}.", hint=hint
    )


async def _watch(
    future: asyncio.Future[T], control: QueryControl, end: float | None, on_progress: Callable[[float], None] | None
) -> None:
    """Wait until the work is done or its time is over; pass on progress, and the interrupts of others."""
    while not future.done():
        left = _LOOK_S if end is None else min(_LOOK_S, end - time.monotonic())
        if left <= 0:
            return
        await asyncio.wait({future}, timeout=left)
        if control.reason is not None:
            control.interrupt()
        elif on_progress is not None and not future.done():
            share = control.progress()
            if share is not None:
                on_progress(share)


async def _interrupt_until_back(future: asyncio.Future[T], control: QueryControl) -> bool:
    """Interrupt until the work returns or the grace is over; return whether it has returned."""
    end = time.monotonic() + GRACE_S
    while not future.done() and time.monotonic() < end:
        control.interrupt()
        await asyncio.wait({future}, timeout=_INTERRUPT_EVERY_S)
    return future.done()
