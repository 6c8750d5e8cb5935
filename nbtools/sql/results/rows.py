"""The rows of a result: Arrow where pyarrow is installed and the engine speaks it, Python tuples otherwise.

Both forms convert to the same pandas types: decimals and integers beside missing values become floats, dates become
timestamps, intervals timedeltas, as DuckDB's own ``df()`` has it. Other whole numbers, the sum of integers among them,
stay whole: as ``int64`` or ``uint64``, as Python integers beyond 64 bits, and beside missing values where a float would
round them, as the nullable forms. Lists, maps and structs are Python's, but for lists of floats. Infinite
dates and timestamps and the time 24:00:00, which neither Python nor pandas has, stand as text among the others; Arrow
and polars get a column of texts then. A month of an interval counts 30 days, a year twelve of them. Decimals of
which a float would lose digits stay `decimal.Decimal`. `to_lists` keeps what JSON can keep exactly and writes the rest
as text. A column of JSON is the text of its documents; inside of lists, maps and structs a document is what it stands
for, but for Arrow and polars, which have no type for values of any kind.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from nbtools.ground.lazy import has, need, np, pa, pc, pd
from nbtools.sql.results.moments import has_part, is_list, python_values, special_times, texts_of, type_with, with_texts
from nbtools.sql.results.texts import documents_in
from nbtools.texts.values import jsonable, text_of

_NOTE = b"nbtools.types"
DATE = "datetime64[ms]"
TIMESTAMP = "datetime64[us]"
# No type of pandas: such a column becomes floats, or stays as it is where they would lose digits.
DECIMAL = "decimal"
# These have a value for what is missing.
_TAKE_GAPS = ("datetime", "float", "str")
_ARROW = {"str": "string", "bool": "bool_", "object": "binary"}
_DIGITS_IN_A_FLOAT = 15
_MOST_RENAMED = 5  # columns that are named
_MOST_IN_A_FLOAT = 2**53  # a float holds each whole number up to here, and rounds beyond


class ResultRows(Protocol):
    """Rows of a result, held by Arrow or by Python."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""

    def to_arrow(self) -> Any:
        """Copy to a pyarrow Table."""

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame; names that occur twice get a number."""

    def to_lists(self, start: int = 0, stop: int | None = None) -> list[list[Any]]:
        """Copy the rows from `start` to before `stop` as lists of JSON values."""

    def to_tuples(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python's values, with texts for moments that Python lacks."""


def _duration(value: Any) -> Any:
    """Turn Arrow's month-day-nano into what DuckDB's ``df()`` gives: a month counts 30 days."""
    if not hasattr(value, "months"):
        return value
    return dt.timedelta(days=value.months * 30 + value.days, microseconds=value.nanoseconds // 1_000)


def unique_names(names: Iterable[str], fold: Callable[[str], object] = str) -> list[str]:
    """Return the names with a number where one occurs again: ``a, a`` becomes ``a, a_1``.

    Parameters
    ----------
    names
        The names.
    fold
        Returns the same for names that are one to their reader: for SQL `fold_name`.
    """
    own = list(names)
    own_ones, unique_ones = {*map(fold, own)}, dict[object, str]()
    for name in own:
        unique, number = name, 0
        while fold(unique) in unique_ones or (number and fold(unique) in own_ones):
            number += 1
            unique = f"{name}_{number}"
        unique_ones[fold(unique)] = unique
    return list(unique_ones.values())


def fold_name(name: str) -> bytes:
    """Return what is the same for all names that are one to DuckDB, which looks past the case of A to Z alone."""
    return name.encode(errors="surrogatepass").lower()


def name_notes(own: Sequence[str | None], names: Sequence[str]) -> list[str]:
    """Return a phrase for the columns that have another name because theirs occurs before; none where none has."""
    pairs = zip(own, names, strict=False)
    phrases = [f"{text} as {name}" for text, name in pairs if text and name.startswith(f"{text}_")]
    more = f" and {len(phrases) - _MOST_RENAMED:,} more" if len(phrases) > _MOST_RENAMED else ""
    return [f"columns with the same name: {', '.join(phrases[:_MOST_RENAMED])}{more}"] if phrases else []


def types_note(kinds: Sequence[str]) -> dict[bytes, bytes]:
    """Return the metadata of a table of Arrow whose columns have these types of DuckDB."""
    return {_NOTE: json.dumps(list(kinds)).encode()}


def noted_types(schema: Any) -> list[str]:
    """Return the types of DuckDB that the metadata of a table of Arrow tells; none where it tells none."""
    return list(json.loads((schema.metadata or {}).get(_NOTE, b"[]")))


def join_parts(columns: Sequence[str], parts: Sequence[ResultRows]) -> ResultRows:
    """Return the rows of several parts of one result."""
    if parts and isinstance(parts[0], ArrowRows):
        return ArrowRows(pa.concat_tables([part.table for part in parts if isinstance(part, ArrowRows)]))
    rest = [part for part in parts if isinstance(part, PythonRows)]
    return PythonRows(columns, [row for part in rest for row in part.to_tuples()], rest[0].dtypes if rest else ())


class ArrowRows:
    """Rows in a pyarrow Table.

    Attributes
    ----------
    table
        As the engine gave it, for DuckDB and our own processes: special moments are numbers that only DuckDB reads.
    """

    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def to_arrow(self) -> Any:
        """Return the table, with text in the columns that hold infinite moments or the time 24:00:00."""
        columns = [with_texts(column) for column in self.table.columns]
        if all(new is old for new, old in zip(columns, self.table.columns, strict=True)):
            return self.table
        return pa.table(columns, names=self.table.column_names)

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""
        table = self.table
        odd: dict[int, Any] = {}
        for index, field in enumerate(table.schema):
            kind = field.type
            if kind.id in _ids_kept() and not table.column(index).null_count:
                continue
            if self._documents(index) is None:
                exact = _exact_column(table.column(index))
            else:
                exact = pd.Series(self.values(index), dtype=object)
            exact = _exact_nested(table.column(index)) if exact is None else exact
            exact = _exact_times(table.column(index)) if exact is None else exact
            if exact is None and (pa.types.is_interval(kind) or pa.types.is_union(kind)):
                values = _deep(table.column(index).to_pylist(), _duration)
                exact = pd.Series(values, dtype="timedelta64[us]" if pa.types.is_interval(kind) else object)
            if exact is not None:
                odd[index] = exact
                table = table.set_column(index, field.name, pa.nulls(table.num_rows))
            elif pa.types.is_decimal(kind):
                table = table.set_column(index, field.name, table.column(index).cast(pa.float64(), safe=False))
        # Threads cost more than they bring for small results, and most are small.
        frame = table.to_pandas(date_as_object=False, use_threads=table.num_rows > 50_000)
        for index, column in odd.items():
            frame.isetitem(index, column)
        return frame

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame."""
        polars = need("polars", extra="engines", why="A result as a polars DataFrame")
        table = self.to_arrow()
        for index, field in enumerate(table.schema):
            # None of these has a counterpart there.
            kind = type_with(field.type, lambda kind: pa.duration("us") if pa.types.is_interval(kind) else kind)
            if kind != field.type:
                values = _deep(table.column(index).to_pylist(), _duration)
                table = table.set_column(index, field.name, pa.array(values, kind))
            elif pa.types.is_union(field.type) or pa.types.is_decimal256(field.type):
                texts = [None if value is None else str(value) for value in table.column(index).to_pylist()]
                table = table.set_column(index, field.name, pa.array(texts, pa.string()))
        return polars.from_arrow(table.rename_columns(unique_names(table.column_names)))

    def to_tuples(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python's values; see `ResultRows`."""
        return list(zip(*map(self.values, range(self.table.num_columns)), strict=True))

    def values(self, at: int) -> list[Any]:
        """Return the values of a column as Python has them; see `python_values`."""
        values, change = python_values(self.table.column(at)), self._documents(at)
        return values if change is None else list(map(change, values))

    def _documents(self, at: int) -> Callable[[Any], Any] | None:
        """Return what makes the values of a column of which lists, maps or structs hold JSON; `None` for any other."""
        return documents_in(self._kinds[at]) if self._kinds else None

    @functools.cached_property
    def _kinds(self) -> list[str]:
        return noted_types(self.table.schema)

    def to_lists(self, start: int = 0, stop: int | None = None) -> list[list[Any]]:
        """Copy rows as lists of JSON values."""
        part = self.table.slice(start, None if stop is None else max(0, stop - start))
        rows = ArrowRows(part)
        columns = [_json_column(rows, index) for index in range(part.num_columns)]
        return [list(row) for row in zip(*columns, strict=True)]


def _deep(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value whose parts that are neither lists, pairs nor dictionaries are changed, at any depth."""
    if isinstance(value, dict):
        return {name: _deep(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "months"):
        return type(value)(_deep(each, change) for each in value)
    return change(value)


@functools.cache
def _ids_kept() -> frozenset[int]:
    """Return the ids of the types of Arrow whose values pandas keeps, where none is missing."""
    names = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 string"
    return frozenset(getattr(pa, name)().id for name in names.split())


def _exact_column(column: Any) -> Any:
    """Return a pandas column of Arrow's whole numbers or decimals, where a float would round one; otherwise `None`."""
    kind = column.type
    is_decimal, has_gaps = pa.types.is_decimal(kind), column.null_count > 0
    if not is_decimal and not (pa.types.is_integer(kind) and has_gaps):
        return None
    ends = pc.min_max(column)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return None
    if is_decimal and kind.scale > 0:
        # A float shows 15 digits as they were given. Where no number has more, none is looked at: that takes 1 ms a
        # thousand.
        is_short = max(-least, greatest) < decimal.Decimal((0, (1,), _DIGITS_IN_A_FLOAT - kind.scale))
        values = [] if is_short else column.to_pylist()
        return pd.Series(values, dtype=object) if any(map(_is_rounded, values)) else None
    if has_gaps and max(-least, greatest) <= _MOST_IN_A_FLOAT:
        return None
    name = _whole_dtype(int(least), int(greatest), has_gaps=has_gaps)
    if name == "object":
        return pd.Series([None if value is None else int(value) for value in column.to_pylist()], dtype=object)
    nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    return column.cast(name.lower()).to_pandas(types_mapper=nullable.get if has_gaps else None)


def _exact_times(column: Any) -> Any:
    """Return a pandas column with the text of moments that pandas lacks among the others; `None` without any."""
    special = special_times(column, beyond=pa.types.is_time(column.type))
    if not special:
        return None
    mask = pa.chunked_array([pa.array([at in special for at in range(len(column))])])
    rest = pc.if_else(mask, pa.scalar(None, column.type), column).to_pandas(date_as_object=False)
    values = [None if gone else value for value, gone in zip(rest.tolist(), rest.isna(), strict=True)]
    return pd.Series([special.get(at, value) for at, value in enumerate(values)], dtype=object)


def _exact_nested(column: Any) -> Any:
    """Return a pandas column of Python's lists and dictionaries; `None` for values that are neither."""
    kind = column.type
    if not pa.types.is_nested(kind) or pa.types.is_union(kind):
        return None
    # Large ones, such as embeddings, stay arrays.
    if is_list(kind) and pa.types.is_floating(kind.value_type) and not pc.list_flatten(column).null_count:
        return None
    return pd.Series(with_texts(column, beyond=True).to_pylist(), dtype=object)


def _whole_dtype(least: int, greatest: int, *, has_gaps: bool) -> str:
    """Return the dtype that holds whole numbers from `least` to `greatest`, missing ones among them."""
    if least >= -(2**63) and greatest < 2**63:
        return "Int64" if has_gaps else "int64"
    if least >= 0 and greatest < 2**64:
        return "UInt64" if has_gaps else "uint64"
    return "object"


def _json_column(rows: ArrowRows, at: int) -> list[Any]:
    column = rows.table.column(at)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return list(column.to_pylist())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        # Arrow writes every moment, Python's datetime only the years 1 to 9999.
        return texts_of(column)
    return list(map(jsonable, rows.values(at)))


class PythonRows:
    """Rows as tuples of Python values, from engines that speak no Arrow.

    Parameters
    ----------
    columns
        Names, in order; a name may occur twice.
    values
        The rows.
    dtypes
        What pandas calls the types of the columns, such as ``"int32"``, where the engine told; `None` for the others,
        whose types come from their values.
    """

    def __init__(
        self, columns: Sequence[str], values: Sequence[tuple[Any, ...]], dtypes: Sequence[str | None] = ()
    ) -> None:
        self._columns = tuple(columns)
        self._values = values
        self.dtypes = tuple(dtypes) or (None,) * len(self._columns)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values)

    def to_tuples(self) -> list[tuple[Any, ...]]:
        """Return the rows as they came."""
        return list(self._values)

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""
        frame = pd.DataFrame.from_records(list(self._values), columns=range(len(self._columns)), coerce_float=True)
        for index in frame.columns:
            dtype, values = self.dtypes[index], [row[index] for row in self._values]
            if dtype is not None and all(value is None for value in values) and not dtype.startswith(_TAKE_GAPS):
                is_number = dtype == DECIMAL or ("int" in dtype and bool(values))
                frame[index] = pd.Series(values, dtype="float64" if is_number else "object" if values else dtype)
            elif dtype not in {None, DECIMAL} and (dtype.startswith(_TAKE_GAPS) or None not in values):
                frame[index] = _typed(values, dtype)
            elif frame[index].dtype == object:
                frame[index] = _infer_dtype(frame[index])
            elif frame[index].dtype == float:
                frame[index] = _restore(frame[index], values)
        frame.columns = pd.Index(self._columns)
        return frame

    def to_arrow(self) -> Any:
        """Copy to a pyarrow Table; a column of mixed types becomes text."""
        pa = need("pyarrow", extra="engines", why="A result as an Arrow table")
        arrays = [
            _arrow_array(pa, [row[index] for row in self._values], dtype) for index, dtype in enumerate(self.dtypes)
        ]
        return pa.table(arrays, names=list(self._columns))

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame."""
        polars = need("polars", extra="engines", why="A result as a polars DataFrame")
        if has("pyarrow"):
            return ArrowRows(self.to_arrow()).to_polars()
        return polars.DataFrame(
            list(self._values), schema=unique_names(self._columns), orient="row", infer_schema_length=None, strict=False
        )

    def to_lists(self, start: int = 0, stop: int | None = None) -> list[list[Any]]:
        """Copy rows as lists of JSON values."""
        narrow = [at for at, dtype in enumerate(self.dtypes) if dtype == "float32"]
        rows = [[jsonable(value) for value in row] for row in self._values[start:stop]]
        for row in rows if narrow else ():
            for at in narrow:
                row[at] = _short_float(row[at])
        return rows


def _short_float(value: Any) -> Any:
    """Return the double that people write for a narrow float: 0.1."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _is_rounded(value: Any) -> bool:
    """Tell whether a float has not all digits of a number."""
    if _is_whole(value):
        return bool(abs(value) >= _MOST_IN_A_FLOAT)
    return isinstance(value, decimal.Decimal) and value.is_finite() and decimal.Decimal(repr(float(value))) != value


def _restore(column: Any, values: Sequence[Any]) -> Any:
    """Return a column of floats with all digits of its values, where these were integers or decimals."""
    present = [value for value in values if value is not None]
    is_sum = len(present) == len(values) and all(map(_has_no_places, present))
    if not (is_sum or any(map(_is_rounded, present))) or any(isinstance(value, float) for value in present):
        return column
    if not all(map(_is_whole, present)):
        return pd.Series(list(values), dtype=object)
    wholes = [None if value is None else int(value) for value in values]
    name = _whole_dtype(int(min(present)), int(max(present)), has_gaps=len(present) < len(values))
    return pd.Series(wholes, dtype=name)


def _has_no_places(value: Any) -> bool:
    """Tell whether a value is a decimal without places, as databases have it for the sum of integers."""
    return isinstance(value, decimal.Decimal) and value.is_finite() and value.as_tuple().exponent == 0


def _is_whole(value: Any) -> bool:
    if isinstance(value, decimal.Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int)


def _infer_dtype(column: Any) -> Any:
    """Return a column of Python objects with the dtype that all its values share, where there is one."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "date":
        return pd.to_datetime(column, errors="coerce") if column.notna().any() else column
    if kind in {"datetime", "datetime64"}:
        return pd.to_datetime(column, utc=column.dropna().map(lambda value: value.tzinfo is not None).any())
    if kind == "timedelta":
        return pd.to_timedelta(column)
    return column


def _typed(values: list[Any], dtype: str) -> Any:
    """Return a pandas column of values that all are of a type, but for the text of moments that pandas lacks."""
    if not dtype.startswith("datetime"):
        return pd.Series(values, dtype=dtype)
    texts = [value if value is None or isinstance(value, str) else value.isoformat() for value in values]
    special = [text is not None and text.endswith("infinity") for text in texts]
    ordinary = [None if text is None or odd else text for text, odd in zip(texts, special, strict=True)]
    column = pd.Series(np.array(ordinary, dtype=dtype))
    if not any(special):
        return column
    triples = zip(column.tolist(), texts, special, strict=True)
    return pd.Series([text if odd else None if text is None else value for value, text, odd in triples], dtype=object)


def _arrow_array(pa: Any, values: list[Any], dtype: str | None) -> Any:
    try:
        if dtype is not None and dtype.startswith("datetime"):
            kind = pa.date32() if dtype == DATE else pa.timestamp(dtype[11:-1])
            return pa.array(_typed(values, dtype), kind)
        kind = None if dtype in {None, DECIMAL} else getattr(pa, _ARROW.get(dtype, dtype))()
        return zones_as_text(pa.array(values, kind), values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        return pa.array([None if value is None else text_of(value) for value in values], pa.string())


def zones_as_text(array: Any, values: list[Any]) -> Any:
    """Return an Arrow array of some values; times of day with a zone, which it drops without a word, become texts."""
    return pa.array(_deep(values, _zone_as_text)) if has_part(array.type, pa.types.is_time) else array


def _zone_as_text(value: Any) -> Any:
    return text_of(value) if isinstance(value, dt.time) and value.tzinfo is not None else value
