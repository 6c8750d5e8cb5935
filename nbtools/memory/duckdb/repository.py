"""The DuckDB repository in this process: for ``:memory:``, for tests, and for a file that nobody else uses.

The same engine as in the keeper, without the keeper: rows are merged by whoever writes, and the file's lock is held as
long as the repository is open.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nbtools.errors import MemoryDamaged, MemoryUnavailable, NbtoolsError
from nbtools.memory.duckdb.engine import Engine, Outcome
from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import Applied, CallQuery, Change, Found, Query
from nbtools.memory.rules.rows import Clock, row_to_record
from nbtools.memory.rules.transitions import Done, Request

__all__ = ["DuckDBRepository"]

_MERGE_AT = 1_000
_CLEAN_EVERY = 1_000
_T = TypeVar("_T")


class DuckDBRepository:
    """Records in a DuckDB file that this process alone has open.

    The file is opened on first use.

    Parameters
    ----------
    path
        The file; `None` for a memory that ends with this object.
    history
        How many versions of a record are kept.
    timeout
        Seconds to wait for a file that somebody else has open.
    clock
        For tests; `None` takes the system's.
    """

    def __init__(
        self, path: Path | None, *, history: int = 100, timeout: float = 5.0, clock: Clock | None = None
    ) -> None:
        self.path = path
        self._history = history
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._place: Any = None
        self._closed = False
        self._pid = 0
        self._writes = 0

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[Applied]:
        """Apply a batch, once per request id."""
        request = Request(request_id or secrets.token_hex(8), changes, is_new=request_id is None)
        (outcome,) = self._asked(lambda engine: self._commit(engine, request))
        if isinstance(outcome, NbtoolsError):
            raise outcome
        self._asked(self._keep_house)
        return [_applied(done) for done in outcome]

    def query(self, query: Query) -> Found:
        """Return the live records that match."""
        rows, total = self._asked(lambda engine: engine.query(query))
        records = tuple(row_to_record(row, values=query.values, score=score) for row, score in rows)
        return Found(records=records, total=total)

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        rows = self._asked(lambda engine: engine.versions(scope, key))
        return [row_to_record(row) for row in (rows if limit is None else rows[-limit:] if limit else [])]

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        return [json.loads(text) for text in self._asked(lambda engine: engine.calls(query))]

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        return self._ready().info() | {"mode": "embedded", "pid": os.getpid()}

    def close(self) -> None:
        """Merge what is left and close the file."""
        with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
            # A forked child has a copy of the file that must not be touched: what it would write is lost.
            if engine is None or self._pid != os.getpid():
                return
            self._let_go(engine)

    def _commit(self, engine: Engine, request: Request) -> list[Outcome]:
        outcomes = engine.commit([request])
        if self._place is not None and (self._place.is_lost() or (engine.journal and engine.journal.is_lost())):
            engine.settle()  # Without the journal, whose folder was removed, a change is stored when it is in the file.
        return outcomes

    def _let_go(self, engine: Engine) -> None:
        if self._place is None:
            engine.close()
            return
        from nbtools.memory.duckdb.recovery import close_engine

        close_engine(engine, self._place)
        self._place.release()

    def _asked(self, ask: Callable[[Engine], _T]) -> _T:
        """Ask the engine; when it meets damage, ask a second time, behind a start that repairs the file."""
        engine = self._ready()
        try:
            return ask(engine)
        except MemoryDamaged:
            with self._lock:
                if self._engine is engine:
                    self._engine = None
                    self._let_go(engine)
        return ask(self._ready())

    def _ready(self) -> Engine:
        engine = self._engine
        if engine is not None and self._pid == os.getpid():
            return engine
        with self._lock:
            if self._closed:
                raise MemoryUnavailable("This memory was closed.", hint="open it again with open_memory")
            if self._engine is None:
                self._engine = self._open()
                self._pid = os.getpid()
            if self._pid != os.getpid():
                raise MemoryUnavailable(
                    "This memory was opened in the parent process, and an embedded file has one process.",
                    hint="open it without embedded=True to share it",
                )
            return self._engine

    def _open(self) -> Engine:
        if self.path is None:
            from nbtools.memory.duckdb.tables import Tables

            return Engine(Tables(None), None, history=self._history, clock=self._clock)
        from nbtools.memory.duckdb.directory import Place
        from nbtools.memory.duckdb.recovery import open_engine

        place = Place(self.path)
        place.make()
        if not place.acquire(self._timeout):
            raise MemoryUnavailable(
                f"{self.path} is held by {place.held_by()}.",
                hint="open it without embedded=True to share it, or close it there",
                tried="opening the memory",
                retryable=True,
            )
        try:
            engine = open_engine(place, history=self._history, clock=self._clock)
        except BaseException:
            place.release()
            raise
        place.announce(mode="embedded")
        self._place = place
        for notice in engine.notices:
            warnings.warn(notice, UserWarning, stacklevel=6)
        return engine

    def _keep_house(self, engine: Engine) -> None:
        # Nobody else does it here: after so many rows, whoever writes moves them on.
        if engine.unmerged >= _MERGE_AT:
            engine.merge()
            engine.tidy(is_quiet=False)
        self._writes += 1
        if self._writes % _CLEAN_EVERY == 0:
            engine.know_ids()
            engine.sweep()
            engine.trim()
            if self._place is not None:
                from nbtools.memory.duckdb.recovery import take_snapshot

                self._place.announce()
                take_snapshot(engine, self._place)


def _applied(done: Done) -> Applied:
    return Applied(record=None if done.row is None else row_to_record(done.row), count=done.touched)
