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
    is_x_measured = kind == "scatter" or (kind in {"hist", "box"} and not y)
    measured = {*y, *(x if is_x_measured else ())} if measure != "count" else set()
    has_moments = kind in {"hist", "scatter"} and x and _MOMENT.search(types[list(names).index(x[0])].upper())
    fits = measured <= {*numbers, *(x if has_moments else ())}
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
        Bars: x, height, number of all bars; numbers and times in their own order, else the highest first. Lines: x,
        mean, least, greatest. Histograms: left edge, width, count. Boxes: x, the five numbers of a box, number of all
        boxes. Scatter: x, y, count. What cannot be drawn is null, and ``undrawn`` counts its rows. Where x is a
        category, null is one too, and ``label`` has the text of each.
    """
    rows = f"(\n{query.strip().rstrip(';')}\n) AS result"
    a, b = quote_identifier(x), quote_identifier(y) if y else ""
    kind, measure = measure_of(kind)
    if kind == "bar":
        return _bars(rows, a, f"{MEASURES[measure]}({b})" if b else "count(*)", kind_of(x_type) in {"number", "time"})
    number = f"epoch({a})" if _MOMENT.search(x_type.upper()) else f"{a}::DOUBLE" if kind_of(x_type) == "number" else ""
    make = {"hist": _histogram, "box": _boxes, "line": _line, "scatter": _scatter}[kind]
    return make(rows, a, b and f"{b}::DOUBLE", number)


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
    height, name = (f"{MEASURES[measure]}({names[1]})", y) if y else ("count(*)", "n" if x == "rows" else "rows")
    return f"SELECT {names[0]}, {height} AS {quote(name)} FROM {rows} GROUP BY {names[0]}"


def _drawable(value: str, beside: str = "0") -> str:
    """Return an expression for a value that is null where it cannot be drawn, or what stands beside it cannot."""
    return f"if({_is_on_axis(value)} AND {_is_on_axis(beside)}, {value}, NULL)"


def _is_on_axis(value: str) -> str:
    """Return a condition that neither NaN nor infinity meets, nor what matplotlib has no axis for with its margins."""
    # Seconds of the years 702 to 8307: its moments end at the years 1 and 9999.
    return f"{value}::DOUBLE BETWEEN {'-4e10 AND 2e11' if value.startswith('epoch') else '-1e300 AND 1e300'}"


def _moment_or(value: str, number: str) -> str:
    """Return an expression for a place on the axis: a moment, where the numbers of the axis are seconds."""
    return f"make_timestamp((1e6 * {value})::BIGINT)" if number.startswith("epoch") else value


def _bars(rows: str, a: str, height: str, is_ordered: bool) -> str:
    highest = (
        f"SELECT {a} AS x, {_drawable(height)} AS height, count(*) OVER () AS groups, {a}::VARCHAR AS label "
        f"FROM {rows} GROUP BY {a} ORDER BY height DESC NULLS LAST LIMIT {_MOST_BARS}"
    )
    return f"FROM ({highest}) ORDER BY x" if is_ordered else highest


def _histogram(rows: str, a: str, b: str, number: str) -> str:
    bin_index = f"if(v IS NULL, NULL, least(floor((v - low) / width), {_BINS - 1}))"  # least() passes over null
    is_moment = number.startswith("epoch")
    # Where all values are the same, as far as a float tells, one bin stands around them that is wide enough to be seen.
    one = "86400" if is_moment else "greatest(1, abs(least) / 100)"
    return (
        f"WITH v AS (SELECT {_drawable(number)} AS v FROM {rows}), "
        "s AS (SELECT min(v) AS least, max(v) - least AS span, span <= 1e-13 * max(abs(v)) + 1e-300 AS flat FROM v), "
        f"e AS (SELECT if(flat, {one}, span / {_BINS}) AS width, if(flat, least - width / 2, least) AS low FROM s) "
        f"SELECT {_moment_or(f'min(low + {bin_index} * width)', number)} AS x, "
        f"any_value(width){' / 86400' if is_moment else ''} AS width, "  # a chart's dates are as wide as days
        f"count(v) AS n, count(*) - count(v) AS undrawn FROM v, e GROUP BY {bin_index} ORDER BY 1"
    )


def _boxes(rows: str, a: str, b: str, number: str) -> str:
    group, value = (a, b) if b else ("''", f"{a}::DOUBLE")
    reach = "1.5 * (q[3] - q[1])"
    return (
        f"WITH v AS (SELECT {group} AS g, {_drawable(value)} AS v FROM {rows}), "
        "q AS (SELECT g, quantile_cont(v, [0.25, 0.5, 0.75]) AS q, count(*) - count(v) AS undrawn, "
        f"count(*) OVER () AS groups FROM v GROUP BY g ORDER BY count(v) DESC LIMIT {_MOST_BOXES}) "
        f"SELECT q.g AS x, min(v) FILTER (v >= q[1] - {reach}) AS whislo, any_value(q[1]) AS q1, "
        f"any_value(q[2]) AS med, any_value(q[3]) AS q3, max(v) FILTER (v <= q[3] + {reach}) AS whishi, "
        "any_value(undrawn) AS undrawn, any_value(groups) AS groups, q.g::VARCHAR AS label "
        "FROM v JOIN q ON v.g IS NOT DISTINCT FROM q.g GROUP BY q.g ORDER BY 1"
    )


def _line(rows: str, a: str, b: str, number: str) -> str:
    on_axis = number or "0"
    points = f"SELECT {a} AS x, {_drawable(on_axis)} AS p, {_drawable(b, on_axis)} AS y FROM {rows}"
    means = "avg(y) AS y, min(y) AS low, max(y) AS high, count(*) - count(y) AS undrawn"
    if not number:
        return f"SELECT x, {means}, x::VARCHAR AS label FROM ({points}) GROUP BY x ORDER BY x"
    # A moment keeps its zone; a whole number may be larger than what a chart has numbers for.
    first = "min(x) FILTER (p IS NOT NULL)" if number.startswith("epoch") else "min(p)"
    return (
        f"WITH v AS ({points}), e AS (SELECT min(p) AS a, greatest((max(p) - min(p)) / {_MOST_POINTS}, 1e-300) AS w, "
        f"count(DISTINCT p) <= {_MOST_POINTS} AS few FROM v) SELECT {first} AS x, {means} FROM v, e "
        "GROUP BY if(few, p, floor((p - a) / w)) ORDER BY 1"
    )


def _scatter(rows: str, a: str, b: str, number: str) -> str:
    side = f"greatest((max({{0}}) - min({{0}})) / {_GRID}, 1e-300)"
    return (
        f"WITH v AS (SELECT {_drawable(number, b)} AS a, {_drawable(b, number)} AS b FROM {rows}), "
        f"e AS (SELECT {side.format('a')} AS wa, {side.format('b')} AS wb, count(a) <= {_MOST_POINTS} AS few FROM v) "
        f"SELECT {_moment_or('avg(a)', number)} AS x, avg(b) AS y, count(a) AS n, count(*) - count(a) AS undrawn "
        "FROM v, e GROUP BY if(few, a, floor(a / wa)), if(few, b, floor(b / wb)) ORDER BY 1, 2"
    )
