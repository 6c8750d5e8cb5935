"""Headings: whether a first row names the columns of a file or a sheet, or is a row of it."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any

from nbtools.sql.verdict.reviewed import names

_NUMBERED = re.compile(r"(.+)_\d+")  # DuckDB's name for a column whose own is taken
_IS_VALUE = re.compile(r"[\s\d.,:;+/%€$£()-]*\d[\s\d.,:;+/%€$£()TZe-]*")
TEXTS = names("BLOB NULL VARCHAR") | {'"NULL"'}
"""Types of columns that hold no other values than texts."""
_HOLDS_MOMENT = re.compile(r"(?<!\d)(?:\d{4}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2\d{2,4}|\d\d?:\d\d:\d\d)(?!\d)")
_NUMBER, _YEAR = re.compile(r"[+-]?\d[\d.,]*"), re.compile(r"(?:19|20)\d\d")
_ROW = "its first line is read as a row, because it looks like the lines below it; header = true makes it the header"
_YEARS = "its first line is read as the header, because it holds years in equal steps; header = false makes it a row"
PERHAPS_ROW = "its first line is read as the header, though it looks like a row; header = false makes it a row"
"""What is told of a first row that may be one of the others."""
LIKE_ROWS = 20
"""Rows that a first one is compared with."""
_LETTERS, _FEWEST_WORDS = 40, 4  # of a line in which a moment stands, and of a sentence
UNNAMED = re.compile(r"column(\d+)")
"""DuckDB's name for a column that has none, by its place."""


def names_columns(columns: Iterable[str], types: Iterable[Any]) -> bool:
    """Tell whether the names of a text file or a sheet surely are not a row of it: a column holds other than texts."""
    return not TEXTS.issuperset(types) and not any(map(_IS_VALUE.fullmatch, columns))


def may_be_renamed(labels: Sequence[str]) -> bool:
    """Tell whether one of the names may be DuckDB's, for a column or key that differs from another only in case."""
    folded = {name.casefold() for name in labels}
    return any((base := _NUMBERED.fullmatch(name)) and base[1] in folded for name in folded)


def may_be_row(labels: Sequence[str]) -> bool:
    """Tell whether the names of columns may be a row: one is a number, holds a date or a time, or is a sentence alone.

    Years and other numbers in equal steps are names.

    Examples
    --------
    >>> may_be_row(["id", "2019", "2020"]), may_be_row(["anna", "12"]), may_be_row(["10:00:01 INFO ready"])
    (False, True, True)
    """
    kinds = [*map(_kind_of, labels)]
    numbers = [float(name) for name, kind in zip(labels, kinds, strict=True) if kind == "number" and name.isdecimal()]
    is_series = len(numbers) > 1 and len({after - before for before, after in itertools.pairwise(numbers)}) == 1
    values = {*kinds} - {"text", "gap"} - ({"number"} if is_series else set())
    return bool(values) or (len(labels) == 1 and kinds[0] == "text" and _is_sentence(labels[0]))


def is_row(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool | None:
    """Tell whether a first row, which `may_be_row`, is one; `None` where it is not sure.

    Examples
    --------
    >>> is_row(["anna", "12"], [["ben", "13"], ["eve", "x"]]), is_row(["x", "5"], [["1", "6"], ["2", "7"]])
    (True, None)
    >>> is_row(["country", "2020-01-22", "2020-01-23"], [["Chad", "1", "3"]])
    False
    """
    kinds, others = [*map(_kind_of, first)], [[*map(_kind_of, row)] for row in rows]
    if 0 < len(rows) <= 2 * others.count(kinds) and {*kinds} != {"text"}:
        return True
    if len(first) == 1:
        return None if 2 * sum(_is_sentence(row[0]) for row in rows) >= max(len(rows), 1) else False
    # Dates above numbers are names.
    alike = (
        2 * column.count(kind) >= len(others) for kind, column in zip(kinds, zip(*others, strict=True), strict=False)
    )
    values = (kind in {"moment", "number"} for kind in kinds)
    return None if any(map(operator.and_, alike, values)) else False


def heading(first: Sequence[str], rows: Sequence[Sequence[str]], *, is_header: bool) -> tuple[dict[str, str], str]:
    """Return the option that a file needs where DuckDB takes a row for its header, or the other way, with a phrase.

    Parameters
    ----------
    first
        The cells of the first line.
    rows
        Those of the lines below it, at most `LIKE_ROWS`.
    is_header
        Whether DuckDB takes the first line for the header.
    """
    if not is_header:
        return ({"header": "true"}, _YEARS) if names_years(first, rows) else ({}, "")
    sureness = is_row(first, rows)
    return ({"header": "false"}, _ROW) if sureness else ({}, "" if sureness is False else PERHAPS_ROW)


def names_years(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether a first row names columns by years, and is not one of many rows that hold some.

    Examples
    --------
    >>> names_years(["land", "2019", "2020"], [["Chad", "1", "3"]]), names_years(["2019", "2020"], [["2018", "2021"]])
    (True, False)
    """
    return _holds_years(first) and 2 * sum(map(_holds_years, rows)) < len(rows)


def _holds_years(row: Sequence[str]) -> bool:
    """Tell whether numbers of a row are years in equal steps, at least two of them."""
    numbers = [cell for cell in row if _NUMBER.fullmatch(cell)]
    if len(numbers) < 2 or not all(map(_YEAR.fullmatch, numbers)):
        return False
    steps = {int(after) - int(before) for before, after in itertools.pairwise(numbers)}
    return len(steps) == 1 and 0 not in steps


def _kind_of(cell: str) -> str:
    if _HOLDS_MOMENT.search(cell[:_LETTERS]):
        return "moment"
    is_number = _NUMBER.fullmatch(cell) is not None and not _YEAR.fullmatch(cell)
    return "number" if is_number else "text" if cell.strip() else "gap"


def _is_sentence(cell: str) -> bool:
    return len(cell.split()) >= _FEWEST_WORDS


def named_columns(names: Sequence[str]) -> list[bool]:
    """Tell which columns of a file have names."""
    own = map(UNNAMED.fullmatch, names)
    return [match is None or int(match[1]) != at for at, match in enumerate(own)]
