"""Frames on DuckDB cursors: how a frame becomes readable, and cursors that remember small ones.

Registering a DataFrame costs more than most queries over it. So a cursor that served a query is kept with the frames
it has, and serves the next query that names exactly the same ones. That is safe because the cursor holds a shallow
copy, and pandas copies a block before it writes to one that someone else holds: as long as a frame's blocks are the
very objects that were registered, nothing was changed. Only small frames are remembered, and each is forgotten when
the notebook drops it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import SqlInvalid
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
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand out the rows, each time again."""
        return self._table.__arrow_c_stream__(requested_schema)


def register_frame(cursor: Any, name: str, frame: Any) -> None:
    """Make a frame readable under a name, for this cursor alone.

    Raises
    ------
    SqlInvalid
        The engine has no type for one of its columns, or it has no columns.
    """
    import duckdb

    if isinstance(frame, ParquetFrame):
        source = f"system.main.read_parquet({quote_text(str(frame.path))})"
        cursor.execute(f"CREATE TEMP VIEW {quote_identifier(name)} AS FROM {source}")
        return
    if type(frame).__module__.startswith("pyarrow.") and "pyarrow.dataset" not in sys.modules:
        # A large table is worth the wait: then it is read in parallel.
        frame = StreamedFrame(frame) if frame.num_rows < _LARGE_FRAME else frame
    try:
        cursor.register(name, with_known_types(frame))
    except duckdb.Error as exc:
        if not len(getattr(frame, "columns", "x")):
            what, hint = "it has no columns", f"Give it one: {name}.reset_index() has its index as a column."
        else:
            what = str(exc).partition(": ")[2].rstrip(".")
            is_polars = type(frame).__module__.startswith("polars")
            hint = f"Leave the column out, or make it text: {name}.{'cast' if is_polars else 'astype'}(…)."
        raise SqlInvalid(f"the frame {name} cannot be read: {what}.", hint=hint) from None


def with_known_types(frame: Any, text: Callable[[Any], Any] = str) -> Any:
    """Return a frame whose columns DuckDB has types for: of pandas, mixed objects, periods and intervals become text.

    So the other columns can be asked, and the odd one is not refused by a name that is not its own.

    Parameters
    ----------
    text
        Returns the text of a value.
    """
    if type(frame).__module__.startswith("polars") and hasattr(type(frame), "to_series"):
        odd = {name: frame[name] for name, kind in frame.schema.items() if str(kind) in _OF_POLARS}
        if not odd:
            return frame
        series = type(next(iter(odd.values())))
        texts = {name: [None if value is None else text(value) for value in column] for name, column in odd.items()}
        return frame.with_columns(series(name, values, dtype=str, strict=False) for name, values in texts.items())
    if not hasattr(type(frame), "iloc"):
        return frame
    changed = {}
    for at, column in _columns_of_other_types(frame):
        if str(column.dtype).startswith("Sparse"):
            changed[at] = column.sparse.to_dense()
        elif _is_unknown(column):
            values = column.tolist()
            pairs = zip(values, gaps(column, values), strict=True)
            changed[at] = [None if missing else text(value) for value, missing in pairs]
    if changed:
        frame = frame.copy(deep=False)
        for at, values in changed.items():
            frame.isetitem(at, values)
    return frame


def columns_as_text(frame: Any) -> list[str]:
    """Return the columns of a frame that `with_known_types` makes text of."""
    if hasattr(type(frame), "iloc"):
        return [str(frame.columns[at]) for at, column in _columns_of_other_types(frame) if _is_unknown(column)]
    is_polars = type(frame).__module__.startswith("polars") and hasattr(type(frame), "to_series")
    return [name for name, kind in frame.schema.items() if str(kind) in _OF_POLARS] if is_polars else []


def _columns_of_other_types(frame: Any) -> Iterator[tuple[int, Any]]:
    """Yield the columns of pandas, with their places, that are neither numbers, moments, truth values nor texts."""
    for at, kind in enumerate(frame.dtypes):
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
    from pandas.api.types import infer_dtype

    return infer_dtype(column, skipna=True) in _MIXED and len(set(map(type, column.dropna()))) > 1


def gaps(column: Any, values: list[Any]) -> list[bool]:
    """Return which of some values of a pandas column are missing ones: among numbers, NaN may be a value."""
    missing = [value is None or type(value).__name__ in {"NAType", "NaTType"} for value in values]
    odd = [isinstance(value, float) and math.isnan(value) for value in values]
    if not any(odd) or getattr(column.dtype, "kind", "") in "fc" or str(column.dtype).startswith("Float"):
        return missing
    from pandas.api.types import infer_dtype

    if str(column.dtype) == "object" and infer_dtype(column, skipna=False) in {"floating", "mixed-integer-float"}:
        return missing
    return [is_gone or is_odd for is_gone, is_odd in zip(missing, odd, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegisteredFrame:
    """A frame as it was registered: its parts are the same objects for as long as nothing was changed."""

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
    values = [block.values for block in blocks]  # noqa: PD011 - of the frame's own parts
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
