"""`Pager`: pages of a table, sorted and filtered, and profiles of its columns; each on its own cursor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nbtools.confine.processors import count_processors
from nbtools.errors import Cancelled, NbtoolsError, SqlFailed
from nbtools.ground.aio import start_thread
from nbtools.ground.lazy import ClosedAtEnd, duckdb
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.errors import from_duckdb
from nbtools.sql.engines.protocol import EngineAnswer, QueryControl, QueryRequest
from nbtools.sql.pages.conditions import zone_of
from nbtools.sql.pages.header_profile import ColumnFacts, count_values, profile_column
from nbtools.sql.pages.source import ROW, AskedSource, ClosedSource, CopiedSource, FrameSource, TableSource
from nbtools.sql.results.texts import SHOWN, Kind, kind_of
from nbtools.sql.verdict.duckdb.parser import stopped_by_person
from nbtools.texts.sql_quotes import quote_identifier

_LOOK_S = 0.1  # between two looks at a statement that runs
_MOST_OPEN = 4  # pagers whose engines are open: each has some ten threads and megabytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrangement:
    """Which rows, in which order.

    Attributes
    ----------
    conditions
        SQL conditions that all hold, judged by the caller.
    order
        Names of columns, and whether the greatest value comes first; missing values come last.
    alias
        What the conditions call the table; `None` for no name.
    """

    conditions: tuple[str, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    alias: str | None = None

    @property
    def where(self) -> str:
        """The conditions as ``WHERE …``; nothing where there are none."""
        return f"WHERE {' AND '.join(f'({each})' for each in self.conditions)}" if self.conditions else ""

    def with_alias(self, relation: str) -> str:
        """Return a relation under the name that the conditions have for it."""
        return f"{relation} AS {quote_identifier(self.alias)}" if self.alias else relation

    def query(self, columns: str, relation: str) -> str:
        """Return the query of columns of the rows in their order."""
        keys = [f"{quote_identifier(name)} {'DESC' if down else 'ASC'} NULLS LAST" for name, down in self.order]
        return f"SELECT {columns} FROM {self.with_alias(relation)} {self.where} ORDER BY {', '.join([*keys, ROW])}"


class Pager(ClosedAtEnd):
    """Pages of one table.

    Parameters
    ----------
    source
        Where its rows lie.
    engine
        Reads them; the pager closes it.
    is_changed
        Tells whether what lies behind the source is another by now.
    release
        Gives back what the source holds on disk.
    """

    def __init__(
        self,
        source: TableSource,
        engine: DuckDBEngine,
        is_changed: Callable[[], bool] = bool,
        release: Callable[[], object] = bool,
    ) -> None:
        self.source = source
        self.is_changed = is_changed
        self.hint: Callable[[NbtoolsError, QueryControl], str | None] = lambda *_: None
        self._release = release
        self._engine = engine
        # With half of the threads and its own instance: a page never waits for a profile of all rows.
        self._behind = engine.another(threads=max(1, count_processors() // 2))
        self._users = 0
        # Together, so that nobody sees the rows of one and the version of another.
        self._now: tuple[int, Arrangement, Any] = (0, Arrangement(), None)
        self._lock = threading.Lock()
        self._cursors: dict[str, tuple[Any, threading.Lock]] = {}
        if self.is_open:
            _OPEN.touch(self)

    @property
    def is_open(self) -> bool:
        """Whether it has threads and memory now; whatever is asked of it opens its engines."""
        return self._engine.is_open or self._behind.is_open

    @property
    def version(self) -> int:
        """How often the rows were arranged; a page of another version is one of other rows."""
        return self._now[0]

    def skip_versions(self, to: int) -> None:
        """Count versions on from a number, for pages that take the place of others."""
        self._now = (max(to, self._now[0]), *self._now[1:])

    @property
    def arrangement(self) -> Arrangement:
        """Which rows there are now, and in which order."""
        return self._now[1]

    @property
    def row_count(self) -> int:
        """How many rows there are now."""
        order = self._now[2]
        return self.source.row_count if order is None else len(order)

    def kind(self, column: int) -> Kind:
        """Return what a column is to a person."""
        return kind_of(self.source.types[column])

    def zone(self, column: int) -> str | None:
        """Return the time zone in which a column is shown; `None` where its values have none."""
        zone = zone_of(self.source.types[column], "")
        if zone == "":
            with self._cursor("pages") as cursor:
                zone = str(cursor.execute("SELECT current_setting('TimeZone')").fetchall()[0][0])
        return zone

    def cells(
        self,
        start: int,
        stop: int,
        columns: Sequence[int],
        longest: int | None = SHOWN,
        *,
        version: int | None = None,
    ) -> list[list[str | None]]:
        """Return the cells of the rows from `start` to before `stop`, as they are arranged, as texts.

        Parameters
        ----------
        start
            Number of the first row, from 0.
        stop
            Number of the row behind the last one.
        columns
            The places of the columns, from 0.
        longest
            Characters of a cell; `None` for all.
        version
            Of the arrangement that is meant; `None` means that of now.

        Raises
        ------
        Cancelled
            The rows were arranged again since that version.
        """
        now, _, order = self._now
        if version is not None and version != now:
            raise Cancelled("the rows were arranged again.")
        stop = min(stop, self.source.row_count if order is None else len(order))
        rows = range(min(start, stop), stop) if order is None else order[start:stop]
        is_frame = isinstance(self.source, FrameSource)
        with contextlib.nullcontext() if is_frame else self._cursor("pages") as cursor:
            return self.source.cells(cursor, rows, columns, longest)

    def record(self, position: int, columns: Sequence[int]) -> list[Any]:
        """Return values of one row, none of them nested, given where it stands now; all rows must be there."""
        named = ", ".join(quote_identifier(self.source.columns[index]) for index in columns)
        with self._cursor("pages") as cursor:
            relation, order = self.source.relation(cursor), self._now[2]
            number = position if order is None else order[position]
            return list(cursor.execute(f"SELECT {named} FROM {relation} WHERE {ROW} = {number}").fetchone())

    def finish(self, control: QueryControl | None = None, on_progress: Callable[[float], None] | None = None) -> None:
        """Read all rows of a source that begins with its first ones; nothing is done where they are there."""
        control = control or QueryControl()
        with self._cursor("order") as cursor:
            if self.source.is_whole:
                return
            if isinstance(self.source, AskedSource):
                self.source.finish(cursor, control)
            elif isinstance(self.source, CopiedSource):
                try:
                    self._copy(self.source, cursor, control, on_progress)
                except NbtoolsError as exc:
                    if self.source.reading is not None:
                        self.source.reading.explain(exc)
                    elif self.is_changed():
                        exc.message = f"It changed after its first rows were read. {exc.message}"
                    exc.hint = self.hint(exc, control) or exc.hint
                    raise
        self._now = (self._now[0] + 1, *self._now[1:])

    def _copy(
        self, source: CopiedSource, cursor: Any, control: QueryControl, on_progress: Callable[[float], None] | None
    ) -> None:
        source.settle(control)
        try:
            with watched(cursor, control, on_progress):
                source.finish(cursor)
        except SqlFailed:
            # What a sample says of a large file does not hold for all of it.
            if not source.settle(control, most_bytes=sys.maxsize):
                raise
            with watched(cursor, control, on_progress):
                source.finish(cursor)

    def arrange(
        self,
        arrangement: Arrangement,
        control: QueryControl | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        """Sort and filter the rows; until it is done, and when it fails, they stay as they are.

        Raises
        ------
        SqlInvalid, SqlFailed
            A condition or a column does not fit.
        Cancelled
            It was stopped.
        """
        order = None
        if arrangement.conditions or arrangement.order:
            with self._cursor("order") as cursor, watched(cursor, control or QueryControl(), on_progress):
                number = f"CAST({ROW} AS {'UINTEGER' if self.source.row_count < 2**32 else 'BIGINT'}) AS r"
                query = arrangement.query(number, self.source.relation(cursor))
                order = cursor.execute(query).fetchnumpy()["r"]
        self._now = (self._now[0] + 1, arrangement, order)

    def profile(self, column: int, *, exact: bool = False, control: QueryControl | None = None) -> ColumnFacts:
        """Return what one column holds in the rows that the conditions let through."""
        with self._column(control) as (cursor, relation):
            name, kind, where = self.source.columns[column], self.source.types[column], self.arrangement.where
            profile = functools.partial(profile_column, cursor, relation, name, kind, of=self.row_count, where=where)
            return profile(exact=exact, zone=self.zone(column))

    def values(
        self, column: int, search: str, control: QueryControl | None = None
    ) -> tuple[list[tuple[str | None, int]], str]:
        """Return the most frequent values of a column with a text in them, with their counts; see `count_values`."""
        with self._column(control) as (cursor, relation):
            name, kind, where = self.source.columns[column], self.source.types[column], self.arrangement.where
            return count_values(cursor, relation, name, kind, search, of=self.row_count, where=where)

    @contextlib.contextmanager
    def _column(self, control: QueryControl | None) -> Iterator[tuple[Any, str]]:
        """Yield what reads one column behind the pages: a cursor, and the relation."""
        with self._cursor("profiles") as cursor, watched(cursor, control or QueryControl()):
            yield cursor, self.arrangement.with_alias(self.source.relation(cursor, numbered=False))

    def ask(
        self, make: Callable[[str], str], control: QueryControl, *, columns: Sequence[str] = (), most_bytes: int
    ) -> EngineAnswer:
        """Return the rows of a query over the rows that there are now, sorted as they are.

        Parameters
        ----------
        make
            Returns the query, given a SELECT of the rows.
        control
            Stops the query.
        columns
            Names of those that the SELECT has; none means all.
        most_bytes
            The most that the result may have.

        Raises
        ------
        LimitExceeded
            It has more.
        SqlInvalid, SqlFailed, Cancelled
            It does not fit, it failed, or it was stopped.
        """
        now = self.arrangement
        with self._cursor("questions") as cursor:
            relation = self.source.relation(cursor, numbered=True)
        rows = now.query(", ".join(map(quote_identifier, columns or self.source.columns)), relation)
        request = QueryRequest(
            sql=make(rows), frames=self.source.frames(), max_bytes=most_bytes, whole=True, timeout=None
        )
        with self._use():
            return self._engine.run(request, control)

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        """Keep the engines open in the block, and for some time after it."""
        with self._lock:
            if isinstance(self.source, ClosedSource):
                self.source.relation()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            _OPEN.touch(self)

    @contextlib.contextmanager
    def _cursor(self, purpose: str) -> Iterator[Any]:
        """Yield the cursor of a purpose, which serves one caller after the other."""
        with self._use():
            with self._lock:
                if purpose not in self._cursors:
                    engine = self._behind if purpose == "profiles" else self._engine
                    self._cursors[purpose] = (engine.fresh_cursor(), threading.Lock())
                    # The footer of 100 M rows takes longer to read than a page.
                    self._cursors[purpose][0].execute("SET parquet_metadata_cache = true")
                cursor, free = self._cursors[purpose]
            with free:
                yield cursor

    def rest(self) -> bool:
        """Give back threads and memory until the next page is asked for; tell whether nobody was using them."""
        with self._lock:
            if self._users:
                return False
            for cursor, _ in self._cursors.values():
                cursor.close()
            self._cursors.clear()
            self._behind.close()
            self._engine.close()
            return True

    def close(self) -> None:
        """Stop what runs and release everything."""
        with self._lock:
            self.source = ClosedSource(self.source)
            cursors, self._cursors = self._cursors, {}
        for cursor, free in cursors.values():
            while not free.acquire(timeout=_LOOK_S):
                cursor.interrupt()
            cursor.close()
        self._behind.close()
        self._engine.close()
        self._release()


class _OpenPagers:
    """The pagers whose engines are open, of the whole process: the one used longest ago rests when there are many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pagers: list[weakref.ref[Pager]] = []

    def touch(self, pager: Pager) -> None:
        """Note that a pager was used now."""
        with self._lock:
            others = [each for ref in self._pagers if (each := ref()) is not None and each is not pager]
            used = [*(each for each in others if each.is_open), pager]
            surplus, stay = used[: -self._most], used[-self._most :]
            self._pagers = [weakref.ref(each) for each in stay]
        busy = [each for each in surplus if not each.rest()]
        if busy:  # they are looked at again with the next that is used
            with self._lock:
                self._pagers = [*map(weakref.ref, busy), *self._pagers]


_OPEN = _OpenPagers(_MOST_OPEN)


@contextlib.contextmanager
def watched(cursor: Any, control: QueryControl, on_progress: Callable[[float], None] | None = None) -> Iterator[None]:
    """Run statements in the block: report how far they are, end them when the control says so, and say what was wrong.

    Raises
    ------
    Cancelled
        The control said so.
    SqlInvalid, SqlFailed
        What DuckDB raised, as an error of nbtools.
    """
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_S):
            if control.reason is not None:
                control.interrupt()  # again: one that comes while a statement is prepared is lost
            share = control.progress()
            if share is not None and on_progress is not None:
                on_progress(share)

    if on_progress is not None:
        cursor.execute("SET enable_progress_bar = true")
        cursor.execute("SET enable_progress_bar_print = false")
    try:
        with stopped_by_person(), control.attach(cursor.interrupt, lambda: cursor.query_progress() / 100.0):
            start_thread(look, name="nbtools-watch")
            yield
    except NbtoolsError:
        raise
    except (duckdb.Error, RuntimeError, ValueError, OSError, MemoryError) as exc:
        control.check()
        # The text is ours, so its lines would say nothing to anybody.
        raise from_duckdb(type(exc)(str(exc).partition("\n\nLINE ")[0]), "") from exc
    finally:
        done.set()
