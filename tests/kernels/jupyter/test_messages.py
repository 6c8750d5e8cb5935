"""Messages of Jupyter's protocol: what is signed is read back, and nothing else is."""

from __future__ import annotations

import pytest

from nbtools.kernels.jupyter import messages
from nbtools.kernels.jupyter.messages import Message, MessageCodec


def test_a_signed_message_is_read_back() -> None:
    wire = MessageCodec(b"key")
    msg_id, frames = wire.pack("execute_request", {"code": "1 + \ud800"})
    got = MessageCodec(b"key").unpack([b"identity", *frames], {"execute_request"})
    assert got == Message(type="execute_request", parent_id="", content={"code": "1 + \ud800"})
    assert msg_id.startswith(wire.session)


@pytest.mark.parametrize("spoil", [0, 1, 2, 5])
def test_a_message_that_was_tampered_with_is_no_message(spoil: int) -> None:
    _, frames = MessageCodec(b"key").pack("status", {"execution_state": "idle"})
    frames[spoil] = frames[spoil][:-1] + b"!"
    assert MessageCodec(b"key").unpack(frames, {"status"}) is None


def test_what_is_not_wanted_or_too_large_is_not_decoded() -> None:
    _, frames = MessageCodec(b"key").pack("comm_msg", {"data": "x" * 1_000})
    # Content that is not JSON would be an error to whoever decodes it.
    broken = [*frames[:5], b"{" * 1_000]
    assert MessageCodec(b"key").unpack(broken, {"stream"}) is None
    told = MessageCodec(b"key").unpack(broken, {"comm_msg"}, most=999)
    assert told == Message(type="too_large", parent_id="", content={"bytes": 1_000})
    assert MessageCodec(b"key").unpack(frames, {"comm_msg"}, "another request") is None
    assert MessageCodec(b"key").unpack([b"subject", b"no delimiter"], {"comm_msg"}) is None


def test_a_message_with_an_endless_header_is_not_decoded_and_a_connection_without_a_key_is_not_signed() -> None:
    wire = MessageCodec(b"")
    _, frames = wire.pack("status", {})
    assert frames[1] == b""
    assert wire.unpack(frames, {"status"}) == Message(type="status", parent_id="", content={})
    assert wire.unpack([*frames[:4], b" " * messages._MOST_HEAD + frames[4], frames[5]], {"status"}) is None


def test_jupyter_reads_what_we_sign() -> None:
    session = pytest.importorskip("jupyter_client.session").Session(key=b"key")
    _, frames = MessageCodec(b"key").pack("execute_request", {"code": "1"})
    _, parts = session.feed_identities(frames)
    assert session.deserialize(parts)["content"] == {"code": "1"}
