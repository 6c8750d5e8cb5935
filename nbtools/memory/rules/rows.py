"""Rows: one version of a record, in the form that the engine, the journal and the keeper's protocol use.

Times are whole microseconds since 1970, the value is JSON text. A row is immutable and shared freely between threads.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import Query

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """One version of one record, the record of a tool call (`op` is ``call``), or the end of what was before it.

    The last is that of a key that is forgotten (`op` is ``forget``); its `version` tells how many there were.
    """

    seq: int
    id: str
    agent: str
    workflow: str | None
    node: str | None
    key: str
    op: str
    value: str | None
    tags: tuple[str, ...]
    created: int
    updated: int
    expires: int | None
    version: int
    vector: tuple[float, ...] | None = None

    @property
    def scope(self) -> Scope:
        """Whose record it is."""
        return Scope(agent_id=self.agent, workflow_id=self.workflow, node_id=self.node)

    def is_live(self, now: int) -> bool:
        """Return whether the record is there at that moment."""
        return self.value is not None and (self.expires is None or self.expires > now)


def versions_of(rows: Iterable[Row]) -> dict[int, Row]:
    """Return the rows of one id by version, the oldest first, without those that were forgotten."""
    versions: dict[int, Row] = {}
    for row in sorted(rows, key=lambda row: row.seq):
        if row.op == "forget":
            versions.clear()
        else:
            versions[row.version] = row
    return versions


# A memory has few scopes and many rows: the prefix is escaped once for each scope, not for each row.
@functools.lru_cache(maxsize=4096)
def scope_of(agent: str, workflow: str | None, node: str | None) -> Scope:
    """Return the scope of these parts; the same object again and again, with its prefix made once."""
    return Scope(agent_id=agent, workflow_id=workflow, node_id=node)


def row_to_list(row: Row) -> list[Any]:
    """Return the row as a JSON array; its id is left out, because the other fields make it."""
    fields: list[Any] = [row[0], *row[2:]]
    return fields


def row_from_list(fields: Sequence[Any]) -> Row:
    """Build a row from what `row_to_list` returned."""
    seq, agent, workflow, node, key, op, value, tags, created, updated, expires, version, vector = fields
    record_id = key if op == "call" else scope_of(agent, workflow, node).record_id(key)
    # A NamedTuple has no faster way: by position, and the lists of JSON as tuples, so that a row can be shared.
    more = (tuple(tags), created, updated, expires, version, tuple(vector) if vector else None)
    return Row(seq, record_id, agent, workflow, node, key, op, value, *more)


def row_to_record(row: Row, *, values: bool = True, score: float | None = None) -> MemoryRecord:
    """Return the row as people see it."""
    value = json.loads(row.value) if values and row.value is not None else None
    parts = (row.agent, row.workflow, row.node, row.key, value, row.tags)
    return make_record(*parts, row.created, row.updated, row.expires, row.version, row.op, score)


def make_record(
    agent: str,
    workflow: str | None,
    node: str | None,
    key: str,
    value: Any,
    tags: Iterable[str],
    created: int,
    updated: int,
    expires: int | None,
    version: int,
    change: str,
    score: float | None,
) -> MemoryRecord:
    """Return a record; times are microseconds since 1970, the value is what JSON holds.

    The fields come in the order in which they stand in an answer of the keeper.
    """
    # The `__init__` of a frozen dataclass takes four times as long, because it makes a call for each field.
    record = object.__new__(MemoryRecord)
    record.__dict__.update(
        agent_id=agent,
        workflow_id=workflow,
        node_id=node,
        key=key,
        value=value,
        tags=tuple(tags),
        created_at=moment(created),
        updated_at=moment(updated),
        expires_at=None if expires is None else moment(expires),
        version=version,
        change=change,
        score=score,
    )
    return record


def matches(row: Row, query: Query) -> bool:
    """Return whether key and tags of a row are those that a query asks for; its scope is not compared."""
    tags, has = set(query.tags), set(row.tags)
    return row.key.startswith(query.prefix) and (
        not tags or (tags <= has if query.match == "all" else bool(tags & has))
    )


def erased(row: Row, record_id: str) -> Row:
    """Return a row as it may be remembered after that id was forgotten."""
    return row._replace(value="null") if row.id == record_id else row


def newest_of(versions: Sequence[T], limit: int | None) -> Sequence[T]:
    """Return the last `limit` of some versions, `None` for all."""
    # Of 0, a slice from -0 would return all.
    return versions if limit is None else versions[-limit:] if limit else ()


def moment(microseconds: int) -> datetime:
    """Return the time of so many microseconds since 1970, exactly."""
    return _EPOCH + timedelta(microseconds=microseconds)


# A clock is set back by less when it is put right day by day; by more, when it was wrong before.
_SMALL_STEP_US = 3_600_000_000
# 2024: a computer that shows an earlier time does not know the time.
_UNSET_US = 1_704_067_200_000_000


def later(latest: int, system: int) -> int:
    """Return the time that follows on `latest`, both in microseconds: the system's, unless that made a small step back.

    A small step is waited out, so that a record that was due stays gone. After one of more than an hour the system is
    right and what came before was wrong: one moment in another year must not date everything after it.
    """
    went_back = latest - system
    return latest if went_back > 0 and (went_back <= _SMALL_STEP_US or system < _UNSET_US) else system


class Clock:
    """A clock of microseconds since 1970: the system's clock without its small steps back (see `later`).

    While the system's clock is behind, time goes on with the pace of the monotonic one: a record that lives for a
    minute lives for a minute.

    Parameters
    ----------
    latest
        The newest time that was given out in an earlier life, such as that of the newest row of a file.
    wall
        Returns the system's time, in seconds since 1970.
    steady
        Returns a time that never goes back, in seconds.
    """

    def __init__(
        self,
        latest: int = 0,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._base = later(latest, int(wall() * 1e6))
        self._start = steady()

    def now(self) -> int:
        """Return the time."""
        # Asked before the wall clock: what passes between the two may only make time go on.
        steady = self._steady()
        mine = self._base + int((steady - self._start) * 1e6)
        system = int(self._wall() * 1e6)
        now = later(mine, system)
        if now == system:
            self._base, self._start = system, steady
        return now
