"""Transitions: which new rows a batch of changes produces.

A `WriteBatch` reads the store through a `StoreView` and changes nothing. The caller stores the rows that it returns,
all of them or none. Each store (DuckDB, PostgreSQL, in memory) uses it, so a change means the same in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nbtools.memory.records import Scope
from nbtools.memory.repository import Change, add_numbers, check_version, no_such_version
from nbtools.memory.rules.rows import Row, versions_of


class ChangeOutcome(NamedTuple):
    """What became of one change: its new row, if it made one worth returning, and how many records it touched."""

    row: Row | None
    touched: int


class WriteRequest(NamedTuple):
    """A batch of changes with its request id; `is_new` says that no request with this id was sent before."""

    request_id: str
    changes: Sequence[Change]
    is_new: bool = True


class StoreView(NamedTuple):
    """The questions of a `WriteBatch` to the store.

    Attributes
    ----------
    newest
        Returns the newest row of an id, a deletion perhaps, or `None` if the id is new.
    live_ids
        Returns the ids of the live records in the scopes that start so.
    versions
        Returns the kept versions of a key.
    """

    newest: Callable[[str], Row | None]
    live_ids: Callable[[str], Iterable[str]]
    versions: Callable[[Scope, str], Sequence[Row]]


class WriteBatch:
    """Turn requests into rows, one after the other; each request sees the rows of the earlier ones.

    Parameters
    ----------
    view
        The store as it is.
    seq
        The last sequence number in use.
    clock
        Returns the time in microseconds.
    """

    def __init__(self, view: StoreView, seq: int, clock: Callable[[], int]) -> None:
        self.seq = seq
        self._view = view
        self._clock = clock
        # What earlier requests of this group changed, what this request changes, and its rows with the places of their
        # changes.
        self._decided: dict[str, Row] = {}
        self._accepted: list[Row] = []
        self._fresh: dict[str, Row] = {}
        self._rows: list[tuple[int, Row]] = []
        self._now = 0

    def decide(self, changes: Sequence[Change]) -> tuple[list[ChangeOutcome], tuple[tuple[int, Row], ...]]:
        """Return what becomes of each change, and the rows to store with the place of their change.

        Raises
        ------
        NbtoolsError
            A change is refused; then none of the batch counts.
        """
        self._fresh, self._rows, self._now = {}, [], self._clock()
        seq = self.seq
        try:
            done = [self._one(index, change) for index, change in enumerate(changes)]
        except BaseException:
            # The numbers of a refused request are used again: the journal takes a gap for damage.
            self.seq = seq
            raise
        self._accept()
        return done, tuple(self._rows)

    def _accept(self) -> None:
        self._decided |= self._fresh
        self._accepted += [row for _, row in self._rows]

    def _newest(self, record_id: str) -> Row | None:
        # From the newest knowledge to the oldest: this request, this group, the store.
        row = self._fresh.get(record_id) or self._decided.get(record_id) or self._view.newest(record_id)
        return None if row is not None and row.op == "forget" else row

    def _one(self, index: int, change: Change) -> ChangeOutcome:
        if change.kind == "call":
            row = Row(0, change.key, "", None, None, change.key, "call", change.value, (), self._now, 0, None, 1)
            self._add(index, row)
            return ChangeOutcome(None, 1)
        assert change.scope is not None, "only calls have no scope"
        if change.kind == "clear":
            return self._clear(index, change, change.scope)
        if change.kind == "forget":
            return self._forget(index, change.scope, change.key)
        scope, key = change.scope, change.key
        record_id = scope.record_id(key)
        newest = self._newest(record_id)
        live = newest if newest is not None and newest.is_live(self._now) else None
        check_version(key, change.if_version, live.version if live else 0)
        version = newest.version + 1 if newest else 1
        # Nothing happens, so there is no row; the count says so to the caller.
        if live is None and change.kind in ("delete", "touch"):
            return ChangeOutcome(None, 0)
        if live is not None and change.kind == "delete":
            self._delete(index, live)
            return ChangeOutcome(None, 1)
        if live is not None and change.kind == "touch":
            # A touch is stored as a write of the same content: the history shows when the end was moved.
            change = replace(change, kind="write", value=live.value, tags=None, vector=live.vector)
        value, tags, expires = self._content(change, scope, live)
        # A clock that went back must not make a record older than its creation.
        created = min(live.created, self._now) if live else self._now
        row = Row(
            0, record_id, *scope.parts, key, change.kind, value, tags, created, 0, expires, version, change.vector
        )
        return ChangeOutcome(self._add(index, row), 1)

    def _content(
        self, change: Change, scope: Scope, live: Row | None
    ) -> tuple[str | None, tuple[str, ...], int | None]:
        if change.kind == "write":
            tags, expires = (live.tags, live.expires) if live else ((), None)
            if change.ttl is not None:
                expires = self._now + round(change.ttl * 1e6) if change.ttl else None
            return change.value, tags if change.tags is None else change.tags, expires
        if change.kind == "incr":
            current = json.loads(live.value or "null") if live else 0
            # Tags and end stay: an incr that made a counter permanent would surprise.
            total = json.dumps(add_numbers(change.key, current, change.by))
            return total, live.tags if live else (), live.expires if live else None
        versions = self._versions(scope, change.key)
        old = versions.get(change.version or 0)
        if old is None or old.value is None:
            can = sorted(version for version, row in versions.items() if row.value is not None)
            raise no_such_version(change.key, change.version or 0, can)
        return old.value, old.tags, None

    def _versions(self, scope: Scope, key: str) -> dict[int, Row]:
        record_id = scope.record_id(key)
        # The store has the rows of this group only when the group is stored.
        staged = [row for row in (*self._accepted, *(row for _, row in self._rows)) if row.id == record_id]
        return versions_of([*self._view.versions(scope, key), *staged])

    def _forget(self, index: int, scope: Scope, key: str) -> ChangeOutcome:
        count = len(self._versions(scope, key))
        # A row even where nothing is known: records of calls may name it.
        self._add(index, Row(0, scope.record_id(key), *scope.parts, key, "forget", None, (), self._now, 0, None, count))
        return ChangeOutcome(None, count)

    def _clear(self, index: int, change: Change, scope: Scope) -> ChangeOutcome:
        # Of a workflow's prefix "a:w:*:", the nodes share "a:w:".
        prefix = scope.prefix[:-2] if change.nodes else scope.prefix
        staged = [i for some in (self._decided, self._fresh) for i in some if i.startswith(prefix)]
        count = 0
        for record_id in dict.fromkeys([*self._view.live_ids(prefix), *staged]):
            row = self._newest(record_id)
            if row is not None and row.op != "call" and row.is_live(self._now):
                self._delete(index, row)
                count += 1
        return ChangeOutcome(None, count)

    def _delete(self, index: int, live: Row, op: str = "delete") -> None:
        gone = live._replace(op=op, value=None, expires=None, version=live.version + 1, vector=None)
        self._add(index, gone)

    def expire(self, record_ids: Iterable[str]) -> tuple[tuple[int, Row], ...]:
        """Return the rows that sweep away those of the records that are due."""
        self._fresh, self._rows, self._now = {}, [], self._clock()
        for record_id in record_ids:
            row = self._newest(record_id)
            if row is not None and row.value is not None and not row.is_live(self._now):
                self._delete(0, row, "expire")
        self._accept()
        return tuple(self._rows)

    def _add(self, index: int, row: Row) -> Row:
        """Add a row that one change makes, with its number and the time of its request."""
        self.seq += 1
        row = row._replace(seq=self.seq, updated=self._now)
        # Calls are not records: their ids are counted separately.
        if row.op != "call":
            self._fresh[row.id] = row
        self._rows.append((index, row))
        return row
