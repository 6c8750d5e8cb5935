"""Pictures of forked kernels: those of the inline backend, pixel for pixel, though they are drawn once."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from IPython.core import pylabtools
from IPython.core.formatters import DisplayFormatter
from matplotlib import pyplot as plt
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from nbtools.kernels import Kernels
from nbtools.kernels.inside import pictures
from tests.conftest import mostly_slow

pytestmark = pytest.mark.broad

_RNG = np.random.default_rng(0)
_GRID = _RNG.normal(size=(20, 40))
_CLOUD = _RNG.normal(size=(2, 200))
_DAYS = pd.Series(range(90), index=pd.date_range("2024-01-01", periods=90))
Drawn = Callable[[Any], object]


def empty(axes: Any, title: str | None = None) -> Figure:
    """Return the figure of axes that are removed from it."""
    figure: Figure = axes.figure
    axes.remove()
    if title:
        figure.suptitle(title)
    return figure


CHARTS: dict[str, Drawn] = {
    "line": lambda a: (a.plot([1, 3, 2], label="a"), a.set_title("T"), a.set_xlabel("x"), a.legend()),
    "bar, turned labels": lambda a: pd.Series([1.0, 2], index=["north", "south"]).plot.bar(ax=a),
    "bar, names and values": lambda a: a.bar_label(a.barh(["a long name of a bar", "b"], [1, 2])),
    "dates": lambda a: (_DAYS.plot(ax=a), a.figure.autofmt_xdate()),
    "scatter with colours": lambda a: a.figure.colorbar(a.scatter(*_CLOUD, c=_CLOUD[0])),
    "image": lambda a: a.figure.colorbar(a.imshow(_GRID)),
    "equal sides": lambda a: (a.plot([1, 5], [1, 2]), a.set_aspect("equal"), a.set_title("eq")),
    "legend outside": lambda a: (a.plot([1, 2], label="a label " * 4), a.legend(bbox_to_anchor=(1.05, 1))),
    "two scales": lambda a: (a.plot([1, 2]), a.twinx().set_ylabel("right")),
    "second axis": lambda a: (
        a.plot([1, 2]),
        a.secondary_xaxis("top", functions=(lambda x: 2 * x, lambda x: x / 2)),
    ),
    "inset": lambda a: (a.plot([1, 2]), a.inset_axes([0.5, 0.1, 0.4, 0.4]).imshow(np.eye(4))),
    "words outside": lambda a: (
        a.annotate("look", (0, 1), xytext=(0.3, 1.4), arrowprops={}),
        a.figure.text(-0.1, 0.5, "o"),
    ),
    "wrapped words": lambda a: a.text(0.7, 0.5, "a text that is too long for its line " * 3, wrap=True),
    "formula": lambda a: a.set_title(r"$\frac{1}{2}\int x$"),
    "arrows": lambda a: a.quiverkey(a.quiver([1, 2], [1, 2], [1, 0], [0, 1]), 0.9, 1.05, 1, "key"),
    "contours": lambda a: a.clabel(a.contour(_GRID)),
    "pie": lambda a: a.pie([1, 2, 3], labels=["a very long name", "b", "another very long name"]),
    "logarithms": lambda a: a.loglog([1, 10, 1000], [1, 100, 1e6]),
    "errors": lambda a: a.errorbar([1, 2], [3, 4], yerr=0.3, capsize=3),
    "boxes": lambda a: pd.DataFrame(_CLOUD.T, columns=["a", "b"]).boxplot(ax=a),
    "table": lambda a: (a.axis("off"), a.table(cellText=[["a", "b"]])),
    "beyond its axes": lambda a: (a.set_ylim(1.4, 1.6), a.scatter([0.5], [1.9], clip_on=False)),
    "polar": lambda a: empty(a).add_subplot(projection="polar").plot([0, 1, 2], [1, 2, 3]),
    "in space": lambda a: empty(a).add_subplot(projection="3d").plot([1, 2, 3], [1, 3, 2], [3, 2, 1]),
    "four": lambda a: [b.hist(_CLOUD[0]) for b in empty(a, title="S").subplots(2, 2, sharex=True).flat],
    "figures in a figure": lambda a: [part.subplots().plot([1, 2]) for part in empty(a).subfigures(1, 2)],
    "sharp": lambda a: (a.figure.set_dpi(200), a.set_xlabel("x")),
    "grey": lambda a: a.figure.set_facecolor("0.8"),
    "tight layout": lambda a: (a.set_ylabel("y"), a.figure.set_layout_engine("tight")),
    "constrained layout": lambda a: (a.set_ylabel("y"), a.figure.set_layout_engine("constrained")),
}


@pytest.fixture(autouse=True)
def _plain_style() -> Iterator[None]:
    with mpl.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def chart(draw: Drawn) -> Figure:
    figure, axes = plt.subplots(dpi=50)  # a quarter of the pixels
    draw(axes)
    return figure


def pixels(picture: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(plt.imread(io.BytesIO(picture)))


@pytest.mark.parametrize("name", mostly_slow(CHARTS, 3))
def test_a_chart_looks_as_ipython_prints_it(name: str) -> None:
    expected = pylabtools.print_figure(chart(CHARTS[name]))
    made = pictures.print_figure(chart(CHARTS[name]))
    assert made is not None
    assert np.array_equal(pixels(base64.b64decode(made)), pixels(expected))


@pytest.mark.parametrize("name", ["legend outside", "image", "constrained layout"])
def test_a_saved_chart_is_the_same_file(name: str) -> None:
    expected, made = io.BytesIO(), io.BytesIO()
    chart(CHARTS[name]).savefig(expected, bbox_inches="tight")
    figure = chart(CHARTS[name])
    figure.savefig(made, bbox_inches=pictures.tight_box(figure))
    assert made.getvalue() == expected.getvalue()


def test_another_resolution_is_left_to_matplotlib() -> None:
    with mpl.rc_context({"savefig.dpi": 150}):
        assert pictures.tight_box(chart(CHARTS["line"])) == "tight"


def test_a_figure_without_anything_in_it_makes_no_picture() -> None:
    assert pictures.print_figure(plt.figure()) is None


def test_another_canvas_is_left_to_ipython() -> None:
    figure = Figure()
    figure.add_subplot().plot([1, 2])
    FigureCanvasSVG(figure)
    made = pictures.print_figure(figure)
    assert made is not None
    assert pixels(base64.b64decode(made)).ndim == 3


class _Drawn:
    """A value that draws itself, as charts of many packages do."""

    def _repr_png_(self) -> bytes:
        return b"\x89PNG its own"

    def _repr_svg_(self) -> str:
        return "<svg/>"


class _Plotly:
    """A figure of a package that saves pictures by another one."""

    def write_image(self, path: str) -> None:
        if not path.endswith(".png"):
            raise ValueError("no such form\nand a second line")
        Path(path).write_bytes(b"picture")


_Plotly.__module__ = "plotly.graph_objs"


@pytest.mark.parametrize(("suffix", "content"), [(".png", b"\x89PNG its own"), (".svg", b"<svg/>")])
def test_a_value_that_draws_itself_is_saved_in_the_form_of_the_suffix(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"a{suffix}"
    assert pictures.export(_Drawn(), {}, str(path), DisplayFormatter()) == "saved"
    assert path.read_bytes() == content


def test_what_cannot_be_saved_says_why_and_what_draws_nothing_says_nothing(tmp_path: Path) -> None:
    formatter = DisplayFormatter()
    assert "FileNotFoundError" in (pictures.export(_Drawn(), {}, str(tmp_path / "none" / "a.png"), formatter) or "")
    assert pictures.export(_Drawn(), {}, str(tmp_path / "a.txt"), formatter) is None
    assert pictures.export(1, {}, str(tmp_path / "a.png"), formatter) is None
    assert pictures.export(None, {}, str(tmp_path / "a.png"), formatter) is None


def test_the_figure_that_was_assigned_last_is_exported_by_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, path = {"figure": _Plotly(), "n": 1}, str(tmp_path / "a.png")
    monkeypatch.setitem(pictures._EXPORTERS, "plotly", ("write_image", "absent_package", "kaleido"))
    assert pictures.export(None, names, path, None) == "plotly saves pictures by kaleido, which is not installed"
    monkeypatch.setitem(pictures._EXPORTERS, "plotly", ("write_image", "json", "kaleido"))
    assert pictures.export(None, names, path, None) == "saved"
    assert Path(path).read_bytes() == b"picture"
    assert pictures.export(None, names, str(tmp_path / "a.bmp"), None) == "ValueError: no such form"


def test_a_chart_of_altair_is_shown_without_what_loads_from_elsewhere_unless_the_script_chose_that() -> None:
    drawn = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q")
    bundle = pictures.chart_bundle(drawn)
    assert "text/html" not in bundle
    assert bundle["application/vnd.vegalite.v5+json"]["mark"] == {"type": "point"}
    with alt.renderers.enable("html"):
        assert "text/html" in pictures.chart_bundle(drawn)


def test_another_backend_than_the_inline_one_shows_no_pictures_below_the_cell() -> None:
    assert not pictures.is_inline()
    assert pictures.open_figures() == []
    figure = plt.figure()
    assert pictures.open_figures() == [figure]


@pytest.mark.slow
@pytest.mark.processes
def test_what_a_script_asks_of_the_inline_backend_is_done() -> None:
    code = (
        "import matplotlib.pyplot as plt\n"
        "from matplotlib_inline.backend_inline import set_matplotlib_formats\n"
        "set_matplotlib_formats('svg')\nplt.plot([1, 2]); plt.show()"
    )
    with Kernels(spares=0) as kernels:
        kinds = {kind for display in kernels.run(code).displays for kind in display}
    assert "image/svg+xml" in kinds
    assert "image/png" not in kinds
