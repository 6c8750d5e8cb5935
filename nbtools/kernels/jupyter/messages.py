"""Jupyter's message framing, as little of it as an owner of kernels needs.

``jupyter_client.session.Session`` does the same, after half a second of imports and with dates parsed in every
message. A message is ``[identities…, <IDS|MSG>, signature, header, parent, metadata, content, buffers…]``, the middle
four JSON, signed with HMAC-SHA256 over their bytes. A message whose signature does not fit is not a message.

A kernel may send anything, of any size. Whether a message is looked at is decided by its size and the two short parts
that say what it is and which request it belongs to; the rest is signed, decoded and copied only then.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_DELIMITER = b"<IDS|MSG>"
_VERSION = "5.3"
# Lone surrogates occur in text that came from files; escaped they survive the way.
_encode = json.JSONEncoder(ensure_ascii=True, default=str, separators=(",", ":")).encode
# More than these parts have in any message that someone wants, without the content.
_MOST_HEAD = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message from a kernel; ``too_large`` stands for one that is not looked at, with its ``bytes``."""

    type: str
    parent_id: str
    content: dict[str, Any]


class MessageCodec:
    """Pack and unpack the messages of one connection.

    Parameters
    ----------
    key
        The key of the connection; empty means unsigned.
    """

    def __init__(self, key: bytes) -> None:
        self._signer = hmac.new(key, digestmod="sha256") if key else None
        self.session = secrets.token_hex(16)
        self._count = 0

    def pack(
        self, msg_type: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> tuple[str, list[bytes]]:
        """Return the id of a new message and its frames."""
        self._count += 1
        msg_id = f"{self.session}_{self._count}"
        header = {
            "msg_id": msg_id,
            "msg_type": msg_type,
            "session": self.session,
            "username": "nbtools",
            "version": _VERSION,
            "date": datetime.now(UTC).isoformat(),
        }
        parts = [_encode(part).encode() for part in (header, {}, metadata or {}, content)]
        return msg_id, [_DELIMITER, self._sign(parts), *parts]

    def unpack(
        self, frames: Sequence[Any], types: Container[str], parent_id: str = "", *, most: int = 1 << 25
    ) -> Message | None:
        """Return the message in the frames; `None` when it is damaged, not signed with our key, or not wanted.

        Parameters
        ----------
        frames
            The parts of the message as ZeroMQ gives them, copied or not.
        types
            The types of messages that are wanted.
        parent_id
            Id of the request that the message has to belong to; empty for any.
        most
            Bytes of the content that is looked at.
        """
        try:
            # Identities, and the subject of a broadcast, come before. Metadata and buffers are for widgets, which
            # nobody draws here.
            at = frames.index(_DELIMITER)
            signature, *parts = frames[at + 1 : at + 6]
            header, parent, metadata, content = parts
            if len(header) + len(parent) + len(metadata) > _MOST_HEAD:
                return None
            kind = json.loads(str(header, "utf-8"))["msg_type"]
            if kind not in types or json.loads(str(parent, "utf-8")).get("msg_id", "") != parent_id:
                return None
            if len(content) > most:
                return Message(type="too_large", parent_id=parent_id, content={"bytes": len(content)})
            if not hmac.compare_digest(signature, self._sign(parts)):
                return None
            # A long content lies in memory once as it came, and once as text.
            return Message(type=kind, parent_id=parent_id, content=json.loads(str(memoryview(content), "utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def _sign(self, parts: Sequence[Any]) -> bytes:
        if self._signer is None:
            return b""
        signer = self._signer.copy()
        for part in parts:
            signer.update(part)
        return signer.hexdigest().encode()
