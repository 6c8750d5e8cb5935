"""Groups by their SQL, and as pandas computes them."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.pages.expressions import words_of
from nbtools.sql.pages.grouping import MEASURES, grouped, groups_of
from nbtools.sql.pages.shape import Shape
from nbtools.sql.pages.spelling import spelled
from nbtools.sql.session import SqlSession

FRAME = pd.DataFrame(
    {"city": ["b", "a", None, "a", "b", "b"], "team": ["x", "y", "x", None, "x", "y"], "v": [1.5, 2, 3, None, 5, 6]}
)
SALES = Shape(source='"sales"')


def _asked(shape: Shape) -> duckdb.DuckDBPyRelation:
    duckdb.register("sales", FRAME)
    return duckdb.sql(shape.to_text())


def _rows(shape: Shape) -> list[Any]:
    return _asked(shape).fetchall()


@pytest.mark.parametrize(("name", "function"), [("sum", "sum"), ("mean", "mean"), ("min", "min"), ("max", "max")])
def test_measures_of_groups_are_those_of_pandas(name: str, function: str) -> None:
    shape = grouped(SALES, ["city", "team"], [("count", None), (name, "v")])
    by = FRAME.fillna({"city": "", "team": ""}).groupby(["city", "team"])["v"]
    expected = {key: (len(part), getattr(part.dropna(), function)()) for key, part in by}
    rows = _rows(shape)
    assert len(rows) == len(expected) == 5
    for city, team, count, value in rows:
        size, computed = expected[city or "", team or ""]
        assert count == size
        assert value == computed or (value is None and not computed > 0)


def test_filters_hold_and_the_largest_group_comes_first() -> None:
    shape = grouped(SALES.but(conditions=("(v > 1 OR v IS NULL)", "city IS NOT NULL")), ["city"], [("count", None)])
    assert _rows(shape) == [("b", 3), ("a", 2)]


def test_values_of_a_column_become_columns() -> None:
    shape = grouped(SALES, ["city"], [("sum", "v")], "team", ["x", "y", None])
    assert _asked(shape).columns == ["city", "x", "y", "missing"]
    assert _rows(shape) == [("a", None, 2.0, None), ("b", 6.5, 6.0, None), (None, 3.0, None, None)]
    two = grouped(SALES, ["city"], [("sum", "v"), ("count", None)], "team", ["x"])
    assert _asked(two).columns == ["city", "x: sum of v", "x: rows"]


@pytest.mark.parametrize(
    ("keys", "measures", "across", "values"),
    [
        ([], [("count", None)], None, []),
        (["a", "b", "c", "d"], [("count", None)], None, []),
        (["a"], [], None, []),
        (["a"], [("sum", None)], None, []),
        (["a"], [("median); drop", "b")], None, []),
        (["a"], [("count", None)], "a", []),
        (["a"], [("count", None)], "b", [str(n) for n in range(51)]),
    ],
)
def test_what_cannot_be_grouped_is_refused(keys: Any, measures: Any, across: Any, values: Any) -> None:
    with pytest.raises(InvalidArguments):
        grouped(SALES, keys, measures, across, values)


@pytest.mark.parametrize(
    ("shown", "by"), [("city, count(*)", "city, team"), ("count(*)", "city"), ("city, count(*)", "upper(city), city")]
)
def test_groups_by_what_is_not_shown_are_not_code_of_frames(shown: str, by: str) -> None:
    query = Shape.from_text(f"SELECT * FROM (SELECT {shown} AS n FROM 'sales.csv' GROUP BY {by})")
    assert groups_of(query) is None
    assert "the engine makes the rows" in spelled(query, "polars")


@pytest.mark.parametrize("language", ["pandas", "polars"])
def test_groups_are_code_that_makes_the_same_rows(language: Any, tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("sales.csv", index=False)
    measures = [("count", None), ("sum", "v"), ("mean", "v"), ("min", "v"), ("max", "v"), ("count", "v")]
    whole = Shape.of_file("sales.csv").but(conditions=("(v > 1 OR v IS NULL)",))
    shape = grouped(whole, ["city", "team"], measures)
    with SqlSession(allowed_paths=[tmp_path]) as session:
        code = spelled(shape, language, None, session.file_options(shape.to_text())[0])
    assert "nbtools" not in code
    names: dict[str, Any] = {}
    exec(code, names)
    frame = names["df"] if language == "pandas" else names["df"].to_pandas()
    expected = _asked(shape).df()
    key = list(expected.columns[:2])
    pd.testing.assert_frame_equal(
        *(each.fillna({"city": "", "team": ""}).sort_values(key, ignore_index=True) for each in (frame, expected)),
        check_dtype=False,
    )


def test_a_title_names_what_is_grouped() -> None:
    groups = groups_of(grouped(SALES, ["city", "team"], [("sum", "v"), ("count", None)]))
    assert groups is not None
    assert (groups.rows.source, groups.keys) == ('"sales"', ["city", "team"])
    assert groups.measures == [("sum of v", "sum", "v"), ("rows", "count", None)]
    assert groups_of(grouped(SALES, ["city"], [("sum", "v")], "team", ["x", "y"])) is None
    assert groups_of(SALES) is None


def test_pandas_and_polars_have_words_for_the_same_things() -> None:
    pandas, polars = words_of("pandas").forms, words_of("polars").forms
    assert pandas.keys() == polars.keys()
    for table in ("measures", "read", "made"):
        assert pandas[table].keys() == polars[table].keys()
    assert {*pandas["measures"]} == {*MEASURES, "rows"}
