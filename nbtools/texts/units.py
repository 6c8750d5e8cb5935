"""Durations and sizes as people write them: ``"30s"``, ``"64MiB"``."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping

from nbtools.errors import ConfigInvalid

_SECONDS = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "k": 2**10}
_BYTES |= {"m": 2**20, "g": 2**30}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_seconds(value: str | float) -> float:
    """Return a duration in seconds.

    Examples
    --------
    >>> parse_seconds("1.5 min"), parse_seconds("7d"), parse_seconds(2)
    (90.0, 604800.0, 2.0)
    """
    return _with_unit(value, _SECONDS, "a duration such as 30, '30s', '5 min', '2h' or '7d'")


def parse_bytes(value: str | float) -> int:
    """Return a size in bytes.

    Examples
    --------
    >>> parse_bytes("64MiB"), parse_bytes("1 GB"), parse_bytes(100)
    (67108864, 1000000000, 100)
    """
    return int(_with_unit(value, _BYTES, "a size such as 1000, '64MiB' or '1 GB'"))


def _with_unit(value: str | float, units: Mapping[str, float], expected: str) -> float:
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        number, unit = (match[1], match[2].lower()) if match else ("", "")
    else:
        number, unit = "nan" if isinstance(value, bool) else value, ""
    with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
        amount = float(number) * units[unit]
        if 0 <= amount < math.inf:
            return amount
    raise ConfigInvalid(f"{value!r:.200} is not {expected}.")
