"""CSV: the types of a file's columns, decided by all of its lines, and the words that stand for what is missing.

DuckDB decides by the first 20,480 lines, and what comes later is cast: 19.99 becomes 20. Its own way to look at all
lines takes several times as long as to read them, in one thread. So its types are taken for a guess, which is checked
by one pass over all cells as texts, in all threads. Only where a cell does not fit, or would become another value, does
DuckDB look at all lines itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbtools.sql.engines.duckdb.frames import quote_identifier, quote_text
from nbtools.sql.files.calls import FileCall
from nbtools.sql.verdict.reviewed import names

__all__ = ["MISSING_WORDS", "Ask", "CallReading", "read_types", "skipped_lines"]

MISSING_WORDS = ("N/A", "NA", "n/a", "null", "NULL", "None", "-", "#N/A", "nan", "NaN")
"""What people write where a number, a date or a boolean is missing."""
Ask = Callable[[str], list[list[Any]]]
# With these a person has decided about types; nothing is guessed then that could be checked.
_DECIDED = names(
    "all_varchar auto_detect auto_type_candidates column_types columns dateformat decimal_separator dtypes"
    " force_not_null sample_size thousands timestampformat types"
)
_TYPED = names("types dtypes column_types")
_MARKS = names("delim delimiter sep")
# One pass asks three things of each column; a pass over thousands takes longer than DuckDB's own way.
_MOST_COLUMNS = 500
_WHOLE = names("BIGINT HUGEINT INTEGER UBIGINT UHUGEINT")
_DATE, _MOMENT = r"\d{4,}-\d{1,2}-\d{1,2}", r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallReading:
    """How a call is to be read.

    Attributes
    ----------
    text
        What takes the place of the call; `None` to leave it.
    notes
        What was done, for people.
    """

    text: str | None = None
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Look:
    """What DuckDB found in a file."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    form: dict[str, str]
    formats: dict[str, str]
    skipped: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Count:
    """Of the cells of a column: how many do not fit its type, and the words that stand for missing ones."""

    bad: int
    missing: int
    words: tuple[str, ...] = ()


def skipped_lines(call: FileCall, files: Sequence[str], ask: Ask) -> tuple[str, ...]:
    """Return a phrase for each file whose first lines are skipped though nobody said so."""
    if "skip" in call.options or "auto_detect" in call.options:
        return ()
    told = []
    for file in files:
        skipped = _look(dataclasses.replace(call, files=quote_text(file)), ask, {}).skipped
        lines = "its first line" if skipped == 1 else f"its first {skipped:,} lines"
        of = f"{file} " if len(files) > 1 else ""
        told += [f"{of}without {lines}, whose columns differ"] if skipped else []
    return tuple(told)


def read_types(call: FileCall, files: Sequence[str], ask: Ask, *, words: Sequence[str] = MISSING_WORDS) -> CallReading:
    """Return how a call of `read_csv` is to be read, so that no value is changed.

    Parameters
    ----------
    files
        The names of the files that it reads.
    ask
        Runs a query and returns its rows.
    words
        What stands for missing values in columns of another type than text.
    """
    if not _DECIDED.isdisjoint(call.options):
        is_sampled = _DECIDED.isdisjoint(call.options.keys() - _TYPED)
        return CallReading(text=call.text({"sample_size": "-1"}) if is_sampled else None)
    if not files:
        return CallReading()
    first = dataclasses.replace(call, files=quote_text(files[0]))
    words = () if "nullstr" in call.options else words
    seen = _look(first, ask, {})
    chosen = {*call.options, *(_MARKS if _MARKS & call.options.keys() else ())}
    form = {name: text for name, text in seen.form.items() if name not in chosen}
    own = form if len(files) == 1 else {"header": form["header"]} if "header" in form else {}
    nothing = {"nullstr": _list(["", *words])} if words else {}
    # With these words away, a column of numbers is one.
    without = _look(first, ask, {**form, **nothing}) if words and "VARCHAR" in seen.types else seen
    guess = seen.types if len(files) == 1 else _described(call, ask, own)
    types = list(guess)
    if without.names == seen.names and len(guess) == len(seen.types):
        types = [other if kind == "VARCHAR" else kind for kind, other in zip(guess, without.types, strict=True)]
    formats = without.formats
    if len(types) > _MOST_COLUMNS:
        return CallReading(text=call.text({"sample_size": "-1"}))
    counts = _counted(call, seen.names, types, formats, own, words, ask)
    unfit = [at for at, count in counts.items() if count.bad]
    if unfit:
        whole = _described(call, ask, {**own, **nothing, "sample_size": "-1"})
        for at in unfit:
            types[at] = whole[at]
        wider = [kind if at in unfit else "VARCHAR" for at, kind in enumerate(types)]
        again = _counted(call, seen.names, wider, formats, own, words, ask)
        counts |= again
        for at in unfit:
            if at in again and again[at].bad:
                types[at] = "VARCHAR"
    return _reading(call, seen.names, guess, types, counts, own, formats)


def _look(call: FileCall, ask: Ask, more: Mapping[str, str]) -> _Look:
    fields = "Delimiter, Quote, Escape, Comment, SkipRows, HasHeader, Columns, DateFormat, TimestampFormat"
    text = call.text(more, function="sniff_csv")
    delim, quote, escape, comment, skip, header, columns, date, moment = ask(f"SELECT {fields} FROM {text}")[0]
    marks = {"delim": delim, "quote": quote, "escape": escape, "comment": comment}
    form = {name: quote_text("" if mark == "(empty)" else mark) for name, mark in marks.items()}
    form |= {"skip": str(skip or 0), "header": str(bool(header)).lower()}
    return _Look(
        names=tuple(column["name"] for column in columns),
        types=tuple(column["type"] for column in columns),
        form=form,
        formats={kind: text for kind, text in (("DATE", date), ("TIMESTAMP", moment)) if text},
        skipped=int(skip or 0),
    )


def _described(call: FileCall, ask: Ask, more: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(str(row[1]) for row in ask(f"DESCRIBE FROM {call.text(more)}"))


def _list(words: Sequence[str]) -> str:
    return f"[{', '.join(map(quote_text, words))}]"


def _counted(
    call: FileCall,
    names: Sequence[str],
    types: Sequence[str],
    formats: Mapping[str, str],
    form: Mapping[str, str],
    words: Sequence[str],
    ask: Ask,
) -> dict[int, _Count]:
    """Count the cells that do not fit the types of their columns, in one pass over all of them as texts."""
    looked = [at for at, kind in enumerate(types) if kind != "VARCHAR"]
    if not looked:
        return {}
    listed = f"({', '.join(map(quote_text, words))})"
    parts = []
    for at in looked:
        cell = quote_identifier(names[at])
        is_word = f"{cell} IN {listed}" if words else "false"
        parts += [f"count(*) FILTER (NOT {is_word} AND {_misfit(cell, types[at], formats)})"]
        parts += [f"count(*) FILTER ({is_word})"]
    source = f"FROM {call.text({**form, 'all_varchar': 'true'})}"
    row = ask(f"SELECT {', '.join(parts)} {source}")[0]
    counts = {}
    for place, at in enumerate(looked):
        bad, missing = row[2 * place : 2 * place + 2]
        cell = quote_identifier(names[at])
        # Which words they are is asked where there are some: to look for it costs as much as all the rest.
        found = ask(f"SELECT DISTINCT {cell} {source} WHERE {cell} IN {listed}") if missing and not bad else []
        counts[at] = _Count(bad=bad, missing=missing, words=tuple(sorted(str(each[0]) for each in found)))
    return counts


def _misfit(cell: str, kind: str, formats: Mapping[str, str]) -> str:
    """Return the condition that a cell is no value of a type, or would become another one."""
    cast = f"TRY_CAST({cell} AS {kind})"
    same = f"CAST({cast} AS VARCHAR) = {cell}"

    def unless(pattern: str) -> str:
        # The pattern, which costs more, is asked for the rest alone.
        return f"CASE WHEN {same} THEN false ELSE {cast} IS NULL OR NOT regexp_full_match({cell}, '{pattern}') END"

    if kind in formats:
        return f"try_strptime({cell}, {quote_text(formats[kind])}) IS NULL"
    if kind in _WHOLE:
        return unless(r"\s*[+-]?(?:0|[1-9]\d*)\s*")
    if kind == "DOUBLE":
        # A whole number that begins with a zero is a code, and one of many digits would lose some.
        exact = f"TRY_CAST({cast} AS HUGEINT) IS NOT DISTINCT FROM TRY_CAST({cell} AS HUGEINT)"
        code = rf"starts_with({cell}, '0') AND regexp_full_match({cell}, '0\d+')"
        rounded = rf"length({cell}) > 15 AND regexp_full_match({cell}, '[+-]?\d+') AND NOT {exact}"
        return f"({cast} IS NULL OR CASE WHEN {code} THEN true ELSE {rounded} END)"
    return {
        "DATE": unless(_DATE),
        "TIME": unless(_MOMENT),
        "TIMESTAMP": unless(f"{_DATE}(?:[ T]{_MOMENT}Z?)?"),
        "BOOLEAN": f"lower({cell}) NOT IN ('true', 'false', 't', 'f')",
        '"NULL"': "true",
    }.get(kind, f"{cast} IS NULL")


def _reading(
    call: FileCall,
    names: Sequence[str],
    guess: Sequence[str],
    types: Sequence[str],
    counts: Mapping[int, _Count],
    form: Mapping[str, str],
    formats: Mapping[str, str],
) -> CallReading:
    """Return the call with the types that were decided; where nothing differs from the guess, it is left."""
    gaps = {at: count for at, count in counts.items() if count.missing and types[at] != "VARCHAR"}
    changed = [at for at, (kind, other) in enumerate(zip(guess, types, strict=True)) if kind != other]
    if not gaps and not changed:
        return CallReading()
    notes = [
        f"{names[at]}: {count.missing:,} \u00d7 {' or '.join(repr(word) for word in count.words)} read as missing"
        for at, count in gaps.items()
    ]
    texts = {names[at]: "VARCHAR" for at in gaps} | {names[at]: types[at] for at in changed if at not in gaps}
    struct = "{" + ", ".join(f"{quote_text(name)}: {quote_text(kind)}" for name, kind in texts.items()) + "}"
    text = call.text({**form, "types": struct})
    if gaps:
        replaced = ", ".join(
            f"{_value(names[at], types[at], count.words, formats)} AS {quote_identifier(names[at])}"
            for at, count in gaps.items()
        )
        # The column that DuckDB has beside those of the file would not be seen through the brackets.
        text = f"(SELECT * REPLACE ({replaced}){', filename' if call.names_files else ''} FROM {text})"
    return CallReading(text=text, notes=tuple(notes))


def _value(name: str, kind: str, words: Sequence[str], formats: Mapping[str, str]) -> str:
    cell = quote_identifier(name)
    there = f"CASE WHEN {cell} NOT IN ({', '.join(map(quote_text, words))}) THEN {cell} END"
    if kind in formats:
        return f"CAST(strptime({there}, {quote_text(formats[kind])}) AS {kind})"
    return f"CAST({there} AS {kind})"
