"""Messages with descriptors over one socket."""

from __future__ import annotations

import os
import socket
import threading

from nbtools.processes.fd_socket import FdSocket


def test_messages_and_descriptors_come_out_together() -> None:
    ours, theirs = (FdSocket(sock) for sock in socket.socketpair())
    read, write = os.pipe()
    ours.send({"n": 1}, [write])
    sender = threading.Thread(target=ours.send, args=({"n": 2, "text": "x" * 300_000},))
    sender.start()
    os.close(write)
    got: list[tuple[dict[str, object], list[int]]] = []
    while len(got) < 2:
        got += theirs.receive()
    sender.join()
    (first, (handed,)), (second, none) = got
    assert (first["n"], second["n"], none) == (1, 2, [])
    os.write(handed, b"through")
    assert os.read(read, 10) == b"through"
    for descriptor in (read, handed):
        os.close(descriptor)
    ours.close()
    assert theirs.receive() == []
    assert not theirs.is_open
    assert not theirs.send({"n": 3})
    theirs.close()


def test_messages_that_come_at_once_are_waited_for_one_by_one() -> None:
    ours, theirs = (FdSocket(sock) for sock in socket.socketpair())
    for event in ("begun", "done"):
        theirs.send({"event": event})
    theirs.close()
    assert [ours.wait(), ours.wait(), ours.wait()] == [({"event": "begun"}, []), ({"event": "done"}, []), None]
    ours.close()
