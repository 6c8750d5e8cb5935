"""Rows written by DuckDB itself, without Python's hands on them.

Where the query runs on DuckDB in this process, its own COPY writes the file.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nbtools.ground.lazy import duckdb
from nbtools.sql.results.rows import unique_names
from nbtools.texts.sql_quotes import quote_identifier, quote_text

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
        if form not in _COPIES:
            return None
        try:
            opened = os.fstat(file.fileno())
            path = Path(f"/dev/fd/{file.fileno()}").readlink()
            status = path.stat()
        except OSError:  # a file in memory or without a name, or a system whose names of open files are not links
            return None
        is_same = (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino)
        is_new = stat.S_ISREG(opened.st_mode) and not opened.st_size and not file.tell()
        return cls(path, form) if is_same and is_new else None

    def statement(self, sql: str, columns: Sequence[str], types: Sequence[str]) -> str:
        """Return the COPY of a query whose columns and types are known."""
        names = [f"c{index}" for index in range(len(columns))]
        selected = _select_list(names, columns, types, self._form)
        query = query_around(sql, selected, len(names))
        return f"COPY ({query}) TO {quote_text(str(self.path))} ({_COPIES[self._form]}, USE_TMP_FILE false)"


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
