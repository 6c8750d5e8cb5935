"""Time zones: those that the moments of frames have, and the one in which a query over them shows moments."""

from __future__ import annotations

import contextlib
import re
import zoneinfo
from collections.abc import Iterable, Sequence
from typing import Any

from nbtools.sql.engines.duckdb.frames import ReadableFrame

ZONE = re.compile(r"(?:time_zone='|tz=|datetime64\[\w+, (?:UTC(?=[+-])|tzfile\('.*zoneinfo/)?)([^'\]]+)")
"""A time zone in the name of a type, as pandas, polars or Arrow calls it."""
_UNZONED = ("CategoricalDtype", "Categorical", "Enum", "DType")  # the last of numpy
_HOURS = re.compile(r"([+-]\d\d):00")


def common_zone(zones: Iterable[set[str]]) -> str | None:
    """Return the time zone, as DuckDB calls it, that all moments of some frames have; `None` where there is none."""
    every = frozenset[str]().union(*zones)
    zone = next(iter(every)) if len(every) == 1 else ""
    if offset := _HOURS.fullmatch(zone):  # of these east counts as less
        zone = f"Etc/GMT{-int(offset[1]):+d}"
    try:
        return zoneinfo.ZoneInfo(zone).key if zone else None
    except (OSError, ValueError, KeyError):
        return None


def types_of(frame: Any) -> Sequence[Any]:
    """Return the types of the columns of a frame, as its library has them; none of one that cannot be read."""
    readable: Any = frame.frame if isinstance(frame, ReadableFrame) else frame
    if hasattr(type(readable), "collect_schema") and hasattr(type(readable), "collect"):  # a lazy frame of polars
        with contextlib.suppress(Exception):  # the reading itself says best what is wrong
            return tuple(readable.collect_schema().values())
        return ()
    manager: Any = getattr(readable, "_mgr", None)
    if hasattr(manager, "get_dtypes"):  # pandas would make a Series of them
        return tuple(manager.get_dtypes())
    kinds = getattr(readable, "dtypes", None)
    return tuple(getattr(getattr(readable, "schema", None), "types", ()) if kinds is None else kinds)


def zones_of(types: Iterable[Any]) -> set[str]:
    """Return the time zones of moments in columns of these types."""
    # Names of types take longer than to tell types apart, but for categories, which are compared one by one.
    zoned = {kind for kind in types if not type(kind).__name__.endswith(_UNZONED)}
    return {match[1] for kind in zoned if (match := ZONE.search(str(kind))) is not None}
