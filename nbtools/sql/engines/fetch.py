"""Readers that stop at the caps: the text of a query is never given a LIMIT, which could change what it means."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from nbtools.errors import LimitExceeded
from nbtools.sql.engines.protocol import QueryControl, QueryRequest
from nbtools.sql.results.rows import ArrowRows, PythonRows

Cut = Literal["rows", "bytes"] | None


def read_arrow(
    reader: Any,
    request: QueryRequest,
    control: QueryControl,
    names: Sequence[str] | None = None,
    note: dict[bytes, bytes] | None = None,
) -> tuple[Any, Cut]:
    """Read batches until a cap is reached; return the pyarrow Table and which cap cut it.

    Parameters
    ----------
    reader
        The pyarrow reader of record batches.
    request
        The request, whose caps hold.
    control
        Stops the reading between two batches.
    names
        Of the columns; `None` for those of the reader.
    note
        Metadata of the tables.

    Raises
    ------
    LimitExceeded
        The result, or even its first row, is larger than it may be.
    """
    import pyarrow as pa

    most_rows, most_bytes = _caps(request)
    own = reader.schema

    def as_asked(table: Any) -> Any:
        table = table if names is None else table.rename_columns(names)
        return table if names is None and note is None else table.replace_schema_metadata(note or own.metadata)

    batches: list[Any] = []
    rows = size = 0
    cut: Cut = None
    while cut is None:
        control.check()
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        fits, length = _rows_that_fit(batch, most_rows - rows, most_bytes - size)
        if fits < batch.num_rows:
            cut = "rows" if fits == most_rows - rows else _by_size(request, rows + fits)
            # A copy where it matters: a slice keeps the whole batch alive, and this one may be huge.
            batch = batch.slice(0, fits) if cut == "rows" else batch.take(pa.array(range(fits), pa.int64()))
        rows += batch.num_rows
        size += length
        if request.on_rows is None:
            batches.append(batch)
        elif batch.num_rows:
            request.on_rows(tuple(names or own.names), ArrowRows(as_asked(pa.Table.from_batches([batch]))))
    return as_asked(pa.Table.from_batches(batches, schema=own)), cut


def _caps(request: QueryRequest) -> tuple[int, int]:
    caps = (request.max_rows, request.max_bytes)
    return (sys.maxsize if caps[0] is None else caps[0], sys.maxsize if caps[1] is None else caps[1])


def _rows_that_fit(batch: Any, room_rows: int, room_bytes: int) -> tuple[int, int]:
    """Return how many of the batch's first rows fit into both caps, and their bytes."""
    rows, size = min(int(batch.num_rows), room_rows), 0
    while rows and (size := batch.slice(0, rows).nbytes) > room_bytes:
        # Rows differ in size, so the share is a guess that is checked again.
        rows = min(rows - 1, rows * room_bytes // size)
    return rows, size


def read_tuples(
    names: Sequence[str],
    fetch: Callable[[], list[tuple[Any, ...]]],
    request: QueryRequest,
    control: QueryControl,
    dtypes: Sequence[str | None] = (),
) -> tuple[PythonRows, Cut]:
    """Fetch chunks of tuples, with the types of `PythonRows`, until a cap is reached; return which cap cut them.

    Raises
    ------
    LimitExceeded
        The result, or even its first row, is larger than it may be.
    """
    most_rows, most_bytes = _caps(request)
    fetched: list[tuple[Any, ...]] = []
    rows = size = 0
    cut: Cut = None
    while cut is None:
        control.check()
        chunk = fetch()
        if not chunk:
            break
        for index, row in enumerate(chunk):
            # Without what lists and structures hold: walking them would cost more than fetching them.
            size += sum(map(sys.getsizeof, row))
            if rows + index >= most_rows or size > most_bytes:
                cut = "rows" if rows + index >= most_rows else _by_size(request, rows + index)
                chunk = chunk[:index]
                break
        rows += len(chunk)
        if request.on_rows is None:
            fetched.extend(chunk)
        elif chunk:
            request.on_rows(tuple(names), PythonRows(names, chunk, dtypes))
    return PythonRows(names, fetched, dtypes), cut


def _by_size(request: QueryRequest, rows: int) -> Cut:
    """Return that the size cut the result, where that is allowed; `rows` is how many fit."""
    if not rows:
        raise LimitExceeded(
            f"one row of the result is larger than {request.max_bytes:,} bytes.",
            hint="Select less of it: substring(), a shorter list, fewer columns.",
        )
    if request.whole:
        raise LimitExceeded(
            f"the result is larger than {request.max_bytes:,} bytes: {rows:,} rows fit, and there are more.",
            hint="Ask for less (aggregate, filter, a limit), look at all rows with %explore, or write them to a file: "
            "%%nbsql --out-file rows.csv, wb.export(query, 'rows.csv'), nbtools sql --format csv.",
        )
    return "bytes"
