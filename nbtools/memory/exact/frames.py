"""Exact frames: pandas made from Arrow with the values that it had, and where two tables differ.

Arrow's own way back to pandas makes floats of whole numbers beside a missing one, arrays of lists, and knows no type
that holds types of Arrow. So what was a column of Python's objects becomes one again, value by value. A frame that
still is another one then is kept by `exact_table`: what Arrow has no form for is JSON, one text a value.
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from nbtools.ground.lazy import pa, pd
from nbtools.memory.exact.values import from_json, to_json

# Of a table with more rows the first and the last of so many are compared; of the others all.
_COMPARED = 200_000
_OBJECTS = frozenset({"object"})


_EXACT, _STEP = b"nbtools", b"nbtools step"


def exact_table(frame: Any) -> Any:
    """Return an Arrow table of a pandas frame in which each column that Arrow would change is JSON.

    Raises
    ------
    TypeError
        A value is of a type that there is no form for.
    """
    index = frame.index
    span = [index.start, index.stop, index.step] if isinstance(index, pd.RangeIndex) else None
    levels = [] if span else [index.get_level_values(at) for at in range(index.nlevels)]
    names = [*(f"index {at}" for at in range(len(levels))), *map(str, frame.columns)]
    arrays, notes = [], []
    for name, values in zip(names, (*levels, *(frame.iloc[:, at] for at in range(frame.shape[1]))), strict=True):
        try:
            array, note = _exact_column(pd.Series(values.array, name="c", dtype=values.dtype))
        except TypeError as exc:
            raise TypeError(f"in the column {name!r}, {exc}") from exc
        arrays.append(array)
        notes.append(note)
    texts = {
        "columns": notes,
        "labels": to_json(list(frame.columns)),
        "names": to_json(list(frame.columns.names)),
        "of": str(frame.columns.dtype),
        "range": span,
        "index": to_json(list(index.names)),
        "attrs": to_json(dict(frame.attrs)),
    }
    notes_of = {_EXACT: json.dumps(texts).encode()}
    return _with_step(pa.Table.from_arrays(arrays, names=names).replace_schema_metadata(notes_of), index)


def usual_table(frame: Any) -> Any:
    """Return an Arrow table of a pandas frame as Arrow makes it, with the step of its index."""
    return _with_step(pa.Table.from_pandas(frame), frame.index)


def columns_of(table: Any, width: int) -> list[tuple[str, str]]:
    """Return names and types of the columns of a table that was made of a frame of so many, without its index."""
    fields = list(table.schema)
    own = fields[len(fields) - width :] if _EXACT in (table.schema.metadata or {}) else fields[:width]
    return [(field.name, str(field.type)) for field in own]


def _with_step(table: Any, index: Any) -> Any:
    from pandas.tseries.frequencies import to_offset

    step, again = _step_of(index), None
    if step is None:
        return table
    with contextlib.suppress(ValueError):
        again = to_offset(step)
    if again != index.freq:
        raise ValueError(f"its index has the step {index.freq}, which no text names; table.index.freq = None drops it")
    return table.replace_schema_metadata({**table.schema.metadata, _STEP: step.encode()})


def _step_of(index: Any) -> str | None:
    """Return the step of an index of moments, which pandas' own note in Arrow leaves out; `None` for none."""
    return getattr(index, "freqstr", None) if getattr(index.dtype, "kind", "") in "mM" else None


def _exact_column(column: Any) -> tuple[Any, Any]:
    """Return an Arrow array of a column, and what makes the column of it: pandas' own note, or the type."""
    if hasattr(column.dtype, "pyarrow_dtype"):
        return pa.chunked_array([pa.array(column)]), {"arrow": True}
    try:
        table = _through_parquet(pa.Table.from_pandas(column.to_frame(), preserve_index=False))
        if _frame_difference(column.to_frame(), restore_frame(table)) is None:
            return table.column(0), table.schema.metadata[b"pandas"].decode()
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError):  # there is no such type in Arrow
        pass
    categories = getattr(column.dtype, "categories", None)
    note = {"dtype": str(column.dtype)}
    if categories is not None:
        # What the values are is told by the categories' own.
        labels, inner = _exact_column(categories.to_series(name="c", index=range(len(categories))))
        note |= {"labels": to_json(labels.to_pylist()), "of": inner, "ordered": column.dtype.ordered}
        return pa.array(column.cat.codes), note
    return pa.array([json.dumps(to_json(value)) for value in column.tolist()], pa.string()), note


def _through_parquet(table: Any) -> Any:
    """Return a table as it is read again, by which some types become others."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(io.BytesIO(file.getvalue()))


def _restored_column(array: Any, note: Any) -> Any:
    if isinstance(note, str):
        return restore_frame(pa.table({"c": array}).replace_schema_metadata({b"pandas": note.encode()})).iloc[:, 0]
    if "arrow" in note:
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    if "of" in note:
        labels = _restored_column(pa.array(from_json(note["labels"])), note["of"]).array  # without its name
        dtype = pd.CategoricalDtype(labels, note["ordered"])
        return pd.Categorical.from_codes(array.to_pylist(), dtype=dtype)
    values = pd.Series([from_json(json.loads(text)) for text in array.to_pylist()], dtype=object)
    return values if note["dtype"] == "object" else pd.Series(pd.array(values, dtype=note["dtype"]))


def _restored_frame(table: Any, texts: Any) -> Any:
    parts = [_restored_column(*pair) for pair in zip(table.columns, texts["columns"], strict=True)]
    labels, names, index = (from_json(texts[name]) for name in ("labels", "names", "index"))
    levels = parts[: len(parts) - len(labels)]
    frame = pd.DataFrame(dict(enumerate(parts[len(levels) :])), index=range(table.num_rows))
    is_tree = len(names) > 1
    columns = (
        pd.MultiIndex.from_tuples(labels, names=names)
        if is_tree
        else pd.Index(labels, dtype=texts["of"], name=names[0], tupleize_cols=False)
    )
    frame.columns = columns
    if texts["range"]:
        frame.index = pd.RangeIndex(*texts["range"], name=index[0])
    elif len(levels) == 1:
        frame.index = pd.Index(levels[0]).rename(index[0])
    else:
        frame.index = pd.MultiIndex.from_arrays(levels, names=index)
    frame.attrs = from_json(texts.get("attrs", {}))  # which tables of before have not
    return frame


def restore_frame(table: Any) -> Any:
    """Return the pandas frame that a table was made of."""
    frame = _restored(table)
    if step := (table.schema.metadata or {}).get(_STEP):
        frame.index.freq = step.decode()
    return frame


def _restored(table: Any) -> Any:
    texts = (table.schema.metadata or {}).get(_EXACT)
    if texts is not None:
        return _restored_frame(table, json.loads(texts))
    notes = table.schema.pandas_metadata
    if notes is None:
        return table.to_pandas()
    # Of two columns with one name, the first note counts.
    by_name = {each.get("field_name", each["name"]): each for each in reversed(notes["columns"])}
    exact: dict[str, Any] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        note = by_name.get(field.name)
        dtype = "" if note is None else str(note["numpy_type"])
        if note is None or not (dtype.endswith("[pyarrow]") or (dtype in _OBJECTS and not _is_text(field.type))):
            continue
        values = column.to_pylist() if dtype in _OBJECTS else pd.arrays.ArrowExtensionArray(column)
        exact[field.name] = pd.Series(values, dtype=object if dtype in _OBJECTS else None)
        note |= {"numpy_type": "object", "pandas_type": "empty", "metadata": None}
    indexed = {name for name in notes["index_columns"] if isinstance(name, str)}
    if not exact or indexed & exact.keys():
        return table.to_pandas()
    names, empty = table.column_names, pa.nulls(table.num_rows)
    columns = [empty if name in exact else column for name, column in zip(names, table.columns, strict=True)]
    frame = pa.table(columns, names, metadata={b"pandas": json.dumps(notes).encode()}).to_pandas()
    for at, name in enumerate(name for name in table.column_names if name not in indexed):
        if name in exact:
            frame.isetitem(at, exact[name].array)
    return frame


def _is_text(kind: Any) -> bool:
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
    # Arrow holds that NaN is unequal to itself, which is not a difference here.
    return bool(table.equals(other)) or all(map(_is_same, table.to_pylist(), other.to_pylist()))


def _frame_difference(frame: Any, other: Any) -> str | None:
    if hasattr(frame, "to_frame"):
        if frame.name is not other.name and frame.name != other.name:
            return f"its name {frame.name!r} would come back as {other.name!r}"
        frame, other = frame.to_frame("value"), other.to_frame("value")
    if not _is_same(list(frame.columns), list(other.columns)) or frame.columns.names != other.columns.names:
        return f"its columns {list(frame.columns)[:5]} would come back as {list(other.columns)[:5]}"
    index, back = frame.index, other.index
    is_index = len(index) == len(back) and index.dtype == back.dtype and index.names == back.names
    if not is_index or _step_of(index) != _step_of(back) or not _same_values(index, back):
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
        if type(column.dtype).__module__.startswith("numpy"):
            return bool(column.equals(other))
        # Elsewhere than among objects, NaN beside a missing value is a value.
        kinds = zip(map(type, column.tolist()), map(type, other.tolist()), strict=True)
        return bool(column.equals(other)) and all(kind is back for kind, back in kinds)
    return all(map(_is_same, column.tolist(), other.tolist()))


def _is_same(value: Any, other: Any) -> bool:
    """Tell whether two values are equal and of one type, at any depth; missing ones too."""
    return value is other or _text(value) == _text(other)


def _text(value: Any) -> str:
    try:
        return json.dumps(to_json(value))
    except TypeError:  # of Arrow, such as an interval of months
        return f"{type(value)} {value!r}"
