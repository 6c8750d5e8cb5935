"""Messages over real sockets: in pieces, with descriptors, too long, and to nobody."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from nbtools.ground import framing

HEAD = struct.Struct("!IB")


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        yield ours, theirs


def test_a_message_that_no_buffer_holds_arrives_whole(ends):
    ours, theirs = ends
    body = os.urandom(8 << 20)
    writer = threading.Thread(target=framing.send, args=(ours, b"head", memoryview(body), b"tail"))
    writer.start()
    assert framing.receive(theirs, len(body) + 8) == b"head" + body + b"tail"
    writer.join()


def test_descriptors_arrive_with_the_first_byte_of_their_message(ends):
    ours, theirs = ends
    framing.send(ours, b"abc")
    with Path(os.devnull).open("rb") as file:
        framing.send(ours, b"de", b"f", descriptors=[file.fileno()])
    assert framing.receive(theirs, 3) == b"abc"
    head, descriptors, _, _ = socket.recv_fds(theirs, 2, 4)
    assert (head, len(descriptors)) == (b"de", 1)
    os.close(descriptors[0])
    assert framing.receive(theirs, 2, b"x") == b"xf"


def test_the_end_of_the_other_side_ends_the_reading(ends):
    ours, theirs = ends
    ours.sendall(b"ab")
    ours.close()
    with pytest.raises(EOFError):
        framing.receive(theirs, 3)


def test_messages_are_taken_out_of_pieces_one_by_one():
    stream = HEAD.pack(3, 7) + b"abc" + HEAD.pack(0, 8) + HEAD.pack(2, 9) + b"de"
    inbox, found = bytearray(), []
    for byte in stream:
        inbox.append(byte)
        while (message := framing.take(inbox, HEAD)) is not None:
            found.append(message)
    assert found == [((3, 7), b"abc"), ((0, 8), b""), ((2, 9), b"de")]
    assert not inbox


def test_a_message_longer_than_the_limit_is_refused_by_its_head():
    inbox = bytearray(HEAD.pack(101, 0))
    with pytest.raises(ValueError, match="101 bytes"):
        framing.take(inbox, HEAD, limit=100)
    assert framing.take(inbox, HEAD, limit=101) is None, "the body has not arrived"
