"""Results as files: rows are written as they come, so that a result of any size fits."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import errno
import fnmatch
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nbtools.errors import Cancelled, InvalidArguments, LimitExceeded, NbtoolsError, SqlFailed
from nbtools.ground.lazy import need, pa
from nbtools.sql.results.engine_copy import EngineCopy, place_of
from nbtools.sql.results.moments import has_part
from nbtools.sql.results.rows import ArrowRows, ResultRows, noted_types, unique_names
from nbtools.texts.values import jsonable, text_of
from nbtools.texts.visible import counted

MOST_SHEET_ROWS = 1_048_576
"""Rows of a sheet of Excel, the header among them."""
# Excel keeps fifteen digits of a number.
_MOST_WHOLE = 10**15
_DIGITS = 38  # of the widest decimals that Parquet readers share
_LONGEST_CELL = 32_767
_FIRST_YEAR = 1900
_WIDEST, _FITTED = 60, 1_000  # characters of a column, and rows that say how wide it is
_CUT = ("moment", "cut to the millisecond, as Excel does")
_AS_TEXT = "written as text, which sums of Excel skip: "
_AS_JSON = ("value", "written as JSON, because a cell of Excel has no lists")
_EMPTY, _SPECIAL = '""', re.compile('[",\r\n]')
_NOT_IN_SHEETS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class WrittenRows(int):
    """How many rows were written, how the files were read that they come from, and what their file has no room for.

    Attributes
    ----------
    notes
        Phrases about what was changed in reading, and what was cut.
    files
        Names of the files that the rows come from.
    """

    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "; ".join((super().__repr__(), *self.notes))

    def come_from(self, file: Path) -> bool:
        """Tell whether the query reads a file, by its name or by a pattern."""
        return any(fnmatch.fnmatchcase(str(file), os.path.realpath(name)) for name in self.files)

    def text(self, path: str) -> str:
        """Return what was done, for a person."""
        return "; ".join((f"{counted(self, 'row')} written to {path}", *self.notes))


class _Writer:
    """Writes the rows of one result to an open file.

    Attributes
    ----------
    check
        Raises an error where the rows are not wanted any more.
    """

    check: Callable[[], None] = staticmethod(lambda: None)

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        """Write some rows; a result without rows comes as one part of none."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write what ends the file, if anything does."""

    def abandon(self) -> None:
        """Let go of what is held, if anything is: the file is given up."""

    def notes(self) -> tuple[str, ...]:
        """Return phrases about what was cut."""
        return ()


class _Csv(_Writer):
    """CSV: UTF-8, a header, commas, empty fields for NULL; lists and structures as JSON."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = False

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        lines = [] if self._begun else [unique_names(columns)]
        self._begun = True
        # A line without anything is not a row to most readers.
        text = "".join([(",".join(map(_field, row)) or _EMPTY) + "\n" for row in (*lines, *rows.to_lists())])
        # One write for each batch: a file may be a slow pipe.
        self._file.write(text.encode())


def _field(value: Any) -> str:
    """Return a field of CSV; an empty text has quotes, a missing value nothing, which Python's own module mixes up."""
    is_json = isinstance(value, list | dict | bool)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if is_json else str(value)
    if value is None:
        return ""
    if not text:
        return _EMPTY
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


class _Json(_Writer):
    """JSON: one list of objects; a name that occurs twice gets a number."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._before = "["

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        names = unique_names(columns)
        kinds = noted_types(rows.table.schema) if isinstance(rows, ArrowRows) else []
        parts = {at for at, kind in enumerate(kinds) if kind == "JSON"}
        for row in rows.to_lists():
            texts = (
                value if at in parts and value is not None else json.dumps(value, ensure_ascii=False)
                for at, value in enumerate(row)
            )
            pairs = (f"{json.dumps(name, ensure_ascii=False)}: {text}" for name, text in zip(names, texts, strict=True))
            self._file.write(f"{self._before}{{{', '.join(pairs)}}}".encode())
            self._before = ",\n"

    def finish(self) -> None:
        self._file.write(b"[]\n" if self._before == "[" else b"]\n")


class _Parquet(_Writer):
    """Parquet by pyarrow, where DuckDB cannot open the file; the first rows say what the columns are."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._parquet = need("pyarrow.parquet", extra="engines", why="Writing Parquet")
        self._writer: Any = None

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        table = rows.to_arrow().rename_columns(unique_names(columns))
        for at, field in enumerate(table.schema):
            if has_part(field.type, _is_span):
                texts = [None if value is None else text_of(value) for value in table.column(at).to_pylist()]
                table = table.set_column(at, field.name, pa.array(texts, pa.string()))
        if self._writer is None:
            # A column of which nothing is known yet takes text, which everything can be written as.
            kinds = [_kept_type(field.type) for field in table.schema]
            self._writer = self._parquet.ParquetWriter(
                self._file, pa.schema(zip(table.column_names, kinds, strict=True))
            )
        self._writer.write_table(_cast(table, self._writer.schema))

    def finish(self) -> None:
        self._writer.close()


def _is_span(kind: Any) -> bool:
    """Tell whether a type of Arrow is that of intervals, which Parquet lacks: readers would see whole numbers."""
    return bool(pa.types.is_interval(kind) or pa.types.is_duration(kind))


def _kept_type(kind: Any) -> Any:
    """Return the type of a column, given that of its first rows: later decimals may have more digits."""
    if pa.types.is_null(kind):
        return pa.string()
    is_narrow = pa.types.is_decimal(kind) and kind.precision < _DIGITS
    return pa.decimal128(_DIGITS, kind.scale) if is_narrow else kind


def _cast(table: Any, schema: Any) -> Any:
    """Return a table with the types of the rows before it, as engines without their own types may change theirs."""
    try:
        return table.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise InvalidArguments(
            f"a column holds values of several types, which Parquet cannot store: {exc}.",
            hint="Cast it in the query, or write a .csv file.",
        ) from exc


class _Workbook(_Writer):
    """An Excel workbook of one sheet, written row by row; its head is bold and stays in sight."""

    def __init__(self, file: BinaryIO) -> None:
        self._openpyxl = need("openpyxl", extra="engines", why="Writing Excel files")
        self._file = file
        self._book = self._openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("result")
        self._sheet.freeze_panes = "A2"
        self._columns: tuple[str, ...] = ()
        self._rows = 0
        self._changes: Counter[tuple[int, str, str]] = Counter()

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        tuples = rows.to_tuples()
        with _lxml_faults():
            if not self._rows:
                self._columns = columns
                self._fit(tuples[:_FITTED])
                self._append(columns, bold=True)
            for row in tuples:
                self._append(row)

    def _fit(self, rows: Sequence[Sequence[Any]]) -> None:
        for at, name in enumerate(self._columns):
            longest = max([len(name), *(len(str(row[at])) for row in rows)])
            letter = self._openpyxl.utils.get_column_letter(at + 1)
            self._sheet.column_dimensions[letter].width = min(longest, _WIDEST) + 2

    def _append(self, row: Sequence[Any], *, bold: bool = False) -> None:
        self._rows += 1
        if self._rows > MOST_SHEET_ROWS:
            raise LimitExceeded(
                f"the result has more rows than a sheet of Excel can hold ({MOST_SHEET_ROWS - 1:,} and a header).",
                hint="Write a .parquet or .csv file, or ask for less.",
            )
        self._sheet.append([self._cell(value, at, bold=bold) for at, value in enumerate(row)])

    def _cell(self, value: Any, at: int, *, bold: bool) -> Any:
        """Return a value as a cell of its kind; what a cell has no form for, or would round, is text."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return self._number(value)
        if isinstance(value, int | decimal.Decimal) and _is_short(value):
            return value
        if getattr(value, "months", None) == 0:
            value = dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1_000)
        why = _why_text(value)
        if isinstance(value, dt.date | dt.time | dt.timedelta) and why is None:
            self._changes[at, *_CUT] += bool(getattr(value, "microseconds", getattr(value, "microsecond", 0)) % 1_000)
            return value
        text = text_of(jsonable(value))
        if len(text) > _LONGEST_CELL or _NOT_IN_SHEETS.search(text):
            control = _NOT_IN_SHEETS.search(text)
            what = "a control character" if control else f"{len(text):,} characters"
            change = f"replace(x, chr({ord(control[0])}), '')" if control else f"left(x, {_LONGEST_CELL})"
            raise InvalidArguments(
                f"row {self._rows - 1:,} of {self._columns[at]!r} has {what}, which a cell of Excel cannot hold.",
                hint=f"Change it in the query, such as {change}, or write a .csv or .parquet file.",
            )
        self._changes[at, *_AS_JSON] += isinstance(value, list | tuple | dict)
        if why is not None:
            self._changes[at, "value", _AS_TEXT + why] += 1
        if not (bold or text.startswith("=")):
            return text
        cell = self._openpyxl.cell.WriteOnlyCell(self._sheet, text)
        cell.data_type = "s"  # a text that begins with = would be computed
        cell.font = self._openpyxl.styles.Font(bold=bold)
        return cell

    def _number(self, value: float) -> Any:
        # What writes sheets leaves out a seventeenth digit, which Excel reads and half of all floats need.
        if float(f"{value:.16g}") == value:
            return value
        cell = self._openpyxl.cell.WriteOnlyCell(self._sheet, repr(float(value)))
        cell.data_type = "n"
        return cell

    def notes(self) -> tuple[str, ...]:
        changes = (+self._changes).items()
        return tuple(f"{self._columns[at]}: {counted(n, noun)} {what}" for (at, noun, what), n in changes)

    def finish(self) -> None:
        writing = need("openpyxl.writer.excel", extra="engines", why="Writing Excel files")
        archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        try:
            with _lxml_faults():
                writing.ExcelWriter(self._book, archive).save()
        except BaseException:
            archive.fp = None  # it would try to write its end once more when it is collected
            raise

    def abandon(self) -> None:
        with contextlib.suppress(Exception):  # of a temporary file that is full, once more
            self._sheet.close()


@contextlib.contextmanager
def _lxml_faults() -> Iterator[None]:
    """Raise an `OSError` where lxml, which writes sheets to temporary files, names one such as ``IO_ENOSPC``."""
    try:
        yield
    except Exception as exc:
        number = getattr(errno, str(exc).removeprefix("IO_"), None) if str(exc).startswith("IO_") else None
        if not isinstance(number, int):
            raise
        raise OSError(number, os.strerror(number)) from exc


def _is_short(value: int | decimal.Decimal) -> bool:
    """Tell whether a float, which a number of Excel is, shows a number as it is."""
    exact = decimal.Decimal(value)
    return exact.is_finite() and abs(exact) <= _MOST_WHOLE and decimal.Decimal(repr(float(exact))) == exact


def _why_text(value: Any) -> str | None:
    """Return why Excel has no number or moment for a value that is not as short as its numbers, else `None`."""
    if isinstance(value, dt.timedelta):
        return "Excel has no times below zero" if value.days < 0 else None
    if isinstance(value, dt.date | dt.time):
        if getattr(value, "tzinfo", None) is not None:
            return "dates and times of Excel have no time zone"
        if isinstance(value, dt.date) and value.year < _FIRST_YEAR:
            return f"dates of Excel begin in {_FIRST_YEAR}"
        return "moments of Excel end at the millisecond" if getattr(value, "nanosecond", 0) else None
    if isinstance(value, float) and not math.isfinite(value):
        return "Excel has no such number"
    return "numbers of Excel have 15 digits" if isinstance(value, int | float | decimal.Decimal) else None


class _ByEngine(_Writer):
    """Rows of Arrow that go to a file on disk are written by DuckDB; all others by Python, value by value."""

    def __init__(self, file: BinaryIO, form: str, otherwise: Callable[[BinaryIO], _Writer]) -> None:
        self._file = file
        self._form = form
        self._otherwise = otherwise
        self._copy: EngineCopy | None = None
        self._writer: _Writer | None = None

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        if self._copy is None and self._writer is None:
            path_text = place_of(self._file) if isinstance(rows, ArrowRows) and columns else None
            if path_text is None:
                self._writer = self._otherwise(self._file)
            else:
                self._copy = EngineCopy(path_text, self._form, columns, self._table(rows).schema, self.check)
        if self._copy is not None:
            self._copy.take(self._table(rows))
        elif self._writer is not None:
            self._writer.take(columns, rows)

    def _table(self, rows: ResultRows) -> Any:
        """Return a table for DuckDB whose columns have names that occur once, whatever they are called."""
        table = rows.table if isinstance(rows, ArrowRows) else rows.to_arrow()
        renamed = table.rename_columns([f"c{index}" for index in range(table.num_columns)])
        return renamed.replace_schema_metadata(table.schema.metadata)  # which is lost by new names

    def finish(self) -> None:
        writer = self._copy or self._writer
        if writer is not None:
            writer.finish()

    def abandon(self) -> None:
        writer = self._copy or self._writer
        if writer is not None:
            writer.abandon()


# Python writes by hand and not by pandas, which would want all rows at once.
FORMS: dict[str, Callable[[BinaryIO], _Writer]] = {
    "csv": lambda file: _ByEngine(file, "csv", _Csv),
    "json": lambda file: _ByEngine(file, "json", _Json),
    "parquet": lambda file: _ByEngine(file, "parquet", _Parquet),
    "xlsx": _Workbook,
}
"""What a file of each form is written by."""


class _WriteFailed(SqlFailed, OSError):
    """The file took no more rows; it is an `OSError` too, because callers that pass a file expect one."""


class RowSink:
    """Hands rows to a writer while the statement runs; an error of the writer ends the statement.

    Attributes
    ----------
    writer
        Writes them.
    parts
        How many parts were handed on.
    rows
        How many rows were handed on, in all parts.
    notes
        Returns what was cut of them.
    """

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer
        self.notes = writer.notes
        self._failed: BaseException | None = None
        self.parts = 0
        self.rows = 0

    def __call__(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        """Hand on some rows."""
        try:
            self.writer.take(columns, rows)
        except BaseException as exc:
            # Engines translate errors of their drivers by class, and must not take this one for their own.
            self._failed = exc
            raise Cancelled("the rows could not be passed on.") from exc
        self.parts += 1
        self.rows += len(rows)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
            self.writer.finish()
        except BaseException:
            self.writer.abandon()
            raise

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """End the file after the block, and raise the writer's own error where that ended the block."""
        try:
            with self._whole():
                yield
        except (Cancelled, OSError) as exc:
            failed = self._failed or exc
            # A closed pipe is not a failure to the command line; errors of the query stay what they are.
            if isinstance(failed, OSError) and not isinstance(failed, BrokenPipeError | NbtoolsError):
                raise _WriteFailed(
                    f"the rows could not be written: {failed.strerror or failed}.",
                    hint="Check the permissions and free space there, or choose another place.",
                ) from failed
            if failed is exc:
                raise
            raise failed from None


def form_of(name: str) -> str:
    """Return the form that a file's name asks for by its suffix.

    Raises
    ------
    InvalidArguments
        It asks for none that can be written.

    Examples
    --------
    >>> form_of("out/rows.csv")
    'csv'
    """
    ending = name.rpartition(".")[2].lower()
    if ending not in FORMS:
        raise InvalidArguments(
            f"{name!r} is not a file that rows can be written to.",
            hint=f"Give it a name that ends in .{', .'.join(FORMS)}.",
        )
    return ending
