"""The rows of a result: Arrow where pyarrow is installed and the engine speaks it, Python tuples otherwise.

Both forms convert to the same pandas types, the ones that DuckDB's own ``df()`` gives: decimals and huge integers
become floats, dates become timestamps, intervals timedeltas. `to_lists` keeps what JSON can keep exactly and writes
the rest as text.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from nbtools.lazy import need

__all__ = ["ArrowRows", "PythonRows", "Rows", "joined", "jsonable", "unique"]


class Rows(Protocol):
    """Rows of a result, whatever holds them."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""
        ...

    def to_arrow(self) -> Any:
        """Copy to a pyarrow Table."""
        ...

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame; names that occur twice get a number."""
        ...

    def to_lists(self, start: int = 0, stop: int | None = None) -> list[list[Any]]:
        """Copy the rows from `start` to before `stop` as lists of JSON values."""
        ...


def jsonable(value: Any) -> Any:
    """Return a value of a result as JSON has it; what JSON lacks becomes text.

    Whole decimals become integers, others floats when that loses nothing; NaN and infinities become text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, dt.date | dt.time):
        return _short_time(value.isoformat(" ") if isinstance(value, dt.datetime) else value.isoformat())
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set) and not hasattr(value, "_fields"):
        return [jsonable(item) for item in value]
    if hasattr(value, "months") and hasattr(value, "nanoseconds"):
        return str(_timedelta(value))
    return str(value)


def _number(value: decimal.Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value() and -(value.as_tuple().exponent) <= 0:  # type: ignore[operator]  # finite
        return int(value)
    short = float(value)
    return short if decimal.Decimal(repr(short)) == value else str(value)


def _timedelta(value: Any) -> dt.timedelta:
    """Turn Arrow's month-day-nano into what DuckDB's ``df()`` gives: a month counts 30 days."""
    return dt.timedelta(days=value.months * 30 + value.days, microseconds=value.nanoseconds // 1_000)


def unique(names: Iterable[str]) -> list[str]:
    """Return the names with a number where one occurs again: ``a, a`` becomes ``a, a_1``."""
    given = list(names)
    seen: set[str] = set()
    result = []
    for name in given:
        made, number = name, 0
        while made in seen or (number and made in given):
            number += 1
            made = f"{name}_{number}"
        seen.add(made)
        result.append(made)
    return result


def joined(columns: Sequence[str], parts: Sequence[Rows]) -> Rows:
    """Return the rows of several parts of one result."""
    if parts and isinstance(parts[0], ArrowRows):
        import pyarrow as pa

        return ArrowRows(pa.concat_tables([part.to_arrow() for part in parts]))
    return PythonRows(columns, [row for part in parts if isinstance(part, PythonRows) for row in part.to_tuples()])


class ArrowRows:
    """Rows in a pyarrow Table."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._table.num_rows)

    def to_arrow(self) -> Any:
        """Return the table itself: it cannot be changed."""
        return self._table

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""
        import pyarrow as pa

        table = self._table
        odd: dict[int, list[Any]] = {}
        for index, field in enumerate(table.schema):
            kind = field.type
            if pa.types.is_decimal(kind):
                table = table.set_column(index, field.name, table.column(index).cast(pa.float64(), safe=False))
            elif pa.types.is_interval(kind) or pa.types.is_union(kind):
                odd[index] = table.column(index).to_pylist()
                table = table.set_column(index, field.name, pa.nulls(table.num_rows))
        # Threads cost more than they bring for small results, and most are small.
        frame = table.to_pandas(date_as_object=False, use_threads=table.num_rows > 50_000)
        for index, values in odd.items():
            frame.isetitem(index, _pandas_column(values))
        return frame

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame."""
        import pyarrow as pa

        polars = need("polars", extra="engines", why="A result as a polars DataFrame")
        table = self._table
        for index, field in enumerate(table.schema):
            # Neither of the two has a counterpart there.
            if pa.types.is_interval(field.type):
                values = [None if value is None else _timedelta(value) for value in table.column(index).to_pylist()]
                table = table.set_column(index, field.name, pa.array(values, pa.duration("us")))
            elif pa.types.is_union(field.type):
                texts = [None if value is None else str(value) for value in table.column(index).to_pylist()]
                table = table.set_column(index, field.name, pa.array(texts, pa.string()))
        return polars.from_arrow(table.rename_columns(unique(table.column_names)))

    def to_lists(self, start: int = 0, stop: int | None = None) -> list[list[Any]]:
        """Copy rows as lists of JSON values."""
        part = self._table.slice(start, None if stop is None else max(0, stop - start))
        columns = [_json_column(part.column(index)) for index in range(part.num_columns)]
        return [list(row) for row in zip(*columns, strict=True)]


def _pandas_column(values: Sequence[Any]) -> Any:
    import pandas as pd

    if any(hasattr(value, "nanoseconds") for value in values):
        deltas = [None if value is None else _timedelta(value) for value in values]
        return pd.Series(deltas, dtype="timedelta64[us]")
    return pd.Series(list(values), dtype=object)


def _json_column(column: Any) -> list[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        values: list[Any] = column.to_pylist()
        return values
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        # Arrow writes every moment, Python's datetime only the years 1 to 9999.
        texts = column.cast(pa.string()).to_pylist()
        return [text if text is None else _short_time(text) for text in texts]
    return [jsonable(value) for value in column.to_pylist()]


def _short_time(text: str) -> str:
    """Drop zeros that say nothing: ``12:00:00.000000`` becomes ``12:00:00``."""
    head, dot, tail = text.partition(".")
    digits = tail.rstrip("Z")
    zone = tail[len(digits) :]
    if not dot or not digits.isdigit():
        return text
    digits = digits.rstrip("0")
    return head + ("." + digits if digits else "") + zone


class PythonRows:
    """Rows as tuples of Python values, from engines that speak no Arrow.

    Parameters
    ----------
    columns
        Names, in order; a name may occur twice.
    values
        The rows.
    """

    def __init__(self, columns: Sequence[str], values: Sequence[tuple[Any, ...]]) -> None:
        self._columns = tuple(columns)
        self._values = values

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values)

    def to_tuples(self) -> list[tuple[Any, ...]]:
        """Return the rows as they came."""
        return list(self._values)

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""
        import pandas as pd

        frame = pd.DataFrame.from_records(list(self._values), columns=range(len(self._columns)), coerce_float=True)
        for index in frame.columns:
            if frame[index].dtype == object:
                frame[index] = _better(frame[index])
        frame.columns = pd.Index(self._columns)
        return frame

    def to_arrow(self) -> Any:
        """Copy to a pyarrow Table; a column of mixed types becomes text."""
        pa = need("pyarrow", extra="engines", why="A result as an Arrow table")
        arrays = [_arrow_array(pa, [row[index] for row in self._values]) for index in range(len(self._columns))]
        return pa.table(arrays, names=list(self._columns))

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame."""
        polars = need("polars", extra="engines", why="A result as a polars DataFrame")
        return polars.DataFrame(
            list(self._values), schema=unique(self._columns), orient="row", infer_schema_length=None, strict=False
        )

    def to_lists(self, start: int = 0, stop: int | None = None) -> list[list[Any]]:
        """Copy rows as lists of JSON values."""
        return [[jsonable(value) for value in row] for row in self._values[start:stop]]


def _better(column: Any) -> Any:
    """Give a column of Python objects the dtype that all its values share, where there is one."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "date":
        return pd.to_datetime(column, errors="coerce") if column.notna().any() else column
    if kind in {"datetime", "datetime64"}:
        return pd.to_datetime(column, utc=column.dropna().map(lambda value: value.tzinfo is not None).any())
    if kind == "timedelta":
        return pd.to_timedelta(column)
    return column


def _arrow_array(pa: Any, values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
