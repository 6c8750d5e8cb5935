"""Values of Python, NumPy and pandas as JSON that tells one from the other, and back: 1 is not True, nor NaN None."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

from nbtools.ground.lazy import np, pd


def _moment(value: Any) -> list[Any]:
    if not (value.tzinfo is None or isinstance(value.tzinfo, dt.timezone) or getattr(value.tzinfo, "key", None)):
        raise TypeError(f"memory has no form for the zone {value.tzinfo!r}")
    return [value.isoformat(), getattr(value.tzinfo, "key", None), value.fold]


# Of each type, its name: what makes JSON of a value, and what makes the value of that.
_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "builtins.float": (str, float),
    "builtins.bytes": (bytes.hex, bytes.fromhex),
    "builtins.complex": (str, complex),
    "datetime.date": (dt.date.isoformat, dt.date.fromisoformat),
    "datetime.time": (dt.time.isoformat, dt.time.fromisoformat),
    "datetime.datetime": (_moment, lambda form: _of_moment(dt.datetime, form)),
    "datetime.timedelta": (
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda form: dt.timedelta(*form),
    ),
    "decimal.Decimal": (str, decimal.Decimal),
    "uuid.UUID": (str, uuid.UUID),
    "pandas.Timestamp": (_moment, lambda form: _of_moment(pd.Timestamp, form)),
    "pandas.Timedelta": (lambda value: value.value, lambda form: pd.Timedelta(form)),  # noqa: PLW0108 - imported at its use
    "pandas.Period": (
        lambda value: [value.ordinal, value.freqstr],
        lambda form: pd.Period(ordinal=form[0], freq=form[1]),
    ),
    "pandas.Interval": (
        lambda value: [value.closed, to_json(value.left), to_json(value.right)],
        lambda form: pd.Interval(from_json(form[1]), from_json(form[2]), form[0]),
    ),
    "pandas.NaTType": (lambda _: 0, lambda _: pd.NaT),
    "pandas.NAType": (lambda _: 0, lambda _: pd.NA),
}


def to_json(value: Any) -> Any:
    """Return JSON that stands only for a value and its type.

    Raises
    ------
    TypeError
        It is of a type that there is no form for.

    Examples
    --------
    >>> to_json([1, True, float("nan"), (b"a",)])
    [1, True, {'builtins.float': 'nan'}, {'tuple': [{'builtins.bytes': '61'}]}]
    """
    kind = type(value)
    if value is None or kind in {bool, int, str} or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [to_json(each) for each in value]
    if kind is tuple:
        return {"tuple": [to_json(each) for each in value]}
    if kind is dict:
        return {"dict": [[to_json(key), to_json(each)] for key, each in value.items()]}
    package = kind.__module__.partition(".")[0]
    # A class that is derived from an array may hold more; no number of Python holds all of the longest floats.
    if package == "numpy" and (kind is np.ndarray or isinstance(value, np.generic)):
        if value.dtype.kind not in "biufcUSO" or value.dtype.char in "gG":
            raise TypeError(f"memory has no form for NumPy's {value.dtype}")
        return {"numpy": [value.dtype.str, list(value.shape), to_json(value.tolist())]}
    name = f"{package}.{kind.__name__}"
    if name not in _FORMS:
        raise TypeError(f"memory has no form for the type {kind.__name__}")
    return {name: _FORMS[name][0](value)}


def from_json(form: Any) -> Any:
    """Return the value that JSON of `to_json` stands for."""
    if isinstance(form, list):
        return [from_json(each) for each in form]
    if not isinstance(form, dict):
        return form
    ((name, inner),) = form.items()
    if name == "tuple":
        return tuple(map(from_json, inner))
    if name == "dict":
        return {from_json(key): from_json(each) for key, each in inner}
    return _array(*inner) if name == "numpy" else _FORMS[name][1](inner)


def _array(dtype: str, shape: list[int], inner: Any) -> Any:
    if not shape:
        return np.dtype(dtype).type(from_json(inner))
    output = np.empty(shape, dtype=dtype)
    output[...] = from_json(inner)
    return output


def _of_moment(kind: Any, form: list[Any]) -> Any:
    text, zone, fold = form
    output = kind.fromisoformat(text) if kind is dt.datetime else kind(text)
    return output if zone is None else output.astimezone(zoneinfo.ZoneInfo(zone)).replace(fold=fold)
