"""Texts that two lexers read in different ways: refused before sqlglot's tree is believed.

For every dialect but DuckDB the verdict rests on sqlglot's tree, while another parser runs the text. Where the two
disagree about what is a comment or a string, code could hide. So only blanks and plain comments that every lexer ends
at the same place may stand between sqlglot's tokens, and each string must end where all lexers agree.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from nbtools.sql.verdict.dialects.rules import DialectRules
from nbtools.sql.verdict.verdict import READ_ONLY, Finding

# Not nested, because half of the engines end it at the first mark; not executable, as in MySQL; not a hint.
_BLOCK = re.compile(r"/\*(?![!+Mm]!?)(?:(?!/\*|\*/).)*\*/|/\*[Mm](?!!)(?:(?!/\*|\*/).)*\*/", re.DOTALL)
_BLANK = re.compile(r"[ \t\r\n\f]+")


def find_ambiguity(sql: str, tokens: list[Any], rules: DialectRules) -> Finding | None:
    """Return the first place that two lexers may read in different ways, or `None`."""
    for text, reason in rules.replaced_texts.items():
        if text in sql:
            return Finding(reason, sql.index(text), len(text))
    seen = 0
    for token in tokens:
        if token.start < seen:
            continue  # One word of the text may be several tokens: 1L is a number and its type.
        finding = _gap(sql, seen, token.start, rules)
        seen = token.end + 1
        finding = finding or _token(sql[token.start : seen], token.start, sql[token.start - 1 : token.start], rules)
        if finding is not None:
            return finding
    return _gap(sql, seen, len(sql), rules) or _statement_word(sql, tokens, rules)


def skip_blanks(sql: str, at: int, rules: DialectRules) -> int:
    """Return the place behind the blanks and plain comments that start at a place."""
    while at < len(sql):
        match = _BLANK.match(sql, at) or _BLOCK.match(sql, at) or rules.line_comment.match(sql, at)
        if match is None or match.end() == at:
            break
        at = match.end()
    return at


def _gap(sql: str, at: int, end: int, rules: DialectRules) -> Finding | None:
    behind = skip_blanks(sql, at, rules)
    if behind == end or (behind > end and end == len(sql)):
        return None
    at = min(behind, end - 1)
    excerpt = sql[at : at + 3].strip() or "blank"
    return Finding(f"what starts here ({excerpt!r}) is a comment or a blank for some parsers only", at, 2)


def _token(raw: str, start: int, before: str, rules: DialectRules) -> Finding | None:
    first = raw[:1]
    if raw.startswith("/*"):
        return None if rules.hints else Finding(f"hints change settings; {READ_ONLY}", start, 3)
    if first == "$" and raw.count("$") > 1 and (before.isalnum() or before in {"_", "$"} or before > "\x7f"):
        return Finding("a dollar quote behind a name is part of the name for some parsers", start, 2)
    if first in {'"', "`", "["} and "\\" in raw and not (first == '"' and rules.quoted_texts):
        return Finding("a backslash in a quoted name is read in two ways", start + raw.index("\\"), 1)
    if raw in rules.refused_tokens:
        return Finding(f"{rules.refused_tokens[raw]}; {READ_ONLY}", start, len(raw))
    if raw in {"{{", "{%", "{#", "\\"}:
        return Finding("templates are not filled in here", start, len(raw))
    return None


def _statement_word(sql: str, tokens: list[Any], rules: DialectRules) -> Finding | None:
    """Find a reserved word that begins a second statement; MERGE JOIN is a hint of a query."""
    for token, following in itertools.zip_longest(tokens, tokens[1:]) if rules.statement_words else ():
        raw = sql[token.start : token.end + 1].lower()
        behind = "" if following is None else sql[following.start : following.end + 1].lower()
        if raw in rules.statement_words and (raw, behind) != ("merge", "join"):
            return Finding(f"{raw.upper()} begins its own statement; {READ_ONLY}", token.start, len(raw))
    return None
