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


def test_spans_of_time_stand_on_the_axis_of_a_line_one_by_one() -> None:
    rows = "SELECT to_hours(range % 2) AS wait, range AS size FROM range(6)"
    sql = plot_query("line", rows, "wait", "size", "INTERVAL")
    assert [row[1] for row in duckdb.connect().execute(sql).fetchall()] == [2.0, 3.0]
