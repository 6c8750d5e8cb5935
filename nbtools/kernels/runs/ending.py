"""How a run ends when it does not end by itself: interrupt, wait for the grace, kill, wait again.

The same steps serve a timeout, a stop and a limit. Cancelling the task that awaits `supervise` is the Stop button; the
cancellation is taken in (``task.uncancel``), so that the caller goes on and can return what the code printed so far.
A second cancellation while the grace runs kills at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

from nbtools.ground import aio

T = TypeVar("T")
Ending = Literal["timeout", "stopped", "output_limit"]
# After a kill the process is gone within milliseconds; a machine in heavy swap may take longer.
_DEAD_S = 5.0


async def supervise(
    done: asyncio.Future[Any],
    *,
    timeout: float | None,
    grace: float,
    interrupt: Callable[[], Awaitable[None]],
    kill: Callable[[], Awaitable[None]],
    runaway: asyncio.Event | None = None,
) -> Ending | None:
    """Wait for `done`, and end the run when it must be ended.

    Parameters
    ----------
    done
        Done as soon as the code has ended or its process is gone. It is never cancelled here.
    timeout
        Seconds until the interrupt; `None` sends none.
    grace
        Seconds from the interrupt to the kill.
    interrupt
        Interrupts the code; a failure is ignored, because the kill follows.
    kill
        Kills the kernel; a failure is ignored.
    runaway
        Set when the output has grown beyond all limits.

    Returns
    -------
    str or None
        What ended the run; `None` when it ended by itself.
    """
    ending = await _undisturbed(done, timeout, runaway)
    if ending is None:
        return None
    # Libraries swallow a KeyboardInterrupt now and then, so it is sent once more at half time.
    for _ in range(2):
        await _quietly(interrupt)
        # A second Stop means: do not wait any longer.
        if not await _patiently(done, grace / 2) or done.done():
            break
    if not done.done():
        await _quietly(kill)
        await _patiently(done, _DEAD_S)
    return ending


async def stoppable(work: Coroutine[Any, Any, T]) -> T:
    """Run on the nbtools loop, from whatever loop is running; a cancellation is passed on, and its result awaited.

    `aio.here` does not do: a cancellation there gives up the result, which is what the code printed so far.
    """
    target, here = aio.loop(), asyncio.get_running_loop()
    if here is target:
        return await work
    started: list[asyncio.Task[T]] = []
    done = asyncio.Event()

    def start() -> None:
        task = target.create_task(work, context=context)
        started.append(task)
        task.add_done_callback(lambda _: here.call_soon_threadsafe(done.set))

    def cancel() -> None:
        started[0].cancel()

    context = contextvars.copy_context()
    target.call_soon_threadsafe(start)
    while not done.is_set():
        try:
            await done.wait()
        except asyncio.CancelledError:
            take_in()
            target.call_soon_threadsafe(cancel)
    return started[0].result()


async def _undisturbed(
    done: asyncio.Future[Any], seconds: float | None, runaway: asyncio.Event | None
) -> Ending | None:
    """Wait until the run ends, or until there is a reason to end it."""
    waiters: set[asyncio.Future[Any]] = {done}
    # An event has no future to wait for beside others.
    flag = asyncio.ensure_future(runaway.wait()) if runaway is not None else None
    if flag is not None:
        waiters.add(flag)
    try:
        await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        take_in()
        # A Stop that comes with the end is too late: the run has ended by itself.
        return None if done.done() else "stopped"
    finally:
        if flag is not None:
            flag.cancel()
    if done.done():
        return None
    return "output_limit" if runaway is not None and runaway.is_set() else "timeout"


async def _patiently(done: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for the end; false when a cancellation said that nobody wants to wait."""
    try:
        await asyncio.wait({done}, timeout=max(0.0, seconds))
    except asyncio.CancelledError:
        take_in()
        return False
    return True


async def _quietly(step: Callable[[], Awaitable[None]]) -> None:
    with contextlib.suppress(Exception):
        await step()


async def to_the_end(work: Awaitable[T]) -> T:
    """Await something short, whatever cancels the current task meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            take_in()
    return task.result()


def take_in() -> None:
    """Mark the cancellation of the current task as dealt with."""
    task = asyncio.current_task()
    # Each Stop counts up; one left over would cancel the next await of the caller.
    while task is not None and task.cancelling():
        task.uncancel()
