"""Options: how each file of a query is read, what was found in it, and the query with other options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbtools.errors import NbtoolsError, SqlInvalid
from nbtools.sql.files.calls import FileCall, Form, constant
from nbtools.sql.verdict.edits import TextEdit, rewrite
from nbtools.texts.sql_quotes import quote_text

# DuckDB has several names for some options.
_NAMES = {"delimiter": "delim", "sep": "delim", "null": "nullstr", "decimal": "decimal_separator"}


class MissingWords(NamedTuple):
    """In a column, so many cells hold one of these words and are read as missing."""

    column: str
    cells: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.column}: {self.cells:,} \u00d7 {' or '.join(map(quote_text, self.words))} read as missing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionsOfFile:
    """How a file of a query is read.

    Attributes
    ----------
    file
        Its name, as the query writes it.
    form
        ``"csv"``, ``"json"`` or ``"workbook"``.
    options
        Those that hold, by the name that its reader has for them.
    explicit
        Names of those that the query says; the others were found in the file.
    encodings
        In which the file may be, the likeliest first; empty where its first bytes tell.
    sheets
        The names of a workbook's sheets.
    missing
        Words that are read as missing.
    types
        Of the columns of a CSV file, by their names; empty where they are not known, or its first lines are odd.
    formats
        How its dates and moments are written, where not as in ISO.
    own_forms
        How those of some columns are, by their names.
    has_gaps
        Whether there may be blank lines in it.
    problem
        Why it cannot be read so; empty where it can.
    calls
        Its places in the query, all with the same text.
    sql
        The query.
    """

    file: str
    form: Form
    options: Mapping[str, Any]
    explicit: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    sheets: tuple[str, ...] = ()
    missing: tuple[MissingWords, ...] = ()
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    formats: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_forms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_gaps: bool = True
    problem: str = ""
    calls: tuple[FileCall, ...] = dataclasses.field(repr=False)
    sql: str = dataclasses.field(repr=False)

    def rewritten(self, **changes: Any) -> str:
        """Return the query with other options for this file.

        Parameters
        ----------
        **changes
            Texts, numbers, truth values, or lists of texts; `None` leaves it to the file again.

        Raises
        ------
        SqlInvalid
            An option has another kind of value.
        """
        call = self.calls[0]
        new = {_NAMES.get(name, name): value for name, value in changes.items()}
        rest = {name: text for name, text in call.options.items() if _NAMES.get(name, name) not in new}
        rest |= {name: _text_of(name, value) for name, value in new.items() if value is not None}
        call = call._replace(options=rest, function=call.function.replace("workbook", "xlsx"))
        edits = []
        for each in self.calls:
            # A function that was written has its own name already, and so may one place where a file is read.
            source = self.sql[each.start : each.end]
            bare = source.lstrip()[:1] in {"'", '"'} or "(" not in source
            text = each.head + call.text({}) + (each.tail if bare else "")
            edits.append(TextEdit(each.start, each.end, text))
        return rewrite(self.sql, edits)


def values_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of options as a query writes them; of one that is not a constant, its text."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        try:
            values[_NAMES.get(name, name)] = constant(text)
        except SqlInvalid:
            values[_NAMES.get(name, name)] = text
    return values


def sheet_names(path: Path) -> tuple[str, ...]:
    """Return the names of a workbook's sheets.

    Raises
    ------
    SqlInvalid
        It is not a workbook that can be read.
    """
    import pandas as pd

    try:
        with pd.ExcelFile(path) as book:
            return tuple(map(str, book.sheet_names))
    except NbtoolsError:
        raise
    except Exception as exc:  # the readers raise errors of zip, XML and their own formats
        raise SqlInvalid(f"{path.name} is not a workbook that can be read: {exc}") from exc


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return quote_text(value) if isinstance(value, str) else str(value)
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return f"[{', '.join(map(quote_text, value))}]"
    raise SqlInvalid(f"the option {name} takes no {type(value).__name__}.", hint="Give a text, a number or a list.")
