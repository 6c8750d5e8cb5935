"""The owner's end of ``memory`` in a kernel: requests over a handed-over socket, answered from the granted scope.

The kernel is not trusted: what may be called is a list of names, arguments and answers are JSON, one request is
served at a time, and without a grant every request is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from nbtools.ground import aio, framing
from nbtools.kernels.inside.memory import MEMORY_METHODS

METHODS = MEMORY_METHODS | {"__getitem__", "__contains__", "__len__", "__iter__"}
_HEAD = struct.Struct("!I")
# A script could ask for any amount otherwise, and the owner would hold it in memory.
_MAX_REQUEST = 16 << 20
_BUILTINS = (KeyError, LookupError, PermissionError, TimeoutError, OSError, TypeError, ValueError)


class MemoryRpc:
    """Serve one kernel's memory requests.

    Attributes
    ----------
    memory
        What the kernel may use; `None` refuses every request.
    theirs
        The other end, to hand to the kernel; close it once it is handed over.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ours.setblocking(False)
        self.memory: Any = None
        self._task = asyncio.ensure_future(self._serve())

    def close(self) -> None:
        """Stop serving."""
        self._task.cancel()
        # Not before the loop has let go of the descriptor: the next owner of its number would not be read.
        self._task.add_done_callback(lambda _: self._ours.close())
        self.theirs.close()

    def hand_over(self, *descriptors: int) -> None:
        """Send descriptors to the kernel, which begins to copy itself with them."""
        socket.send_fds(self._ours, [b"!"], descriptors)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a line to the kernel, which waits for it and for no answer."""
        self._ours.send(json.dumps(message).encode() + b"\n")

    async def _serve(self) -> None:
        loop, inbox = asyncio.get_running_loop(), bytearray()
        # A script that sends too much at once, or is gone, is served no more, and does not wait for answers.
        with self._ours, contextlib.suppress(OSError, ValueError):
            while data := await loop.sock_recv(self._ours, 1 << 20):
                inbox += data
                while (request := framing.take(inbox, _HEAD, limit=_MAX_REQUEST)) is not None:
                    answer = json.dumps(await self._answer(request[1]), default=_as_json).encode()
                    await loop.sock_sendall(self._ours, _HEAD.pack(len(answer)) + answer)

    async def _answer(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
            name, args, kwargs = request["method"], request["args"], request["kwargs"]
            if name not in METHODS:
                raise PermissionError(f"memory.{name} is not offered to scripts")
            if self.memory is None:
                raise PermissionError("no memory was granted to this script")
            return {"value": await aio.in_thread(_call, self.memory, name, args, kwargs)}
        except Exception as exc:
            # The kernel raises the builtin that the error inherits: it may know no class of ours.
            kind = next((kind.__name__ for kind in _BUILTINS if isinstance(exc, kind)), "RuntimeError")
            message = exc.args[0] if isinstance(exc, KeyError) and exc.args else str(exc)
            return {"error": {"type": kind, "message": str(message)}}


def _call(memory: Any, name: str, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    value = getattr(memory, name)(*args, **kwargs)
    return list(value) if name == "__iter__" else value


def _as_json(value: Any) -> Any:
    """Return records as dicts, sets as lists, and anything else as text."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)
