"""Texts that two lexers read in different ways: refused before sqlglot's tree is believed.

For every dialect but DuckDB the verdict rests on sqlglot's tree, while another parser runs the text. Where the two
disagree about what is a comment or a string, code could hide. So whatever stands between sqlglot's tokens must be
blanks and plain comments that every lexer ends at the same place, and strings must end where all of them agree.
"""

from __future__ import annotations

import re
from typing import Any

from nbtools.sql.verdict.verdict import READ_ONLY, Finding

__all__ = ["ambiguity", "skip_blanks"]

# A line comment ends at a line feed for everybody; some engines end it earlier, at these.
_OTHER_ENDS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE = re.compile(rf"--[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)")
# MySQL needs a blank behind the dashes, or reads two minus signs.
_LINE_MYSQL = re.compile(rf"(?:--(?=[ \t\n]|\r\n|\Z)|#)[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)")
_LINE_HASH = re.compile(rf"(?:--|#)[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)")
_LINE_SLASH = re.compile(rf"(?:--|//)[^\n{_OTHER_ENDS}]*(?:\r?\n|\Z)")
_LINES = {"mysql": _LINE_MYSQL, "bigquery": _LINE_HASH, "snowflake": _LINE_SLASH}
# Not nested, for half of the engines end it at the first mark; not executable, as in MySQL; not a hint.
_BLOCK = re.compile(r"/\*(?![!+Mm]!?)(?:(?!/\*|\*/).)*\*/", re.DOTALL)
_BLOCK_M = re.compile(r"/\*[Mm](?!!)(?:(?!/\*|\*/).)*\*/", re.DOTALL)
_BLANK = re.compile(r"[ \t\r\n\f]+")
# Dialects whose plain strings know no backslash: before a quote it is read in two ways.
_NO_ESCAPES = frozenset({"postgres", "sqlite", "trino", "tsql"})
# What begins a statement in T-SQL, where nothing need stand between two: reserved, so never a bare name.
_TSQL_STATEMENTS = frozenset(
    """
    add alter backup begin break bulk checkpoint close commit continue create dbcc deallocate declare delete deny
    disable drop dump enable exec execute go goto grant if insert kill load merge open print raiserror readtext
    reconfigure restore return revert revoke rollback save send set setuser shutdown throw truncate update updatetext
    use waitfor while writetext
    """.split()  # noqa: SIM905 - eighty words read best as words
)


def ambiguity(sql: str, tokens: list[Any], dialect: str) -> Finding | None:
    """Return the first place that is not read the same way by everybody, or `None`."""
    if dialect == "spark" and "${" in sql:
        return Finding("${…} is filled in before Spark reads the text", sql.index("${"), 2)
    seen = 0
    for token in [*tokens, None]:
        start = len(sql) if token is None else token.start
        found = _gap(sql, seen, start, dialect)
        if found is not None:
            return found
        if token is None:
            break
        seen = token.end + 1
        found = _token(sql[start:seen], start, sql[start - 1 : start], dialect)
        if found is not None:
            return found
    return _statement_words(sql, tokens) if dialect == "tsql" else None


def skip_blanks(sql: str, at: int, dialect: str) -> int:
    """Return the place behind the blanks and plain comments that start at a place."""
    line = _LINES.get(dialect, _LINE)
    while at < len(sql):
        found = _BLANK.match(sql, at) or _BLOCK.match(sql, at) or _BLOCK_M.match(sql, at) or line.match(sql, at)
        if found is None or found.end() == at:
            break
        at = found.end()
    return at


def _gap(sql: str, at: int, end: int, dialect: str) -> Finding | None:
    behind = skip_blanks(sql, at, dialect)
    if behind == end or (behind > end and end == len(sql)):
        return None
    at = min(behind, end - 1)
    shown = sql[at : at + 3].strip() or "blank"
    return (
        Finding(f"what starts here ({shown!r}) is a comment or a blank for some parsers only", at, 2)
        if at < end
        else None
    )


def _token(raw: str, start: int, before: str, dialect: str) -> Finding | None:
    first = raw[:1]
    if raw.startswith("/*"):
        return None if dialect != "mysql" else Finding(f"optimizer hints change settings; {READ_ONLY}", start, 3)
    if first == "$" and raw.count("$") > 1 and (before.isalnum() or before in {"_", "$"} or before > "\x7f"):
        return Finding("a dollar quote behind a name is part of the name for some parsers", start, 2)
    if first in {'"', "`", "["} and "\\" in raw:
        return Finding("a backslash in a quoted name is read in two ways", start + raw.index("\\"), 1)
    if first == "'" and dialect in _NO_ESCAPES and ("\\'" in raw):
        return Finding("a backslash before a quote is read in two ways; double the quote", start + raw.index("\\'"), 2)
    if raw in {"{{", "{%", "{#", "\\"}:
        return Finding("templates are not filled in here", start, len(raw))
    return None


def _statement_words(sql: str, tokens: list[Any]) -> Finding | None:
    texts = [sql[token.start : token.end + 1].lower() for token in tokens]
    for token, raw, following in zip(tokens, texts, [*texts[1:], ""], strict=True):
        if raw in _TSQL_STATEMENTS and not (raw == "merge" and following == "join"):
            return Finding(f"{raw.upper()} begins a statement of its own; {READ_ONLY}", token.start, len(raw))
    return None
