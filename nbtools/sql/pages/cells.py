"""Cells: values as the texts that a page shows, exact and short, and what kind a column is."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any, Literal

from nbtools.visible import visible

__all__ = ["SHOWN", "Kind", "kind_of", "shown", "told"]

Kind = Literal["number", "time", "bool", "text"]
SHOWN = 300  # characters of a value in a page; the whole value comes when it is asked for

_NUMBERS = ("int", "bigint", "smallint", "tinyint", "hugeint", "dec", "float", "double", "real", "numeric")
_NESTED = ("[", "struct", "map", "list", "union", "json")


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
