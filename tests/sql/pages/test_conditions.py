from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.pages.conditions import condition_of, moment
from nbtools.sql.pages.opening import open_frame
from nbtools.sql.pages.pager import Arrangement
from nbtools.sql.results.texts import as_whole
from nbtools.sql.session import SqlSession

pytestmark = pytest.mark.broad

KATHMANDU = zoneinfo.ZoneInfo("Asia/Kathmandu")
MOMENTS = [dt.datetime(2020, 7, 1, hour, tzinfo=KATHMANDU) for hour in range(10)]


@pytest.mark.parametrize(
    ("type_name", "given", "condition"),
    [
        ("BIGINT", {"op": "=", "value": " 1e3 "}, '"a""b" = 1e3'),
        ("BIGINT", {"op": ">", "value": "1,234.5"}, '"a""b" > 1234.5'),
        ("str", {"op": "≠", "value": "it's"}, "\"a\"\"b\" <> 'it''s'"),
        ("UUID", {"op": "=", "value": "x"}, 'CAST("a""b" AS VARCHAR) = \'x\''),
        ("VARCHAR", {"op": "=", "value": "true"}, '"a""b" = \'true\''),
        ("BOOLEAN", {"op": "=", "value": " True"}, '"a""b" = true'),
        ("BOOLEAN", {"op": "=", "value": "yes"}, 'CAST("a""b" AS VARCHAR) = \'yes\''),
        ("str", {"op": "starts with", "value": "It"}, 'starts_with(lower("a""b"), \'it\')'),
        ("str", {"op": "in", "values": ["x"]}, '"a""b" = \'x\''),
        ("BIGINT", {"op": "in", "values": ["1", "2", None]}, '("a""b" IN (1, 2) OR "a""b" IS NULL)'),
        ("BIGINT", {"op": "in", "values": [None]}, '"a""b" IS NULL'),
        ("DATE", {"op": "<", "value": "2020-01-01"}, '"a""b" < \'2020-01-01\''),
        ("VARCHAR", {"op": "is missing"}, '"a""b" IS NULL'),
        ("DATE", {"op": "between", "value": "2020", "to": "2021"}, '"a""b" >= \'2020\' AND "a""b" <= \'2021\''),
        ("DOUBLE", {"op": "between", "low": 1.0, "high": 2.5, "last": True}, '"a""b" >= 1 AND "a""b" <= 2.5'),
    ],
)
def test_a_comparison_becomes_sql_with_quoted_names_and_values(type_name: str, given: Any, condition: str) -> None:
    assert condition_of('a"b', type_name, given) == condition


def test_a_value_that_would_be_sql_is_no_number() -> None:
    with pytest.raises(InvalidArguments):
        condition_of("a", "BIGINT", {"op": "=", "value": "1 OR 1=1"})


def _frames() -> list[Any]:
    fixed = pd.Series(MOMENTS).dt.tz_convert(dt.timezone(dt.timedelta(minutes=345)))
    return [
        pd.DataFrame({"t": pd.to_datetime(MOMENTS)}),
        pd.DataFrame({"t": fixed}),
        pl.DataFrame({"t": MOMENTS}, schema={"t": pl.Datetime("us", "Asia/Kathmandu")}),
        pa.table({"t": pa.array(MOMENTS, pa.timestamp("us", "Asia/Kathmandu"))}),
        pa.table({"t": pa.array(MOMENTS, pa.timestamp("us", "+05:45"))}),
    ]


@pytest.mark.parametrize("frame", _frames(), ids=["pandas", "offset", "polars", "arrow", "arrow-offset"])
def test_a_moment_typed_without_a_zone_is_one_of_the_zone_that_is_shown(frame: Any) -> None:
    with open_frame(frame) as pager:
        assert pager.cells(3, 4, [0])[0][0].startswith("2020-07-01 03:00:00+05:45")
        for typed, kept in [
            ("2020-07-01 03:00", 7),
            ("2020-07-01T03:00:00", 7),
            ("2020-07-01", 10),
            ("2020-06-30 22:15:00+01", 7),
            ("2020-06-30 21:15 UTC", 7),
            ("2020-06-30 21:15:00Z", 7),
        ]:
            condition = condition_of("t", pager.source.types[0], {"op": "≥", "value": typed}, pager.zone(0))
            pager.arrange(Arrangement(conditions=(condition,)))
            assert pager.row_count == kept, (typed, condition)


@pytest.mark.parametrize("frame", _frames(), ids=["pandas", "offset", "polars", "arrow", "arrow-offset"])
def test_a_histogram_of_moments_is_in_their_zone_and_its_ranges_hold_what_they_count(frame: Any) -> None:
    with open_frame(frame) as pager:
        facts = pager.profile(0)
        assert (facts.least, facts.greatest) == ("2020-07-01", "2020-07-01 09:00:00+05:45")
        for low, high, count, label in facts.bins:
            assert label.endswith("+05:45") or label == "2020-07-01"
            given = {"op": "between", "low": low, "high": high, "last": high == facts.bins[-1][1]}
            condition = condition_of("t", pager.source.types[0], given, pager.zone(0))
            assert "+05:45" in condition
            pager.arrange(Arrangement(conditions=(condition,)))
            assert pager.row_count == count, condition


def test_moments_of_a_file_are_those_of_the_zone_of_this_machine(tmp_path: Any) -> None:
    import duckdb

    made = "select timestamptz '2020-07-01 00:00:00+00' + interval (range) hour as t from range(48)"
    duckdb.execute(f"copy ({made}) to '{tmp_path}/t.parquet'")
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{tmp_path}/t.parquet'") as pager:
        shown = pager.cells(20, 21, [0])[0][0]
        assert shown is not None
        condition = condition_of("t", pager.source.types[0], {"op": "<", "value": shown[:19]}, pager.zone(0))
        assert str(pager.zone(0)) in condition
        pager.arrange(Arrangement(conditions=(condition,)))
        assert pager.row_count == 20


def test_moments_that_python_cannot_hold_are_still_profiled(tmp_path: Any) -> None:
    import duckdb

    made = "select timestamp '2020-01-01' + interval (range * 1000) year as t from range(30)"
    duckdb.execute(f"copy ({made}) to '{tmp_path}/t.parquet'")
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{tmp_path}/t.parquet'") as pager:
        facts = pager.profile(0)
        assert sum(count for *_, count, _ in facts.bins) == 30
        low, high, count, _ = facts.bins[-1]
        given = {"op": "between", "low": low, "high": high, "last": True}
        pager.arrange(Arrangement(conditions=(condition_of("t", "TIMESTAMP", given),)))
        assert pager.row_count == count


def test_a_zone_that_nobody_knows_is_shown_as_utc() -> None:
    assert moment(0, "Nowhere/Land").isoformat() == "1970-01-01T00:00:00+00:00"


@pytest.mark.parametrize("op", ["=", "contains", "starts with", "≠"])
@pytest.mark.parametrize("column", range(7))
def test_a_nested_cell_is_found_by_the_json_that_is_shown(op: str, column: int) -> None:
    values = """({'a': 1, 'b': 'it''s New, York'}, [1, 2], map {'k': 'x'}, ['true', '1e5', NULL],
            {'a': 1.50::decimal(9,2), 'f': 0.1::float, 'g': 'nan'::float}, [1.50::decimal(9,2), NULL],
            [map {1.50::decimal(9,2): 2.0::decimal(9,2)}, NULL]),
        ({'a': 2, 'b': 'Oslo'}, [3], map {'l': 'y'}, ['z'],
            {'a': 1.55::decimal(9,2), 'f': 0.2::float, 'g': 1::float}, [1.55::decimal(9,2)], [NULL])"""
    with SqlSession() as session, session.open_pages(f"(VALUES {values})") as pages:
        pages.finish()
        cell, kind = pages.cells(0, 1, [column])[0][0], pages.source.types[column]
        shown = str(as_whole([cell], kind)[0])
        name, given = pages.source.columns[column], {"op": op, "value": shown}
        pages.arrange(Arrangement(conditions=(condition_of(name, kind, given),)))
        assert pages.row_count == 1
        if op == "contains":  # as the list of values does
            pages.arrange(Arrangement())
            assert pages.values(column, shown.upper()) == ([(cell, 1)], "")
            assert (shown, 1) in pages.profile(column).top


def test_a_part_of_a_nested_cell_is_found_as_it_is_shown() -> None:
    with (
        SqlSession() as session,
        session.open_pages("(VALUES ({'a': 'it''s 1.50', 'n': 1.50::DECIMAL(9,2)}))") as pages,
    ):
        pages.finish()
        for shown in ('"a": "IT', "it's", '1.50"', '"n": 1.50'):
            assert len(pages.values(0, shown)[0]) == 1, shown
        assert pages.values(0, '"n": 1.55') == ([], "no value has that in it")
