"""A repository on DuckDB in this process: for ``:memory:``, and for a file that no other process uses.

The same engine as in the keeper, without the keeper: rows are merged by the writer, and the file's lock is held as
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
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.duckdb.engine import CommitOutcome, MemoryEngine
from nbtools.memory.duckdb.recovery import FileOptions, close_engine, open_engine, take_snapshot
from nbtools.memory.duckdb.tables import Tables
from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import AppliedChange, CallQuery, Change, Query, QueryAnswer, memory_closed
from nbtools.memory.rules.rows import Clock, newest_of, row_to_record
from nbtools.memory.rules.transitions import WriteRequest

# Two slices of the engine: fewer would make each write pay for DuckDB's own commit.
_MERGE_AT = 1_000
_T = TypeVar("_T")


class DuckDBRepository:
    """Records in a DuckDB file that only this process has open.

    The file is opened on first use.

    Parameters
    ----------
    path
        The file; `None` for a memory that ends with this object.
    history
        How many versions of a record are kept.
    timeout
        Seconds to wait for a file that someone else has open.
    clock
        For tests; `None` takes the system's.
    options
        How the file is kept; `None` takes the usual `FileOptions`.
    clean_every
        Batches after which what is due is removed, and a snapshot is taken if the journal is long.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        history: int = 100,
        timeout: float = 5.0,
        clock: Clock | None = None,
        options: FileOptions | None = None,
        clean_every: int = 1_000,
    ) -> None:
        self.path = path
        self._history = history
        self._timeout = timeout
        self._clock = clock
        self._options = options or FileOptions()
        self._clean_every = clean_every
        self._lock = threading.Lock()
        self._engine: MemoryEngine | None = None
        self._directory: MemoryDirectory | None = None
        self._closed = False
        self._pid = 0
        self._writes = 0

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch, once per request id."""
        request = WriteRequest(request_id or secrets.token_hex(8), changes, is_new=request_id is None)
        (outcome,) = self._with_engine(lambda engine: self._commit(engine, request))
        if isinstance(outcome, NbtoolsError):
            raise outcome
        self._with_engine(self._maintain)
        return [AppliedChange(record=row_to_record(row) if row else None, count=count) for row, count in outcome]

    def query(self, query: Query) -> QueryAnswer:
        """Return the live records that match."""
        if query.give == "table":
            return QueryAnswer(table=self._with_engine(lambda engine: engine.table(query)))
        if query.give == "tags":
            return QueryAnswer(tags=self._with_engine(lambda engine: engine.tags(query)))
        rows, total = self._with_engine(lambda engine: engine.query(query))
        records = tuple(row_to_record(row, values=query.values, score=score) for row, score in rows)
        return QueryAnswer(records=records, total=total)

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        rows = self._with_engine(lambda engine: engine.versions(scope, key))
        return [row_to_record(row) for row in newest_of(rows, limit)]

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        return [json.loads(text) for text in self._with_engine(lambda engine: engine.calls(query))]

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        return self._get_engine().info() | {"mode": "embedded", "pid": os.getpid()}

    def close(self) -> None:
        """Merge what is left and close the file."""
        with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
            # A forked child has a copy of the file that must not be touched: what it would write is lost.
            if engine is None or self._pid != os.getpid():
                return
            self._close_engine(engine)

    def _commit(self, engine: MemoryEngine, request: WriteRequest) -> list[CommitOutcome]:
        outcomes = engine.commit([request])
        if self._directory is not None and (self._directory.is_lost() or (engine.journal and engine.journal.is_lost())):
            engine.settle()  # Without the journal, whose folder was removed, a change is stored when it is in the file.
        return outcomes

    def _close_engine(self, engine: MemoryEngine) -> None:
        if self._directory is None:
            engine.close()
            return
        close_engine(engine, self._directory)
        self._directory.release()

    def _with_engine(self, ask: Callable[[MemoryEngine], _T]) -> _T:
        """Call a function with the engine; after damage, open the file again, which repairs it, and call again."""
        engine = self._get_engine()
        try:
            return ask(engine)
        except MemoryDamaged:
            with self._lock:
                if self._engine is engine:
                    self._engine = None
                    self._close_engine(engine)
        return ask(self._get_engine())

    def _get_engine(self) -> MemoryEngine:
        engine = self._engine
        if engine is not None and self._pid == os.getpid():
            return engine
        with self._lock:
            # Looked at under the lock, or a close in this moment would leave a file open behind it.
            if self._closed:
                raise memory_closed()
            if self._engine is None:
                self._engine = self._open()
                self._pid = os.getpid()
            if self._pid != os.getpid():
                raise MemoryUnavailable(
                    "This memory was opened in the parent process, and an embedded file has one process.",
                    hint="open it without embedded=True to share it",
                )
            return self._engine

    def _open(self) -> MemoryEngine:
        if self.path is None:
            return MemoryEngine(Tables(None), None, history=self._history, clock=self._clock)

        directory = MemoryDirectory(self.path)
        directory.make()
        if not directory.acquire(self._timeout):
            raise MemoryUnavailable(
                f"{self.path} is held by {directory.held_by()}.",
                hint="open it without embedded=True to share it, or close it there",
                retryable=True,
            )
        try:
            engine = open_engine(directory, history=self._history, clock=self._clock, options=self._options)
        except BaseException:
            directory.release()
            raise
        directory.announce(mode="embedded")
        self._directory = directory
        for notice in engine.notices:
            warnings.warn(notice, UserWarning, stacklevel=6)
        return engine

    def _maintain(self, engine: MemoryEngine) -> None:
        # Nobody else does it here: after so many rows, the writer moves them on.
        if engine.unmerged >= _MERGE_AT:
            engine.merge()
            engine.run_upkeep(is_quiet=False)
        self._writes += 1
        if self._writes % self._clean_every == 0:
            engine.build_id_filter()
            engine.sweep()
            engine.trim()
            if self._directory is not None:
                self._directory.announce()
                take_snapshot(engine, self._directory, self._options)
