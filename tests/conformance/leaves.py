"""Values of all types, bare and nested, what DuckDB itself writes for them, and what tells a changed one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import duckdb

# Types, and texts of two values each; the second kind of row is a missing one.
LEAVES: dict[str, tuple[str, str]] = {
    "TINYINT": ("-128", "127"),
    "UTINYINT": ("0", "255"),
    "SMALLINT": ("-32768", "5"),
    "INTEGER": ("-2147483648", "5"),
    "UINTEGER": ("4294967295", "5"),
    "BIGINT": ("9007199254740993", "-9223372036854775808"),
    "UBIGINT": ("18446744073709551615", "5"),
    "HUGEINT": ("12345678901234567890123", "5"),
    "DECIMAL(4,2)": ("1.10", "-0.05"),
    "DECIMAL(38,10)": ("1234567890123456789012345678.0000000001", "0"),
    "FLOAT": ("0.1", "-inf"),
    "DOUBLE": ("0.30000000000000004", "nan"),
    "VARCHAR": ("a, \"b\" 'c' {d} \\ [e]\nf", ""),
    "VARCHAR AS WORDS": ("true", "nan"),
    "VARCHAR AS NUMBERS": ("007", "1e5"),
    "VARCHAR AS GAPS": ("N/A", "NULL"),
    "VARCHAR AS DATES": ("2024-01-01", "10:30"),
    "BLOB": ("\\x00\\xFFa", ""),
    "DATE": ("2024-02-29", "0001-01-01"),
    "TIME": ("10:30:00.000001", "23:59:59"),
    "TIMESTAMP": ("2024-02-29 10:30:00.123456", "1969-12-31 23:59:59"),
    "TIMESTAMP_S": ("2024-02-29 10:30:00", "1969-12-31 23:59:59"),
    "TIMESTAMP_MS": ("2024-02-29 10:30:00.123", "1969-12-31 23:59:59"),
    "TIMESTAMP_NS": ("2024-02-29 10:30:00.123456789", "1969-12-31 23:59:59"),
    "TIME WITH TIME ZONE": ("10:30:00+02", "23:59:59-05"),
    "TIMESTAMP WITH TIME ZONE": ("2024-02-29 10:30:00+02", "1969-12-31 23:59:59+00"),
    "INTERVAL": ("3 days 00:00:03.000004", "-20:00:00"),
    "INTERVAL OF MONTHS": ("14 months 3 days", "-5 months"),
    "UUID": ("8e0e0d31-7a4a-4b5a-8b29-2f8f8e2f6a11", "00000000-0000-0000-0000-000000000000"),
    "BIT": ("0101", "1"),
    "ENUM('x', 'y z')": ("x", "y z"),
    "BOOLEAN": ("true", "false"),
    "JSON": ('{"a":[1,"x"]}', "null"),
    "GEOMETRY": ("POINT (1 2)", "LINESTRING (0 0, 1 1)"),
}
NESTINGS: dict[str, Callable[[str, str], str]] = {
    "bare": lambda a, _: a,
    "list": lambda a, b: f"[{a}, {b}]",
    "list with a gap": lambda a, _: f"[{a}, NULL]",
    "struct": lambda a, b: f"{{'p': {a}, 'q': {b}}}",
    "struct with a gap": lambda a, _: f"{{'p': {a}, 'q': NULL}}",
    "map": lambda a, b: f"MAP {{'k': {a}, 'l': {b}}}",
    "list of structs": lambda a, _: f"[{{'p': {a}}}, {{'p': NULL}}, NULL]",
    "struct of lists": lambda a, b: f"{{'p': [{a}, NULL], 'q': [{b}]}}",
    "three deep": lambda a, b: f"[{{'p': [{a}]}}, {{'p': [{b}, NULL]}}]",
}
# Why several faces have other values than DuckDB.
DURATIONS = "pandas and polars have no intervals, only durations: a month becomes 30 days, a day 24 hours"
NAN = "pandas writes NaN both for a missing number and for a result that is not a number"
WKB = "outside of DuckDB a geometry is the bytes of its standard form (WKB), not the text that DuckDB shows"
DOCUMENT = "a JSON file has a document as a part of itself, not as a text; its null is read as a missing value"


def type_of(leaf: str) -> str:
    return re.sub(r" (?:AS|OF) \w+$", "", leaf)


def query(
    nesting: str,
    leaves: tuple[str, ...] = tuple(LEAVES),
    type_name: Callable[[str], str] = type_of,
    list_word: str = "",
) -> str:
    """Return a query with a column for each leaf: a row of values, one of nothing, one of the values turned round."""
    rows = []
    for turn in (0, None, 1):
        cells = []
        for at, leaf in enumerate(leaves):
            kind, texts = type_name(leaf), ["'" + text.replace("'", "''") + "'" for text in LEAVES[leaf]]
            first, second = (f"CAST({text} AS {kind})" for text in (texts if turn != 1 else texts[::-1]))
            value = re.sub(r"^\[", f"{list_word}[", NESTINGS[nesting](first, second))
            cells.append(f"{'NULL' if turn is None else value} AS c{at}")
        rows.append(f"SELECT {0 if turn is None else turn + 1} AS n, {', '.join(cells)}")
    # The row of nothing stands second, where its columns have their types already.
    return f"SELECT * FROM ({rows[0]} UNION ALL {rows[1]} UNION ALL {rows[2]}) AS r ORDER BY n = 2, n = 0"


@functools.cache
def texts_of(nesting: str, leaves: tuple[str, ...] = tuple(LEAVES)) -> dict[str, list[str | None]]:
    """Return the texts that DuckDB itself writes for the columns of a nesting."""
    columns = ", ".join(f"CAST(c{at} AS VARCHAR)" for at in range(len(leaves)))
    rows = duckdb.sql(f"SELECT {columns} FROM ({query(nesting, leaves)})").fetchall()
    return {leaf: [row[at] for row in rows] for at, leaf in enumerate(leaves)}


@functools.cache
def _types_of(nesting: str, leaves: tuple[str, ...]) -> list[str]:
    return [row[1] for row in duckdb.sql(f"DESCRIBE {query(nesting, leaves)}").fetchall()[1:]]


def read_back(source: Any, leaves: tuple[str, ...], nesting: str) -> dict[str, list[str | None]]:
    """Return the texts of columns that some library holds, as values of their types again."""
    kinds = enumerate(zip(leaves, _types_of(nesting, leaves), strict=True))
    with duckdb.cursor() as connection:  # to open another one takes longer than to read
        connection.register("source", source)
        return _texts(connection, {leaf: f"CAST(CAST(c{at} AS {kind}) AS VARCHAR)" for at, (leaf, kind) in kinds})


def _texts(connection: duckdb.DuckDBPyConnection, columns: dict[str, str]) -> dict[str, list[str | None]]:
    try:
        rows = connection.sql(f"SELECT {', '.join(columns.values())} FROM source").fetchall()
    except duckdb.Error as exc:
        if len(columns) == 1:
            return {leaf: [f"{type(exc).__name__}: {str(exc)[:90]}"] for leaf in columns}
        # One of them cannot be read: which one, each half tells.
        pairs, half = list(columns.items()), len(columns) // 2
        return _texts(connection, dict(pairs[:half])) | _texts(connection, dict(pairs[half:]))
    return {leaf: [row[at] for row in rows] for at, leaf in enumerate(columns)}
