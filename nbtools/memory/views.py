"""Views: items and values of a memory, read in one question instead of one per key."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, ValuesView
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbtools.memory.store import AgentMemory

__all__ = ["RecordItems", "RecordValues"]


class RecordItems(ItemsView[str, Any]):
    """The pairs of key and value."""

    _mapping: AgentMemory

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter([(record.key, record.value) for record in self._mapping.list()])


class RecordValues(ValuesView[Any]):
    """The values, in the order of their keys."""

    _mapping: AgentMemory

    def __iter__(self) -> Iterator[Any]:
        return iter([record.value for record in self._mapping.list()])

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)
