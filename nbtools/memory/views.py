"""Views: items and values of a memory, read in one question instead of one per key."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any

from nbtools.memory.records import MemoryRecord

__all__ = ["RecordItems", "RecordValues"]

_List = Callable[[], Sequence[MemoryRecord]]


class RecordItems(ItemsView[str, Any]):
    """The pairs of key and value of a mapping whose records are listed by a function."""

    def __init__(self, mapping: Mapping[str, Any], records: _List) -> None:
        super().__init__(mapping)
        self._records = records

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter([(record.key, record.value) for record in self._records()])


class RecordValues(ValuesView[Any]):
    """The values of a mapping whose records are listed by a function, in the order of their keys."""

    def __init__(self, mapping: Mapping[str, Any], records: _List) -> None:
        super().__init__(mapping)
        self._records = records

    def __iter__(self) -> Iterator[Any]:
        return iter([record.value for record in self._records()])

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)
