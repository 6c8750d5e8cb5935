"""Messages between the owner of kernels and the warden process that starts them, over one local stream socket.

A message is a JSON object behind its length; descriptors may travel with it. Both ends may be at work when the other
dies: reading then ends, writing does nothing, and a reader finds out.
"""

from __future__ import annotations

import collections
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from nbtools.ground import framing

_HEAD = struct.Struct("!IB")
# More than any message carries; the system allows 253.
_MAX_DESCRIPTORS = 16


class FdSocket:
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
        self._arrived: collections.deque[tuple[dict[str, Any], list[int]]] = collections.deque()
        self.is_open = True

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> bool:
        """Send a message and copies of some descriptors; false when the other side has gone."""
        body = json.dumps(message).encode()
        try:
            framing.send(self._sock, _HEAD.pack(len(body), len(descriptors)) + body, descriptors=descriptors)
        except OSError:
            return False
        return True

    def receive(self) -> list[tuple[dict[str, Any], list[int]]]:
        """Read what is there and return the whole messages in it; `is_open` turns false at the end of the stream."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, 1 << 20, _MAX_DESCRIPTORS)
        except BlockingIOError:
            return []
        except OSError:
            data, descriptors = b"", []
        self._descriptors.extend(descriptors)
        self.is_open = self.is_open and bool(data)
        self._data += data
        frames = []
        while (message := framing.take(self._data, _HEAD)) is not None:
            (_, count), body = message
            frames.append((framing.parsed(body), [self._descriptors.popleft() for _ in range(count)]))
        return frames

    def wait(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next message; `None` when nobody is there, or none in time."""
        while not self._arrived and self.is_open:
            self._arrived += self.receive()  # two may come at once
        return self._arrived.popleft() if self._arrived else None

    def close(self) -> None:
        """Close the socket and descriptors that were not taken."""
        self.is_open = False
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._sock.close()
