"""The keeper's server: its threads, and what each of them does.

::

    main thread     accepts, reads frames, answers point reads, stores the writes that arrived in one group
    committer       takes the writes instead while the disk is slow, and those that take long themselves
    readers (2)     searches, lists, histories: what can take milliseconds
    housekeeper     merges, sweeps, trims, takes snapshots, shows that the keeper is alive

An answer is sent by the thread that made it, without waiting: what a slow client does not take is kept for it, and the
main thread sends it when there is room. Handing each write to another thread made four writing
clients a fifth slower, so the main thread stores what is sure to be short.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import queue
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from nbtools.errors import MemoryDamaged, MemoryUnavailable, NbtoolsError
from nbtools.ground import framing
from nbtools.memory.duckdb.directory import HEARTBEAT, MemoryDirectory
from nbtools.memory.duckdb.engine import MemoryEngine
from nbtools.memory.duckdb.recovery import close_engine, take_snapshot
from nbtools.memory.keeper import protocol
from nbtools.memory.keeper.changes import ChangeCount
from nbtools.memory.keeper.listener import Listener
from nbtools.memory.rules.rows import newest_of, scope_of
from nbtools.memory.rules.transitions import WriteRequest

# What the main thread may store by itself: when the group before took at most so many seconds, and of these kinds.
_SHORT = 0.005
_SHORT_KINDS = {"write", "touch", "incr", "delete", "call"}
_TOO_MANY = 12_000
_CLEAN_EVERY = 30.0
# Between two rounds of housekeeping: with more questions than that, what can wait waits.
_FEW_ASKED = 20
_READERS = 2
# After a failure, a disk that is full for instance, housekeeping is tried again so many seconds later.
_PAUSE = 5.0
# Seconds between two looks whether others can still find this keeper.
_LOOK_EVERY = 0.5
# A keeper that nobody asked anything for so many seconds wakes seldom, so that a laptop can sleep.
_CALM = 20.0
# An open connection is cheap to make again: a keeper that nobody asked anything for so many idle times leaves anyway.
_FORGOTTEN = 20


class KeeperServer:
    """Serve one engine to clients until it is no longer needed.

    Parameters
    ----------
    engine
        The open file; closed at the end.
    directory
        The folder beside it; closed at the end.
    listener
        Where clients come from; closed at the end.
    idle_exit
        Seconds without any client after which the server leaves.
    greeting
        What a client is told when it greets: protocol, version, pid.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        directory: MemoryDirectory,
        listener: Listener,
        *,
        idle_exit: float,
        greeting: dict[str, Any],
    ) -> None:
        self.engine = engine
        self.directory = directory
        self._listener = listener
        self._idle_exit = idle_exit
        self._changes = ChangeCount(directory.folder)
        self._greeting = greeting | {"counts": self._changes.name}
        self._selector = selectors.DefaultSelector()
        self._clients: set[_ClientConnection] = set()
        self._arrived: list[tuple[_ClientConnection, WriteRequest]] = []
        self._is_disk_quick = True
        self._committing = threading.Lock()
        self._writes: queue.SimpleQueue[list[tuple[_ClientConnection, WriteRequest]] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[tuple[_ClientConnection, dict[str, Any]] | None] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._waker, self._waked = socket.socketpair()
        self._last = self._looked = time.monotonic()
        self._request_count = 0

    def run(self) -> None:
        """Serve clients; then finish what was begun, close the file and release its lock."""
        # A waiting thread should get its turn after half a millisecond, not five.
        sys.setswitchinterval(0.0005)
        threads = [threading.Thread(target=self._commit_writes, name="committer")]
        threads += [threading.Thread(target=self._answer_reads, name=f"reader-{n}") for n in range(_READERS)]
        threads.append(threading.Thread(target=self._maintain, name="housekeeper"))
        for thread in threads:
            thread.start()
        try:
            self._serve()
        finally:
            self._leaving.set()
            self._listener.close()
            self._writes.put(None)
            for _ in range(_READERS):
                self._reads.put(None)
            for thread in threads:
                thread.join()
            self._changes.close()
            for client in list(self._clients):
                self._drop(client)
            self._close_file()

    def leave(self) -> None:
        """Ask the server to finish; may be called from a signal handler or any thread."""
        self._leaving.set()
        self.wake()

    def wake(self) -> None:
        """Wake the main thread from its wait for sockets."""
        with contextlib.suppress(OSError):
            self._waker.send(b".")

    def _close_file(self) -> None:
        for step in (take_snapshot, close_engine):
            try:
                step(self.engine, self.directory)
            except Exception as exc:
                # What is not merged is in the journal; the next keeper finds that this one did not finish, and looks.
                self._log_failure(exc)

    # -- the main thread

    def _serve(self) -> None:
        self._waked.setblocking(False)
        self._waker.setblocking(False)
        self._listen()
        self._selector.register(self._waked, selectors.EVENT_READ, self._on_wake)
        while not self._leaving.is_set():
            pause = HEARTBEAT / 2 if self._is_calm() else 1.0
            for key, events in self._selector.select(min(pause, self._idle_exit / 4)):
                if isinstance(key.data, _ClientConnection):
                    self._handle(key.data, events)
                else:
                    key.data()
            if self._arrived:
                self._take_writes()
            now = time.monotonic()
            if now - self._last > self._idle_exit * (_FORGOTTEN if self._clients else 1):
                self._leaving.set()
            elif now - self._looked > _LOOK_EVERY:
                self._looked = now
                self._stay_reachable()

    def _is_calm(self) -> bool:
        return time.monotonic() - self._last > _CALM

    def _listen(self) -> None:
        self._listener.socket.setblocking(False)
        self._selector.register(self._listener.socket, selectors.EVENT_READ, self._accept)

    def _stay_reachable(self) -> None:
        """End if this keeper lost its lock; listen on a new socket if clients cannot find the old one."""
        if self.directory.is_lost():
            self._leaving.set()
        elif not self._listener.is_reachable():
            old = self._listener.socket
            try:
                self._listener.renew()
            except (OSError, NbtoolsError) as exc:
                self._log_failure(exc)  # Tried again with the next look.
                return
            self._selector.unregister(old)
            self._listen()

    def _accept(self) -> None:
        connection = self._listener.accept()
        if connection is not None:
            client = _ClientConnection(connection, self.wake)
            self._clients.add(client)
            self._selector.register(connection, selectors.EVENT_READ, client)

    def _on_wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waked.recv(4096)
        for client in list(self._clients):
            if client.outbox:
                self._selector.modify(client.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, client)

    def _handle(self, client: _ClientConnection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and client.flush():
                self._selector.modify(client.connection, selectors.EVENT_READ, client)
            if events & selectors.EVENT_READ:
                for message in client.receive():
                    self._last = time.monotonic()
                    self._request_count += 1
                    self._dispatch(client, message)
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            # The client is gone, or does not speak this language; either way it is not answered any more.
            self._drop(client)

    def _drop(self, client: _ClientConnection) -> None:
        self._clients.discard(client)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(client.connection)
        client.connection.close()
        self._last = time.monotonic()

    def _dispatch(self, client: _ClientConnection, message: dict[str, Any]) -> None:
        if not client.is_greeted:
            self._greet(client, message)
            return
        op = message["op"]
        if op == "get":
            scope = scope_of(*message["scope"])
            rows = self.engine.get(scope, message["keys"])
            if rows is None:
                self._reads.put((client, message))  # Not in memory: a reader asks DuckDB.
            else:
                client.send(protocol.rows_to_frames(rows, values=message.get("values", True)))
        elif op == "apply":
            changes = [protocol.change_from_wire(fields) for fields in message["changes"]]
            self._arrived.append((client, WriteRequest(message["id"], changes, message["new"])))
        elif op == "drain":
            self._leaving.set()
        else:
            self._reads.put((client, message))

    def _greet(self, client: _ClientConnection, message: dict[str, Any]) -> None:
        token = self._listener.token
        if token is not None and not hmac.compare_digest(token, str(message.get("token"))):
            raise ValueError("a wrong token")
        client.is_greeted = "hello" in message
        client.send([protocol.frame(protocol.dumps(self._greeting | {"notices": self.engine.notices}))])

    def _take_writes(self) -> None:
        arrived, self._arrived = self._arrived, []
        is_short = all(len(r.changes) == 1 and r.changes[0].kind in _SHORT_KINDS for _, r in arrived)
        is_short = is_short and self._is_disk_quick and self.engine.unmerged <= _TOO_MANY
        if is_short and self._committing.acquire(blocking=False):
            try:
                self._commit(arrived)
            finally:
                self._committing.release()
        else:
            self._writes.put(arrived)

    # -- the other threads

    def _commit_writes(self) -> None:
        while (group := self._writes.get()) is not None:
            # Nobody else takes from it, so what is there can be had.
            while not self._writes.empty():
                if (more := self._writes.get()) is None:
                    self._writes.put(None)
                    break
                group += more
            with self._committing:
                self._commit(group)
            if self.engine.unmerged > _TOO_MANY:
                self._merge_backlog()

    def _commit(self, group: list[tuple[_ClientConnection, WriteRequest]]) -> None:
        """Store a group and answer it; the caller holds `_committing`."""
        began = time.monotonic()
        try:
            with self._changes.changing([request.changes for _, request in group]) as counts:
                outcomes = self.engine.commit([request for _, request in group])
                journal = self.engine.journal
                # A crash could lose what was just stored, if the journal was removed or is broken.
                if self.directory.is_lost() or (journal is not None and journal.is_lost()):
                    raise MemoryUnavailable(f"{self.directory.folder} was removed, or cannot be written any more")
        except Exception as exc:
            # Nobody knows here what was stored, so nobody is answered: each client asks again by the same id, and the
            # next keeper finds out.
            self._log_failure(exc)
            self.leave()
            return
        self._is_disk_quick = time.monotonic() - began < _SHORT
        for (client, request), outcome, as_of in zip(group, outcomes, counts, strict=True):
            if isinstance(outcome, NbtoolsError):
                client.send([protocol.frame(protocol.dumps(protocol.failure_to_wire(outcome)))])
            else:
                # What was applied before may have been changed since.
                mark = as_of if request.is_new else None
                client.send([protocol.done_to_wire(request.changes, outcome, self.engine.notices, mark)])

    def _answer_reads(self) -> None:
        while (read_request := self._reads.get()) is not None:
            client, message = read_request
            try:
                client.send(self._answer(message))
            except MemoryDamaged as exc:
                # Not answered: the client asks again, and the next keeper repairs the file before it answers.
                self._log_failure(exc)
            except NbtoolsError as exc:
                client.send([protocol.frame(protocol.dumps(protocol.failure_to_wire(exc)))])
            except Exception as exc:
                self._log_failure(exc)
                client.send([protocol.frame(protocol.dumps(protocol.failure_to_wire(exc)))])

    def _answer(self, message: dict[str, Any]) -> Iterable[bytes]:
        op = message["op"]
        if op in ("query", "get"):
            query = protocol.query_from_wire(message)
            if query.give == "table":
                return protocol.table_to_frames(self.engine.table(query))
            if query.give == "tags":
                return [protocol.frame(protocol.dumps({"rows": [], "tags": self.engine.tags(query)}))]
            rows, total = self.engine.query(query)
            return protocol.rows_to_frames(rows, values=query.values, total=total)
        if op == "history":
            versions = self.engine.versions(scope_of(*message["scope"]), message["key"])
            return protocol.rows_to_frames([(row, None) for row in newest_of(versions, message.get("limit"))])
        if op == "calls":
            records = self.engine.calls(protocol.call_query_from_wire(message))
            return [protocol.frame(f'{{"calls":[{",".join(records)}]}}')]
        if op == "info":
            facts = self.engine.info() | {"mode": "keeper", "pid": os.getpid(), "clients": len(self._clients)}
            return [protocol.frame(protocol.dumps({"info": facts}))]
        raise ValueError(f"there is no operation {op!r}")

    def _maintain(self) -> None:
        cleaned = beaten = time.monotonic()
        count = self._request_count
        while not self._leaving.wait(0.1 if self.engine.unmerged else HEARTBEAT if self._is_calm() else 0.5):
            now = time.monotonic()
            is_quiet, count = self._request_count - count < _FEW_ASKED, self._request_count
            try:
                # In small slices, and only when there is enough or nobody is asking.
                if self.engine.is_full or (self.engine.unmerged and is_quiet):
                    self.engine.merge()
                if now - beaten > HEARTBEAT:
                    beaten = now
                    self.directory.announce()
                    take_snapshot(self.engine, self.directory)
                self.engine.run_upkeep(is_quiet=is_quiet)
                if now - cleaned > _CLEAN_EVERY:
                    cleaned = now
                    self.engine.sweep()
                    self.engine.trim()
            except Exception as exc:
                self._log_failure(exc)
                self._leaving.wait(_PAUSE)

    def _merge_backlog(self) -> None:
        """Merge part of the backlog before more is committed, because writes arrive faster than they are merged."""
        try:
            while self.engine.unmerged > _TOO_MANY // 2:
                self.engine.merge()
        except Exception as exc:
            self._log_failure(exc)

    def _log_failure(self, exc: Exception) -> None:
        """Log an unexpected error; after damage, end, so that the next keeper repairs the file."""
        traceback.print_exception(exc, file=sys.stderr)
        sys.stderr.flush()
        if isinstance(exc, MemoryDamaged):
            self.leave()


class _ClientConnection:
    """One client's connection, with the part of a message that has arrived and the bytes that wait to be sent."""

    def __init__(self, connection: socket.socket, wake: Callable[[], None]) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.is_greeted = False
        self._wake = wake
        self._inbox = bytearray()
        self.outbox = bytearray()
        self._lock = threading.Lock()

    def receive(self) -> list[dict[str, Any]]:
        # Room for more would be had from the system, and given back, each time.
        data = self.connection.recv(1 << 16)
        if not data:
            raise EOFError
        if not self._inbox and protocol.is_one_frame(data):
            return [_message(data[4:])]
        self._inbox += data
        messages = []
        while (body := protocol.take_frame(self._inbox)) is not None:
            messages.append(_message(body))
        return messages

    def send(self, frames: Iterable[bytes]) -> None:
        """Send as much as the socket takes and keep the rest; ignore a client that is gone."""
        with self._lock, contextlib.suppress(OSError):
            for data in frames:
                if self.outbox:
                    self.outbox += data
                    continue
                try:
                    sent = self.connection.send(data)
                except BlockingIOError:
                    sent = 0
                if sent < len(data):
                    self.outbox += data[sent:]
        if self.outbox:
            self._wake()

    def flush(self) -> bool:
        """Send what was kept; return whether that was all."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                sent = self.connection.send(self.outbox[: 1 << 20])
                del self.outbox[:sent]
            return not self.outbox


def _message(body: bytes) -> dict[str, Any]:
    message = framing.parsed(body)
    if not isinstance(message, dict):
        raise TypeError("no object")
    return message
