"""The third wall, the owner's side: engines in worker processes that are confined and can be killed.

Limits inside an engine do not contain everything: a function that builds one huge value looks at no clock and asks no
allocator. So what a model sends is judged and runs in a separate process, where a text that crashes a parser costs
nothing. It is interrupted when its time is over and killed half a second later; its memory is not ours; it sees the
allowed folders and no network, but for the driver of a server. Workers are kept warm and used again, one query at a
time; frames travel through shared memory in Arrow's form.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from nbtools import errors
from nbtools.errors import (
    InternalError,
    LimitExceeded,
    NbtoolsError,
    SandboxUnavailable,
    SqlFailed,
    error_from_wire,
)
from nbtools.ground.lazy import has, pa
from nbtools.ground.paths import working_folder
from nbtools.processes.process_tree import own_bytes
from nbtools.sql.engines.protocol import (
    CatalogColumn,
    CatalogTable,
    EngineAnswer,
    EngineOptions,
    OnRows,
    QueryControl,
    QueryRequest,
)
from nbtools.sql.engines.servers import open_server
from nbtools.sql.engines.temp_dirs import make_temp_dir, remove_temp_dir
from nbtools.sql.engines.urls import resolve_url
from nbtools.sql.results.rows import ArrowRows, PythonRows, ResultRows, join_parts
from nbtools.sql.verdict.verdict import Verdict
from nbtools.sql.worker.protocol import HEAD_BYTES, MessageSocket, plain_loads
from nbtools.sql.worker.shared_frames import SharedFrames
from nbtools.texts.redaction import redact, scrub_environment

# The worker's own needs besides the engine's memory: Python, Arrow, threads, the result on its way.
_OVERHEAD_BYTES = 512_000_000
# Variables that name no secret and that the interpreter or its libraries need to start.
_KEPT = frozenset({"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TZDIR", "LD_LIBRARY_PATH", "SYSTEMROOT"})
# Of a message without rows: a catalog of many thousand columns.
_HEAD_LIMIT = 8_000_000
# Of rows that are handed on and not kept.
_MOST_AT_ONCE = 1 << 31
_WorkerKind = Literal["duckdb", "sqlite", "server", "workbooks"]
# An idle worker holds 100 MB, and starting one takes longer than most queries: a notebook and one agent find theirs
# ready. Of each database one waits, and not for ever.
_IDLE = 2
_IDLE_S = 300.0
# So many run at one time for one database; further queries wait for their turn, as long as their time allows.
_MOST_BUSY = 4
_TURN_S = 0.05
# Verdicts that are kept, as `Policy` keeps them, which saves two messages.
_VERDICTS = 256
_VERDICT_LENGTH = 20_000
# A worker says that it is ready within this time: nobody else keeps a clock of its start.
_START_S = 60.0
# A worker that hangs up is about to end, and says how it ended.
_END_S = 5.0
# Of the output of a worker that does not start: the error, and where it was raised.
_LAST_LINES = 3
# The fields of a request that the worker gets as they are. It keeps no clock: the owner does.
_SENT = ("sql", "parameters", "catalogs", "max_rows", "max_bytes", "whole", "progress", "zone")
# The process has ended, or it sends nonsense (ValueError: neither JSON nor Arrow).
_BROKEN = (EOFError, OSError, ValueError, pickle.UnpicklingError)


class _WorkerProcess:
    """One worker process and the line to it."""

    def __init__(self, settings: dict[str, Any], start_s: float) -> None:
        if not hasattr(socket, "AF_UNIX") or os.name == "nt":
            raise SandboxUnavailable("isolated SQL needs Unix sockets, which this system lacks.")
        line, their_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        side, their_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        side.setblocking(False)
        self.wire = MessageSocket(line, limit=_HEAD_LIMIT)
        self._side = side
        self._share: float = -1.0
        self._number = 0
        self.is_answering = False
        self.idle_since = 0.0
        ends = (their_line.fileno(), their_side.fileno())
        # For its output until it is ready; a worker that writes more than fits a pipe does not wait for a reader.
        heard, sending = os.pipe()
        for end in (heard, sending):
            os.set_blocking(end, False)
        with os.fdopen(heard, "rb") as errors_of_start:
            with their_line, their_side, os.fdopen(sending, "wb"):
                self.process = subprocess.Popen(
                    [sys.executable, "-s", "-P", "-m", "nbtools.sql.worker", *map(str, ends)],
                    pass_fds=ends,
                    env=_environment(settings),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=sending,
                    # Ctrl-C on a terminal is for the owner, who interrupts the query.
                    start_new_session=True,
                )
            try:
                line.settimeout(start_s)
                self.wire.send_json(b"C", settings)
                kind, body = self.wire.receive()
                line.settimeout(None)
            except BaseException as exc:
                lost, is_late = isinstance(exc, EOFError | OSError), isinstance(exc, TimeoutError)
                if lost and not is_late:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(_END_S)
                self.end()
                if lost:
                    how = f" within {start_s:g} s" if is_late else ""
                    raise _start_error(self.process.returncode, errors_of_start.read() or b"", how) from exc
                raise
        failure = json.loads(bytes(body))
        if kind != b"R":
            self.end()
            raise error_from_wire(failure)
        self.missing: list[str] = failure["missing"]
        self.name: str = failure["name"]

    def ask(
        self, fields: dict[str, Any], descriptors: tuple[int, ...], on_rows: OnRows, room: int | None
    ) -> dict[str, Any]:
        """Send a request, pass the rows of the answer to `on_rows`, at most `room` bytes, and return its end."""
        self._number += 1
        self._share = -1.0
        self.is_answering = True
        self.wire.send(b"Q", pickle.dumps(fields | {"number": self._number}, protocol=5), descriptors)
        while True:
            self.wire.limit = _HEAD_LIMIT + (_MOST_AT_ONCE if room is None else room)
            kind, body = self.wire.receive()
            if kind not in {b"A", b"T"}:
                break
            room = None if room is None else max(0, room - len(body))
            on_rows(*_rows(kind, body))
        self.is_answering = False
        answer: dict[str, Any] = json.loads(bytes(body))
        if kind == b"X":
            raise error_from_wire(answer)
        return answer

    def interrupt(self) -> None:
        """Ask the worker to stop what it runs."""
        self._signal(b"I")

    def progress(self) -> float:
        """Return the last share that the worker sent, and ask for the next."""
        with contextlib.suppress(BlockingIOError, ValueError, OSError):
            # Answers are a few bytes long and come whole; of several, the last one counts.
            frame = self._side.recv(4_096)
            number, share = json.loads(frame[frame.rindex(b"G") + HEAD_BYTES :])
            # An answer may be about the query before.
            self._share = self._share if number != self._number else -1.0 if share is None else float(share)
        self._signal(b"G")
        return self._share if self.is_answering else -1.0

    def _signal(self, kind: bytes) -> None:
        # The caller must not block here: a worker that does not read its side socket is killed soon anyway.
        with contextlib.suppress(OSError):
            # The number keeps a late interrupt from ending the next request.
            MessageSocket(self._side).send_json(kind, self._number)

    def end(self) -> None:
        """Kill the process and wait for its end: it has nothing that needs an orderly shutdown."""
        self.process.kill()
        self.process.wait()
        self.wire.close()
        self._side.close()


class IsolatedEngine:
    """An engine in a worker process.

    Parameters
    ----------
    database
        A database file; `None` if there are only frames and files.
    options
        Roots and limits.
    kind
        What runs in the worker: ``"server"`` stands for the database of `url`, ``"workbooks"`` for a reader of them.
    arrow
        Whether frames and rows travel as Arrow; `None` where pyarrow is installed.
    url
        Of a server.
    idle_s
        Seconds after which a worker without a query ends.
    start_s
        Seconds within which a worker is ready; one that is not is killed.
    """

    def __init__(
        self,
        database: Path | None,
        options: EngineOptions,
        *,
        kind: _WorkerKind = "duckdb",
        arrow: bool | None = None,
        url: str | None = None,
        idle_s: float = _IDLE_S,
        start_s: float = _START_S,
    ) -> None:
        # Nothing is connected here; it only tells what the URL speaks, or that its driver is missing.
        server = None if url is None else open_server(url)
        self.dialect: str = "sqlite" if kind == "sqlite" else "duckdb" if server is None else server.dialect
        self.takes_frames = kind == "duckdb"
        self.name = {"duckdb": "DuckDB", "sqlite": "SQLite"}.get(kind, kind) if server is None else server.name
        self._most_idle = _IDLE if kind == "duckdb" and database is None else 1
        self._idle_s, self._start_s = idle_s, start_s
        self._timer: threading.Timer | None = None
        self._verdicts: dict[str, Verdict] = {}
        arrow = has("pyarrow") if arrow is None else arrow
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_MOST_BUSY)
        self._idle: list[_WorkerProcess] = []
        self._busy: dict[QueryControl, _WorkerProcess] = {}
        self._closed = False
        self._spill = make_temp_dir()
        self._shipped = SharedFrames(None if arrow else self._spill / "frames")
        self._settings = _settings(database, options, self._spill, kind=kind, arrow=arrow)
        if url is not None:
            self._settings["url"] = resolve_url(url)
        self._finalizer = weakref.finalize(self, _clean_up, self._idle, self._busy, self._shipped, self._spill)

    def warm(self) -> list[str]:
        """Start a worker if there is none; return what of the confinement this host lacks."""
        with self._borrow(QueryControl()) as worker:
            return worker.missing

    @contextlib.contextmanager
    def _borrow(self, control: QueryControl) -> Iterator[_WorkerProcess]:
        while not self._turns.acquire(timeout=_TURN_S):
            control.check()
        try:
            with self._lend(control) as worker:
                yield worker
        finally:
            self._turns.release()

    @contextlib.contextmanager
    def _lend(self, control: QueryControl) -> Iterator[_WorkerProcess]:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None and worker.process.poll() is not None:
            worker.end()
            worker = None
        if worker is None:
            worker = _WorkerProcess(self._settings, self._start_s)
            self.name = worker.name
        with self._lock:
            self._busy[control] = worker
        keep = False
        try:
            yield worker
            keep = True
        except NbtoolsError as exc:
            # The worker sent this error, so it is idle now. It knows that it was interrupted, we know why. One that ran
            # out of memory, or holds on to that of a query it stopped, lacks it for the next: that would fail for it.
            keep = not isinstance(exc, LimitExceeded | InternalError) and not worker.is_answering
            keep = keep and own_bytes([worker.process.pid]) < _OVERHEAD_BYTES // 2
            control.check()
            raise
        except _BROKEN as exc:
            control.check()
            raise _death_error(worker) from exc
        finally:
            self._take_back(control, worker, keep=keep)

    def _take_back(self, control: QueryControl, worker: _WorkerProcess, *, keep: bool) -> None:
        with self._lock:
            self._busy.pop(control, None)
            stays = keep and not self._closed and len(self._idle) < self._most_idle and worker.process.poll() is None
            if stays:
                worker.idle_since = time.monotonic()
                self._idle.append(worker)
                self._watch_idle()
        if not stays:
            worker.end()

    def _watch_idle(self) -> None:
        """Make sure that idle workers end eventually; called with the lock held."""
        if self._timer is None:
            self._timer = threading.Timer(self._idle_s, _end_idle, [weakref.ref(self)])
            self._timer.daemon = True
            self._timer.start()

    def end_idle(self) -> None:
        """End the workers that have waited for a query long enough."""
        with self._lock:
            self._timer = None
            oldest = time.monotonic() - self._idle_s
            tired = [worker for worker in self._idle if worker.idle_since <= oldest]
            for worker in tired:
                self._idle.remove(worker)
            if self._idle:
                self._watch_idle()
        for worker in tired:
            worker.end()

    @property
    def is_busy(self) -> bool:
        """Whether a query runs in a worker at this moment."""
        return bool(self._busy)

    def _ask(
        self, task: str, request: QueryRequest, control: QueryControl, on_rows: OnRows = lambda _, __: None
    ) -> dict[str, Any]:
        with contextlib.ExitStack() as shared:
            descriptors: list[int] = []
            frames = {name: self._shipped.share(frame, shared, descriptors) for name, frame in request.frames.items()}
            control.check()
            worker = shared.enter_context(self._borrow(control))
            fields = {
                "task": task,
                "frames": frames,
                **{name: getattr(request, name) for name in _SENT},
                "form": None if request.copy is None else request.copy.form,
                # Relative paths mean what they mean here and now.
                "folder": str(working_folder()),
            }
            with control.attach(worker.interrupt, worker.progress):
                # Arrow's own framing and padding come on top of the rows.
                room = None if request.max_bytes is None else 2 * request.max_bytes + _HEAD_LIMIT
                return worker.ask(fields, tuple(descriptors), on_rows, room)

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement in the worker and receive its rows."""
        parts: list[ResultRows] = []
        answer = self._ask("run", request, control, request.on_rows or (lambda _, rows: parts.append(rows)))
        columns = tuple(answer["columns"])
        try:
            rows = join_parts(columns, parts)
        except ValueError as exc:
            raise InternalError("the SQL worker sent rows that do not fit together.") from exc
        return EngineAnswer(columns=columns, types=tuple(answer["types"]), rows=rows, cut_by=answer["cut_by"])

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return the plan as the tree that DuckDB draws."""
        return str(self._ask("explain", request, control)["plan"])

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views of the database with their columns."""
        answer = self._ask("catalog", QueryRequest(sql=""), QueryControl())
        return [
            CatalogTable(**table | {"columns": tuple(CatalogColumn(**column) for column in table["columns"])})
            for table in answer["tables"]
        ]

    def check(self, sql: str, control: QueryControl) -> Verdict:
        """Return the verdict on a text, which a worker reaches: parsers can be made to crash."""
        with self._lock:
            cached = self._verdicts.get(sql)
        if cached is not None:
            return cached
        answer = self._ask("check", QueryRequest(sql=sql), control)
        lists = {name: tuple(value) for name, value in answer.items() if isinstance(value, list)}
        verdict = Verdict(**{**answer, **lists, "sql": sql})
        # Links may lead elsewhere by the next time.
        if not verdict.files and len(sql) <= _VERDICT_LENGTH:
            with self._lock:
                if len(self._verdicts) >= _VERDICTS:
                    self._verdicts.clear()
                self._verdicts[sql] = verdict
        return verdict

    def transpile(self, sql: str, read: str, control: QueryControl) -> str:
        """Return a text of another dialect in the engine's own; see `nbtools.sql.verdict.transpile`."""
        return str(self._ask("transpile", QueryRequest(sql=sql, parameters={"read": read}), control)["sql"])

    def can_write(self) -> str | None:
        """Say why the role of a server could write; memory is private and a database file is attached read-only."""
        if self._settings["kind"] != "server":
            return None
        why = self._ask("can_write", QueryRequest(sql=""), QueryControl())["why"]
        return None if why is None else str(why)

    def discard(self, control: QueryControl) -> None:
        """Kill the worker that is stuck with this control's statement."""
        with self._lock:
            worker = self._busy.get(control)
        if worker is not None:
            worker.process.kill()

    def close(self) -> None:
        """End the workers and remove their temporary files."""
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
            busy = list(self._busy.values())
        if timer is not None:
            timer.cancel()
        for worker in busy:
            worker.process.kill()
        self._finalizer()


def _end_idle(engine: weakref.ref[IsolatedEngine]) -> None:
    engine_now = engine()
    if engine_now is not None:
        engine_now.end_idle()


def _clean_up(
    idle: list[_WorkerProcess], busy: dict[QueryControl, _WorkerProcess], shipped: SharedFrames, spill: Path
) -> None:
    shipped.close()
    for worker in (*idle, *busy.values()):
        worker.end()
    idle.clear()
    remove_temp_dir(spill)


def _settings(
    database: Path | None, options: EngineOptions, spill: Path, *, kind: _WorkerKind, arrow: bool
) -> dict[str, Any]:
    """Return the settings that a worker gets at its start."""
    readable = [str(root) for root in options.roots]
    # Shared memory of frames counts as address space but not as data, so the limit is on data.
    confinement = {
        # A driver needs the network, and its own files in many places: certificates, passwords.
        "level": "limits" if kind == "server" else "strict",
        "read": [*readable, *([] if database is None else [str(database.parent)])],
        "write": [str(spill)],
        "memory_bytes": options.memory_bytes + _OVERHEAD_BYTES,
        "file_bytes": options.spill_bytes,
        "open_files": 1_024,
        "required": False,
    }
    return {
        "kind": kind,
        "database": None if database is None else str(database),
        # Frames without Arrow arrive as files below the worker's own folder.
        "options": dataclasses.asdict(options) | {"roots": readable if arrow else [*readable, str(spill / "frames")]},
        "spill": str(spill),
        "arrow": arrow,
        "confinement": confinement,
    }


def _environment(settings: dict[str, Any]) -> dict[str, str]:
    """Return the few variables that the worker needs, including the path to this package.

    The driver of a server also gets what it takes from the environment: accounts, certificates, proxies.
    """
    inherited = {name: value for name, value in os.environ.items() if name in _KEPT}
    package = Path(errors.__file__).resolve().parent.parent
    # The worker finds what the interpreter finds by itself; a cluster's packages are only on the owner's path.
    nowhere = {"", os.getcwd()}  # noqa: PTH109 - compared as text; what lies in the working folder is anybody's
    found_there = (sys.prefix, sys.base_prefix)
    own = (folder for folder in sys.path if folder not in nowhere and not folder.startswith(found_there))
    variables = dict(os.environ) if settings["kind"] == "server" else scrub_environment(inherited)
    return variables | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys((str(package), *own))),
        # Where SQLite sorts what memory does not hold, and where anything else puts files for the moment.
        "SQLITE_TMPDIR": settings["spill"],
        "TMPDIR": settings["spill"],
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Memory goes back to the system when a query is over, and DuckDB's a tenth of a second later, by a thread of
        # its allocator: at once would make aggregates dearer by a third, and what is kept counts in the limit.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "DUCKDB_JE_MALLOC_CONF": "background_thread:true,retain:false,dirty_decay_ms:100,muzzy_decay_ms:0",
    }


def _rows(kind: bytes, body: bytearray) -> tuple[tuple[str, ...], ResultRows]:
    if kind == b"A":
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        # The bytes come from a process that may be compromised: offsets are checked before they are followed.
        for column in table.columns:
            for chunk in column.chunks:
                _check(chunk)
        return tuple(table.column_names), ArrowRows(table)
    columns, dtypes, rows = plain_loads(body)
    return columns, PythonRows(columns, rows, dtypes)


def _check(array: Any) -> None:
    """Raise a ValueError when an Arrow array leads outside of its memory."""
    array.validate()
    # The greatest HUGEINT has a digit more than Arrow's decimals admit, and 24:00:00 is not a time to Arrow: both are
    # harmless, so numbers are looked at without their meaning.
    array.view(_without_meaning(array.type)).validate(full=True)


def _without_meaning(kind: Any) -> Any:
    """Return the type of the same memory with plain numbers in place of times and decimals, at any depth."""

    def inner(field: Any) -> Any:
        return field.with_type(_without_meaning(field.type))

    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_time(kind):
        return pa.int64() if pa.types.is_time64(kind) else pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    return kind


def _start_error(code: int, last_words: bytes, late: str) -> InternalError:
    """Return the error for a worker that ended before it was ready, or was `late`, with the last lines that it said."""
    # Python marks the place in a line of code by a further line.
    lines = [line for text in last_words.decode(errors="replace").splitlines() if (line := text.strip(" ^~"))]
    how = "was ended" if late else f"ended {_ending(code)}"
    why = redact(" | ".join(lines[-_LAST_LINES:])) or f"it said nothing and {how}"
    return InternalError(f"the SQL worker did not start{late}: {why}", retryable=bool(late))


def _ending(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _death_error(worker: _WorkerProcess) -> NbtoolsError:
    """Return the error for a worker that ended while it ran a query, with what the way it ended says of the reason."""
    try:
        code = worker.process.wait(1.0)
    except subprocess.TimeoutExpired:
        worker.process.kill()  # its line broke, and it goes on
        worker.process.wait()
        return InternalError("the SQL worker stopped in the middle of its answer.", retryable=True)
    how = _ending(code)
    if -code in {signal.SIGSEGV, signal.SIGABRT, signal.SIGILL}:
        return SqlFailed(
            f"the query ended its worker process ({how}): the engine, or its parser, crashed on it.",
            hint="Write it in a simpler form: fewer operators in a row, less nesting, shorter lists.",
        )
    if -code == getattr(signal, "SIGBUS", 7):  # Windows has none
        return SqlFailed(
            f"the query ended its worker process ({how}): a file or memory it read was shortened during the query.",
            hint="Ask again when the program that changes it has finished.",
            retryable=True,
        )
    hint = "Ask for less at once: filter, aggregate, fewer or shorter columns."
    if code >= 0:
        return SqlFailed(f"the query ended its worker process ({how}), which did not say why.", hint=hint)
    return LimitExceeded(
        f"the query ended its worker process ({how}): most often it asked for more memory than it may have.", hint=hint
    )
