"""The head of a statement in a dialect of sqlglot: its first word, EXPLAIN with its options, SHOW with its names.

sqlglot keeps EXPLAIN, SHOW and most commands as text, so these are judged by their words, before sqlglot is asked.
"""

from __future__ import annotations

import re

from nbtools.sql.verdict.dialects.ambiguity import skip_blanks
from nbtools.sql.verdict.dialects.rules import DialectRules
from nbtools.sql.verdict.reviewed import names, read
from nbtools.sql.verdict.verdict import READ_ONLY, Finding

_COMMANDS, _EXPLAIN_OPTIONS = (names(read("sqlglot")[key]) for key in ("commands", "explain_options"))
_WORD = re.compile(r"[A-Za-z_]+")
_QUERIES = frozenset({"select", "with", "values", "from", "table", "show", "describe"})
_FORMAT = re.compile(r"format\s*(?:=\s*)?[A-Za-z_]+", re.IGNORECASE)
_OPTIONS = re.compile(r"\(\s*[A-Za-z_0-9]+(?:[\s,]+[A-Za-z_0-9]+)*\s*\)")
# Names, quoted names and patterns with the signs between them; no bracket, so no call and no query.
_SHOW = re.compile(r"""(?:[\w$]+|"[\w$ ]+"|`[\w$ ]+`|'[\w$ %]*'|[.=*]|\s)*;?\s*\Z""")


def first_word(sql: str, rules: DialectRules) -> tuple[str, int]:
    """Return the first word of a text in lower case, and where it starts; an empty word if there is none."""
    at = skip_blanks(sql, 0, rules)
    match = _WORD.match(sql, at)
    return (match[0].lower() if match else "", at)


def is_command(word: str) -> bool:
    """Tell whether a statement that begins with the word is certainly not a query."""
    return word in _COMMANDS


def skip_explain(sql: str, at: int, rules: DialectRules) -> int:
    """Return where the query starts that an EXPLAIN, at the given place, explains."""
    at = _behind_word(sql, at, rules)
    while True:
        match = _WORD.match(sql, at)
        word = match[0].lower() if match else ""
        if word == "format" and (form := _FORMAT.match(sql, at)):
            at = skip_blanks(sql, form.end(), rules)
        elif word in _EXPLAIN_OPTIONS:
            at = _behind_word(sql, at, rules)
        # Brackets hold options, or the query itself: SQL's own words decide.
        elif (options := _OPTIONS.match(sql, at)) and not _QUERIES & set(re.findall(r"[a-z]+", options[0].lower())):
            at = skip_blanks(sql, options.end(), rules)
        else:
            return at


def _behind_word(sql: str, at: int, rules: DialectRules) -> int:
    match = _WORD.match(sql, at)
    return skip_blanks(sql, match.end() if match else at, rules)


def check_show(sql: str, at: int, rules: DialectRules) -> Finding | None:
    """Return what is wrong with a SHOW, at the given place, or `None`.

    A reviewed word must follow, and then only names and patterns.
    """
    behind = _behind_word(sql, at, rules)
    word = first_word(sql[behind:], rules)[0]
    if word not in rules.show_words:
        return Finding(f"SHOW {word.upper()} has not been reviewed".replace("  ", " "), at, 4)
    if _SHOW.match(sql, behind) is None:
        return Finding(f"SHOW takes names and patterns only; {READ_ONLY}", at, 4)
    return None
