"""Cells: what fits a type, in SQL, and here for small files: to plan a statement takes longer than to read them."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from nbtools.sql.files.calls import constant
from nbtools.sql.verdict.reviewed import names
from nbtools.texts.sql_quotes import quote_text

SMALL_BYTES = 100_000
"""Of a file with so many, the cells are counted here."""
_FORMS = {"DATE": "%Y-%m-%d", "TIMESTAMP": "%Y-%m-%d %H:%M:%S"}
# What surely is a value of a type and stays the same one: no code that begins with a zero, no digit that is lost.
_SURE = {
    "BIGINT": r"[+-]?+(?:0|[1-9]\d{0,17}+)",
    "DOUBLE": r"[+-]?+(?:0|[1-9]\d{0,14}+)(?:\.\d++)?+(?:[eE][+-]?\d\d?+)?+",
    "BOOLEAN": "(?i:true|false|t|f)",
    "TIME": r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?",
}
_IS_TRUTH = re.compile(_SURE["BOOLEAN"])
# Lines of them: a match for each cell takes three times as long.
_ALL_SURE = {kind: re.compile(rf"(?:(?:{pattern})(?:\n|\Z))*+") for kind, pattern in _SURE.items()}
GROUPED = r"[+-]?(?:0|[1-9]\d{0,2}(?:\.\d{3})?)"
"""A pattern of floats whose point may stand between thousands."""
COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+")
"""A pattern of numbers whose decimal sign is a comma."""
COMMA_NUMBER = "NUMBER,"
"""What stands for a type of numbers with decimal commas, which no type of SQL reads."""
_PART = re.compile("%([dmYHMS])")
_LIKELY = {
    "DOUBLE": re.compile(r"\s*[+-]?(?=\.?\d)(?:0|[1-9]\d{0,14})?(?:\.\d*)?(?:[eE][+-]?\d\d?)?\s*"),
    "DATE": re.compile(r"\d{4}-\d\d-\d\d"),
    "BOOLEAN": re.compile("(?i:true|false)"),
    COMMA_NUMBER: re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),(?:\d\d?|\d{4,})"),  # 1,234 may be a whole number
}
_COMMA_OR_WHOLE = r"\s*[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d*)?\s*"
_FITS = _LIKELY | {COMMA_NUMBER: re.compile(_COMMA_OR_WHOLE)}
_PLAIN_BYTES = 16_000  # DuckDB is as fast in texts of twice as many
USUAL_MARKS = ",;\t|"
"""What may stand between cells; the first that a file can be divided by does."""
# What is a name, and what is a value of no other type than text.
_NAME = re.compile(r"(?i:(?!(?:[tfyn]|true|false|yes|no|nan?|inf|infinity|epoch|null|none)\b)[a-z_][\w ]*)", re.ASCII)
_TEXT = re.compile(rf"{_NAME.pattern}|(?i:[a-z_])[\w ]*[,;|&(][\w ,;|&()/-]*|0\d+", re.ASCII)
_FEWEST, _SHARE = 10, 20  # cells that fit, at least, and of how many one may not
_LOOKED_AT, _SEARCHED = 2, 4_000  # cells of a column, and bytes of a file, that tell what may fit
CODE = r"[\w-]*\d[\w-]*|\s*[+-]?0\d.*"
"""A pattern of codes, which stay texts for a reason, among numbers, dates or booleans."""
_CODE = re.compile(CODE, re.ASCII)
WHOLE_TYPES = names("BIGINT HUGEINT INTEGER UBIGINT UHUGEINT")
"""Types of whole numbers."""
_DATE, _MOMENT = r"\d{4,}-\d{1,2}-\d{1,2}", r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?"


class Strays(NamedTuple):
    """What makes texts of a column: the type that most of its cells fit, how many do not, one of them, and the rest."""

    kind: str
    bad: int
    cell: str
    others: int

    def are_few(self) -> bool:
        """Tell whether the cells that do not fit are few beside the others, and none is a value that a type changes."""
        return bool(self.cell) and self.others >= max(_FEWEST, (_SHARE - 1) * self.bad)


class Count(NamedTuple):
    """Of the cells of a column: how many do not fit its type, and how many are each of the words for missing ones.

    And the other forms of dates in which all of them can be read, as other ones; the first cell that is there; and of a
    column of texts, what makes it one.
    """

    bad: int
    missing: Mapping[str, int]
    forms: tuple[str, ...] = ()
    first: str | None = None
    strays: Strays | None = None


class PlainColumns(NamedTuple):
    """Names and types of the columns of a very small file, what stands between its cells, and what is in these."""

    types: dict[str, str]
    mark: str
    counts: dict[int, Count]


@functools.lru_cache(maxsize=1)
def plain_columns(content: bytes, words: tuple[str, ...]) -> PlainColumns | None:
    r"""Return what DuckDB surely finds in a very small file; `None` where it is to look itself.

    Its cells hold nothing but letters, digits and signs of numbers, or stand in quotes. One mark stands between all of
    them, and below the names each column holds numbers, or a word. For the parameters see `count_cells`.

    Examples
    --------
    >>> plain_columns(b"id;name\n1;Ada\n2;N/A\n", ("N/A",)).types, plain_columns(b"id,day\n1,2024-01-31\n", ())
    ({'id': 'BIGINT', 'name': 'VARCHAR'}, None)
    """
    first = content[: content.find(b"\n")].decode(errors="replace")
    mark = next((mark for mark in USUAL_MARKS if mark in first), "")
    if not mark or len(content) > _PLAIN_BYTES or _plain_text(mark).fullmatch(content) is None:
        return None
    header, *rows = _lines(content, mark)
    is_named = all(map(_NAME.fullmatch, header)) and len({name.lower() for name in header}) == len(header) > 1
    if not is_named or {*map(len, rows)} != {len(header)}:
        return None
    kinds, counts = dict[str, str](), dict[int, Count]()
    for at, (name, column) in enumerate(zip(header, zip(*rows, strict=True), strict=True)):
        cells, missing = _there(column, words)
        numbers = (kind for kind in ("BIGINT", "DOUBLE") if cells and _are_sure(kind, cells))
        kinds[name] = next(numbers, "VARCHAR" if any(map(_TEXT.fullmatch, cells)) else "")
        strays = _strays(cells) if kinds[name] == "VARCHAR" else None
        counts[at] = Count(0, missing, (), next(iter(cells), None), strays)
    is_sure = "" not in kinds.values() and {*kinds.values()} != {"VARCHAR"}
    return PlainColumns(kinds, mark, counts) if is_sure else None


@functools.cache
def _plain_text(mark: str) -> re.Pattern[bytes]:
    mark = re.escape(mark)
    cell = rf'(?:"[\w. {mark}&()/-]++"|[\w. /-]*+)'
    line = rf"(?!\n){cell}(?:{mark}{cell})*+"
    return re.compile(rf"(?:{line}\n)++(?:{line})?+".encode())


def _there(column: Iterable[str], words: Collection[str]) -> tuple[Counter[str], dict[str, int]]:
    """Return how many cells of a column are each text that is there, and each of the words for missing ones."""
    cells = Counter(column)
    del cells[""]
    return cells, {word: count for word in words if (count := cells.pop(word, 0))}


def _are_sure(kind: str, cells: Collection[str]) -> bool:
    """Tell whether cells surely are values of a type, and stay the same ones."""
    lines = "\n".join(cells)
    return _ALL_SURE[kind].fullmatch(lines) is not None and lines.count("\n") == max(len(cells) - 1, 0)


def count_cells(
    content: bytes, form: Mapping[str, str], types: Sequence[str], formats: Mapping[str, str], words: Sequence[str]
) -> dict[int, Count] | None:
    """Count the cells of all columns, of texts the words alone; `None` where one of them may not fit its type.

    Parameters
    ----------
    content
        The file, in UTF-8.
    form
        The options that say how it is written.
    types
        Those of its columns, which DuckDB found in all lines.
    formats
        How its dates and moments are written, where not as in ISO.
    words
        What stands for missing values.
    """
    rows = _rows(content, form, len(types))
    if rows is None:
        return None
    counts = {}
    for at, column in enumerate(zip(*rows, strict=True)):
        cells, missing = _there(column, words)
        first = next(iter(cells), None)
        if types[at] in {"BOOLEAN", "VARCHAR"}:  # every cell is a text, and nothing but some words a truth value
            fits = _IS_TRUTH.fullmatch if types[at] == "BOOLEAN" else bool
            bad = sum(count for cell, count in cells.items() if not fits(cell))
            counts[at] = Count(bad, missing, (), first, _strays(cells) if types[at] == "VARCHAR" else None)
            continue
        forms = _other_forms(types[at], formats.get(types[at]) or _FORMS.get(types[at], ""), cells)
        if forms is None:
            return None
        counts[at] = Count(0, missing, forms, first)
    return counts


@functools.lru_cache(maxsize=1)  # several ask about a file in turn
def _lines(content: bytes, mark: str) -> list[list[str]]:
    """Return the lines of a file as cells; none where a quote is not closed."""
    try:
        return list(csv.reader(io.StringIO(content.decode(errors="replace"), newline=""), delimiter=mark, strict=True))
    except csv.Error:
        return []


def _rows(content: bytes, form: Mapping[str, str], width: int) -> list[list[str]] | None:
    """Return the rows of a file without its header; `None` where not all are surely what the engine reads."""
    mark, quote, escape, comment = (str(constant(form[name])) for name in ("delim", "quote", "escape", "comment"))
    is_usual = len(mark) == 1 and not comment and form["skip"] == "0" and escape in {"", quote}
    if not is_usual or (quote != '"' and (quote or b'"' in content)):
        return None
    rows = _lines(content, mark)
    return rows[form["header"] == "true" :] if {*map(len, rows)} == {width} else None


def first_rows(content: bytes, form: Mapping[str, str], width: int) -> list[list[str]] | None:
    """Return the first rows of a file, its header too; see `_rows`."""
    end = len(content) if len(content) <= _SEARCHED else content.rfind(b"\n", 0, _SEARCHED) + 1
    return _rows(content[:end], {**form, "header": "false"}, width)


def likely_type(cells: Iterable[object]) -> str:
    """Return the type that a column of texts may have but for some cells, by its first ones; empty where none is.

    Examples
    --------
    >>> likely_type(["EUR", "19.99"]), likely_type(["007"]), likely_type(["2024-01-31"])
    ('DOUBLE', '', 'DATE')
    """
    texts = [*map(str, itertools.islice(cells, _LOOKED_AT))]
    return next((kind for kind, likely in _LIKELY.items() if any(map(likely.fullmatch, texts))), "")


def likely_types(
    content: bytes, form: Mapping[str, str], types: Sequence[str], words: Collection[str]
) -> dict[int, str] | None:
    """Return the types that columns of texts may have but for some cells, by their places; see `count_cells`."""
    texts = [at for at, kind in enumerate(types) if kind == "VARCHAR"]
    rows = _rows(content[: content.rfind(b"\n", 0, _SEARCHED) + 1], form, len(types)) if texts else []
    if rows is None:
        return None
    there = {at: Counter(row[at] for row in rows if row[at] and row[at] not in words) for at in texts}
    strays_of = ((at, _strays(cells)) for at, cells in there.items())
    return {at: strays.kind for at, strays in strays_of if strays is not None and strays.others > strays.bad}


def _strays(cells: Mapping[str, int]) -> Strays | None:
    """Return what makes texts of cells, of which each is counted; `None` where they are codes or fit no other type."""
    if not (likely := likely_type(cells)):
        return None
    odd = {cell: count for cell, count in cells.items() if _FITS[likely].fullmatch(cell) is None}
    return strays_among(likely, odd, sum(cells.values()) - sum(odd.values()))


def strays_among(kind: str, odd: Mapping[str, int], others: int) -> Strays | None:
    """Return what makes texts of cells that are values of a type but for odd ones; `None` where those are codes."""
    is_code = not kind or any(map(_CODE.fullmatch, odd))
    return None if is_code else Strays(kind, sum(odd.values()), min(odd, default=""), others)


def _other_forms(kind: str, form: str, cells: Collection[str]) -> tuple[str, ...] | None:
    """Return the other forms in which cells that fit their type can be read; `None` where one may not fit it."""
    if not form:
        return () if kind in _SURE and _are_sure(kind, cells) else None
    pattern = re.compile(_PART.sub(lambda part: r"(\d{4})" if part[1] == "Y" else r"(\d\d?)", re.escape(form)))
    matches = [match for cell in cells if (match := pattern.fullmatch(cell)) is not None]
    if "%" in _PART.sub("", form) or len(matches) < len(cells):
        return None
    numbers = [[int(number) for number in match.groups()] for match in matches]
    own = _moments(form, numbers)
    others = ((other, _moments(other, numbers)) for other in other_orders(form))
    return None if own is None else tuple(other for other, read in others if read is not None and read != own)


def _moments(form: str, numbers: Sequence[Sequence[int]]) -> list[datetime] | None:
    """Return the moments whose parts stand in the order of a form; `None` where one is not a moment."""
    moments = []
    for each in numbers:
        part = {"H": 0, "M": 0, "S": 0} | dict(zip(_PART.findall(form), each, strict=True))
        try:
            moments.append(datetime(part["Y"], part["m"], part["d"], part["H"], part["M"], part["S"], tzinfo=UTC))
        except (KeyError, ValueError):
            return None
    return moments


def other_orders(form: str) -> list[str]:
    """Return the forms of dates that differ from one in the order of its parts alone.

    Examples
    --------
    >>> other_orders("%y.%m.%d"), other_orders("%d.%m.%Y"), other_orders("%Y-%m-%d")
    (['%d.%m.%y', '%m.%d.%y'], ['%m.%d.%Y'], [])
    """
    parts = re.findall("%[dmyY]", form)
    if len(parts) != len({*parts}) or parts[:1] == ["%Y"]:  # four digits are not a day
        return []
    year = next((part for part in parts if part in "%y%Y"), "")
    orders = [["%d", "%m", year], ["%m", "%d", year], *([[year, "%m", "%d"]] if year == "%y" else [])]
    pattern = re.sub("%[dmyY]", "{}", form.replace("{", "{{").replace("}", "}}"))
    return [pattern.format(*order) for order in orders if sorted(order) == sorted(parts) and order != parts]


def moment_type(form: str) -> str:
    """Return the type of what is written in a form of dates."""
    return "TIMESTAMP" if "%H" in form else "DATE"


def unclosed_quote(content: bytes, mark: str) -> int:
    r"""Return the line of the first quote that opens a cell and does not end it; 0 where all do.

    Examples
    --------
    >>> unclosed_quote(b'a,b\n1,"x\ny"\n2,"z\n3,w\n', ","), unclosed_quote(b'a,"x ""y"" z"', ",")
    (4, 0)
    """
    text = content.decode(errors="replace")
    for match in re.finditer(rf'(?:^|(?<=[{re.escape(mark)}\r\n]))"(?:[^"]|"")*("?)', text):
        if not match[1] or text[match.end() : match.end() + 1] not in {"", mark, "\r", "\n"}:
            return text.count("\n", 0, match.start()) + 1
    return 0


def misfit_of(cell: str, kind: str, formats: Mapping[str, str]) -> str:
    """Return the condition that a cell is not a value of a type, or would become another one."""
    cast = f"TRY_CAST({cell} AS {kind})"

    def unless(pattern: str) -> str:
        # The pattern, which costs more, is asked for the rest alone.
        rest = f"{cast} IS NULL OR NOT regexp_full_match({cell}, '{pattern}')"
        return f"CASE WHEN CAST({cast} AS VARCHAR) = {cell} THEN false ELSE {rest} END"

    if kind in formats:
        moment = f"try_strptime({cell}, {quote_text(formats[kind])})"
        # %Y takes 26 for the year 26; 0026 means it.
        return rf"coalesce(year({moment}), 0) < 100 AND ({moment} IS NULL OR NOT regexp_matches({cell}, '00\d\d'))"
    if kind == COMMA_NUMBER:
        return f"NOT regexp_full_match({cell}, {quote_text(_COMMA_OR_WHOLE)})"
    if kind in WHOLE_TYPES:
        return unless(r"\s*[+-]?(?:0|[1-9]\d*)\s*")
    if kind == "DOUBLE":
        # A whole number that begins with a zero is a code, and one of many digits would lose some.
        whole = f"TRY_CAST(split_part({cell}, '.', 1) AS HUGEINT)"
        rounded = (
            rf"regexp_full_match({cell}, '0\d+|[+-]?\d{{16,}}(?:\.\d*)?')"
            f" AND (starts_with({cell}, '0') OR TRY_CAST(trunc({cast}) AS HUGEINT) IS DISTINCT FROM {whole})"
        )
        is_at_risk = f"length({cell}) > 15 OR starts_with({cell}, '0')"
        return f"({cast} IS NULL OR CASE WHEN {is_at_risk} THEN {rounded} ELSE false END)"
    return {
        "DATE": unless(_DATE),
        "TIME": unless(_MOMENT),
        "TIMESTAMP": unless(f"{_DATE}(?:[ T]{_MOMENT}Z?)?"),
        "BOOLEAN": f"lower({cell}) NOT IN ('true', 'false', 't', 'f')",
        '"NULL"': "true",
    }.get(kind, f"{cast} IS NULL")
