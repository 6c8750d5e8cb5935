"""Completion inside SQL: tables, columns, files, keywords, and the functions people use most."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.jupyter.filenames import matching_files
from nbtools.jupyter.patience import within
from nbtools.jupyter.session import Session
from nbtools.jupyter.tables import frames_in

__all__ = ["complete_query"]

_WAIT_S = 0.25
_WORD = re.compile(r"[\w.]*\Z")
_OPEN_QUOTE = re.compile(r"'([^'\n]*)\Z")
_AFTER_TABLE = re.compile(r"\b(from|join|describe|summarize|table)\s+[\w.]*\Z", re.IGNORECASE)
_NAMED_TABLES = re.compile(r"\b(?:from|join)\s+([\w.]+)(?:\s+(?:as\s+)?([a-z_]\w*))?", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<![\w:])[:$]([A-Za-z_]\w*)?\Z")
_SPLIT = re.compile(r"\w+")
_KEYWORDS = _SPLIT.findall("""
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT RIGHT INNER OUTER FULL CROSS ASOF LATERAL ON USING
    AS DISTINCT UNION ALL EXCEPT INTERSECT WITH RECURSIVE CASE WHEN THEN ELSE END AND OR NOT IN IS NULL LIKE ILIKE
    BETWEEN EXISTS OVER PARTITION QUALIFY WINDOW PIVOT UNPIVOT VALUES DESCRIBE SUMMARIZE SHOW EXPLAIN ASC DESC NULLS
    FIRST LAST FILTER INTERVAL CAST DATE TIMESTAMP EXCLUDE REPLACE COLUMNS SAMPLE
""")
_FUNCTIONS = [
    f"{name}("
    for name in _SPLIT.findall("""
        abs avg ceil coalesce concat count date_diff date_part date_trunc dense_rank extract first floor greatest lag
        last lead least length list_aggregate lower ltrim max median min mode ntile nullif quantile_cont rank
        regexp_extract regexp_matches regexp_replace replace round row_number rtrim split_part stddev strftime
        strptime string_agg substring sum trim try_cast unnest upper variance read_csv read_parquet read_json
    """)
]


def complete_query(session: Session, text: str, whole: str, connection: str | None = None) -> tuple[str, list[str]]:
    """Return the fragment at the end of a query and what it may become.

    Parameters
    ----------
    session
        The session of the magics.
    text
        The SQL up to the cursor.
    whole
        All of it: tables are often named behind the columns.
    connection
        The database that is asked; `None` for frames and files.
    """
    quoted = _OPEN_QUOTE.search(text)
    if quoted and text.count("'") % 2:
        return quoted[1], matching_files(quoted[1])
    namespace = session.shell.user_ns
    if parameter := _PARAMETER.search(text):
        return parameter[1] or "", sorted(name for name in namespace if not name.startswith("_"))
    word = _WORD.search(text)
    fragment = word[0] if word else ""
    frames = frames_in(namespace) if connection is None else {}
    tables = [*frames, "nbtools.memory", "nbtools.calls"] if connection is None else _tables_of(session, connection)
    if _AFTER_TABLE.search(text):
        return fragment, [name for name in tables if name.startswith(fragment)]
    columns = _columns(whole, frames)
    before, dot, _ = fragment.rpartition(".")
    if dot:
        return fragment, [f"{before}.{name}" for name in columns.get(before, ())] + tables
    names = sorted({name for found in columns.values() for name in found})
    return fragment, [*names, *tables, *_cased(_KEYWORDS, fragment), *_FUNCTIONS]


def _tables_of(session: Session, connection: str) -> list[str]:
    """Return the tables of a database that was asked before; the first question is not put by a completion."""
    sql = session.opened("sql")
    return [] if sql is None else within(_WAIT_S, lambda: [table["name"] for table in sql.catalog(connection)])


def _columns(query: str, frames: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the columns of each frame that the query names, under its name and its alias."""
    if not frames:
        return {}
    from nbtools.sql.frames import frame_columns

    found: dict[str, list[str]] = {}
    for name, alias in _NAMED_TABLES.findall(query):
        if name in frames:
            found[name] = [column for column, _ in frame_columns(frames[name])]
            if alias:
                found[alias] = found[name]
    return found


def _cased(words: Iterable[str], fragment: str) -> list[str]:
    """Return the words in the case that is being written."""
    return [word.lower() if fragment[:1].islower() else word for word in words]
