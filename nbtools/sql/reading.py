"""Readers that stop at the caps: the text of a query is never given a LIMIT, which could change what it means."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

from nbtools.errors import LimitExceeded
from nbtools.sql.engines import Control

__all__ = ["Cut", "read_arrow", "read_tuples"]

Cut = Literal["rows", "bytes"] | None


def read_arrow(reader: Any, max_rows: int, max_bytes: int, control: Control) -> tuple[Any, Cut]:
    """Read batches until a cap is reached; return the pyarrow Table and which cap cut it.

    Raises
    ------
    LimitExceeded
        The first row alone is larger than `max_bytes`.
    """
    import pyarrow as pa

    kept: list[Any] = []
    rows = size = 0
    cut: Cut = None
    while cut is None:
        control.check()
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        fits = _fitting(batch, max_rows - rows, max_bytes - size)
        if fits < batch.num_rows:
            cut = "rows" if fits == max_rows - rows else "bytes"
            # A copy where it matters: a slice keeps the whole batch alive, and this one may be huge.
            batch = batch.slice(0, fits) if cut == "rows" else batch.take(pa.array(range(fits), pa.int64()))
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if cut == "bytes" and not rows:
        raise _too_wide(max_bytes)
    return pa.Table.from_batches(kept, schema=reader.schema), cut


def _fitting(batch: Any, room_rows: int, room_bytes: int) -> int:
    """Return how many of the batch's first rows fit into both caps."""
    rows = min(int(batch.num_rows), room_rows)
    while rows and batch.slice(0, rows).nbytes > room_bytes:
        # Rows differ in size, so the share is a guess that is checked again.
        size = batch.slice(0, rows).nbytes
        rows = min(rows - 1, rows * room_bytes // size)
    return rows


def read_tuples(
    fetch: Callable[[], list[tuple[Any, ...]]], max_rows: int, max_bytes: int, control: Control
) -> tuple[list[tuple[Any, ...]], Cut]:
    """Fetch chunks of tuples until a cap is reached; return them and which cap cut them.

    Raises
    ------
    LimitExceeded
        The first row alone is larger than `max_bytes`.
    """
    kept: list[tuple[Any, ...]] = []
    size = 0
    while True:
        control.check()
        chunk = fetch()
        if not chunk:
            return kept, None
        for row in chunk:
            if len(kept) >= max_rows:
                return kept, "rows"
            size += sum(map(sys.getsizeof, row))
            if size > max_bytes:
                if not kept:
                    raise _too_wide(max_bytes)
                return kept, "bytes"
            kept.append(row)


def _too_wide(max_bytes: int) -> LimitExceeded:
    return LimitExceeded(
        f"one row of the result is larger than {max_bytes:,} bytes.",
        hint="Select less of it: substring(), a shorter list, fewer columns.",
        tried="running SQL",
    )
