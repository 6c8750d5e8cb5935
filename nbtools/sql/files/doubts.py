"""Doubts: columns that are read in one way, or left as text, although their cells can be read in another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nbtools.sql.files.cells import COMMA, COMMA_NUMBER, GROUPED, Count, Strays, misfit_of, moment_type
from nbtools.sql.verdict.reviewed import names
from nbtools.texts.sql_quotes import quote_identifier, quote_text
from nbtools.texts.visible import brief, counted

_DATE = re.compile(r"(?:(\d{4})([./-])\d\d?\2\d\d?|\d\d?([./-])\d\d?\3(\d{4}|\d\d))(?:( )\d\d?:\d\d(:\d\d)?)?")
LOOKED_AT = 1_000
"""Rows that are searched for a cell of each column of texts."""
_ZONE = r":\d\d.*([+-]\d\d(:?\d\d)?|[A-Za-z/_]+)\s*$"
_SHOWN, _ISO = 2, "%Y-%m-%d"  # forms
_MOST_TEXTS, _LETTERS = 5, 40  # columns that are named one by one, and letters of a cell
THINGS = {
    "DOUBLE": "a number",
    "DATE": "a date",
    "TIMESTAMP": "a timestamp",
    "TIME": "a time",
    "BOOLEAN": "true or false",
}
THINGS[COMMA_NUMBER] = "a number"
DECIMAL = names("decimal decimal_separator")
"""Names of the option for the decimal sign."""
SIGNS = DECIMAL | {"thousands"}
"""Options that say how numbers are written."""
_COMMAS = re.compile(rf"{COMMA.pattern}|[+-]?(?:0|[1-9]\d*)")
_MAY_BE_GROUPED = re.compile(GROUPED).fullmatch
_DECIMALS = r",(?:\d\d?|\d{4,})$|\..*,"  # not three digits alone, which 1,234 has in English, too


class Columns(NamedTuple):
    """The columns of a file, the words for missing cells, all cells as texts behind FROM, and what asks for them.

    Also a cell of each column that was already looked at, by name; `samples` adds to them.
    """

    names: Sequence[str]
    types: Sequence[str]
    words: Sequence[str]
    texts: Callable[[], str]
    ask: Callable[[str], list[list[Any]]]
    first: dict[str, str | None]

    def of(self, *kinds: str) -> dict[str, str]:
        """Return the columns of some types, by name, as SQL writes them."""
        return {
            name: quote_identifier(name) for name, kind in zip(self.names, self.types, strict=True) if kind in kinds
        }

    def samples(self) -> dict[str, Any]:
        """Return a cell of each column of texts."""
        cells = self.of("VARCHAR")
        to_ask = [name for name in cells if name not in self.first]
        # A column may begin with many empty cells.
        for limit in (f" LIMIT {LOOKED_AT}", ""):
            first = (f"any_value({cells[name]}) FILTER ({self.is_there(cells[name])})" for name in to_ask)
            rows = self.ask(f"SELECT {', '.join(first)} FROM (FROM {self.texts()}{limit})") if to_ask else [()]
            self.first.update(zip(to_ask, rows[0], strict=True))
            to_ask = [name for name in to_ask if self.first[name] is None]
        return {name: self.first[name] for name in cells}

    def hold(self, tests: Sequence[tuple[str, str]]) -> list[bool]:
        """Return which conditions hold for all cells of a column that are not missing; the column is given as SQL."""
        every = (f"bool_and({test}) FILTER ({self.is_there(cell)})" for cell, test in tests)
        return [bool(one) for one in self.ask(f"SELECT {', '.join(every)} FROM {self.texts()}")[0]] if tests else []

    def is_there(self, cell: str) -> str:
        """Return the condition that a cell is neither empty nor a word for a missing one."""
        return f"{cell} NOT IN ({', '.join(map(quote_text, ['', *self.words]))})"


def phrases(
    columns: Columns,
    formats: Mapping[str, str],
    counts: Mapping[int, Count],
    grouped: Sequence[int],
    proof: str,
    dates: Mapping[int, Sequence[str]],
    mark: str,
) -> Iterator[str]:
    """Give a phrase for each column whose dates or numbers could be read in another way, or are text for a few cells.

    Parameters
    ----------
    columns
        Those of a file.
    formats
        How its dates and moments are written, where not as in ISO.
    counts
        What was found in the cells of columns, by their places.
    grouped
        The places of columns whose points may stand between thousands.
    proof
        The name of a column whose decimal commas prove that they do; empty where none does.
    dates
        The forms in which the cells of columns of texts are dates, by their places; a single one is how they are read.
    mark
        What stands between the cells, as SQL writes it.
    """
    for at, count in sorted(counts.items()):
        kind = columns.types[at]
        if count.forms and kind in formats:
            fit = f"{' and '.join(count.forms)} {'fits' if len(count.forms) == 1 else 'fit'} too"
            way = f"{kind.lower()}format = {' or '.join(map(quote_text, count.forms))} reads them that way"
            yield f"{columns.names[at]}: dates read as {formats[kind]}, though {fit}; {way}"
    for at in grouped:
        way = "decimal_separator = ',', thousands = '.'"
        doubt = f". read as the decimal sign; if 1.234 means 1234, write {way}"
        certain = (
            f"1.234 read as 1234, because the decimal sign of {proof} is a comma; decimal_separator = '.' reads 1.234"
        )
        yield f"{columns.names[at]}: {certain if proof else doubt}"
    zoned = columns.of("TIMESTAMP WITH TIME ZONE")
    have_zones = columns.hold([(cell, f"regexp_matches({cell}, {quote_text(_ZONE)})") for cell in zoned.values()])
    for name in itertools.compress(zoned, [not has_zone for has_zone in have_zones]):
        zone = columns.ask("SELECT current_setting('TimeZone')")[0][0]
        yield f"{name}: some times have no zone and others have one; the former are read in {zone}"
    texts = {columns.names[at]: count.strays for at, count in sorted(counts.items()) if columns.types[at] == "VARCHAR"}
    yield from few_strays(texts, formats, mark=mark)
    forms = {at: formats.get(kind, _ISO) for at, kind in enumerate(columns.types) if kind in {"DATE", "TIMESTAMP"}}
    forms |= {at: fits[0] for at, fits in dates.items() if len(fits) == 1}
    for at, fits in dates.items():
        name = columns.names[at]
        others = (columns.names[other] for other, form in forms.items() if form.split()[0] != fits[0].split()[0])
        if len(fits) > 1:
            ways = " or ".join(f"strptime({quote_identifier(name)}, {quote_text(form)})" for form in fits[:_SHOWN])
            yield f"{name}: dates as text, because {' and '.join(fits[:_SHOWN])} fit; {ways} reads them"
        elif other := next(others, ""):
            yield f"{name}: dates read as {fits[0]}; those of {other} are written in another form"


def few_strays(
    strays_of: Mapping[str, Strays | None], formats: Mapping[str, str] = {}, *, mark: str = "", is_part: bool = False
) -> Iterator[str]:
    """Give a phrase for each column that is text because of a few cells.

    Parameters
    ----------
    strays_of
        What makes columns text, by their names.
    formats
        How their dates and moments are written, where not as in ISO.
    mark
        What stands between the cells, as SQL writes it.
    is_part
        Whether there may be more such cells or columns than were counted.
    """
    few = {name: strays for name, strays in strays_of.items() if strays is not None and strays.are_few()}
    for name, strays in itertools.islice(few.items(), _MOST_TEXTS):
        cell, form = quote_identifier(name), formats.get(strays.kind)
        is_own = form not in {None, _ISO}
        way = f"try_strptime({cell}, {quote_text(str(form))})" if is_own else f"TRY_CAST({cell} AS {strays.kind})"
        if strays.kind == COMMA_NUMBER:
            way = f"TRY_CAST(replace(replace({cell}, '.', ''), ',', '.') AS DOUBLE)"
        cells = f"{'at least ' * is_part}{counted(strays.bad, 'cell')} {'is' if strays.bad == 1 else 'are'}"
        why = f"{cells} not {THINGS[strays.kind]}, such as {brief(strays.cell, _LETTERS)!r}"
        # A point may stand between thousands, where a comma does not part the cells.
        sign = ", with . as the decimal sign" if strays.kind == "DOUBLE" and mark == quote_text(";") else ""
        yield f"{name}: text, because {why}; {way} reads the others{sign}"
    if len(few) > _MOST_TEXTS:
        yield f"{'at least ' * is_part}{counted(len(few) - _MOST_TEXTS, 'more column')} as text because of a few cells"


def as_said(options: Mapping[str, str], counts: Mapping[int, Count]) -> dict[int, Count]:
    """Return counts without what makes texts of numbers that are written in another way than the options say."""
    commas = {COMMA_NUMBER} if "','" in map(options.get, DECIMAL) else set[str]()
    others = set[str]() if SIGNS.isdisjoint(options) else {"DOUBLE", COMMA_NUMBER} - commas
    is_other = {at: each.strays is not None and each.strays.kind in others for at, each in counts.items()}
    return {at: each._replace(strays=None) if is_other[at] else each for at, each in counts.items()}


def grouped_floats(columns: Columns, mark: str) -> list[int]:
    """Return the places of the floats, if the points of all may stand between thousands, in a file of decimal commas.

    For the parameters see `phrases`.
    """
    cells, floats = columns.of("VARCHAR"), columns.of("DOUBLE")
    if not all(_MAY_BE_GROUPED(columns.first.get(name) or "0") for name in floats):
        return []
    is_likely = mark == quote_text(";")
    proofs = [cells[name] for name, cell in columns.samples().items() if COMMA.fullmatch(str(cell))] if floats else []
    if not floats or not (is_likely or proofs):
        return []
    # One float that is none in thousands proves that the points of a file are decimal ones.
    tests = [(cell, GROUPED) for cell in floats.values()] + [(cell, COMMA.pattern) for cell in proofs]
    holds = columns.hold([(cell, f"regexp_full_match({cell}, {quote_text(pattern)})") for cell, pattern in tests])
    is_german = all(holds[: len(floats)]) and (is_likely or any(holds[len(floats) :]))
    return [at for at, name in enumerate(columns.names) if name in floats] if is_german else []


def comma_columns(columns: Columns) -> list[int]:
    """Return the places of the texts that are numbers with decimal commas; none where each may part thousands."""
    samples = columns.samples()
    cells = {name: cell for name, cell in columns.of("VARCHAR").items() if _COMMAS.fullmatch(str(samples[name]))}
    tests = (
        f"[bool_and(regexp_full_match({cell}, {quote_text(_COMMAS.pattern)})) FILTER ({columns.is_there(cell)}),"
        f" bool_or(contains({cell}, ',')), bool_or(regexp_matches({cell}, {quote_text(_DECIMALS)}))]"
        for cell in cells.values()
    )
    rows = columns.ask(f"SELECT {', '.join(tests)} FROM {columns.texts()}")[0] if cells else ()
    fits = {name: proves for name, (fit, has, proves) in zip(cells, rows, strict=True) if fit and has}
    return [at for at, name in enumerate(columns.names) if name in fits] if any(fits.values()) else []


def dates_in_texts(columns: Columns) -> dict[int, list[str]]:
    """Return the forms in which all cells of columns of texts are dates, by the places of such columns.

    The engine looks for one order of day and month in a whole file, and not for all.
    """
    likely = [(name, form) for name, cell in columns.samples().items() for form in _forms_of(cell)]
    cells = columns.of("VARCHAR")
    tests = ((name, moment_type(form), form) for name, form in likely)
    fits = columns.hold(
        [(cells[name], f"NOT ({misfit_of(cells[name], kind, {kind: form})})") for name, kind, form in tests]
    )
    dates: dict[int, list[str]] = {}
    for name, form in itertools.compress(likely, fits):
        dates.setdefault([*columns.names].index(name), []).append(form)
    return dates


def _forms_of(cell: object) -> list[str]:
    """Return the forms in which a cell may be a date or a moment."""
    match = _DATE.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return []
    first, before, between, last, gap, seconds = match.groups()
    year = "%y" if last and len(last) == 2 else "%Y"
    orders = [(year, "%m", "%d")] if first else [("%d", "%m", year), ("%m", "%d", year)]
    time = f" %H:%M{':%S' if seconds else ''}" if gap else ""
    return [(before or between).join(order) + time for order in orders]
