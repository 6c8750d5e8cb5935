"""Frames on DuckDB cursors: how a frame becomes readable, and cursors that remember small ones.

Registering a DataFrame costs more than most queries over it. So a cursor that served a query is kept with the frames
it has, and serves the next query that names exactly the same ones. That is safe because the cursor holds a shallow
copy, and pandas copies a shared block before it writes to it: as long as a frame's blocks are the very objects that
were registered, nothing has changed. Only small frames are remembered, and each is forgotten when the notebook drops
it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from nbtools.errors import SqlInvalid
from nbtools.ground.lazy import duckdb, has, np, pa, pd
from nbtools.sql.results.moments import has_part, type_with
from nbtools.sql.results.texts import text_of
from nbtools.texts.sql_quotes import quote_identifier, quote_text

# Idle cursors; a notebook asks about few frames in turn.
_KEPT = 8
# A remembered frame stays in memory until it is dropped or another takes its place, so large ones are not remembered.
_SMALL_BYTES = 64_000_000
# Rows from which reading in parallel saves more time than importing pyarrow.dataset takes.
_LARGE_FRAME = 2_000_000


# What pandas calls types that the engine lacks, and objects that may be of several.
_UNKNOWN = frozenset({"period", "interval", "complex128", "complex64", "geometry"})
_MIXED = frozenset({"mixed", "mixed-integer"})
# Of a column of lists and the like; what comes later and fits nothing is refused by the column's name.
_TRIED = 100
_CATEGORIES = b"nbtools.categories"
_MOST_CATEGORIES = 1_000
_OF_POLARS = frozenset({"Int128", "UInt128", "Object"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetFrame:
    """A frame that came as a Parquet file, where pyarrow is not there to share memory."""

    path: Path


class StreamedFrame:
    """An Arrow table as a stream alone; for a pyarrow Table itself DuckDB loads pyarrow.dataset, which takes long.

    Parameters
    ----------
    table
        A pyarrow Table or RecordBatch.
    """

    def __init__(self, table: Any) -> None:
        self._table, self.schema = table, table.schema

    @property
    def categories(self) -> dict[str, list[str]]:
        """The texts that columns of categories may hold, in their order, by the name of the column."""
        return dict(json.loads((self._table.schema.metadata or {}).get(_CATEGORIES, "{}")))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand out the rows, each time again."""
        return self._table.__arrow_c_stream__(requested_schema)


class ReadableFrame:
    """A frame as DuckDB reads it, for who asks it many times: to make it looks at each object.

    Parameters
    ----------
    frame
        It is not copied, but for columns that hold objects.

    Raises
    ------
    SqlInvalid
        The engine has no type for one of its columns.
    """

    def __init__(self, frame: Any) -> None:
        frame = with_known_types(frame)
        for column_name, array in _intervals_of(frame) if has("pyarrow") else ():
            _without_nanoseconds(column_name, array)
        if type(frame).__module__.startswith("pyarrow.") and "pyarrow.dataset" not in sys.modules:
            # A large table is worth the wait: then it is read in parallel.
            frame = StreamedFrame(frame) if frame.num_rows < _LARGE_FRAME else frame
        # DuckDB reads lists, dictionaries and moments of Python one by one, and drops what it does not look for; of
        # 30 hours it makes a day and six.
        is_pandas = has("pyarrow") and hasattr(type(frame), "iloc")
        has_intervals = is_pandas and any(str(kind).startswith("timedelta64") for kind in frame.dtypes)
        by_arrow = is_pandas and (has_intervals or any(map(_is_of_arrow, _objects_of(frame))))
        self.frame = StreamedFrame(as_arrow(frame)) if by_arrow else frame


def register_frame(cursor: Any, name: str, frame: Any) -> None:
    """Make a frame readable under a name, for this cursor alone.

    Raises
    ------
    SqlInvalid
        The engine has no type for one of its columns, or it has no columns.
    """
    if isinstance(frame, ParquetFrame):
        source = f"system.main.read_parquet({quote_text(str(frame.path))})"
        cursor.execute(f"CREATE TEMP VIEW {quote_identifier(name)} AS FROM {source}")
        return
    frame = (frame if isinstance(frame, ReadableFrame) else ReadableFrame(frame)).frame
    try:
        _register(cursor, name, frame)
    except duckdb.InterruptException:
        raise
    except duckdb.Error as exc:
        if not len(getattr(frame, "columns", "x")):
            what, hint = "it has no columns", f"Give it one: {name}.reset_index() has its index as a column."
        else:
            what = str(exc).partition(": ")[2].rstrip(".")
            is_polars = type(frame).__module__.startswith("polars")
            hint = f"Leave the column out, or make it text: {name}.{'cast' if is_polars else 'astype'}(…)."
        raise SqlInvalid(f"the frame {name} cannot be read: {what}.", hint=hint) from None


def _register(cursor: Any, name: str, frame: Any) -> None:
    """Register a frame; categories of pandas have their order again, which Arrow's way leaves behind."""
    notes = getattr(frame, "categories", {})
    source = f"{name} without order" if notes else name
    cursor.register(source, frame)
    if notes:
        enums = {quote_identifier(column): ", ".join(map(quote_text, texts)) for column, texts in notes.items()}
        casts = ", ".join(f"CAST({column} AS ENUM({texts})) AS {column}" for column, texts in enums.items())
        view = f"SELECT * REPLACE ({casts}) FROM temp.{quote_identifier(source)}"
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {view}")


def with_known_types(frame: Any) -> Any:
    """Return a frame whose columns DuckDB has types for: of pandas, mixed objects, periods and intervals become text.

    So the other columns can be asked, and the odd one is not refused by a name that is not its own.
    """
    if type(frame).__module__.startswith("polars") and hasattr(type(frame), "to_series"):
        odd = {name: frame[name] for name, kind in frame.schema.items() if str(kind) in _OF_POLARS}
        if not odd:
            return frame
        series = type(next(iter(odd.values())))
        texts = {name: [None if value is None else text_of(value) for value in column] for name, column in odd.items()}
        return frame.with_columns(series(name, values, dtype=str, strict=False) for name, values in texts.items())
    if not hasattr(type(frame), "iloc"):
        return frame
    changed = {}
    for at, column in _columns_of_other_types(frame, frame.dtypes):
        if str(column.dtype).startswith("Sparse"):
            changed[at] = column.sparse.to_dense()
        elif (is_unknown := _is_unknown(column)) or _has_decimal(column, Decimal.is_nan):
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
        return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
    columns = [_arrow_column(frame.iloc[:, index]) for index in range(frame.shape[1])]
    table = pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns])
    categories = _categories(frame, table.schema)
    return table.replace_schema_metadata({_CATEGORIES: json.dumps(categories)}) if categories else table


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
    return _without_nanoseconds(str(column.name), _converted(column))


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
                return connection.from_df(column.to_frame("x")).to_arrow_table().column(0)
        except (duckdb.Error, OverflowError) as exc:
            what = f"the column {column.name} contains objects that SQL has no type for: {exc}"
            raise SqlInvalid(what, hint="Leave it out, or make it text: .astype(str).", tried="running SQL") from None


def _intervals_of(frame: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of polars or Arrow that hold intervals of nanoseconds, with their names, as Arrow arrays."""
    if type(frame).__module__.startswith("polars") and hasattr(type(frame), "to_series"):
        for name, kind in frame.schema.items():
            if "Duration(time_unit='ns')" in str(kind):
                yield name, frame[name].to_arrow()
    elif hasattr(type(frame), "schema") and hasattr(type(frame), "column"):
        for at, field in enumerate(frame.schema):
            if has_part(field.type, pa.types.is_duration):
                yield field.name, frame.column(at)


def _without_nanoseconds(name: str, array: Any) -> Any:
    """Return an Arrow array with intervals as DuckDB has them.

    Raises
    ------
    SqlInvalid
        One of them is finer.
    """
    kind = type_with(array.type, lambda kind: pa.duration("us") if pa.types.is_duration(kind) else kind)
    try:
        return array if kind == array.type else array.cast(kind)
    except pa.ArrowInvalid:
        what = f"the column {name} has intervals with nanoseconds; SQL has microseconds."
        hint = f"Round it before the query, in pandas by .dt.round('us'), or leave it out: .drop(columns={name!r})."
        raise SqlInvalid(what, hint=hint, tried="running SQL") from None


def _objects_of(frame: Any) -> Iterator[Any]:
    """Yield the columns of pandas that hold objects of Python."""
    for at, kind in enumerate(frame.dtypes):
        if str(kind) == "object":
            yield frame.iloc[:, at]


def _is_of_arrow(column: Any) -> bool:
    """Tell whether a column of pandas holds lists, dictionaries, tuples, arrays, or moments as objects."""
    if str(column.dtype) != "object":
        return False
    value = next((value for value in column.array if not (_is_gap(value) or isinstance(value, float))), None)
    is_moment = type(value).__name__ in {"Timestamp", "Timedelta", "datetime64", "timedelta64"}
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
        raise pa.ArrowInvalid("nested dictionaries have different keys")
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
    if hasattr(type(frame), "iloc"):
        return [str(frame.columns[at]) for at, column in _columns_of_other_types(frame, types) if _is_unknown(column)]
    is_polars = type(frame).__module__.startswith("polars") and hasattr(type(frame), "to_series")
    return [name for name, kind in frame.schema.items() if str(kind) in _OF_POLARS] if is_polars else []


def _columns_of_other_types(frame: Any, types: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the columns of pandas, with their places, that are neither numbers, moments, truth values nor texts."""
    for at, kind in enumerate(types):
        is_known = getattr(kind, "kind", "") in "iufbmM" and not hasattr(kind, "subtype")
        if not is_known and kind.name not in {"str", "string"}:
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
    # DuckDB makes numbers of four bytes of all of them, which have seven digits.
    return _has_decimal(column, Decimal.is_infinite) or (kind in _MIXED and len(set(map(type, column.dropna()))) > 1)


def _has_decimal(column: Any, test: Callable[[Decimal], bool]) -> bool:
    """Tell whether a column of pandas holds decimals, and one of a kind among them."""
    are_decimals = str(column.dtype) == "object" and pd.api.types.infer_dtype(column, skipna=True) == "decimal"
    return are_decimals and any(test(each) for each in column if isinstance(each, Decimal))


def gaps(column: Any, values: list[Any]) -> list[bool]:
    """Return which of some values of a pandas column are missing ones, as SQL sees them.

    What is not a number is missing too, unless the column's type has another word for that.
    """
    if str(column.dtype).startswith(("Float", "double[", "float[")):
        return list(map(_is_gap, values))
    # Those of numpy are not floats of Python but for the widest.
    floats = (type(value).__name__.startswith("float") for value in values)
    return [_is_gap(value) or (is_float and math.isnan(value)) for value, is_float in zip(values, floats, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RegisteredFrame:
    """A frame as it was registered: its parts are the same objects for as long as nothing was changed.

    Two of them are never equal: to compare them would compare frames, which have no truth value.
    """

    frame: weakref.ref[Any]
    copy: Any
    parts: tuple[Any, ...]

    @classmethod
    def remember(cls, frame: Any, gone: collections.deque[Any]) -> RegisteredFrame | None:
        """Return a record that recognises the unchanged frame; `None` for other frames. Dropped ones go to `gone`."""
        parts = parts_of(frame)
        # What is held is a copy of ours, whose blocks are the frame's own until one of them is written.
        if parts is None:
            return None
        return cls(frame=weakref.ref(frame, gone.append), copy=frame.copy(deep=False), parts=parts)

    def is_still(self, frame: Any) -> bool:
        """Tell whether it is that very frame, and nothing of it was changed."""
        if self.frame() is not frame:
            return False
        now = parts_of(frame)
        return (
            now is not None
            and len(now) == len(self.parts)
            and all(a is b for a, b in zip(now, self.parts, strict=True))
        )


def parts_of(frame: Any) -> tuple[Any, ...] | None:
    """Return the objects that make up a small pandas frame; `None` for what must be registered each time."""
    manager = getattr(frame, "_mgr", None)
    blocks = getattr(manager, "blocks", None)
    if blocks is None or type(frame).__module__.partition(".")[0] != "pandas":
        return None
    values = [block.values for block in blocks]
    if sum(value.nbytes for value in values) > _SMALL_BYTES:
        return None
    # Text lies in an Arrow array that its wrapper may exchange.
    return (frame.columns, *values, *(getattr(value, "_pa_array", None) for value in values))


@dataclasses.dataclass(eq=False)
class _FrameCursor:
    cursor: Any
    frames: dict[str, RegisteredFrame]


class CursorPool:
    """Keeps idle cursors with the frames that are registered on them.

    Parameters
    ----------
    make
        Returns a fresh cursor.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._back = threading.Condition(self._lock)
        self._lent = 0
        self._idle: list[_FrameCursor] = []
        self._gone: collections.deque[Any] = collections.deque()

    @contextlib.contextmanager
    def borrow(self, frames: Mapping[str, Any]) -> Iterator[Any]:
        """Yield a cursor on which exactly these frames are readable."""
        with self._lock:
            self._lent += 1
        try:
            borrowed = self._take_idle(frames) or self._register(frames)
            well = False
            try:
                yield borrowed.cursor
                well = True
            finally:
                self._take_back(borrowed, keep=well and borrowed.frames.keys() == frames.keys())
        finally:
            with self._back:
                self._lent -= 1
                self._back.notify_all()

    def _take_idle(self, frames: Mapping[str, Any]) -> _FrameCursor | None:
        with self._lock:
            self._forget_the_gone()
            for cursor_of in reversed(self._idle):
                same = cursor_of.frames.keys() == frames.keys()
                if same and all(cursor_of.frames[name].is_still(frame) for name, frame in frames.items()):
                    self._idle.remove(cursor_of)
                    return cursor_of
        return None

    def _register(self, frames: Mapping[str, Any]) -> _FrameCursor:
        cursor = self._make()
        seen: dict[str, RegisteredFrame] = {}
        try:
            for name, frame in frames.items():
                registered = RegisteredFrame.remember(frame, self._gone)
                register_frame(cursor, name, registered.copy if registered else frame)
                if registered:
                    seen[name] = registered
        except BaseException:
            cursor.close()
            raise
        return _FrameCursor(cursor, seen)

    def _take_back(self, returned: _FrameCursor, *, keep: bool) -> None:
        dropped = [returned]
        if keep:
            with self._lock:
                self._forget_the_gone()
                # A frame of the same name that has changed since is of no use any more.
                stale = [old for old in self._idle if old.frames and not old.frames.keys().isdisjoint(returned.frames)]
                self._idle = [old for old in self._idle if old not in stale]
                self._idle.append(returned)
                dropped = [*stale, *self._idle[:-_KEPT]]
                self._idle = self._idle[-_KEPT:]
        for old in dropped:
            old.cursor.close()

    def _forget_the_gone(self) -> None:
        """Close the cursors of frames that the notebook dropped."""
        if not self._gone:
            return
        self._gone.clear()
        for stale in [stale for stale in self._idle if any(seen.frame() is None for seen in stale.frames.values())]:
            self._idle.remove(stale)
            stale.cursor.close()

    def close(self, grace: float) -> None:
        """Wait for the cursors in use, `grace` seconds at the most, and close the idle ones."""
        with self._back:
            self._back.wait_for(lambda: self._lent == 0, grace)
            idle, self._idle = self._idle, []
        for idle_cursor in idle:
            idle_cursor.cursor.close()
