"""CSV: the types of a file's columns, decided by all of its lines, and the words that stand for what is missing.

DuckDB decides by the first 20,480 lines, and what comes later is cast: 19.99 becomes 20. Its own way to look at all
lines takes several times as long as to read them, in one thread. So its types are taken for a guess, which is checked
by one pass over all cells as texts, in all threads. Only where a cell does not fit, or would become another value, does
DuckDB look at all lines itself.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nbtools.errors import NbtoolsError, SqlFailed
from nbtools.sql.files.calls import FileCall
from nbtools.sql.files.cell_texts import Ask, CallReading, Cells, described, listed, room
from nbtools.sql.files.cells import (
    COMMA_NUMBER,
    SMALL_BYTES,
    USUAL_MARKS,
    WHOLE_TYPES,
    Count,
    Strays,
    count_cells,
    first_rows,
    likely_type,
    likely_types,
    other_orders,
    plain_columns,
    unclosed_quote,
)
from nbtools.sql.files.doubts import (
    DECIMAL,
    LOOKED_AT,
    SIGNS,
    THINGS,
    Columns,
    as_said,
    comma_columns,
    dates_in_texts,
    few_strays,
    grouped_floats,
    phrases,
)
from nbtools.sql.files.headings import (
    LIKE_ROWS,
    TEXTS,
    UNNAMED,
    heading,
    may_be_renamed,
    may_be_row,
    named_columns,
    names_columns,
)
from nbtools.sql.files.options import values_of
from nbtools.sql.results.rows import name_notes
from nbtools.sql.verdict.reviewed import names
from nbtools.texts.sql_quotes import quote_text

_TITLE_LINES = 8  # above a header
MISSING_WORDS = ("N/A", "NA", "n/a", "null", "NULL", "None", "-", "#N/A", "nan", "NaN", r"\N")
"""What people write where a number, a date or a boolean is missing."""
DECIDED = names(
    "all_varchar auto_detect auto_type_candidates column_types columns dateformat dtypes force_not_null sample_size"
    " timestampformat types"
)
"""Options with which a person has decided about types; nothing is guessed then that could be checked."""
# And with these about all of them, or about how much of the file decides.
_FIXED = names("all_varchar auto_detect columns sample_size")
MARKS = names("delim delimiter sep")
"""Names of the option that says what stands between the cells; with others, a file is not looked at whole at once."""
_GERMAN = {"decimal_separator": "','", "thousands": "'.'"}
_QUOTE = quote_text('"')
# What DuckDB takes for granted where it detects nothing.
_UNDETECTED = {"delim": "','", "quote": _QUOTE, "escape": _QUOTE, "comment": "''", "skip": "0", "header": "false"}
PACKED = re.compile(r"\.(?:gz|zst)'?$", re.IGNORECASE)
"""How the names of packed files end, in quotes too."""
# With no others than these, a file that was looked at once is read without another look, which costs more than it does.
_PLAIN = MARKS | names(
    "allow_quoted_nulls comment compression decimal_separator encoding escape filename header hive_partitioning"
    " ignore_errors max_line_size null_padding nullstr parallel quote strict_mode thousands"
)
# A file of so many bytes is searched for what the pass over all cells could find, which costs less than to plan it.
SEARCHED_BYTES = 1_000_000
"""Of one file with so many, all cells are searched at once."""
# A word that may stand for a missing value or a date, a code that begins with a zero, many digits, a number with a
# letter or bare point behind it, a date in a form other than ISO's or far from now: DuckDB accepts some of these forms
# but cannot read them. Numbers, texts and dates in files without these are what it finds in all lines.
_EDGE = r"""[\s,;|"']"""
_TELLING = (
    rf"(?:^|{_EDGE})(?:(?:{'|'.join(map(re.escape, MISSING_WORDS))})(?:$|{_EDGE})|[+-]?(?:0\d|(?i:inf|epoch)))"
    r"|\d(?:\d{15}|[A-Za-z_/]|\.(?:$|\D|\d+\.)|\d{4}-\d\d?-| \()"
)
# One pass asks two things of each column; a pass over thousands takes longer than DuckDB's own way.
_MOST_COLUMNS = 500
_MOST_LIKELY = 20  # columns of so many, or of a sample, of which is counted what makes texts of them
# Of a file whose first rows alone are wanted: bytes that are searched for them, and rows that are counted.
_TELLING_BYTES, _SEARCHED, _FIRST_ROWS = re.compile(_TELLING.encode()), 50_000, 4_096
_SAMPLE = 20_480  # rows, as DuckDB takes
_USUAL, _ISO = names("BIGINT DATE DOUBLE VARCHAR"), "%Y-%m-%d"
# What reads files that DuckDB makes nothing of: line ends or quotes of several kinds, rows that are too short.
PADDING = {"null_padding": "true", "parallel": "false"}
"""Options that fill up short rows; several threads do not where a line ends within a cell."""
_WAYS: tuple[dict[str, str], ...] = ({"strict_mode": "false"}, PADDING)

_FILLED = "its rows have different numbers of fields; those at the end of shorter ones are missing"


class _Look(NamedTuple):
    """What DuckDB detected in a file: names, types, dialect, forms of dates, and the number of skipped lines.

    And whether all of it was searched, for cells that a type could change, and none was found; and what was counted.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    form: dict[str, str]
    formats: dict[str, str]
    new_line: str
    skipped: int
    has_none_telling: bool
    counts: Mapping[int, Count] = {}


def oddities(
    call: FileCall,
    files: Sequence[str],
    ask: Ask,
    words: Sequence[str],
    *,
    content: bytes | None = None,
    is_whole: bool = True,
) -> tuple[str, ...]:
    """Return a phrase for each file whose first lines are skipped, or whose fields are one, without an option."""
    if not {"skip", "auto_detect"}.isdisjoint(call.options):
        return ()
    phrases = []
    for file in files:
        single = call._replace(files=quote_text(file))
        seen = _first_look(single, ask, words, content, is_whole=is_whole)
        of = f"{file} " if len(files) > 1 else ""
        phrases += [f"{of}{_without_lines(seen.skipped)}"] if seen.skipped else []
        if (comment := seen.form["comment"]) != "''" and "comment" not in call.options:
            phrases.append(f"{of}without lines that begin with {comment}")
        phrases += [f"{of}{text}" for text in (*_title_row(single, file, seen, ask), *_renamed(single, seen, ask))]
        mark = next((mark for mark in USUAL_MARKS if mark in seen.names[0]), None)
        if len(seen.names) == 1 and mark is not None and MARKS.isdisjoint(call.options):
            line = unclosed_quote(content, mark) if content is not None and is_whole else 0
            options = None if line else way_to_read(single, ask)
            way = f"delim = {mark!r}" if options is None else single.text(options)
            fields = f"its rows have different numbers of fields; {way} splits them"
            why = f"line {line:,} opens a quote and does not close it; close it" if line else fields
            phrases.append(f"{of}as a single column, because {why}")
    return tuple(phrases)


def headers(call: FileCall, files: Sequence[str], ask: Ask, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the columns of files that have a header; for the parameters see `oddities`."""
    looks = {file: _first_look(call._replace(files=quote_text(file)), ask, words, None) for file in files}
    return {file: seen.names for file, seen in looks.items() if seen.form["header"] == "true"}


def as_it_is(
    call: FileCall,
    files: Sequence[str],
    ask: Ask,
    words: Sequence[str],
    content: bytes | None = None,
    *,
    is_whole: bool = True,
) -> tuple[FileCall, str]:
    """Return a call that reads all lines of a file, where DuckDB would lose some, with a phrase for people.

    Where rows are short, DuckDB leaves the first lines out, the header too, or takes each line for one cell; and where
    all columns hold texts, it takes the first row for a header. For the parameters see `read_types`.
    """
    if not files or not (call.options.keys() <= MARKS | {"encoding"}):
        return call, ""
    first = call._replace(files=quote_text(files[0]))
    look = functools.partial(_first_look, ask=ask, words=words, content=content, is_whole=is_whole)
    with contextlib.suppress(NbtoolsError):
        seen = look(first)
        is_table = not seen.skipped and (len(seen.names) > 1 or not any(mark in seen.names[0] for mark in USUAL_MARKS))
        if not is_table and len(files) == 1:
            wider = call._replace(options={**call.options, **PADDING})
            whole = look(wider)
            # Where cells hold the mark that DuckDB takes, it leaves the names in one.
            other = next((mark for mark in USUAL_MARKS if mark in whole.names[0]), "")
            if other and sum(named_columns(whole.names)) == 1 and MARKS.isdisjoint(call.options):
                wider = call._replace(options={**wider.options, "delim": quote_text(other)})
                whole = look(wider)
            is_header = whole.form["header"] == "true" and not whole.skipped
            is_header = is_header and 2 * sum(named_columns(whole.names)) > len(whole.names)
            if is_header and names_columns(whole.names, whole.types):
                return wider, _FILLED
        better, phrase = _header(first, seen, ask, content)  # nothing where lines are skipped
        if seen.skipped and len(files) == 1 and MARKS.isdisjoint(call.options):
            better = _other_mark(first, seen, ask)
            phrase = _without_lines(int(better.get("skip", "0")))
        return call._replace(options={**call.options, **better}), phrase
    return call, ""


def _other_mark(call: FileCall, seen: _Look, ask: Ask) -> dict[str, str]:
    """Return the mark that stands in the cells of the first row, if with it fewer lines are skipped, and how many."""
    rows = ask(f"FROM {call.text({**unsaid(call, seen.form), 'all_varchar': 'true'})} LIMIT 1")
    cells = "".join(map(str, itertools.chain(seen.names, *rows)))
    marks = [mark for mark in USUAL_MARKS if mark in cells and quote_text(mark) != seen.form["delim"]]
    for mark, skip in itertools.product(marks, range(min(seen.skipped, _TITLE_LINES))):
        options = {"delim": quote_text(mark), **({"skip": str(skip)} if skip else {})}
        with contextlib.suppress(NbtoolsError):
            other = _look(call._replace(options={**call.options, **options}), ask, {})
            if other.skipped <= skip and len(other.names) > 1:
                return options
    return {}


def _without_lines(count: int) -> str:
    return f"without its first {'line' if count == 1 else f'{count:,} lines'}, whose columns differ" if count else ""


def _header(call: FileCall, seen: _Look, ask: Ask, content: bytes | None) -> tuple[dict[str, str], str]:
    """Return the option that a file needs where DuckDB takes a row for its header, or the other way, with a phrase."""
    is_header = seen.form["header"] == "true"
    if seen.skipped or not (may_be_row(seen.names) if is_header else sum(kind not in TEXTS for kind in seen.types) > 1):
        return {}, ""
    rows = None if content is None else first_rows(content, seen.form, len(seen.names))
    if rows is None:
        text = call.text({**unsaid(call, seen.form), "header": "false", "all_varchar": "true"})
        rows = [["" if cell is None else str(cell) for cell in row] for row in ask(f"FROM {text} LIMIT {LIKE_ROWS}")]
    return heading(rows[0], rows[1:], is_header=is_header) if rows else ({}, "")


def _title_row(call: FileCall, file: str, seen: _Look, ask: Ask) -> Iterator[str]:
    """Give a phrase for a header that names few columns, as a padded title does, where one below names all."""
    named = named_columns(seen.names)
    if "header" in call.options or not (named[0] and 2 * sum(named) <= len(seen.names)):
        return
    for skip in range(1, _TITLE_LINES + 1):
        below = call._replace(options={**call.options, "skip": str(skip)})
        others = _look(below, ask, {}).names
        if len(others) != len(seen.names) or not all(named_columns(others)):
            continue
        # The look passes over a blank line above the header, behind which the reading takes the header for a row.
        with contextlib.suppress(NbtoolsError):
            text = read_types(below, [file], ask).text or below.text({})
            if [[*others]] != [[*map(str, row)] for row in ask(f"SELECT * FROM {text} LIMIT 1")]:
                count = f"{sum(named)} of {len(seen.names)}"
                yield f"the header names {count} columns; skip = {skip} makes a later row the header"
                return


def _renamed(call: FileCall, seen: _Look, ask: Ask) -> Iterator[str]:
    """Give a phrase for columns of the same name, but for its case, of which DuckDB renames all but the first."""
    own = call.text({**seen.form, "header": "false", "all_varchar": "true"})
    if seen.form["header"] == "true" and may_be_renamed(seen.names):
        with contextlib.suppress(NbtoolsError):
            rows = ask(f"SELECT * FROM {own} LIMIT 1")
            yield from name_notes(rows[0] if rows and len(rows[0]) == len(seen.names) else [], seen.names)


def way_to_read(call: FileCall, ask: Ask) -> dict[str, str] | None:
    """Return the first options, if any, by which the files of a call are read; CSV as several columns."""
    is_csv = call.form == "csv"
    names_columns = is_csv and "columns" in call.options  # beside which DuckDB detects nothing in a file of such rows
    others = {name: text for name, text in call.options.items() if name != "columns"}
    detecting = call._replace(options=others) if names_columns else call
    for options in _WAYS if is_csv else ({"ignore_errors": "true"},):
        with contextlib.suppress(NbtoolsError):
            seen = _look(detecting, ask, options) if is_csv else None
            form = _form_of(detecting, [call.files], seen) if names_columns and seen is not None else {}
            way = {**options, **{name: text for name, text in form.items() if name != "new_line"}}
            doubled = "count_if(contains(concat(*COLUMNS(*)), '\"\"'))" if is_csv else "0"
            count = f"SELECT {doubled}, count(COLUMNS(*)) FROM {call.text(way)}"
            if (seen is None or len(seen.names) > 1) and (rows := ask(count)):
                # DuckDB leaves doubled quotes as they are, where it does not find that they stand for one.
                is_doubled = rows[0][0] or (seen is not None and '""' in "".join(seen.names))
                return {**way, **unsaid(call, {"quote": _QUOTE, "escape": _QUOTE})} if is_doubled else way
    return None


def detected(call: FileCall, file: str, ask: Ask, words: Sequence[str]) -> dict[str, Any]:
    """Return the options by which a file is read: what was found in it, and what the call says."""
    usual = {"nullstr": ["", *words], "decimal_separator": ".", "thousands": ""}
    form = _look(call._replace(files=quote_text(file)), ask, {}).form
    return usual | values_of({**form, **call.options})


def read_types(
    call: FileCall,
    files: Sequence[str],
    ask: Ask,
    *,
    content: bytes | None = None,
    words: Sequence[str] = MISSING_WORDS,
) -> CallReading:
    """Return how a call of `read_csv` is to be read, so that no value is changed.

    Parameters
    ----------
    call
        The call.
    files
        The names of the files that it reads.
    ask
        Runs a query and returns its rows.
    content
        Of one file that is looked at whole at once; `None` for any others.
    words
        What stands for missing values in columns of another type than text.
    """
    if not DECIDED.isdisjoint(call.options):
        return CallReading(call.text({"sample_size": "-1"}) if _FIXED.isdisjoint(call.options) else None)
    if not files:
        return CallReading()
    first = call._replace(files=quote_text(files[0]))
    seen = _first_look(first, ask, words, content)
    try:
        return _read_as_seen(call, files, ask, words, seen, content)
    except NbtoolsError:
        # Such as a quote behind the sample. What DuckDB finds in all lines may count unless it leaves other ones out.
        whole = seen
        with contextlib.suppress(NbtoolsError):
            whole = _look_past(first, ask, words, {"sample_size": "-1"})
        if len(files) > 1 or (whole.names, whole.skipped) != (seen.names, seen.skipped) or whole.form == seen.form:
            raise
        return _read_as_seen(call, files, ask, words, whole)


def by_first_lines(
    call: FileCall, files: Sequence[str], ask: Ask, words: Sequence[str], *, content: bytes | None = None
) -> CallReading:
    """Return how the first rows of a call are read, until all are: by the rules for whole files, of its first lines.

    For the parameters see `read_types`; of the content the beginning is enough.
    """
    seen = _first_look(call._replace(files=quote_text(files[0])), ask, words, content, is_whole=False)
    is_plain = content is not None and _TELLING_BYTES.search(content, 0, _SEARCHED) is None
    seen = seen._replace(has_none_telling=is_plain and seen.form["delim"][1:-1] in {*USUAL_MARKS})
    return _read_as_seen(call, files, ask, words, seen, content, most_rows=_FIRST_ROWS)._replace(missing=())


def by_sample(call: FileCall, files: Sequence[str], ask: Ask) -> CallReading:
    """Return how a call is read whose files are too large to be looked at: by the types that DuckDB finds in a sample.

    A cell that its column's type would change ends the query, which costs a third more than to change it in silence.
    For the parameters see `read_types`.
    """
    seen = _first_look(call._replace(files=quote_text(files[0])), ask, (), None, is_whole=False)
    kinds = _own_columns(call, files, ask, seen, {})
    if not 0 < len(kinds) <= _MOST_COLUMNS:
        return CallReading()
    names, types = tuple(kinds), [*kinds.values()]
    quotes = {name: text for name, text in unsaid(call, seen.form).items() if name in {"quote", "escape"}}
    cells = Cells(call, names, seen.formats, quotes if len(files) == 1 else {}, (), ask)
    # DuckDB takes yes for a boolean and 007 for a number, which are texts in a file that is looked at whole.
    sample = cells._replace(most_rows=_SAMPLE)
    unfit = {at for at, count in sample.counted(types).items() if count.bad}
    texts = _strays_of(sample, types, seen)
    return cells.strict(types, unfit)._replace(notes=(*few_strays(texts, mark=seen.form["delim"], is_part=True),))


def _read_as_seen(
    call: FileCall,
    files: Sequence[str],
    ask: Ask,
    words: Sequence[str],
    seen: _Look,
    content: bytes | None = None,
    *,
    most_rows: int | None = None,
) -> CallReading:
    nothing, own = _nothing(call, words), _form_of(call, files, seen)
    guess = _own_columns(call, files, ask, seen, {**own, **nothing} if len(files) > 1 else {})
    names, types = tuple(guess), [*guess.values()]
    is_usual = {*types} <= _USUAL and seen.formats.get("DATE", _ISO) == _ISO
    first = dict[str, str | None]()
    counts: dict[int, Count] | None = {} if is_usual and seen.has_none_telling and len(files) == 1 else None
    if content is not None and len(content) <= SMALL_BYTES:
        counts = {**seen.counts} or count_cells(content, seen.form, types, seen.formats, words)
        first = {names[at]: count.first for at, count in (counts or {}).items()}
    cells = Cells(call, names, seen.formats, own, words, ask, most_rows=most_rows)
    if len(types) > _MOST_COLUMNS and counts is None:
        return CallReading() if most_rows is not None else _read_many_columns(cells, files, types, seen)
    cells = cells._replace(words=words if nothing else ())
    columns, likely = Columns(names, types, words, cells.texts, ask, first), dict[int, str]()
    if not first and most_rows is None:
        likely = _likely_types(columns, seen, content)
    if counts is None or likely:
        kinds = types if counts is None else ["VARCHAR"] * len(types)
        counts = cells.counted([likely.get(at, kind) for at, kind in enumerate(kinds)], likely)
    if unfit := [at for at, count in counts.items() if count.bad and at not in likely]:
        types, again = _widened(cells, files, seen, types, unfit)
        counts |= again
        columns = columns._replace(types=types)
    commas, marks = list[int](), dict[str, str]()
    grouped = grouped_floats(columns, seen.form["delim"]) if SIGNS.isdisjoint(call.options) else []
    # Only where the types of all columns are said does the reader take none of the others for numbers with such signs.
    if grouped and "auto_detect" in own and (commas := comma_columns(columns)):
        german = cells._replace(call=call._replace(options={**call.options, **_GERMAN}))
        others = {**dict.fromkeys(grouped, "BIGINT"), **dict.fromkeys(commas, "DOUBLE")}
        numbers = [others.get(at, kind) for at, kind in enumerate(types)]
        again = german.counted(numbers)
        if not any(again[at].bad for at in others):
            cells, types, counts, marks = german, numbers, counts | again, _GERMAN
    proof = names[commas[0]] if marks else ""
    dates = dates_in_texts(columns)
    counts = as_said(call.options, counts)
    cells, types, counts = cells.with_own_forms(dates, types, counts)
    notes = phrases(columns, seen.formats, counts, grouped, proof, dates, seen.form["delim"])
    reading = cells.reading([*guess.values()], types, counts)
    own_forms = {names[at]: form for at, form in cells.own_forms.items()}
    return reading._replace(notes=(*notes,), formats=seen.formats, marks=values_of(marks), own_forms=own_forms)


def _read_many_columns(cells: Cells, files: Sequence[str], types: Sequence[str], seen: _Look) -> CallReading:
    """Return how a call of so many columns is read that the engine looks at their cells faster itself."""
    text = cells.call.text({**(unsaid(cells.call, seen.form) if len(files) == 1 else {}), "sample_size": "-1"})
    notes = few_strays(_strays_of(cells, types, seen), mark=seen.form["delim"], is_part=True)
    words = cells.words[:1] if _nothing(cells.call, cells.words) else ()
    phrase = f"more than {_MOST_COLUMNS} columns: words such as {{}} are not read as missing"
    return CallReading(text, (*map(phrase.format, words), *notes))


def _likely_types(columns: Columns, seen: _Look, content: bytes | None) -> dict[int, str]:
    """Return the types that columns of texts may have but for some cells, by their places."""
    likely = None if content is None else likely_types(content, seen.form, columns.types, columns.words)
    if likely is not None:
        return likely
    samples = columns.samples()
    cells = ((at, samples[name]) for at, name in enumerate(columns.names) if name in samples)
    return {at: kind for at, cell in cells if (kind := likely_type([cell]))}


def _strays_of(cells: Cells, types: Sequence[str], seen: _Look) -> dict[str, Strays | None]:
    """Return what makes texts of columns, by their names: of the first ones, which have a cell in the first rows."""
    texts = [at for at, kind in enumerate(types) if kind == "VARCHAR"][:_MOST_COLUMNS]
    names = [cells.names[at] for at in texts]
    top = cells._replace(most_rows=LOOKED_AT).texts
    columns = Columns(names, ["VARCHAR"] * len(names), MISSING_WORDS, top, cells.ask, {})
    pairs = itertools.islice(_likely_types(columns, seen, None).items(), _MOST_LIKELY)
    likely = {texts[at]: kind for at, kind in pairs}
    counts = cells.counted([likely.get(at, "VARCHAR") for at in range(len(types))], likely) if likely else {}
    return {cells.names[at]: count.strays for at, count in counts.items()}


def _widened(
    cells: Cells, files: Sequence[str], seen: _Look, types: Sequence[str], unfit: Collection[int]
) -> tuple[list[str], dict[int, Count]]:
    """Return the types of which those that do not fit are what DuckDB finds in all lines, and what was counted again.

    Where the first rows alone are wanted, which stay until all lines were looked at, they are texts.
    """
    if cells.most_rows is not None:
        return ["VARCHAR" if at in unfit else kind for at, kind in enumerate(types)], {}
    form = unsaid(cells.call, seen.form) if len(files) == 1 else cells.form
    more = {**form, **_nothing(cells.call, cells.words), "sample_size": "-1"}
    whole = _own_columns(cells.call, files, cells.ask, seen, more)
    if [*whole] != [*cells.names]:
        raise SqlFailed("it changed while it was examined.")
    pairs = enumerate(zip(whole.values(), types, strict=True))
    wider = [kind if at in unfit and kind != guessed else "VARCHAR" for at, (kind, guessed) in pairs]
    # What made a text of a column is looked for with the type that its first lines fit.
    number = COMMA_NUMBER if "','" in map(cells.call.options.get, DECIMAL) else "DOUBLE"
    texts = {at: number if types[at] in {"DOUBLE", *WHOLE_TYPES} else types[at] for at in unfit}
    texts = {at: kind for at, kind in texts.items() if kind in THINGS and whole[cells.names[at]] in TEXTS}
    kinds = [texts.get(at, kind) for at, kind in enumerate(wider)]
    again = cells.counted(kinds, texts) if {*kinds} != {"VARCHAR"} else {}
    fits = {at: wider[at] for at in unfit if at in again and not again[at].bad}
    return [fits.get(at, "VARCHAR") if at in unfit else kind for at, kind in enumerate(types)], again


def _own_columns(
    call: FileCall, files: Sequence[str], ask: Ask, seen: _Look, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns that stand in files, with their types, without those that DuckDB makes of their paths."""
    if len(files) == 1 and not more:
        return dict(zip(seen.names, seen.types, strict=True))
    kinds, names = described(call, ask, more), seen.names
    if len(files) > 1 and "union_by_name" in call.options:
        options = {name: text for name, text in call.options.items() if not name.startswith(("filename", "hive_"))}
        names = tuple(described(call._replace(options=options), ask, {"hive_partitioning": "false"}))
    return {name: kinds[name] for name in names if name in kinds}


def unsaid(call: FileCall, options: Mapping[str, str]) -> dict[str, str]:
    """Return those options, of how a file is written, that its call does not say already."""
    chosen = {*call.options, *(MARKS if MARKS & call.options.keys() else ())}
    return {name: text for name, text in options.items() if name not in chosen}


def _form_of(call: FileCall, files: Sequence[str], seen: _Look) -> dict[str, str]:
    """Return the options by which files are read; a single one is not looked at once more, where that goes."""
    form = unsaid(call, seen.form)
    if len(files) > 1:
        return {"header": form["header"]} if "header" in form else {}
    if not call.options.keys() <= _PLAIN:
        return form
    # A text of half the length takes the verdict and the engine, which parses it twice, half the time.
    marks = {name: text for name, text in form.items() if text != _UNDETECTED.get(name)}
    return {**marks, "auto_detect": "false", **({"new_line": seen.new_line} if seen.new_line else {})}


def _nothing(call: FileCall, words: Sequence[str]) -> dict[str, str]:
    """Return the option by which words are missing values, unless the call says itself which are."""
    return {"nullstr": f"[{listed(['', *words])}]"} if words and "nullstr" not in call.options else {}


def _look_past(call: FileCall, ask: Ask, words: Sequence[str], more: Mapping[str, str], search: str = "") -> _Look:
    """Look at a file without the words for missing values, with which a column of numbers is one; they may be names."""
    nothing = _nothing(call, words)
    seen = _look(call, ask, {**more, **nothing}, search)
    if not nothing or seen.has_none_telling or not any(map(UNNAMED.fullmatch, seen.names)):
        return seen
    with_words = _look(call, ask, more)
    is_same = (with_words.form, len(with_words.names)) == (seen.form, len(seen.names))
    return seen._replace(names=with_words.names) if is_same else with_words


def _first_look(
    call: FileCall, ask: Ask, words: Sequence[str], content: bytes | None, *, is_whole: bool = True
) -> _Look:
    more, search, is_quoted = dict[str, str](), "", False
    is_small = content is not None and is_whole and len(content) <= SMALL_BYTES and not call.options
    if is_small and (sure := plain_columns(content or b"", tuple(words))):  # to look at it would take twice as long
        form = {**_UNDETECTED, "delim": quote_text(sure.mark), "header": "true"}
        names, types = tuple(sure.types), tuple(sure.types.values())
        return _Look(names, types, form, {}, "", 0, has_none_telling=False, counts=sure.counts)
    if content is not None:
        more, is_quoted = {"sample_size": "-1"} if is_whole else {}, b'"' in content
        if not (b"'" in content or (is_quoted and b"\\" in content)):  # to look for quotes is most of a look at a file
            more |= {"quote": _QUOTE, "escape": _QUOTE}
        if is_whole and len(content) > SMALL_BYTES:
            telling = f"regexp_matches(content, {quote_text(_TELLING)})"
            search = f"(SELECT [{telling}, contains(content, {_QUOTE})] FROM read_text({call.files}))"
    seen = None
    with contextlib.suppress(NbtoolsError):
        seen = _look_past(call, ask, words, more, search)
    if seen is None or (is_quoted and "quote" in more and (seen.skipped or len(seen.names) == 1)):
        more = {name: text for name, text in more.items() if name == "sample_size"}
        seen = _look_past(call, ask, words, more, search)
    # DuckDB overlooks some quotes, and all behind a sample. If they are not, reading them ends in an error, and all
    # lines decide; but one in the lines before the first row swallows all rows.
    is_open = not seen.skipped and '"' not in "".join(seen.names) and call.options.keys() <= _PLAIN
    usual = {"quote": _QUOTE, "escape": _QUOTE} if is_open and seen.form["quote"] == quote_text("") else {}
    return seen._replace(form=seen.form | usual)


def _look(call: FileCall, ask: Ask, more: Mapping[str, str], search: str = "") -> _Look:
    # To choose some of the fields takes half as long as to look at a small file.
    source = f"FROM {call.text({**room(call), **more}, function='sniff_csv')}"
    row = ask(f"SELECT *, {search} {source}" if search else source)[0]
    (delim, quote, escape, new_line, comment), (skip, header, columns, date, moment) = row[:5], row[5:10]
    has_telling, has_quotes = row[-1] if search else (True, True)
    if skip and comment != "(empty)" and "comment" not in {*call.options, *more}:
        # Lines before the header that begin with the mark are counted among the skipped ones too, and as many rows go.
        return _look(call, ask, {**more, "comment": quote_text(comment)}, search)
    marks = {"delim": delim, "quote": quote, "escape": escape, "comment": comment}
    form = {name: quote_text("" if mark == "(empty)" else mark) for name, mark in marks.items()}
    is_overlooked = has_quotes and form["quote"] == quote_text("")
    seen = _Look(
        names=tuple(column["name"] for column in columns),
        types=tuple(column["type"] for column in columns),
        form=form | {"skip": str(skip or 0), "header": str(bool(header)).lower()},
        formats={kind: text for kind, text in (("DATE", date), ("TIMESTAMP", moment)) if text},
        new_line=quote_text(new_line),
        skipped=int(skip or 0),
        has_none_telling=not (has_telling or is_overlooked) and delim in {*USUAL_MARKS},
    )
    # The engine tries a year of two digits first, where people write the day or the month.
    for option, order in (("dateformat", date), ("timestampformat", moment)):
        if str(order).startswith(("%y.", "%y/")) and option not in {*call.options, *more}:
            for other in other_orders(order):
                by_day = _look(call, ask, {**more, option: quote_text(other)}, search)
                if (by_day.types, by_day.form) == (seen.types, seen.form):
                    return by_day
    return seen
