"""The profile of one column: missing values, a histogram of numbers and times, the most frequent values of the rest.

Above a million rows it is made from a sample, and says so: DuckDB reads the blocks that a draw of two in a thousand
picks, which takes milliseconds for a hundred million rows.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from nbtools.sql.pages.conditions import condition_of, moment
from nbtools.sql.results.texts import Kind, as_whole, cell_text, kind_of, spell
from nbtools.texts.sql_quotes import quote_identifier
from nbtools.texts.values import short_time

SAMPLE_ABOVE = 1_000_000
_SAMPLE = 200_000
_SEED = 24  # so that the same rows are drawn again
_BINS = 24
_TOP = 6
_SECOND_US = 1_000_000
_LISTED = 200
_LABEL = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What one column holds.

    Attributes
    ----------
    rows
        How many rows were looked at: fewer than `of` are a sample.
    of
        How many rows there are.
    missing
        How many values are missing.
    distinct
        How many different values there are; an estimate above 200,000 rows.
    least
        The least value as text; `None` where there is none.
    greatest
        The greatest value as text; `None` where there is none.
    bins
        For numbers and times: where each range begins and ends (microseconds since 1970 for times), its count, and
        where it begins as text.
    top
        For the rest: the most frequent values and their counts.
    """

    rows: int
    of: int
    missing: int
    distinct: int
    least: str | None
    greatest: str | None
    bins: tuple[tuple[float, float, int, str], ...] = ()
    top: tuple[tuple[str, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return dataclasses.asdict(self)


def profile_column(
    cursor: Any,
    relation: str,
    name: str,
    type_name: str,
    *,
    of: int,
    where: str = "",
    exact: bool = False,
    zone: str | None = None,
) -> ColumnFacts:
    """Look at one column.

    Parameters
    ----------
    cursor
        DuckDB cursor that reads; it also makes a temporary table.
    relation
        What to write behind FROM.
    name
        Name of the column.
    type_name
        The engine's name of its type.
    of
        Rows there are.
    where
        ``WHERE …``, or nothing.
    exact
        Whether every row is looked at, however many there are.
    zone
        In which moments are shown; `None` where the values have none.
    """
    kind = kind_of(type_name)
    values = _looked_at(cursor, relation, name, where, exact=exact or of <= SAMPLE_ABOVE, of=of)
    different = "count(DISTINCT v)" if values == "drawn" or of <= _SAMPLE else "approx_count_distinct(v)"
    rows, filled, distinct, least, greatest = _first(
        cursor,
        f"SELECT count(*), count(v), {different}, "
        f"left(CAST(min(v) AS VARCHAR), {_LABEL + 1}), left(CAST(max(v) AS VARCHAR), {_LABEL + 1}) FROM {values}",
    )
    facts: dict[str, Any] = {"rows": rows, "of": of, "missing": rows - filled, "distinct": min(distinct, filled)}
    ends = as_whole([cell_text(end, _LABEL) for end in (least, greatest)], type_name)
    facts |= zip(("least", "greatest"), ends, strict=True)
    bins = _bins(cursor, values, kind, zone) if kind in {"number", "time"} else ()
    if bins and zone is not None:
        # As the cells are: DuckDB would write them in the zone of this machine.
        facts |= {"least": _edge(bins[0][0], 0.0, kind, zone), "greatest": _edge(bins[-1][1], 0.0, kind, zone)}
    top = () if bins else _most_frequent(cursor, values, type_name)
    return ColumnFacts(**facts, bins=bins, top=top)


def _looked_at(cursor: Any, relation: str, name: str, where: str, *, exact: bool, of: int) -> str:
    """Return what holds the values of a column as `v`: all of them, or a sample that is drawn now."""
    column = quote_identifier(name)
    values = f"(SELECT {column} AS v FROM {relation} {where})"
    if exact:
        return values
    share = max(100 * _SAMPLE / of, 0.01)
    sample = f"{values if where else relation} TABLESAMPLE {share:.4f}% (system, {_SEED})"
    # No more is drawn than asked for: blocks of a frame are large.
    sql = f"SELECT {'v' if where else f'{column} AS v'} FROM {sample} LIMIT {_SAMPLE}"
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE drawn AS {sql}")
    return "drawn"


def count_values(
    cursor: Any, relation: str, name: str, type_name: str, search: str, *, of: int, where: str = ""
) -> tuple[list[tuple[str | None, int]], str]:
    """Return the most frequent values of a column with their counts, and what these are of, in words.

    Values of more than 120 characters are left out: a list cannot tell them apart.

    Parameters
    ----------
    cursor
        DuckDB cursor that reads.
    relation
        What to write behind FROM.
    name
        Name of the column.
    type_name
        The engine's name of its type.
    search
        What the values, as they are shown, have in them, in any case; all do where it is empty.
    of
        Rows there are.
    where
        ``WHERE …``, or nothing.
    """
    values = _looked_at(cursor, relation, name, where, exact=of <= SAMPLE_ABOVE, of=of)
    within = condition_of("v", type_name, {"op": "contains", "value": search}) if search else "true"
    counts = cursor.execute(
        f"SELECT text, total, count(*) OVER () FROM (SELECT v, CAST(v AS VARCHAR) AS text, count(*) AS total "
        f"FROM {values} GROUP BY v) WHERE coalesce(length(text), 0) <= {_LABEL} "
        f"AND ({within}) ORDER BY total DESC, v LIMIT {_LISTED}"
    ).fetchall()
    different = counts[0][2] if counts else 0
    notes = [f"the {len(counts)} most frequent of {different:,}"] if different > len(counts) else []
    notes += [f"from a sample of {of:,} rows"] if values == "drawn" else []
    notes += ["no value has that in it"] if not counts and search else []
    return [(text, int(total)) for text, total, _ in counts], ", ".join(notes)


def _first(cursor: Any, sql: str) -> Any:
    # All are fetched: a frame cannot be read by a cursor that could still give rows.
    return cursor.execute(sql).fetchall()[0]


def _bins(cursor: Any, values: str, kind: Kind, zone: str | None) -> tuple[tuple[float, float, int, str], ...]:
    moments = "CAST(v AS TIMESTAMP)" if zone is None else "v"
    scale = "CAST(v AS DOUBLE)" if kind == "number" else f"epoch_us({moments})"
    whole = "isfinite(x)" if kind == "number" else "x IS NOT NULL"
    if kind == "time":
        typed = cursor.execute(f"SELECT typeof(v) FROM {values} LIMIT 1").fetchall()
        if not typed or not str(typed[0][0]).startswith(("DATE", "TIMESTAMP")):
            return ()
        whole = f"isfinite({moments})"
    numbers = f"(SELECT {scale} AS x FROM {values} WHERE v IS NOT NULL AND {whole.replace('(x)', f'({scale})')})"
    total, low, high, kinds, are_whole = _first(
        cursor, f"SELECT count(*), min(x), max(x), approx_count_distinct(x), bool_and(x = floor(x)) FROM {numbers}"
    )
    if not total:
        return ()
    low, high = float(low), float(high)
    count = min(_BINS, max(int(kinds), 1))
    width = (high - low) / count
    if not 0 < width < float("inf"):
        return ((low, high, total, _edge(low, 0.0, kind, zone)),)
    if are_whole and high - low < _BINS * _BINS:
        # As many whole numbers in each: with 19 of 20, one bar would be twice as high as the others.
        width = (high - low) // _BINS + 1
        count = int((high - low) // width) + 1
    counts = dict(
        cursor.execute(
            f"SELECT least({count - 1}, CAST(floor((x - ({low!r})) / {width!r}) AS INTEGER)), count(*) "
            f"FROM {numbers} GROUP BY 1"
        ).fetchall()
    )
    edges = [*(low + width * index for index in range(count)), high]
    return tuple(
        (edges[index], edges[index + 1], int(counts.get(index, 0)), _edge(edges[index], width, kind, zone))
        for index in range(count)
    )


def _most_frequent(cursor: Any, values: str, type_name: str) -> tuple[tuple[str, int], ...]:
    counted = cursor.execute(
        f"SELECT left(CAST(v AS VARCHAR), {_LABEL + 1}), count(*) FROM {values} WHERE v IS NOT NULL "
        f"GROUP BY v ORDER BY 2 DESC, 1 LIMIT {_TOP}"
    ).fetchall()
    texts = as_whole([spell(str(text), _LABEL) for text, _ in counted], type_name)
    return tuple((str(text), int(number)) for text, (_, number) in zip(texts, counted, strict=True))


def _edge(value: float, width: float, kind: Kind, zone: str | None) -> str:
    """Return how the edge of a bin is written, with so many digits that it differs from the next one."""
    if kind == "number":
        return f"{value:.{6 if width > abs(value) * 1e-5 else 15}g}"
    instant = moment(value, zone)
    if instant.time() == dt.time():
        return str(instant.date())
    return short_time(str(instant.replace(microsecond=0) if width >= _SECOND_US else instant))
