"""Rows written by DuckDB itself, without Python's hands on them.

Where the query runs on DuckDB in this process, its own COPY writes the file (`FileCopy`). Rows of Arrow that come from
elsewhere go to a second DuckDB as they come, which writes the file beside the query (`EngineCopy`). That one has no
files, extensions or network: it sees the rows and the open file, and no text of a query reaches it. It reads the rows
from a generator, so that no more of them wait than a few parts.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nbtools.errors import Cancelled
from nbtools.ground.lazy import duckdb, pa
from nbtools.sql.results.rows import unique_names
from nbtools.texts.sql_quotes import quote_identifier, quote_text

# One row group of DuckDB: smaller parts are put together, because each costs a call of Python.
_PART_ROWS = 122_880
_PART_BYTES = 32_000_000
_WAITING = 3
_LOOK_S = 0.1
_COPIES = {"csv": "FORMAT csv, HEADER", "json": "FORMAT json, ARRAY true", "parquet": "FORMAT parquet"}
_NESTED = re.compile(r"\[|\b(STRUCT|MAP|UNION|VARIANT)\b")
_FLOAT = re.compile(r"\b(?:FLOAT|DOUBLE)\b")
# At any depth: Parquet has no form for these, or DuckDB writes one that rounds or cannot be written.
_NO_PARQUET = re.compile(
    r"\b(?:U?HUGEINT|INTERVAL|BIT|BIGNUM|UNION|VARIANT|GEOMETRY|TIME WITH TIME ZONE|TIME_NS|NULL)\b"
)
# Of these a text does not tell all, or cannot be read again.
_ONE_WAY = re.compile(r"\b(?:UNION|VARIANT|GEOMETRY|TIME WITH TIME ZONE|NULL)\b")
_WIDE = re.compile(r"\bU?HUGEINT\b")


def has_parquet_form(kind: str) -> bool:
    """Tell whether a Parquet file of DuckDB's holds each value of a type as it is.

    Examples
    --------
    >>> [has_parquet_form(kind) for kind in ("BIGINT", "STRUCT(a HUGEINT)", "INTERVAL[]", "TIMESTAMP_NS")]
    [True, False, False, True]
    """
    return _NO_PARQUET.search(kind) is None


def is_read_from_text(kind: str) -> bool:
    """Tell whether DuckDB makes each value of a type from the text that it wrote for it."""
    return _ONE_WAY.search(kind) is None


def query_around(sql: str, selected: str, count: int) -> str:
    """Return a query for what is selected of another one, whose `count` columns are called c0, c1 and so on."""
    names = ", ".join(f"c{at}" for at in range(count))
    # The text was judged as one whole statement, so it closes all that it opens; a comment at its end needs a line.
    return f"SELECT {selected} FROM (\n{sql.rstrip().rstrip(';')}\n) AS r({names})"


def place_of(file: BinaryIO) -> str | None:
    """Return the name by which DuckDB opens a file that is open here; `None` where there is no such name."""
    try:
        descriptor = file.fileno()
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # for example of a file in memory
        return None
    name = f"/dev/fd/{descriptor}"
    return name if is_regular and os.path.exists(name) else None  # noqa: PTH110 - a name of the system, no path


class FileCopy:
    """A file that an engine may write by its own COPY; it says so by setting `rows`.

    Parameters
    ----------
    path
        The file, which is there and empty.
    form
        ``"csv"``, ``"json"`` or ``"parquet"``.

    Attributes
    ----------
    rows
        How many were written; `None` when the engine hands its rows on instead.
    """

    def __init__(self, path: Path, form: str) -> None:
        self.path = path
        self.rows: int | None = None
        self._form = form

    @classmethod
    def of(cls, file: BinaryIO, form: str) -> FileCopy | None:
        """Return the copy into an open file; `None` where it has no path, or holds something already."""
        path_text = place_of(file) if form in _COPIES else None
        if path_text is None or file.tell():
            return None
        try:
            path = Path(path_text).readlink()
            status, opened = path.stat(), os.fstat(file.fileno())
        except OSError:  # a system whose names of open files are not links, or a file without a name
            return None
        is_same = (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino)
        return cls(path, form) if is_same and not opened.st_size else None

    def statement(self, sql: str, columns: Sequence[str], types: Sequence[str]) -> str:
        """Return the COPY of a query whose columns and types are known."""
        names = [f"c{index}" for index in range(len(columns))]
        selected = _select_list(names, columns, types, self._form)
        return _copy_text(query_around(sql, selected, len(names)), self.path, self._form)


class EngineCopy:
    """One file in the making.

    Parameters
    ----------
    path
        The name that `place_of` returned.
    form
        ``"csv"``, ``"json"`` or ``"parquet"``.
    columns
        Names of the columns; one that occurs twice gets a number.
    schema
        The schema of the tables to come.
    """

    def __init__(self, path: str, form: str, columns: Sequence[str], schema: Any) -> None:
        self._schema = schema
        self._parts: list[Any] = []
        self._rows = self._bytes = 0
        self._waiting: queue.Queue[Any] = queue.Queue(_WAITING)
        self._failed: BaseException | None = None
        self._given_up = threading.Event()
        self._columns, self._path, self._form = columns, path, form
        self._thread = threading.Thread(target=self._copy, name="nbtools-copy", daemon=True)
        self._thread.start()

    def take(self, table: Any) -> None:
        """Hand on a table."""
        self._parts.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= _PART_ROWS or self._bytes >= _PART_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write what is left, and wait until the file is whole."""
        self._flush()
        self._put(None)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def abandon(self) -> None:
        """Stop writing; what is in the file is of no use. Harmless after `finish`."""
        self._given_up.set()
        self._thread.join()

    def _flush(self) -> None:
        if self._parts:
            whole = pa.concat_tables(self._parts).combine_chunks()
            self._parts, self._rows, self._bytes = [], 0, 0
            for batch in whole.to_batches():
                self._put(batch)

    def _put(self, item: Any) -> None:
        while True:
            if self._failed is not None:
                raise self._failed
            try:
                return self._waiting.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue  # the thread is writing, or has failed meanwhile

    def _batches(self) -> Iterator[Any]:
        while True:
            try:
                batch = self._waiting.get(timeout=_LOOK_S)
            except queue.Empty:
                if self._given_up.is_set():
                    raise Cancelled("the rows are not written to their end.") from None
                continue
            if batch is None:
                return
            yield batch

    def _copy(self) -> None:
        # The extensions of CSV, JSON and Parquet are part of DuckDB; no others are looked for.
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        try:
            with duckdb.connect(":memory:", config=config) as connection:
                rows = pa.RecordBatchReader.from_batches(self._schema, self._batches())
                connection.register("rows_to_write", rows)
                connection.register("no_rows", pa.RecordBatchReader.from_batches(self._schema, []))
                connection.execute("SET enable_progress_bar = false")
                kinds = [str(row[1]) for row in connection.execute("DESCRIBE no_rows").fetchall()]
                selected = _select_list(self._schema.names, self._columns, kinds, self._form)
                connection.execute(_copy_text(f"SELECT {selected} FROM rows_to_write", self._path, self._form))
        except duckdb.IOException as exc:
            # The sentence that the system has for it stands at the end: No space left on device.
            self._failed = OSError(str(exc).rpartition(": ")[2].strip() or str(exc))
        except BaseException as exc:
            self._failed = exc


def _copy_text(query: str, path: str | Path, form: str) -> str:
    return f"COPY ({query}) TO {quote_text(str(path))} ({_COPIES[form]}, USE_TMP_FILE false)"


def _select_list(names: Sequence[str], columns: Sequence[str], types: Sequence[str], form: str) -> str:
    """Return how each column is written: as it is, but for what the form of the file has no word for."""
    parts = []
    for name, column, kind in zip(names, unique_names(columns), types, strict=True):
        value = name
        if (form == "csv" and _NESTED.search(kind)) or (form == "json" and _FLOAT.search(kind)):
            value = _json_of(name, kind)
        if form == "csv" and len(names) == 1:
            # An empty line is not a row to most readers, two quotes are one.
            value = f"coalesce(CAST({value} AS VARCHAR), '')"
        if form == "parquet" and not has_parquet_form(kind):
            # The widest whole numbers are decimals there, which have one digit less; all else is text.
            wide = _WIDE.sub("DECIMAL(38, 0)", kind)
            value = f"CAST({name} AS {wide if has_parquet_form(wide) else 'VARCHAR'})"
        parts.append(f"{value} AS {quote_identifier(column)}")
    return ", ".join(parts)


def _json_of(value: str, kind: str) -> str:
    """Return how a value is written as JSON: of floats, at any depth, what JSON has no number for is text."""
    if _FLOAT.search(kind):
        with contextlib.suppress(duckdb.Error):  # a type that only the database has
            return f"to_json({_finite(value, duckdb.sqltype(kind))})"
    return f"to_json({value})"


def _finite(value: str, kind: Any, depth: int = 0) -> str:
    if not _FLOAT.search(str(kind)):
        return value
    each = f"v{depth}"
    if kind.id in {"list", "array"}:
        return f"list_transform({value}, lambda {each}: {_finite(each, kind.children[0][1], depth + 1)})"
    if kind.id == "struct":
        fields = ((name, quote_identifier(name), child) for name, child in kind.children)
        parts = (
            f"{key} := {_finite(f'struct_extract({value}, {quote_text(name)})', child, depth)}"
            for name, key, child in fields
        )
        return f"if({value} IS NULL, NULL, struct_pack({', '.join(parts)}))"
    if kind.id == "map":
        children = zip(("key", "value"), (child for _, child in kind.children), strict=True)
        pair = ", ".join(f"{name} := {_finite(f'{each}.{name}', child, depth + 1)}" for name, child in children)
        return f"map_from_entries(list_transform(map_entries({value}), lambda {each}: struct_pack({pair})))"
    # Of a narrow float DuckDB would write the digits of a wide one.
    number = f"{value}::VARCHAR::DOUBLE" if str(kind) == "FLOAT" else value
    return f"if(isfinite({value}), to_json({number}), to_json({value}::VARCHAR))"
