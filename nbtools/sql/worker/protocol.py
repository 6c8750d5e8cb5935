"""Messages between the owner and its worker: a kind, a length, a body; descriptors ride along.

======  =========  =====================================================================
kind    sent by    body
======  =========  =====================================================================
``C``   owner      JSON: the configuration, once
``Q``   owner      JSON: a request; the descriptors of its frames come with it
``I``   owner      on the side, JSON: interrupt the request of this number
``G``   both       on the side; how far is it? JSON: the share that is done
``R``   worker     JSON: ready, and what of the confinement is missing
``A``   worker     some rows, an Arrow stream
``T``   worker     the names of the columns, their types in pandas and some rows, pickled tuples of plain values
``H``   worker     JSON: the answer is over; columns, types, which cap cut the rows
``X``   worker     JSON: an error
======  =========  =====================================================================

The worker is not trusted: its lengths are checked before anything is allocated, and its tuples are unpickled by a
reader that knows a handful of plain types and no other.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
import socket
import struct
import zoneinfo
from typing import Any

from nbtools.errors import InternalError, LimitExceeded
from nbtools.ground import framing
from nbtools.texts.values import Pairs

_HEAD = struct.Struct("<cQ")
HEAD_BYTES = _HEAD.size
# Linux passes 253 with a message at the most; a query names a few frames.
_MOST_DESCRIPTORS = 64
# Bodies from here on are sent from where they lie; smaller ones are joined, because each send wakes the other end.
_CHUNK = 1 << 20
_AT_ONCE = 1 << 14
# What a tuple of a result may hold besides numbers, text, bytes and containers.
_PLAIN = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        ("decimal", "Decimal"),
        ("uuid", "UUID"),
        (Pairs.__module__, Pairs.__name__),
        ("zoneinfo", "ZoneInfo"),
        # How `plain_dumps` writes what has no plain type.
        ("builtins", "str"),
        *(("ipaddress", f"IPv{v}{name}") for v in (4, 6) for name in ("Address", "Interface", "Network")),
    }
)
_PLAIN_TYPES = frozenset({bool, bytes, dict, float, int, list, set, str, tuple, type(None)})


class MessageSocket:
    """One end of the line.

    Parameters
    ----------
    line
        A connected stream socket of the Unix kind.
    limit
        Bytes that a body may have; a longer one is a broken peer.
    """

    def __init__(self, line: socket.socket, *, limit: int = 1 << 40) -> None:
        self._line = line
        self.limit = limit
        self._descriptors: list[int] = []
        self._inbox = bytearray()
        self._queue: list[bytes | memoryview] = []
        self._queued = 0

    def send(self, kind: bytes, body: bytes | memoryview = b"", descriptors: tuple[int, ...] = ()) -> None:
        """Send a message, with up to 64 descriptors."""
        framing.send(self._line, _HEAD.pack(kind, len(body)), body, descriptors=descriptors)

    def queue(self, kind: bytes, body: bytes | memoryview) -> None:
        """Send a message with others, once they are many or one of JSON follows: each send wakes the other end."""
        if len(body) >= _CHUNK:
            self._flush()
            self.send(kind, body)
            return
        self._queue += (_HEAD.pack(kind, len(body)), body)
        self._queued += len(body)
        if self._queued >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        queued, self._queue, self._queued = self._queue, [], 0
        if queued:
            self._line.sendall(b"".join(queued))

    def send_json(self, kind: bytes, value: Any) -> None:
        """Send a message whose body is JSON."""
        body = json.dumps(value).encode()
        if self._queue:
            self.queue(kind, body)
            self._flush()
        else:
            self.send(kind, body)

    def receive(self) -> tuple[bytes, bytearray]:
        """Return the next message.

        Raises
        ------
        EOFError
            The other end is gone.
        InternalError
            The message is longer than allowed.
        """
        try:
            while len(self._inbox) < _HEAD.size:
                # Descriptors arrive with the first byte of their message. A small answer comes whole, and at once.
                data, descriptors, _, _ = socket.recv_fds(self._line, _AT_ONCE, _MOST_DESCRIPTORS)
                if not data:
                    raise EOFError("the other end closed the connection")
                self._descriptors += descriptors
                self._inbox += data
            kind, length = _HEAD.unpack_from(self._inbox)
            if length > self.limit:
                raise InternalError(f"the SQL worker sent {length:,} bytes where {self.limit:,} are allowed.")
            end = _HEAD.size + length
            body = self._inbox[_HEAD.size : end]
            del self._inbox[:end]
            return kind, body if len(body) == length else framing.receive(self._line, length, body)
        except ConnectionError as exc:
            raise EOFError(str(exc)) from None

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came with the messages so far; the caller closes them."""
        descriptors, self._descriptors = self._descriptors, []
        return descriptors

    def close(self) -> None:
        """Close this end."""
        self._line.close()


def out_of_memory() -> LimitExceeded:
    """Return the error for a query that needs more memory than its process may have."""
    return LimitExceeded(
        "the query needs more memory than it may have.",
        hint="Ask for less at once: filter, aggregate, fewer or shorter columns.",
    )


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, zoneinfo.ZoneInfo):
            return (zoneinfo.ZoneInfo, (obj.key,))
        if kind is type or kind in _PLAIN_TYPES or (kind.__module__, kind.__qualname__) in _PLAIN:
            return NotImplemented
        if isinstance(obj, dt.tzinfo):
            return NotImplemented
        # What the owner does not know, such as a range of PostgreSQL, arrives as text.
        return (str, (str(obj),))


def plain_dumps(columns: tuple[str, ...], dtypes: tuple[str | None, ...], rows: list[tuple[Any, ...]]) -> bytes:
    """Pickle rows so that `plain_loads` reads them."""
    buffer = io.BytesIO()
    _PlainPickler(buffer, protocol=5).dump((columns, dtypes, rows))
    return buffer.getvalue()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a result")
        return super().find_class(module, name)


def plain_loads(body: bytes | bytearray) -> Any:
    """Unpickle values of plain types only.

    Raises
    ------
    pickle.UnpicklingError
        The body holds anything else.
    """
    return _PlainUnpickler(io.BytesIO(body)).load()
