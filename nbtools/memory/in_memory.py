"""The reference repository: plain dicts in this process, for users' tests and for comparison with the other stores."""

from __future__ import annotations

import collections
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import AppliedChange, CallQuery, Change, Query, QueryAnswer, memory_closed
from nbtools.memory.rules.erasure import Erasure, Erasures
from nbtools.memory.rules.fts5 import rank_texts
from nbtools.memory.rules.record_table import parquet_of_rows
from nbtools.memory.rules.rows import Clock, Row, erased, matches, newest_of, row_to_record
from nbtools.memory.rules.text_search import blended, cosine, record_text
from nbtools.memory.rules.transitions import ChangeOutcome, StoreView, WriteBatch

# How many answers are kept for repeated requests.
_REMEMBERED = 10_000


class InMemoryRepository:
    """Keep records in dicts: nothing outlives the object.

    Parameters
    ----------
    history
        How many versions of a key are kept.
    clock
        Returns seconds since 1970; tests pass their own.
    """

    def __init__(self, *, history: int = 100, clock: Callable[[], float] = time.time) -> None:
        self._keep = history
        # Without a steady clock, so that tests which set the time see exactly that time.
        self._clock = Clock(wall=clock, steady=lambda: 0.0)
        self._lock = threading.RLock()
        # Each id's versions, oldest first.
        self._versions: dict[str, list[Row]] = {}
        self._calls: dict[str, str] = {}
        self._outcomes: dict[str, list[ChangeOutcome]] = {}
        self._erasures = Erasures()
        self._closed = False

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch, once per request id."""
        with self._lock:
            self._check_open()
            done = None if request_id is None else self._outcomes.get(request_id)
            # A request that is repeated gets its first answer.
            if done is None:
                view = StoreView(
                    self._newest, self._ids, lambda scope, key: self._versions.get(scope.record_id(key), [])
                )
                done, rows = WriteBatch(view, 0, self._clock.now).decide(changes)
                if request_id is not None:
                    self._remember(request_id, done)
                for _, row in rows:
                    self._store(row)
            return [AppliedChange(record=row_to_record(row) if row else None, count=count) for row, count in done]

    def query(self, query: Query) -> QueryAnswer:
        """Return the live records that match."""
        with self._lock:
            self._check_open()
            scores: dict[str, float] = {}
            if query.keys is not None:
                assert query.scope is not None, "keys need a scope"
                rows = [row for key in query.keys if (row := self._live(query.scope.record_id(key))) is not None]
            else:
                rows = [row for row in self._all_live() if _is_of(row, query) and matches(row, query)]
                if query.text is not None or query.vector is not None:
                    by_id = {row.id: row for row in rows}
                    scores = dict(self._rank(by_id, query))
                    rows = [by_id[name] for name in scores]
                else:
                    rows = _page(rows, query)
            if query.give == "count":
                return QueryAnswer(total=len(rows))
            if query.give == "tags":
                return QueryAnswer(tags=collections.Counter(tag for row in rows for tag in row.tags))
            if query.give == "table":
                return QueryAnswer(table=parquet_of_rows(rows, self._clock.now()))
            records = tuple(row_to_record(row, values=query.values, score=scores.get(row.id)) for row in rows)
            return QueryAnswer(records=records, total=len(rows))

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        with self._lock:
            self._check_open()
            versions = self._versions.get(scope.record_id(key), [])
            return [row_to_record(row) for row in newest_of(versions, limit)]

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        with self._lock:
            self._check_open()
            records: list[dict[str, Any]] = [json.loads(text) for text in self._calls.values()]
            return [*newest_of([record for record in records if query.matches(record)], query.limit)]

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        with self._lock:
            self._check_open()
            count = sum(versions[-1].value is not None for versions in self._versions.values())
            return {"backend": "memory", "place": ":memory:", "records": count, "vectors": True, "notices": []}

    def close(self) -> None:
        """Forget everything."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise memory_closed()

    def _remember(self, request_id: str, done: list[ChangeOutcome]) -> None:
        self._outcomes[request_id] = done
        while len(self._outcomes) > _REMEMBERED:
            del self._outcomes[next(iter(self._outcomes))]

    def _newest(self, record_id: str) -> Row | None:
        versions = self._versions.get(record_id)
        return versions[-1] if versions else None

    def _ids(self, prefix: str) -> list[str]:
        return [record_id for record_id in self._versions if record_id.startswith(prefix)]

    def _live(self, record_id: str) -> Row | None:
        row = self._newest(record_id)
        return row if row is not None and row.is_live(self._clock.now()) else None

    def _all_live(self) -> Iterator[Row]:
        return (row for record_id in self._versions if (row := self._live(record_id)) is not None)

    def _store(self, row: Row) -> None:
        if row.op == "call":
            # Taken out first, because a dict keeps the place of a key that is assigned again.
            self._calls.pop(row.key, None)
            self._calls[row.key] = self._erasures.clean(row.value or "{}")
        elif row.op == "forget":
            self._forget(row)
        else:
            versions = self._versions.setdefault(row.id, [])
            versions.append(row)
            del versions[: -self._keep]

    def _forget(self, row: Row) -> None:
        versions = self._versions.pop(row.id, [])
        erasure = Erasure(row.key, [version.value for version in versions if version.value is not None])
        self._erasures.add(erasure)
        self._calls = {name: erasure.clean(record) for name, record in self._calls.items()}
        self._outcomes = {
            request: [_without_value(one, row.id) for one in done] for request, done in self._outcomes.items()
        }

    def _rank(self, rows: dict[str, Row], query: Query) -> list[tuple[str, float]]:
        words = nearest = None
        if query.text is not None:
            # Words are known or not in a whole scope, whatever else a query asks for.
            among = sorted((row for row in self._all_live() if _is_of(row, query)), key=lambda row: row.updated)
            ranked = rank_texts(query.text, [record_text(row.key, row.tags, row.value or "null") for row in among])
            words = [(among[index].id, score) for index, score in ranked if among[index].id in rows]
        if query.vector is not None:
            near = [(name, cosine(query.vector, row.vector)) for name, row in rows.items() if row.vector]
            nearest = sorted(near, key=lambda pair: -pair[1])
        return blended(words, nearest, query.most_found)


def _without_value(done: ChangeOutcome, record_id: str) -> ChangeOutcome:
    """Return a remembered answer without the value of a forgotten record."""
    return done._replace(row=erased(done.row, record_id)) if done.row is not None else done


def _is_of(row: Row, query: Query) -> bool:
    return query.scope is None or row.scope == query.scope


def _page(rows: list[Row], query: Query) -> list[Row]:
    def order(row: Row) -> str:
        return row.id if query.scope is None else row.key

    rows = sorted(rows, key=order)
    if query.give != "records":
        return rows
    if query.after is not None:
        rows = [row for row in rows if order(row) > query.after]
    return rows if query.limit is None else rows[: query.limit]
