"""Results as files: rows are written as they come, so that a result of any size fits."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from nbtools.errors import Cancelled, InvalidArguments, NbtoolsError, SqlFailed
from nbtools.lazy import need
from nbtools.sql.results.rows import ArrowRows, ResultRows, unique_names

__all__ = ["FORMS", "RowSink", "form_of"]


class _Writer(Protocol):
    """Writes the rows of one result to an open file."""

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        """Write some rows; a result without rows comes as one part of none."""
        ...

    def finish(self) -> None:
        """Write what ends the file."""
        ...


class _Csv:
    """CSV: UTF-8, a header, commas, empty fields for NULL; lists and structures as JSON."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = False

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._begun:
            writer.writerow(columns)
        writer.writerows([_field(value) for value in row] for row in rows.to_lists())
        self._begun = True
        # One write for each batch: a file may be a slow pipe.
        self._file.write(text.getvalue().encode())

    def finish(self) -> None:
        """Do nothing: a table of text just ends."""


def _field(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


class _Json:
    """JSON: one list of objects; a name that occurs twice gets a number."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._before = "["

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        names = unique_names(columns)
        for row in rows.to_lists():
            told = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)
            self._file.write(f"{self._before}{told}".encode())
            self._before = ",\n"

    def finish(self) -> None:
        self._file.write(b"[]\n" if self._before == "[" else b"]\n")


class _Parquet:
    """Parquet, for engines that speak Arrow."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._parquet = need("pyarrow.parquet", extra="engines", why="Writing Parquet")
        self._writer: Any = None

    def take(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        if not isinstance(rows, ArrowRows):
            raise InvalidArguments("rows of this kind cannot be written as Parquet.", hint="Write a .csv file.")
        table = rows.to_arrow().rename_columns(unique_names(columns))
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)

    def finish(self) -> None:
        self._writer.close()


# Text and Parquet are written by hand and not by pandas, which would want all rows at once.
FORMS: dict[str, Callable[[BinaryIO], _Writer]] = {"csv": _Csv, "json": _Json, "parquet": _Parquet}
"""What a file of each form is written by."""


class _WriteFailed(SqlFailed, OSError):
    """The file took no more rows; it is an `OSError` too, because callers that pass a file expect one."""


class RowSink:
    """Hands rows to a writer while the statement runs; an error of the writer ends the statement.

    Attributes
    ----------
    parts, rows
        How many were handed on.
    """

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._failed: BaseException | None = None
        self.parts = 0
        self.rows = 0

    def __call__(self, columns: tuple[str, ...], rows: ResultRows) -> None:
        """Hand on some rows."""
        try:
            self._writer.take(columns, rows)
        except BaseException as exc:
            # Engines translate errors of their drivers by class, and must not take this one for their own.
            self._failed = exc
            raise Cancelled("the rows could not be handed on.", tried="running SQL") from exc
        self.parts += 1
        self.rows += len(rows)

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """End the file after the block, and raise the writer's own error where that ended the block."""
        try:
            yield
            self._writer.finish()
        except (Cancelled, OSError) as exc:
            failed = self._failed or exc
            # A closed pipe is no failure to the command line; errors of the query stay what they are.
            if isinstance(failed, OSError) and not isinstance(failed, BrokenPipeError | NbtoolsError):
                raise _WriteFailed(
                    f"the rows could not be written: {failed.strerror or failed}.",
                    hint="Look at the free space and the permissions of the place, or choose another.",
                    tried="writing rows to a file",
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
    found = name.rpartition(".")[2].lower()
    if found not in FORMS:
        raise InvalidArguments(
            f"{name!r} is no file that rows can be written to.",
            hint=f"Give it a name that ends in .{', .'.join(FORMS)}.",
        )
    return found
