"""Sources: where the rows of a table lie. Each row has a number, from 0, by which it is found in milliseconds."""

from __future__ import annotations

import abc
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nbtools.errors import SqlFailed, SqlInvalid, WorkbenchClosed
from nbtools.ground.lazy import pa
from nbtools.sql.engines.duckdb.frames import ReadableFrame, register_frame
from nbtools.sql.engines.duckdb.known_types import columns_as_text, gaps, with_known_types
from nbtools.sql.engines.duckdb.zones import types_of
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.files.changes import TextReading
from nbtools.sql.frames import frame_columns, plain_frame
from nbtools.sql.results.engine_copy import has_parquet_form, type_from_text
from nbtools.sql.results.moments import python_values
from nbtools.sql.results.result import FileNote, QueryResult
from nbtools.sql.results.rows import fold_name, unique_names
from nbtools.sql.results.texts import SHOWN, cell_text, type_name
from nbtools.texts.sql_quotes import quote_identifier, quote_text
from nbtools.texts.visible import counted

Texts = list[list[str | None]]
ROW = "file_row_number"
"""The column of row numbers; DuckDB's own name for those of a Parquet file."""

_UNNAMED = "frame"  # what SQL calls a frame here
# A join of all rows and groups know no row before they have read all.
_ALL_FIRST = re.compile(r"\b(?:full\s+(?:outer\s+)?join|group\s+by)\b", re.IGNORECASE)
_FIRST = '"first rows"'  # no variable has a space in its name
HEAD = 200
"""Rows that are there before all are."""
_AT_ONCE = 20_000  # rows of a small file that are copied before any is shown


class TableSource(abc.ABC):
    """Rows with numbers.

    Attributes
    ----------
    columns
        Names of the columns, each once.
    types
        The engine's name of the type of each column.
    row_count
        How many rows there are, as far as is known.
    is_whole
        Whether all rows are there.
    notes
        What people are to know of how it was read.
    meanings
        What columns mean, by their names, as a dictionary beside the file says.
    """

    is_whole: bool = True
    notes: tuple[FileNote, ...] = ()
    meanings: Mapping[str, str] = types.MappingProxyType({})
    columns: tuple[str, ...]
    types: tuple[str, ...]
    row_count: int

    @abc.abstractmethod
    def relation(self, cursor: Any, *, numbered: bool = True) -> str:
        """Return what to write behind FROM on this cursor: all columns and, where asked, `ROW`, each row's number."""

    def frames(self) -> dict[str, Any]:
        """Return the frames that the relation names, by name."""
        return {}

    @abc.abstractmethod
    def cells(self, cursor: Any, rows: Sequence[int], columns: Sequence[int], longest: int | None = SHOWN) -> Texts:
        """Return the cells of some rows as texts, in the order asked for.

        Parameters
        ----------
        cursor
            Only of the caller.
        rows
            Numbers of rows.
        columns
            Positions of columns.
        longest
            Characters of a cell; `None` for all.
        """


class ParquetSource(TableSource):
    """The rows of a Parquet file.

    Parameters
    ----------
    path
        The file.
    columns
        Names of its columns.
    types
        The engine's name of the type of each column.
    row_count
        How many rows it has.
    restored
        The types of columns that the file holds as text, by name.

    Raises
    ------
    SqlInvalid
        The file has a column that is called like the number of its rows.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        types: Sequence[str],
        row_count: int,
        restored: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self._restored = dict(restored or {})
        self._stored = f"read_parquet({quote_text(str(path))}, {ROW} = true)"
        self.columns, self.types, self.row_count = tuple(columns), tuple(types), row_count
        if ROW in (name.lower() for name in self.columns):
            raise SqlInvalid(
                f"{path.name} has a column {ROW!r}, which DuckDB reserves for row numbers.",
                hint=f"Read it under another name: SELECT * RENAME ({ROW} AS number) FROM …",
            )

    @classmethod
    def from_file(cls, path: Path, cursor: Any) -> ParquetSource:
        """Return the rows of a file as its own notes describe them: to count them would be to read them."""
        file = quote_text(str(path))
        described = cursor.execute(f"DESCRIBE FROM read_parquet({file})").fetchall()
        counted = cursor.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({file})").fetchone()[0]
        columns, types = ([str(row[at]) for row in described] for at in (0, 1))
        return cls(path, columns, types, int(counted or 0))

    def relation(self, cursor: Any, *, numbered: bool = True) -> str:
        """Return what to write behind FROM; see `TableSource`."""
        if not self._restored:
            return self._stored
        named = ((quote_identifier(name), kind) for name, kind in self._restored.items())
        casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in named)
        return f"(SELECT * REPLACE ({casts}) FROM {self._stored})"

    def cells(self, cursor: Any, rows: Sequence[int], columns: Sequence[int], longest: int | None = SHOWN) -> Texts:
        """Return cells as texts; see `TableSource`."""
        if not len(rows) or not columns:
            return [[] for _ in rows]
        # As text, by the engine: no value is too large to be fetched, and each type has its form.
        texts = (f"CAST({quote_identifier(self.columns[index])} AS VARCHAR)" for index in columns)
        # One character more than is shown tells that there are more.
        cut = [text if longest is None else f"left({text}, {longest + 1})" for text in texts]
        if isinstance(rows, range):
            where = f"{ROW} BETWEEN {rows.start} AND {rows.stop - 1}"
        else:
            where = f"{ROW} IN ({', '.join(map(str, rows))})"
        # What is text in the file needs no other type here.
        sql = f"SELECT {ROW}, {', '.join(cut)} FROM {self._stored} WHERE {where}"
        cells = {row[0]: row[1:] for row in cursor.execute(sql).fetchall()}
        return [[cell_text(text, longest) for text in cells[int(row)]] for row in rows]


class FrameSource(TableSource):
    """The rows of a DataFrame of pandas or polars, of an Arrow table, or of a result.

    Parameters
    ----------
    frame
        It is not copied; what is changed in it later may show.
    """

    def __init__(self, frame: Any) -> None:
        self._frame, renames = plain_frame(frame)
        self.notes = tuple(FileNote(_UNNAMED, text) for text in renames)
        self._for_sql: Any = None
        self._readable: ReadableFrame | None = None
        described = frame_columns(self._frame)
        self.columns, self.types = tuple(name for name, _ in described), tuple(kind for _, kind in described)
        self.row_count = len(self._frame)

    def relation(self, cursor: Any, *, numbered: bool = True) -> str:
        """Return what to write behind FROM; see `TableSource`."""
        if not self.columns:
            raise SqlInvalid("a frame without columns has nothing to sort or filter by.")
        if self._readable is None:
            self._readable = ReadableFrame(self.frames()[_UNNAMED])
        register_frame(cursor, _UNNAMED, self._readable)
        # A registered frame is read in its order, so the count is the number of the row.
        return f"(SELECT row_number() OVER () - 1 AS {ROW}, * FROM {_UNNAMED})" if numbered else _UNNAMED

    def frames(self) -> dict[str, Any]:
        """Return the frame, with types that DuckDB knows; see `TableSource`."""
        # Not before something is sorted or filtered: every object of a mixed column is looked at.
        if self._for_sql is None:
            self._for_sql = with_known_types(self._frame)
            if texts := columns_as_text(self._frame, types_of(self._frame)):
                self.notes += (FileNote(_UNNAMED, f"sorted and filtered as text: {', '.join(texts)}"),)
        return {_UNNAMED: self._for_sql}

    def cells(self, cursor: Any, rows: Sequence[int], columns: Sequence[int], longest: int | None = SHOWN) -> Texts:
        """Return cells as texts; see `TableSource`."""
        taken_columns = [_values(self._frame, rows, index) for index in columns]
        if not taken_columns:
            return [[] for _ in rows]
        return [[cell_text(value, longest) for value in row] for row in zip(*taken_columns, strict=True)]


class ClosedSource(TableSource):
    """What is still known of rows that are closed; the rows, such as a frame of the notebook, are let go."""

    def __init__(self, source: TableSource) -> None:
        for name in ("columns", "types", "row_count", "is_whole", "notes", "meanings"):
            setattr(self, name, getattr(source, name))

    def relation(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `WorkbenchClosed`."""
        raise WorkbenchClosed("these rows are closed.", hint="Run the cell that shows them again.")

    cells = relation


def _values(frame: Any, rows: range | Sequence[int], column: int) -> list[Any]:
    """Return the values of a column in some rows."""
    if hasattr(type(frame), "iloc"):
        where: Any = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        cells = frame.iloc[where, column]
        if hasattr(cells.dtype, "pyarrow_dtype"):
            return python_values(pa.array(cells))
        values = list(cells.array)
        pairs = zip(values, gaps(frame.iloc[:, column], values), strict=True)
        return [None if is_gap else value for value, is_gap in pairs]
    if type(frame).__module__.startswith("polars"):
        series = frame.to_series(column)
        part = series.slice(rows.start, len(rows)) if isinstance(rows, range) else series.gather(list(map(int, rows)))
        if str(series.dtype) == "Object":
            return list(part.to_list())
        part = part.to_arrow()
    else:
        values = frame.column(column)
        part = values.slice(rows.start, len(rows)) if isinstance(rows, range) else values.take(list(map(int, rows)))
    return python_values(part)


class HeadSource(TableSource):
    """Rows of which the first ones are there at once; `finish` of a subclass writes all to a Parquet file, once.

    Parameters
    ----------
    target
        The Parquet file to write.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._head: Sequence[Sequence[Any]] = []
        self._whole: ParquetSource | None = None
        self.is_whole = False

    def _began(self, head: Sequence[Sequence[Any]]) -> None:
        self._head, self.row_count = head, len(head)

    def _ended(self, whole: ParquetSource) -> None:
        self.types, self.row_count, self._whole, self.is_whole = whole.types, whole.row_count, whole, True
        self._head = []  # another reading may have another order, and other types

    def relation(self, cursor: Any, *, numbered: bool = True) -> str:
        """Return what to write behind FROM; see `TableSource`."""
        if self._whole is None:
            raise SqlFailed("not all rows have been read yet.", hint="Wait until they are counted.")
        return self._whole.relation(cursor, numbered=numbered)

    def cells(self, cursor: Any, rows: Sequence[int], columns: Sequence[int], longest: int | None = SHOWN) -> Texts:
        """Return cells as texts; see `TableSource`."""
        is_seen = longest == SHOWN and isinstance(rows, range) and rows.stop <= len(self._head)
        if self._whole is not None and not is_seen:
            return self._whole.cells(cursor, rows, columns, longest)
        return [[cell_text(self._head[row][column]) for column in columns] for row in rows]


class CopiedSource(HeadSource):
    """The rows of a query or of a file that has no numbers for its rows: copied to a Parquet file by DuckDB.

    Parameters
    ----------
    sql
        The query, judged.
    frames
        The frames that it names.
    cursor
        Reads the first rows.
    target
        The Parquet file to write.
    settle
        Looks at the text files that it names, see `TextFiles.read`; `None` to take them as they are.
    control
        Stops a query whose first rows are there when all are: it is run once, and copied at once.
    notes
        What is to be told of its files until then.
    is_small
        Whether its files are so small that all of its rows may be there at once.
    """

    def __init__(
        self,
        sql: str,
        frames: Mapping[str, Any],
        cursor: Any,
        target: Path,
        settle: Callable[..., TextReading] | None = None,
        control: QueryControl | None = None,
        notes: Sequence[FileNote] = (),
        *,
        is_small: bool = False,
    ) -> None:
        super().__init__(target)
        self._sql, self._frames, self._settle, self.notes = sql, dict(frames), settle, tuple(notes)
        self.reading: TextReading | None = None
        self._register(cursor)
        if _ALL_FIRST.search(sql):
            self.settle(control or QueryControl())
            self._describe(cursor, self._sql)
            self._began([])
            self.finish(cursor)
            return
        # One look for names, types and rows: what a CSV file looks like is guessed again by each statement.
        most = _AT_ONCE if is_small else HEAD
        row_count = cursor.execute(f"CREATE TEMP TABLE {_FIRST} AS SELECT * FROM ({sql}) LIMIT {most}").fetchone()[0]
        self._describe(cursor, _FIRST)
        # To plan a LIMIT of a table with 10,000 columns takes the engine seconds; a column may have the other's name.
        is_taken = "rowid" in (name.lower() for name in self.columns)
        cut = f"LIMIT {HEAD}" if is_taken else f"WHERE rowid < {HEAD}"
        texts = f"SELECT left(CAST(COLUMNS(*) AS VARCHAR), {SHOWN + 1}) FROM {_FIRST} {cut}"
        self._began(cursor.execute(texts).fetchall())
        if is_small and row_count < most:
            head, self._sql = self._head, f"FROM {_FIRST}"
            self._copy(cursor)
            self._head = head  # the same rows, which so are not read from the file first

    def _describe(self, cursor: Any, sql: str) -> None:
        described = cursor.execute(f"DESCRIBE {sql}").fetchall()
        self.columns = tuple(unique_names((str(row[0]) for row in described), fold_name))
        self.types = tuple(str(row[1]) for row in described)

    def _register(self, cursor: Any) -> None:
        for name, frame in self._frames.items():
            register_frame(cursor, name, frame)

    def settle(self, control: QueryControl, **bounds: int) -> bool:
        """Look at all of its text files; the first rows may have been read by a sample. Tell whether that changed it.

        Parameters
        ----------
        control
            Stops the looking at files.
        **bounds
            As for `TextFiles.read`.
        """
        before = self._sql
        if self._settle is not None:
            reading = self.reading = self._settle(control, **bounds)
            self._sql, self.notes = reading.sql, reading.notes
        return self._sql != before

    def finish(self, cursor: Any) -> None:
        """Copy all rows, which have the types that were settled from then on."""
        self._register(cursor)
        described = cursor.execute(f"DESCRIBE {self._sql}").fetchall()
        if len(described) != len(self.columns):
            what = f"{counted(len(self.columns), 'column')} before, {len(described):,} now: its source changed."
            raise SqlFailed(what, hint="Open it again.")
        before, self.types = self.types, tuple(str(row[1]) for row in described)
        # Why a column has its type is told once.
        reasons = tuple(note.text for note in self.notes if not note.words)
        changes = (
            f"{name}: {type_name(now)} by all rows, {type_name(first)} by the first ones"
            for name, first, now in zip(self.columns, before, self.types, strict=True)
            if first != now and not any(text.startswith(f"{name}: ") for text in reasons)
        )
        file = next((path.name for path in (self.reading.stamps if self.reading else ())), "")
        self._copy(cursor)
        # Of a file that was written again, the types of before say nothing.
        changed = () if self.reading is None else self.reading.changes()
        self.notes += changed or tuple(FileNote(file, text) for text in changes)

    def _copy(self, cursor: Any) -> None:
        texts = {name: kind for name, kind in zip(self.columns, self.types, strict=True) if not has_parquet_form(kind)}
        casts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in map(quote_identifier, texts))
        replaced = f"REPLACE ({casts})" if casts else ""
        named = ", ".join(map(quote_identifier, self.columns))
        copied = cursor.execute(
            f"COPY (SELECT * {replaced} FROM ({self._sql}) AS copied({named})) "
            f"TO {quote_text(str(self._target))} (FORMAT parquet)"
        )
        restored = {name: read for name, kind in texts.items() if (read := type_from_text(kind)) is not None}
        self._ended(ParquetSource(self._target, self.columns, self.types, copied.fetchone()[0], restored))


class AskedSource(HeadSource):
    """The rows that a database answers a query with.

    Parameters
    ----------
    head
        The first rows.
    copy
        Asks again and writes all rows to a Parquet file, given the file and what stops it.
    target
        The Parquet file to write.
    """

    def __init__(self, head: QueryResult, copy: Callable[[Path, QueryControl], object], target: Path) -> None:
        super().__init__(target)
        self._copy = copy
        self.columns, self.types, self.notes = tuple(unique_names(head.columns, fold_name)), head.types, head.notes
        self._began(head.rows.to_lists())

    def finish(self, cursor: Any, control: QueryControl) -> None:
        """Fetch all rows, which have the types of the file from then on."""
        self._copy(self._target, control)
        del self._copy  # which holds copies of the tables that it reads
        self._ended(ParquetSource.from_file(self._target, cursor))
