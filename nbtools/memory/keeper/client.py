"""The client of the keeper: a repository that sends each call over a socket.

The first call connects, and starts the keeper if none is running. If a connection breaks, the client sends the same
message with the same request id again, and starts a new keeper if necessary, until the time is over. The keeper applies
a request id once. If there is still no answer, the error of a change says that it may have been applied, because a new
call would be a new request. What was read of a key is asked for again only when the key was changed, and the table of
all records when any of them was. Each thread that asks uses its own connection. A forked child closes the
connections that it inherited and opens new ones.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import errno
import functools
import itertools
import json
import marshal
import os
import secrets
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbtools.errors import MemoryUnavailable, error_from_wire
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.keeper import protocol
from nbtools.memory.keeper.changes import PLACES_OF_ALL, ChangeReader, places_of_keys
from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import (
    AppliedChange,
    CallQuery,
    Change,
    Query,
    QueryAnswer,
    memory_closed,
    outcome_unknown,
)
from nbtools.memory.rules.record_table import first_end
from nbtools.memory.rules.rows import make_record

_KEPT_VARIABLES = ("HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER", "LOGNAME", "VIRTUAL_ENV", "XDG_RUNTIME_DIR")
_STARTS = 5
# Bytes of answers that are kept: of one to a question for certain keys, of a table, of all, and of what each takes
# beside its rows.
_MOST_KEPT_BYTES, _MOST_TABLE_BYTES, _MOST_KEPT_IN_ALL, _ENTRY_BYTES = 16_384, 96 << 20, 128 << 20, 1_000
_NO_MORE_CONDITIONS = tuple(vars(Query()).values())[2:]  # beside the scope and the keys
_EXPIRES = 8  # where a row says its end
# Why a connection fails that no other keeper could make better.
_NOT_THE_KEEPERS = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_KEPT_PREFIXES = ("LC_", "LD_", "DYLD_", "PYTHON")


class KeeperRepository:
    """Records in a DuckDB file that a keeper shares between processes.

    Parameters
    ----------
    path
        The file, links resolved.
    history
        How many versions of a record a keeper that this client starts keeps.
    idle_exit
        Seconds without any client after which such a keeper ends.
    timeout
        Seconds that one question may take, including a restart of the keeper.
    tcp
        Have a keeper that is started listen on a loopback port instead of a Unix socket.
    """

    def __init__(
        self,
        path: Path,
        *,
        history: int = 100,
        idle_exit: float = 60.0,
        timeout: float = 30.0,
        tcp: bool = False,
        _protocol: int = protocol.PROTOCOL,
    ) -> None:
        self.path = path
        self._options: dict[str, Any] = {"history": history, "idle_exit": idle_exit, "timeout": timeout, "tcp": tcp}
        self._timeout = timeout
        self._protocol = _protocol
        self._directory = MemoryDirectory(path)
        self._warned: set[str] = set()
        self._closed = False
        self._changes: ChangeReader | None = None
        self._kept_bytes = 0
        self._begin()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the options; the other process opens its own connections."""
        return (functools.partial(KeeperRepository, **self._options), (self.path,))

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch, once per request id."""
        if self._pid != os.getpid():
            self._leave_parent()  # Before a name is given: the parent gives the same ones.
        name = request_id or f"{self._name}-{next(self._numbers)}"
        data = protocol.frame(protocol.apply_to_wire(changes, name, is_new=request_id is None))
        # What may have been applied before a break must not be applied again: the second time it is not new.
        answer = self._ask(
            data, _Again(name, lambda: protocol.frame(protocol.apply_to_wire(changes, name, is_new=False)))
        )
        if "notices" in answer:
            self._warn(answer["notices"])
        applied = protocol.applied_from_wire(changes, answer["done"])
        if "as_of" in answer and applied[0].record is not None:
            # The value is in its place by now: the writer reads what it wrote without asking.
            (counts, places), row = answer["as_of"], answer["done"][0][0]
            name_of_read = (changes[0].scope, (changes[0].key,), *_NO_MORE_CONDITIONS)
            self._keep(name_of_read, counts, places, [row], QueryAnswer(records=(applied[0].record,), total=1))
        return applied

    def query(self, query: Query) -> QueryAnswer:
        """Return the live records that match."""
        if self._pid != os.getpid():
            self._leave_parent()
        changes, counts = self._changes, None
        # Hashed and compared in half the time of a query; a list of keys is never kept.
        name = () if query.keys is None and query.give != "table" else tuple(vars(query).values())
        entry = self._answers.get(name)
        if (
            changes is not None
            and entry is not None
            and changes.are(entry.as_of, entry.places)
            and (entry.until is None or time.time() * 1e6 < entry.until)
        ):
            return entry.result if entry.values is None else _with_values(entry.result, entry.values)
        if changes is not None and _may_keep(query):
            places = (
                PLACES_OF_ALL if query.keys is None or query.scope is None else places_of_keys(query.scope, query.keys)
            )
            counts = changes.read(places)
        answer = self._ask(protocol.frame(protocol.query_to_wire(query)))
        result = _result(answer["rows"], answer.get("total"))
        if query.give != "records":
            table = b"".join(base64.b64decode(part) for part in answer.get("table", ()))
            result = dataclasses.replace(result, tags=answer.get("tags", {}), table=table)
        if counts is not None:
            self._keep(name, counts, places, answer["rows"], result)
        return result

    def _keep(
        self, name: tuple[Any, ...], counts: list[int], places: Sequence[int], rows: list[Any], result: QueryAnswer
    ) -> None:
        """Keep an answer by the values of its question; the counts are of before it, or of the change that made it."""
        data = marshal.dumps(rows)
        if len(data) > _MOST_KEPT_BYTES or len(result.table) > _MOST_TABLE_BYTES:
            return
        size = len(data) + len(result.table) + _ENTRY_BYTES
        old = self._answers.pop(name, None)
        self._kept_bytes += size - (old.size if old else 0)
        if self._kept_bytes > _MOST_KEPT_IN_ALL:
            self._answers.clear()
            self._kept_bytes = size
        # The caller that gets a list or a dict may change it, so the next one gets another.
        is_fixed = not any(isinstance(record.value, list | dict) for record in result.records)
        values = None if is_fixed else marshal.dumps([record.value for record in result.records])
        until = min((row[_EXPIRES] for row in rows if row[_EXPIRES]), default=None)
        until = first_end(result.table) if result.table else until
        self._answers[name] = _Kept(counts, places, until, result, values, size)

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        answer = self._ask(_message(op="history", scope=scope.parts, key=key, limit=limit))
        return [make_record(*fields) for fields in answer["rows"]]

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        calls: list[dict[str, Any]] = self._ask(_message(op="calls", **vars(query)))["calls"]
        return calls

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        info: dict[str, Any] = self._ask(_message(op="info"))["info"]
        return info

    def close(self) -> None:
        """Close the connections; the keeper ends by itself when it has no clients."""
        self._closed, self._changes = True, None
        self._drop_idle()

    # -- asking

    def _ask(self, data: bytes, again: _Again | None = None) -> dict[str, Any]:
        """Send a message and return the answer; if the connection breaks, send it again until the time is over."""
        if self._pid != os.getpid():
            self._leave_parent()
        end = time.monotonic() + self._timeout
        attempt, is_sent = 0, False
        while True:
            try:
                connection = self._take(end)
            except MemoryUnavailable as exc:
                raise outcome_unknown(exc.message, again.request_id) if again and is_sent else exc from exc.__cause__
            try:
                if attempt:
                    protocol.limit_waiting(connection, max(end - time.monotonic(), 0.1))
                connection.sendall(data)
                is_sent = True  # A keeper acts on whole messages alone; from here on this one may be acted on.
                answer = protocol.receive(connection)
            except (OSError, EOFError, ValueError) as exc:
                connection.close()
                self._drop_idle()
                self._answers.clear()  # a keeper that does not answer is asked whether it is there
                self._kept_bytes = 0
                attempt += 1
                if time.monotonic() >= end:
                    error = self._no_answer(exc)
                    raise outcome_unknown(error.message, again.request_id) if again and is_sent else error from exc
                data = again.message() if again else data
                time.sleep(min(0.01 * attempt, 0.2))
                continue
            except BaseException:
                # Interrupted: the answer would be taken for that of the next question.
                connection.close()
                raise
            if attempt:
                protocol.limit_waiting(connection, self._timeout)
            with self._lock:
                self._idle.append(connection)
            if "error" in answer:
                raise error_from_wire(answer["error"])
            return answer

    def _no_answer(self, exc: Exception) -> MemoryUnavailable:
        why = "" if isinstance(exc, (BlockingIOError, TimeoutError)) else f" ({str(exc) or type(exc).__name__})"
        return MemoryUnavailable(
            f"The keeper of {self.path} did not answer within {self._timeout:g} s{why}.",
            hint=f"try again; {self._directory.messages} may say more",
            retryable=True,
        )

    def _held_error(self) -> MemoryUnavailable:
        return MemoryUnavailable(
            f"{self.path} is held by {self._directory.held_by()}, and was not released within {self._timeout:g} s.",
            hint="use NBTOOLS_MEMORY_URL=postgresql://… to share a memory between machines"
            if self._directory.is_elsewhere()
            else "close it there, or try again",
            retryable=True,
        )

    def _take(self, end: float) -> Any:
        with self._lock:
            if self._closed:
                raise memory_closed()
            if self._idle:
                return self._idle.pop()
        # One thread at a time: a second keeper would only find that the first one leads.
        with self._starting:
            return self._connect(end)

    def _connect(self, end: float) -> Any:
        """Return a connection to the keeper, which is started if there is none."""
        tries = starts = 0
        while True:
            address = self._directory.holder().get("address")
            why: Exception = TimeoutError("no process has announced itself")
            if address and not self._directory.is_elsewhere():
                try:
                    return self._open_connection(address, end)
                except MemoryUnavailable:
                    raise
                except (OSError, EOFError, ValueError, LookupError, TypeError) as exc:
                    why = exc
            if getattr(why, "errno", None) in _NOT_THE_KEEPERS:
                raise self._unreachable(why) from why
            if time.monotonic() >= end:
                raise self._held_error() if address is None or self._directory.is_elsewhere() else self._no_answer(why)
            if tries:
                time.sleep(min(0.01 * tries, 0.2))
            tries += 1
            if not isinstance(why, BlockingIOError):  # Else one is there, but busy.
                starts += 1
                self._start(end, is_last=starts >= _STARTS)

    def _unreachable(self, exc: Exception) -> MemoryUnavailable:
        return MemoryUnavailable(
            f"The keeper of {self.path} cannot be reached: {getattr(exc, 'strerror', None) or exc}.",
            hint="look at the permissions of its socket, and at the limits of open files and processes (ulimit -a)",
        )

    def _open_connection(self, address: dict[str, Any], end: float) -> Any:
        """Return a connection to the keeper at an address, after greetings.

        Raises
        ------
        MemoryUnavailable
            It is one of a newer nbtools.
        OSError, EOFError, ValueError, LookupError, TypeError
            Nobody is there, or nobody to talk to.
        """
        connection = protocol.connect_to(address, timeout=max(end - time.monotonic(), 0.1))
        try:
            if not self._exchange_greetings(connection, address):
                raise EOFError("an older keeper hands over")
            protocol.limit_waiting(connection, self._timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def _exchange_greetings(self, connection: Any, address: dict[str, Any]) -> bool:
        """Exchange greetings with a keeper; ask an older one to end, and return `False` for it."""
        greeting = {"hello": self._protocol, "pid": os.getpid()}
        if "token" in address:
            greeting["token"] = address["token"]
        connection.sendall(protocol.frame(protocol.dumps(greeting)))
        answer = protocol.receive(connection)
        if answer["hello"] > self._protocol:
            raise MemoryUnavailable(
                f"{self.path} is served by a newer nbtools ({answer.get('version')}, process {answer.get('pid')}).",
                hint="restart this kernel with the nbtools that is installed now",
            )
        if answer["hello"] < self._protocol:
            connection.sendall(protocol.frame(protocol.dumps({"op": "drain"})))
            with contextlib.suppress(OSError, EOFError):
                protocol.receive(connection)  # Nothing comes but the end, when everything is stored.
            return False
        self._warn(answer.get("notices", ()))
        self._changes = None
        with contextlib.suppress(OSError, ValueError, LookupError):  # an older keeper names none
            self._changes = ChangeReader(self._directory.folder / answer["counts"])
        return True

    def _warn(self, notices: Iterable[str]) -> None:
        for notice in notices:
            if notice not in self._warned:
                self._warned.add(notice)
                warnings.warn(notice, UserWarning, stacklevel=10)

    def _start(self, end: float, *, is_last: bool) -> None:
        """Start a keeper and wait for its first line, which says that a keeper serves or why this one cannot."""
        self._directory.make()
        options = self._options
        command = [sys.executable, "-m", "nbtools.memory.keeper", str(self.path)]
        command += ["--idle", str(options["idle_exit"]), "--history", str(options["history"])]
        command += ["--wait", f"{max(end - time.monotonic() - 0.5, 0.1):.1f}", "--protocol", str(self._protocol)]
        command += ["--tcp"] if options["tcp"] else []
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        except OSError as exc:
            raise self._unreachable(exc) from exc
        try:
            facts = json.loads(_first_line(process, max(end - time.monotonic(), 0)))
        except ValueError:
            if not is_last:
                return  # It was killed before it could say anything.
            raise MemoryUnavailable(
                f"The keeper of {self.path} could not be started.", hint=f"try: {' '.join(command)} --foreground"
            ) from None
        if "error" in facts:
            error = error_from_wire(facts["error"])
            # Its lock was taken from under it, so another try has a better chance; else it has waited long enough.
            if error.retryable and time.monotonic() < end - 1:
                return
            raise error

    # -- this process's own

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._name = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._idle: list[Any] = []
        self._changes = None
        self._answers: dict[tuple[Any, ...], _Kept] = {}
        self._kept_bytes = 0

    def __del__(self) -> None:
        for connection in self.__dict__.get("_idle", ()):
            connection.close()

    def _leave_parent(self) -> None:
        """Drop what a forked child inherited: the sockets are the parent's, its threads may hold the locks."""
        for connection in self._idle:
            connection.close()
        self._begin()

    def _drop_idle(self) -> None:
        with self._lock:
            dropped, self._idle = self._idle, []
        for connection in dropped:
            connection.close()


class _Kept(NamedTuple):
    """An answer that is true while the counts of changes are the same, until a record in it expires."""

    as_of: list[int]
    places: Sequence[int]
    until: int | None
    result: QueryAnswer
    values: bytes | None
    size: int


def _may_keep(query: Query) -> bool:
    """Return whether counts of changes tell for how long the answer is true."""
    is_point = query.keys is not None and query.text is None and query.vector is None and query.give == "records"
    return is_point or query.give == "table"


def _with_values(result: QueryAnswer, values: bytes) -> QueryAnswer:
    """Return a result with lists and dicts of its own."""
    records = []
    for record, value in zip(result.records, marshal.loads(values), strict=True):  # noqa: S302 - our own bytes
        fresh = object.__new__(MemoryRecord)  # As in `make_record`, whose moments take longer than the rest.
        fresh.__dict__.update(vars(record), value=value)
        records.append(fresh)
    return QueryAnswer(records=tuple(records), total=result.total)


def _result(rows: Iterable[Sequence[Any]], total: int | None = None) -> QueryAnswer:
    records = tuple([make_record(*fields) for fields in rows])
    return QueryAnswer(records=records, total=len(records) if total is None else total)


class _Again(NamedTuple):
    """How to repeat a request: its id, and a function that returns the message for the second time."""

    request_id: str
    message: Callable[[], bytes]


def _message(**fields: Any) -> bytes:
    return protocol.frame(protocol.dumps(fields))


def _environment() -> dict[str, str]:
    """Return the variables that a keeper needs; it lives long, so it does not get API keys and other secrets."""
    names = {n: v for n, v in os.environ.items() if n in _KEPT_VARIABLES or n.startswith(_KEPT_PREFIXES)}
    source = str(Path(__file__).resolve().parents[2])
    names["PYTHONPATH"] = os.pathsep.join(filter(None, [source, names.get("PYTHONPATH")]))
    return names | {"MALLOC_ARENA_MAX": "2"}


def _first_line(process: subprocess.Popen[bytes], timeout: float) -> bytes:
    """Return what a process says first; nothing where it says nothing in time, and then it is ended."""
    from nbtools.ground.aio import start_thread  # a loop, which only the first client waits for, and beside its keeper

    assert process.stdout is not None
    lines: list[bytes] = []
    reader = start_thread(lambda stream: lines.append(stream.readline()), process.stdout, name="nbtools-keeper-line")
    reader.join(timeout)
    line = lines[0] if lines else b""
    if not line:
        process.kill()
    # A keeper goes on in the background by a fork; without one, the process is the keeper itself, and stays.
    if line and not hasattr(os, "fork"):
        process.returncode = 0
    process.wait()
    if lines:
        process.stdout.close()
    return line
