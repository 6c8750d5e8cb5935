"""Messages between the owner of kernels and the warden process that starts them, over one local stream socket.

A message is a JSON object behind its length; descriptors may travel with it. Both ends may be at work when the other
dies: reading then ends, writing does nothing, and whoever reads finds out.
"""

from __future__ import annotations

import array
import collections
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Pipe"]

_HEAD = struct.Struct("!IB")
_MAX_DESCRIPTORS = 16


class Pipe:
    """One end of the connection.

    Parameters
    ----------
    sock
        A connected local stream socket, which the pipe owns from now on.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()
        self._descriptors: collections.deque[int] = collections.deque()
        self.is_open = True

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> bool:
        """Send a message and copies of some descriptors; false when nobody is there any more."""
        body = json.dumps(message).encode()
        view = memoryview(_HEAD.pack(len(body), len(descriptors)) + body)
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            while view:
                view = view[self._sock.sendmsg([view], extra) :]
                extra = []
        except OSError:
            return False
        return True

    def receive(self) -> list[tuple[dict[str, Any], list[int]]]:
        """Read what is there and return the whole messages in it; `is_open` turns false at the end of the stream."""
        space = socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, extra, _, _ = self._sock.recvmsg(1 << 20, space)
        except BlockingIOError:
            return []
        except OSError:
            data, extra = b"", []
        for level, kind, payload in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if not data:
            self.is_open = False
        self._data += data
        return self._messages()

    def _messages(self) -> list[tuple[dict[str, Any], list[int]]]:
        found = []
        while len(self._data) >= _HEAD.size:
            size, count = _HEAD.unpack_from(self._data)
            end = _HEAD.size + size
            if len(self._data) < end:
                break
            message = json.loads(bytes(self._data[_HEAD.size : end]))
            del self._data[:end]
            found.append((message, [self._descriptors.popleft() for _ in range(count)]))
        return found

    def close(self) -> None:
        """Close the socket and descriptors that nobody took."""
        self.is_open = False
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._sock.close()
