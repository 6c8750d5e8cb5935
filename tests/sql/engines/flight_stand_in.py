"""A Flight SQL server of a few lines over DuckDB: the real protocol by pyarrow, as far as queries need it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import flight

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."


def _fields(data: bytes) -> dict[int, bytes]:
    """Return the length-delimited fields of a message; the messages used here have no others."""
    found, at = {}, 0
    while at < len(data):
        number, at = data[at] >> 3, at + 1
        size = shift = 0
        while True:
            size |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                break
        found[number] = data[at : at + size]
        at += size
    return found


def _message(**values: bytes) -> bytes:
    made = b""
    for name, value in values.items():
        size, head = len(value), bytes([int(name[1:]) << 3 | 2])
        while size > 0x7F:
            head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
        made += head + bytes([size]) + value
    return made


def _packed(kind: str, **values: bytes) -> bytes:
    return _message(_1=(PREFIX + kind).encode(), _2=_message(**values))


def _unpacked(data: bytes) -> tuple[str, dict[int, bytes]]:
    outer = _fields(data)
    return outer[1].decode().removeprefix(PREFIX), _fields(outer.get(2, b""))


class FlightSqlServer(flight.FlightServerBase):
    """Answers queries; each statement runs on a cursor of its own. A text with ``endless`` never ends."""

    def __init__(self, token: str) -> None:
        super().__init__("grpc://127.0.0.1:0", middleware={"auth": _Doorkeeper(token)})
        self.database = duckdb.connect()
        self.texts: list[str] = []
        self.values: dict[bytes, list[Any]] = {}
        self.over = threading.Event()

    def _relation(self, sql: str, values: list[Any] | None = None) -> Any:
        self.texts.append(sql)
        try:
            return self.database.cursor().sql(sql, params=values).to_arrow_reader(1_000)
        except duckdb.Error as exc:
            raise pa.ArrowInvalid(str(exc)) from exc

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        kind, fields = _unpacked(descriptor.command)
        schema = self._relation(*self._statement(kind, fields)).schema
        endpoint = flight.FlightEndpoint(flight.Ticket(descriptor.command), [])
        return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def _statement(self, kind: str, fields: dict[int, bytes]) -> tuple[str, list[Any] | None]:
        return fields[1].decode(), self.values.get(fields[1]) if kind == "CommandPreparedStatementQuery" else None

    def do_get(self, context: Any, ticket: Any) -> Any:
        kind, fields = _unpacked(ticket.ticket)
        sql, values = self._statement(kind, fields)
        reader = self._relation(sql, values)

        def batches() -> Iterator[Any]:
            yield from reader
            while "endless" in sql and not context.is_cancelled() and not self.over.wait(0.01):
                yield pa.RecordBatch.from_pylist([dict.fromkeys(reader.schema.names)], schema=reader.schema)

        return flight.GeneratorStream(reader.schema, batches())

    def do_action(self, context: Any, action: Any) -> Any:
        fields = _unpacked(action.body.to_pybytes())[1]
        if action.type == "CreatePreparedStatement":
            yield flight.Result(_packed("ActionCreatePreparedStatementResult", _1=fields[1]))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        _, fields = _unpacked(descriptor.command)
        self.values[fields[1]] = list(reader.read_all().to_pylist()[0].values())


class _Doorkeeper(flight.ServerMiddlewareFactory):
    def __init__(self, token: str) -> None:
        self._token = token

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        if headers.get("authorization") != [f"Bearer {self._token}"]:
            raise flight.FlightUnauthenticatedError("the token is not valid, or has expired")


@contextlib.contextmanager
def serving(token: str) -> Iterator[FlightSqlServer]:
    """Run a server for the block."""
    server = FlightSqlServer(token)
    threading.Thread(target=server.serve, daemon=True).start()
    yield server
    server.over.set()
    server.shutdown()
