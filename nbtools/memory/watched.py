"""A memory whose changes are seen: code that wants to take them back learns the version of before and of after.

It stands between `AgentMemory` and its repository, so it sees every change, by any writer and any method.
"""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import AppliedChange, Change, Query, Repository
from nbtools.memory.store import AgentMemory

_ONE = frozenset({"write", "touch", "incr", "restore", "delete", "forget"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoteChange:
    """A record that was changed.

    Attributes
    ----------
    scope
        The scope of the record.
    key
        The key of the record.
    was
        Its version before; `None` where it did not exist.
    now
        Its version after; `None` where it no longer exists.
    ends
        When it was to vanish, as ISO 8601; `None` is never.
    is_forgotten
        Whether it was erased permanently.
    """

    scope: Scope
    key: str
    was: int | None
    now: int | None
    ends: str | None = None
    is_forgotten: bool = False


_Watcher = Callable[[Sequence[NoteChange]], None]
WATCHER: contextvars.ContextVar[_Watcher | None] = contextvars.ContextVar("nbtools_note_watcher", default=None)
"""Who sees the changes of notes by what runs here."""


def watched(memory: AgentMemory, watcher: _Watcher | None = None) -> AgentMemory:
    """Return a memory whose changes `watcher` is told of, or who is set for what runs here; where nobody is, itself."""
    watcher = watcher or WATCHER.get()
    return memory if watcher is None else memory.over(_WatchedRepository(memory.repository, watcher))


class _WatchedRepository:
    """Applies changes as its repository does, and says of each record what it was and what it is."""

    def __init__(self, repository: Repository, watcher: _Watcher) -> None:
        self._repository = repository
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for such names before it has a repository
            raise AttributeError(name)
        return getattr(self._repository, name)

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch."""
        before: dict[tuple[Scope, str], MemoryRecord | None] = {}
        for change in changes:
            for key, record in self._before(change).items():
                before.setdefault(key, record)
        applied = self._repository.apply(changes, request_id=request_id)
        after: dict[tuple[Scope, str], int | None] = dict.fromkeys(before)
        for change, done in zip(changes, applied, strict=True):
            if change.scope is not None and change.kind in _ONE:
                after[change.scope, change.key] = done.record.version if done.record is not None else None
        forgotten = {(change.scope, change.key) for change in changes if change.kind == "forget"}
        self._watcher(
            [
                NoteChange(
                    scope=address[0],
                    key=address[1],
                    was=was.version if was is not None else None,
                    now=after[address],
                    ends=was.expires_at.isoformat() if was is not None and was.expires_at is not None else None,
                    is_forgotten=address in forgotten,
                )
                for address, was in before.items()
                if (was.version if was is not None else None) != after[address]
            ]
        )
        return applied

    def _before(self, change: Change) -> dict[tuple[Scope, str], MemoryRecord | None]:
        if change.scope is None or change.kind == "call":
            return {}
        keys = (change.key,) if change.kind in _ONE else None
        records = self._repository.query(Query(scope=change.scope, keys=keys, values=False)).records
        states: dict[tuple[Scope, str], MemoryRecord | None] = {(change.scope, key): None for key in keys or ()}
        return states | {(change.scope, record.key): record for record in records}
