"""Cells as people read them, and the names of types."""

from __future__ import annotations

import contextlib

import duckdb
import pandas as pd
import pytest

from nbtools.sql import SqlSession
from nbtools.sql.results.moments import iso_text
from nbtools.sql.results.texts import as_read, as_whole, type_name
from nbtools.widgets.table import TableView


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("datetime64[ns, UTC]", "timestamp with time zone"),
        ("Datetime(time_unit='us', time_zone=None)", "timestamp"),
        ("timestamp[us, tz=UTC]", "timestamp with time zone"),
        ("Int64", "bigint"),
        ("int64[pyarrow]", "bigint"),
        ("String", "varchar"),
        ("STRUCT(a INTEGER)", "struct(a integer)"),
    ],
)
def test_a_type_has_one_name(name: str, shown: str) -> None:
    assert type_name(name) == shown


def test_a_year_before_christ_is_counted_from_a_year_zero() -> None:
    """As ISO 8601 counts them: the year 1 BC is 0000."""
    texts = ("0001-12-31 (BC)", "0044-03-15 BC", "0002-01-01 12:00:00 (BC)", "2024-01-02")
    assert [*map(iso_text, texts)] == ["0000-12-31", "-0043-03-15", "-0001-01-01 12:00:00", "2024-01-02"]


def test_floats_of_a_column_have_as_many_decimals_and_their_whole_text_beside_them() -> None:
    assert as_read(["0.6231884057971014", "0.625", "1e+20", "nan", None, "-3.0"], "DOUBLE") == [
        *(("0.623188405797101", "0.6231884057971014"), "0.625", "1e+20", "nan", None, "-3.0"),
    ]
    assert as_read(["0.62", "-3.0", "1e+20"], "float64[pyarrow]") == ["0.62", "-3.00", "1e+20"]
    assert as_read(["12345678901234567890", "1"], "HUGEINT") == ["12345678901234567890", "1"]
    assert as_read(["[0.30000000000000004]"], "DOUBLE[]") == ["[0.30000000000000004]"]


def test_dates_have_no_midnight_and_moments_keep_theirs() -> None:
    assert as_read(["2025-10-18 00:00:00", None], "TIMESTAMP") == ["2025-10-18", None]
    mixed = ["2025-10-18 00:00:00", "2025-10-18 07:00:00"]
    assert as_read(mixed, "TIMESTAMP") == mixed


def test_what_is_saved_of_a_table_reads_like_its_widget() -> None:
    frame = pd.DataFrame({"day": pd.to_datetime(["2025-10-18"]), "chf": [5614.880000000001]})
    with contextlib.closing(TableView.from_frame(frame)) as shown:
        assert "2025-10-18  5614.88" in shown.plain_text()
        page = shown.plain_html()
        assert "00:00:00" not in page
        assert "text-align:right" in page.partition(">5614.88<")[0].rpartition("<td")[2]
        assert [column["type"] for column in shown.state["columns"]] == ["timestamp", "double"]


def test_the_pragmas_of_duckdb_that_tell_are_answered() -> None:
    with SqlSession(frames={"df": pd.DataFrame({"a": [1]})}) as session:
        assert session.query("PRAGMA table_info('df')").to_rows()[0][:2] == ["a", "BIGINT"]
        assert session.query("PRAGMA show_tables").to_rows() == []
        assert session.query("CALL pragma_version()").to_rows()[0][0].startswith("v")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (
            "{'a': 5, 'b': 'x y', 'c': 'it''s', 'd': null, 'e': 'a,b'}",
            '{"a": 5, "b": "x y", "c": "it\'s", "d": null, "e": "a,b"}',
        ),
        ("map{1: 'x', 2: 'y=z'}", '{"1": "x", "2": "y=z"}'),
        ("[['a', 'b'], [], null]", '[["a", "b"], [], null]'),
        ("[{'t': timestamp '2024-01-02 10:00:00', 'u': 1.50}]", '[{"t": "2024-01-02 10:00:00", "u": 1.50}]'),
        ("[true, false]", "[true, false]"),
        ("'{\"a\": 1}'::json", '{"a": 1}'),
    ],
)
def test_nested_values_are_read_as_json(value: str, form: str) -> None:
    ((text, kind),) = duckdb.sql(f"SELECT CAST(v AS VARCHAR), typeof(v) FROM (SELECT {value} AS v)").fetchall()
    assert as_whole([text], kind) == as_read([text], kind) == [form]
    for end in (end for end in range(2, len(text)) if text[end - 1] not in "NUL"):
        (cut,) = as_read([f"{text[:end]}…"], kind)
        assert f"{form}…".startswith(str(cut)[:-1]), "what was cut is the beginning"
