"""Known types: a frame as DuckDB reads it whole. What it has no type for, or would cut, becomes text."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from nbtools.errors import SqlInvalid
from nbtools.ground.lazy import duckdb, has, np, pa, pd
from nbtools.sql.results.moments import has_part, rebuilt, type_with
from nbtools.sql.results.rows import zones_as_text
from nbtools.texts.values import span_text, text_of

# What pandas calls types that the engine lacks, and objects that may be of several.
_UNKNOWN = frozenset({"period", "interval", "geometry", "complex64", "complex128", "complex256", "float96", "float128"})
_MIXED = frozenset({"mixed", "mixed-integer"})
# Of a column of lists and the like; what comes later and fits nothing is refused by the column's name.
_TRIED = 100
CATEGORIES = b"nbtools.categories"
"""The key in the metadata of an Arrow table that tells the categories of its columns, as JSON."""
_MOST_CATEGORIES = 1_000
_OF_POLARS = frozenset({"Int128", "UInt128", "Object"})
_DIGITS = 38  # of the widest decimals
_SPANS = {"s": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}


def with_known_types(frame: Any) -> Any:
    """Return a frame whose columns DuckDB has types for; of others, and of those that it would cut, come texts.

    So the other columns can be asked, and the odd one is not refused by a name that is not its own.
    """
    if not hasattr(type(frame), "iloc"):
        is_lazy = hasattr(frame, "collect") and hasattr(frame, "collect_schema")
        if is_lazy and any(map(_is_odd_of_polars, frame.collect_schema().values())):
            frame = frame.collect()
        for at, name, array in _known_columns(frame):
            if type(frame).__module__.startswith("polars"):
                frame = frame.with_columns(type(frame.to_series(at))(name, array))
            else:
                frame = frame.set_column(at, name, array)
        return frame
    changed = {}
    for at, column in _columns_of_other_types(frame, frame.dtypes):
        if str(column.dtype).startswith("Sparse"):
            changed[at] = column.sparse.to_dense()
        elif (is_unknown := _is_unknown(column)) or any(map(Decimal.is_nan, _decimals_of(column))):
            values = column.tolist()
            pairs = zip(values, gaps(column, values), strict=True)
            changed[at] = [None if gone else text_of(value) if is_unknown else value for value, gone in pairs]
    if changed:
        frame = frame.copy(deep=False)
        for at, values in changed.items():
            frame.isetitem(at, values)
    return frame


def as_arrow(frame: Any) -> Any:
    """Return a frame as a pyarrow Table, as DuckDB reads it isolated or not.

    Raises
    ------
    SqlInvalid
        One of its columns holds what no type of Arrow or DuckDB has whole.
    """
    frame = with_known_types(frame)
    module = type(frame).__module__.partition(".")[0]
    if module == "pyarrow":
        return frame if isinstance(frame, pa.Table) else pa.Table.from_batches([frame])
    if module == "polars":
        return with_known_types((frame.collect() if hasattr(frame, "collect") else frame).to_arrow())
    columns = [_arrow_column(frame.iloc[:, index]) for index in range(frame.shape[1])]
    table = pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns])
    categories = _categories(frame, table.schema)
    return table.replace_schema_metadata({CATEGORIES: json.dumps(categories)}) if categories else table


def _categories(frame: Any, schema: Any) -> dict[str, list[str]]:
    """Return the texts of the columns of categories in a frame of pandas, in their order, by the name of the column."""
    folded = [name.casefold() for name in schema.names]
    categories = {
        name: frame.iloc[:, at].cat.categories.tolist()
        for at, name in enumerate(schema.names)
        if pa.types.is_dictionary(schema.field(at).type) and folded.count(folded[at]) == 1
    }
    texts = {name: values for name, values in categories.items() if values and all(isinstance(v, str) for v in values)}
    # Many take a second to be named, and are texts where that leaves their order.
    return {name: each for name, each in texts.items() if len(each) <= _MOST_CATEGORIES or each != sorted(each)}


def _arrow_column(column: Any) -> Any:
    """Turn a column of pandas into an Arrow array whose missing values are null; no copy where nothing is missing."""
    if str(column.dtype) in {"float64", "float32"}:
        values = column.to_numpy()
        # A product with itself is not a number only if one of the values is not; looking for that in Arrow's way takes
        # several times as long.
        with np.errstate(all="ignore"):
            if not np.isnan(np.dot(values, values)):
                return pa.array(values)
    return rebuilt(_converted(column), _is_odd, _known_part)


def _converted(column: Any) -> Any:
    if str(column.dtype) == "float16":  # which DuckDB reads of pandas, and not of Arrow
        column = column.astype("float32")
    try:
        return _exact_objects(column) if _is_of_arrow(column) else pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # Mixed objects: DuckDB makes text, or maps, of them.
        try:
            with duckdb.connect() as connection:
                connection.execute("SET arrow_lossless_conversion = true")
                array = connection.from_df(column.to_frame("x")).to_arrow_table().column(0)
            if sum(map(_texts_in, array.to_pylist())) > sum(map(_texts_in, column.tolist())):
                raise OverflowError("it would make texts of some")
            return array
        except (duckdb.Error, OverflowError) as exc:
            what = f"the column {column.name} contains objects that SQL has no type for: {exc}"
            raise SqlInvalid(
                what, hint=f"Leave it out, or make it text: df[{column.name!r}].astype(str).", tried="running SQL"
            ) from None


def _texts_in(value: Any) -> int:
    """Return how many texts are inside of lists and dictionaries; keys are none of them."""
    if isinstance(value, dict):
        return sum(map(_texts_in, value.values()))
    if isinstance(value, tuple) and len(value) == 2:  # of a map
        return _texts_in(value[1])
    return sum(map(_texts_in, value)) if isinstance(value, list | tuple) else isinstance(value, str)


def _is_odd(kind: Any) -> bool:
    """Tell whether DuckDB has no type for a type of Arrow, or would cut some of its values."""
    is_span = pa.types.is_duration(kind) or pa.types.is_interval(kind)
    return bool(is_span or pa.types.is_decimal256(kind) or pa.types.is_float16(kind))


def _is_odd_of_polars(kind: Any) -> bool:
    return str(kind) in _OF_POLARS or re.search(r"Duration|Float16", str(kind)) is not None


def _known_part(array: Any) -> Any:
    """Return an Arrow array of an odd type as DuckDB has it whole, or as texts."""
    kind, exact = array.type, pa.duration("us")
    if pa.types.is_interval(kind):
        nanos = np.frombuffer(array.buffers()[1], "<i8")[1::2][array.offset : array.offset + len(array)]
        if not (nanos % 1_000 * array.is_valid().to_numpy(zero_copy_only=False)).any():
            return array
    else:
        if pa.types.is_float16(kind):
            exact = pa.float32()
        elif pa.types.is_decimal(kind):
            exact = pa.decimal128(_DIGITS, min(kind.scale, _DIGITS))
        with contextlib.suppress(pa.ArrowInvalid):  # one of them is finer, or has more digits
            if pa.types.is_duration(kind):
                array.cast(pa.duration("ns"))  # in which it hands them on
            return array if kind == exact else array.cast(exact)
    if not pa.types.is_duration(kind):
        return pa.array([None if value is None else text_of(value) for value in array.to_pylist()], pa.string())
    counts = array.cast(pa.int64()).to_pylist()
    return pa.array([None if n is None else span_text(n * _SPANS[kind.unit]) for n in counts], pa.string())


def _known_columns(frame: Any) -> Iterator[tuple[int, str, Any]]:
    """Yield the columns of polars or Arrow that DuckDB has no type for, as it has them, with their places and names."""
    is_polars = type(frame).__module__.startswith("polars")
    if not (has("pyarrow") and hasattr(type(frame), "to_series" if is_polars else "column")):
        return
    schema = frame.schema.items() if is_polars else zip(frame.schema.names, frame.schema.types, strict=True)
    for at, (name, kind) in enumerate(schema):
        if is_polars and str(kind) in _OF_POLARS:
            texts = [None if value is None else text_of(value) for value in frame.to_series(at)]
            yield at, name, pa.array(texts, pa.string())
        elif _is_odd_of_polars(kind) if is_polars else has_part(kind, _is_odd):
            column = frame.to_series(at).to_arrow() if is_polars else frame.column(at)
            array = rebuilt(column, _is_odd, _known_part)
            if array is not column:
                yield at, name, array


def is_by_arrow(frame: Any, at: int, kind: Any) -> bool:
    """Tell whether DuckDB reads a column of pandas, given its type, whole by Arrow alone."""
    if str(kind) == "object":
        return _is_of_arrow(frame.iloc[:, at])
    if hasattr(kind, "pyarrow_dtype"):
        return has_part(kind.pyarrow_dtype, _is_odd)
    if getattr(kind, "unit", "") == "ns" and hasattr(kind, "tz"):  # of these it cuts the nanoseconds
        return bool((frame.iloc[:, at].dt.nanosecond > 0).any())
    return getattr(kind, "kind", "") == "m"


def _is_of_arrow(column: Any) -> bool:
    """Tell whether a column of pandas holds lists, dictionaries, tuples, arrays, or moments as objects.

    Times of day with a zone are among them.
    """
    if str(column.dtype) != "object":
        return False
    value = next((value for value in column.array if not (_is_gap(value) or isinstance(value, float))), None)
    is_moment = type(value).__name__ in {"Timestamp", "Timedelta", "datetime64", "timedelta64"}
    is_moment = is_moment or (isinstance(value, dt.time) and value.tzinfo is not None)
    return is_moment or isinstance(value, list | dict | tuple) or getattr(value, "ndim", 0) > 0


def _exact_objects(column: Any) -> Any:
    """Return objects of Python as an Arrow array that has each of their values, and missing ones as missing.

    Raises
    ------
    pyarrow.ArrowInvalid
        Arrow has no type for them, or gives dictionaries keys that they have not.
    """
    values = column.tolist()
    values = [None if gone else value for value, gone in zip(values, gaps(column, values), strict=True)]
    if _are_pairs(values):
        keys, items = (pa.array([pair[at] for value in values for pair in value or ()]) for at in (0, 1))
        return pa.array(values, pa.map_(keys.type, items.type))
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, ValueError):
        values = list(map(_without_gaps, values))
        array = pa.array(values)
    array = zones_as_text(array, values)
    finest = type_with(array.type, _in_nanoseconds)
    if finest != array.type:
        with contextlib.suppress(pa.ArrowInvalid, OverflowError):  # of years that are too far for nanoseconds
            whole = pa.array(values, finest)
            array = whole if whole != array.cast(finest) else array
    if _have_all_keys(values, array.type):
        return array
    dicts = [value for value in values if isinstance(value, dict)]
    items = [each for value in dicts for each in value.values()]
    parts = pa.array(items)
    if not dicts or not _have_all_keys(items, parts.type):
        raise pa.ArrowInvalid("dictionaries inside of others have different keys")
    pairs = [None if value is None else list(value.items()) for value in values]
    return pa.array(pairs, pa.map_(pa.string(), parts.type))


def _are_pairs(values: list[Any]) -> bool:
    """Tell whether some values are lists of pairs, which begin with different texts: so pandas has Arrow's maps."""
    lists = [value for value in values if value is not None]
    are_pairs = all(
        isinstance(value, list)
        and all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value)
        and len({pair[0] for pair in value}) == len(value)
        for value in lists
    )
    return are_pairs and any(lists)


def _without_gaps(value: Any) -> Any:
    """Return a value of Python with `None` for what pandas calls missing, at any depth."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return list(map(_without_gaps, value))
    if isinstance(value, dict):
        return {name: _without_gaps(each) for name, each in value.items()}
    return None if _is_gap(value) else value


def _is_gap(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_nan()
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def _in_nanoseconds(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return pa.duration("ns") if pa.types.is_duration(kind) else kind


def _have_all_keys(values: list[Any], kind: Any) -> bool:
    """Tell whether the dictionaries among some values have the keys of their type of Arrow, at any depth."""
    there = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        if any(value.keys() != fields.keys() for value in there):
            return False
        return all(_have_all_keys([value[name] for value in there], fields[name]) for name in fields)
    if pa.types.is_list(kind) and has_part(kind, pa.types.is_struct):
        return _have_all_keys([each for value in there for each in value], kind.value_type)
    return True


def columns_as_text(frame: Any, types: Sequence[Any]) -> list[str]:
    """Return the columns of a frame, given their types, that `with_known_types` makes text of."""
    if not hasattr(type(frame), "iloc"):
        return [name for _, name, array in _known_columns(frame) if pa.types.is_string(array.type)]
    odd = {at for at, column in _columns_of_other_types(frame, types) if _is_unknown(column)}
    for at, kind in enumerate(types) if has("pyarrow") else ():
        arrow = getattr(kind, "pyarrow_dtype", None)
        is_odd = getattr(kind, "kind", "") == "m" if arrow is None else has_part(arrow, _is_odd)
        if is_odd and pa.types.is_string(_arrow_column(frame.iloc[:, at]).type):
            odd.add(at)
    return [str(frame.columns[at]) for at in sorted(odd)]


def _columns_of_other_types(frame: Any, types: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the columns of pandas, with their places, that are neither numbers, moments, truth values nor texts."""
    for at, kind in enumerate(types):
        # By its size: to name a type of numpy takes longer than all else that is asked of a small frame.
        is_known = getattr(kind, "kind", "") in "iufbmM" and getattr(kind, "itemsize", 0) <= 8
        if (not is_known or hasattr(kind, "subtype")) and kind.name not in {"str", "string"}:
            yield at, frame.iloc[:, at]


def _is_unknown(column: Any) -> bool:
    """Tell whether the engine has no type for a column of pandas."""
    kind = column.dtype
    kind = kind.categories.dtype if str(kind) == "category" else kind
    if str(kind).partition("[")[0] in _UNKNOWN:
        return True
    if str(column.dtype) != "object":
        return False
    # A moment without a zone is not known beside others with one.
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind.startswith("datetime") and len({getattr(each, "tzinfo", None) is None for each in column.dropna()}) > 1:
        return True
    if _is_of_arrow(column):
        try:
            _converted(column.dropna().head(_TRIED))
        except SqlInvalid:
            return True
        return False
    # DuckDB makes floats of all of them.
    return _are_too_wide(_decimals_of(column)) or (kind in _MIXED and len(set(map(type, column.dropna()))) > 1)


def _decimals_of(column: Any) -> list[Decimal]:
    """Return the decimals of a column of pandas that holds no other values."""
    are_decimals = str(column.dtype) == "object" and pd.api.types.infer_dtype(column, skipna=True) == "decimal"
    return [each for each in column if isinstance(each, Decimal)] if are_decimals else []


def _are_too_wide(decimals: Sequence[Decimal]) -> bool:
    """Tell whether no decimals of DuckDB hold some numbers, of which it makes floats then."""
    if any(map(Decimal.is_infinite, decimals)):
        return True
    finite = [each for each in decimals if not each.is_nan()]
    whole = max((each.adjusted() + 1 for each in finite), default=0)
    scale = max((-int(each.as_tuple().exponent) for each in finite), default=0)
    return max(whole, 0) + max(scale, 0) > _DIGITS


def gaps(column: Any, values: list[Any]) -> list[bool]:
    """Return which of some values of a pandas column are missing ones, as SQL sees them.

    What is not a number is missing too, unless the column's type has another word for that.
    """
    if str(column.dtype).startswith(("Float", "double[", "float[")):
        return list(map(_is_gap, values))
    # Those of numpy are not floats of Python but for one.
    floats = (type(value).__name__.startswith(("float", "longdouble")) for value in values)
    return [_is_gap(value) or (is_float and math.isnan(value)) for value, is_float in zip(values, floats, strict=True)]
