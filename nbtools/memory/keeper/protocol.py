"""Protocol: the messages between the keeper and its clients.

A message is four bytes of length, big-endian, and so many bytes of JSON; the highest bit of the length says that
another frame of the same answer follows. A client greets, then asks one question at a time::

    → {"hello": 1, "version": "0.1.0", "pid": 4711}              ← {"hello": 1, "version": …, "pid": …, "notices": […]}
    → {"op": "get", "scope": ["a", null, null], "keys": ["k"]}   ← {"rows": [[…]]}
    → {"op": "apply", "id": "5f1c…-7", "new": true, "changes": […]}   ← {"done": [[row, 1], …]}
    ← {"error": {"class": "VersionConflict", "message": …}}

Never pickle: what arrives can be wrong, but it can do nothing.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import operator
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from nbtools.errors import InternalError, NbtoolsError, error_to_wire
from nbtools.ground import framing
from nbtools.memory.repository import AppliedChange, CallQuery, Change, Query
from nbtools.memory.rules.rows import Row, make_record, scope_of
from nbtools.memory.rules.transitions import ChangeOutcome

PROTOCOL = 4
MAX_FRAME = 256 << 20
_MORE = 1 << 31
_HEAD = struct.Struct(">I")
_ROWS_PER_FRAME = 500
_BYTES_PER_FRAME = 3 << 20  # whole groups of three, which base64 writes without a mark of the end

dumps = json.JSONEncoder(separators=(",", ":"), default=operator.attrgetter("parts")).encode  # of a scope


def frame(text: str, *, more: bool = False) -> bytes:
    """Return the bytes of one frame."""
    body = text.encode()
    return _HEAD.pack(len(body) | (_MORE if more else 0)) + body


def is_one_frame(data: bytes) -> bool:
    """Return whether the bytes are exactly one whole frame, as they nearly always are."""
    return len(data) >= 4 and _HEAD.unpack_from(data)[0] == len(data) - 4


def take_frame(inbox: bytearray) -> bytes | None:
    """Remove and return the first whole frame of the bytes that have arrived; `None` if there is none.

    Raises
    ------
    ValueError
        It is longer than any frame may be: the other side does not speak this language.
    """
    message = framing.take(inbox, _HEAD, limit=MAX_FRAME)
    return None if message is None else message[1]


def receive(connection: socket.socket) -> dict[str, Any]:
    """Read one whole answer; lists of its frames are joined.

    Raises
    ------
    EOFError
        The other side is gone.
    """
    answer: dict[str, Any] | None = None
    inbox = bytearray(connection.recv(1 << 16))
    while True:
        end = 4
        while len(inbox) < end or len(inbox) < (end := 4 + (_HEAD.unpack_from(inbox)[0] & ~_MORE)):
            # Nothing comes before it is asked for, so what arrives behind a frame belongs to the same answer. Reading
            # frame by frame made lists of 2,000 records up to twice as slow.
            arrived = connection.recv(1 << 20)
            if not arrived:
                raise EOFError("the keeper closed the connection")
            inbox += arrived
        is_last = not _HEAD.unpack_from(inbox)[0] & _MORE
        part: dict[str, Any] = framing.parsed(inbox[4:end])
        if answer is None:
            answer = part
        else:
            for name, items in part.items():
                answer[name] += items
        if is_last:
            return answer
        del inbox[:end]


def connect_to(address: Any, *, timeout: float) -> socket.socket:
    """Return a connection to an address that a keeper announced.

    Raises
    ------
    OSError
        Nobody listens there.
    """
    if isinstance(address, dict) and "unix" in address:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: Any = address["unix"]
    elif isinstance(address, dict) and "tcp" in address:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        target = ("127.0.0.1", address["tcp"])
    else:
        raise ConnectionRefusedError("no keeper has announced itself")
    try:
        connection.settimeout(timeout)
        connection.connect(target)
        limit_waiting(connection, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def limit_waiting(connection: socket.socket, timeout: float) -> None:
    """Limit every wait on a connection to `timeout` seconds; then it raises `BlockingIOError` or `TimeoutError`."""
    connection.settimeout(timeout)
    if sys.platform != "win32":
        # The system itself watches the time: a timeout of Python's costs a call more for each part read.
        connection.setblocking(True)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(timeout), int(timeout % 1 * 1e6)))


# -- records


@functools.lru_cache(maxsize=1024)
def _parts_to_text(agent: str, workflow: str | None, node: str | None) -> str:
    """Return the parts of a scope as they stand in a JSON array."""
    return dumps((agent, workflow, node))[1:-1]


def row_to_wire(row: Row, *, values: bool = True, score: float | None = None) -> str:
    """Return a row as a JSON array, its value pasted in as the JSON text that it is."""
    value, tags = row.value if values and row.value is not None else "null", ",".join(map(quote, row.tags))
    return (
        f"[{_parts_to_text(row.agent, row.workflow, row.node)},{quote(row.key)},{value},[{tags}],"
        f"{row.created},{row.updated},{'null' if row.expires is None else row.expires},{row.version},"
        f'"{row.op}",{"null" if score is None else dumps(score)}]'
    )


def rows_to_frames(
    rows: Sequence[tuple[Row, float | None]], *, values: bool = True, total: int | None = None
) -> Iterator[bytes]:
    """Yield the frames of an answer with rows; `total` stands in the first."""
    start = 0
    while True:
        part = rows[start : start + _ROWS_PER_FRAME]
        text = ",".join(row_to_wire(row, values=values, score=score) for row, score in part)
        extra = f'"total":{total},' if start == 0 and total is not None else ""
        start += _ROWS_PER_FRAME
        more = start < len(rows)
        yield frame(f'{{{extra}"rows":[{text}]}}', more=more)
        if not more:
            return


def table_to_frames(table: bytes) -> Iterator[bytes]:
    """Yield the frames of an answer with a file, which JSON can hold only as base64."""
    for start in range(0, len(table), _BYTES_PER_FRAME):
        part = base64.b64encode(table[start : start + _BYTES_PER_FRAME]).decode()
        yield frame(f'{{"rows":[],"table":["{part}"]}}', more=start + _BYTES_PER_FRAME < len(table))


# -- changes and what became of them

_CHANGE: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Change)}
_RARE = {name: field for name, field in _CHANGE.items() if name not in {"kind", "key", "scope", "value"}}


def apply_to_wire(changes: Sequence[Change], request_id: str, *, is_new: bool) -> str:
    """Return the message that asks for a batch; what a change does not say is left out."""
    texts, new = ",".join(map(_change_to_wire, changes)), "true" if is_new else "false"
    return f'{{"op":"apply","id":{quote(request_id)},"new":{new},"changes":[{texts}]}}'


def _change_to_wire(change: Change) -> str:
    # The encoder of whole objects takes three times as long for the four fields that nearly all changes have.
    scope, fields = change.scope, vars(change)
    text = f'{{"kind":"{change.kind}","key":{quote(change.key)}'
    if scope is not None:
        text += f',"scope":[{_parts_to_text(scope.agent_id, scope.workflow_id, scope.node_id)}]'
    if change.value is not None:
        text += f',"value":{quote(change.value)}'
    for name, default in _RARE.items():
        if fields[name] is not default:  # 1.0 equals 1, and adding it makes another sum
            text += f',"{name}":{dumps(fields[name])}'
    return text + "}"


def change_from_wire(fields: Mapping[str, Any]) -> Change:
    """Return the change that a JSON object of `apply_to_wire` describes.

    Raises
    ------
    TypeError
        Its fields are not those of a change.
    """
    values = {**_CHANGE, **fields}
    if len(values) > len(_CHANGE) or "kind" not in fields:
        raise TypeError(f"a change does not have {sorted(fields)}")
    if values["scope"] is not None:
        values["scope"] = scope_of(*values["scope"])
    for name in ("tags", "vector"):
        if values[name] is not None:
            values[name] = tuple(values[name])
    change = object.__new__(Change)  # As in `make_record`.
    change.__dict__.update(values)
    return change


def done_to_wire(
    changes: Sequence[Change], done: Sequence[ChangeOutcome], notices: Sequence[str], as_of: list[Any] | None = None
) -> bytes:
    """Return the frame of an applied batch; a value that was written is not sent back to its writer.

    The caller of `forget` gets the notices: they name files that were left alone. `as_of` are the counts of the one
    key that was changed, and their places, where the answer is what a reader finds.
    """
    parts, forgets = [], False
    for change, (row, touched) in zip(changes, done, strict=True):
        text = "null" if row is None else row_to_wire(row, values=change.kind != "write")
        parts.append(f"[{text},{touched}]")
        forgets = forgets or change.kind == "forget"
    tail = f',"notices":{dumps(notices)}' if forgets else ""
    tail += f',"as_of":{as_of}' if as_of else ""
    return frame(f'{{"done":[{",".join(parts)}]{tail}}}')


def applied_from_wire(changes: Sequence[Change], done: Iterable[Sequence[Any]]) -> list[AppliedChange]:
    """Return the result of `Repository.apply` that the keeper's answer describes."""
    applied = []
    for change, (fields, touched) in zip(changes, done, strict=True):
        record = None
        if fields is not None:
            if change.kind == "write":
                fields[4] = json.loads(change.value or "null")
            record = make_record(*fields)
        applied.append(AppliedChange(record=record, count=touched))
    return applied


# -- questions


def query_to_wire(query: Query) -> str:
    """Return the message that asks a query; conditions that say nothing are left out."""
    scope = query.scope
    if (
        scope is not None
        and query.keys is not None
        and query.text is None
        and query.vector is None
        and query.give == "records"
    ):
        # The point read, which looks at nothing but keys.
        keys, values = ",".join(map(quote, query.keys)), "" if query.values else ',"values":false'
        parts = _parts_to_text(*scope.parts)
        return f'{{"op":"get","scope":[{parts}],"keys":[{keys}]{values}}}'
    fields = {name: value for name, value in vars(query).items() if value != getattr(_NO_CONDITION, name)}
    return dumps({"op": "query", **fields})


_NO_CONDITION = Query()
_QUERY = ("keys", "prefix", "tags", "match", "text", "vector", "limit", "after", "values", "give")


def query_from_wire(fields: Mapping[str, Any]) -> Query:
    """Build a query from what `query_to_wire` returned."""
    values = {name: fields[name] for name in _QUERY if name in fields}
    for name in ("keys", "tags", "vector"):
        if name in values:
            values[name] = tuple(values[name])
    if "scope" in fields:
        values["scope"] = scope_of(*fields["scope"])
    return Query(**values)


def call_query_from_wire(fields: Mapping[str, Any]) -> CallQuery:
    """Build a query for records of tool calls."""
    return CallQuery(**{name: fields[name] for name in ("limit", "call_id", "run_id", "tool") if name in fields})


# -- errors


def failure_to_wire(exc: Exception) -> dict[str, Any]:
    """Return an answer that is an error, as a JSON object."""
    if not isinstance(exc, NbtoolsError):
        exc = InternalError(f"The keeper failed: {type(exc).__name__}: {exc}")
    return {"error": error_to_wire(exc)}
