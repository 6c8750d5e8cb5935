"""DuckDB's own syntax tree of a statement (``json_serialize_sql``).

The engine's parser runs on a private, locked connection that has neither files nor network, and nothing of the text is
executed. Empty and default fields are left out of the tree, which halves the time; every node keeps its kind.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections.abc import Iterator
from typing import Any, cast

from nbtools.errors import Interrupted
from nbtools.texts.sql_quotes import quote_text

Tree = dict[str, Any]

_PREPARE = "PREPARE tree AS SELECT json_serialize_sql(?, skip_empty := true, skip_null := true, skip_default := true)"
# The optimizer costs more than it saves on one constant call.
_SETTINGS = (
    "SET autoload_known_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET memory_limit = '1GB'",
    "SET enable_progress_bar = false",
    "PRAGMA disable_optimizer",
    _PREPARE,
    "SET lock_configuration = true",
)


@contextlib.contextmanager
def stopped_by_person() -> Iterator[None]:
    """Raise `Interrupted` for the Stop that DuckDB meets in the main thread, and turns into another error."""
    try:
        yield
    except RuntimeError as exc:
        if str(exc) == "Query interrupted":
            raise Interrupted from None
        raise


class _ParserConnection:
    """One connection behind a lock: a verdict takes less than a millisecond, so callers wait little."""

    def __init__(self) -> None:
        import duckdb

        self._lock = threading.Lock()
        # The parser works in the calling thread; others would only idle.
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        for setting in _SETTINGS:
            self._connection.execute(setting)

    def tree(self, sql: str) -> Tree:
        # EXECUTE takes no bound values; doubling is how a plain literal writes a quote, and it knows no other escape.
        with self._lock:
            rows = self._connection.execute(f"EXECUTE tree({quote_text(sql)})").fetchall()
        return cast("Tree", json.loads(rows[0][0]))

    def statements(self, sql: str) -> list[Any]:
        with self._lock:
            statements: list[Any] = self._connection.extract_statements(sql)
        return statements


@functools.cache
def _parser(pid: int) -> _ParserConnection:
    return _ParserConnection()


def parse(sql: str) -> Tree:
    """Return the tree of all statements of a text, or the parser's complaint.

    Returns
    -------
    Tree
        ``{"error": False, "statements": […]}``, or ``error`` true with ``error_type``, ``error_message`` and, for a
        mistake in the syntax, ``position`` in bytes.
    """
    # A forked child must not share the parent's connection.
    with stopped_by_person():
        return _parser(os.getpid()).tree(sql)


def kinds(sql: str) -> list[str]:
    """Return the kind of each statement of a text, such as ``["SELECT"]``; ``"UNKNOWN"`` for what has no name."""
    names: list[str] = []
    with stopped_by_person():
        statements = _parser(os.getpid()).statements(sql)
    for statement in statements:
        try:
            names.append(statement.type.name)
        except ValueError:
            names.append("UNKNOWN")
    return names
