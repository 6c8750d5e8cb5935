"""The matrix from the other side: values that come from frames and files, asked by SQL, equal to what DuckDB has.

A source that holds a type otherwise stands in a table with its sentence; an entry that nothing needs is wrong as well.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from nbtools import Workbench
from nbtools.sql import SqlSession
from tests.conformance.leaves import DURATIONS, LEAVES, NAN, NESTINGS, query, read_back, texts_of

pytestmark = pytest.mark.broad

pytest.importorskip("pyarrow")
pytest.importorskip("polars")

# What a source holds otherwise: its name, the leaf, and "bare" or "nested"; and why.
_INTERVALS = ("INTERVAL", "INTERVAL OF MONTHS")
OTHERWISE: dict[tuple[str, str, str], str] = {
    **{("polars", leaf, where): DURATIONS for leaf in _INTERVALS for where in ("bare", "nested")},
    **{("pandas", leaf, "bare"): DURATIONS for leaf in _INTERVALS},
    ("pandas", "DOUBLE", "bare"): NAN,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("sources")
    with contextlib.chdir(made):
        yield made


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[SqlSession]:
    # Pages that stay open keep the instance of all that follow.
    with SqlSession(allowed_paths=[folder]) as opened, opened.open_pages("(SELECT 1)"):
        yield opened


@pytest.mark.parametrize("nesting", [name for name in NESTINGS if name != "map"])
def test_a_frame_is_asked_for_each_value(session: SqlSession, nesting: str) -> None:
    result, expected = session.query(f"SELECT * EXCLUDE n FROM ({query(nesting)})"), texts_of(nesting)
    wrong: dict[tuple[str, str], Any] = {}
    for source in ("pandas", "polars", "arrow"):
        table = session.query("FROM f", frames={"f": getattr(result, f"to_{source}")()}).to_arrow()
        found = read_back(table, tuple(LEAVES), nesting)
        if source == "pandas" and nesting != "bare":  # which has what JSON stands for: values of several kinds, as text
            at = [*LEAVES].index("JSON")
            texts_of_values = [text and json.loads(text) for text in table.column(at).to_pylist()]
            found["JSON"] = expected["JSON"] if texts_of_values == [row[at] for row in result.to_rows()] else ["other"]
        wrong |= {(source, leaf): (found[leaf], texts) for leaf, texts in expected.items() if found[leaf] != texts}
    where = "bare" if nesting == "bare" else "nested"
    for name, leaf, at in OTHERWISE:
        if at == where and wrong.pop((name, leaf), None) is None:
            wrong[name, leaf] = "is kept, and stands in the table"
    assert not wrong


@pytest.mark.parametrize("source", ["pandas", "polars", "arrow"])
def test_a_map_of_a_frame_has_its_keys_and_values(session: SqlSession, source: str) -> None:
    """Pandas has no maps: a list of pairs is what Arrow makes of one there."""
    result = session.query("SELECT MAP {'k': 9007199254740993, 'l': NULL} AS m")
    value = session.query("FROM f", frames={"f": getattr(result, f"to_{source}")()}).to_rows()[0][0]
    pairs = value.items() if isinstance(value, dict) else [_pair(each) for each in value]
    assert [(key, None if each is None else int(each)) for key, each in pairs] == [("k", 9007199254740993), ("l", None)]


# polars has no zone of a quarter of an hour
@pytest.mark.parametrize(
    ("source", "zones"),
    [
        (source, zones)
        for source in ("pandas", "polars", "arrow")
        for zones in (("America/New_York",), ("UTC",), ("+02:00",), ("+05:45",), ("UTC", "Asia/Tokyo"))
        if (source, zones) != ("polars", ("+05:45",))
    ],
)
def test_moments_of_a_frame_are_those_of_its_time_zone_or_it_is_told(
    session: SqlSession, source: str, zones: tuple[str, ...]
) -> None:
    import polars as pl
    import pyarrow as pa

    moment = dt.datetime(2024, 7, 1, 2, tzinfo=dt.UTC)
    table = pa.table({f"t{at}": pa.array([moment], pa.timestamp("us", zone)) for at, zone in enumerate(zones)})
    frame = {"pandas": pa.Table.to_pandas, "polars": pl.from_arrow, "arrow": lambda table: table}[source](table)
    result = session.query("SELECT *, CAST(t0 AS VARCHAR) AS written FROM f", frames={"f": frame})
    *cells, written = result.to_rows()[0]
    assert {dt.datetime.fromisoformat(cell) for cell in cells} == {moment}
    own = [str(pa.array([moment], pa.timestamp("us", zone)).to_pandas()[0]) for zone in zones]
    is_told = any("in the time zone of the session" in str(note) for note in result.notes)
    assert is_told is (len(zones) > 1 or zones == ("+05:45",))
    if not is_told:
        assert cells == own
        assert own[0].startswith(written)


def _pair(value: Any) -> tuple[Any, Any]:
    key, each = value.values() if isinstance(value, dict) else value
    return key, each


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_file_is_asked_and_shown_as_duckdb_reads_it(session: SqlSession, nesting: str, form: str) -> None:
    # Parquet has no types for these; a text of JSON that looks like a number stays one with types decided by the rest.
    lacking = {"INTERVAL", "INTERVAL OF MONTHS", "BIT", "HUGEINT"} if form == "parquet" else set()
    columns = ", ".join(f"c{at}" for at, leaf in enumerate(LEAVES) if leaf not in lacking)
    duckdb.sql(f"COPY (SELECT {columns} FROM ({query(nesting)})) TO 'x.{form}'")
    options = {"csv": "all_varchar = true, allow_quoted_nulls = false", "json": "maximum_depth = 1"}.get(form, "")
    call = f"read_{form}('x.{form}'{', ' * bool(options)}{options})"
    expected = duckdb.sql(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {call}").fetchall()
    found = session.query(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {call}").to_rows()
    assert list(map(tuple, found)) == expected
    with session.open_pages(call) as pages:
        pages.finish()
        shown = pages.cells(0, 3, range(len(expected[0])), None)
    assert [tuple(row) for row in shown] == expected


def test_bare_values_of_a_csv_file_become_what_they_are_or_stay_text(session: SqlSession) -> None:
    duckdb.sql(f"COPY (SELECT * EXCLUDE n FROM ({query('bare')})) TO 'bare.csv'")
    result = session.query("FROM 'bare.csv'")
    found = read_back(result.to_arrow(), tuple(LEAVES), "bare")
    # An empty text is a missing one there, as DuckDB reads it; words among numbers and truth values are missing ones.
    expected = texts_of("bare") | {
        **{leaf: [texts[0], None, texts[2] or None] for leaf, texts in texts_of("bare").items() if texts[2] == ""},
        "DOUBLE": ["0.30000000000000004", None, None],
        "VARCHAR AS WORDS": ["true", None, None],
    }
    assert {leaf: (found[leaf], texts) for leaf, texts in expected.items() if found[leaf] != texts} == {}
    assert "nan" in result.footer()


@pytest.mark.parametrize("value", [2**53 + 1, -(2**63), 2**63 - 1, 0.1, 1e300, "007", "true", "", b"\x00\xff", None])
def test_sqlite_hands_on_each_value(session: SqlSession, folder: Path, value: Any) -> None:
    with contextlib.closing(sqlite3.connect(folder / "s.db")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (v)")
        connection.execute("DELETE FROM t")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
    result = session.query("SELECT v FROM t", connection=f"sqlite:///{folder / 's.db'}")
    (back,) = result.to_pandas()["v"].tolist() if value is not None else (None,)
    assert (back, type(back)) == (value, type(value))
    shown = f"0x{value.hex()}" if isinstance(value, bytes) else value
    assert result.to_rows() == [[shown]]


_NUMBERS = [2**53 - 1, 2**53 + 1, -(2**63), 2**64, 12345678901234567890123, 0.1, 1e-300, True, None, "9007199254740993"]


@pytest.mark.processes
def test_a_script_a_tool_and_memory_hand_on_each_value_of_json(folder: Path) -> None:
    value = {"flat": _NUMBERS, "deep": [{"x": [{"y": each}]} for each in _NUMBERS]}
    with Workbench(home=folder / "home", memory_url=":memory:", allowed_paths=[folder]) as workbench:
        code = "[x, [type(each).__name__ for each in x['flat']]]"
        done = workbench.kernels.run(code, variables={"x": value}, wants_value=True)
        assert done.value == [value, [type(each).__name__ for each in _NUMBERS]]
        workbench.memory.write("k", value)
        assert workbench.memory["k"] == value
        assert workbench.call("memory_retrieve", {"key": "k"}, caller="model").data == value
        assert workbench.call("json_parse", {"json_string": "[12345678901234567890123]"}).data == {
            "parsed": [12345678901234567890123]
        }
