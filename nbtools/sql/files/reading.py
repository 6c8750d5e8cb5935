"""Readings: what is to be run in the place of a judged text that names text files, and what is told of them."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.sql.engines.duckdb.frames import quote_text
from nbtools.sql.engines.protocol import QueryControl, QueryRequest, SqlEngine
from nbtools.sql.files.calls import FileCall, TextEdit, find_calls, origin, rewrite
from nbtools.sql.files.csv import MISSING_WORDS, CallReading, read_types, skipped_lines
from nbtools.sql.files.json import read_objects
from nbtools.sql.verdict.verdict import Verdict, caret_below, line_and_column

__all__ = ["AT_ONCE_BYTES", "WHOLE_BYTES", "TextFiles", "TextReading", "point_back"]

WHOLE_BYTES = 100_000_000
"""Text files up to here are looked at whole before the types of their columns are decided."""
AT_ONCE_BYTES = 4_000_000
"""Of files up to here it takes so little time that the first page of an explorer waits for it."""
_PACKED = 4  # a packed file is about so many times larger when it is read
_REMEMBERED = 200
_MOST_FILES = 64  # whose skipped lines are told one by one


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextReading:
    """What runs in the place of a text.

    Attributes
    ----------
    sql
        The text to run.
    edits
        Where it differs from the one that was written.
    notes
        What is to be told, by the name of the file.
    """

    sql: str
    edits: tuple[TextEdit, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


class TextFiles:
    """Decides how text files are read, and remembers it for as long as they stay as they are.

    Parameters
    ----------
    words
        What stands for missing values in columns of another type than text; none to take each word as it is.
    """

    def __init__(self, words: Sequence[str] = MISSING_WORDS) -> None:
        self._words = tuple(words)
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], CallReading] = {}

    def read(
        self, verdict: Verdict, engine: SqlEngine, control: QueryControl, *, most_bytes: int = WHOLE_BYTES
    ) -> TextReading:
        """Return how a judged text is to be run.

        Parameters
        ----------
        most_bytes
            Larger files are read as DuckDB reads them, by a sample.
        """
        edits: list[TextEdit] = []
        notes: list[tuple[str, str]] = []
        for call in find_calls(verdict):
            try:
                found = self._reading(call, engine, control, most_bytes)
            except NbtoolsError:
                control.check()
                continue  # The query itself says what is wrong with the file, and where it stands in the text.
            if found.text is not None:
                edits.append(TextEdit(call.start, call.end, call.head + found.text + call.tail))
            notes += [(call.paths[0], note) for note in found.notes]
        return TextReading(
            sql=rewrite(verdict.sql, edits) if edits else verdict.sql,
            edits=tuple(sorted(edits)),
            notes=tuple(dict.fromkeys(notes)),
        )

    def _reading(self, call: FileCall, engine: SqlEngine, control: QueryControl, most_bytes: int) -> CallReading:
        @functools.cache
        def ask(sql: str) -> list[list[Any]]:
            return engine.run(QueryRequest(sql=sql, max_bytes=None, timeout=None), control).rows.to_lists()

        files = ask(f"SELECT filename, size, last_modified FROM read_blob([{', '.join(map(quote_text, call.paths))}])")
        asked = (call.function, call.files, call.names_files, *call.options.items())
        key = (asked, tuple(map(tuple, files)), most_bytes)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        names = [str(row[0]) for row in files]
        wide = call.form == "csv" and "encoding" not in call.options and _is_utf_16(names)
        if wide:
            call = dataclasses.replace(call, options={**call.options, "encoding": "'utf-16'"})
        size = sum(row[1] * (_PACKED if row[0].endswith((".gz", ".zst")) else 1) for row in files)
        if size > most_bytes:
            share = "its first 20,480 lines" if call.form == "csv" else "its first 20,480 objects"
            found = CallReading(notes=(f"types by {share}, of {size // 1_000_000:,} MB",))
        elif call.form == "json":
            found = read_objects(call, ask)
        else:
            found = read_types(call, names, ask, words=self._words)
        if call.form == "csv":
            skipped = skipped_lines(call, names[:_MOST_FILES], ask)
            found = found._replace(notes=(*skipped, *found.notes))
        if wide and found.text is None:
            found = found._replace(text=call.text({}))
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found


def _is_utf_16(names: Sequence[str]) -> bool:
    """Tell whether files say by their first bytes that they are UTF-16 as DuckDB reads it, and Excel writes it."""
    if not names:
        return False
    with contextlib.suppress(OSError, ValueError), Path(names[0]).open("rb") as file:
        return file.read(2) == codecs.BOM_UTF16_LE
    return False


def point_back(error: NbtoolsError, reading: TextReading, sql: str) -> None:
    """Let an error that points into the text that ran point into the one that was written."""
    line, column = error.data.get("line"), error.data.get("column")
    if not reading.edits or not isinstance(line, int) or not isinstance(column, int):
        return
    before = "".join(f"{text}\n" for text in reading.sql.split("\n")[: line - 1])
    line, column = line_and_column(sql, origin(reading.edits, len(before) + column - 1))
    what = error.message.partition("\n")[0].partition(": ")[2]
    error.message = f"line {line}: {what}\n{caret_below(sql, line, column)}"
    error.data = {**error.data, "line": line, "column": column}
