"""Numbers in texts: how they are written elsewhere, and how a column of a file becomes one of numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from nbtools.sql.files.calls import FileCall
from nbtools.sql.files.cell_texts import Ask, described
from nbtools.sql.files.csv import DECIDED
from nbtools.texts.sql_quotes import quote_identifier, quote_text
from nbtools.texts.visible import brief, counted

NUMBERS: dict[str, tuple[str, str]] = {
    "1234.5": ("", "."),
    "1,234.5": (",", "."),
    "1'234.5": ("'", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1 234,5": (" ", ","),
}
"""Forms of numbers: what stands between thousands, and the decimal sign."""
# Than SQL's, with options of DuckDB; those with its decimal point first.
_OTHERS = ("1,234.5", "1'234.5", "1.234,5", "1 234,5")
# Of a currency, a share or a unit, which is left out; x5 and A-5 are codes.
_BEFORE, _BEHIND = r"(?:\p{L}*[$€£¥\s])*", r"[$€£¥%°²³\s\p{L}]*"
_EXPONENT = "(?:[eE][+-]?[0-9]+)?"  # which would be a letter of a unit
_MOST_COLUMNS = 100  # that are looked at for the hint of an error
_SHOWN, _TOLD = 40, 3  # letters of a cell, and columns


def number_pattern(form: str) -> str:
    """Return a pattern of all texts that are numbers in one of `NUMBERS`, with a sign between thousands or without."""
    thousands, decimal = map(re.escape, NUMBERS[form])
    grouped = f"[1-9][0-9]{{0,2}}(?:{thousands}[0-9]{{3}})+|" if thousands else ""  # no thousands in 0,123
    return f"[+-]?(?:(?:{grouped}[0-9]+)(?:{decimal}[0-9]*)?|{decimal}[0-9]+){_EXPONENT}"


def ways_to_numbers(call: FileCall, opened: FileCall, text: str, ask: Ask, words: Sequence[str]) -> list[str]:
    """Return how the columns of texts that a query names are read as numbers: by other marks, or without one cell.

    Parameters
    ----------
    call
        How the query reads a file.
    opened
        How the engine reads that file.
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
    parts = [part for cell in cells.values() for part in _questions(cell, words)]
    row = ask(f"SELECT {', '.join(parts)} FROM {opened.text({'all_varchar': 'true'})}")[0]
    counts, ways, seen = dict(zip(cells, row[::2], strict=True)), list[str](), set[tuple[str, str]]()
    for at, form in enumerate((*_OTHERS, *_OTHERS), 2):
        mark, decimal = NUMBERS[form]
        # A code such as 007 has no marks.
        fits = [name for name, each in counts.items() if each[at] == each[0] > each[1]]
        # What has no sign between thousands fits all forms with the same decimal sign. Where a point may be that sign,
        # a comma is not if all numbers are the same by it, or one that SQL itself reads becomes another.
        names = [name for name in fits if (name, decimal) not in seen]
        names = [name for name in names if (name, ".") not in seen or (counts[name][-3] and not counts[name][-2])]
        seen |= {(name, decimal) for name in names}
        if at >= 2 + len(_OTHERS):  # 500 g and 12 kg are not numbers of one unit, nor is 3 x among bare numbers
            signs = {name: each[-4] > 0 for name in names if (each := counts[name])[-1] <= 1 and 2 * each[1] <= each[0]}
            ways += [f"{_bare_number(cells[name], decimal, signs[name])} reads {name} as a number" for name in signs]
        elif names and DECIDED.isdisjoint(call.options):
            way = call.text({"decimal_separator": quote_text(decimal), "thousands": quote_text(mark)})
            ways.append(f"FROM {way} reads {', '.join(names)} as a number")
    return (ways or _ways_to_some(cells, counts, row[1::2]))[:_TOLD]


def _questions(cell: str, words: Sequence[str]) -> tuple[str, str]:
    """Return what counts the cells of a column that are there, and those that are numbers by each rule.

    The last four counts are of minus signs behind numbers, of cells that are another number by a decimal comma, of
    those among them that SQL itself reads, and of units. What follows are the least and the greatest of the cells that
    are not numbers.
    """
    tests = ["true", f"TRY_CAST({cell} AS DOUBLE) IS NOT NULL"]
    patterns = [number_pattern(form) for form in _OTHERS]
    patterns += [f"{_BEFORE}(?:{pattern.removesuffix(_EXPONENT)})-?{_BEHIND}" for pattern in patterns]
    tests += [f"regexp_full_match({cell}, {quote_text(pattern)})" for pattern in patterns]
    changed = f"{_bare_number(cell, ',', False)} IS DISTINCT FROM {_bare_number(cell, '.', False)}"
    tests += [f"regexp_matches({cell}, '[0-9]-[^0-9]*$')", changed, f"{changed} AND {tests[1]}"]
    is_there = f"{cell} NOT IN ({', '.join(map(quote_text, ['', *words]))})"
    counts = [f"count(*) FILTER ({is_there} AND {test})" for test in tests]
    units = f"nullif(regexp_replace({cell}, '[-+0-9.,''\\s]', '', 'g'), '')"
    counts.append(f"count(DISTINCT {units}) FILTER ({is_there})")
    odd = f"({cell}) FILTER ({is_there} AND NOT {tests[1]})"
    return f"[{', '.join(counts)}]", f"[min{odd}, max{odd}]"


def _ways_to_some(
    cells: Mapping[str, str], counts: Mapping[str, Sequence[int]], ends: Iterable[tuple[str | None, str | None]]
) -> list[str]:
    """Return how columns are read of which some cells alone are numbers; see `_questions`."""
    ways, others = list[str](), list[str]()
    for (name, (count, numbers, *fits)), (least, most) in zip(counts.items(), ends, strict=True):
        way, cell = f"TRY_CAST({cells[name]} AS DOUBLE) reads", brief(least or "", _SHOWN)
        if 2 * numbers > count and least == most is not None:
            ways.append(f"{way} {name} as a number, and {cell!r} as missing")
        elif numbers and least is not None:
            others.append(
                f"{way} {numbers:,} of {counted(count, 'cell')} of {name}; the rest, such as {cell!r}, is null"
            )
        elif least is not None and len(cells) == 1:  # a query names others for their texts
            units = "numbers with different units" if count in fits[:-4] else "no numbers, but texts"
            others.append(f"{name} holds {units}, such as {cell!r}")
    return ways or others


def _bare_number(cell: str, decimal: str, is_behind: bool) -> str:
    """Return the number of a cell without its marks: of a unit, between thousands, or a minus sign behind it."""
    digits = f"regexp_replace({cell}, '[^0-9{decimal}-]', '', 'g')"
    digits = f"replace({digits}, ',', '.')" if decimal == "," else digits
    digits = f"regexp_replace({digits}, '^(.+)-$', '-\\1')" if is_behind else digits
    return f"TRY_CAST({digits} AS DOUBLE)"
