"""Rows written by DuckDB itself, without Python's hands on them.

Where the query runs on DuckDB in this process, its own COPY writes the file (`FileCopy`). Rows of Arrow that come from
elsewhere go to a second DuckDB as they come, which writes the file beside the query (`EngineCopy`). That one has no
files, extensions or network: it sees the rows and the open file, and no text of a query reaches it. It reads the rows
from a generator, so that no more of them wait than a few parts.

Values that a file format cannot express are cast in the query itself (`cell_of`), so that a file has the same content
whichever way it is written. Arrow has no word for a UUID or JSON: the types of such rows go along with them
(`types_note`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nbtools.errors import Cancelled, NbtoolsError
from nbtools.ground.lazy import duckdb, pa
from nbtools.sql.results.result import QueryResult
from nbtools.sql.results.rows import noted_types, unique_names
from nbtools.texts.sql_quotes import quote_identifier, quote_text

# One row group of DuckDB: smaller parts are put together, because each costs a call of Python.
_PART_ROWS = 122_880
_PART_BYTES = 32_000_000
_WAITING = 3
_LOOK_S = 0.1
_END_S = 5.0  # that a copy has to end when Python does
# Its own form of JSON would read each number of a nested value once more, as one of about 15 digits.
_LINES = "FORMAT csv, HEADER false, QUOTE '', ESCAPE '', PREFIX '[\n\t', NEW_LINE ',\n\t', SUFFIX '\n]\n'"
_COPIES = {"csv": "FORMAT csv, HEADER", "json": _LINES, "parquet": "FORMAT parquet"}
_NESTED = re.compile(r"\[|\b(STRUCT|MAP|UNION|VARIANT)\b")
# Python, Arrow and DuckDB write the same text for these, and the same JSON.
_PLAIN = re.compile(r"BOOLEAN|VARCHAR|U?(?:TINY|SMALL|BIG)INT|U?INTEGER|DATE|TIME|TIMESTAMP")
# Arrow has these as texts.
_LOST = re.compile(r"\b(?:UUID|JSON)\b")
_FLOAT = re.compile(r"\b(?:FLOAT|DOUBLE)\b")
# Of these DuckDB's own JSON has other digits than its text: 1.5 for 1.50, and NaN, which is not JSON.
_OTHER_DIGITS = re.compile(r"\b(?:DECIMAL|FLOAT|DOUBLE)\b")
# At any depth: Parquet has no form for these, or DuckDB writes one that rounds or cannot be written.
_NO_PARQUET = re.compile(
    r"\b(?:U?HUGEINT|INTERVAL|BIT|BIGNUM|UNION|VARIANT|GEOMETRY|TIME WITH TIME ZONE|TIME_NS|NULL)\b"
)
# Of these a text does not tell all, or cannot be read again.
_ONE_WAY = re.compile(r"\b(?:UNION|VARIANT|GEOMETRY|TIME WITH TIME ZONE)\b")
# The type of what is missing wherever it is; a name is followed by a type.
_NOTHING = re.compile(r'"NULL"(?=[,)\[]|\Z)')
_WIDE = re.compile(r"\bU?HUGEINT\b")
_NO_WORD = {
    "csv": re.compile(r"\[|\b(?:STRUCT|MAP|UNION)\(|\b(?:BLOB|GEOMETRY|VARIANT)\b"),
    "json": re.compile(r"\bMAP\(|\b(?:BLOB|GEOMETRY)\b"),
}
_ENUM = re.compile(r"\bENUM\((?:'(?:[^']|'')*'(?:, )?)*\)")
_TOO_WIDE = re.compile(r"Could not cast value (-?\d+) to DECIMAL\(38,0\)")


def has_parquet_form(kind: str) -> bool:
    """Tell whether a Parquet file of DuckDB's holds each value of a type as it is.

    Examples
    --------
    >>> [has_parquet_form(kind) for kind in ("BIGINT", "STRUCT(a HUGEINT)", "INTERVAL[]", "TIMESTAMP_NS")]
    [True, False, False, True]
    """
    return _NO_PARQUET.search(kind) is None


def type_from_text(kind: str) -> str | None:
    """Return the type in which DuckDB reads each value of a type from the text that it wrote for it, or `None`."""
    some = _NOTHING.sub("INTEGER", kind)
    return None if _ONE_WAY.search(some) else some


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
        The file, which is there and empty; `None` where the engine only casts what it hands on.
    form
        ``"csv"``, ``"json"`` or ``"parquet"``.

    Attributes
    ----------
    rows
        How many were written; `None` when the engine hands its rows on instead.
    """

    def __init__(self, path: Path | None, form: str) -> None:
        self.path = path
        self.form = form
        self.rows: int | None = None

    @classmethod
    def of(cls, file: BinaryIO, form: str) -> FileCopy | None:
        """Return the copy into an open file, without a path where it has none or holds something already."""
        if form not in _COPIES:
            return None
        path_text = place_of(file)
        if path_text is None or file.tell():
            return cls(None, form)
        try:
            path = Path(path_text).readlink()
            status, opened = path.stat(), os.fstat(file.fileno())
        except OSError:  # a system whose names of open files are not links, or a file without a name
            return cls(None, form)
        is_same = (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino)
        return cls(path if is_same and not opened.st_size else None, form)

    def statement(self, sql: str, columns: Sequence[str], types: Sequence[str]) -> str:
        """Return the COPY of a query whose columns and types are known."""
        names = [f"c{index}" for index in range(len(columns))]
        selected = _select_list(names, columns, types, self.form)
        return _copy_text(query_around(sql, selected, len(names)), str(self.path), self.form)

    def cells(self, types: Sequence[str]) -> list[tuple[str, str]]:
        """Return what is selected of a query for the file, and the types of that."""
        return [cell_of(f"c{at}", kind, self.form, is_alone=len(types) == 1) for at, kind in enumerate(types)]


def changes_of(copy: FileCopy | None, result: QueryResult) -> Iterator[str]:
    """Give a phrase for each column of a result that a file has as another type, because its form has no such one."""
    form = "" if copy is None else copy.form
    for name, kind in zip(result.columns, result.types, strict=True) if form else ():
        if form == "parquet":
            own = _ENUM.sub("VARCHAR", cell_of("c", kind, form, is_alone=False)[1]) if kind != "NULL" else kind
        else:
            nested = "object" if form == "json" else "JSON"
            own = next(
                (nested if "(" in odd or odd == "[" else "VARCHAR" for odd in _NO_WORD[form].findall(kind)), kind
            )
        if own != kind:
            what, named = own.replace("VARCHAR", "text"), form.title() if form == "parquet" else form.upper()
            yield f"{name}: written as {what}, because {named} has no type {_ENUM.sub('ENUM', kind)}"
        if form == "parquet" and result.zone not in {None, "UTC"} and "TIMESTAMP WITH TIME ZONE" in kind:
            yield f"{name}: written in UTC, because Parquet keeps no time zone such as {result.zone}"


@contextlib.contextmanager
def parquet_limits(copy: FileCopy | None) -> Iterator[None]:
    """Let an error say which number is too wide for a Parquet file, and not the cast that found it."""
    try:
        yield
    except NbtoolsError as exc:
        wide = _TOO_WIDE.search(exc.message)
        if copy is not None and copy.form == "parquet" and wide is not None:
            exc.message = f"{wide[1]} is too wide for a Parquet file, whose numbers have at most 38 digits."
            exc.hint = "Write it as text, CAST(COLUMN AS VARCHAR), or to a .csv or .json file."
        raise


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
    check
        Raises an error where the rows are not wanted any more.
    """

    def __init__(
        self, path: str, form: str, columns: Sequence[str], schema: Any, check: Callable[[], None] = lambda: None
    ) -> None:
        self._schema = schema
        self._parts: list[Any] = []
        self._rows = self._bytes = 0
        self._waiting: queue.Queue[Any] = queue.Queue(_WAITING)
        self._failed: BaseException | None = None
        self._given_up = threading.Event()
        self._columns, self._path, self._form = columns, path, form
        self._check = check
        self._interrupt: Callable[[], None] = lambda: None
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
        while self._thread.is_alive():
            self._check()
            self._thread.join(_LOOK_S)
        atexit.unregister(self.abandon)
        if self._failed is not None:
            raise self._failed

    def abandon(self, within: float | None = None) -> None:
        """Stop writing; what is in the file is of no use. Harmless after `finish`."""
        self._given_up.set()
        with contextlib.suppress(duckdb.Error):  # it has ended meanwhile
            self._interrupt()
        self._thread.join(within)
        atexit.unregister(self.abandon)

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
            self._check()
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
                    raise Cancelled("not all rows were written.") from None
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
                self._interrupt = connection.interrupt
                # What is still written when Python ends would hang or abort it. DuckDB's own end waits for this thread
                # and was registered when it was imported, so this one comes before.
                atexit.register(self.abandon, _END_S)
                rows = pa.RecordBatchReader.from_batches(self._schema, self._batches())
                connection.register("rows_to_write", rows)
                connection.register("no_rows", pa.RecordBatchReader.from_batches(self._schema, []))
                connection.execute("SET enable_progress_bar = false")
                kinds = [str(row[1]) for row in connection.execute("DESCRIBE no_rows").fetchall()]
                names = list(self._schema.names)
                for at, kind in enumerate(noted_types(self._schema)):
                    if _LOST.search(kind):
                        names[at], kinds[at] = f"CAST({names[at]} AS {kind})", kind
                selected = _select_list(names, self._columns, kinds, self._form)
                connection.execute(_copy_text(f"SELECT {selected} FROM rows_to_write", self._path, self._form))
        except duckdb.IOException as exc:
            # The sentence that the system has for it stands at the end: No space left on device.
            self._failed = OSError(str(exc).rpartition(": ")[2].strip() or str(exc))
        except BaseException as exc:
            self._failed = exc


def _copy_text(query: str, path: str, form: str) -> str:
    return f"COPY ({query}) TO {quote_text(path)} ({_COPIES[form]}, USE_TMP_FILE false)"


def _select_list(values: Sequence[str], columns: Sequence[str], types: Sequence[str], form: str) -> str:
    cells = [cell_of(*pair, form, is_alone=len(values) == 1) for pair in zip(values, types, strict=True)]
    names = unique_names(columns)
    if form == "json":
        texts = (cell if kind == "JSON" else f"to_json({cell})" for cell, kind in cells)
        starts = [json.dumps(name, ensure_ascii=False) + ":" for name in names]
        starts[1:] = ["," + start for start in starts[1:]]
        pairs = zip(map(quote_text, starts), texts, strict=True)
        parts = ", ".join(f"{start}, coalesce(CAST({text} AS VARCHAR), 'null')" for start, text in pairs)
        return f"concat('{{', {parts}, '}}')"
    return ", ".join(f"{cell} AS {quote_identifier(name)}" for (cell, _), name in zip(cells, names, strict=True))


def cell_of(value: str, kind: str, form: str, *, is_alone: bool) -> tuple[str, str]:
    """Return how a value is written, and the type of that: as it is, but for what the form of the file has no word for.

    What comes out stays as it is when it is asked for again.

    Examples
    --------
    >>> [cell_of("c0", kind, "csv", is_alone=False) for kind in ("BIGINT", "UUID", "DATE[]")]
    [('c0', 'BIGINT'), ('CAST(c0 AS VARCHAR)', 'VARCHAR'), ('CAST(to_json(c0) AS VARCHAR)', 'VARCHAR')]
    >>> [cell_of("c0", kind, form, is_alone=True) for form, kind in (("json", "UUID"), ("parquet", "HUGEINT[]"))]
    [('to_json(c0)', 'JSON'), ('CAST(c0 AS DECIMAL(38, 0)[])', 'DECIMAL(38, 0)[]')]
    """
    if form == "parquet":
        if has_parquet_form(kind):
            return value, kind
        # The widest whole numbers are decimals there, which have one digit less; all else is text.
        wide = _WIDE.sub("DECIMAL(38, 0)", kind)
        kind = wide if has_parquet_form(wide) else "VARCHAR"
        return f"CAST({value} AS {kind})", kind
    is_plain = _PLAIN.fullmatch(kind) is not None
    if form == "json":
        return (value, kind) if is_plain or kind == "JSON" else (json_of(value, kind), "JSON")
    if not is_plain:
        value, kind = f"CAST({json_of(value, kind) if _NESTED.search(kind) else value} AS VARCHAR)", "VARCHAR"
    # An empty line is not a row to most readers, two quotes are one.
    return (f"coalesce(CAST({value} AS VARCHAR), '')", "VARCHAR") if is_alone else (value, kind)


def json_of(value: str, kind: str, *, as_shown: bool = False) -> str:
    """Return SQL for a value as JSON: of floats, at any depth, what JSON has no number for is text.

    As shown it is a text without blanks, in which numbers have the digits of DuckDB's own texts.
    """
    is_changed = (_OTHER_DIGITS if as_shown else _FLOAT).search(kind) is not None
    with contextlib.suppress(duckdb.Error):  # a type that only the database has
        value = _with_numbers(value, duckdb.sqltype(kind), as_shown=as_shown) if is_changed else value
    text = f"CAST(to_json({value}) AS VARCHAR)"
    # A text between signs that no other text has is a number once they and its quotes are gone.
    marked = f"""replace(replace({text}, '"\\u0001', ''), '\\u0001"', '')"""
    # Of a variant DuckDB's to_json rounds decimals, and its cast does not.
    as_json = f"CAST({value} AS JSON)" if kind == "VARIANT" else f"to_json({value})"
    return (marked if is_changed else text) if as_shown else as_json


def _with_numbers(value: str, kind: Any, depth: int = 0, *, as_shown: bool) -> str:
    if not (_OTHER_DIGITS if as_shown else _FLOAT).search(str(kind)):
        return value
    each, text = f"v{depth}", f"CAST({value} AS VARCHAR)"
    part = functools.partial(_with_numbers, depth=depth + 1, as_shown=as_shown)
    if kind.id in {"list", "array"}:
        return f"list_transform({value}, lambda {each}: {part(each, kind.children[0][1])})"
    if kind.id == "struct":
        cells = ((name, part(f"struct_extract({value}, {quote_text(name)})", child)) for name, child in kind.children)
        parts = ", ".join(f"{quote_identifier(name)} := {cell}" for name, cell in cells)
        return f"if({value} IS NULL, NULL, struct_pack({parts}))"
    if kind.id == "map":  # its keys are texts in JSON
        pair = f"key := {each}.key, value := {part(f'{each}.value', kind.children[1][1])}"
        return f"map_from_entries(list_transform(map_entries({value}), lambda {each}: struct_pack({pair})))"
    # Of a narrow float DuckDB would write the digits of a wide one.
    number = f"{text}::DOUBLE" if str(kind) == "FLOAT" else value
    number = f"chr(1) || {text} || chr(1)" if as_shown else number
    is_number = kind.id in {"decimal", "double", "float"}
    return f"if(isfinite({value}), to_json({number}), to_json({text}))" if is_number else value
