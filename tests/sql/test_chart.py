"""Charts of results: what is drawn can be seen on a light page and on a dark one."""

from __future__ import annotations

import itertools

import pytest

pd = pytest.importorskip("pandas")
agg = pytest.importorskip("matplotlib.backends.backend_agg")

from nbtools.sql.chart import ResultChart  # noqa: E402


def luminance(colour: tuple[float, ...]) -> float:
    """Return the relative luminance of a colour as WCAG defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True])
def test_every_mark_of_a_scatter_stands_out_from_its_page(dark: bool) -> None:
    rows = pd.DataFrame({"x": [1, 2, 3], "y": [1, 2, 3], "n": [1, 2, 3]})
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
    rows = pd.DataFrame({"x": days, "y": 1.0, "low": 0.5, "high": 2.0, "n": 1, "width": 0.5})
    figure = ResultChart(kind, "day", None if kind == "hist" else "y", rows).figure()
    agg.FigureCanvasAgg(figure).draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_xticklabels() if text.get_text()]
    assert len(boxes) > 2
    assert all(before.x1 < after.x0 for before, after in itertools.pairwise(boxes))
