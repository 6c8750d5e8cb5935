"""Cells: values as the texts that a page shows, exact and short, and what kind a column is."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from nbtools.visible import visible

Kind = Literal["number", "time", "bool", "text"]
SHOWN = 300  # characters of a value in a page; the whole value comes when it is asked for

_NUMBERS = ("int", "bigint", "smallint", "tinyint", "hugeint", "dec", "float", "double", "real", "numeric")
_NESTED = ("[", "struct", "map", "list", "union", "json")
_MIDNIGHT = " 00:00:00"
# What pandas, polars and Arrow call the types of SQL, and the names of those.
_PAIRS = (
    "str varchar string varchar object varchar large_string varchar utf8 varchar string[python] varchar int8 tinyint "
    "int16 smallint int32 integer int64 bigint int128 hugeint uint8 utinyint uint16 usmallint uint32 uinteger "
    "uint64 ubigint float32 float float64 double bool boolean binary blob date32[day] date"
)
_NAMES = dict(zip(_PAIRS.split()[::2], _PAIRS.split()[1::2], strict=True))
# Digits of a number that is not whole and has more than fit.
_DIGITS, _LONG_NUMBER = 8, 14


def kind_of(name: str) -> Kind:
    """Return what a type is to a person, by the name that DuckDB, pandas, polars or Arrow has for it.

    Examples
    --------
    >>> [kind_of(name) for name in ("BIGINT", "datetime64[us]", "Float64", "INTEGER[]", "bool", "interval")]
    ['number', 'time', 'number', 'text', 'bool', 'text']
    >>> [kind_of(name) for name in ("int64[pyarrow]", "Nullable(Int32)", "timedelta64[ns]", "DECIMAL(18,3)[]")]
    ['number', 'number', 'text', 'text']
    """
    low = name.lower().removesuffix("[pyarrow]").removeprefix("nullable(")
    if low.startswith(("datetime", "timestamp", "date", "time")) and not low.endswith("[]") and "delta" not in low:
        return "time"
    if any(mark in low for mark in _NESTED) or low.startswith("interval"):
        return "text"
    if low.startswith("bool"):
        return "bool"
    return "number" if low.lstrip("u").startswith(_NUMBERS) else "text"


def type_name(name: str) -> str:
    """Return the one name that people read for a type, by the name that whatever library has for it.

    Examples
    --------
    >>> [type_name(name) for name in ("BIGINT", "int64", "Int64", "large_string", "datetime64[us]", "DECIMAL(9,2)")]
    ['bigint', 'bigint', 'bigint', 'varchar', 'timestamp', 'decimal(9,2)']
    """
    low = name.lower()
    if low.startswith(("datetime", "timestamp[")):
        return "timestamp with time zone" if re.search(r",(?! *(?:time_zone=)?none)", low) else "timestamp"
    return _NAMES.get(low.removesuffix("[pyarrow]"), low)


def without_midnights(texts: Sequence[str | None]) -> list[str | None]:
    """Return moments without their time of day where all of them are midnights, which is how dates are kept."""
    if all(text is None or text.endswith(_MIDNIGHT) for text in texts):
        return [None if text is None else text.removesuffix(_MIDNIGHT) for text in texts]
    return list(texts)


def as_read(texts: Sequence[str | None], kind: Kind) -> list[str | None]:
    """Return the cells of a column as people read them: numbers to as many decimals as the others, no longer than fits.

    Examples
    --------
    >>> as_read(["5614.880000000001", "12.5", None, "7"], "number")
    ['5614.88', '12.50', None, '7.00']
    """
    if kind != "number":
        return list(texts)
    short = [None if text is None else _short(text) for text in texts]
    decimals = max((len(text.partition(".")[2]) for text in short if text and _is_fixed(text)), default=0)
    return [
        f"{text}{'' if '.' in text or not decimals else '.'}{'0' * (decimals - len(text.partition('.')[2]))}"
        if text and _is_fixed(text)
        else text
        for text in short
    ]


def _is_fixed(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _short(text: str) -> str:
    if len(text) <= _LONG_NUMBER or not any(mark in text for mark in ".e"):
        return text
    try:
        return f"{float(text):.{_DIGITS}g}"
    except ValueError:
        return text


def shown(value: Any, longest: int | None = SHOWN) -> str | None:
    r"""Return a value as text, `None` for a missing one; a longer text ends in ``…``.

    Examples
    --------
    >>> shown(2**60 + 1), shown(float("nan")), shown(b"\x00\xff"), shown([1, None]), shown("a\x1b")
    ('1152921504606846977', 'NaN', '00ff', '[1, null]', 'a<U+001B>')
    """
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    return told(_text(value), longest)


def told(text: str, longest: int | None = SHOWN) -> str:
    """Return a text whose controls are spelled out; one that is longer than `longest` characters ends in ``…``."""
    cut = text if longest is None or len(text) <= longest else f"{text[:longest]}…"
    return visible(cut, lines=True)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):  # NumPy's too
        return repr(float(value)) if math.isfinite(value) else str(float(value)).replace("nan", "NaN")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
