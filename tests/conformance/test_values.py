"""The matrix of values: each type, nested and with gaps, through every face, equal to what DuckDB has, or in the table.

A value is what DuckDB writes for it: the text of a column is compared with the text of what a face handed on, read back
by DuckDB. All columns of a nesting go through a face at once, so that the whole takes seconds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import json
from collections.abc import Iterator
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
from nbtools.sql.pages.pager import Arrangement, Pager
from nbtools.sql.results.engine_copy import type_from_text
from nbtools.sql.results.texts import as_read, as_whole
from tests.conformance.leaves import DURATIONS, LEAVES, NAN, NESTINGS, query, read_back, texts_of

pytestmark = pytest.mark.broad

polars = pytest.importorskip("polars")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    # Pages that stay open keep the instance of all that follow.
    with SqlSession(allowed_paths=[tmp_path_factory.mktemp("values")]) as opened, opened.open_pages("(SELECT 1)"):
        yield opened


# What a face does not keep, and says so: its name, the leaf, the nesting or None for all; and the sentence.
NOT_KEPT: dict[tuple[str, str, str | None], str] = {
    ("polars", "INTERVAL", None): DURATIONS,
    ("polars", "INTERVAL OF MONTHS", None): DURATIONS,
    ("frame", "DOUBLE", "bare"): NAN,
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
    result = session.query(query(nesting))
    found = read_back(result.to_arrow(), tuple(LEAVES), nesting)
    assert not _differences("arrow", nesting, found, texts_of(nesting))
    found = read_back(result.to_polars().to_arrow(), tuple(LEAVES), nesting)
    assert not _differences("polars", nesting, found, texts_of(nesting))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_frame_holds_each_value(session: SqlSession, nesting: str) -> None:
    """Arrow's values, which the test above compares with DuckDB's, are the measure."""
    result = session.query(query(nesting))
    frame, table = result.to_pandas(), result.to_arrow()
    found, expected = {}, {}
    for at, leaf in enumerate(LEAVES):
        column = frame[f"c{at}"]
        cells = [None if value is None or (value != value) is True else value for value in column.tolist()]  # noqa: PLR0124
        found[leaf] = [str(_plain(value)) for value in cells]
        expected[leaf] = [str(_plain(value)) for value in table.column(f"c{at}").to_pylist()]
    if nesting != "bare":  # inside of others JSON is what it stands for
        expected["JSON"] = [str(_plain(value)) for value in _in_python(nesting)]
    assert not _differences("frame", nesting, found, expected)


def _documents(nesting: str) -> list[Any]:
    texts = [row[0] for row in duckdb.sql(f"SELECT to_json(c0) FROM ({query(nesting, ('JSON',))})").fetchall()]
    return [None if text is None else json.loads(text) for text in texts]


def _in_python(nesting: str) -> list[Any]:
    """Return the documents as pandas and Python have them: a map is pairs there."""
    return [[*value.items()] if nesting == "map" and value else value for value in _documents(nesting)]


@pytest.mark.parametrize("nesting", [name for name in NESTINGS if name != "bare"])
@pytest.mark.parametrize("other", ["1", "'01'::BIT"])
def test_json_inside_of_others_is_what_it_stands_for(session: SqlSession, nesting: str, other: str) -> None:
    result = session.query(f"SELECT c0, {other} AS b FROM ({query(nesting, ('JSON',))})")
    expected = json.dumps(_documents(nesting))
    assert json.dumps([row[0] for row in result.to_rows()]) == expected
    assert json.dumps([row[0] for row in result.rows.to_tuples()]) == json.dumps(_in_python(nesting))
    with session.open_pages(f"({query(nesting, ('JSON',))})") as pages:
        pages.finish()
        kind, texts = pages.source.types[1], [row[0] for row in pages.cells(0, 3, [1])]
        read = [cell if cell is None or isinstance(cell, str) else cell[0] for cell in as_read(texts, kind)]
        assert json.dumps([cell and json.loads(cell) for cell in read]) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ("0.12345678901234567890123", "0.12345678901234567890123"),
        ("1e999999999", "1e999999999"),
        ("1e-999999999", "1e-999999999"),
        ("2.5", 2.5),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_a_document_that_python_would_change_is_its_text(session: SqlSession, text: str, value: Any) -> None:
    assert session.query(f"SELECT ['{text}'::JSON] AS l").to_rows() == [[[value]]]


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
    mine, theirs = (session.query(query(nesting), isolated=isolated).to_arrow() for isolated in (False, True))
    assert mine.schema == theirs.schema
    assert [repr(row) for row in mine.to_pylist()] == [repr(row) for row in theirs.to_pylist()]


@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_explorer_shows_each_value_and_finds_it_by_what_is_shown(session: SqlSession, nesting: str) -> None:
    with session.open_pages(f"({query(nesting)})") as pages:
        columns = range(1, 1 + len(LEAVES))
        head = pages.cells(0, 3, columns, None)
        pages.finish()
        whole = pages.cells(0, 3, columns, None)
        lost: list[str] = []
        parts: dict[str, list[str]] = {"=": [], "is missing": []}
        for at in range(len(LEAVES)):
            name, kind = pages.source.columns[1 + at], pages.source.types[1 + at]
            for op, conditions in parts.items():
                # What a copy has texts of is found by DuckDB's own text alone.
                is_text = type_from_text(kind) is None
                text = whole[0][at] if is_text else as_whole([whole[0][at]], kind)[0]
                asked = {"op": op, "value": text} if op == "=" else {"op": op}
                conditions.append(condition_of(name, kind, asked, pages.zone(1 + at)))
        # What all of them let through, and what any of them does, is the same row: each lets through that row alone.
        for conditions in parts.values():
            for word in ("AND", "OR"):
                pages.arrange(Arrangement(conditions=(f" {word} ".join(f"({each})" for each in conditions),)))
                if pages.row_count != 1:
                    lost += [each for each in conditions if _count(pages, each) != 1]
    assert head == whole
    assert lost == []
    found = {leaf: [row[at] for row in whole] for at, leaf in enumerate(LEAVES)}
    assert not _differences("explorer", nesting, found, texts_of(nesting))


def _count(pages: Pager, condition: str) -> int:
    pages.arrange(Arrangement(conditions=(condition,)))
    return pages.row_count


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_parquet_file_holds_each_value(session: SqlSession, tmp_path: Path, nesting: str) -> None:
    path = tmp_path / "x.parquet"
    with path.open("wb") as file:
        session.export(query(nesting), file, form="parquet")
    found = read_back(duckdb.sql(f"FROM '{path}'").to_arrow_table(), tuple(LEAVES), nesting)
    assert not _differences("parquet", nesting, found, texts_of(nesting))


def test_a_csv_file_holds_each_bare_value(session: SqlSession, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        session.export(query("bare"), file, form="csv")
    table = duckdb.sql(f"FROM read_csv('{path}', all_varchar = true, allow_quoted_nulls = false)").to_arrow_table()
    assert not _differences("csv", "bare", read_back(table, tuple(LEAVES), "bare"), texts_of("bare"))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_memory_keeps_each_column_or_refuses_it(session: SqlSession, tmp_path: Path, nesting: str) -> None:
    tables = TableFolder(tmp_path)
    frame = session.query(query(nesting)).to_pandas()
    kept = []
    for at, leaf in enumerate(LEAVES):
        part = frame[[f"c{at}"]]
        with contextlib.suppress(InvalidArguments):
            back = tables.unpack(tables.pack(part, leaf))
            kept += [leaf]
            assert str(_plain(back.iloc[:, 0].tolist())) == str(_plain(part.iloc[:, 0].tolist())), leaf
    # A map is a list of pairs in pandas, and Arrow has no type for a pair of a text and another value.
    assert len(kept) >= (9 if nesting == "map" else len(LEAVES) - 6)
