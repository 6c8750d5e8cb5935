"""Comparing: the rows of two tables that differ, matched by a key, as one query: cell beside cell, and what changed.

A value differs where SQL calls it distinct: a missing one equals a missing one, and a NaN a NaN. What is left is small
as a rule, and everything that is counted is counted in that. A key of several rows matches none: its rows stand for
themselves, not compared.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from nbtools.errors import InvalidArguments, nearest
from nbtools.sql.pages.shape import Shape, file_in
from nbtools.sql.results.texts import kind_of, type_name
from nbtools.texts.sql_quotes import quote_identifier, quote_text

DIFFERENCE, CHANGED = "difference", "changed"
"""The columns that say what is different about a row, and in which columns."""

_NOT_COMPARED = "not compared"
_ONLY = re.compile(r"THEN 'only in ((?:[^']|'')*)'")
_LONE = re.compile(r"(.+) \((only in .+)\)_*", re.DOTALL)
_MOST_NAMED = 10
_LONGEST = 40  # characters of a query that is a label


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """One of two tables.

    Attributes
    ----------
    label
        What a person calls it; the other one has another, see `labels_of`.
    relation
        What stands behind FROM.
    types
        The types of its columns, by name.
    """

    label: str
    relation: str
    types: Mapping[str, str]


def labels_of(one: Shape, other: Shape) -> tuple[str, str]:
    """Return what people call two sources: the last part of the name, and more of it where that is the same.

    Examples
    --------
    >>> labels_of(Shape.of_file("2025/sales.csv"), Shape.of_file("2026/sales.csv"))
    ('2025/sales.csv', '2026/sales.csv')
    >>> labels_of(Shape(source='"t"'), Shape(source='"t"', conditions=("n > 2",)))
    ('t', 't where n > 2')
    """
    longer = [_labels(one), _labels(other)]
    most = max(map(len, longer))
    pairs = [tuple(labels[min(at, len(labels) - 1)] for labels in longer) for at in range(most)]
    first, second = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    # The same twice, or two queries.
    return (first, second) if first != second else (f"{first} 1", f"{second} 2")


def _labels(shape: Shape) -> list[str]:
    """Return what a source may be called, the shortest first."""
    path, text = file_in(shape.source), shape.source
    if text[:1] + text[-1:] == "()":
        return [text[1:-1] if len(text) < _LONGEST else "query"]
    folders = [text.strip('"')] if path is None else re.split(r"[/\\]", path)
    labels = ["/".join(folders[at:]) for at in range(len(folders) - 1, -1, -1)]
    where = f"{labels[0]} where {' and '.join(shape.conditions)}"
    return [*labels, where] if shape.conditions and len(where) < _LONGEST else labels


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
                hint = f"Did you mean {close!r}?" if close else f"Columns: {', '.join(table.types)[:300]}."
                raise InvalidArguments(f"{table.label} has no column {key!r}.", hint=hint)
    if not keys:
        raise InvalidArguments("rows are matched by a key.", hint="Name its columns: --key id")
    shared = [name for name in left.types if name in right.types and name not in keys]
    a, b = left.label, right.label
    differs = {name: _differs(name, left.types[name], right.types[name]) for name in shared}
    only_a, only_b, changed = map(quote_text, (f"only in {a}", f"only in {b}", CHANGED))
    apart_a, apart_b = (quote_text(f"{_NOT_COMPARED} in {label}") for label in (a, b))
    kind = (
        f"CASE WHEN a.here__ = 'a' THEN {apart_a} WHEN b.here__ = 'b' THEN {apart_b} "
        f"WHEN a.here__ IS NULL THEN {only_b} WHEN b.here__ IS NULL THEN {only_a} ELSE {changed} END"
    )
    items = [
        f"{kind} AS {quote_identifier(DIFFERENCE)}",
        *(f"coalesce(a.{name}, b.{name}) AS {name}" for name in map(quote_identifier, keys)),
    ]
    cases = "".join(f", CASE WHEN {differ} THEN {quote_text(name)} END" for name, differ in differs.items())
    listed = f"CASE WHEN a.here__ = b.here__ THEN concat_ws(', '{cases or ', NULL'}) END"
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
    distinct = " OR ".join(["a.here__ IS NULL", "b.here__ IS NULL", *differs.values()])
    several, a_rows, b_rows = _rows_of(left, right, keys)
    return (
        f"{several}SELECT {', '.join(items)} FROM {a_rows} AS a FULL JOIN {b_rows} AS b "
        f"ON {_matched([*keys, 'here__'])} WHERE {distinct}"
    )


def compared_labels(query: str) -> list[str]:
    """Return what people call the two tables that a query of `comparison` compares; nothing for any other query."""
    labels = [label.replace("''", "'") for label in _ONLY.findall(query)[:2]]
    return labels[::-1] if len(labels) == 2 else []


def _matched(keys: Sequence[str], a: str = "a", b: str = "b") -> str:
    return " AND ".join(f"{a}.{name} IS NOT DISTINCT FROM {b}.{name}" for name in map(quote_identifier, keys))


def _rows_of(left: ComparedTable, right: ComparedTable, keys: Sequence[str]) -> tuple[str, ...]:
    """Return what lists the keys of several rows, and the rows of both sides, each with which side it is not of."""
    named = ", ".join(map(quote_identifier, keys))
    several = (f"SELECT {named} FROM {side.relation} GROUP BY {named} HAVING count(*) > 1" for side in (left, right))
    rows = (
        f"(SELECT t.*, CASE WHEN d.several__ THEN '{mark}' ELSE '' END AS here__ FROM {side.relation} AS t "
        f"LEFT JOIN several__ AS d ON {_matched(keys, 't', 'd')})"
        for side, mark in ((left, "a"), (right, "b"))
    )
    return (f"WITH several__ AS MATERIALIZED (SELECT *, true AS several__ FROM ({' UNION '.join(several)})) ", *rows)


def _differs(name: str, left: str, right: str) -> str:
    a, b = (f"{table}.{quote_identifier(name)}" for table in ("a", "b"))
    if left != right:
        a, b = _as_read(a, left, right), _as_read(b, right, left)
    return f"{a} IS DISTINCT FROM {b}"


def _as_read(value: str, kind: str, other: str) -> str:
    """Return a value's text, for a column that has another type in the other table.

    A number and its text are the same to a reader, and need no cast that could fail. So are a date and its midnight,
    and numbers whose types write them with more zeros or an exponent.
    """
    text = f"CAST({value} AS VARCHAR)"
    if kind == "DATE" and other.startswith("TIMESTAMP") and "ZONE" not in other:
        return f"coalesce(CAST(TRY_CAST({value} AS TIMESTAMP) AS VARCHAR), {text})"
    if not kind_of(kind) == kind_of(other) == "number":
        return text
    short = rf"regexp_replace({text}, '(\.\d*[1-9])0+$|\.0+$', '\1')"
    is_whole = f"{value} = trunc({value}) AND abs({value}) < 1e38"
    return f"CASE WHEN {is_whole} THEN CAST(CAST({value} AS HUGEINT) AS VARCHAR) ELSE {short} END"


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
    named = ", ".join(map(quote_identifier, [DIFFERENCE, *keys]))
    several = f"SELECT {named} FROM ({rows}) WHERE {kind} LIKE '{_NOT_COMPARED}%' GROUP BY {named} HAVING count(*) > 1"
    words = f"{quote_text(', '.join(keys) + ' is not a key')} || substr({kind}, {len(_NOT_COMPARED) + 1})"
    parts.append(f"SELECT 2, {words}, count(*) FROM ({several}) GROUP BY ALL")
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY part, n DESC, name"


def summary(counts: Sequence[Sequence[object]], headers: Sequence[str] = (), types: Sequence[str] = ()) -> str:
    """Return what is different in words.

    Parameters
    ----------
    counts
        The rows of `counts_query`.
    headers
        Names of the columns of `comparison`.
    types
        The engine's name of the type of each of them; empty where types are not compared.

    Examples
    --------
    >>> summary([[0, "changed", 12], [0, "only in b.csv", 1], [1, "amount", 12]])
    '12 changed, 1 only in b.csv; changed: amount 12'
    >>> summary([], ["difference", "id", "changed", "city (only in b)", "n (only in b)"])
    'no row differs; columns only in b: city, n'
    >>> summary([[0, "not compared in a", 2], [0, "not compared in b", 1], [2, "id is not a key in a", 1]])
    '2 not compared in a, 1 not compared in b; id is not a key in a: 1 of them has several rows'
    >>> summary([], ["difference", "id", "changed", "n (a)", "n (b)"], ["", "", "", "BIGINT", "VARCHAR"])
    'no row differs; types differ: n (a) bigint, n (b) varchar'
    """
    kinds = [f"{count:,} {name}" for part, name, count in counts if part == 0]
    columns = [f"{name} {count:,}" for part, name, count in counts if part == 1]
    several = [
        f"{name}: {count:,} of them {'has' if count == 1 else 'have'} several rows"
        for part, name, count in counts
        if part == 2
    ]
    changes = [f"{CHANGED}: {', '.join(columns)}"] if columns else []
    lone: dict[str, list[str]] = {}
    start = headers.index(CHANGED) + 1 if CHANGED in headers else len(headers)
    for match in filter(None, map(_LONE.fullmatch, headers[start:])):
        lone.setdefault(match[2], []).append(match[1])
    cells = list(zip(headers, types, strict=False))[start:]
    # Two sizes of numbers are the same to a person.
    pairs = [
        f"{cell} {type_name(kind)}, {beside} {type_name(other)}"
        for (cell, kind), (beside, other) in zip(cells[::2], cells[1::2], strict=False)
        if not _LONE.fullmatch(cell)
        and type_name(kind) != type_name(other)
        and {*map(kind_of, (kind, other))} != {"number"}
    ]
    added = [
        f"column{'s' * (len(names) > 1)} {where}: {', '.join(names[:_MOST_NAMED])}"
        + (f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else "")
        for where, names in lone.items()
    ]
    others = [f"types differ: {', '.join(pairs[:_MOST_NAMED])}"] if pairs else []
    return "; ".join([", ".join(kinds) or "no row differs", *changes, *others, *added, *several])
