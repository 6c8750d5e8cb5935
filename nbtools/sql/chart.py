"""Charts of whole results, drawn from the few numbers that SQL computed."""

from __future__ import annotations

import importlib
import io
from typing import Any

from nbtools.sql.plots import measure_of
from nbtools.sql.results.texts import spell
from nbtools.texts.visible import counted

_MOST_LABELS, _MOST_UPRIGHT, _LONGEST_LABEL = 60, 12, 30
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
        self._kind, self._measure = measure_of(kind)
        self._x, self._y, self._rows = x, y, data
        self.data = data[data[{"bar": "height", "box": "med", "line": "y"}.get(self._kind, "x")].notna()]

    @property
    def height(self) -> str:
        """What is drawn along the vertical axis; empty for boxes of x."""
        if self._y is None:
            return "" if self._kind == "box" else "rows"
        return f"{self._measure} of {self._y}" if self._kind in {"bar", "line"} else self._y

    @property
    def title(self) -> str:
        """What the chart shows, such as ``sum of y by x``."""
        return " by ".join(filter(None, (self.height, self._x)))

    @property
    def note(self) -> str:
        """What is not drawn, and why; empty if all is drawn."""
        rows, is_bar = self._rows, self._kind == "bar"
        notes = [] if len(rows) else ["the result has no rows"]
        if "groups" in rows and (more := int(rows["groups"][:1].sum()) - len(rows)):  # the same number in each row
            notes.append(f"the {len(rows)} {'highest' if is_bar else 'largest'}; {more:,} more are not drawn")
        if undrawn := len(rows) - len(self.data) if is_bar else int(rows["undrawn"].sum()):
            thing = counted(undrawn, "bar" if is_bar else "row")
            # A category may be null; a place on an axis of numbers or times may not.
            columns = " or ".join(filter(None, ("" if self._y and "label" in rows else self._x, self._y)))
            notes.append(f"{thing} {'is' if undrawn == 1 else 'are'} not drawn: {columns} is null or out of range")
        return "; ".join(notes)

    def figure(self, *, dark: bool = False) -> Any:
        """Return a figure of matplotlib, to change or save: it belongs to no window."""
        from matplotlib.figure import Figure

        # Not one of pyplot, which would keep it for ever and let the notebook show it a second time.
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        if len(self.data):
            getattr(self, f"_draw_{self._kind}")(axes)
        # Names and texts are the person's: a dollar in them begins no formula.
        axes.set_xlabel(self._x, parse_math=False)
        axes.set_ylabel(self.height, parse_math=False)
        axes.set_title(self.note, fontsize="small", wrap=True, parse_math=False)
        if "label" in self._rows:
            self._label_places(axes)
        elif self.data["x"].dtype.kind == "M":
            dates: Any = importlib.import_module("matplotlib.dates")  # which has no types
            # With more than three, no step of months or years fits to some spans, such as that around a single day.
            axes.xaxis.set_major_locator(locator := dates.AutoDateLocator(minticks=3, maxticks=8))
            axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axes.spines[["top", "right"]].set_visible(False)
        if dark:
            _darken(figure)
        return figure

    def _label_places(self, axes: Any) -> None:
        """Write below each category what it is; the slant tells null from a text."""
        labels = self._rows["label"][:: len(self._rows) // _MOST_LABELS + 1]
        axes.set_xlim(-0.6, len(self._rows) - 0.4)  # also around what is not drawn
        axes.set_xticks(labels.index, [_label(each) for each in labels], parse_math=False)
        for text, label in zip(axes.get_xticklabels(), labels, strict=True):
            text.set_fontstyle("normal" if isinstance(label, str) else "italic")
        if len(labels) > _MOST_UPRIGHT:
            axes.tick_params("x", rotation=90, labelsize="x-small")

    def _draw_bar(self, axes: Any) -> None:
        # By its edge, a bar of height zero can be told from one that is not there.
        axes.bar(self.data.index, self.data["height"].astype(float), edgecolor="C0", linewidth=2)

    def _draw_hist(self, axes: Any) -> None:
        axes.bar(self.data["x"], self.data["n"], width=self.data["width"], align="edge")

    def _draw_box(self, axes: Any) -> None:
        boxes = self.data[["whislo", "q1", "med", "q3", "whishi"]].to_dict("records")
        # What lies beyond the whiskers never came: five numbers a box are all that was asked for.
        axes.bxp(boxes, self.data.index, widths=0.5, showfliers=False, manage_ticks=False)

    def _draw_line(self, axes: Any) -> None:
        rows = self._rows if "label" in self._rows else self._rows[self._rows["x"].notna()]
        places = rows.index if "label" in rows else rows["x"]
        is_drawn = rows["y"].notna()
        # A point between gaps, or the only one, has no line to show it.
        isolated = is_drawn & ~is_drawn.shift(1, fill_value=False) & ~is_drawn.shift(-1, fill_value=False)
        axes.fill_between(places, rows["low"], rows["high"], alpha=0.2)
        axes.plot(places, rows["y"], marker="o", markersize=4, markevery=isolated.to_numpy())

    def _draw_scatter(self, axes: Any) -> None:
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import LogFormatter

        most = int(self.data["n"].max())
        # Counts differ by orders of magnitude; on a linear scale only the fullest mark would have a colour.
        points = axes.scatter(self.data["x"], self.data["y"], s=9, c=self.data["n"], norm=LogNorm(1, max(most, 2)))
        points.set_cmap(_part_of_viridis(0, 0.85))
        if most > 1:
            bar = axes.figure.colorbar(points, label="rows", format=LogFormatter())
            bar.minorformatter = LogFormatter()

    def png(self, *, dark: bool = False) -> bytes:
        """Return the picture, twice as fine as a screen of old."""
        buffer = io.BytesIO()
        self.figure(dark=dark).savefig(buffer, format="png", dpi=144)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        columns = ", ".join(filter(None, (self._x, self._y)))
        marks = f"<{self._kind} chart of {columns}: {counted(len(self.data), 'mark')}"
        return f"{'; '.join(filter(None, (marks, self.note)))}>"


def _label(label: Any) -> str:
    """Return the text of a value as the label of an axis: short, a midnight as its day."""
    return spell(label.removesuffix(" 00:00:00"), _LONGEST_LABEL) if isinstance(label, str) else "(null)"


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
        for part in (axes.xaxis.label, axes.yaxis.label, axes.title, *axes.spines.values()):
            part.set_color(_LIGHT)
        for artist in axes.collections:
            if artist.get_array() is not None:
                artist.set_cmap(_part_of_viridis(0.35, 1))
        for line in axes.lines:
            if line.get_color() in {"black", "k"}:  # the boxes
                line.set_color(_LIGHT)
