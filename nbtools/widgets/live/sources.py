"""The JavaScript and CSS of the widgets, as text: files of the package put together, nothing built, nothing fetched."""

from __future__ import annotations

import functools
import re
from importlib.resources import files

__all__ = ["module_text", "style_text"]

_COMMENT = re.compile(r"^ *(?://|/\*\*|\* ).*\n", re.MULTILINE)  # lines that are nothing else


@functools.cache
def module_text(name: str, *parts: str) -> str:
    """Return the ES module of a widget.

    Parameters
    ----------
    name
        Of the widget: ``static/NAME.js`` has ``export default { render }``.
    *parts
        More files of ``static`` that it stands on, such as ``"grid"``; they export nothing, their names are just there.
    """
    text = "\n".join(_read(f"{part}.js") for part in ("shared", *parts, name))
    return _COMMENT.sub("", text)  # those are for whoever reads the files


@functools.cache
def style_text(*names: str) -> str:
    """Return the colours and spaces of all widgets, and the styles of these parts."""
    return "\n".join(_read(f"{name}.css") for name in ("tokens", *names))


def _read(file: str) -> str:
    return files("nbtools.widgets").joinpath("static", file).read_text(encoding="utf-8")
