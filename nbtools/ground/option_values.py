"""Options, in a magic as on the command line: where they are declared, and what they take.

A file beside the module that answers them declares them: a table for each parser with its texts, its arguments, and the
tables of its subcommands, which have an ``about`` of their own. An argument is what ``add_argument`` takes, types by
their names, and ``absent`` where it is not in the result if it was not given; ``true`` stands for the argument of that
name in the table ``shared``.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, InvalidArguments
from nbtools.texts.sql_quotes import quote_text
from nbtools.texts.units import parse_bytes, parse_seconds

# What argparse says of arguments that are not there, before their names.
MISSING = "the following arguments are required: "
_DASHED_FILE = re.compile(r"-[^=]*\.[a-z]\w*", re.IGNORECASE)  # no option has a dot in its name


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


def number_or_models(text: str) -> int | list[str]:
    """Return a number of tries, or the models that a list with commas names."""
    return int(text) if text.strip().isdecimal() else [model.strip() for model in text.split(",")]


seconds = _as_type(_positive_seconds, "a duration of more than 0 such as 30, 90s, 5min, 2h or 7d")
life = _as_type(
    lambda text: text if text == "never" else _positive_seconds(text),
    "a duration of more than 0 such as 30, 90s, 5min, 2h or 7d, nor 'never'",
)
count = _as_type(_count, "a whole number of 0 or more")
limit = _as_type(lambda text: None if text == "none" else _count(text), "a whole number of 0 or more, nor 'none'")
number = _as_type(float, "a number")
_TYPES: Mapping[str, Callable[[str], Any]] = {
    "bytes": _as_type(parse_bytes, "a size such as 500000, 64KiB, 200MiB or 2GB"),
    "count": count,
    "int": _as_type(int, "a whole number"),
    "life": life,
    "limit": limit,
    "models": number_or_models,
    "number": number,
    "seconds": seconds,
}


@functools.cache
def declarations(module: str) -> Mapping[str, Any]:
    """Return what the file beside that of a module declares: ``memory.options.toml`` for ``memory.py``."""
    return tomllib.loads(Path(module).with_suffix(".options.toml").read_text(encoding="utf-8"))


def subcommands(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the subcommands of a table, with their tables."""
    return ((name, entry) for name, entry in table.items() if isinstance(entry, dict) and "about" in entry)


def dashed_file(words: Iterable[str]) -> str | None:
    """Return how a file is named that one of some words may mean which was read as an option; `None` for none.

    Examples
    --------
    >>> dashed_file(["--key", "id", "-dash.csv"]), dashed_file(["--limit=1.5", "-1.5", "-"])
    ("A file whose name begins with a dash is written ./-dash.csv, in SQL FROM './-dash.csv'.", None)
    """
    name = next((word for word in words if _DASHED_FILE.fullmatch(word)), None)
    return name and f"A file whose name begins with a dash is written ./{name}, in SQL FROM {quote_text('./' + name)}."


def declare(
    parser: argparse.ArgumentParser,
    table: Mapping[str, Any],
    shared: Mapping[str, Any],
    types: Mapping[str, Callable[[str], Any]],
) -> None:
    """Add the arguments of a table to a parser.

    Parameters
    ----------
    parser
        The parser.
    table
        What is declared of it.
    shared
        Arguments that several tables of the file have.
    types
        Types beside those of this module, by their names.
    """
    # A magic's parser also hears what completion offers.
    take = getattr(parser, "take", parser.add_argument)
    for names, entry in table.items():
        options = shared[names] if entry is True and names in shared else entry
        if not isinstance(options, dict) or "about" in options:
            continue
        options = dict(options)
        # What argparse shows of several values is a tuple, which this form of file does not have.
        if isinstance(options.get("metavar"), list):
            options["metavar"] = tuple(options["metavar"])
        if "type" in options:
            options["type"] = {**_TYPES, **types}[options["type"]]
        if options.pop("absent", False):
            options["default"] = argparse.SUPPRESS
        take(*names.split(), **options)


def json_or_text(text: str) -> Any:
    """Return the value that a text is as JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def note_on_text(text: str) -> str:
    """Return what to tell of a text that begins like JSON's list or object and was saved as text; empty for others."""
    if not text.lstrip().startswith(("[", "{")):
        return ""
    try:
        json.loads(text)
    except ValueError as exc:
        return f"saved as text: it is not JSON ({exc})"
    return ""


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
