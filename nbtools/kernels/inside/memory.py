"""What a script finds under the name ``memory``: the scope that it was granted, answered by its owner.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from typing import Any

# The owner offers the same names (`nbtools.kernels.jupyter.memory_rpc`); this module may import nothing of ours.
MEMORY_METHODS = frozenset({"read", "write", "delete", "list", "find", "search", "incr", "history", "restore", "clear"})
_AT_ONCE = 1 << 20
_ERRORS = {
    kind.__name__: kind
    for kind in (KeyError, LookupError, ValueError, TypeError, PermissionError, OSError, TimeoutError)
}


class Memory:
    """The memory granted to this script: reads are dict-like, `write` writes.

    Every call goes through a handed-over socket to the process that owns the kernel, which answers from the scope it
    granted. Values are JSON.
    """

    def __init__(self, fd: int) -> None:
        self._use(fd)

    def _use(self, fd: int) -> None:
        """Ask through this socket, from the process that calls this."""
        self._fd = fd
        self._left: _MemoryRequest | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name not in MEMORY_METHODS:
            raise AttributeError(f"memory has no method {name!r}; it has {', '.join(sorted(MEMORY_METHODS))}")

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, *args, **kwargs)

        method.__name__ = name
        return method

    def __dir__(self) -> list[str]:
        return sorted(MEMORY_METHODS)

    def __getitem__(self, key: str) -> Any:
        return self._call("__getitem__", key)

    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError(f"write with memory.write({key!r}, value): a write is explicit")

    def __contains__(self, key: object) -> bool:
        return bool(self._call("__contains__", key))

    def __len__(self) -> int:
        return int(self._call("__len__"))

    def __iter__(self) -> Any:
        return iter(self._call("__iter__"))

    def __repr__(self) -> str:
        return f"<memory of this script: {', '.join(sorted(MEMORY_METHODS))}>"

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        # Two processes on one socket would read each other's answers.
        if os.getpid() != self._pid:
            raise PermissionError("memory is used by the script's own process; hand values to other processes instead")
        request = json.dumps({"method": name, "args": args, "kwargs": kwargs}).encode()
        with self._lock:
            self._drop_left()
            self._left = owed = _MemoryRequest(self._fd, struct.pack("!I", len(request)) + request)
            body = owed.finish()
            self._left = None
        answer = json.loads(body)
        if "error" not in answer:
            return answer["value"]
        kind = _ERRORS.get(answer["error"]["type"], RuntimeError)
        raise kind(answer["error"]["message"])

    def _hear(self) -> None:
        """Read the answer to an interrupted call that has come, unless a call is under way, which reads it."""
        if self._lock.acquire(blocking=False):
            try:
                self._drop_left()
            finally:
                self._lock.release()

    def _drop_left(self) -> None:
        """Bring to its end what an interrupted call has begun, whose answer nobody waits for any more."""
        if self._left is not None and self._left.is_begun:
            self._left.finish()
        self._left = None


class _MemoryRequest:
    """One request and its answer. After an interrupt it goes on where it was.

    Each read and each write is stored in the step that does it, by `list.extend`: an interrupt comes before or after.
    """

    def __init__(self, fd: int, request: bytes) -> None:
        self._fd, self._request = fd, memoryview(request)
        self._counts: list[int] = []
        self._pieces: list[bytes] = []

    @property
    def is_begun(self) -> bool:
        """Whether the owner has a part of the request."""
        return bool(self._counts)

    def finish(self) -> bytes:
        """Send the rest of the request, and return the answer."""
        while rest := self._request[sum(self._counts) :]:
            self._counts.extend(map(os.write, (self._fd,), (rest,)))
        (length,) = struct.unpack("!I", self._read(4)[:4])
        return self._read(4 + length)[4:]

    def _read(self, size: int) -> bytes:
        """Return the bytes that have arrived, once there are `size`; later bytes may be an order to the kernel."""
        while (missing := size - sum(map(len, self._pieces))) > 0:
            self._pieces.extend(map(os.read, (self._fd,), (min(missing, _AT_ONCE),)))
            if not self._pieces[-1]:
                raise OSError("the memory of this script is closed: its owner is gone")
        return b"".join(self._pieces)
