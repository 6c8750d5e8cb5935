"""Rows as Python tuples, where pyarrow is not installed, or Arrow has no form for a type.

DuckDB's own conversion changes moments that Python has not: infinity becomes the year 9999, nanoseconds are cut, and
the year before Christ comes in another writing. So a moment, at any depth, is asked for as text, and becomes Python's
where Python has it. A map is a list of pairs, as Arrow has it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.protocol import EngineAnswer, QueryControl, QueryRequest
from nbtools.sql.results.engine_copy import query_around
from nbtools.sql.results.moments import from_text
from nbtools.sql.results.rows import DATE, DECIMAL, TIMESTAMP
from nbtools.sql.results.texts import document
from nbtools.texts.sql_quotes import quote_identifier
from nbtools.texts.values import Pairs

# One vector of DuckDB. Small batches keep the reader close to the caps: many values of any length may be huge.
BATCH = 2_048
ZONED = re.compile(r"\bTIMESTAMP WITH TIME ZONE\b")
_NESTED = re.compile(r"\[|STRUCT|MAP|UNION|TUPLE")
_MOMENT = re.compile(r"DATE|TIMESTAMP(?: WITH TIME ZONE|_S|_MS|_NS)?|UUID")
# Python has no dictionary of these keys; DuckDB gives a list of keys and one of values.
_NO_KEYS = frozenset({"array", "list", "map", "struct", "tuple"})
_WIDTHS = (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64))
_DTYPES = {
    **{f"{sign}{name}": f"{sign.lower()}int{bits}" for sign in ("", "U") for name, bits in _WIDTHS},
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "BOOLEAN": "bool",
    "VARCHAR": "str",
    "UUID": "str",
    "BLOB": "object",
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    **{f"TIMESTAMP_{unit}": f"datetime64[{unit.lower()}]" for unit in ("S", "MS", "NS")},
}


class _AsText(NamedTuple):
    """The type that a column is cast to, with texts for moments, and what makes its values of such a one."""

    type: str
    value: Callable[[Any], Any]


def read_plain(
    cursor: Any,
    statement: Any,
    request: QueryRequest,
    control: QueryControl,
    names: Sequence[str],
    types: Sequence[str],
    *,
    is_query: bool,
) -> EngineAnswer:
    """Run a bound statement and fetch its rows; moments are exact where it is a query, which can stand in another."""
    casts = {at: cast for at, kind in enumerate(types) if (cast := _as_text(kind)) is not None} if is_query else {}
    if casts:
        columns = (f"CAST(c{at} AS {casts[at].type})" if at in casts else f"c{at}" for at in range(len(names)))
        cursor.execute(query_around(statement.query, ", ".join(columns), len(names)), request.parameters)
    else:
        cursor.execute(statement, request.parameters)
    if "UNKNOWN" in types:
        # A dynamic PIVOT knows its columns only once it has run.
        names, types = zip(*((str(column[0]), str(column[1])) for column in cursor.description), strict=True)
    zoned = any(ZONED.search(kind) for at, kind in enumerate(types) if at not in casts)

    def fetch() -> list[tuple[Any, ...]]:
        rows = _frame_tuples(cursor) if zoned else cursor.fetchmany(BATCH)
        if not casts:
            return rows
        return [tuple(casts[at].value(cell) if at in casts else cell for at, cell in enumerate(row)) for row in rows]

    rows, cut = read_tuples(
        names,
        fetch,
        request,
        control,
        [_DTYPES.get(kind, DECIMAL if kind.startswith("DECIMAL") else None) for kind in types],
    )
    return EngineAnswer(columns=tuple(names), types=tuple(types), rows=rows, cut_by=cut)


# -- moments as text -------------------------------------------------------------------------------------------------


def _as_text(kind: str) -> _AsText | None:
    """Return how a column of a type is asked for, when it is not taken as it comes."""
    import duckdb

    if _MOMENT.fullmatch(kind):
        return _AsText("VARCHAR", from_text)
    if _NESTED.search(kind):
        # A type that only the database has stays as it is.
        with contextlib.suppress(duckdb.Error):
            return _inside(duckdb.sqltype(kind))
    return None


def _inside(kind: Any) -> _AsText | None:
    if str(kind) == "JSON":
        return _AsText("JSON", lambda text: text if text is None else document(text))
    if _MOMENT.fullmatch(str(kind)):
        return _AsText("VARCHAR", from_text)
    if kind.id == "map":
        return _map(kind)
    if kind.id not in {"array", "list", "struct", "tuple", "union"}:
        return None
    # Beside the types stand the length of an array and the tag of a union.
    parts = [(name, child) for name, child in kind.children if not isinstance(child, int)][kind.id == "union" :]
    parts_inside = [_inside(child) for _, child in parts]
    if not any(parts_inside):
        return None
    casts = [str(child) if part is None else part.type for (_, child), part in zip(parts, parts_inside, strict=True)]
    makers = [_same if part is None else part.value for part in parts_inside]
    if kind.id in {"array", "list"}:
        length = kind.children[1][1] if kind.id == "array" else ""
        return _AsText(f"{casts[0]}[{length}]", _maker(lambda cells: [makers[0](cell) for cell in cells]))
    names = [f"c{at}" if kind.id == "tuple" else name for at, (name, _) in enumerate(parts)]
    fields = ", ".join(f"{quote_identifier(name)} {cast}" for name, cast in zip(names, casts, strict=True))
    if kind.id == "union":
        # Which of its types a value has is not told, so what was a moment stays text.
        return _AsText(f"UNION({fields})", _same)
    makers_of = dict(zip(names, makers, strict=True))
    if kind.id == "tuple":
        return _AsText(f"STRUCT({fields})", _maker(lambda row: tuple(makers_of[name](row[name]) for name in names)))
    return _AsText(f"STRUCT({fields})", _maker(lambda row: {name: makers_of[name](cell) for name, cell in row.items()}))


def _map(kind: Any) -> _AsText:
    inner = [child for _, child in kind.children]
    parts_inside = [_inside(child) for child in inner]
    casts = [str(child) if part is None else part.type for child, part in zip(inner, parts_inside, strict=True)]
    key, item = (_same if part is None else part.value for part in parts_inside)

    def pairs(entries: Any) -> Pairs:
        listed = zip(entries["key"], entries["value"], strict=True) if inner[0].id in _NO_KEYS else entries.items()
        return Pairs((key(name), item(cell)) for name, cell in listed)

    return _AsText(f"MAP({', '.join(casts)})", _maker(pairs))


def _same(value: Any) -> Any:
    return value


def _maker(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else make(value)


# -- moments of what is not a query ----------------------------------------------------------------------------------


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
