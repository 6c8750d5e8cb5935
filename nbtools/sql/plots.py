"""Charts of whole results, however many rows: what is drawn is computed by SQL, and few numbers leave the engine.

Each kind of chart is one query over the person's own, which stands in it as a sub-query and is judged with it. Bars may
be told what their height is of y: ``bar:mean``; the sum by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.sql.pages.grouping import MEASURES
from nbtools.sql.results.texts import kind_of
from nbtools.texts.sql_quotes import quote_identifier

KINDS = ("bar", "line", "hist", "box", "scatter")
"""What can be drawn."""
_MOST_BARS, _MOST_POINTS, _BINS, _GRID, _MOST_BOXES = 50, 1_000, 40, 100, 30
_MOMENT = re.compile(r"DATE|TIMESTAMP")


def measure_of(kind: str) -> tuple[str, str]:
    """Return a kind of chart without what its heights are, and that.

    Raises
    ------
    InvalidArguments
        There is no such kind, or it has no such height.

    Examples
    --------
    >>> measure_of("bar:mean"), measure_of("bar"), measure_of("line")
    (('bar', 'mean'), ('bar', 'sum'), ('line', 'mean'))
    """
    form, colon, measure = kind.partition(":")
    if form not in KINDS or (colon and (form != "bar" or measure not in MEASURES)):
        hint = f"Kinds of plots: {', '.join(KINDS)}; bars may be {', '.join(f'bar:{each}' for each in MEASURES)}."
        raise InvalidArguments(f"{kind!r} is not a kind of chart.", hint=hint)
    return form, measure or ("sum" if form == "bar" else "mean")


def columns_of(kind: str, columns: Sequence[str], names: Sequence[str], types: Sequence[str]) -> tuple[str, str | None]:
    """Return the columns x and y of a chart: those that are given, else the first that fit.

    Parameters
    ----------
    kind
        See `measure_of`.
    columns
        Names of x and y, as far as they are said.
    names
        Names of the columns of the result.
    types
        The engine's name of the type of each of them.

    Raises
    ------
    InvalidArguments
        There is no such column, or none that fits.
    """
    kind, measure = measure_of(kind)
    for name in columns:
        if name not in names:
            hint = did_you_mean(name, names, f"Columns: {', '.join(names)[:300]}.")
            raise InvalidArguments(f"the result has no column {name!r}.", hint=hint)
    numbers = [name for name, type_name in zip(names, types, strict=True) if kind_of(type_name) == "number"]
    x = tuple((*columns, *(numbers if kind in {"hist", "box"} else names))[:1])
    y = tuple(columns[1:2]) if kind != "hist" else ()
    if not y and (kind in {"line", "scatter"} or (kind == "bar" and not columns)):
        y = tuple(name for name in numbers if name not in x)[:1]
    measured = (
        () if measure == "count" else (*(x if kind == "scatter" or (kind in {"hist", "box"} and not y) else ()), *y)
    )
    has_moments = kind in {"hist", "scatter"} and _MOMENT.search(_type_of(x, names, types))
    fits = {*measured} <= {*numbers, *(x if has_moments else ())}
    if not x or (not y and kind in {"line", "scatter"}) or not fits:
        raise InvalidArguments(
            f"a {kind} chart needs a column of numbers{' besides x' if y or kind in {'line', 'scatter'} else ''}.",
            hint=f"Write --plot {kind} X{'' if kind == 'hist' else ' Y'}; there are {', '.join(names)[:300]}.",
        )
    return x[0], y[0] if y else None


def plot_query(kind: str, query: str, x: str, y: str | None, x_type: str) -> str:
    """Return the query whose rows are drawn.

    Parameters
    ----------
    kind
        See `measure_of`.
    query
        The person's own.
    x
        Column of its result along the horizontal axis.
    y
        Column of its result that is measured; `None` where rows are counted.
    x_type
        The engine's type of x.

    Returns
    -------
    str
        Bars: x, height, number of bars; numbers and times in their own order, else the highest first. Lines: x, mean,
        least, greatest. Histograms: left edge, width, count. Boxes: group, the five numbers of a box, count. Scatter:
        x, y, count.
    """
    rows = f"(\n{query.strip().rstrip(';')}\n) AS result"
    a, b = quote_identifier(x), quote_identifier(y) if y else ""
    kind, measure = measure_of(kind)
    if kind == "bar":
        return _bars(rows, a, f"{MEASURES[measure]}({b})" if b else "count(*)", kind_of(x_type) in {"number", "time"})
    moment = _MOMENT.search(x_type.upper())
    number = f"epoch({a})" if moment else f"{a}::DOUBLE" if kind_of(x_type) == "number" else ""
    make = {"hist": _histogram, "box": _boxes, "line": _line, "scatter": _scatter}[kind]
    return make(rows, a, b, number)


def grouped_query(kind: str, query: str, x: str, y: str | None, quote: Callable[[str], str]) -> str:
    """Return the query by which another engine gives what a chart needs of its rows: of bars, one row each.

    Parameters
    ----------
    kind
        See `measure_of`.
    query
        The person's own.
    x
        Column of its result along the horizontal axis.
    y
        Column of its result that is measured; `None` where rows are counted.
    quote
        Quotes an identifier for that engine.
    """
    rows = f"(\n{query}\n) AS result"
    names = [quote(name) for name in (x, y) if name is not None]
    kind, measure = measure_of(kind)
    if kind != "bar":
        return f"SELECT {', '.join(dict.fromkeys(names))} FROM {rows}"
    height = (
        f"{MEASURES[measure]}({names[1]}) AS {names[1]}"
        if y
        else f"count(*) AS {quote('rows' if x != 'rows' else 'n')}"
    )
    return f"SELECT {names[0]}, {height} FROM {rows} GROUP BY {names[0]}"


def _bars(rows: str, a: str, height: str, is_ordered: bool) -> str:
    highest = (
        f"SELECT {a} AS x, {height} AS height, count(*) OVER () AS bars FROM {rows} GROUP BY {a} "
        f"ORDER BY height DESC NULLS LAST LIMIT {_MOST_BARS}"
    )
    return f"FROM ({highest}) ORDER BY x" if is_ordered else highest


def _histogram(rows: str, a: str, b: str, number: str) -> str:
    bin_index = f"least(floor((v - low) / width), {_BINS - 1})"
    edge, width = f"min(low + {bin_index} * width)", "any_value(width)"
    if number.startswith("epoch"):  # a chart's dates are as wide as days
        edge, width = f"make_timestamp((1e6 * {edge})::BIGINT)", f"{width} / 86400"
    return (
        f"WITH v AS (SELECT {number} AS v FROM {rows} WHERE isfinite({number})), "
        f"e AS (SELECT min(v) AS low, greatest((max(v) - min(v)) / {_BINS}, 1e-300) AS width FROM v) "
        f"SELECT {edge} AS x, {width} AS width, count(*) AS n FROM v, e GROUP BY {bin_index} ORDER BY 1"
    )


def _boxes(rows: str, a: str, b: str, number: str) -> str:
    group, value = (a, f"{b}::DOUBLE") if b else ("''", f"{a}::DOUBLE")
    reach = "1.5 * (q[3] - q[1])"
    return (
        f"WITH v AS (SELECT {group} AS g, {value} AS v FROM {rows} WHERE isfinite({value})), "
        "q AS (SELECT g, quantile_cont(v, [0.25, 0.5, 0.75]) AS q, count(*) AS n FROM v GROUP BY g "
        f"ORDER BY n DESC LIMIT {_MOST_BOXES}) "
        f"SELECT q.g AS x, min(v) FILTER (v >= q[1] - {reach}) AS whislo, any_value(q[1]) AS q1, "
        f"any_value(q[2]) AS med, any_value(q[3]) AS q3, max(v) FILTER (v <= q[3] + {reach}) AS whishi "
        "FROM v JOIN q ON v.g IS NOT DISTINCT FROM q.g GROUP BY q.g ORDER BY 1"
    )


def _line(rows: str, a: str, b: str, number: str) -> str:
    points = f"SELECT {a} AS x, {number or 'NULL'} AS p, {b}::DOUBLE AS y FROM {rows}"
    means = "avg(y) AS y, min(y) AS low, max(y) AS high"
    if not number:
        return f"SELECT x, {means} FROM ({points}) GROUP BY x ORDER BY x"
    return (
        f"WITH v AS ({points}), e AS (SELECT min(p) AS a, greatest((max(p) - min(p)) / {_MOST_POINTS}, 1e-300) AS w, "
        f"count(DISTINCT p) <= {_MOST_POINTS} AS few FROM v) "
        f"SELECT min(x) AS x, {means} FROM v, e WHERE p IS NOT NULL GROUP BY if(few, p, floor((p - a) / w)) ORDER BY 1"
    )


def _scatter(rows: str, a: str, b: str, number: str) -> str:
    side = f"greatest((max({{0}}) - min({{0}})) / {_GRID}, 1e-300)"
    return (
        f"WITH v AS (SELECT {number or a} AS a, {b}::DOUBLE AS b FROM {rows} "
        f"WHERE {a} IS NOT NULL AND {b} IS NOT NULL), "
        f"e AS (SELECT {side.format('a')} AS wa, {side.format('b')} AS wb, count(*) <= {_MOST_POINTS} AS few FROM v) "
        "SELECT avg(a) AS x, avg(b) AS y, count(*) AS n FROM v, e "
        "GROUP BY if(few, a, floor(a / wa)), if(few, b, floor(b / wb)) ORDER BY 1, 2"
    )


def _type_of(x: tuple[str, ...], names: Sequence[str], types: Sequence[str]) -> str:
    return types[list(names).index(x[0])].upper() if x else ""
