"""Suggestions: the table or column that was meant by a name that nothing has, and ways around a refusal."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import Any

from nbtools.errors import NbtoolsError, SqlInvalid, nearest
from nbtools.ground.paths import Roots
from nbtools.sql.engines.protocol import CatalogTable, SqlEngine
from nbtools.sql.engines.urls import mask_url
from nbtools.sql.frames import is_frame
from nbtools.sql.verdict.verdict import Verdict
from nbtools.texts.parsing import word_lists
from nbtools.texts.visible import kind_of_value

# What people do in a session that stays open, and what takes its place here.
_INSTEAD = dict.fromkeys(
    ("TRANSACTION", "BEGIN", "START", "COMMIT", "ROLLBACK"),
    "BEGIN and COMMIT are not needed: each query is its own read-only transaction.",
) | {"CREATE": "Keep the query by a name, %%nbsql --save NAME, or its rows: -o NAME, --out-file NAME.parquet."}

# What has to follow a word behind which nothing may end.
_FOLLOWS = {word: what for what, words in word_lists(__file__, "suggestions.words").items() for word in words}
_ENDS = re.compile(r"\b([A-Za-z]+)[\s;]*\Z")
# A path that is not in quotes, which SQL reads as words and signs.
_BARE_PATH = re.compile(r"\b(from|join)\s+([^\s'\"(),;]*(?:[/\\][^\s'\"(),;]+|\.\w+))(?=[\s),;]|\Z)", re.IGNORECASE)
_WORD, _LONGEST, _CLOSE = re.compile(r"[A-Za-z_]+"), 4_000, 5


def names_behind(frames: Mapping[str, Any] | Callable[[str], Any] | None) -> list[str]:
    """Return the names of the frames in a mapping, or in the mapping whose ``get`` is given; else none."""
    namespace = getattr(frames, "__self__", frames)
    if not isinstance(namespace, Mapping):
        return []
    # A copy: the notebook may change its variables meanwhile.
    items = ((name, value) for name, value in dict(namespace).items() if isinstance(name, str))
    return [name for name, value in items if not name.startswith("_") and is_frame(value)]


def hint_for(
    error: SqlInvalid,
    named: Sequence[str],
    names: Iterable[str],
    engine: SqlEngine,
    lookup: Callable[[str], Any] | None,
    connection: str | None,
) -> str | None:
    """Return the hint of an error that names a table or a column that nothing has.

    Parameters
    ----------
    error
        The error; ``unknown_table`` and ``unknown_column`` in its data name what the engine misses.
    named
        The tables that the statement names.
    names
        Names of frames and records.
    engine
        The engine that could not bind it.
    lookup
        Returns the notebook's variable of a name; `None` where there is no notebook.
    connection
        Name or URL of the database that was asked; `None` for frames and files.
    """
    column, table = error.data.get("unknown_column"), error.data.get("unknown_table")
    hint = suggest(named, names, engine, column)
    value = None if table is None or lookup is None else lookup(table)
    if value is not None and not is_frame(value):
        hint = way_to_frame(str(table), value)
    # DuckDB does not know the frames that it was not given; a server knows best what it has.
    if engine.takes_frames:
        return hint or error.hint
    database = mask_url(connection or "the connection")
    elsewhere = f"The query went to {database}, in its own SQL; for DataFrames and files use duckdb://"
    elsewhere += f", where its tables are {database}.TABLE." if database.isidentifier() else "."
    return error.hint or hint or (None if column else elsewhere)


def suggest(named: Sequence[str], names: Iterable[str], engine: SqlEngine, column: str | None) -> str | None:
    """Return a hint for a statement that could not be bound; `None` when nothing resembles its names.

    Parameters
    ----------
    named
        The tables that it names.
    names
        Names of frames and records; the engine's own tables are added.
    engine
        What could not bind it.
    column
        The column that the engine misses, where it says so.
    """
    tables: list[CatalogTable] = []
    # The connection may be gone by now; the statement's own error is what counts.
    with contextlib.suppress(NbtoolsError):
        tables = engine.catalog()
    hint = find_nearest(named, [*names, *(table.full_name for table in tables)])
    if hint is None and column is not None:
        folded = {name.casefold() for name in named}
        columns = [names.name for table in tables if table.name.casefold() in folded for names in table.columns]
        hint = find_nearest([column], columns)
    return hint


def find_nearest(names: Iterable[str], candidates: Iterable[str]) -> str | None:
    """Return a hint for the first name that is not known and resembles one that is; `None` when there is none.

    Examples
    --------
    >>> find_nearest(["city", "peple"], ["people", "City"])
    "Did you mean 'people'?"
    """
    whole = list(candidates)
    folded = {name.casefold() for name in whole}
    # A schema may be left out.
    folded |= {name.rpartition(".")[2] for name in folded}
    for name in names:
        close = None if name.casefold() in folded else nearest(name, whole)
        if close is not None:
            return f"Did you mean {close!r}?"
    return None


def way_out(verdict: Verdict, roots: Roots | None) -> str | None:
    """Say what to do in place of what was refused; `None` where there is nothing."""
    if verdict.allowed:
        return None
    if verdict.kind in _INSTEAD:
        return _INSTEAD[verdict.kind]
    if roots is None:
        return None
    opened = [roots.way_in(outside, "Open its folder: ") for outside in filterfalse(roots.allows, verdict.files)]
    return f"{opened[0]}." if opened and opened[0] else None


def way_to_frame(name: str, value: Any) -> str:
    """Return the hint for a variable of the notebook that is not a frame."""
    way = f"rows = {name}.data() makes one" if callable(getattr(value, "data", None)) else "make one of it first"
    return f"{name!r} is {kind_of_value(value)}; SQL reads frames: {way}."


def is_word_of_sql(name: str) -> bool:
    """Tell whether a name is one of SQL's own words, which means a table or a column only in quotes."""
    return name.upper() in _keywords()


def _keywords() -> set[str]:
    from sqlglot.tokens import Tokenizer

    return {word for words in Tokenizer.KEYWORDS for word in words.split() if word.isalpha()}


def nearest_word(sql: str, line: int | None, column: int | None, allows: Callable[[str], bool]) -> str | None:
    """Return the hint for a text that ends too early, and for a slip in one of SQL's own words before what is wrong.

    Parameters
    ----------
    sql
        The text.
    line
        Line at which it could not be read on, from 1; `None` where that is not known.
    column
        Column at which it could not be read on, from 1; `None` where that is not known.
    allows
        Tells whether a text may run.
    """
    if line is None or column is None or len(sql) > _LONGEST:
        return None
    keywords = _keywords()
    at = sum(len(line) + 1 for line in sql.split("\n")[: line - 1]) + column - 1
    last = _ENDS.search(sql)
    if last is not None and last.start() <= at and last[1].upper() in _FOLLOWS:
        return f"After {last[1]} {_FOLLOWS[last[1].upper()]} is missing."
    for path in _BARE_PATH.finditer(sql):
        if path.start(2) <= at <= path.end() and allows(f"{sql[: path.start(2)]}'{path[2]}'{sql[path.end() :]}"):
            return f"The name of a file needs quotes: {path[1]} '{path[2]}'."
    for match in [word for word in _WORD.finditer(sql) if word.start() <= at][:-3:-1]:
        is_right = match[0].upper() in keywords  # what is wrong is behind it
        for word in () if is_right else difflib.get_close_matches(match[0].upper(), keywords, _CLOSE):
            if allows(f"{sql[: match.start()]}{word}{sql[match.end() :]}"):
                return f"Did you mean {word.lower() if match[0].islower() else word} for {match[0]}?"
    return None
