"""Grouping: the query of counts, sums, means, least and greatest values by columns that a person chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nbtools.errors import InvalidArguments
from nbtools.sql.pages.shape import Shape, below, parsed_source, text_of
from nbtools.texts.sql_quotes import quote_text

MEASURES = {"count": "count", "sum": "sum", "mean": "avg", "min": "min", "max": "max"}
"""What can be computed of a group, and the function of SQL."""
MOST_KEYS, MOST_ACROSS = 3, 50


def grouped(
    shape: Shape,
    keys: Sequence[str],
    measures: Sequence[tuple[str, str | None]],
    across: str | None = None,
    values: Sequence[str | None] = (),
) -> Shape:
    """Return the query that groups the rows of a query.

    Parameters
    ----------
    shape
        The query.
    keys
        Columns; rows that are the same in all of them are one group.
    measures
        Of each group: one of `MEASURES`, and its column; a count has none.
    across
        A column whose values become columns.
    values
        They, as texts; `None` for a missing one.

    Raises
    ------
    InvalidArguments
        There are no keys, too many, or no such measure.

    Examples
    --------
    >>> print(grouped(Shape.of_file("a.csv"), ["city"], [("count", None), ("mean", "x")]).to_text())
    SELECT *
    FROM (SELECT "city", count(*) AS "rows", avg("x") AS "mean of x" FROM 'a.csv' GROUP BY "city") AS "q"
    ORDER BY "rows" DESC
    """
    if not 1 <= len(keys) <= MOST_KEYS or not measures or across in keys:
        raise InvalidArguments(
            f"a group needs one to {MOST_KEYS} columns, something to compute, and another column across."
        )
    if across is not None and len(values) > MOST_ACROSS:
        raise InvalidArguments(
            f"{across} has more than {MOST_ACROSS} different values, each of which would be a column.",
            hint="Choose a column with fewer, or filter first.",
        )
    names: list[str] = []
    items = [shape.quoted(key) for key in keys]
    for function, column in measures:
        for where, label in _pieces(shape, across, values):
            name = _name(function, column, label, alone=len(measures) == 1)
            while name in {*keys, *names}:
                name += "_"
            items.append(f"{_call(shape, function, column)}{where} AS {shape.quoted(name)}")
            names.append(name)
    where = f" WHERE {shape.where}" if shape.conditions else ""
    by = ", ".join(map(shape.quoted, keys))
    source = f"(SELECT {', '.join(items)} FROM {shape.relation}{where} GROUP BY {by})"
    order = ((names[0], True),) if across is None else tuple((key, False) for key in keys)
    return Shape(source=source, alias="q", order=order, dialect=shape.dialect)


class Groups(NamedTuple):
    """The parts of a query of groups: the query of its rows, keys, and measures with name, function and column."""

    rows: Shape
    keys: list[str]
    measures: list[tuple[str, str, str | None]]


def groups_of(shape: Shape) -> Groups | None:
    """Return what `grouped` was given; `None` for any other query, and for one with columns across.

    Examples
    --------
    >>> groups_of(grouped(Shape.of_file("a.csv"), ["city"], [("mean", "x")]))[1:]
    (['city'], [('mean of x', 'mean', 'x')])
    """
    from sqlglot import exp

    if shape.dialect != "duckdb" or not shape.source.startswith("(SELECT ") or " GROUP BY " not in shape.source:
        return None
    query = parsed_source(shape.source).this
    usual = {"expressions", "from_", "where", "group"}
    if not isinstance(query, exp.Select) or {name for name, value in query.args.items() if value} - usual:
        return None
    functions = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "mean", exp.Min: "min", exp.Max: "max"}
    keys, measures = [], []
    for each in query.expressions:
        of = each.this.this if isinstance(each, exp.Alias) and type(each.this) in functions else None
        if isinstance(each, exp.Column):
            keys.append(each.name)
        elif isinstance(of, exp.Column | exp.Star):
            column = of.name if isinstance(of, exp.Column) else None
            measures.append((each.alias, functions[type(each.this)], column))
        else:
            return None
    # A person may group by an expression, or by something that is not shown.
    if not keys or [each.name for each in query.args["group"].expressions] != keys:
        return None
    where = query.args.get("where")
    condition = f" WHERE {where.this.sql('duckdb')}" if where else ""
    return Groups(Shape.from_text(f"SELECT * FROM {text_of(below(query))}{condition}"), keys, measures)


def _call(shape: Shape, function: str, column: str | None) -> str:
    if function not in MEASURES or (column is None and function != "count"):
        raise InvalidArguments(f"{function!r} of {column!r} cannot be computed; there are {', '.join(MEASURES)}.")
    return f"{MEASURES[function]}({'*' if column is None else shape.quoted(column)})"


def _pieces(shape: Shape, across: str | None, values: Sequence[str | None]) -> list[tuple[str, str]]:
    """Return the filter that follows the call of a measure, and the label, for each column across."""
    if across is None:
        return [("", "")]
    column = shape.quoted(across)
    tests = [
        f"{column} IS NULL" if value is None else f"CAST({column} AS VARCHAR) = {quote_text(value)}" for value in values
    ]
    labels = ("missing" if value is None else value for value in values)
    return [(f" FILTER (WHERE {test})", label) for test, label in zip(tests, labels, strict=True)]


def _name(function: str, column: str | None, label: str, *, alone: bool) -> str:
    name = "rows" if column is None else f"{function} of {column}"
    if not label:
        return name
    return label if alone else f"{label}: {name}"
