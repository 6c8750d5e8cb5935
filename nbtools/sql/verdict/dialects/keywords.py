"""The head of a statement in a dialect of sqlglot: its first word, EXPLAIN with its options, SHOW with its names.

sqlglot keeps EXPLAIN, SHOW and most commands as text, so these are judged by their words, before sqlglot is asked.
"""

from __future__ import annotations

import re

from nbtools.sql.verdict.dialects.ambiguity import skip_blanks
from nbtools.sql.verdict.verdict import READ_ONLY, Finding

__all__ = ["check_show", "first_word", "is_command", "skip_explain"]

_WORD = re.compile(r"[A-Za-z_]+")
# What sqlglot would keep as text, or read as something else entirely: "listen x" is the column listen called x to it.
_COMMANDS = frozenset(
    """
    abort add alter analyse analyze attach backup begin call checkpoint clear close cluster comment commit copy create
    deallocate declare delete deny detach discard do drop end exec execute export flush force get go grant handler
    import insert install kill list listen load lock merge move notify optimize pragma prepare put reassign refresh
    reindex release rename repair replace reset restore revoke rollback save savepoint security set shutdown signal
    start stop truncate uncache cache undrop unlisten unlock update use vacuum xa
    """.split()  # noqa: SIM905 - words read best as words
)
# Words that may stand between EXPLAIN and the query.
_BARE = frozenset(
    """
    analyze analyse ast codegen cost estimate extended formatted header indexes json pipeline plan query syntax tabular
    text tree using verbose
    """.split()  # noqa: SIM905 - words read best as words
)
_QUERIES = frozenset({"select", "with", "values", "from", "table", "show", "describe"})
_FORMAT = re.compile(r"format\s*(?:=\s*)?[A-Za-z_]+", re.IGNORECASE)
_OPTIONS = re.compile(r"\(\s*[A-Za-z_0-9]+(?:[\s,]+[A-Za-z_0-9]+)*\s*\)")
_SHOW = re.compile(r"""(?:[\w$]+|"[\w$ ]+"|`[\w$ ]+`|'[\w$ %]*'|[.=*]|\s)*;?\s*\Z""")


def first_word(sql: str, dialect: str) -> tuple[str, int]:
    """Return the first word of a text in lower case, and where it starts; an empty word when it is none."""
    at = skip_blanks(sql, 0, dialect)
    found = _WORD.match(sql, at)
    return (found[0].lower() if found else "", at)


def is_command(word: str) -> bool:
    """Tell whether a statement that begins with the word is certainly no query."""
    return word in _COMMANDS


def skip_explain(sql: str, at: int, dialect: str) -> int:
    """Return where the query starts that an EXPLAIN, at the given place, explains."""
    at = _behind_word(sql, at, dialect)
    while True:
        found = _WORD.match(sql, at)
        word = found[0].lower() if found else ""
        if word == "format" and (form := _FORMAT.match(sql, at)):
            at = skip_blanks(sql, form.end(), dialect)
        elif word in _BARE:
            at = _behind_word(sql, at, dialect)
        elif (options := _OPTIONS.match(sql, at)) and not _QUERIES & set(re.findall(r"[a-z]+", options[0].lower())):
            at = skip_blanks(sql, options.end(), dialect)
        else:
            return at


def _behind_word(sql: str, at: int, dialect: str) -> int:
    found = _WORD.match(sql, at)
    return skip_blanks(sql, found.end() if found else at, dialect)


def check_show(sql: str, at: int, dialect: str, words: frozenset[str]) -> Finding | None:
    """Return what is wrong with a SHOW, at the given place, or `None`.

    One of the words must follow, and then it may name things and patterns only.
    """
    behind = _behind_word(sql, at, dialect)
    word = first_word(sql[behind:], dialect)[0]
    if word not in words:
        return Finding(f"SHOW {word.upper()} was not reviewed".replace("  ", " "), at, 4)
    if _SHOW.match(sql, behind) is None:
        return Finding(f"SHOW takes names and patterns only; {READ_ONLY}", at, 4)
    return None
