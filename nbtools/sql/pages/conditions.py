"""Conditions: what a person chose, a comparison or a range of a histogram, as SQL.

A moment typed without a time zone is in the zone in which the cells of its column are shown; the condition names that
zone, so that it means the same wherever it runs.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.sql.engines.duckdb.zones import ZONE
from nbtools.sql.results.engine_copy import json_of, type_from_text
from nbtools.sql.results.texts import NESTED, Kind, kind_of
from nbtools.texts.sql_quotes import quote_identifier, quote_text

_WITHIN = {"contains": "contains({})", "does not contain": "NOT contains({})", "starts with": "starts_with({})"}
_TEXTS = frozenset({"varchar", "str", "string", "large_string", "utf8"})  # which hold nothing but text
_JOINED = {"=": "OR", "contains": "OR", "starts with": "OR", "≠": "AND", "does not contain": "AND"}
_NUMBER_LIST = re.compile(r"(?:DECIMAL\(\d+,\d+\)|FLOAT|DOUBLE)(?:\[\d*\])+")
_SIGNS = {"=": "=", "≠": "<>", "<": "<", "≤": "<=", ">": ">", "≥": ">="}
_HAS_ZONE = re.compile(r":\d\d(?:\.\d+)?\s*[+-]\d\d(?::?\d\d)?$|[a-zA-Z]$")

# Microseconds since 1970 of the years that Python has moments for; DuckDB has more.
_FIRST_US, _LAST_US = -62_135_510_400_000_000, 253_402_214_400_000_000


def zone_of(type_name: str, session: str) -> str | None:
    """Return the time zone in which a column is shown, as a name or an offset; `None` where its values have none.

    Parameters
    ----------
    type_name
        As DuckDB, pandas, polars or Arrow calls it.
    session
        The zone in which DuckDB shows moments.

    Examples
    --------
    >>> names = ("datetime64[us, Asia/Kathmandu]", "timestamp[ms, tz=+05:45]", "TIMESTAMP WITH TIME ZONE", "DATE")
    >>> [zone_of(name, "Europe/Zurich") for name in names]
    ['Asia/Kathmandu', '+05:45', 'Europe/Zurich', None]
    """
    match = ZONE.search(type_name)
    if match:
        return match[1]
    return session if type_name.upper() in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"} else None


def moment(microseconds: float, zone: str | None) -> dt.datetime:
    """Return a moment, given the microseconds since 1970, in a time zone where there is one; the nearest Python has."""
    microseconds = min(max(microseconds, _FIRST_US), _LAST_US)
    # Without a zone it is as the column has it: no place is meant.
    instant = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    return instant.replace(tzinfo=None) if zone is None else instant.astimezone(_zone_of_name(zone))


def _zone_of_name(zone: str) -> dt.tzinfo:
    if re.fullmatch(r"[+-]\d\d:\d\d", zone):
        return dt.datetime.fromisoformat(f"2000-01-01T00:00{zone}").tzinfo or dt.UTC
    with contextlib.suppress(ValueError, OSError, KeyError):
        return zoneinfo.ZoneInfo(zone)
    return dt.UTC  # a zone that nobody here knows; the condition is exact all the same


def condition_of(name: str, type_name: str, condition: Mapping[str, Any], zone: str | None = None) -> str:
    r"""Return the condition for a comparison that a person chose.

    Parameters
    ----------
    name
        Name of the column.
    type_name
        The engine's name of its type.
    condition
        ``op`` and ``value``; for ``in`` the ``values``, of which `None` is what is missing; for ``between`` a
        ``value`` and what it goes ``to``, or the ``low``, ``high`` and ``last`` of `condition_for`.
    zone
        See `zone_of`.

    Raises
    ------
    InvalidArguments
        The value is not one of that kind.

    Examples
    --------
    >>> condition_of("t", "timestamptz", {"op": "<", "value": "2020-07-01 12:00"}, "Asia/Kathmandu")
    '"t" < TIMESTAMPTZ \'2020-07-01 12:00 Asia/Kathmandu\''
    """
    column, op = quote_identifier(name), condition["op"]
    if op == "between" and "to" in condition:
        ends = ({"op": "≥", "value": condition["value"]}, {"op": "≤", "value": condition["to"]})
        return " AND ".join(condition_of(name, type_name, end, zone) for end in ends)
    if op == "between":
        low, high, last = condition["low"], condition["high"], condition["last"]
        return condition_for(name, kind_of(type_name), low=low, high=high, last=last, zone=zone)
    if op in {"is missing", "is there"}:
        return f"{column} IS {'NOT ' if op == 'is there' else ''}NULL"
    if op == "in":
        return _one_of(name, type_name, condition["values"], zone)
    value = typed = str(condition.get("value", ""))
    is_list = _NUMBER_LIST.fullmatch(type_name) is not None
    if is_list:  # DuckDB's text of these is what is shown, but for two words
        value = re.sub(r'"(-?inf|nan)"', r"\1", typed).replace("null", "NULL")
    if op in _WITHIN:
        text = column if type_name.lower() in _TEXTS else f"CAST({column} AS VARCHAR)"
        form, left, right = _WITHIN[op].format("lower({}), {}"), text, quote_text(value.lower())
    else:
        form, (left, right) = f"{{}} {_SIGNS[op]} {{}}", _compared(name, type_name, value, zone)
    as_text = form.format(left, right)
    is_nested = NESTED.match(type_name) or type_name == "object"
    if not is_nested or op not in _JOINED or not re.search(r"""["'\\[{]""", typed):
        return as_text
    # What is shown of lists, maps and structs is their JSON, in which blanks stand behind commas and colons.
    # A copy may have a text for it; and other engines, which have lists, have no lambda.
    as_json = json_of(column, "" if is_list else type_from_text(type_name) or "", as_shown=True)
    as_json = f"replace(replace({as_json}, '\": ', '\":'), ', ', ',')"
    value = (typed.lower() if op in _WITHIN else typed).replace('": ', '":').replace(", ", ",")
    return f"({as_text} {_JOINED[op]} {form.format(as_json, quote_text(value))})"


def _one_of(name: str, type_name: str, values: Sequence[str | None], zone: str | None) -> str:
    """Return the condition for one of some values, `None` for what is missing."""
    column = quote_identifier(name)
    pairs = [_compared(name, type_name, value, zone) for value in values if value is not None]
    missing = [f"{column} IS NULL"] if None in values else []
    if not pairs:
        return missing[0]
    rights = ", ".join(right for _, right in pairs)
    chosen = f"{pairs[0][0]} = {rights}" if len(pairs) == 1 else f"{pairs[0][0]} IN ({rights})"
    return f"({' OR '.join([chosen, *missing])})" if missing else chosen


def _compared(name: str, type_name: str, value: str, zone: str | None) -> tuple[str, str]:
    """Return a column and a value of it that a person typed, both as SQL that can be compared."""
    column, kind = quote_identifier(name), kind_of(type_name)
    value = value.strip() if kind in {"number", "time"} else value
    if kind == "number":
        bare = value.replace(",", "")
        with contextlib.suppress(ValueError):
            return column, bare if math.isfinite(float(bare)) else f"CAST({quote_text(bare)} AS DOUBLE)"
        raise InvalidArguments(f"{value!r} is not a number.", hint=f"{name} contains numbers.")
    if kind == "bool" and value.strip().lower() in {"true", "false"}:
        return column, value.strip().lower()
    if zone is not None:
        return column, f"TIMESTAMPTZ {quote_text(_with_zone(value, zone))}"
    is_plain = kind == "time" or type_name.lower() in _TEXTS
    return column if is_plain else f"CAST({column} AS VARCHAR)", quote_text(value)


def _with_zone(value: str, zone: str) -> str:
    if _HAS_ZONE.search(value):
        return value
    # DuckDB takes a zone behind a time of day alone.
    timed = value if ":" in value else f"{value} 00:00"
    return f"{timed}{zone}" if zone[0] in "+-" else f"{timed} {zone}"


def condition_for(
    name: str, kind: Kind, *, low: float | None, high: float | None, last: bool, zone: str | None = None
) -> str:
    """Return the condition that a range of a histogram stands for.

    Parameters
    ----------
    name
        Name of the column.
    kind
        The kind of its values.
    low
        Where the range begins, as in `nbtools.sql.pages.header_profile.ColumnFacts.bins`; `None` for no bound.
    high
        Where the range ends; `None` for no bound.
    last
        Whether `high` itself belongs to it.
    zone
        See `zone_of`.

    Examples
    --------
    >>> condition_for("a b", "number", low=1.5, high=2.0, last=False)
    '"a b" >= 1.5 AND "a b" < 2'
    """
    column = quote_identifier(name)
    bounds = ((">=", low), ("<=" if last else "<", high))
    return " AND ".join(f"{column} {sign} {_literal(value, kind, zone)}" for sign, value in bounds if value is not None)


def _literal(value: float, kind: Kind, zone: str | None) -> str:
    if kind == "time":
        if not _FIRST_US < value < _LAST_US:
            return f"make_timestamp({int(value)})"
        text = quote_text(moment(value, zone).isoformat(sep=" "))
        return f"TIMESTAMP {text}" if zone is None else f"TIMESTAMPTZ {text}"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
