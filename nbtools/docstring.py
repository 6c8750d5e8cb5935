"""What a docstring says about a function, in numpy, Google or Sphinx form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["description", "parameter_texts"]


def _parse(function: Callable[..., Any]) -> Any:
    import docstring_parser

    return docstring_parser.parse(inspect.getdoc(function) or "")


def description(function: Callable[..., Any]) -> str:
    """Return the text above the sections, or the function's name in words when there is none."""
    parsed = _parse(function)
    text = "\n\n".join(part.strip() for part in (parsed.short_description, parsed.long_description) if part)
    return text or function.__name__.replace("_", " ")


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """Return parameter name to its description; several names may share one (``x, y``)."""
    found: dict[str, str] = {}
    for parameter in _parse(function).params:
        if not parameter.description:
            continue
        for name in parameter.arg_name.split(","):
            found[name.strip().lstrip("*")] = " ".join(parameter.description.split())
    return found
