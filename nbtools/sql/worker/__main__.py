"""The worker: the process that runs what a model sends, and that can be killed.

``python -m nbtools.sql.worker LINE SIDE`` serves one owner over two sockets, whose descriptors it is given. It imports
what it needs, confines itself (memory, file size, files, network: see `nbtools.confine`), and only then opens DuckDB.
The main thread runs requests from the line, one after the other; another listens on the side, so that an interrupt
reaches the statement that is running. When the owner is gone, so is the worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import pickle
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from nbtools import confine
from nbtools.errors import InternalError, NbtoolsError, error_to_wire, of_the_system
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.duckdb.frames import ParquetFrame, StreamedFrame
from nbtools.sql.engines.policies import policy_for
from nbtools.sql.engines.protocol import EngineOptions, QueryControl, QueryRequest, SqlEngine
from nbtools.sql.engines.servers import open_server
from nbtools.sql.engines.sqlite import SQLiteEngine
from nbtools.sql.results.engine_copy import FileCopy
from nbtools.sql.results.rows import ArrowRows, PythonRows, ResultRows
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.verdict.transpile import transpile
from nbtools.sql.worker.protocol import MessageSocket, out_of_memory, plain_dumps

# A row group of DuckDB: the share of a frame that one of its threads takes at a time.
_BATCH_ROWS = 122_880
# A message costs a wake-up of the owner, and waiting batches cost memory.
_MESSAGE_BYTES = 4_000_000


class _RequestServer:
    """What the two threads share: the lines to the owner, and the control of the statement that runs."""

    def __init__(self, line: socket.socket, side: socket.socket) -> None:
        self.wire = MessageSocket(line)
        self.side = MessageSocket(side)
        self.running = (0, QueryControl())
        self.waiting: list[Any] = []
        self.waiting_bytes = self.sent = 0
        self.roots: tuple[str, ...] = ()
        self.is_server = False
        self._policy: Policy | None = None

    def listen(self) -> None:
        """Take interrupts, and questions about the progress, until the owner is gone."""
        try:
            while True:
                kind, body = self.side.receive()
                number, control = self.running
                if kind == b"I" and number == json.loads(bytes(body)):
                    control.stop("stop")
                elif kind == b"G":
                    self.side.send_json(b"G", [number, control.progress()])
        except (EOFError, OSError):
            # There is nobody to tell, and the main thread may be deep inside a query.
            os._exit(0)

    def serve(self, engine: SqlEngine) -> None:
        """Run one request after the other until the owner is gone."""
        while True:
            try:
                _, body = self.wire.receive()
            except EOFError:
                return
            descriptors = self.wire.take_descriptors()
            try:
                self.answer(engine, pickle.loads(body), descriptors)  # noqa: S301 - the owner is trusted
            except NbtoolsError as exc:
                self.wire.send_json(b"X", error_to_wire(exc))
            except MemoryError:
                self.wire.send_json(b"X", error_to_wire(out_of_memory()))
            except (EOFError, OSError):
                return
            except Exception as exc:
                self.wire.send_json(b"X", error_to_wire(InternalError(f"the SQL worker failed: {exc!r}")))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def answer(self, engine: SqlEngine, fields: dict[str, Any], descriptors: list[int]) -> None:
        """Run one request and send what it gave."""
        control = QueryControl()
        self.running = (fields.pop("number"), control)
        task = fields.pop("task")
        with contextlib.suppress(OSError):
            # A folder that is gone, or not ours to enter: then relative paths lead nowhere.
            os.chdir(fields.pop("folder"))
        frames = {name: _frame(kind, location, descriptors) for name, (kind, location) in fields.pop("frames").items()}
        form = fields.pop("form")
        # The owner writes the file.
        request = QueryRequest(frames=frames, copy=None if form is None else FileCopy(None, form), **fields)
        match task:
            case "explain":
                answer: dict[str, Any] = {"plan": engine.explain(request, control)}
            case "check":
                answer = dataclasses.asdict(self.policy(engine).check(request.sql))
            case "transpile":
                read = str((request.parameters or {"read": engine.dialect})["read"])  # type: ignore[call-overload]  # a mapping
                answer = {"sql": transpile(request.sql, read=read, write=engine.dialect)}
            case "can_write":
                answer = {"why": engine.can_write()}
            case "catalog":
                answer = {"tables": [dataclasses.asdict(table) for table in engine.catalog()]}
            case _:
                answer = self.run(engine, request, control)
        self.wire.send_json(b"H", answer)

    def run(self, engine: SqlEngine, request: QueryRequest, control: QueryControl) -> dict[str, Any]:
        """Run a query, send its rows, and return what else there is to say of them."""
        self.waiting, self.waiting_bytes, self.sent = [], 0, 0
        # What is bounded need not be handed on as it comes, and servers then have more than one way to read it.
        on_rows = None if self.is_server and request.max_bytes is not None else self.send_rows
        fetched = engine.run(dataclasses.replace(request, on_rows=on_rows), control)
        if not self.sent and not self.waiting:
            # What has no rows has types all the same.
            self.send_rows(fetched.columns, fetched.rows)
        self.send_waiting()
        return {"columns": fetched.columns, "types": fetched.types, "cut_by": fetched.cut_by}

    def policy(self, engine: SqlEngine) -> Policy:
        """Return the policy for texts that the engine is to run."""
        if self._policy is None:
            self._policy = policy_for(engine, self.roots)
        return self._policy

    def send_rows(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        """Send some rows in the form they are in: the result as a whole is never held here."""
        if isinstance(rows, ArrowRows):
            # A message costs a little, a batch may be small.
            self.waiting.append(rows.table)
            self.waiting_bytes += self.waiting[-1].nbytes
            if self.waiting_bytes >= _MESSAGE_BYTES:
                self.send_waiting()
        else:
            assert isinstance(rows, PythonRows)
            self.sent += 1
            self.wire.queue(b"T", plain_dumps(columns, rows.dtypes, rows.to_tuples()))

    def send_waiting(self) -> None:
        """Send the batches that wait for others."""
        waiting, self.waiting, self.waiting_bytes = self.waiting, [], 0
        if waiting:
            self.sent += 1
            self.wire.queue(b"A", memoryview(_arrow_stream(waiting)))


def _arrow_stream(tables: list[Any]) -> Any:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


def _frame(kind: str, location: Any, descriptors: list[int]) -> Any:
    """Return a frame that the owner shared: memory in Arrow's form, or a Parquet file."""
    if kind == "parquet":
        return ParquetFrame(path=Path(location))
    import pyarrow as pa

    # Private: older kernels map sealed memory in no other way, and nothing is copied as long as nothing is written.
    shared = mmap.mmap(descriptors[location], 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    table = pa.ipc.open_stream(pa.py_buffer(shared)).read_all()
    # The engine's threads share a stream batch by batch.
    return StreamedFrame(pa.Table.from_batches(table.to_batches(max_chunksize=_BATCH_ROWS), schema=table.schema))


def _confine(settings: Mapping[str, Any]) -> list[str]:
    """Confine this process; return the parts of the confinement that the system lacks."""
    if settings["level"] == "off":
        return ["confinement (switched off)"]
    applied = confine.apply(confine.Confinement.from_dict(settings))
    missing = list(applied.missing)
    if applied.level == "strict":
        try:
            confine.lock_network()
        except OSError:
            missing.append("the lock on the network")
    return missing


def _import_libraries(settings: Mapping[str, Any]) -> None:
    """Import what the engine needs while files can still be read."""
    if settings["kind"] != "duckdb":
        if not settings["arrow"]:
            cast("dict[str, Any]", sys.modules)["pyarrow"] = None
        return
    import duckdb  # noqa: F401 - see above

    # This makes an import fail: the owner does without pyarrow, or pyarrow shall do without numpy, which nothing here
    # uses and which takes longer to load than all the rest.
    cast("dict[str, Any]", sys.modules)["numpy" if settings["arrow"] else "pyarrow"] = None
    if settings["arrow"]:
        import pyarrow as pa  # noqa: F401 - see above


def _open_engine(settings: Mapping[str, Any]) -> SqlEngine:
    database = None if settings["database"] is None else Path(settings["database"])
    if settings["kind"] == "sqlite":
        return SQLiteEngine(database)
    if settings["kind"] == "server":
        return open_server(settings["url"])
    if settings["kind"] == "workbooks":
        from nbtools.sql.worker.workbooks import WorkbookReader

        return WorkbookReader()
    options_given = settings["options"]
    options = EngineOptions(**options_given | {"roots": tuple(map(Path, options_given["roots"]))})
    engine = DuckDBEngine(database, options, spill=Path(settings["spill"]))
    engine.warm()
    return engine


def main(line: int, side: int) -> None:
    """Serve the owner at the other ends of the two sockets until it is gone."""
    worker = _RequestServer(socket.socket(fileno=line), socket.socket(fileno=side))
    try:
        kind, body = worker.wire.receive()
    except EOFError:
        return
    assert kind == b"C"
    settings = json.loads(bytes(body))
    try:
        _import_libraries(settings)
        missing = _confine(settings["confinement"])
        engine = _open_engine(settings)
        worker.roots, worker.is_server = tuple(settings["options"]["roots"]), settings["kind"] == "server"
        threading.Thread(target=worker.listen, name="listen", daemon=True).start()
    except (NbtoolsError, OSError, RuntimeError, MemoryError) as exc:
        problem = exc if isinstance(exc, NbtoolsError) else of_the_system(exc)
        if problem is None:
            raise
        worker.wire.send_json(b"X", error_to_wire(problem))
        return
    # The owner reads errors until now. What is said from now on goes where the standard output goes, to nobody.
    os.dup2(1, 2)
    worker.wire.send_json(b"R", {"missing": missing, "name": engine.name})
    with contextlib.suppress(BrokenPipeError):
        worker.serve(engine)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
