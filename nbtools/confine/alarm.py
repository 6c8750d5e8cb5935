"""The alarm of the system as a limit of time: it interrupts what waits in the system, where nothing else reaches."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt a system call that waits longer; outside of the main thread nothing does.

    Raises
    ------
    TimeoutError
        The time is over, with ``ETIMEDOUT``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "took too long")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
