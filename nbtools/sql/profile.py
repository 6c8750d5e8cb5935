"""The profile of a table: what each column holds, by SQL that every engine understands."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from nbtools.sql.results.compact import compact
from nbtools.sql.results.result import FileNote
from nbtools.texts import html_parts
from nbtools.texts.sql_quotes import quote_identifier, quote_text
from nbtools.texts.visible import counted, harmless

_Ask = Callable[[str], list[list[Any]]]
_Histogram = tuple[tuple[str, int], ...]

_BINS = 10
_TOP = 5
# One statement asks for four facts of each column; PostgreSQL takes 1,664 items in one.
_MOST_COLUMNS = 200
_NUMBER = re.compile(r"INT|DEC|NUM|FLOAT|DOUBLE|REAL|SERIAL|MONEY", re.IGNORECASE)
# Types that some engine neither sorts nor counts by value.
_NOT_COMPARED = re.compile(
    r"\[|\b(STRUCT|MAP|UNION|JSON|JSONB|BLOB|BYTEA|BINARY|GEOMETRY|XML|VARIANT)\b", re.IGNORECASE
)
_BARS = "▁▂▃▄▅▆▇█"
# Names of tables, with a schema or without, that people write as they are.
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnProfile:
    """What a column holds.

    Attributes
    ----------
    name
        Name of the column.
    type
        The engine's name of its type.
    nulls
        How many values are missing.
    distinct
        How many different values there are; `None` where values cannot be compared.
    least
        The least value; `None` where there is none.
    greatest
        The greatest value; `None` where there is none.
    histogram
        Pairs of a label and a count: ten equal ranges of a number, or the most frequent values of anything else.
    """

    name: str
    type: str
    nulls: int
    distinct: int | None
    least: Any
    greatest: Any
    histogram: _Histogram = ()

    def bars(self) -> str:
        """Return the histogram as a line of bars, for numbers, or as the most frequent values."""
        if not self.histogram:
            return ""
        if not _NUMBER.search(self.type):
            return ", ".join(f"{label} ({count:,})" for label, count in self.histogram[:3])
        most = max(count for _, count in self.histogram) or 1
        return "".join(_BARS[round(count / most * (len(_BARS) - 1))] if count else " " for _, count in self.histogram)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Profile:
    """What a table holds: its rows and its columns."""

    table: str
    rows: int
    columns: tuple[ColumnProfile, ...]
    notes: tuple[FileNote, ...] = ()

    def to_rows(self) -> list[list[Any]]:
        """Return a list for each column: name, type, nulls, distinct, least, greatest, histogram in text."""
        return [
            [column.name, column.type, column.nulls, column.distinct, column.least, column.greatest, column.bars()]
            for column in self.columns
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
        notes = {"notes": list(map(str, self.notes))} if self.notes else {}
        columns = [dataclasses.asdict(column) for column in self.columns]
        return {"table": self.table, "rows": self.rows, "columns": columns, **notes}

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame, a row for each column."""
        import pandas as pd

        return pd.DataFrame(self.to_rows(), columns=list(_HEADS))

    def __repr__(self) -> str:
        return f"Profile(table={self.table!r}, rows={self.rows}, columns={len(self.columns)})"

    def __str__(self) -> str:
        rows = self.to_rows()
        table = compact(
            _HEADS,
            [""] * len(_HEADS),
            len(rows),
            lambda start, stop: rows[start:stop],
            more=False,
            max_chars=20_000,
            max_rows=_MOST_COLUMNS,
        )
        body = table.rpartition("\n")[0]
        return harmless("\n".join([self._title(), body, *map(str, self.notes)]))

    def _title(self) -> str:
        return f"{self.table}: {counted(self.rows, 'row')}, {counted(len(self.columns), 'column')}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the plain form at an IPython prompt."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Render for a notebook."""
        return html_parts.table(
            _HEADS, self.to_rows(), title=self._title(), below=" · ".join(note.text for note in self.notes)
        )


_HEADS = ("column", "type", "nulls", "distinct", "least", "greatest", "histogram")


def quoting(dialect: str) -> Callable[[str], str]:
    """Return the function that quotes an identifier in a dialect."""
    return functools.partial(quote_identifier, dialect=dialect)


def source_of(table: str, quote: Callable[[str], str]) -> str:
    """Return what to write behind FROM for a table, a schema and a table, or a file."""
    if _PLAIN_NAME.match(table):
        return ".".join(quote(part) for part in table.split("."))
    if table.startswith(("'", '"', "`")):
        return table
    if "/" in table or re.search(r"\.\w+\Z", table):
        return quote_text(table)
    return quote(table)


def profile_table(
    table: str, source: str, columns: Sequence[str], types: Sequence[str], ask: _Ask, quote: Callable[[str], str]
) -> Profile:
    """Profile a table.

    Parameters
    ----------
    table
        Its name, for people.
    source
        What to write behind FROM.
    columns
        Names of its columns; the first 200 are profiled.
    types
        The engine's name of the type of each column.
    ask
        Runs one query and returns its rows.
    quote
        Quotes an identifier.
    """
    pairs = list(zip(columns, types, strict=True))[:_MOST_COLUMNS]
    parts = ["count(*)"]
    for name, kind in pairs:
        column = quote(name)
        if _NOT_COMPARED.search(kind):
            parts += [f"count({column})", "NULL", "NULL", "NULL"]
        else:
            # The extremes of truth values are not the business of every engine.
            extremes = ["NULL", "NULL"] if "bool" in kind.lower() else [f"min({column})", f"max({column})"]
            parts += [f"count({column})", f"count(DISTINCT {column})", *extremes]
    facts = ask(f"SELECT {', '.join(parts)} FROM {source}")[0]
    rows = int(facts[0])
    profiles = []
    for index, (name, kind) in enumerate(pairs):
        filled, distinct, least, greatest = facts[1 + 4 * index : 5 + 4 * index]
        profiles.append(
            ColumnProfile(
                name=name,
                type=kind,
                nulls=rows - int(filled),
                distinct=None if distinct is None else int(distinct),
                least=least,
                greatest=greatest,
                histogram=_histogram(source, quote(name), kind, least, greatest, ask),
            )
        )
    return Profile(table=table, rows=rows, columns=tuple(profiles))


def _histogram(
    source: str, column: str, kind: str, least: Any, greatest: Any, ask: _Ask
) -> tuple[tuple[str, int], ...]:
    if _NOT_COMPARED.search(kind):
        return ()
    if _NUMBER.search(kind) and isinstance(least, int | float) and isinstance(greatest, int | float):
        return _ranges(source, column, float(least), float(greatest), ask)
    counted = ask(
        f"SELECT {column}, count(*) FROM {source} WHERE {column} IS NOT NULL GROUP BY {column} "
        f"ORDER BY count(*) DESC, {column} LIMIT {_TOP}"
    )
    return tuple((str(value), int(count)) for value, count in counted)


def _ranges(source: str, column: str, least: float, greatest: float, ask: _Ask) -> _Histogram:
    width = (greatest - least) / _BINS
    # One value, or infinity among them: there are no ranges to count in.
    if not 0 < width < float("inf"):
        counted = ask(f"SELECT count({column}) FROM {source}")
        return ((f"{least:g}", int(counted[0][0])),)
    edges = [least + width * index for index in range(_BINS)]
    tops = [f"< {high!r}" for high in edges[1:]] + [f"<= {greatest!r}"]
    sums = [
        f"sum(CASE WHEN {column} >= {low!r} AND {column} {top} THEN 1 ELSE 0 END)"
        for low, top in zip(edges, tops, strict=True)
    ]
    counts = ask(f"SELECT {', '.join(sums)} FROM {source}")[0]
    return tuple((f"{low:g}", int(count or 0)) for low, count in zip(edges, counts, strict=True))
