"""Parquet: what the library that wrote a file says about its columns that the format has no types for."""

from __future__ import annotations

import base64
import contextlib
import functools
import re
from pathlib import Path
from typing import Any

from nbtools.ground.lazy import has, pa
from nbtools.ground.paths import identity_of
from nbtools.texts.sql_quotes import quote_identifier

_KEY = re.compile(rb"ARROW:schema\x18([\x80-\xff]*[\x00-\x7f])")  # and how long the value is, seven bits a byte
_MOST_BYTES = 4_000_000  # of a footer that is looked at
# Of each unit, its whole name and what makes an interval of it.
_UNITS = {
    "s": ("seconds", "to_seconds({})"),
    "ms": ("milliseconds", "to_milliseconds({})"),
    "us": ("microseconds", "to_microseconds({})"),
    "ns": ("nanoseconds", "to_microseconds({} // 1000)"),
}


def durations_in(path: Path) -> tuple[str, ...]:
    """Return a phrase for each column of a file that was written as durations, which Parquet has as whole numbers.

    Only the footer is read, for the schema that Arrow libraries leave in their files.
    """
    identity, is_settled = identity_of(path)
    return _phrases_of(path, identity) if is_settled else _phrases_of.__wrapped__(path, identity)


@functools.lru_cache(maxsize=200)
def _phrases_of(path: Path, identity: Any) -> tuple[str, ...]:  # a file that changed is looked at again
    footer = _footer(path) if has("pyarrow") else b""
    match = _KEY.search(footer)
    if match is None:
        return ()
    size = sum((byte & 127) << 7 * at for at, byte in enumerate(match[1]))
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(footer[match.end() : match.end() + size])))
    except (pa.ArrowException, ValueError):
        return ()
    return tuple(_phrase(field) for field in schema if pa.types.is_duration(field.type))


def _phrase(field: Any) -> str:
    unit, way = _UNITS[field.type.unit]
    way = way.format(quote_identifier(field.name))
    return f"{field.name}: whole numbers of {unit}, because Parquet has no durations; {way} makes intervals of them"


def _footer(path: Path) -> bytes:
    """Return the footer of a file; empty if it is not one of Parquet, or is very long."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-8, 2)
        size = int.from_bytes(file.read(4), "little")
        if file.read(4) == b"PAR1" and size <= min(_MOST_BYTES, file.tell() - 8):
            file.seek(-8 - size, 2)
            return file.read(size)
    return b""
