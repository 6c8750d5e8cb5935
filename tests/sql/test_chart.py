"""Charts of results: what is drawn can be seen on a light page and on a dark one."""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import numpy as np
import pytest

from nbtools.errors import InvalidArguments

pd = pytest.importorskip("pandas")
agg = pytest.importorskip("matplotlib.backends.backend_agg")

from matplotlib.collections import PathCollection  # noqa: E402

from nbtools.sql.chart import ResultChart  # noqa: E402
from nbtools.sql.plots import columns_of, plot_query  # noqa: E402
from nbtools.sql.results.rows import ArrowRows  # noqa: E402
from nbtools.sql.results.texts import kind_of  # noqa: E402
from nbtools.texts.visible import counted  # noqa: E402
from tests.conftest import mostly_slow  # noqa: E402


def luminance(colour: tuple[float, ...]) -> float:
    """Return the relative luminance of a colour as WCAG defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True])
def test_every_mark_of_a_scatter_stands_out_from_its_page(dark: bool) -> None:
    rows = pd.DataFrame({"x": [1, 2, 3], "y": [1, 2, 3], "n": [1, 2, 3], "undrawn": 0})
    figure = ResultChart("scatter", "a", "b", rows).figure(dark=dark)
    figure.canvas.draw()
    page = luminance(figure.axes[0].get_facecolor())
    for colour in figure.axes[0].collections[0].get_facecolors():
        darker, lighter = sorted((page, luminance(tuple(colour))))
        assert (lighter + 0.05) / (darker + 0.05) > 1.5
    told = [
        tick.get_text() for which in ("major", "minor") for tick in figure.axes[1].yaxis.get_ticklabels(which=which)
    ]
    assert {"2", "3"} <= set(told)


@pytest.mark.parametrize("kind", ["hist", "line", "scatter"])
def test_dates_on_the_axis_do_not_stand_in_each_other(kind: str) -> None:
    days = pd.date_range("2019-03-01", periods=40, freq="19h")
    rows = pd.DataFrame({"x": days, "y": 1.0, "low": 0.5, "high": 2.0, "n": 1, "width": 0.5, "undrawn": 0})
    figure = ResultChart(kind, "day", None if kind == "hist" else "y", rows).figure()
    agg.FigureCanvasAgg(figure).draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_xticklabels() if text.get_text()]
    assert len(boxes) > 2
    assert all(before.x1 < after.x0 for before, after in itertools.pairwise(boxes))


def chart_of(kind: str, rows: str, x: str = "x", y: str | None = "y") -> ResultChart:
    """Return a chart of two columns of a query, as ``--plot`` makes it."""
    relation = duckdb.sql(rows)
    a, b = columns_of(kind, [x, *filter(None, [y])], relation.columns, [str(each) for each in relation.types])
    sql = plot_query(kind, rows, a, b, str(relation.types[relation.columns.index(a)]))
    return ResultChart(kind, a, b, ArrowRows(duckdb.sql(sql).to_arrow_table()).to_pandas())


def rendered(chart: ResultChart) -> Any:
    """Return the axes of a chart after it was rendered, which a warning ends."""
    figure = chart.figure()
    agg.FigureCanvasAgg(figure).draw()
    return figure.axes[0]


def labels_of(axes: Any) -> list[tuple[str, str]]:
    return [(text.get_text(), text.get_fontstyle()) for text in axes.get_xticklabels()]


def marks_in(axes: Any) -> int:
    """Count the marks that can be seen: bars, boxes, points of a scatter, points of a line."""
    bars = [
        bar.get_window_extent().width > 1 and (bar.get_height() > 0 or bar.get_linewidth() > 1) for bar in axes.patches
    ]
    points = [path.get_offsets() for path in axes.collections if isinstance(path, PathCollection)]
    boxes = [line for line in axes.lines if line.get_color() == "black" and len(line.get_xdata()) == 5]
    lines = [points_on(line) for line in axes.lines if line.get_marker() == "o"]
    return sum(bars) + sum(map(len, points)) + len(boxes) + sum(lines)


def points_on(line: Any) -> int:
    """Count the points of a line that can be seen: by a marker, or as the end of a segment."""
    is_finite = np.isfinite(np.asarray(line.get_ydata(), dtype=float))
    sides = np.pad(is_finite, 1)
    return int((is_finite & (sides[:-2] | sides[2:] | np.asarray(line.get_markevery()))).sum())


# Of each type two values; the second may be one that has no place on an axis.
TYPES = {
    "DOUBLE": ("1.5", "'nan'"),
    "HUGEINT": ("1", "99999999999999999999999999"),
    "VARCHAR": ("'nan'", "'$\\x$'"),
    "DATE": ("'2024-01-01'", "'infinity'"),
    "TIMESTAMPTZ": ("'2024-01-01'", "'-infinity'"),
    "TIME": ("'12:00'", "'13:00'"),
    "INTERVAL": ("'1 day'", "'2 days'"),
    "STRUCT(a INTEGER)": ("{'a': 1}", "{'a': null}"),
}
# What stands nowhere on an axis of numbers or moments.
NOWHERE = {None, "nan", "inf", "-inf", "infinity", "-infinity"}
ROWS = {
    "two rows": ("{0}, 1", "{1}, 2"),
    "a null in x": ("{0}, 1", "NULL, 2", "{1}, 0"),
    "a null in y": ("{0}, 1", "{1}, NULL"),
    "nulls alone": ("NULL, NULL",),
    "one row": ("{0}, 7",),
    "the same value": ("{0}, 7", "{0}, 7", "{0}, 7"),
    "infinite heights": ("{0}, 'inf'", "{1}, '-inf'", "{1}, 'nan'"),
    "no rows": (),
}


KINDS = ("bar", "bar:count", "line", "hist", "box", "scatter")


@pytest.mark.broad
@pytest.mark.parametrize(("kind", "contents"), mostly_slow(itertools.product(KINDS, ROWS), 5))
def test_each_mark_that_is_counted_can_be_seen_and_the_rest_is_said(kind: str, contents: str) -> None:
    for type_name, values in TYPES.items():
        lines = [line.format(*values) for line in ROWS[contents]] or ["NULL, NULL LIMIT 0"]
        rows = " UNION ALL ".join(
            f"SELECT a::{type_name} AS x, b::DOUBLE AS y FROM (SELECT {line}) AS t(a, b)" for line in lines
        )
        try:
            chart = chart_of(kind, rows, y=None if kind == "hist" else "y")
        except InvalidArguments:
            assert kind in {"hist", "scatter"}, type_name  # whose axes have numbers and moments only
            continue
        told = repr(chart)
        assert marks_in(rendered(chart)) == len(chart.data), (type_name, told)
        assert f": {counted(len(chart.data), 'mark')}" in told
        assert ("no rows" in told) == (contents == "no rows"), (type_name, told)
        places, heights = zip(
            *(duckdb.sql(f"SELECT x::VARCHAR, y::VARCHAR FROM ({rows})").fetchall() or [("", "")]), strict=True
        )
        has_categories = (
            kind.startswith(("bar", "box")) or kind_of(type_name) not in {"number", "time"} or type_name == "TIME"
        )
        is_lost = (not has_categories and not NOWHERE.isdisjoint(places)) or (
            kind not in {"hist", "bar:count"} and not NOWHERE.isdisjoint(heights)
        )
        assert ("not drawn" in told) == is_lost, (type_name, told)


@pytest.mark.parametrize(
    ("value", "edges"),
    [("7", (6.5, 7.5)), ("0", (-0.5, 0.5)), ("1e20", (0.995e20, 1.005e20)), ("-1e6", (-1005e3, -995e3))],
)
def test_values_that_are_all_the_same_are_one_bin_around_them(value: str, edges: tuple[float, float]) -> None:
    chart = chart_of("hist", f"SELECT {value} AS x FROM range(5)", y=None)
    (bar,) = rendered(chart).patches
    assert (bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) == (*map(pytest.approx, edges), 5)


def test_null_is_a_category_that_no_text_is_taken_for() -> None:
    rows = "SELECT * FROM (VALUES ('nan', 5), (NULL, 4), ('(null)', 3), ('b', NULL)) t(x, y)"
    for kind in ("bar", "line", "box"):
        axes = rendered(chart_of(kind, rows))
        labels = {("nan", "normal"), ("(null)", "italic"), ("(null)", "normal"), ("b", "normal")}
        assert (set(labels_of(axes)), len(labels_of(axes))) == (labels, 4)
    assert repr(chart_of("bar", rows)) == "<bar chart of x, y: 3 marks; 1 bar is not drawn: y is null or out of range>"
    left, right = rendered(chart_of("bar", rows)).get_xlim()
    assert left < -0.5 < 3.5 < right


def test_nan_and_null_are_two_bars_and_whole_numbers_stay_whole() -> None:
    axes = rendered(chart_of("bar", "SELECT * FROM (VALUES ('nan'::DOUBLE, 1), (NULL, 2)) t(x, y)"))
    assert labels_of(axes) == [("nan", "normal"), ("(null)", "italic")]
    assert labels_of(rendered(chart_of("bar", "SELECT * FROM (VALUES (1, 1), (NULL, 2)) t(x, y)")))[0][0] == "1"


def test_long_texts_that_begin_the_same_are_bars_of_their_own() -> None:
    axes = rendered(chart_of("bar", "SELECT repeat('a', 40) || i AS x, 1 AS y FROM range(3) t(i)"))
    assert len({bar.get_x() for bar in axes.patches}) == 3


def test_a_line_has_a_gap_where_a_value_is_missing_and_shows_the_points_beside_it() -> None:
    days = "(VALUES (date '2024-01-01', 5), (date '2024-01-02', NULL), (date '2024-01-03', 7), (date '2024-01-04', 8))"
    chart = chart_of("line", f"SELECT * FROM {days} t(x, y)")
    (line,) = rendered(chart).lines
    assert list(line.get_markevery()) == [True, False, False, False]
    assert repr(chart) == "<line chart of x, y: 3 marks; 1 row is not drawn: x or y is null or out of range>"


def test_boxes_that_are_too_many_are_said() -> None:
    chart = chart_of("box", "SELECT 'g' || i % 40 AS x, i AS y FROM range(400) t(i)")
    assert repr(chart) == "<box chart of x, y: 30 marks; the 30 largest; 10 more are not drawn>"
    assert rendered(chart).get_title() == chart.note


def test_a_line_of_many_texts_labels_some_of_them() -> None:
    chart = chart_of("line", "SELECT 'k' || i AS x, i AS y FROM range(500) t(i)")
    assert marks_in(axes := rendered(chart)) == 500
    assert 30 < len(labels_of(axes)) <= 60


def test_moments_of_a_scatter_stand_on_an_axis_of_moments() -> None:
    chart = chart_of("scatter", "SELECT date '2024-01-01' + i::INTEGER AS x, i AS y FROM range(3) t(i)")
    assert [str(each.date()) for each in chart.data["x"]] == ["2024-01-01", "2024-01-02", "2024-01-03"]


@pytest.mark.parametrize("days", [0, 1, 40, 120, 900, 1_100, 1_500, 2_500, 40_000])
def test_an_axis_of_moments_has_few_ticks_whatever_its_span(days: int) -> None:
    rows = f"SELECT date '2024-01-01' + (i * {days})::INTEGER AS x, i AS y FROM range(2) t(i)"
    assert 2 <= len(rendered(chart_of("line", rows)).get_xticks()) <= 10


def test_columns_may_have_any_names() -> None:
    for name in ("x", "y", "p", "v", "a", "b", "n", "height", "label", "groups", "low", "undrawn"):
        rows = f'SELECT i % 3 AS "{name}", i AS other FROM range(9) t(i)'
        for kind in ("bar", "line", "hist", "box", "scatter"):
            chart = chart_of(kind, rows, name, None if kind == "hist" else "other")
            assert chart.note == ""
            assert len(chart.data) == (9 if kind == "scatter" else 3)
    assert rendered(chart_of("bar", 'SELECT 1 AS x, 2 AS "$\\x$"', y="$\\x$")).get_ylabel() == "sum of $\\x$"


DAY = "date '2000-01-01'"
FAR = [
    ("-1.7e308", "1"),
    ("date '9999-12-31'", DAY),
    ("date '0044-01-01 (BC)'", DAY),
    ("timestamp '290000-01-01'", DAY),
]


@pytest.mark.parametrize("kind", ["line", "hist", "scatter"])
@pytest.mark.parametrize(("far", "near"), FAR)
def test_a_place_that_no_axis_reaches_is_said(kind: str, far: str, near: str) -> None:
    chart = chart_of(kind, f"SELECT unnest([{far}, {near}]) AS x, 1 AS y", y=None if kind == "hist" else "y")
    assert marks_in(rendered(chart)) == len(chart.data) == 1
    assert "1 mark; 1 row is not drawn" in repr(chart)


@pytest.mark.parametrize("kind", ["bar", "line", "box", "scatter"])
def test_a_height_that_no_axis_reaches_is_said(kind: str) -> None:
    chart = chart_of(kind, "SELECT * FROM (VALUES (1, 1.7e308), (2, 1)) t(x, y)")
    assert marks_in(rendered(chart)) == len(chart.data) == 1
    assert f"1 mark; 1 {'bar' if kind == 'bar' else 'row'} is not drawn" in repr(chart)


def test_values_that_no_axis_tells_apart_are_one_bin() -> None:
    for values in ("0, 1e-310", "1e16, 1e16 + 2"):
        chart = chart_of("hist", f"SELECT unnest([{values}]) AS x", y=None)
        assert (marks_in(rendered(chart)), chart.data["n"].tolist()) == (1, [2])
