"""The rules of each dialect of sqlglot, from its file in ``reviewed``: what is special about a dialect stands there."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from nbtools.sql.verdict.reviewed import names, read

__all__ = ["DialectRules", "rules"]

# A line comment ends at a line feed for everybody; some engines end it earlier, at these.
_OTHER_ENDS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LISTS = (
    *("functions", "table_functions", "shown", "settings", "secret_tables", "sequence_columns"),
    "statement_words",
)


class DialectRules(NamedTuple):
    """What a dialect's file says; names are lower case."""

    dialect: str
    # Includes those that may stand in FROM.
    functions: frozenset[str]
    table_functions: frozenset[str]
    # SHOW displays settings too.
    shown: frozenset[str]
    # Matches a whole line comment.
    line_comment: re.Pattern[str]
    prefixes: tuple[str, ...] = ()
    settings: frozenset[str] = frozenset()
    secret_tables: frozenset[str] = frozenset()
    secret_schema: str = ""
    sequence_columns: frozenset[str] = frozenset()
    # A table whose name begins so must be among the table functions.
    setting_prefix: str | None = None
    refused_nodes: Mapping[str, str] = MappingProxyType({})
    hints: bool = False
    linked_servers: bool = False
    # In a plain string a backslash before a quote is a character to this dialect, and an escape to others.
    plain_backslashes: bool = False
    # Reserved words that begin a statement, where no mark need stand between two statements.
    statement_words: frozenset[str] = frozenset()
    # Text that the engine replaces before it parses, and what a refusal says of it.
    replaced_texts: Mapping[str, str] = MappingProxyType({})


@functools.cache
def rules(dialect: str) -> DialectRules:
    """Return the rules of a dialect."""
    data: dict[str, Any] = {key: names(value) if key in _LISTS else value for key, value in read(dialect).items()}
    in_from = data["functions"] if data.pop("any_function_in_from", False) else data.get("table_functions", frozenset())
    data["table_functions"], data["functions"] = in_from, data["functions"] | in_from
    data["shown"] = data.get("shown", frozenset()) | data.get("settings", frozenset())
    data["prefixes"] = tuple(data.get("prefixes", "").split())
    begin = data.pop("line_comment", "--")
    pattern = re.compile(rf"(?:{begin})[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)")
    return DialectRules(dialect=dialect, line_comment=pattern, **data)
