"""Exact frames: pandas made from Arrow with the values that it had, and where two tables differ.

Arrow's own way back to pandas makes floats of whole numbers beside a missing one, arrays of lists, and knows no type
that holds types of Arrow. So what was a column of Python's objects becomes one again, value by value. A frame that
still is another one then is kept by `exact_table`: what Arrow has no form for is JSON, one text a value.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import json
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.ground.lazy import np, pa, pd
from nbtools.memory.exact.values import from_json, to_json

# Of a table with more rows the first and the last of so many are compared; of the others all.
_COMPARED = 200_000
_EXACT, _STEP = b"nbtools", b"nbtools step"
_INDEX_WAY = "frame.reset_index() makes columns of it."
_ATTRS_WAY = "frame.attrs = {} drops them."
_LABELS_WAY = "Give the columns names of plain text: frame.columns = ['a', 'b']."


def _column_way(label: Any) -> str:
    return f"frame.astype({{{label!r}: str}}) makes text of it; frame.drop(columns={label!r}) leaves it out."


def exact_table(frame: Any) -> Any:
    """Return an Arrow table of a pandas frame in which each column that Arrow would change is JSON.

    Raises
    ------
    InvalidArguments
        A value is of a type that there is no form for.
    """
    levels, rows = _named("its index", _INDEX_WAY, _exact_index, frame.index)
    pairs = [
        _named(f"the column {label!r}", _column_way(label), _exact_column, column) for label, column in frame.items()
    ]
    texts = {
        "columns": [note for _, note in pairs],
        "rows": rows,
        "labels": _named("its column labels", _LABELS_WAY, _packed, frame.columns),
        "unique": not frame.flags.allows_duplicate_labels,
        "attrs": _named("its attrs", _ATTRS_WAY, to_json, frame.attrs),
    }
    names = [f"index {at}" for at in range(len(levels))]
    names += [str(label).encode(errors="backslashreplace").decode() for label in frame.columns]
    table = pa.Table.from_arrays([*levels, *(array for array, _ in pairs)], names=names)
    return table.replace_schema_metadata({_EXACT: json.dumps(texts).encode()})


def _named(part: str, way: str, make: Callable[[Any], Any], value: Any) -> Any:
    """Return what a function makes of a part of a table; what it has no form for is told with the name of the part."""
    try:
        return make(value)
    except TypeError as exc:
        raise InvalidArguments(f"in {part}, {exc}", hint=way) from exc


def _exact_index(index: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return Arrow arrays of an index, and what makes the index of them: type, names, step and levels."""
    form = {"names": to_json(list(index.names)), "step": _step_of(index)}
    if isinstance(index, pd.RangeIndex):
        return [], form | {"range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.MultiIndex):
        return [pa.array(each) for each in index.codes], form | {"levels": [_packed(each) for each in index.levels]}
    array, note = _exact_column(index)
    return [array], form | {"of": note}


def _packed(index: Any) -> dict[str, Any]:
    """Return JSON of an index and its labels."""
    arrays, form = _exact_index(index)
    table = pa.table(arrays, names=list(map(str, range(len(arrays)))))
    return form | {"arrays": base64.b64encode(_parquet(table)).decode()}


def _restored_index(form: Any, arrays: Any = None) -> Any:
    if arrays is None:
        arrays = _table(base64.b64decode(form["arrays"])).columns
    names = from_json(form["names"])
    if "range" in form:
        return pd.RangeIndex(*form["range"], name=names[0])
    if "levels" in form:
        levels = list(map(_restored_index, form["levels"]))
        codes = list(map(np.asarray, arrays))
        pd.MultiIndex(levels, codes)  # looks at them; it would change the code of a missing label to another
        return pd.MultiIndex(levels, codes, names=names, verify_integrity=False)
    column = pd.Series(_restored_column(arrays[0], form["of"]))
    index = pd.Index(column.array, dtype=column.dtype, name=names[0], tupleize_cols=False)
    return _with_step(index, form["step"]) if form["step"] else index


def usual_table(frame: Any) -> Any:
    """Return an Arrow table of a pandas frame as Arrow makes it, with the step of its index."""
    json.dumps(frame.attrs)  # Arrow only warns of those that it drops
    table, step = pa.Table.from_pandas(frame), _step_of(frame.index)
    return table if step is None else table.replace_schema_metadata({**table.schema.metadata, _STEP: step.encode()})


def columns_of(table: Any, width: int) -> list[tuple[str, str]]:
    """Return names and types of the columns of a table that was made of a frame of so many, without its index."""
    fields = list(table.schema)
    own = fields[len(fields) - width :] if _EXACT in (table.schema.metadata or {}) else fields[:width]
    return [(field.name, str(field.type)) for field in own]


def _step_of(index: Any) -> str | None:
    """Return the step of an index of moments, which pandas' own note in Arrow leaves out; `None` for none."""
    return getattr(index, "freqstr", None) if getattr(index.dtype, "kind", "") in "mM" else None


def _with_step(index: Any, step: str) -> Any:
    """Return an index with a step, or without it where its text names no step."""
    with contextlib.suppress(ValueError):
        index.freq = step
    return index


def _exact_column(column: Any) -> tuple[Any, Any]:
    """Return an Arrow array of a column, and what makes the column of it: pandas' own note, or the type."""
    column = pd.Series(column.array, name="c", dtype=column.dtype)
    if hasattr(column.dtype, "pyarrow_dtype"):
        return pa.chunked_array([pa.array(column)]), {"arrow": True}
    # There may be no such type in Arrow, and by Parquet some types become others.
    with contextlib.suppress(pa.ArrowException, TypeError, ValueError, KeyError, OverflowError):
        table = _table(_parquet(pa.Table.from_pandas(column.to_frame(), preserve_index=False)))
        if _frame_difference(column.to_frame(), restore_frame(table)) is None:
            return table.column(0), table.schema.metadata[b"pandas"].decode()
    if isinstance(column.dtype, pd.CategoricalDtype):
        note = {"categories": _packed(column.dtype.categories), "ordered": column.dtype.ordered}
        return pa.array(column.cat.codes), note
    texts = [json.dumps(to_json(value)) for value in column.tolist()]
    return pa.array(texts, pa.string()), {"dtype": str(column.dtype)}


def _parquet(table: Any) -> bytes:
    file = io.BytesIO()
    importlib.import_module("pyarrow.parquet").write_table(table, file)
    return file.getvalue()


def _table(parquet: bytes) -> Any:
    return importlib.import_module("pyarrow.parquet").read_table(io.BytesIO(parquet))


def _restored_column(array: Any, note: Any) -> Any:
    if isinstance(note, str):
        return restore_frame(pa.table({"c": array}).replace_schema_metadata({b"pandas": note.encode()})).iloc[:, 0]
    if "arrow" in note:
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    if "ordered" in note:
        dtype = pd.CategoricalDtype(_restored_index(note["categories"]), note["ordered"])
        return pd.Categorical.from_codes(array.to_pylist(), dtype=dtype)
    values = pd.Series([from_json(json.loads(text)) for text in array.to_pylist()], dtype=object)
    with contextlib.suppress(TypeError):  # of a type whose text pandas does not read, such as one of sparse values
        return pd.Series(values.array, dtype=note["dtype"])
    return values


def _restored_frame(table: Any, texts: Any) -> Any:
    if "rows" not in texts:
        raise InvalidArguments("the table was saved in an earlier form.", hint="Save it again; its file is Parquet.")
    at = table.num_columns - len(texts["columns"])
    parts = map(_restored_column, table.columns[at:], texts["columns"])
    frame = pd.DataFrame(dict(enumerate(parts)), index=range(table.num_rows))
    frame.index, frame.columns = _restored_index(texts["rows"], table.columns[:at]), _restored_index(texts["labels"])
    frame.attrs = from_json(texts["attrs"])
    frame.flags.allows_duplicate_labels = not texts["unique"]
    return frame


def restore_frame(table: Any) -> Any:
    """Return the pandas frame that a table was made of."""
    frame = _restored(table)
    if step := (table.schema.metadata or {}).get(_STEP):
        _with_step(frame.index, step.decode())
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
        if note is None or not (dtype.endswith("[pyarrow]") or (dtype == "object" and not _is_text(field.type))):
            continue
        values = column.to_pylist() if dtype == "object" else pd.arrays.ArrowExtensionArray(column)
        exact[field.name] = pd.Series(values, dtype=object if dtype == "object" else None)
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


def difference(table: Any, other: Any) -> InvalidArguments | None:
    """Return in what two tables of one class differ, and what to do; `None` where they are equal."""
    package = type(table).__module__.partition(".")[0]
    if package == "polars":
        table = table.collect() if hasattr(table, "collect") else table
        for name, kind in table.schema.items():
            if other.schema.get(name) != kind or not table[name].equals(other[name]):
                why = f"the column {name!r} of {kind} would come back as {other.schema.get(name)}"
                return InvalidArguments(why, hint=f"frame.drop({name!r}) leaves it out.")
        return None
    if package == "pyarrow":
        is_same = table.schema.equals(other.schema, check_metadata=True) and _same_rows(table, other)
        return None if is_same else InvalidArguments("it would come back changed")
    return _frame_difference(table, other)


def _same_rows(table: Any, other: Any) -> bool:
    # Arrow holds that NaN is unequal to itself, which is not a difference here.
    return bool(table.equals(other)) or all(map(_is_same, table.to_pylist(), other.to_pylist()))


def _frame_difference(frame: Any, other: Any) -> InvalidArguments | None:
    for (part, value, way), (_, back, _) in zip(_facts(frame), _facts(other), strict=False):
        if not _is_same_fact(value, back):
            was, becomes = (textwrap.shorten(repr(each), 120) for each in (value, back))
            return InvalidArguments(f"{part} would come back as {becomes} and not as {was}", hint=way)
    for (label, column), (_, back) in zip(_columns(frame), _columns(other), strict=True):
        if not _same_values(column, back):
            return InvalidArguments(
                f"the column {label!r} would come back with other values or types", hint=_column_way(label)
            )
    return None


def _columns(frame: Any) -> Any:
    return frame.items() if frame.ndim > 1 else [(frame.name, frame)]


def _facts(frame: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield all that belongs to a table beside its cells: which part, what it is, and what to do without it."""
    # Of a class that names no other, pandas itself makes plain tables with each step.
    yield "its class", frame._constructor, "pandas.DataFrame(frame) is plain."  # noqa: SLF001 - for derived classes
    yield "its attrs", dict(frame.attrs), _ATTRS_WAY
    yield "its flags", frame.flags, "frame.set_flags(allows_duplicate_labels=True) drops them."
    if frame.ndim > 1:
        yield from _facts_of_index(frame.columns, "its column labels", _LABELS_WAY)
    else:
        yield "its name", [frame.name], "Give it a name of plain text: series.rename('a')."
    yield from _facts_of_index(frame.index, "its index", _INDEX_WAY)
    for label, column in _columns(frame):
        yield from _facts_of_type(column.dtype, f"the column {label!r}", _column_way(label))


def _facts_of_index(index: Any, part: str, way: str) -> Iterator[tuple[str, Any, str]]:
    # A range of numbers may come back as the numbers, which pandas holds to be equal.
    yield f"the class of {part}", type(index).__name__.replace("Range", ""), way
    yield f"the names of {part}", list(index.names), way
    yield f"the step of {part}", getattr(index, "freq", None), "index.freq = None drops it."
    if isinstance(index, pd.MultiIndex):
        for level, codes in zip(index.levels, index.codes, strict=True):
            yield from _facts_of_index(level, f"a level of {part}", way)
            yield part, pd.Index(codes), way
    else:
        yield from _facts_of_type(index.dtype, part, way)
        yield part, index, way


def _facts_of_type(dtype: Any, part: str, way: str) -> Iterator[tuple[str, Any, str]]:
    yield f"the type of {part}", dtype, way
    if isinstance(dtype, pd.CategoricalDtype):
        yield from _facts_of_index(dtype.categories, f"the categories of {part}", way)


def _is_same_fact(value: Any, back: Any) -> bool:
    if isinstance(value, pd.Index):
        return len(value) == len(back) and _same_values(value, back)
    return _is_same(value, back) if isinstance(value, list | dict) else bool(value == back)


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
