"""Numbers in texts: how they are written elsewhere, and how a column of a file becomes one of numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from nbtools.sql.files.calls import FileCall
from nbtools.sql.files.cell_texts import Ask
from nbtools.sql.files.csv import DECIDED, described
from nbtools.texts.sql_quotes import quote_identifier, quote_text
from nbtools.texts.visible import brief

NUMBERS: dict[str, tuple[str, str]] = {
    "1234.5": ("", "."),
    "1,234.5": (",", "."),
    "1'234.5": ("'", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1 234,5": (" ", ","),
}
"""Forms of numbers: what stands between thousands, and the decimal sign."""
_OTHERS = ("1.234,5", "1,234.5", "1'234.5", "1 234,5")  # than SQL's, with options of DuckDB
# Of a currency or a share, before a number or behind it, which is left out.
_SIGNS = r"[$€£¥%\s]"
_MOST_COLUMNS = 100  # that are looked at for the hint of an error
_SHOWN, _TOLD = 40, 3  # letters of a cell, and columns


def number_pattern(form: str) -> str:
    """Return a pattern of all texts that are numbers in one of `NUMBERS`, with a sign between thousands or without."""
    thousands, decimal = map(re.escape, NUMBERS[form])
    grouped = f"[1-9][0-9]{{0,2}}(?:{thousands}[0-9]{{3}})+|" if thousands else ""  # no thousands in 0,123
    return f"[+-]?(?:(?:{grouped}[0-9]+)(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?"


def ways_to_numbers(call: FileCall, opened: FileCall, text: str, ask: Ask, words: Sequence[str]) -> list[str]:
    """Return how the columns of texts that a query names are read as numbers: by other marks, or without one cell.

    Parameters
    ----------
    call, opened
        How the query reads a file, and how the engine reads it.
    text
        The query.
    ask
        Runs a query and returns its rows.
    words
        What stands for missing values.
    """
    kinds = described(opened, ask, {"sample_size": "-1"})
    quoted = ((name, quote_identifier(name)) for name, kind in kinds.items() if kind == "VARCHAR")
    is_named = r"(?i)(?<!\w){}(?!\w)".format
    named = (pair for pair in quoted if re.search(is_named(re.escape(pair[1][1:-1])), text))
    cells = dict(itertools.islice(named, _MOST_COLUMNS))
    if not cells:
        return []
    gaps = ", ".join(map(quote_text, ["", *words]))
    parts = []
    for cell in cells.values():
        tests = [f"TRY_CAST({cell} AS DOUBLE) IS NOT NULL"]
        bare = f"regexp_replace({cell}, '^{_SIGNS}+|{_SIGNS}+$', '', 'g')"
        patterns = [quote_text(number_pattern(form)) for form in _OTHERS]
        tests += [f"regexp_full_match({each}, {pattern})" for each in (cell, bare) for pattern in patterns]
        counts = (f"count(*) FILTER ({cell} NOT IN ({gaps}) AND {test})" for test in ("true", *tests))
        odd = f"({cell}) FILTER ({cell} NOT IN ({gaps}) AND NOT {tests[0]})"
        parts += [f"[{', '.join(counts)}]", f"[min{odd}, max{odd}]"]
    row = ask(f"SELECT {', '.join(parts)} FROM {opened.text({'all_varchar': 'true'})}")[0]
    ways, seen = list[str](), set[tuple[str, str]]()
    for at, form in enumerate((*_OTHERS, *_OTHERS), 2):
        mark, decimal = NUMBERS[form]
        # A code such as 007 has no marks.
        fits = [name for name, counts in zip(cells, row[::2], strict=True) if counts[at] == counts[0] > counts[1]]
        # What has no sign between thousands fits all forms with the same decimal sign.
        names = [name for name in fits if (name, decimal) not in seen]
        seen |= {(name, decimal) for name in names}
        if at >= 2 + len(_OTHERS):
            ways += [f"{_bare_number(cells[name], decimal)} reads {name} as a number" for name in names]
        elif names and DECIDED.isdisjoint(call.options):
            way = call.text({"decimal_separator": quote_text(decimal), "thousands": quote_text(mark)})
            ways.append(f"FROM {way} reads {', '.join(names)} as a number")
    if not ways:
        for (name, cell), (count, numbers, *_), (least, most) in zip(cells.items(), row[::2], row[1::2], strict=True):
            if 2 * numbers > count and least == most is not None:
                way = f"TRY_CAST({cell} AS DOUBLE) reads {name} as a number"
                ways.append(f"{way}, and {brief(least, _SHOWN)!r} as missing")
    return ways[:_TOLD]


def _bare_number(cell: str, decimal: str) -> str:
    """Return the number of a cell without its marks: of a currency, of a share, between thousands."""
    digits = f"regexp_replace({cell}, '[^0-9{decimal}eE+-]', '', 'g')"
    digits = f"replace({digits}, ',', '.')" if decimal == "," else digits
    return f"TRY_CAST({digits} AS DOUBLE)"
