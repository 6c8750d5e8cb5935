"""One background loop thread for everything asynchronous, and the blocking names derived from it.

A notebook's own loop is already running and sockets dislike two owners, so all async objects of nbtools live on one
loop in a daemon thread. A behaviour is written once, as a coroutine:

- `run` drives it from blocking code. Ctrl-C and the Stop button reach it: the task is cancelled, given a moment to
  return what it has, and `Interrupted` carries that value to what can show it.
- `blocking` derives the blocking name of a coroutine function in one line.
- `here` awaits it from any other loop, such as the notebook's.
- `once` lets it come to its end, also when its caller is cancelled.
- `in_thread` runs blocking work beside the loop, in a daemon thread that never holds up the interpreter's exit.
- `watched` tells when a coroutine holds the loop up, which makes everything else wait.

Nothing that runs on the loop ends it: not ``sys.exit`` in a task, not ``KeyboardInterrupt``, not ``loop.stop``. A
process forked from this one gets its own loop at first use.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import functools
import os
import queue
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from nbtools.errors import CallTimeout, Cancelled, Interrupted, LimitExceeded, NbtoolsError, circumstances
from nbtools.texts.other_words import with_hint

P = ParamSpec("P")
T = TypeVar("T")

NOT_CARRIED = (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt)
"""What a future cannot carry: they would end the generator that awaits, or the loop itself. `in_thread` raises a
RuntimeError for them, whose cause they are."""

# A cancelled task may need this long to interrupt a kernel, then kill it, and to collect what was printed.
_HAND_OVER_S = 10.0
# Ctrl-C does not end every wait on a lock: not on Windows, not when another thread is handed the signal, and not when
# it comes in the moment before the wait begins. Between two waits Python looks for it.
_WAIT_S = 0.1


def start_thread(target: Callable[..., object], *args: Any, name: str) -> threading.Thread:
    """Start a daemon thread and return it.

    Raises
    ------
    LimitExceeded
        The system gives no more threads.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    with circumstances():
        thread.start()
    return thread


def _after_fork(function: Callable[[], None]) -> None:
    """Call a function in each forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


class _LoopThread:
    """The loop and its thread, made again in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        _after_fork(self._forget)

    def _forget(self) -> None:
        # The lock may have been held by a thread that does not exist in the child.
        self._lock = threading.Lock()
        self._loop = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of nbtools, starting its thread at first use."""
        loop = self._loop
        if loop is not None:
            return loop
        with self._lock:
            if self._loop is None:
                # pyzmq and the subprocess pipes of Windows want different loops; sockets are what kernels need.
                fresh = asyncio.SelectorEventLoop() if os.name == "nt" else asyncio.new_event_loop()
                start_thread(self._serve, fresh, name="nbtools-loop")
                self._loop = fresh
            return self._loop

    def _serve(self, served: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(served)
        while True:
            try:
                served.run_forever()
            except (SystemExit, KeyboardInterrupt) as exc:
                # asyncio lets these two escape from a task or callback; the awaiting caller has received them already.
                note = {"message": f"{type(exc).__name__} was raised on nbtools' loop, which goes on", "exception": exc}
                served.call_exception_handler(note)
            except Exception as exc:
                # The loop itself is broken, perhaps by a closed selector: the next call gets another.
                self._loop = None
                served.call_exception_handler({"message": "nbtools' loop broke and is made again", "exception": exc})
                return


_THREAD = _LoopThread()
loop = _THREAD.loop


class _LoopWatch:
    """Checks in its own thread, and only while work is watched, whether the loop answers."""

    def __init__(self) -> None:
        self._forget()
        _after_fork(self._forget)

    def _forget(self) -> None:
        self.guests: dict[asyncio.Task[Any] | None, str] = {}
        self._signal = threading.Event()
        self._pause = threading.Event()
        self._ident = 0

    def begin(self) -> None:
        """Make sure that the watch runs."""
        if self._ident != threading.get_ident():
            if not self._ident:
                start_thread(self._look, name="nbtools-watch")
            self._ident = threading.get_ident()
        if not self._signal.is_set():
            self._signal.set()

    def _look(self) -> None:
        while True:
            self._signal.wait()
            served, answered = loop(), threading.Event()
            served.call_soon_threadsafe(answered.set)
            # Asked twice: a machine that slept has both threads late.
            if not answered.wait(watched.seconds / 2) and not answered.wait(watched.seconds / 2) and self.guests:
                self._tell(served)
                answered.wait()  # one warning for each time
            self._pause.wait(watched.seconds)
            self._signal.clear()
            if self.guests:
                self._signal.set()

    def _tell(self, served: asyncio.AbstractEventLoop) -> None:
        line = _innermost_line(self._ident)
        # A task that guest code started itself has no known name.
        name = self.guests.get(asyncio.current_task(served)) or " or ".join(list(self.guests.values()))
        # Where warnings are errors, this thread continues anyway.
        with contextlib.suppress(Warning):
            warnings.warn(
                f"{name} keeps nbtools' loop for more than {watched.seconds:g} s, and every other call waits: {line}. "
                "Make it a plain function, or await what takes long.",
                RuntimeWarning,
                stacklevel=2,
            )


_WATCH = _LoopWatch()


def _innermost_line(ident: int) -> str:
    """Return where a thread is: the innermost line outside the standard library."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - only frames tell where another thread is
    lines = traceback.extract_stack(frame)
    library = os.path.dirname(os.__file__)  # noqa: PTH120 - compared as text
    own = [line for line in lines if not line.filename.startswith((library, "<"))]
    innermost = (own or lines)[-1]
    return f"{innermost.filename}:{innermost.lineno} in {innermost.name}"


class watched:  # noqa: N801 - read as a verb; a generator would take three times as long, in every call
    """Warn when what is awaited meanwhile holds the loop up; the warning tells where it is.

    Parameters
    ----------
    name
        Whose work it is.

    Attributes
    ----------
    seconds
        The loop is shared: a coroutine that occupies it for so long contains blocking code.
    """

    seconds = 2.0

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._outer = _WATCH.guests.get(self._task)
        _WATCH.guests[self._task] = self._name
        _WATCH.begin()

    def __exit__(self, *exc_info: object) -> None:
        if self._outer is None:
            del _WATCH.guests[self._task]
        else:
            _WATCH.guests[self._task] = self._outer


class _Workers:
    """Daemon threads that are used again: starting one costs more than a whole call may.

    The pools of the standard library wait for their threads when the interpreter ends, so one hung tool would keep a
    notebook's kernel from stopping.
    """

    _IDLE_S = 30.0

    def __init__(self) -> None:
        self._idle: collections.deque[queue.SimpleQueue[Callable[[], None]]] = collections.deque()
        _after_fork(self._idle.clear)

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a free thread."""
        try:
            self._idle.pop().put(work)
        except IndexError:
            # By the inbox, not as an argument: a thread keeps its arguments for as long as it lives.
            inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
            inbox.put(work)
            start_thread(self._serve, inbox, name="nbtools-work")

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
                work = inbox.get()  # chosen at the same moment: the work is on its way


_WORKERS = _Workers()


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
    Cancelled
        It was cancelled from within: no other code knows its task.
    Interrupted
        Ctrl-C: the coroutine was cancelled first and its last words are in ``value``.
    RuntimeError
        Called on the loop's own thread, which would wait for itself.
    """
    try:
        target = loop()
    except LimitExceeded:
        coro.close()
        raise
    if asyncio._get_running_loop() is target:  # noqa: SLF001 - the public name raises where none runs
        coro.close()
        raise RuntimeError("a blocking name was called on nbtools' own loop; await its async twin there")
    done = threading.Event()
    started: list[asyncio.Task[T]] = []

    def start() -> None:
        task = target.create_task(coro if timeout is None else _with_timeout(coro, timeout))
        started.append(task)
        task.add_done_callback(lambda _: done.set())

    def stop() -> None:
        # Ctrl-C may arrive even before `start` was passed to the loop.
        if started:
            started[0].cancel()
        else:
            coro.close()
            done.set()

    try:
        target.call_soon_threadsafe(start)
        while not done.wait(_WAIT_S):
            continue  # as `wait` does, without one more call in every path
    except KeyboardInterrupt:
        target.call_soon_threadsafe(stop)
        raise Interrupted(_last_words(done, started)) from None
    if started[0].cancelled():
        raise Cancelled("the work cancelled itself.")
    return started[0].result()


def wait(event: threading.Event, timeout: float | None = None) -> bool:
    """Wait for an event, so that Ctrl-C ends the waiting within a tenth of a second, and return whether it is set.

    Parameters
    ----------
    event
        The event to wait for.
    timeout
        Seconds; `None` waits for ever.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not event.wait(_WAIT_S if deadline is None else min(_WAIT_S, deadline - time.monotonic())):
        if deadline is not None and time.monotonic() >= deadline:
            return False
    return True


def _last_words(done: threading.Event, started: list[asyncio.Task[T]]) -> T | None:
    """Wait a bounded time for a cancelled task and return its value, if it has one."""
    if not done.wait(_HAND_OVER_S) or not started:
        return None
    task = started[0]
    if task.cancelled() or task.exception() is not None:
        return None
    return task.result()


async def _with_timeout(coro: Coroutine[Any, Any, T], seconds: float) -> T:
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            return await coro
    except TimeoutError as exc:
        # The coroutine may have met its own timeout, such as a socket's: that one speaks for itself.
        if isinstance(exc, CallTimeout) or not clock.expired():
            raise
        raise CallTimeout(f"timed out after {seconds:g} s", hint="Allow more time, or do less at once.") from None


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Derive the blocking twin of a coroutine function; it works for methods too.

    An error of ours remembers the outermost twin, which is what the caller wrote.

    Examples
    --------
    >>> async def adouble(x): return 2 * x
    >>> double = blocking(adouble)
    >>> double(21)
    42
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with circumstances():
                return run(function(*args, **kwargs))
        except NbtoolsError as exc:
            exc.method = wrapper.__qualname__
            raise
        except TypeError as exc:
            if (explained := with_hint(exc, function, wrapper.__qualname__)) is exc:
                raise
            raise explained from None

    wrapper.__name__ = function.__name__.removeprefix("a")
    wrapper.__qualname__ = function.__qualname__.replace(function.__name__, wrapper.__name__)
    return wrapper


async def here(coro: Coroutine[Any, Any, T]) -> T:
    """Await, from whatever loop is running, a coroutine that must run on the nbtools loop."""
    target = loop()
    if asyncio.get_running_loop() is target:
        return await coro
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coro, target))


def once(method: Callable[[Any], Coroutine[Any, Any, T]]) -> Callable[[Any], Coroutine[Any, Any, T]]:
    """Let a method without arguments run once per object, in a task of its own; each call waits for its end.

    Who is cancelled stops waiting, and it goes on: what is released in part would be taken for released.
    """
    name = f"_{method.__name__}_task"

    @functools.wraps(method)
    async def wrapper(self: Any) -> T:
        if name not in vars(self):
            vars(self)[name] = asyncio.ensure_future(method(self))
        value: T = await asyncio.shield(vars(self)[name])
        return value

    return wrapper


def spawn(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    """Do something beside the caller, in a task that is among `tasks` until it is over: a loop holds none itself."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
    """Run blocking work in a daemon thread, with the caller's context variables.

    Returns an awaitable of the result. Cancelling it abandons the thread: a caller whose work can be interrupted
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
        except NOT_CARRIED as exc:
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
