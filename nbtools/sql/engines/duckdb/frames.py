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
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import SqlInvalid
from nbtools.ground.lazy import duckdb, has
from nbtools.sql.engines.duckdb.known_types import CATEGORIES, as_arrow, is_by_arrow, with_known_types
from nbtools.texts.sql_quotes import quote_identifier, quote_text

# Idle cursors; a notebook asks about few frames in turn.
_KEPT = 8
# A remembered frame stays in memory until it is dropped or another takes its place, so large ones are not remembered.
_SMALL_BYTES = 64_000_000
# Rows from which reading in parallel saves more time than importing pyarrow.dataset takes.
_LARGE_FRAME = 2_000_000


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
        return dict(json.loads((self._table.schema.metadata or {}).get(CATEGORIES, "{}")))

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
        if type(frame).__module__.startswith("pyarrow.") and "pyarrow.dataset" not in sys.modules:
            # A large table is worth the wait: then it is read in parallel.
            frame = StreamedFrame(frame) if frame.num_rows < _LARGE_FRAME else frame
        # DuckDB reads lists, dictionaries and moments of Python one by one, and drops what it does not look for; of
        # 30 hours it makes a day and six.
        is_pandas = has("pyarrow") and hasattr(type(frame), "iloc")
        by_arrow = is_pandas and any(is_by_arrow(frame, at, kind) for at, kind in enumerate(frame.dtypes))
        self.frame = StreamedFrame(as_arrow(frame)) if by_arrow else frame


def register_frame(cursor: Any, name: str, frame: Any) -> None:
    """Make a frame readable under a name, only for this cursor.

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
