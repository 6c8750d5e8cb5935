"""Comparing: the rows of two tables that differ, matched by a key, as one query: cell beside cell, and what changed.

A value differs where SQL calls it distinct: a missing one equals a missing one, and a NaN a NaN. The tables are
joined by their keys and the hash of the rest, which takes half of the time and memory; whole rows are joined where that
differs. What is left is small as a rule, and everything that is counted is counted in that.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from nbtools.errors import InvalidArguments, nearest
from nbtools.sql.results.texts import kind_of, type_name
from nbtools.texts.sql_quotes import quote_identifier, quote_text

DIFFERENCE, CHANGED = "difference", "changed"
"""The columns that say what is different about a row, and in which columns."""

# Beside numbers, times and booleans: others may be distinct and have the same hash, as `[[1], [2]]` and `[[1, 2]]`.
_ONLY = re.compile(r"THEN 'only in ((?:[^']|'')*)'")
_HASHED = frozenset({"varchar", "uuid", "blob"})
_LONE = re.compile(r"(.+) \((only in .+)\)_*", re.DOTALL)
_MOST_NAMED = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """One of two tables.

    Attributes
    ----------
    label
        What a person calls it.
    relation
        What stands behind FROM.
    types
        The types of its columns, by name.
    """

    label: str
    relation: str
    types: Mapping[str, str]


def comparison(left: ComparedTable, right: ComparedTable, keys: Sequence[str]) -> str:
    """Return the query of the rows that differ.

    Returns
    -------
    str
        Its columns: `DIFFERENCE`, the keys, `CHANGED`, then each column of both tables, the right one's beside it, and
        those that one of them alone has.

    Raises
    ------
    InvalidArguments
        A key is missing in one of them, or none is named.
    """
    for table in (left, right):
        for key in keys:
            if key not in table.types:
                close = nearest(key, table.types)
                hint = f"Did you mean {close!r}?" if close else f"There are {', '.join(table.types)[:300]}."
                raise InvalidArguments(f"{table.label} has no column {key!r}.", hint=hint)
    if not keys:
        raise InvalidArguments("rows are matched by a key.", hint="Name its columns: --key id")
    shared = [name for name in left.types if name in right.types and name not in keys]
    a, b = _labels(left, right)
    differs = {name: _differs(name, left.types[name], right.types[name]) for name in shared}
    only_a, only_b, changed = map(quote_text, (f"only in {a}", f"only in {b}", CHANGED))
    kind = f"CASE WHEN a.here IS NULL THEN {only_b} WHEN b.here IS NULL THEN {only_a} ELSE {changed} END"
    items = [
        f"{kind} AS {quote_identifier(DIFFERENCE)}",
        *(f"coalesce(a.{name}, b.{name}) AS {name}" for name in map(quote_identifier, keys)),
    ]
    cases = "".join(f", CASE WHEN {differ} THEN {quote_text(name)} END" for name, differ in differs.items())
    listed = f"CASE WHEN a.here AND b.here THEN concat_ws(', '{cases or ', NULL'}) END"
    items.append(f"{listed} AS {quote_identifier(CHANGED)}")
    cells = [(name, side, label) for name in shared for side, label in (("a", a), ("b", b))]
    for side, label, table, other in (("a", a, left, right), ("b", b, right, left)):
        cells += [(name, side, f"only in {label}") for name in table.types if name not in other.types]
    names = {DIFFERENCE, CHANGED, *keys}
    for name, side, label in cells:
        alias = f"{name} ({label})"
        while alias in names:
            alias += "_"
        names.add(alias)
        items.append(f"{side}.{quote_identifier(name)} AS {quote_identifier(alias)}")
    distinct = " OR ".join(["a.here IS NULL", "b.here IS NULL", *differs.values()])
    hashed, a_rows, b_rows = _hashed(left, right, keys, shared)
    return (
        f"{hashed}SELECT {', '.join(items)} FROM {a_rows} AS a FULL JOIN {b_rows} AS b ON {_matched(keys)} "
        f"WHERE {distinct}"
    )


def compared_labels(query: str) -> list[str]:
    """Return what people call the two tables that a query of `comparison` compares; nothing for any other query."""
    labels = [label.replace("''", "'") for label in _ONLY.findall(query)[:2]]
    return labels[::-1] if len(labels) == 2 else []


def _matched(keys: Sequence[str], b: str = "b") -> str:
    return " AND ".join(f"a.{name} IS NOT DISTINCT FROM {b}.{name}" for name in map(quote_identifier, keys))


def _hashed(left: ComparedTable, right: ComparedTable, keys: Sequence[str], shared: Sequence[str]) -> tuple[str, ...]:
    """Return what lists the keys whose rows differ, and the rows of both that have them; all rows without hashes."""
    sides, named = (left, right), [*map(quote_identifier, keys)]
    wide = [f"(SELECT *, true AS here FROM {side.relation})" for side in sides]
    types = {name: (left.types[name], right.types[name]) for name in shared}
    if any(kind_of(kind) == "text" and type_name(kind) not in _HASHED for pair in types.values() for kind in pair):
        return ("", *wide)
    values = (
        quote_identifier(name) if a == b else f"CAST({quote_identifier(name)} AS VARCHAR)"
        for name, (a, b) in types.items()
    )
    hashed = f"{', '.join(named)}, hash({', '.join(values) or 0}) AS hashed"
    narrow = (f"(SELECT {hashed} FROM {side.relation})" for side in sides)
    either = ", ".join(f"coalesce(a.{name}, b.{name}) AS {name}" for name in named)
    listed = (
        f"WITH differing AS MATERIALIZED (SELECT DISTINCT {either} FROM {' AS a FULL JOIN '.join(narrow)} AS b "
        f"ON {_matched(keys)} WHERE a.hashed IS DISTINCT FROM b.hashed) "
    )
    return (
        listed,
        *(f"(SELECT a.* FROM {each} AS a SEMI JOIN differing AS d ON {_matched(keys, 'd')})" for each in wide),
    )


def _labels(left: ComparedTable, right: ComparedTable) -> tuple[str, str]:
    return (left.label, right.label) if left.label != right.label else (f"{left.label} 1", f"{right.label} 2")


def _differs(name: str, left: str, right: str) -> str:
    a, b = (f"{table}.{quote_identifier(name)}" for table in ("a", "b"))
    if left != right:
        # A number and its text are the same to a reader, and need no cast that could fail.
        a, b = f"CAST({a} AS VARCHAR)", f"CAST({b} AS VARCHAR)"
    return f"{a} IS DISTINCT FROM {b}"


def counts_query(rows: str, columns: Sequence[str]) -> str:
    """Return the query that counts the differences of each kind, the changes of each column, and keys of several rows.

    Parameters
    ----------
    rows
        A SELECT of the rows that `comparison` has.
    columns
        Their names.
    """
    kind, listed = map(quote_identifier, (DIFFERENCE, CHANGED))
    keys = columns[1 : columns.index(CHANGED) if CHANGED in columns else None]
    parts = [f"SELECT 0 AS part, {kind} AS name, count(*) AS n FROM ({rows}) GROUP BY ALL"]
    if CHANGED in columns:
        names = f"SELECT unnest(string_split({listed}, ', ')) AS name FROM ({rows}) WHERE {listed} IS NOT NULL"
        parts.append(f"SELECT 1, name, count(*) FROM ({names}) GROUP BY ALL")
    # Rows that are alike may share a key; a key of rows that differ matches each with each.
    named = ", ".join(map(quote_identifier, keys))
    several = f"SELECT {named} FROM ({rows}) GROUP BY {named} HAVING count(*) > 1"
    parts.append(f"SELECT 2, {quote_text(', '.join(keys))}, count(*) FROM ({several}) HAVING count(*) > 0")
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY part, n DESC, name"


def summary(counts: Sequence[Sequence[object]], headers: Sequence[str] = ()) -> str:
    """Return what is different in words.

    Parameters
    ----------
    counts
        The rows of `counts_query`.
    headers
        The names of the columns that `comparison` has.

    Examples
    --------
    >>> summary([[0, "changed", 12], [0, "only in b.csv", 1], [1, "amount", 12]])
    '12 changed, 1 only in b.csv; changed: amount 12'
    >>> summary([], ["difference", "id", "changed", "city (only in b)", "n (only in b)"])
    'no row differs; columns only in b: city, n'
    """
    kinds = [f"{count:,} {name}" for part, name, count in counts if part == 0]
    columns = [f"{name} {count:,}" for part, name, count in counts if part == 1]
    several = [f"{name} is not a key: {count:,} of them have several rows" for part, name, count in counts if part == 2]
    changes = [f"{CHANGED}: {', '.join(columns)}"] if columns else []
    lone: dict[str, list[str]] = {}
    for match in map(_LONE.fullmatch, headers[headers.index(CHANGED) + 1 :] if CHANGED in headers else ()):
        if match:
            lone.setdefault(match[2], []).append(match[1])
    added = [
        f"column{'s' * (len(names) > 1)} {where}: {', '.join(names[:_MOST_NAMED])}"
        + (f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else "")
        for where, names in lone.items()
    ]
    return "; ".join([", ".join(kinds) or "no row differs", *changes, *added, *several])
