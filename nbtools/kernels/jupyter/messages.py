"""Jupyter's message framing, as little of it as an owner of kernels needs.

``jupyter_client.session.Session`` does the same, after half a second of imports and with dates parsed in every
message. A message is ``[identities…, <IDS|MSG>, signature, header, parent, metadata, content, buffers…]``, the middle
four JSON, signed with HMAC-SHA256 over their bytes. A message whose signature does not fit is not a message.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["Message", "MessageCodec"]

_DELIMITER = b"<IDS|MSG>"
_VERSION = "5.3"
# Lone surrogates occur in text that came from files; escaped they survive the way.
_encode = json.JSONEncoder(ensure_ascii=True, default=str, separators=(",", ":")).encode


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message from a kernel."""

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

    def unpack(self, frames: Sequence[bytes]) -> Message | None:
        """Return the message in the frames; `None` when it is damaged or not signed with our key."""
        try:
            at = frames.index(_DELIMITER)
            # Metadata and buffers are for widgets, which nobody draws here.
            signature, header, parent, _, content = frames[at + 1 : at + 6]
            if not hmac.compare_digest(signature, self._sign(frames[at + 2 : at + 6])):
                return None
            return Message(
                type=json.loads(header)["msg_type"],
                parent_id=json.loads(parent).get("msg_id", ""),
                content=json.loads(content),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def _sign(self, parts: Sequence[bytes]) -> bytes:
        if self._signer is None:
            return b""
        signer = self._signer.copy()
        for part in parts:
            signer.update(part)
        return signer.hexdigest().encode()
