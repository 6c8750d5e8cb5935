"""What options take, in a magic as on the command line: durations, counts, ``NAME=VALUE``, JSON or text."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

from nbtools.errors import ConfigInvalid, InvalidArguments
from nbtools.texts.units import parse_seconds


def _as_type(parse: Callable[[str], Any], target: str) -> Callable[[str], Any]:
    def check(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, ConfigInvalid):
            raise argparse.ArgumentTypeError(f"{text!r} is not {target}") from None

    return check


def _positive_seconds(text: str) -> float:
    match = parse_seconds(text)
    if not 0 < match < math.inf:
        raise ValueError(text)
    return match


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


seconds = _as_type(_positive_seconds, "a duration of more than 0 such as 30, 90s, 5min, 2h or 7d")
life = _as_type(
    lambda text: text if text == "never" else _positive_seconds(text),
    "a duration of more than 0 such as 30, 90s, 5min, 2h or 7d, nor 'never'",
)
count = _as_type(_count, "a whole number of 0 or more")
limit = _as_type(lambda text: None if text == "none" else _count(text), "a whole number of 0 or more, nor 'none'")
number = _as_type(float, "a number")


def json_or_text(text: str) -> Any:
    """Return the value that a text is as JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def number_or_models(text: str) -> int | list[str]:
    """Return a number of tries, or the models that a list with commas names."""
    return int(text) if text.strip().isdecimal() else [model.strip() for model in text.split(",")]


def pair(word: str, option: str = "") -> tuple[str, str]:
    """Return the name and the value of ``NAME=VALUE``.

    Parameters
    ----------
    word
        The word.
    option
        The option that it is given to, with a space behind it, as errors write it.

    Raises
    ------
    InvalidArguments
        It has no ``=``.
    """
    name, sign, value = str(word).partition("=")
    if not sign:
        raise InvalidArguments(f"{option}{str(word)!r} has no value.", hint=f"Write {option}NAME=VALUE.")
    return name, value
