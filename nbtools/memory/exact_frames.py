"""Exact frames: pandas made from Arrow with the values that it had, and where two tables differ.

Arrow's own way back to pandas makes floats of whole numbers beside a missing one, arrays of lists, and knows no type
that holds types of Arrow. So what was a column of Python's objects becomes one again, value by value.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

# Of a table with more rows the first and the last of so many are compared; of the others all.
_COMPARED = 200_000
_OBJECTS = frozenset({"object"})


def restore_frame(table: Any) -> Any:
    """Return the pandas frame that a table was made of."""
    import pandas as pd
    import pyarrow as pa

    notes = table.schema.pandas_metadata
    if notes is None:
        return table.to_pandas()
    exact: dict[str, Any] = {}
    for at, field in enumerate(table.schema):
        note = next((each for each in notes["columns"] if each.get("field_name", each["name"]) == field.name), None)
        dtype = "" if note is None else str(note["numpy_type"])
        if note is None or not (dtype.endswith("[pyarrow]") or (dtype in _OBJECTS and not _is_text(field.type))):
            continue
        column = table.column(at)
        values = column.to_pylist() if dtype in _OBJECTS else pd.arrays.ArrowExtensionArray(column)
        exact[field.name] = pd.Series(values, dtype=object if dtype in _OBJECTS else None)
        note |= {"numpy_type": "object", "pandas_type": "empty", "metadata": None}
        table = table.set_column(at, field.name, pa.nulls(table.num_rows))
    indexed = {name for name in notes["index_columns"] if isinstance(name, str)}
    if not exact or indexed & exact.keys():
        return table.to_pandas()
    table = table.replace_schema_metadata({b"pandas": json.dumps(notes).encode()})
    frame = table.to_pandas()
    for at, name in enumerate(name for name in table.column_names if name not in indexed):
        if name in exact:
            frame.isetitem(at, exact[name].array)
    return frame


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def difference(table: Any, other: Any) -> str | None:
    """Return in what two tables of one class differ, in words; `None` where they are equal."""
    package = type(table).__module__.partition(".")[0]
    if package == "polars":
        table = table.collect() if hasattr(table, "collect") else table
        odd = [name for name, kind in table.schema.items() if other.schema.get(name) != kind]
        if odd:
            return f"the column {odd[0]!r} of {table.schema[odd[0]]} would come back as {other.schema.get(odd[0])}"
        return None if table.equals(other) else "values would come back as others"
    if package == "pyarrow":
        return None if table.schema.equals(other.schema) and _same_rows(table, other) else "it would come back changed"
    return _frame_difference(table, other)


def _same_rows(table: Any, other: Any) -> bool:
    # Arrow holds that NaN is unequal to itself, which is no difference here.
    return bool(table.equals(other)) or _is_same(table.to_pylist(), other.to_pylist())


def _frame_difference(frame: Any, other: Any) -> str | None:
    if hasattr(frame, "to_frame"):
        frame, other = frame.to_frame("value"), other.to_frame("value")
    if not _is_same(list(frame.columns), list(other.columns)):
        return f"its columns {list(frame.columns)[:5]} would come back as {list(other.columns)[:5]}"
    if len(frame) != len(other) or not _same_values(frame.index, other.index):
        return "its index would come back changed"
    for at, label in enumerate(frame.columns):
        column, back = frame.iloc[:, at], other.iloc[:, at]
        if column.dtype != back.dtype:
            return f"the column {label!r} of {column.dtype} would come back as {back.dtype}"
        if not _same_values(column, back):
            return f"the column {label!r} would come back with other values or types"
    return None


def _same_values(column: Any, other: Any) -> bool:
    if len(column) > _COMPARED:
        ends = (slice(None, _COMPARED // 2), slice(-_COMPARED // 2, None))
        return all(_same_values(column[each], other[each]) for each in ends)
    if str(column.dtype) != "object":
        # Elsewhere than among objects, NaN beside a missing value is a value.
        kinds = zip(map(type, column.tolist()), map(type, other.tolist()), strict=True)
        return bool(column.equals(other)) and all(kind is back for kind, back in kinds)
    return all(map(_is_same, column.tolist(), other.tolist()))


def _is_same(value: Any, other: Any, *, is_inner: bool = False) -> bool:
    """Tell whether two values are equal and of one type, lists and arrays alike; so are missing ones, but for inner."""
    if _is_missing(value) or _is_missing(other):
        return _is_missing(value) and _is_missing(other) and (not is_inner or type(value) is type(other))
    if hasattr(value, "tolist"):
        value = value.tolist()
    if hasattr(other, "tolist"):
        other = other.tolist()
    inner = functools.partial(_is_same, is_inner=True)
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(inner, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(inner(value[key], other[key]) for key in value)
    return type(value) is type(other) and bool(value == other)


def _is_missing(value: Any) -> bool:
    name = type(value).__name__
    return value is None or name in {"NAType", "NaTType"} or (isinstance(value, float) and math.isnan(value))
