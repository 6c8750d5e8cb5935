"""Tools for numbers, dates and texts: they need nothing and change nothing."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.contract.result import Output
from nbtools.contract.tool import tool
from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.texts.visible import counted
from nbtools.toolbox.result_types import Lengths, Moment, Number

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


@tool(
    title="Calculator",
    read_only=True,
    idempotent=True,
    public=True,
    examples=({"expression": "2**0.5 + 0.1 + 0.2"}, {"expression": "comb(49, 6) * 1/3"}),
)
def calculator(expression: str) -> Output[Number]:
    """Compute an arithmetic expression, exactly where that is possible.

    Understands numbers, + - * / // % **, brackets, the constants pi, e and tau, and functions: abs, min, max, sum,
    mean, round, floor, ceil, trunc, sqrt, cbrt, pow, exp, log(x, base), ln, log2, log10, factorial, comb, perm, gcd,
    lcm, isqrt, hypot, gamma, degrees, radians, and the trigonometric and hyperbolic functions (radians). Fractions are
    kept exact until the end: 0.1 + 0.2 is 0.3. At most 1,000 characters, and values of at most 3,010 digits.

    Parameters
    ----------
    expression
        What to compute, such as "(1 + 2) * sqrt(9)". A power is written **, not ^.

    Raises
    ------
    ParseError
        It is not an arithmetic expression.
    InvalidArguments
        It has no value, for instance a division by zero.
    LimitExceeded
        It is too long, too deep or its value too large.
    """
    from nbtools.toolbox.calculator import evaluate

    value = evaluate(expression)
    return Output(data={"value": value}, text=str(value))


@tool(title="Current date and time", read_only=True, public=True, examples=({}, {"timezone": "Europe/Zurich"}))
def get_current_datetime(timezone: str | None = None) -> Output[Moment]:
    """Return the current date and time.

    Returns iso (ISO 8601 with the offset), date, time (to the second), timezone, and unix (whole seconds since 1970).

    Parameters
    ----------
    timezone
        IANA name such as "Europe/Zurich" or "UTC"; null takes this computer's own.

    Raises
    ------
    InvalidArguments
        There is no such time zone.
    """
    zone = _zone(timezone) if timezone is not None else None
    now = dt.datetime.fromtimestamp(time.time(), dt.UTC).astimezone(zone).replace(microsecond=0)
    name = timezone or _local_name() or now.tzname() or "local"
    data: dict[str, Any] = {
        "iso": now.isoformat(),
        "date": now.date().isoformat(),
        "time": now.time().isoformat(),
        "timezone": name,
        "unix": int(now.timestamp()),
    }
    return Output(data=data, text=f"{data['iso']} ({name})")


def _zone(name: str) -> ZoneInfo:
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # A name may be the path of a folder, or try to leave the database: all the same to the caller.
        raise InvalidArguments(
            f"{name[:100]!r} is not a time zone.",
            hint=did_you_mean(
                name[:100], zoneinfo.available_timezones(), "Use an IANA name such as 'Europe/Zurich' or 'UTC'."
            ),
        ) from None


def _local_name() -> str | None:
    """Return the IANA name of this computer's zone, where the system tells it."""
    import zoneinfo

    zone = os.environ.get("TZ", "").lstrip(":")
    if not zone:
        path = os.path.realpath("/etc/localtime")
        zone = path.partition("/zoneinfo/")[2] if Path(path).is_file() else ""
    try:
        return zoneinfo.ZoneInfo(zone).key if zone else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


@tool(title="Length of a text", read_only=True, idempotent=True, public=True, examples=({"text": "Grüezi mitenand"},))
def string_length(text: str) -> Output[Lengths]:
    """Count the characters, bytes and words of a text.

    Characters are Unicode code points, bytes are those of UTF-8, words are what white space separates.

    Parameters
    ----------
    text
        The text to measure.
    """
    counts = {
        "characters": len(text),
        "bytes": len(text.encode("utf-8", "surrogatepass")),
        "words": len(text.split()),
    }
    text = ", ".join(counted(number, name.removesuffix("s")) for name, number in counts.items())
    return Output(data=counts, text=text)


TOOLS = (calculator, get_current_datetime, string_length)
"""The tools of this module."""
