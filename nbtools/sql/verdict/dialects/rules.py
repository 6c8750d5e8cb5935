"""The rules of each dialect of sqlglot, from its file in ``reviewed``: what is special about a dialect stands there."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

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
    prefixes: tuple[str, ...]
    shown: frozenset[str]
    settings: frozenset[str]
    secret_tables: frozenset[str]
    secret_schema: str
    sequence_columns: frozenset[str]
    # A table whose name begins so must be among the table functions.
    setting_prefix: str | None
    refused_nodes: Mapping[str, str]
    hints: bool
    linked_servers: bool
    # Matches a whole line comment.
    line_comment: re.Pattern[str]
    # In a plain string a backslash before a quote is a character to this dialect, and an escape to others.
    plain_backslashes: bool
    # Reserved words that begin a statement, where no mark need stand between two statements.
    statement_words: frozenset[str]
    # Text that the engine replaces before it parses, and what a refusal says of it.
    replaced_texts: Mapping[str, str]


@functools.cache
def rules(dialect: str) -> DialectRules:
    """Return the rules of a dialect."""
    data = read(dialect)
    lists = {key: names(data.get(key, "")) for key in _LISTS}
    if data.get("any_function_in_from"):
        lists["table_functions"] = lists["functions"]
    lists["functions"] |= lists["table_functions"]
    # SHOW displays settings too.
    lists["shown"] |= lists["settings"]
    begin = data.get("line_comment", "--")
    return DialectRules(
        dialect=dialect,
        **lists,
        prefixes=tuple(data.get("prefixes", "").split()),
        secret_schema=data.get("secret_schema", ""),
        setting_prefix=data.get("setting_prefix"),
        refused_nodes=data.get("refused_nodes", {}),
        hints=data.get("hints", False),
        linked_servers=data.get("linked_servers", False),
        line_comment=re.compile(rf"(?:{begin})[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)"),
        plain_backslashes=data.get("plain_backslashes", False),
        replaced_texts=data.get("replaced_texts", {}),
    )
