"""Charts of whole results, drawn from the few numbers that SQL computed."""

from __future__ import annotations

import importlib
import io
from typing import Any

from nbtools.sql.plots import measure_of

_MOST_LABELS, _LONGEST_LABEL = 12, 30
_DARK, _LIGHT = "#111111", "#d0d0d0"


class ResultChart:
    """A chart, shown as a picture.

    Attributes
    ----------
    data
        The numbers that are drawn, as a DataFrame.

    Parameters
    ----------
    kind
        The kind of chart, see `nbtools.sql.plots.plot_query`.
    x
        Column along the horizontal axis.
    y
        Column of the measure; `None` where rows are counted.
    data
        The rows that it gave.
    """

    def __init__(self, kind: str, x: str, y: str | None, data: Any) -> None:
        self.data = data
        self._kind, self._measure = measure_of(kind)
        self._x, self._y = x, y

    def figure(self, *, dark: bool = False) -> Any:
        """Return a figure of matplotlib, to change or save: it belongs to no window."""
        from matplotlib.figure import Figure

        # Not one of pyplot, which would keep it for ever and let the notebook show it a second time.
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        getattr(self, f"_draw_{self._kind}")(axes)
        axes.set_xlabel(self._x)
        if self._kind in {"hist", "line", "scatter"} and self.data["x"].dtype.kind == "M":
            dates: Any = importlib.import_module("matplotlib.dates")  # which has no types
            axes.xaxis.set_major_locator(locator := dates.AutoDateLocator(maxticks=8))
            axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axes.spines[["top", "right"]].set_visible(False)
        if dark:
            _darken(figure)
        return figure

    def _draw_bar(self, axes: Any) -> None:
        bars = self.data
        axes.bar([_label(one) for one in bars["x"]], bars["height"].astype(float))
        more = int(bars["bars"].max()) - len(bars) if len(bars) else 0
        axes.set_title(f"the {len(bars)} highest; {more:,} more are not drawn" if more else "", fontsize="small")
        axes.set_ylabel(f"{self._measure} of {self._y}" if self._y else "rows")
        if len(bars) > _MOST_LABELS:
            axes.tick_params("x", rotation=90, labelsize="x-small")

    def _draw_hist(self, axes: Any) -> None:
        axes.bar(self.data["x"], self.data["n"], width=self.data["width"], align="edge")
        axes.set_ylabel("rows")

    def _draw_box(self, axes: Any) -> None:
        numbers = ["whislo", "q1", "med", "q3", "whishi"]
        boxes = [
            {"label": _label(row["x"]), **{name: row[name] for name in numbers}} for _, row in self.data.iterrows()
        ]
        # What lies beyond the whiskers never came: five numbers a box are all that was asked for.
        axes.bxp(boxes, showfliers=False)
        axes.set_ylabel(self._y or "")

    def _draw_line(self, axes: Any) -> None:
        axes.fill_between(self.data["x"], self.data["low"], self.data["high"], alpha=0.2)
        axes.plot(self.data["x"], self.data["y"])
        axes.set_ylabel(self._y)

    def _draw_scatter(self, axes: Any) -> None:
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import LogFormatter

        most = int(self.data["n"].max()) if len(self.data) else 1
        # Counts differ by orders of magnitude; on a linear scale only the fullest mark would have a colour.
        points = axes.scatter(self.data["x"], self.data["y"], s=9, c=self.data["n"], norm=LogNorm(1, max(most, 2)))
        points.set_cmap(_part_of_viridis(0, 0.85))
        if most > 1:
            bar = axes.figure.colorbar(points, label="rows", format=LogFormatter())
            bar.minorformatter = LogFormatter()
        axes.set_ylabel(self._y)

    def png(self, *, dark: bool = False) -> bytes:
        """Return the picture, twice as fine as a screen of old."""
        buffer = io.BytesIO()
        self.figure(dark=dark).savefig(buffer, format="png", dpi=144)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        return f"<{self._kind} chart of {', '.join(filter(None, (self._x, self._y)))}: {len(self.data):,} marks>"


def _label(value: Any) -> str:
    """Return a value as the label of an axis: short, a midnight as its day."""
    text = str(value).removesuffix(" 00:00:00")
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _part_of_viridis(least: float, most: float) -> Any:
    """Return the colours of viridis between two shares of it: its ends cannot be seen on a page of the same shade."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap([colormaps["viridis"](least + (most - least) * step / 255) for step in range(256)])


def _darken(figure: Any) -> None:
    """Give a figure the colours of a dark page; settings of matplotlib, which all threads share, stay as they are."""
    figure.set_facecolor(_DARK)
    for axes in figure.axes:
        axes.set_facecolor(_DARK)
        axes.tick_params(which="both", colors=_LIGHT, labelcolor=_LIGHT)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set_color(_LIGHT)
        for spine in axes.spines.values():
            spine.set_color(_LIGHT)
        for artist in axes.collections:
            if artist.get_array() is not None:
                artist.set_cmap(_part_of_viridis(0.35, 1))
        for line in axes.lines:
            if line.get_color() in {"black", "k"}:  # the boxes
                line.set_color(_LIGHT)
