"""Pictures of what a script draws: figures of matplotlib, and what other packages and values have in place of them.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import pathlib
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

_VEGA_LITE = "application/vnd.vegalite.v5+json"
# What exports a figure as a picture: the method, the module it needs, and the package that brings that.
_EXPORTERS = {
    "plotly": ("write_image", "kaleido", "kaleido"),
    "altair": ("save", "vl_convert", "vl-convert-python"),
    "seaborn": ("save", "matplotlib", "matplotlib"),
}
# The form in which a value that draws itself is asked for, by the suffix of the file.
_FORMS = {
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".pdf": "application/pdf",
}


def chart_bundle(chart: Any, **_: Any) -> Any:
    """Return a chart of altair in the form that front ends draw themselves, unless the script chose another.

    The HTML that altair has by default loads from a CDN, and JupyterLab would prefer it.
    """
    bundle = chart._repr_mimebundle_()
    if sys.modules["altair"].renderers.active == "default" and isinstance(bundle, dict) and "text/html" in bundle:
        del bundle["text/html"]
        bundle[_VEGA_LITE] = chart.to_dict(context={"pre_transform": False})
    return bundle


def export(last: Any, names: Mapping[str, Any], path: str, formatter: Any) -> str | None:
    """Save what draws itself: a figure of a package that exports it, or a last value that is shown as a picture.

    Parameters
    ----------
    last
        The last value of the script.
    names
        The names of the script, with their values.
    path
        The file, whose suffix says the form.
    formatter
        IPython's formatter of displays.

    Returns
    -------
    str
        "saved", or why not; `None` where there is nothing that draws itself.
    """
    figure = _live_figure(last, names)
    if figure is not None:
        return _export_figure(figure, path)
    form = _FORMS.get(pathlib.Path(path).suffix.lower())
    if last is None or form is None:
        return None
    exported = formatter.format(last, include={form})[0].get(form)
    if not exported:
        return None
    if isinstance(exported, str):
        exported = exported.encode() if form == "image/svg+xml" else base64.b64decode(exported)
    try:
        pathlib.Path(path).write_bytes(exported)
    except OSError as exc:
        return f"{type(exc).__name__}: {exc}"
    return "saved"


def _live_figure(last: Any, names: Mapping[str, Any]) -> Any:
    """Return the figure of plotly, altair or seaborn.objects that a script ended with, or assigned last."""
    for value in (last, *reversed(list(names.values()))):
        exporter = _EXPORTERS.get(type(value).__module__.partition(".")[0])
        if exporter is not None and hasattr(value, exporter[0]):
            return value
    return None


def _export_figure(figure: Any, path: str) -> str:
    """Save a figure as a picture by its package's own exporter; return "saved", or why not."""
    package = type(figure).__module__.partition(".")[0]
    method, module, install = _EXPORTERS[package]
    if importlib.util.find_spec(module) is None:
        return f"{package} saves pictures by {install}, which is not installed"
    try:
        getattr(figure, method)(path)
    except Exception as exc:
        return f"{type(exc).__name__}: {str(exc).strip().splitlines()[0] if str(exc).strip() else package}"
    return "saved"


def open_figures() -> list[Any]:
    """Return the open figures, the active one last."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return [manager.canvas.figure for manager in helpers.Gcf.figs.values()]


def print_figure(figure: Any) -> str | None:
    """Return the picture of a figure in base64: that of the inline backend, pixel for pixel, in less time.

    It is drawn once instead of twice. Runs of equal pixels are all that is looked for when it is compressed, which
    takes half the time and hardly more space for charts.
    """
    tools: Any = importlib.import_module("IPython.core.pylabtools")
    agg: Any = importlib.import_module("matplotlib.backends.backend_agg")
    options: dict[str, Any] = {}
    if isinstance(figure.canvas, agg.FigureCanvasAgg) and (figure.axes or figure.lines):
        options = {"bbox_inches": tight_box(figure), "pil_kwargs": {"compress_type": zlib.Z_RLE}}
    picture: str | None = tools.print_figure(figure, base64=True, **options)
    return picture


def tight_box(figure: Any) -> Any:
    """Return the box that ``bbox_inches="tight"`` gives a PNG after an extra drawing, a fifth of a picture's time.

    The figure's own measure is the same box, unless a layout engine is still to move things, or the picture gets
    another resolution than the figure's; then it is left to matplotlib.
    """
    settings = sys.modules["matplotlib"].rcParams
    agg = sys.modules.get("matplotlib.backends.backend_agg")
    if agg is None or figure.get_layout_engine() is not None or settings["savefig.dpi"] != "figure":
        return "tight"
    # Sizes of texts depend on the resolution alone: there is no need of a canvas of the figure's size.
    with unheard_warnings():
        box = figure.get_tightbbox(agg.RendererAgg(1, 1, figure.dpi))
    return box.padded(settings["savefig.pad_inches"])


def is_inline() -> bool:
    """Tell whether figures are shown as pictures below the cell."""
    matplotlib = sys.modules.get("matplotlib")
    return matplotlib is None or "inline" in str(matplotlib.rcParams["backend"]).lower()


@contextlib.contextmanager
def unheard_warnings() -> Iterator[None]:
    """Keep back what a drawing of ours warns of: the one that is shown warns again, and points at no code of ours.

    The filters stay as they are: after a change of them Python shows again what it has shown once.
    """
    show, thread = warnings.showwarning, threading.get_ident()

    def show_of_others(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != thread:
            show(*args, **kwargs)

    warnings.showwarning = show_of_others
    try:
        yield
    finally:
        warnings.showwarning = show
