"""Messages over a stream socket: a head that begins with the length of the body, and the body.

What the head says besides is the business of both ends. Descriptors travel with a message by `socket.send_fds`; they
arrive with its first byte, so a reader that expects some reads the head by `socket.recv_fds`.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any


def send(line: socket.socket, *parts: bytes | memoryview, descriptors: Sequence[int] = ()) -> None:
    """Send the parts of a message, with copies of some descriptors.

    Raises
    ------
    OSError
        The other side has gone, or a socket that does not block is full.
    """
    sent = socket.send_fds(line, parts, descriptors) if descriptors else line.sendmsg(parts)
    for part in parts:
        if sent < len(part):
            line.sendall(memoryview(part)[sent:])
        sent = max(0, sent - len(part))


def receive(line: socket.socket, size: int, begun: bytes | bytearray = b"") -> bytearray:
    """Return exactly `size` bytes, of which the first have arrived already as `begun`.

    Raises
    ------
    EOFError
        The other end is gone.
    """
    body = bytearray(size)
    body[: len(begun)] = begun
    view, filled = memoryview(body), len(begun)
    while filled < size:
        got = line.recv_into(view[filled:])
        if not got:
            raise EOFError("the other end closed the connection")
        filled += got
    return body


def parsed(body: bytes | bytearray) -> Any:
    """Return the JSON of a body.

    Raises
    ------
    ValueError
        It is not JSON, or is nested too deeply.
    """
    try:
        # Without a look for other encodings, which takes as long as reading a short message.
        return json.loads(body.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("a message nested too deep") from None


def take(inbox: bytearray, head: struct.Struct, *, limit: int = 1 << 32) -> tuple[tuple[int, ...], bytes] | None:
    """Take the first whole message out of what has arrived; `None` while there is none.

    Parameters
    ----------
    inbox
        What has arrived; the message is removed from it.
    head
        The form of the head, the length of the body being its first field.
    limit
        Bytes that a body may have.

    Returns
    -------
    tuple
        The fields of the head, and the body.

    Raises
    ------
    ValueError
        The body is longer than that: the other end does not speak this language.
    """
    if len(inbox) < head.size:
        return None
    fields = head.unpack_from(inbox)
    if fields[0] > limit:
        raise ValueError(f"a message of {fields[0]:,} bytes")
    end = head.size + fields[0]
    if len(inbox) < end:
        return None
    body = bytes(inbox[head.size : end])
    del inbox[:end]
    return fields, body
