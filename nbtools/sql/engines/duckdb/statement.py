"""One statement on a DuckDB cursor: parsed, bound, checked for what it would change, and read."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from nbtools.errors import SqlNotAllowed
from nbtools.ground.lazy import duckdb, has
from nbtools.sql.engines.duckdb.tuples import BATCH, ZONED, read_plain
from nbtools.sql.engines.errors import from_duckdb
from nbtools.sql.engines.fetch import read_arrow
from nbtools.sql.engines.protocol import EngineAnswer, QueryControl, QueryRequest
from nbtools.sql.results.engine_copy import query_around
from nbtools.sql.results.rows import ArrowRows, PythonRows, types_note
from nbtools.sql.results.texts import documents_in
from nbtools.sql.verdict import guards

_LARGE_BATCH = 16_384
# Arrow has no form for these, or one that nobody reads; their Python values are fine.
_NO_ARROW = re.compile(r"\b(BIT|BIGNUM|VARINT|UNION|VARIANT|UHUGEINT)\b")
# Texts outside of DuckDB, at any depth; of a time of day Arrow would drop the zone.
_TEXTS = re.compile(r"\b(?:BIT|BIGNUM|VARINT|TIME WITH TIME ZONE)\b")
_ANY_LENGTH = re.compile(r"VARCHAR|BLOB|BIT|JSON|\[|STRUCT|MAP|UNION|BIGNUM|VARIANT|GEOMETRY|UNKNOWN")
# Their Python values are shown as Arrow's are.
_PLAIN = frozenset({"BOOLEAN", "VARCHAR", "DOUBLE", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UINTEGER", "UBIGINT"})
# The kind alone proves nothing: a SELECT may hold a DELETE or COPY in a common table expression, and MULTI is a dynamic
# PIVOT or a CREATE with one. What the bound statement would change decides, see `_harmless`.
_RUNS = frozenset({"SELECT", "EXPLAIN", "MULTI", "RELATION"})
_COPIED = frozenset({"SELECT", "RELATION"})


def parse_single(cursor: Any, sql: str) -> Any:
    """Return the one statement of the text, if it is of a kind that can be a query."""
    statements = cursor.extract_statements(sql)
    if len(statements) != 1:
        raise SqlNotAllowed(f"the text contains {len(statements)} statements; one is run at a time.")
    statement = statements[0]
    try:
        kind = statement.type.name
    except ValueError:
        kind = "of an unknown kind"
    if kind not in _RUNS:
        raise SqlNotAllowed(f"the statement is {kind}; nbtools SQL is read-only.")
    return statement


def read(cursor: Any, statement: Any, request: QueryRequest, control: QueryControl) -> EngineAnswer:
    """Run the statement, if it changes nothing, and read its rows up to the caps."""
    values = request.parameters
    names, types = _bind(cursor, statement, values)
    control.check()
    if request.only_types:  # to run it would look into files that tell their types once more
        return EngineAnswer(columns=names, types=types, rows=PythonRows(names, ()))
    is_query = statement.type.name in _COPIED
    copy = request.copy if is_query and "UNKNOWN" not in types else None
    if copy is not None and copy.path is not None and request.max_rows is None:
        # What is run is our own COPY of the very text that was judged and bound.
        copied = cursor.execute(copy.statement(statement.query, names, types), values)
        copy.rows = int(copied.fetchone()[0])
        return EngineAnswer(columns=names, types=types, rows=PythonRows(names, ()))
    kinds = tuple(_TEXTS.sub("VARCHAR", kind) for kind in types) if is_query else types
    pairs = zip(kinds, types, strict=True)
    cells = [f"CAST(c{at} AS {kind})" if kind != own else f"c{at}" for at, (kind, own) in enumerate(pairs)]
    is_cast = kinds != types
    if copy is not None:
        is_cast, selection = True, copy.cells(types)
        cells, kinds = [cell for cell, _ in selection], tuple(kind for _, kind in selection)
    joined = " ".join(kinds)
    is_plain = request.only_shown and _PLAIN.issuperset(types)
    arrow = has("pyarrow") and not is_plain and (not _NO_ARROW.search(joined) or bool(ZONED.search(joined)))
    if not arrow:
        return read_plain(cursor, statement, request, control, names, types, is_query=is_query)
    many = not _ANY_LENGTH.search(joined) if request.max_rows is None else request.max_rows > _LARGE_BATCH
    batch = _LARGE_BATCH if many else BATCH
    text = query_around(statement.query, ", ".join(cells), len(kinds)) if is_cast else statement.query
    reader = cursor._submit(text, values, "stream", batch).arrow_reader()  # noqa: SLF001 - see `_bind`
    try:
        note = types_note(kinds) if copy is not None or any(map(documents_in, kinds)) else None
        table, cut = read_arrow(reader, request, control, names if is_cast else None, note)
    finally:
        with contextlib.suppress(Exception):
            reader.close()
    if "UNKNOWN" in types:
        # A dynamic PIVOT knows its columns only once it has run.
        names, types = tuple(table.schema.names), tuple(str(kind).upper() for kind in table.schema.types)
    return EngineAnswer(columns=names, types=types, rows=ArrowRows(table), cut_by=cut)


def _bind(cursor: Any, statement: Any, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Bind the statement without running it; refuse it if it would change anything or write a file.

    The package's public `sql` does the same two steps (bind, submit) but runs a statement that writes at once.
    """
    try:
        bound = _harmless(cursor, statement, values)
        if statement.type.name == "EXPLAIN":
            # EXPLAIN ANALYZE runs what it explains.
            start = guards.find_explained(guards.scan(statement.query))
            inner = parse_single(cursor, statement.query[start:]) if start else statement
            if inner.type.name == "EXPLAIN":
                raise SqlNotAllowed("the explained statement cannot be determined.")
            _harmless(cursor, inner, values)
    except duckdb.Error as exc:
        # The binder alone does not say where; explaining does. A line goes before the text, to count from its start.
        start = guards.find_explained(guards.scan(statement.query)) or 0
        blanks = re.sub(r"[^\n]", " ", statement.query[:start])
        try:
            cursor.execute(f"EXPLAIN\n{blanks}{statement.query[start:]}", values)
        except duckdb.Error as located:
            raise from_duckdb(located, statement.query, skip_lines=1) from exc
        raise
    return bound


def _harmless(cursor: Any, statement: Any, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    bound = cursor._bind(statement, with_writes=True, values=values)  # noqa: SLF001 - see `_bind`
    names, types, _, returns, _, writes = bound
    # Of a dynamic PIVOT, which is several statements to the engine, it binds nothing.
    writes = writes or (statement.type.name == "MULTI" and guards.hidden_statement(statement.query) is not None)
    if returns != "query_result" or writes:
        raise SqlNotAllowed("the statement writes; nbtools SQL is read-only.", hint="Send a SELECT.")
    return tuple(names), tuple(str(kind).strip('"') for kind in types)


def roll_back(cursor: Any, end: Any) -> None:
    """Give up what is left of the result, and the transaction with the statement `end`."""
    # An open result owns the connection, and an interrupt may have ended the transaction already.
    for step in (cursor.abort, lambda: cursor.execute(end)):
        with contextlib.suppress(Exception):
            step()
