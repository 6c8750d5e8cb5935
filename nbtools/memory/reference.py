"""The reference repository: plain dicts in this process, for users' tests and as the meaning of the others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nbtools.errors import MemoryUnavailable
from nbtools.memory.erasure import Erasure, Erasures
from nbtools.memory.records import ChangeKind, MemoryRecord, Scope
from nbtools.memory.repository import (
    Applied,
    CallQuery,
    Change,
    Found,
    Query,
    add_numbers,
    check_version,
    no_such_version,
)
from nbtools.memory.rows import Clock, moment
from nbtools.memory.search import cosine, fuse, record_text, relative
from nbtools.memory.words import rank_texts

__all__ = ["InMemoryRepository"]

_REMEMBERED = 10_000
_MOST_FOUND = 1_000


class InMemoryRepository:
    """Keep records in dicts: nothing outlives the object.

    Parameters
    ----------
    history
        How many versions of a key are kept.
    clock
        Returns seconds since 1970; tests hand in their own.
    """

    def __init__(self, *, history: int = 100, clock: Callable[[], float] = time.time) -> None:
        self._keep = history
        self._clock = Clock(wall=clock, steady=lambda: 0.0)
        self._lock = threading.RLock()
        # Each id's versions, oldest first; values are JSON text, so that nobody holds a reference into the store.
        self._versions: dict[str, list[MemoryRecord]] = {}
        self._vectors: dict[str, tuple[float, ...]] = {}
        self._calls: dict[str, str] = {}
        self._done: dict[str, list[Applied]] = {}
        self._erasures = Erasures()
        self._closed = False

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[Applied]:
        """Apply a batch, once per request id."""
        with self._lock:
            self._check_open()
            if request_id is not None and request_id in self._done:
                return [_opened(applied) for applied in self._done[request_id]]
            before = self._versions, self._vectors, self._calls
            self._versions = {name: list(versions) for name, versions in self._versions.items()}
            self._vectors, self._calls = dict(self._vectors), dict(self._calls)
            try:
                done = [self._apply(change, self._now()) for change in changes]
            except BaseException:
                self._versions, self._vectors, self._calls = before
                raise
            if request_id is not None:
                self._done[request_id] = done
                while len(self._done) > _REMEMBERED:
                    del self._done[next(iter(self._done))]
            return [_opened(applied) for applied in done]

    def query(self, query: Query) -> Found:
        """Return the live records that match."""
        with self._lock:
            self._check_open()
            if query.keys is not None:
                assert query.scope is not None, "keys need a scope"
                found = [r for key in query.keys if (r := self._live(query.scope.record_id(key))) is not None]
            else:
                found = [r for r in self._all_live() if _matches(r, query)]
                if query.text is not None or query.vector is not None:
                    found = self._ranked(found, query)
                else:
                    found = _page(found, query)
            if query.count:
                return Found(total=len(found))
            return Found(records=tuple(_decoded(r, values=query.values) for r in found), total=len(found))

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        with self._lock:
            self._check_open()
            versions = self._versions.get(scope.record_id(key), [])
            return [_decoded(r) for r in (versions if limit is None else versions[-limit:] if limit else [])]

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        with self._lock:
            self._check_open()
            wanted = {"call_id": query.call_id, "run_id": query.run_id, "tool": query.tool}
            records: list[dict[str, Any]] = [json.loads(text) for text in self._calls.values()]
            found = [r for r in records if all(value is None or r.get(name) == value for name, value in wanted.items())]
            return found if query.limit is None else found[-query.limit :] if query.limit else []

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        with self._lock:
            self._check_open()
            kept = sum(versions[-1].change not in ("delete", "expire") for versions in self._versions.values())
            return {"backend": "memory", "place": ":memory:", "records": kept, "vectors": True, "notices": []}

    def close(self) -> None:
        """Forget everything."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise MemoryUnavailable("This memory was closed.", hint="open it again with open_memory")

    def _now(self) -> datetime:
        return moment(self._clock.now())

    def _live(self, record_id: str) -> MemoryRecord | None:
        versions = self._versions.get(record_id)
        if not versions or versions[-1].change in ("delete", "expire"):
            return None
        record = versions[-1]
        return None if record.expires_at is not None and record.expires_at <= self._now() else record

    def _all_live(self) -> Iterator[MemoryRecord]:
        for record_id in list(self._versions):
            record = self._live(record_id)
            if record is not None:
                yield record

    def _apply(self, change: Change, now: datetime) -> Applied:
        if change.kind == "call":
            self._calls.pop(change.key, None)
            self._calls[change.key] = self._erasures.cleaned(change.value or "{}")
            return Applied()
        assert change.scope is not None, "only calls have no scope"
        if change.kind == "clear":
            return self._clear(change, change.scope, now)
        if change.kind == "forget":
            return self._forget(change.scope.record_id(change.key), change.key)
        scope, record_id = change.scope, change.scope.record_id(change.key)
        live = self._live(record_id)
        check_version(change.key, change.if_version, live.version if live else 0)
        if live is None and change.kind in ("delete", "touch"):
            return Applied(count=0)
        if live is not None and change.kind == "delete":
            self._append(record_id, live, "delete", now, value=None, expires_at=None)
            return Applied()
        if live is not None and change.kind == "touch":
            vector = self._vectors.get(record_id)
            change = replace(change, kind="write", value=live.value, tags=None, vector=vector)
        return Applied(record=self._put(change, scope, live, now))

    def _put(self, change: Change, scope: Scope, live: MemoryRecord | None, now: datetime) -> MemoryRecord:
        record_id = scope.record_id(change.key)
        start = live or MemoryRecord(
            agent_id=scope.agent_id,
            workflow_id=scope.workflow_id,
            node_id=scope.node_id,
            key=change.key,
            value="0",
            created_at=now,
            updated_at=now,
            version=0,
        )
        if change.kind == "write":
            expires = start.expires_at
            if change.ttl is not None:
                expires = now + timedelta(seconds=change.ttl) if change.ttl else None
            tags = start.tags if change.tags is None else change.tags
            put = self._append(record_id, start, "write", now, value=change.value, tags=tags, expires_at=expires)
        elif change.kind == "incr":
            total = add_numbers(change.key, json.loads(start.value), change.by)
            put = self._append(record_id, start, "incr", now, value=json.dumps(total))
        else:
            old = self._version(record_id, change)
            put = self._append(record_id, start, "restore", now, value=old.value, tags=old.tags, expires_at=None)
        if change.vector is not None:
            self._vectors[record_id] = change.vector
        else:
            self._vectors.pop(record_id, None)
        return put

    def _version(self, record_id: str, change: Change) -> MemoryRecord:
        known = {r.version: r for r in self._versions.get(record_id, []) if r.change not in ("delete", "expire")}
        wanted = change.version or 0
        if wanted not in known:
            raise no_such_version(change.key, wanted, list(known))
        return known[wanted]

    def _append(
        self, record_id: str, start: MemoryRecord, change: ChangeKind, now: datetime, **fields: Any
    ) -> MemoryRecord:
        versions = self._versions.setdefault(record_id, [])
        number = versions[-1].version + 1 if versions else 1
        created = min(start.created_at, now)
        record = replace(start, change=change, version=number, created_at=created, updated_at=now, **fields)
        versions.append(record)
        del versions[: -self._keep]
        return record

    def _forget(self, record_id: str, key: str) -> Applied:
        versions = self._versions.pop(record_id, [])
        self._vectors.pop(record_id, None)
        erasure = Erasure(key, [r.value for r in versions if r.value is not None])
        self._erasures.add(erasure)
        self._calls = {name: erasure.cleaned(record) for name, record in self._calls.items()}
        self._done = {request: [_blanked(a, record_id) for a in done] for request, done in self._done.items()}
        return Applied(count=len(versions))

    def _clear(self, change: Change, scope: Scope, now: datetime) -> Applied:
        gone = [r for r in self._all_live() if r.scope == scope or (change.nodes and _is_below(r.scope, scope))]
        for record in gone:
            self._append(record.id, record, "delete", now, value=None, expires_at=None)
        return Applied(count=len(gone))

    def _ranked(self, found: list[MemoryRecord], query: Query) -> list[MemoryRecord]:
        by_id = {r.id: r for r in found}
        words: list[tuple[str, float]] = []
        nearest: list[tuple[str, float]] = []
        if query.text is not None:
            # Words are known or not in a whole scope, whatever else a query asks for.
            among = sorted((r for r in self._all_live() if _is_of(r, query)), key=lambda r: r.updated_at)
            ranked = rank_texts(query.text, [record_text(r.key, r.tags, r.value) for r in among])
            words = [(among[place].id, score) for place, score in ranked if among[place].id in by_id]
        if query.vector is not None:
            near = {name: cosine(query.vector, self._vectors[name]) for name in by_id if name in self._vectors}
            nearest = sorted(near.items(), key=lambda pair: -pair[1])
            words = fuse([name for name, _ in words], [name for name, score in nearest if score > 0])
        most = _MOST_FOUND if query.limit is None else query.limit
        best = nearest[:most] if query.text is None else relative(words[:most])
        return [replace(by_id[name], score=score) for name, score in best]


def _blanked(applied: Applied, record_id: str) -> Applied:
    """Return an answer that is remembered without the value of a forgotten record."""
    record = applied.record
    return replace(applied, record=replace(record, value="null")) if record and record.id == record_id else applied


def _matches(record: MemoryRecord, query: Query) -> bool:
    if not _is_of(record, query) or not record.key.startswith(query.prefix):
        return False
    wanted, has = set(query.tags), set(record.tags)
    return not wanted or (wanted <= has if query.match == "all" else bool(wanted & has))


def _is_of(record: MemoryRecord, query: Query) -> bool:
    return query.scope is None or record.scope == query.scope


def _page(found: list[MemoryRecord], query: Query) -> list[MemoryRecord]:
    def order(record: MemoryRecord) -> str:
        return record.id if query.scope is None else record.key

    found = sorted(found, key=order)
    if query.count:
        return found
    if query.after is not None:
        found = [r for r in found if order(r) > query.after]
    return found if query.limit is None else found[: query.limit]


def _is_below(scope: Scope, workflow: Scope) -> bool:
    return (scope.agent_id, scope.workflow_id) == (workflow.agent_id, workflow.workflow_id) and bool(scope.node_id)


def _decoded(record: MemoryRecord, *, values: bool = True) -> MemoryRecord:
    if record.change in ("delete", "expire"):
        return record
    return replace(record, value=json.loads(record.value) if values else None)


def _opened(applied: Applied) -> Applied:
    return applied if applied.record is None else replace(applied, record=_decoded(applied.record))
