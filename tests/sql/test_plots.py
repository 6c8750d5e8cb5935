from __future__ import annotations

import duckdb
import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.plots import columns_of, plot_query


def test_spans_of_time_are_no_numbers_to_draw() -> None:
    names, types = ("wait", "size"), ("INTERVAL", "UINTEGER")
    assert columns_of("hist", (), names, types) == ("size", None)
    with pytest.raises(InvalidArguments, match="a column of numbers"):
        columns_of("hist", ("wait",), names, types)
    with pytest.raises(InvalidArguments, match="a column of numbers"):
        columns_of("line", (), names[:1], types[:1])


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_a_histogram_of_moments_has_its_edges_in_time_and_its_width_in_days(kind: str) -> None:
    assert columns_of("hist", ("day",), ("day",), (kind,)) == ("day", None)
    rows = f"SELECT (timestamp '2024-01-01' + to_days(range::INTEGER))::{kind} AS day FROM range(81)"
    edges = duckdb.connect().execute(plot_query("hist", rows, "day", None, kind)).fetchall()
    assert (edges[0][0].isoformat(), edges[0][1]) == ("2024-01-01T00:00:00", pytest.approx(2))
    assert sum(count for _, _, count, _ in edges) == 81


def test_spans_of_time_stand_on_the_axis_of_a_line_one_by_one() -> None:
    rows = "SELECT to_hours(range % 2) AS wait, range AS size FROM range(6)"
    sql = plot_query("line", rows, "wait", "size", "INTERVAL")
    assert [row[1] for row in duckdb.connect().execute(sql).fetchall()] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("x", "is_ordered"),
    [
        ("date '2024-01-01' + n::INTEGER", True),
        ("timestamptz '2024-01-01' + to_hours(n)", True),
        ("time '00:00' + to_minutes(n)", True),
        ("(n + 9)::DECIMAL(9, 1)", True),
        ("if(n = 0, NULL, n + 8)", True),
        ("'week ' || (n + 8)", False),
        ("(n + 8)::VARCHAR", False),
    ],
)
def test_bars_of_times_and_numbers_stand_in_their_own_order(x: str, is_ordered: bool) -> None:
    rows = f"SELECT {x} AS x, 1 + n * 7 % 5 AS y FROM range(5) r(n)"
    con = duckdb.connect()
    found = con.sql(rows).order("x" if is_ordered else "y DESC").fetchall()
    sql = plot_query("bar", rows, "x", "y", str(con.sql(rows).types[0]))
    assert [row[:2] for row in con.execute(sql).fetchall()] == found


def test_of_many_bars_the_highest_are_drawn_whatever_their_order() -> None:
    sql = plot_query("bar", "SELECT range AS x, -abs(range - 500) AS y FROM range(1000)", "x", "y", "BIGINT")
    found = duckdb.connect().execute(sql).fetchall()
    assert [row[0] for row in found] in ([*range(475, 525)], [*range(476, 526)])
    assert {row[2] for row in found} == {1000}


@pytest.mark.parametrize(
    ("measure", "heights"), [("mean", [2, 5]), ("max", [3, 5]), ("count", [2, 1]), ("sum", [4, 5])]
)
def test_bars_are_as_high_as_their_measure_says(measure: str, heights: list[int]) -> None:
    rows = "SELECT * FROM (VALUES (1, 1), (1, 3), (2, 5)) AS t(x, y)"
    sql = plot_query(f"bar:{measure}", rows, "x", "y", "INTEGER")
    assert [row[1] for row in duckdb.connect().execute(sql).fetchall()] == heights
    with pytest.raises(InvalidArguments, match="not a kind of chart"):
        columns_of(f"line:{measure}", ("x", "y"), ("x", "y"), ("INTEGER", "INTEGER"))
