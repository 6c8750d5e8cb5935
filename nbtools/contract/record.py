"""The record of calls: what was asked, by whom, and how it ended.

A `CallRecorder` keeps the last records in memory and hands them to a sink, such as the memory database, from a
separate thread and several at once: writing history never makes a call slower, and an unavailable store takes no tool
away. What the sink does not take waits, is tried again, and is told. A call that takes long is on record from
then on, without an end: if its process is killed, nothing is left to say how it ended.
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.contract.label import Label
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import ToolCall
from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.ground.aio import start_thread
from nbtools.texts.redaction import conceal_start
from nbtools.texts.secret_values import MASK, known_forms, secrecy

_KEPT = 1_000
_BATCH = 100
_GATHER_S = 0.05
# A call that takes longer is recorded before its end, too: one write more, and none for the many quick ones.
_LONG_S = 0.25
_NO_END = "it began, and its end is not on record: it is running or waiting, or its process was ended"
# How long a sink that takes nothing is left alone.
_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0
_MAX_TEXT = 4_000
# What a save stores lies in the memory already, where it can be deleted and forgotten: its record says how much it was,
# and by the hash whether two were the same. A copy here would stand on the disk twice, in a journal and in a table.
_STORED = {"memory_save": "value"}
# Characters of all arguments together: they are searched for secrets where all calls wait, and a frame has many texts.
_JSON = (str, int, float, list, tuple, dict, type(None))
_MAX_ALL = 40_000
_MAX_ITEMS, _MAX_NAME = 100, 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One call as it is remembered; secrets are redacted and long texts are cut.

    Attributes
    ----------
    call_id
        Id of the call.
    run_id
        Id of the run that it belongs to; `None` outside of runs.
    parent_id
        Id of the call that made it; `None` where no call did.
    tool
        Name of the tool that was called.
    caller
        The face that called it, such as ``"python"`` or ``"mcp"``.
    session
        The connection it came over, by a name that leads to no other; empty for the workbench's own user.
    arguments
        As given, redacted; of what a memory save stores only size in bytes and SHA-256 (of its JSON text).
    ok
        Whether it succeeded; `None` where no end is known.
    code
        Code of the error; `None` on success.
    message
        Message of the error; `None` on success.
    started_at
        Seconds since the epoch.
    duration_s
        Seconds; `None` where no end is known.
    artifacts
        Path, MIME type, size in bytes and SHA-256 of each file that was made.
    approval
        How it was approved, see `nbtools.contract.tool.ToolCall`; `None` where nobody was asked.
    """

    call_id: str
    run_id: str | None
    parent_id: str | None
    tool: str
    caller: str
    arguments: Mapping[str, Any]
    ok: bool | None
    code: str | None
    message: str | None
    started_at: float
    duration_s: float | None
    artifacts: tuple[Mapping[str, Any], ...] = ()
    session: str = ""
    approval: Mapping[str, Any] | None = None

    @classmethod
    def from_result(cls, call: ToolCall, result: ToolResult | None, started_at: float) -> CallRecord:
        """Make the record of a call; `None` for the result of one that has not ended."""
        short = functools.partial(_ShortJson, secret_forms=known_forms())
        arguments = _without_stored(call.tool, call.arguments)
        approval = call.approval and {
            name: _without_stored(call.tool, part) if isinstance(part, Mapping) else part
            for name, part in call.approval.items()
        }
        return cls(
            call_id=call.call_id,
            run_id=call.run_id,
            parent_id=call.parent_id,
            tool=short().of(call.tool[:_MAX_NAME]),
            caller=call.caller,
            session=name_of(call.session) if call.session else "",
            arguments=short().of(arguments),
            ok=result.ok if result else None,
            code=result.error.code if result and result.error else None,
            message=_NO_END if result is None else short().of(result.error.message) if result.error else None,
            started_at=started_at,
            duration_s=result.duration_s if result else None,
            artifacts=tuple([{**a.to_dict(), "sha256": a.sha256} for a in (result.artifacts if result else ())]),
            approval=short().of(approval) if approval is not None else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        fields = {**vars(self), "arguments": dict(self.arguments), "artifacts": [dict(a) for a in self.artifacts]}
        if self.approval is None:
            del fields["approval"]
        return fields


def name_of(session: str) -> str:
    """Return the name of a session in records, which are read by others: its own id may open it."""
    return hashlib.sha256(session.encode()).hexdigest()[:16] if session else ""


class Digest(dict[str, Any]):
    """Size in bytes and SHA-256 of a value's JSON text, which stand in a record for the value."""

    def __init__(self, text: str) -> None:
        data = text.encode()
        super().__init__(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _without_stored(tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call, of what a save stores only size and hash."""
    stored = _STORED.get(tool, "")
    value = arguments.get(stored)
    if stored not in arguments or isinstance(value, Digest):
        return arguments
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return {**arguments, stored: Digest(text)}
    except (TypeError, ValueError, RecursionError):
        return arguments  # what is not JSON is refused by the memory


@dataclasses.dataclass(slots=True)
class _ShortJson:
    """Makes short JSON without secrets: long texts are cut, and so is what comes after the first characters of all.

    A text has no halves of characters either: a single one would make the whole table of records unreadable.
    """

    secret_forms: tuple[str, ...]
    left: int = _MAX_ALL

    def of(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON; what is not JSON by its ``repr``."""
        # Numbers count a little as well: a list of a million of them must not fill a record.
        if value is None or isinstance(value, bool | int | float):
            self.left -= 8
            return value
        if isinstance(value, str):
            return self._text(value)
        room = min(_MAX_ITEMS, max(self.left // 8, 0))
        if isinstance(value, Mapping) and depth < 6:
            fields = {
                # Only JSON values can be asked whether they are empty: a frame raises.
                self._text(name): MASK
                if secrecy(name) == 2 and (not isinstance(item, _JSON) or item)
                else self.of(item, depth + 1)
                for name, item in ((str(key), item) for key, item in itertools.islice(value.items(), room))
            }
            return fields if len(fields) == len(value) else {**fields, "…": f"{len(value) - len(fields):,} more"}
        if isinstance(value, list | tuple | set) and depth < 6:
            items = [self.of(item, depth + 1) for item in itertools.islice(value, room)]
            return items if len(items) == len(value) else [*items, f"… {len(value) - len(items):,} more"]
        try:
            return self._text(repr(value)[:200])
        except Exception:  # nested too deeply, or a class whose repr fails: the record goes on
            return f"<{type(value).__name__}>"

    def _text(self, text: str) -> str:
        most = min(_MAX_TEXT, max(self.left, 0))
        self.left -= min(len(text), most)
        # Most texts are ASCII, which cannot hold a half of a character.
        whole = text if text.isascii() else text.encode("utf-8", "replace").decode()
        return conceal_start(whole, most, self.secret_forms)


class CallRecorder:
    """Keeps records, and hands them on.

    Parameters
    ----------
    sink
        Called with the dicts of some records, oldest first, in a thread of the recorder's own; `None` keeps them in
        memory only. What it cannot take is tried again, see `unwritten`.
    most_waiting
        How many records wait at the most for a sink that takes none.

    Attributes
    ----------
    running
        Ids of the calls that have begun and are not recorded yet.
    begun
        Of those that run, by their id: the call, and when it began; without those that are on record as such.
    problem
        Why the sink took nothing the last time; `None` where it took all.
    lost
        How many records never reach it: it refused them, or too many were waiting.
    values
        What a value of this process may hold, whatever it was made of: a call may have given it.
    """

    def __init__(
        self, sink: Callable[[list[dict[str, Any]]], None] | None = None, *, most_waiting: int = 5_000
    ) -> None:
        self.running: set[str] = set()
        self.begun: dict[str, tuple[ToolCall, float]] = {}
        self._look_at = 0.0
        self.values = Label(private=True)
        self._recent: collections.deque[CallRecord] = collections.deque(maxlen=_KEPT)
        self._sink = sink
        self._queue: queue.SimpleQueue[CallRecord | threading.Event | None] = queue.SimpleQueue()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._waiting: list[dict[str, Any]] = []
        self._most = most_waiting
        self._try_at, self._pause = 0.0, _RETRY_S
        self.problem: BaseException | None = None
        self.lost = 0

    def append(self, record: CallRecord) -> None:
        """Remember a call, only for the sink if it has not ended; returns at once."""
        if record.ok is not None:
            self._recent.append(record)
        if self._sink is None:
            return
        self._queue.put(record)
        if self._thread is None:
            # The call is done, thread or not: the next one, or `close`, hands its record on.
            with contextlib.suppress(LimitExceeded):
                self._start()

    def begin(self, call: ToolCall) -> None:
        """Put a call on record that runs for a quarter second or longer, unless it leaves `begun` before."""
        self.begun[call.call_id] = call, time.time()
        if (now := time.monotonic()) > self._look_at:  # one timer for all: most calls are over long before
            self._look_at = now + _LONG_S
            asyncio.get_running_loop().call_later(_LONG_S, self._look)

    def _look(self) -> None:
        for call, started_at in list(self.begun.values()):
            if time.time() - started_at >= _LONG_S:
                self.append(CallRecord.from_result(call, None, started_at))
                del self.begun[call.call_id]
        if self.begun:
            self._look_at = time.monotonic() + _LONG_S
            asyncio.get_running_loop().call_later(_LONG_S, self._look)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._hurry.clear()
                self._thread = start_thread(self._write, name="nbtools-records")
                atexit.register(_close_at_exit, weakref.ref(self))

    def _write(self) -> None:
        ended = False
        while not ended:
            records, flushed, ended = self._gathered()
            self._hand_on([record.to_dict() for record in records], is_last=ended or flushed is not None)
            if flushed is not None:
                self._hurry.clear()
                flushed.set()

    def _gathered(self) -> tuple[list[CallRecord], threading.Event | None, bool]:
        """Wait for records; return them, what to set when they are handed on, and whether they are the last."""
        try:
            item = self._queue.get(timeout=max(self._try_at - time.monotonic(), 0.0) if self._waiting else None)
        except queue.Empty:
            return [], None, False
        if isinstance(item, CallRecord):
            # Many quick calls become one write, and the thread does not compete with each of them.
            self._hurry.wait(_GATHER_S)
        records: list[CallRecord] = []
        while isinstance(item, CallRecord):
            records.append(item)
            if len(records) == _BATCH or self._queue.empty():
                return records, None, False
            item = self._queue.get()
        return records, item, item is None

    def _hand_on(self, records: list[dict[str, Any]], *, is_last: bool) -> None:
        """Hand on what waits and these records, where it is time to try, and let wait what the sink does not take."""
        with self._lock:
            self._waiting += records
            self.lost += max(len(self._waiting) - self._most, 0)
            self._waiting = self._waiting[-self._most :]
        if self._waiting and (is_last or self.problem is None or time.monotonic() >= self._try_at):
            left = self._not_taken(self._waiting, _BATCH)
            self._pause = min(2 * self._pause, _LONGEST_RETRY_S) if left else _RETRY_S
            self._try_at = time.monotonic() + self._pause
            with self._lock:
                self._waiting, self.problem = left, self.problem if left else None

    def _not_taken(self, records: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
        """Return the records that the sink did not take now, and may take later; it gets so many at once."""
        assert self._sink is not None, "the thread is started for a sink only"
        for start in range(0, len(records), most):
            try:
                self._sink(records[start : start + most])
            except (InvalidArguments, LimitExceeded):
                if most > 1:  # one record that the store refuses must not take the others with it
                    return self._not_taken(records[start:], 1)
                self.lost += 1
            except Exception as exc:
                self.problem = exc
                return records[start:]
        return []

    def unwritten(self) -> list[dict[str, Any]]:
        """Return the records that wait for the sink, which could not take them, oldest first."""
        with self._lock:
            return list(self._waiting) if self.problem is not None else []

    def summary(self) -> str:
        """Return in a sentence whether every call of this process is on record."""
        why = f" ({self.problem})" if self.problem is not None else ""
        missing = [f"{self.lost:,} will never be on record{why}"] if self.lost else []
        if waiting := len(self.unwritten()):
            missing.insert(0, f"{waiting:,} are not on record yet{why}; they are written when that is over")
        return f"of this process's calls, {'; '.join(missing)}" if missing else "every call is on record"

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything so far has been handed on; return whether it was, within `timeout` seconds."""
        if self._thread is not None and self._thread.is_alive():
            done = threading.Event()
            self._queue.put(done)
            self._hurry.set()
            if not done.wait(timeout):
                return False
        return not self._waiting

    def recent(self, n: int | None = None) -> list[CallRecord]:
        """Return the last records of this process, oldest first; `None` returns all that are kept (1,000)."""
        records = list(self._recent)
        return records if n is None else records[-n:]

    def close(self, timeout: float = 5.0, *, running_s: float = 0.0) -> None:
        """Hand on what is left, within `timeout` seconds, and end the thread.

        A call that was stopped a moment ago is still to be recorded: it is waited for, for `running_s` at the most.
        """
        ends = time.monotonic() + running_s
        while self.running and time.monotonic() < ends:
            time.sleep(0.01)
        thread, self._thread = self._thread, None
        if thread is None and self._queue.empty():
            return
        self._queue.put(None)
        self._hurry.set()
        if thread is None:
            self._write()
        else:
            thread.join(timeout)
        if thread is None or not thread.is_alive():
            with self._lock:
                # Nobody tries again: what still waits is lost, and `told` says so.
                self.lost += len(self._waiting)
                self._waiting = []


def _close_at_exit(recorder: weakref.ref[CallRecorder]) -> None:
    current = recorder()
    if current is not None:
        current.close()
