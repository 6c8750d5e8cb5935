"""Two caches of the engine: the newest rows by id, and a filter of the ids that were ever written."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from nbtools.memory.rules.rows import Row

# What Python needs for a row beside its value: the tuple, its numbers and texts, and the entry here. Measured with
# tracemalloc: 510 bytes with short keys.
_OVERHEAD = 600


class RowCache:
    """Keep the rows used last, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, record_id: str) -> Row | None:
        """Return a row if it is here. Recency counts from the last `put`, which keeps reading free of locks."""
        return self._rows.get(record_id)

    def clear(self) -> None:
        """Remove all rows."""
        with self._lock:
            self._rows.clear()
            self._size = 0

    def put(self, rows: Iterable[Row]) -> None:
        """Store rows, and remove the oldest ones if there are too many."""
        with self._lock:
            for row in rows:
                old = self._rows.pop(row.id, None)
                if old is not None:
                    self._size -= _size(old)
                self._rows[row.id] = row
                self._size += _size(row)
            while self._size > self._limit and self._rows:
                _, row = self._rows.popitem(last=False)
                self._size -= _size(row)


def _size(row: Row) -> int:
    return _OVERHEAD + len(row.value or "") + 24 * len(row.vector or ())


class BloomFilter:
    """A Bloom filter of all ids: for an id that was never written it says so for certain, which saves a query.

    Four bits an id in a table of sixteen bits an id. Its owner makes a new one when it is full, and uses it until then.

    Parameters
    ----------
    count
        How many ids will be added soon; there is room for as many again.
    """

    def __init__(self, count: int) -> None:
        # A power of two, so that a mask takes the place of a division.
        size = 1 << 16
        while size < 32 * count:
            size *= 2
        self._mask = size - 1
        self._bits = bytearray(size // 8)
        self._room = size // 16

    @property
    def is_full(self) -> bool:
        """Whether it answers "perhaps" too often by now."""
        return self._room < 0

    def add(self, record_id: str) -> None:
        """Add an id."""
        # Python's own hash of a text is seeded for each process, and the filter does not outlive it.
        bits, value = self._bits, hash(record_id)
        self._room -= 1
        for shift in (0, 13, 26, 39):
            bit = (value >> shift) & self._mask
            bits[bit >> 3] |= 1 << (bit & 7)

    def may_have(self, record_id: str) -> bool:
        """Return whether the id may have been added; `False` is certain."""
        bits, value = self._bits, hash(record_id)
        for shift in (0, 13, 26, 39):
            bit = (value >> shift) & self._mask
            if not bits[bit >> 3] & 1 << (bit & 7):
                return False
        return True
