"""The standard streams of a script: what its owner keeps of them, and when all of it has come.

Like `nbtools.kernels.inside.hooks`, this module uses the standard library alone.
"""

from __future__ import annotations

import functools
import select
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Cap", "settle"]

# Output of so many times the cap is a loop without end.
_RUNAWAY = 4


class Cap:
    """The `write` of one of ipykernel's streams, which passes on what the owner keeps of one script and no more.

    What is beyond is counted, and a loop without end is reported once. Without it such a loop makes messages that are
    larger than any socket takes.
    """

    def __init__(self, stream: Any, alarm: Callable[[], None]) -> None:
        self._stream, self._alarm = stream, alarm
        # That of the class: what stands in the stream now may be IPython's, which keeps what is written.
        self._write = functools.partial(type(stream).write, stream)
        self.begin(sys.maxsize)

    def attach(self) -> None:
        """Stand before the stream's own `write`, and let its `close` end what the script writes, not the stream."""
        self._stream.write, self._stream.close = self, self.close

    def close(self) -> None:
        """Let the script write no more."""
        self._stream.flush()
        self._is_closed = True

    def begin(self, characters: int) -> None:
        """Count anew."""
        self._cap, self._sent, self._is_runaway, self._is_closed = characters, 0, False, False

    def __call__(self, text: str) -> int:
        """Write text, or the part of it that there is room for; return its length."""
        if self._is_closed:
            raise ValueError("I/O operation on closed file.")
        room = self._cap + 1 - self._sent
        self._sent += len(text)
        if room > 0:
            # One character more than the cap goes out: the owner sees that something is missing.
            self._write(text[:room])
        elif self._sent > _RUNAWAY * self._cap and not self._is_runaway:
            self._is_runaway = True
            self._alarm()
        return len(text)


def settle(stream: Any) -> None:
    """Wait until what child processes wrote to the raw descriptor has reached the stream: it belongs to this script."""
    if hasattr(stream, "settle"):
        stream.settle()
        return
    descriptor = getattr(stream, "_fid", None)
    if descriptor is None:
        return
    deadline = time.monotonic() + 1.0
    while select.select([descriptor], [], [], 0)[0] and time.monotonic() < deadline:
        time.sleep(0.002)
