"""Moments that Python, pandas or Arrow lack: infinity, years beyond 9999 or before Christ, the time 24:00:00.

Engines have them, and each hands them on in its own way. Arrow knows no infinity: DuckDB writes the greatest number,
which reads as a moment far away. So what leaves as Arrow, polars or Python values has the text of such a moment, with
years as ISO 8601 has them: the year before year 1 is 0000, the one before that -0001.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable
from typing import Any

from nbtools.ground.lazy import pa, pc
from nbtools.texts.values import Pairs, short_time

_DAY_US = 86_400_000_000
# Of dates and timestamps that Python has, in days since 1970.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# The calendar repeats after so many years, which have so many days.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_BEFORE_CHRIST = re.compile(r"(\d+)(-.*?)(?: \(BC\)| BC)(.*)")


def iso_text(text: str) -> str:
    """Return what PostgreSQL or DuckDB writes for a moment with its year as ISO 8601 has it."""
    match = _BEFORE_CHRIST.fullmatch(text)
    if match is None:
        return text
    year = 1 - int(match[1])
    return f"{'-' if year < 0 else ''}{abs(year):04d}{match[2]}{match[3]}"


def from_text(text: str | None) -> dt.date | dt.datetime | str | None:
    """Return the date or the timestamp that a text of DuckDB stands for, or a text where Python has none."""
    if text is None:
        return None
    digits = text.rpartition(".")[2].partition("+")[0]
    if len(digits) > 6 and digits.isdigit() and digits[6:].strip("0"):
        return text  # Python has no nanoseconds.
    try:
        return dt.datetime.fromisoformat(text) if ":" in text else dt.date.fromisoformat(text)
    except ValueError:
        return iso_text(text)


def special_times(column: Any, *, beyond: bool = False) -> dict[int, str]:
    """Return the text of each special moment in an Arrow column, by its place.

    Parameters
    ----------
    column
        An Array or a ChunkedArray; one of other types has none.
    beyond
        Whether moments count that Arrow and pandas have, and Python has not.
    """
    kind = column.type
    if pa.types.is_date32(kind):
        number, most, first, last = column.cast(pa.int32()), 2**31 - 1, _FIRST_DAY, _LAST_DAY
    elif pa.types.is_timestamp(kind):
        unit = 86_400 * _UNITS[kind.unit]
        number, most, first, last = column.cast(pa.int64()), 2**63 - 1, _FIRST_DAY * unit, (_LAST_DAY + 1) * unit - 1
    elif kind in {pa.time64("us"), pa.time64("ns")}:
        day = _DAY_US * (1 if kind.unit == "us" else 1_000)
        number, most, first, last = column.cast(pa.int64()), day, 0, day - 1
        if beyond and kind.unit == "ns":
            micros = column.cast(pa.time64("us"), safe=False)  # in which Python counts
            finer = pc.not_equal(column, micros.cast(kind)).to_pylist()
            texts = column.cast(pa.string()).to_pylist() if True in finer else []
            return special_times(micros) | {at: short_time(texts[at]) for at, is_finer in enumerate(finer) if is_finer}
    else:
        return {}
    if not beyond and not pa.types.is_time(kind):
        first, last = 1 - most, most - 1
    ends = pc.min_max(number)
    if ends["max"].as_py() is None or first <= ends["min"].as_py() <= ends["max"].as_py() <= last:
        return {}
    values_there = ((at, value) for at, value in enumerate(number.to_pylist()) if value is not None)
    return {at: _text(value, most, kind) for at, value in values_there if not first <= value <= last}


def _text(value: int, most: int, kind: Any) -> str:
    if pa.types.is_time(kind):
        return "24:00:00"
    if abs(value) == most:
        return "infinity" if value > 0 else "-infinity"
    if pa.types.is_date32(kind):
        return _date_text(value)
    unit = _UNITS[kind.unit]
    days, rest = divmod(value, 86_400 * unit)
    micros = dt.timedelta(seconds=rest // unit, microseconds=rest % unit * 1_000_000 // unit)
    return f"{_date_text(days)} {str(micros).rjust(8, '0')}{'' if kind.tz is None else '+00:00'}"


def _date_text(days: int) -> str:
    cycles = (days - _FIRST_DAY) // _CYCLE_DAYS
    date = dt.date.fromordinal(1 + days - _FIRST_DAY - cycles * _CYCLE_DAYS)
    year = date.year + cycles * _CYCLE_YEARS
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{date.month:02d}-{date.day:02d}"


def with_texts(column: Any, *, beyond: bool = False) -> Any:
    """Return an Arrow column with texts in place of moments, at any depth, where one is special; else itself."""
    return rebuilt(column, pa.types.is_temporal, functools.partial(_without_special, beyond=beyond))


def python_values(column: Any) -> list[Any]:
    """Return the values of an Arrow column: of narrow floats, at any depth, the doubles that people write: 0.1."""
    wide = rebuilt(column, pa.types.is_float32, lambda array: array.cast(pa.string()).cast(pa.float64()))
    values = with_texts(wide, beyond=True).to_pylist()
    has_maps = has_part(column.type, pa.types.is_map)
    return [_with_maps(column.type, value) for value in values] if has_maps else list(values)


def _with_maps(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return Pairs((key, _with_maps(kind.item_type, each)) for key, each in value)
    if pa.types.is_struct(kind):
        return {field.name: _with_maps(field.type, value[field.name]) for field in kind}
    return [_with_maps(kind.value_type, each) for each in value] if is_list(kind) else value


def rebuilt(column: Any, is_wanted: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """Return an Arrow column with the parts of some types changed, at any depth; itself where nothing was."""
    if not has_part(column.type, is_wanted):
        return column
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    parts = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
    changed = [_rebuilt_array(part, is_wanted, change) for part in parts]
    if all(new is old for new, old in zip(changed, parts, strict=True)):
        return column
    return pa.chunked_array(changed)


@functools.lru_cache(maxsize=1_000)
def has_part(kind: Any, is_wanted: Callable[[Any], bool]) -> bool:
    """Tell whether a type of Arrow, or one inside of it, is wanted."""
    if is_wanted(kind):
        return True
    if pa.types.is_map(kind):
        return has_part(kind.key_type, is_wanted) or has_part(kind.item_type, is_wanted)
    if pa.types.is_struct(kind):
        return any(has_part(kind.field(index).type, is_wanted) for index in range(kind.num_fields))
    return is_list(kind) and has_part(kind.value_type, is_wanted)


def type_with(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return a type of Arrow whose parts without their own parts, at any depth, are changed."""
    if pa.types.is_map(kind):
        return pa.map_(type_with(kind.key_type, change), type_with(kind.item_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(type_with(field.type, change)) for field in kind])
    return pa.list_(type_with(kind.value_type, change)) if pa.types.is_list(kind) else change(kind)


def is_list(kind: Any) -> bool:
    """Tell whether a type of Arrow is one of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _without_special(array: Any, *, beyond: bool) -> Any:
    special = special_times(array, beyond=beyond)
    return pa.array(texts_of(array, special), pa.string()) if special else array


def _rebuilt_array(array: Any, is_wanted: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    kind = array.type
    if is_wanted(kind):
        return change(array)
    if pa.types.is_fixed_size_list(kind):
        lists = array.cast(pa.list_(kind.value_type))
        changed = _rebuilt_array(lists, is_wanted, change)
        return array if changed is lists else changed
    if not pa.types.is_nested(kind):
        return array
    if pa.types.is_map(kind):
        parts = [array.keys, array.items]
    else:
        parts = array.flatten() if pa.types.is_struct(kind) else [array.values]
    changed = [_rebuilt_array(part, is_wanted, change) if has_part(part.type, is_wanted) else part for part in parts]
    if all(new is old for new, old in zip(changed, parts, strict=True)):
        return array
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(changed, names, mask=array.is_null())
    owner = pa.MapArray if pa.types.is_map(kind) else pa.ListArray
    return owner.from_arrays(_offsets(array), *changed)


def _offsets(array: Any) -> Any:
    """Return where the lists of an array begin, nothing for those that are missing."""
    offsets = array.offsets.cast(pa.int32())
    if not array.null_count:
        return offsets
    gaps = pa.concat_arrays([array.is_null(), pa.array([False])])
    return pc.if_else(gaps, pa.scalar(None, pa.int32()), offsets)


def texts_of(column: Any, special: dict[int, str] | None = None) -> list[str | None]:
    """Return the texts of an Arrow column of moments, of those too that Python has not."""
    special_texts = special_times(column, beyond=True) if special is None else special
    texts = column.cast(pa.string()).to_pylist()
    return [special_texts.get(at) or (text if text is None else short_time(text)) for at, text in enumerate(texts)]
