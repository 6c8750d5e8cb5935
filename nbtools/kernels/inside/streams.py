"""The standard streams of a script: what its owner keeps of them, and when all of it has come.

What is printed reaches the owner by a thread and a socket, so a crash would take the last of it along. Therefore it is
written into a file in memory as well, the `LastWords` of the kernel, which the owner reads where the kernel died.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import codecs
import functools
import io
import mmap
import os
import pathlib
import select
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# Output of so many times the cap is a loop without end.
_RUNAWAY = 4
_STREAMS = ("stdout", "stderr")
# The last that is heard of a kernel which ends itself for that reason.
NO_MEMORY = "the kernel had no memory left for what the script shows\n"
_HEAD, _ROOM = 4096, 1 << 20
_SETTLE_S = 1.0


class LastWords:
    """The end of what a script wrote to each stream, in a file that two processes see.

    Parameters
    ----------
    path
        The file, in a folder of the kernel.
    """

    def __init__(self, path: str) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._totals = dict.fromkeys(_STREAMS, 0)
        with pathlib.Path(path).open("w+b") as file:
            file.truncate(_HEAD + len(_STREAMS) * _ROOM)
            self._map = mmap.mmap(file.fileno(), 0)
        # The system finds room for a page when it is first written, which takes long on some file systems.
        for slot in range(len(_STREAMS)):
            self._map[_HEAD + slot * _ROOM] = 0

    def begin(self) -> None:
        """Forget what the script before wrote."""
        self._totals = dict.fromkeys(_STREAMS, 0)
        self._map[:16] = bytes(16)

    def add(self, name: str, text: str) -> None:
        """Add what is written to a stream."""
        if os.getpid() != self._pid:
            return
        data = text.encode("utf-8", "backslashreplace")
        with self._lock:
            total = self._totals[name] = self._totals[name] + len(data)
            slot = _STREAMS.index(name)
            data = data[-_ROOM:]
            at = (total - len(data)) % _ROOM
            first, base = data[: _ROOM - at], _HEAD + slot * _ROOM
            self._map[base + at : base + at + len(first)] = first
            self._map[base : base + len(data) - len(first)] = data[len(first) :]
            # Last of all, so that a reader after a crash finds what it counts.
            struct.pack_into("<Q", self._map, 8 * slot, total)

    @staticmethod
    def missing(descriptor: int, name: str, heard: int) -> tuple[bytes, bool]:
        """Return what a stream has beyond the bytes that were heard, and whether that is all of it."""
        slot = _STREAMS.index(name)
        head = os.pread(descriptor, 16, 0)
        total = struct.unpack_from("<Q", head, 8 * slot)[0] if len(head) == 16 else 0
        size = min(max(0, total - heard), _ROOM)
        ring = os.pread(descriptor, _ROOM, _HEAD + slot * _ROOM)
        at = (total - size) % _ROOM
        return (ring + ring)[at : at + size], total - heard <= _ROOM


class _Bytes(io.FileIO):
    """The ``buffer`` of a stream: bytes go to the descriptor that is watched, all of them."""

    def write(self, data: Any) -> int:
        """Write bytes; return how many there were."""
        view = memoryview(data).cast("B")
        size = len(view)
        while view:
            view = view[super().write(view) or 0 :]
        return size


class Watcher:
    """Passes on what is written to the descriptor of one of ipykernel's streams, and knows what it has in hand.

    Unlike ipykernel's own, which nobody can ask, it sends no copy to where the descriptor led before.

    Parameters
    ----------
    stream
        The stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._lock, self._passed = stream, threading.Lock(), 0

    @classmethod
    def of(cls, stream: Any) -> Watcher:
        """Return the watcher of a stream; where it has ipykernel's, that one ends and makes room."""
        watcher: Watcher | None = getattr(stream, "watcher", None)
        if watcher is None:
            watcher = stream.watcher = cls(stream)
            if getattr(stream, "_fid", None) is not None and stream.watch_fd_thread.is_alive():
                # It wakes by a byte, which it does not pass on.
                stream._should_watch = False  # noqa: SLF001 - there is no public way
                os.write(stream._original_stdstream_fd, b"\0")  # noqa: SLF001 - same
                stream.watch_fd_thread.join()
                stream._should_watch = True  # noqa: SLF001 - same
                stream.watch_fd_thread = threading.Thread(target=watcher.run, daemon=True)
                stream.watch_fd_thread.start()
        return watcher

    def run(self) -> None:
        """Pass on what comes, for ever; in a separate thread."""
        stream, decoder, waiting = self._stream, codecs.getincrementaldecoder("utf-8")("replace"), select.poll()
        source = stream._fid  # noqa: SLF001 - there is no public way
        waiting.register(source, select.POLLIN)
        while stream._should_watch:  # noqa: SLF001 - same
            waiting.poll()
            with self._lock:
                data = os.read(source, 1 << 16)
                if not data:
                    return
                stream.write(decoder.decode(data))
                self._passed += len(data)

    def _waiting(self) -> int:
        """Return how many bytes lie in the pipe."""
        import fcntl  # systems without these have no pipe to look into
        import termios

        source = self._stream._fid  # noqa: SLF001 - there is no public way
        size: int = struct.unpack("i", fcntl.ioctl(source, termios.FIONREAD, bytes(4)))[0]
        return size

    def settle(self, seconds: float = _SETTLE_S) -> None:
        """Wait until what was written to the raw descriptor so far has been passed on, and for nothing that follows.

        So a child that never stops writing does not hold up the script that prints beside it.
        """
        stream, deadline = self._stream, time.monotonic() + seconds
        if getattr(stream, "_fid", None) is None or threading.current_thread() is stream.watch_fd_thread:
            return
        if not self._lock.acquire(timeout=seconds):
            return
        last = self._passed + self._waiting()
        self._lock.release()
        # In a fork of the script nothing is passed on: there the pipe is empty once the script itself has read it.
        while self._passed < last and (self._waiting() or self._lock.locked()) and time.monotonic() < deadline:
            time.sleep(0.0005)


class Cap:
    """The `write` of one of ipykernel's streams, which passes on what the owner keeps of one script and no more.

    What is beyond is counted, and a loop without end is reported once. Without it such a loop makes messages that are
    larger than any socket takes. The stream gets what that of a program has: a descriptor that children may write to,
    a buffer of bytes, a separate end.
    """

    words: LastWords | None = None

    def __init__(self, stream: Any, alarm: Callable[[], None]) -> None:
        self._stream, self._alarm = stream, alarm
        # That of the class: what stands in the stream now may be IPython's, which keeps what is written.
        self._write = functools.partial(type(stream).write, stream)
        self._watcher = Watcher.of(stream)
        self.begin(sys.maxsize)

    def attach(self) -> None:
        """Stand before the stream's own `write`, and make the stream what a script may expect of it."""
        stream = self._stream
        stream.write, stream.flush, stream.close, stream.reconfigure = self, self.flush, self.close, lambda **_: None
        if getattr(stream, "_fid", None) is not None:
            descriptor = stream._original_stdstream_fd  # noqa: SLF001 - where the pipe is that is watched
            stream.fileno, stream.buffer = lambda: descriptor, _Bytes(descriptor, "w", closefd=False)

    def flush(self) -> None:
        """Send what was written so far, raw output included: what is shown next, a value too, comes after it."""
        self._watcher.settle()
        type(self._stream).flush(self._stream)

    def close(self) -> None:
        """Let the script write no more."""
        self._stream.flush()
        self._is_closed = True

    def begin(self, characters: int) -> None:
        """Count again."""
        self._cap, self._sent, self._is_runaway, self._is_closed = characters, 0, False, False

    def __call__(self, text: str) -> int:
        """Write text, or the part of it that there is room for; return its length."""
        if self._is_closed:
            raise ValueError("I/O operation on closed file.")
        # What a child has written before comes before; the line end that `print` writes belongs to its text.
        if text != "\n":
            self._watcher.settle()
        room = self._cap + 1 - self._sent
        self._sent += len(text)
        if room > 0:
            # One character more than the cap goes out: the owner sees that something is missing.
            if self.words is not None:
                self.words.add(self._stream.name, text[:room])
            self._write(text[:room])
        elif self._sent > _RUNAWAY * self._cap and not self._is_runaway:
            self._is_runaway = True
            self._alarm()
        return len(text)


def settle(stream: Any) -> None:
    """Wait until what child processes wrote to the raw descriptor has reached the stream: it belongs to this script."""
    watcher: Watcher | None = getattr(stream, "watcher", None)
    if watcher is not None:
        watcher.settle()
