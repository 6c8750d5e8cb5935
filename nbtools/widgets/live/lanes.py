"""Lanes: threads that answer the requests of views, one request after the other in each lane.

A callback of a widget runs in the thread that runs cells, so it may only hand work on. A page of a table must not wait
for a profile: they take different lanes. A thread starts with its first work, is a daemon, and ends when it had nothing
to do for a while, so widgets that nobody looks at cost nothing.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable

from nbtools.ground.aio import start_thread

_IDLE_S = 10.0


class Lane:
    """Does what it is given in order, in its own thread.

    Parameters
    ----------
    name
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._runs = False

    def put(self, work: Callable[[], None]) -> None:
        """Add work, which must not raise; its output goes to the cell that adds it.

        Raises
        ------
        LimitExceeded
            The system gives no thread for it.
        """
        with self._lock:
            if not self._runs:
                # Without the context of the message, a kernel would not know which cell is spoken of.
                start_thread(contextvars.copy_context().run, self._loop, name=self._name)
                self._runs = True
            self._work.put(work)

    def _loop(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._work.empty():
                        self._runs = False
                        return
                continue
            work()
