"""One statement on a DuckDB cursor: parsed, bound, checked for what it would change, and read."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from typing import Any

from nbtools.errors import SqlNotAllowed
from nbtools.lazy import has
from nbtools.sql.engines.errors import from_duckdb
from nbtools.sql.engines.fetch import Cut, read_arrow, read_tuples
from nbtools.sql.engines.protocol import Fetched, QueryControl, QueryRequest
from nbtools.sql.results.rows import ArrowRows, PythonRows

__all__ = ["EXPLAIN", "parse_single", "read", "roll_back"]

# One vector of DuckDB. Small batches keep the reader close to the caps: many values of any length may be huge.
_BATCH = 2_048
_LARGE_BATCH = 16_384
# Arrow has no form for these, or one that nobody reads; their Python values are fine.
_NO_ARROW = re.compile(r"\b(BIT|BIGNUM|VARINT|UNION|VARIANT|TIME WITH TIME ZONE|UHUGEINT|GEOMETRY)\b")
_ANY_LENGTH = re.compile(r"VARCHAR|BLOB|BIT|JSON|\[|STRUCT|MAP|UNION|BIGNUM|VARIANT|GEOMETRY|UNKNOWN")
_ZONED = re.compile(r"\bTIMESTAMP WITH TIME ZONE\b")
# The kind alone proves nothing: a SELECT may hold a DELETE or COPY in a common table expression, and MULTI is a dynamic
# PIVOT or a CREATE with one. What the bound statement would change decides, see `_harmless`.
_RUNS = frozenset({"SELECT", "EXPLAIN", "MULTI", "RELATION"})
EXPLAIN = re.compile(r"\A\s*EXPLAIN\s+(?:ANALYZE\b|\([^)]*\))?\s*", re.IGNORECASE)


def parse_single(cursor: Any, sql: str) -> Any:
    """Return the one statement of the text, if it is of a kind that can be a query."""
    statements = cursor.extract_statements(sql)
    if len(statements) != 1:
        raise SqlNotAllowed(f"the text holds {len(statements)} statements; one is run at a time.", tried="running SQL")
    statement = statements[0]
    try:
        kind = statement.type.name
    except ValueError:
        kind = "of an unknown kind"
    if kind not in _RUNS:
        raise SqlNotAllowed(f"the statement is {kind}; nbtools SQL is read-only.", tried="running SQL")
    return statement


def read(cursor: Any, statement: Any, request: QueryRequest, control: QueryControl) -> Fetched:
    """Run the statement, if it changes nothing, and read its rows up to the caps."""
    values = request.parameters
    names, types = _bind(cursor, statement, values)
    control.check()
    joined = " ".join(types)
    arrow = has("pyarrow") and (not _NO_ARROW.search(joined) or bool(_ZONED.search(joined)))
    if not arrow:
        rows, cut = _python_rows(cursor, statement, request, control, zoned=bool(_ZONED.search(joined)))
        if "UNKNOWN" in types:
            names, types = zip(*((str(column[0]), str(column[1])) for column in cursor.description), strict=True)
        return Fetched(columns=names, types=types, rows=PythonRows(names, rows), cut_by=cut)
    many = not _ANY_LENGTH.search(joined) if request.max_rows is None else request.max_rows > _LARGE_BATCH
    batch = _LARGE_BATCH if many else _BATCH
    reader = cursor._submit(statement.query, values, "stream", batch).arrow_reader()  # noqa: SLF001 - see `_bind`
    try:
        table, cut = read_arrow(reader, request, control)
    finally:
        with contextlib.suppress(Exception):
            reader.close()
    if "UNKNOWN" in types:
        # A dynamic PIVOT knows its columns only once it has run.
        names, types = tuple(table.schema.names), tuple(str(kind).upper() for kind in table.schema.types)
    return Fetched(columns=names, types=types, rows=ArrowRows(table), cut_by=cut)


def _bind(cursor: Any, statement: Any, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Bind the statement without running it; refuse it if it would change anything or write a file.

    The package's public `sql` does the same two steps (bind, submit) but runs a statement that writes at once.
    """
    import duckdb

    try:
        bound = _harmless(cursor, statement, values)
        if statement.type.name == "EXPLAIN":
            # EXPLAIN ANALYZE runs what it explains.
            inner = parse_single(cursor, EXPLAIN.sub("", statement.query))
            if inner.type.name == "EXPLAIN":
                raise SqlNotAllowed("the explained statement cannot be determined.", tried="running SQL")
            _harmless(cursor, inner, values)
    except duckdb.Error as exc:
        # The binder alone does not say where; explaining does. A line goes before the text, to count from its start.
        try:
            cursor.execute(f"EXPLAIN\n{statement.query}", values)
        except duckdb.Error as located:
            raise from_duckdb(located, statement.query, skip_lines=1) from exc
        raise
    return bound


def _harmless(cursor: Any, statement: Any, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    told = cursor._bind(statement, with_writes=True, values=values)  # noqa: SLF001 - see `_bind`
    names, types, _, returns, _, writes = told
    if returns != "query_result" or writes:
        raise SqlNotAllowed(
            "the statement writes; nbtools SQL is read-only.", hint="Send a SELECT.", tried="running SQL"
        )
    return tuple(names), tuple(str(kind).strip('"') for kind in types)


def _python_rows(
    cursor: Any, statement: Any, request: QueryRequest, control: QueryControl, *, zoned: bool
) -> tuple[Any, Cut]:
    """Fetch tuples through DuckDB's own conversion."""
    cursor.execute(statement, request.parameters)
    names = [str(column[0]) for column in cursor.description]
    fetch = (lambda: _frame_tuples(cursor)) if zoned else (lambda: cursor.fetchmany(_BATCH))
    return read_tuples(names, fetch, request, control)


def _frame_tuples(cursor: Any) -> list[tuple[Any, ...]]:
    """Fetch a chunk by way of pandas: zoned times need pytz otherwise, which pandas itself no longer does."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = cursor.fetch_df_chunk(1)
    columns = [_plain_values(frame.iloc[:, index]) for index in range(frame.shape[1])]
    return list(zip(*columns, strict=True))


def _plain_values(column: Any) -> list[Any]:
    """Return a column's values as Python has them, zoned times with a fixed offset."""
    values = [None if gone else value for value, gone in zip(column.tolist(), column.isna(), strict=True)]
    if column.dtype.kind != "M":
        return values
    times = [None if value is None else value.to_pydatetime(warn=False) for value in values]
    return [
        value if value is None or value.tzinfo is None else value.replace(tzinfo=dt.timezone(value.utcoffset()))
        for value in times
    ]


def roll_back(cursor: Any, end: Any) -> None:
    """Give up what is left of the result, and the transaction with the statement `end`."""
    # An open result owns the connection, and an interrupt may have ended the transaction already.
    for step in (cursor.abort, lambda: cursor.execute(end)):
        with contextlib.suppress(Exception):
            step()
