"""One background loop thread for everything asynchronous, and the blocking names derived from it.

A notebook's own loop is already running and sockets dislike two owners, so all async objects of nbtools live on one
loop in a daemon thread. A behaviour is written once, as a coroutine:

- `run` drives it from blocking code. Ctrl-C and the Stop button reach it: the task is cancelled, given a moment to
  return what it has, and `Interrupted` carries that value to whoever can show it.
- `blocking` derives the blocking name of a coroutine function in one line.
- `here` awaits it from any other loop, the notebook's for one.
- `in_thread` runs blocking work beside the loop, in a daemon thread that never holds up the interpreter's exit.

A process forked from this one gets a loop of its own at first use.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import functools
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from nbtools.errors import CallTimeout

__all__ = ["Interrupted", "blocking", "here", "in_thread", "loop", "run"]

P = ParamSpec("P")
T = TypeVar("T")

# A cancelled task may need this long to interrupt a kernel, then kill it, and to collect what was printed.
_HAND_OVER_S = 10.0
# Windows cannot interrupt an endless wait on a lock.
_WAIT_S = 0.1 if os.name == "nt" else None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or Stop ended the work; `value` is what it returned on the way out, `None` when nothing."""

    def __init__(self, value: Any = None) -> None:
        super().__init__("stopped by the user")
        self.value = value


class _LoopThread:
    """The loop and its thread, made anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # The lock may have been held by a thread that does not exist in the child.
        self._lock = threading.Lock()
        self._loop = None

    def get(self) -> asyncio.AbstractEventLoop:
        found = self._loop
        if found is not None:
            return found
        with self._lock:
            if self._loop is None:
                # pyzmq and the subprocess pipes of Windows want different loops; sockets are what kernels need.
                made = asyncio.SelectorEventLoop() if os.name == "nt" else asyncio.new_event_loop()
                threading.Thread(target=self._serve, args=(made,), name="nbtools-loop", daemon=True).start()
                self._loop = made
            return self._loop

    @staticmethod
    def _serve(served: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(served)
        served.run_forever()


_THREAD = _LoopThread()


class _Workers:
    """Daemon threads that are used again: starting one costs more than a whole call may.

    The pools of the standard library wait for their threads when the interpreter ends, so one hung tool would keep a
    notebook's kernel from stopping.
    """

    _IDLE_S = 30.0

    def __init__(self) -> None:
        self._idle: collections.deque[queue.SimpleQueue[Callable[[], None]]] = collections.deque()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._idle.clear)

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread that nobody uses."""
        try:
            self._idle.pop().put(work)
        except IndexError:
            # By the inbox, not as an argument: a thread keeps its arguments for as long as it lives.
            inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
            inbox.put(work)
            threading.Thread(target=self._serve, args=(inbox,), name="nbtools-work", daemon=True).start()

    def _serve(self, inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
        work = inbox.get()
        while True:
            work()
            del work  # or it would keep its arguments alive while the thread idles
            self._idle.append(inbox)
            try:
                work = inbox.get(timeout=self._IDLE_S)
            except queue.Empty:
                with contextlib.suppress(ValueError):
                    self._idle.remove(inbox)
                    return
                work = inbox.get()  # chosen in the same moment: the work is on its way


_WORKERS = _Workers()


def loop() -> asyncio.AbstractEventLoop:
    """Return the loop of nbtools, starting its thread at first use."""
    return _THREAD.get()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def run(coro: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
    """Drive a coroutine on the nbtools loop and block until it ends.

    Parameters
    ----------
    coro
        The coroutine; it runs in the caller's context variables.
    timeout
        Seconds until it is cancelled; `None` waits for ever.

    Raises
    ------
    CallTimeout
        The time ran out.
    Interrupted
        Ctrl-C: the coroutine was cancelled first and its last words are in ``value``.
    RuntimeError
        Called on the loop's own thread, which would wait for itself.
    """
    target = loop()
    if _running() is target:
        coro.close()
        raise RuntimeError("a blocking name was called on nbtools' own loop; await its async twin there")
    done = threading.Event()
    started: list[asyncio.Task[T]] = []

    def start() -> None:
        task = target.create_task(coro if timeout is None else _timed(coro, timeout))
        started.append(task)
        task.add_done_callback(lambda _: done.set())

    def stop() -> None:
        # Ctrl-C may arrive even before `start` was handed to the loop.
        if started:
            started[0].cancel()
        else:
            coro.close()
            done.set()

    try:
        target.call_soon_threadsafe(start)
        while not done.wait(_WAIT_S):
            pass
    except KeyboardInterrupt:
        target.call_soon_threadsafe(stop)
        raise Interrupted(_last_words(done, started)) from None
    return started[0].result()


def _last_words(done: threading.Event, started: list[asyncio.Task[T]]) -> T | None:
    """Wait a bounded time for a cancelled task and return its value, if it has one."""
    if not done.wait(_HAND_OVER_S) or not started:
        return None
    task = started[0]
    if task.cancelled() or task.exception() is not None:
        return None
    return task.result()


async def _timed(coro: Coroutine[Any, Any, T], seconds: float) -> T:
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            return await coro
    except TimeoutError as exc:
        # The coroutine may have met a timeout of its own, a socket's for one: that one speaks for itself.
        if isinstance(exc, CallTimeout) or not clock.expired():
            raise
        raise CallTimeout(f"timed out after {seconds:g} s", hint="Allow more time, or do less at once.") from None


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Derive the blocking twin of a coroutine function; it works for methods too.

    Examples
    --------
    >>> async def adouble(x): return 2 * x
    >>> double = blocking(adouble)
    >>> double(21)
    42
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    wrapper.__name__ = function.__name__.removeprefix("a")
    wrapper.__qualname__ = function.__qualname__.replace(function.__name__, wrapper.__name__)
    return wrapper


async def here(coro: Coroutine[Any, Any, T]) -> T:
    """Await, from whatever loop is running, a coroutine that must run on the nbtools loop."""
    target = loop()
    if _running() is target:
        return await coro
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coro, target))


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
    """Run blocking work in a daemon thread, with the caller's context variables.

    Returns an awaitable of the result. Cancelling it abandons the thread: whoever starts work that can be interrupted
    must interrupt it when the cancellation arrives.
    """
    running = asyncio.get_running_loop()
    future: asyncio.Future[T] = running.create_future()
    context = contextvars.copy_context()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]  # no error means that there is a value

    def work() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = context.run(function, *args, **kwargs)
        except (StopIteration, SystemExit, KeyboardInterrupt) as exc:
            # A future cannot carry them: they would end the generator that awaits, or the loop itself.
            error = RuntimeError(f"{getattr(function, '__name__', function)} raised {type(exc).__name__}")
            error.__cause__ = exc
        except BaseException as exc:
            error = exc
        try:
            running.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return  # the loop closed meanwhile: nobody waits any more

    _WORKERS.start(work)
    return future
