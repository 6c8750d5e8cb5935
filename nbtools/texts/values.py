"""A value as text: what every face shows for a date, a number, bytes or what holds them, and its JSON."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_DAY_NS = 86_400_000_000_000
_PLAIN_BYTES = frozenset(range(32, 127)) - frozenset(b"\\'\"")
_PARTS = re.compile(r"(.*?\d:\d\d(?::\d\d)?)(?:\.(\d+))?(?:(Z|[+-])(\d\d:?\d\d|)((?::\d\d(?:\.\d+)?)?))?")


class Pairs(list[tuple[Any, Any]]):
    """The entries of a map: pairs in Python, where keys are of any type, and an object in JSON."""


def text_of(value: Any) -> str:
    r"""Return the text of a value that is not missing, as DuckDB writes it; lists, maps and structs are JSON.

    Examples
    --------
    >>> [text_of(value) for value in (2**60 + 1, 0.1 + 0.2, float("nan"), True, b"\x00\xffa", [1, None])]
    ['1152921504606846977', '0.30000000000000004', 'nan', 'true', '\\x00\\xFFa', '[1, null]']
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\x{byte:02X}" for byte in bytes(value))
    if isinstance(value, dt.date | dt.time):
        return short_time(value.isoformat(" ") if isinstance(value, dt.datetime) else value.isoformat())
    if isinstance(value, dt.timedelta):
        micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
        return span_text(micros * 1_000 + getattr(value, "nanoseconds", 0))
    if hasattr(value, "months") and hasattr(value, "nanoseconds"):
        return _interval_text(value.months, value.days, value.nanoseconds)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return f"{value:f}"
    if isinstance(value, list | tuple | Mapping) and not hasattr(value, "_fields"):
        return json.dumps(jsonable(value), ensure_ascii=False)
    if getattr(value, "ndim", 0) and hasattr(value, "tolist"):
        return text_of(value.tolist())
    text = str(value)
    return text.lower() if text in {"True", "False"} else text


def jsonable(value: Any) -> Any:
    """Return a value of a result as JSON has it; what JSON lacks becomes text.

    Whole decimals become integers, others floats when that loses nothing; NaN and infinities become text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, Mapping | Pairs):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {text_of(key): jsonable(item) for key, item in pairs}
    if isinstance(value, list | tuple | set) and not (hasattr(value, "_fields") or hasattr(value, "months")):
        return [jsonable(item) for item in value]
    return text_of(value)


def _number(value: decimal.Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value() and -(value.as_tuple().exponent) <= 0:  # type: ignore[operator]  # finite
        return int(value)
    short = float(value)
    return short if decimal.Decimal(repr(short)) == value else f"{value:f}"


def span_text(nanos: int) -> str:
    """Write nanoseconds as an interval of days and a time.

    Examples
    --------
    >>> span_text(1), span_text(-86_401_000_000_000)
    ('00:00:00.000000001', '-1 day -00:00:01')
    """
    days = _divided(nanos, _DAY_NS)
    return _interval_text(0, days, nanos - days * _DAY_NS)


def _interval_text(months: int, days: int, nanos: int) -> str:
    """Write an interval: ``1 year 2 months 3 days 01:02:03``, without what is nothing."""
    seconds, rest = divmod(abs(nanos), 1_000_000_000)
    clock = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:09d}"
    counts = ((_divided(months, 12), "year"), (months - 12 * _divided(months, 12), "month"), (days, "day"))
    parts = [f"{n} {unit if abs(n) == 1 else unit + 's'}" for n, unit in counts if n]
    if nanos or not parts:
        parts.append(f"{'-' if nanos < 0 else ''}{short_time(clock)}")
    return " ".join(parts)


def _divided(number: int, by: int) -> int:
    """Return how many times a number goes into another, with the sign of that."""
    return number // by if number >= 0 else -(-number // by)


def short_time(text: str) -> str:
    """Drop zeros that say nothing; offsets have a colon.

    Examples
    --------
    >>> [short_time(text) for text in ("12:00:00.000000", "12:00:00.500000+0200", "12:00:00+05:53:28", "12:00:00Z")]
    ['12:00:00', '12:00:00.5+02:00', '12:00:00+05:53:28', '12:00:00+00:00']
    """
    match = _PARTS.fullmatch(text)
    if match is None:
        return text
    digits, sign, offset = (match[2] or "").rstrip("0"), match[3] or "", match[4] or ""
    zone = "+00:00" if sign == "Z" else f"{sign}{offset[:2]}:{offset[-2:]}{match[5]}" if sign else ""
    return f"{match[1]}{'.' if digits else ''}{digits}{zone}"
