"""What a docstring says about a function, in numpy, Google or Sphinx form."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

# A title underlined is numpy's way alone; parsing in all ways to find the best takes four times as long.
_UNDERLINED = re.compile(r"^\s*-{3,}\s*$", re.MULTILINE)


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    import docstring_parser

    styles = docstring_parser.DocstringStyle
    return docstring_parser.parse(text, styles.NUMPYDOC if _UNDERLINED.search(text) else styles.AUTO)


def _parse(function: Callable[..., Any]) -> Any:
    return _parsed(inspect.getdoc(function) or "")


def description(function: Callable[..., Any]) -> str:
    """Return the text above the sections, or the function's name in words when there is none."""
    parsed = _parse(function)
    text = "\n\n".join(part.strip() for part in (parsed.short_description, parsed.long_description) if part)
    return text or function.__name__.replace("_", " ")


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """Return parameter name to its description; several names may share one (``x, y``)."""
    texts: dict[str, str] = {}
    for parameter in _parse(function).params:
        if not parameter.description:
            continue
        for name in parameter.arg_name.split(","):
            texts[name.strip().lstrip("*")] = " ".join(parameter.description.split())
    return texts
