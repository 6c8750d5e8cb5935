"""The rules of each dialect of sqlglot, from its file in ``reviewed``: what is special about a dialect stands there."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from nbtools.sql.verdict.reviewed import names, read

# A line comment ends at a line feed for everybody; some engines end it earlier, at these.
_OTHER_ENDS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LISTS = (
    *("functions", "table_functions", "show_words", "settings", "secret_tables", "sequence_columns"),
    *("statement_words", "file_formats"),
)


class DialectRules(NamedTuple):
    """What a dialect's file says; names are lower case."""

    dialect: str
    # The dialect of sqlglot that parses it.
    parser: str
    # Includes those that may stand in FROM.
    functions: frozenset[str]
    table_functions: frozenset[str]
    # SHOW displays settings too.
    show_words: frozenset[str]
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
    # Before a dot these name the form of a file.
    file_formats: frozenset[str] = frozenset()
    # Reserved words that begin a statement, where no mark need stand between two statements.
    statement_words: frozenset[str] = frozenset()
    # Text that the engine replaces before it parses, and what a refusal says of it.
    replaced_texts: Mapping[str, str] = MappingProxyType({})
    # Tokens that are operators elsewhere, and what a refusal says of them.
    refused_tokens: Mapping[str, str] = MappingProxyType({})
    # Whether double quotes hold texts, in which a backslash escapes.
    quoted_texts: bool = False
    # Whether ?1 is one word, a placeholder, which sqlglot takes for two.
    numbered_marks: bool = False
    # Matches names of the server's own functions that lead out and can stand behind a value and a dot.
    dotted_functions: re.Pattern[str] | None = None
    # Functions of the connection that a query can call as if they were columns: t.f is f(t). Those with a dot before
    # their name take no row: only a value in brackets calls them.
    row_functions: frozenset[str] = frozenset()


@functools.cache
def rules(dialect: str) -> DialectRules:
    """Return the rules of a dialect."""
    data: dict[str, Any] = {key: names(value) if key in _LISTS else value for key, value in read(dialect).items()}
    in_from = data["functions"] if data.pop("any_function_in_from", False) else data.get("table_functions", frozenset())
    data["table_functions"], data["functions"] = in_from, data["functions"] | in_from
    data["show_words"] = data.get("show_words", frozenset()) | data.get("settings", frozenset())
    data["prefixes"] = tuple(data.get("prefixes", "").split())
    begin = data.pop("line_comment", "--")
    pattern = re.compile(rf"(?:{begin})[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)")
    if "dotted_functions" in data:
        data["dotted_functions"] = re.compile(data["dotted_functions"])
    return DialectRules(dialect=dialect, line_comment=pattern, **{"parser": dialect} | data)
