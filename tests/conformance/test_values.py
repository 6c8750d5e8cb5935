"""The matrix of values: each type, nested and with gaps, through every face, equal to what DuckDB has, or in the table.

A value is what DuckDB writes for it: the text of a column is compared with the text of what a face handed on, read back
by DuckDB. All columns of a nesting go through a face at once, so that the whole takes seconds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from nbtools.errors import InvalidArguments
from nbtools.memory.tables import TableFolder
from nbtools.sql import SqlSession
from nbtools.sql.pages.conditions import condition_of
from nbtools.sql.pages.pager import Arrangement

polars = pytest.importorskip("polars")
pytest.importorskip("pyarrow")

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


def _type(leaf: str) -> str:
    return re.sub(r" (?:AS|OF) \w+$", "", leaf)


def _query(nesting: str, leaves: tuple[str, ...] = tuple(LEAVES)) -> str:
    """Return a query with a column for each leaf: a row of values, one of nothing, one of the values turned round."""
    rows = []
    for turn in (0, None, 1):
        cells = []
        for at, leaf in enumerate(leaves):
            kind, texts = _type(leaf), ["'" + text.replace("'", "''") + "'" for text in LEAVES[leaf]]
            first, second = (f"CAST({text} AS {kind})" for text in (texts if turn != 1 else texts[::-1]))
            value = NESTINGS[nesting](first, second)
            cells.append(f"{'NULL' if turn is None else value} AS c{at}")
        rows.append(f"SELECT {0 if turn is None else turn + 1} AS n, {', '.join(cells)}")
    # The row of nothing stands second, where its columns have their types already.
    return f"FROM ({rows[0]} UNION ALL {rows[1]} UNION ALL {rows[2]}) ORDER BY n = 2, n = 0"


@functools.cache
def _texts(nesting: str, leaves: tuple[str, ...] = tuple(LEAVES)) -> dict[str, list[str | None]]:
    """Return the texts that DuckDB itself writes for the columns of a nesting."""
    columns = ", ".join(f"CAST(c{at} AS VARCHAR)" for at in range(len(leaves)))
    rows = duckdb.sql(f"SELECT {columns} FROM ({_query(nesting, leaves)})").fetchall()
    return {leaf: [row[at] for row in rows] for at, leaf in enumerate(leaves)}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    with SqlSession(allowed_paths=[tmp_path_factory.mktemp("values")]) as opened:
        yield opened


def _read_back(source: Any, leaves: tuple[str, ...], nesting: str) -> dict[str, list[str | None]]:
    """Return the texts of columns that some library holds, as values of their types again."""
    types = [row[1] for row in duckdb.sql(f"DESCRIBE {_query(nesting, leaves)}").fetchall()[1:]]
    with duckdb.connect() as connection:
        connection.register("source", source)
        found = {}
        for at, (leaf, kind) in enumerate(zip(leaves, types, strict=True)):
            try:
                rows = connection.sql(f"SELECT CAST(CAST(c{at} AS {kind}) AS VARCHAR) FROM source").fetchall()
            except duckdb.Error as exc:
                rows = [(f"{type(exc).__name__}: {str(exc)[:90]}",)]
            found[leaf] = [row[0] for row in rows]
    return found


# What a face does not keep, and says so: its name, the leaf, the nesting or None for all; and the sentence.
NOT_KEPT: dict[tuple[str, str, str | None], str] = {
    ("polars", "INTERVAL", None): "polars has durations alone: a day is 24 hours, a month 30 days",
    ("polars", "INTERVAL OF MONTHS", None): "polars has durations alone: a day is 24 hours, a month 30 days",
    ("frame", "DOUBLE", "bare"): "among numbers pandas has one word for what is missing and what is not a number",
}


def _differences(
    face: str, nesting: str, found: dict[str, list[Any]], expected: dict[str, list[Any]]
) -> dict[str, tuple[Any, Any]]:
    """Return what a face changed, but for what the table tells; an entry that is kept after all is wrong too."""
    wrong = {leaf: (found[leaf], texts) for leaf, texts in expected.items() if found[leaf] != texts}
    for name, leaf, where in NOT_KEPT:
        if (name, where) in {(face, nesting), (face, None)} and wrong.pop(leaf, None) is None:
            wrong[leaf] = ("is kept", "stands in the table")
    return wrong


@pytest.mark.parametrize("nesting", NESTINGS)
def test_arrow_and_polars_hold_each_value(session: SqlSession, nesting: str) -> None:
    result = session.query(_query(nesting))
    found = _read_back(result.to_arrow(), tuple(LEAVES), nesting)
    assert not _differences("arrow", nesting, found, _texts(nesting))
    found = _read_back(result.to_polars().to_arrow(), tuple(LEAVES), nesting)
    assert not _differences("polars", nesting, found, _texts(nesting))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_frame_holds_each_value(session: SqlSession, nesting: str) -> None:
    """Arrow's values, which the test above compares with DuckDB's, are the measure."""
    result = session.query(_query(nesting))
    frame, table = result.to_pandas(), result.to_arrow()
    found, expected = {}, {}
    for at, leaf in enumerate(LEAVES):
        column = frame[f"c{at}"]
        cells = [None if value is None or (value != value) is True else value for value in column.tolist()]  # noqa: PLR0124
        found[leaf] = [str(_plain(value)) for value in cells]
        expected[leaf] = [str(_plain(value)) for value in table.column(f"c{at}").to_pylist()]
    assert not _differences("frame", nesting, found, expected)


def _plain(value: Any) -> Any:
    """Return a value with Python's own types; a whole number is one also where pandas holds a float."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "months"):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value)
    if isinstance(value, decimal.Decimal):
        # As floats have them, where they show all digits.
        return f"{value.normalize():f}"
    if hasattr(value, "months"):
        return pd.Timedelta(days=value.months * 30 + value.days, nanoseconds=value.nanoseconds).isoformat()
    if isinstance(value, dt.timedelta):
        return pd.Timedelta(value).isoformat()
    return pd.Timestamp(value).isoformat() if isinstance(value, dt.date) else value


@pytest.mark.processes
@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_isolated_worker_hands_on_each_value(session: SqlSession, nesting: str) -> None:
    mine, theirs = (session.query(_query(nesting), isolated=isolated).to_arrow() for isolated in (False, True))
    assert mine.schema == theirs.schema
    assert [repr(row) for row in mine.to_pylist()] == [repr(row) for row in theirs.to_pylist()]


@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_explorer_shows_each_value_and_finds_it_by_what_is_shown(session: SqlSession, nesting: str) -> None:
    with session.open_pages(f"({_query(nesting)})") as pages:
        columns = range(1, 1 + len(LEAVES))
        head = pages.cells(0, 3, columns, None)
        pages.finish()
        whole = pages.cells(0, 3, columns, None)
        lost = []
        for at, leaf in enumerate(LEAVES):
            name, kind = pages.source.columns[1 + at], pages.source.types[1 + at]
            condition = condition_of(name, kind, {"op": "=", "value": whole[0][at]}, pages.zone(1 + at))
            pages.arrange(Arrangement(conditions=(condition,)))
            lost += [leaf] if pages.row_count != 1 else []
            pages.arrange(Arrangement(conditions=(condition_of(name, kind, {"op": "is missing"}),)))
            lost += [f"missing {leaf}"] if pages.row_count != 1 else []
    assert head == whole
    assert lost == []
    # Bare truth values and NaN look as they do in Python.
    words = {"True": "true", "False": "false", "NaN": "nan"} if nesting == "bare" else {}
    python = [at for at, leaf in enumerate(LEAVES) if leaf in {"BOOLEAN", "DOUBLE", "FLOAT"}]
    for row in whole:
        row[:] = [words.get(cell, cell) if at in python else cell for at, cell in enumerate(row)]
    found = {leaf: [row[at] for row in whole] for at, leaf in enumerate(LEAVES)}
    assert not _differences("explorer", nesting, found, _texts(nesting))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_parquet_file_holds_each_value(session: SqlSession, tmp_path: Path, nesting: str) -> None:
    path = tmp_path / "x.parquet"
    with path.open("wb") as file:
        session.export(_query(nesting), file, form="parquet")
    found = _read_back(duckdb.sql(f"FROM '{path}'").to_arrow_table(), tuple(LEAVES), nesting)
    assert not _differences("parquet", nesting, found, _texts(nesting))


def test_a_csv_file_holds_each_bare_value(session: SqlSession, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        session.export(_query("bare"), file, form="csv")
    table = duckdb.sql(f"FROM read_csv('{path}', all_varchar = true, allow_quoted_nulls = false)").to_arrow_table()
    assert not _differences("csv", "bare", _read_back(table, tuple(LEAVES), "bare"), _texts("bare"))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_memory_keeps_each_column_or_refuses_it(session: SqlSession, tmp_path: Path, nesting: str) -> None:
    tables = TableFolder(tmp_path)
    frame = session.query(_query(nesting)).to_pandas()
    kept = []
    for at, leaf in enumerate(LEAVES):
        part = frame[[f"c{at}"]]
        with contextlib.suppress(InvalidArguments):
            back = tables.unpack(tables.pack(part, leaf))
            kept += [leaf]
            assert str(_plain(back.iloc[:, 0].tolist())) == str(_plain(part.iloc[:, 0].tolist())), leaf
    # A map is a list of pairs in pandas, and Arrow has no type for a pair of a text and another value.
    assert len(kept) >= (9 if nesting == "map" else len(LEAVES) - 6)
