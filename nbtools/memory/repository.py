"""Repository: the interface between `AgentMemory` and the stores of records.

Six blocking methods, safe to call from any thread. Writes are *changes*, applied in one atomic batch that carries a
request id: a batch that is sent again with the same id, because its answer was lost, is not applied again and gets the
first answer. Reads are one kind of query. What every implementation must do alike is written at `Repository`, and the
suite in ``tests/conformance`` holds them to it; `nbtools.memory.in_memory.InMemoryRepository` is the plainest one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from nbtools.errors import InvalidArguments, MemoryClosed, MemoryNotFound, MemoryUnavailable, VersionConflict
from nbtools.memory.records import MemoryRecord, Scope


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a batch; which fields count depends on `kind`.

    ========= ======================================================================================================
    kind      meaning
    ========= ======================================================================================================
    write     `key` becomes `value` (JSON text). `tags` and `ttl` (seconds, 0 for ever) of `None` keep what it has
    touch     `key` lives `ttl` seconds from now, as what it is; nothing happens when it is not there
    incr      add `by` to the number at `key`, a missing one counts as 0; tags and expiry stay
    restore   `key` takes value and tags of its `version` again, without expiry
    delete    `key` goes; nothing happens when it is not there
    clear     every key of `scope` goes; with `nodes`, those of the node scopes below the workflow too
    forget    `key` was never there: its versions go, and what records of tool calls say of it (see `erasure`)
    call      keep the record of a tool call: `value` is its JSON text, `key` its call id; a later one replaces it
    ========= ======================================================================================================

    Attributes
    ----------
    if_version
        The version that the live record must have (write, incr, restore, delete); 0 means that there must be none.
    vector
        What `embed` made of the record's text, or of several texts one after the other; a write without one forgets the
        old one. A repository whose ``info()``
        says ``vectors: False`` may ignore it.
    """

    kind: Literal["write", "touch", "incr", "restore", "delete", "clear", "forget", "call"]
    scope: Scope | None = None
    key: str = ""
    value: str | None = None
    tags: tuple[str, ...] | None = None
    ttl: float | None = None
    if_version: int | None = None
    by: int | float = 1
    version: int | None = None
    vector: tuple[float, ...] | None = None
    nodes: bool = False


@dataclass(frozen=True, kw_only=True)
class AppliedChange:
    """What became of one change.

    Attributes
    ----------
    record
        The record as it is now (write, touch, incr, restore), else `None`.
    count
        How many records it touched.
    """

    record: MemoryRecord | None = None
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which live records to return. All conditions must hold.

    Attributes
    ----------
    scope
        Exactly this scope; `None` means every scope of the store.
    keys
        Only these keys, in this order, absent ones left out; needs a scope. This is the point read: make it fast.
    prefix
        What the key starts with.
    tags
        Tags that the record has; empty sets no condition.
    match
        Whether it has to have ``all`` of the tags, or ``any``.
    text
        Rank by BM25 over key, tags and the words of the value, best first, with `score` set. Without text and vector,
        the order is that of the key by code point (of the id when `scope` is `None`).
    vector
        Add the nearness by cosine to a `text`, the two rankings fused by reciprocal rank. A vector alone ranks all
        records that have one by their cosines, which are then the scores.
    limit
        At most so many records; `None` for all. A search without a limit returns at most 1,000.
    after
        Continue behind this key (behind this id when `scope` is `None`); not for searches.
    values
        Whether values are wanted; without, each record's value is `None`.
    give
        ``records``; or only ``count``, how many there are without `limit` and `after`. Of the conditions, `scope` alone
        counts for ``tags``, how many records have each, and ``table``, all of them as one file (see `QueryAnswer`).
    """

    scope: Scope | None = None
    keys: tuple[str, ...] | None = None
    prefix: str = ""
    tags: tuple[str, ...] = ()
    match: Literal["all", "any"] = "all"
    text: str | None = None
    vector: tuple[float, ...] | None = None
    limit: int | None = None
    after: str | None = None
    values: bool = True
    give: Literal["records", "count", "tags", "table"] = "records"

    @property
    def most_found(self) -> int:
        """How many records a search returns at the most."""
        return 1_000 if self.limit is None else self.limit


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """What a query found.

    Attributes
    ----------
    records
        The records.
    total
        Their number, or the one that `Query.give` asked for.
    tags
        How many records have each tag.
    table
        A Parquet file of the records (see `nbtools.memory.rules.record_table`), ordered by their ids.
    """

    records: tuple[MemoryRecord, ...] = ()
    total: int = 0
    tags: Mapping[str, int] = field(default_factory=dict)
    table: bytes = b""


@dataclass(frozen=True, kw_only=True)
class CallQuery:
    """Which records of tool calls to return: the newest `limit` (`None` for all) that match, oldest of them first."""

    limit: int | None = 100
    call_id: str | None = None
    run_id: str | None = None
    tool: str | None = None

    @property
    def conditions(self) -> dict[str, str]:
        """The fields that a record must have, by their names."""
        fields = {"call_id": self.call_id, "run_id": self.run_id, "tool": self.tool}
        return {name: value for name, value in fields.items() if value is not None}

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record is one of those asked for, whatever the limit."""
        return all(record.get(name) == value for name, value in self.conditions.items())


class Repository(Protocol):
    """Where records lie.

    Rules for every implementation:

    - A batch is applied whole or not at all; later changes of a batch see the earlier ones. When `apply` returned, the
      batch survives the death of any process.
    - Versions of one id count 1, 2, 3, … through deletions too, and are never given twice while its history is known.
    - An expired record is absent in every way from the moment it is due. A write to an absent key starts a new
      ``created_at`` and, with tags of `None`, no tags.
    - Versions follow each other by their numbers. Their dates are the clock's, without its small steps back
      (`nbtools.memory.rules.rows.later`): what a clock in another year dated stays so dated, and nothing after it is. A
      record is never older than its newest version.
    - The history of an id keeps its newest versions up to the number given at construction, deletions included.
    - A forgotten key starts again with version 1. Records of calls that come by the same way within ten minutes after
      are cleaned as those that were there, because they are written behind the calls. No file of this store has the
      value any more when `apply` returns; what a database server does with its pages and logs is its own.
    - Refusals are `VersionConflict` (`check_version`), `InvalidArguments` (`add_numbers`) and `MemoryNotFound`
      (`no_such_version`); an unavailable store is `MemoryUnavailable`, a write that was not stored
      `MemoryWriteFailed`.
    - Where it is not known whether a batch was applied, the error is that of `outcome_unknown`.
    - Times of records are aware datetimes in UTC with microseconds; values are fresh objects on every read.
    """

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch, once per request id, and return what became of each change."""

    def query(self, query: Query) -> QueryAnswer:
        """Return the live records that match."""

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest `limit` versions of a key, oldest of them first, deletions included."""

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls as they were appended."""

    def info(self) -> dict[str, Any]:
        """Return facts for a status card.

        Always there: ``backend``, ``place`` (no secrets), ``records`` (live and expired), ``vectors`` (whether they are
        ranked) and ``notices`` (what the user should be told, a list of sentences).
        """

    def close(self) -> None:
        """Release all resources; later calls raise `MemoryClosed`. A second close does nothing."""


def check_version(key: str, expected: int | None, actual: int) -> None:
    """Compare a change's `if_version` with the version of the live record, 0 when there is none.

    Raises
    ------
    VersionConflict
        They differ; `data` holds key, expected and found.
    """
    if expected is None or expected == actual:
        return
    state = f"is at version {actual}" if actual else "does not exist"
    wish = f"version {expected}" if expected else "a key that does not exist yet"
    raise VersionConflict(
        f"{key!r} {state}, expected {wish}.",
        hint="read it again and apply the change to its current value",
        data={"key": key, "expected": expected, "found": actual},
    )


def add_numbers(key: str, current: Any, by: float) -> int | float:
    """Return the sum that an `incr` stores.

    Raises
    ------
    InvalidArguments
        What is there is not a number, or the sum is not finite.
    """
    # `True` is 1 in Python, and a flag that became 2 would be no flag any more.
    if isinstance(current, bool) or not isinstance(current, (int, float)):
        raise InvalidArguments(
            f"{key!r} holds a {type(current).__name__}, not a number, so nothing can be added to it.",
            hint="write a number first, or use another key",
        )
    try:
        total: int | float = current + by
        finite = math.isfinite(total)
    except OverflowError:  # An integer that no float can hold met a float.
        finite = False
    if not finite:
        raise InvalidArguments(f"{current!r} + {by!r} is not a finite number.", hint="write a smaller number first")
    return total


def memory_closed() -> MemoryClosed:
    """Return the error of a repository that is used after its `close`."""
    return MemoryClosed("This memory was closed.", hint="Open another workbench, or the memory again by open_memory.")


def no_such_version(key: str, version: int, versions: Sequence[int]) -> MemoryNotFound:
    """Return the error of a `restore` whose version is unknown, trimmed, or a deletion."""
    listed = ", ".join(map(str, versions)) or "none"
    return MemoryNotFound(
        f"{key!r} has no version {version} to restore.", hint=f"versions that can be restored: {listed}"
    )


def outcome_unknown(message: str, request_id: str) -> MemoryUnavailable:
    """Return the error of a batch that was sent, and may have been applied without an answer.

    It is not retryable: another call would be another request, and could do everything a second time. The same request
    may be repeated, by the id in `data`.
    """
    return MemoryUnavailable(
        f"{message} It is not known whether the change was made.",
        hint="read it again, or its history, before you repeat the change",
        data={"outcome": "unknown", "request_id": request_id},
        retryable=False,
    )
