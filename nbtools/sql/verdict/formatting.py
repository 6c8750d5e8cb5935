"""A query with its clauses on lines of their own: the same words to the engine, and the same comments."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nbtools.errors import SqlInvalid
from nbtools.sql.verdict.sqlglot_parser import read_tokens, read_trees
from nbtools.sql.verdict.verdict import Finding


def formatted(sql: str, dialect: str = "duckdb") -> str:
    """Return a query written anew, with the same meaning and the same comments.

    Parameters
    ----------
    sql
        One statement, or several with semicolons between them.
    dialect
        The dialect it is written in, by sqlglot's name.

    Raises
    ------
    SqlInvalid
        The text cannot be read in the dialect, or it would not come out the same.
    """
    from sqlglot.errors import ErrorLevel

    tokens, trees = _read(sql, dialect)
    end = ";" if sql.rstrip().endswith(";") else ""
    options = {"dialect": dialect, "pretty": True, "unsupported_level": ErrorLevel.RAISE}
    try:
        text = _as_written(";\n\n".join(tree.sql(**options) for tree in trees) + end, tokens, dialect)
        again, copies = _read(text, dialect)
    except Exception:  # a writer that stumbles has written nothing
        again, copies = [], []
    # A parser may drop what it has no use for: no name and no value may be missing either.
    if copies != trees or _comments(again) != _comments(tokens) or _words(tokens) - _words(again):
        raise SqlInvalid(
            "the query is left as it was: written anew, it would not be the same to the engine.",
            hint="Format the other parts of it by hand.",
        )
    return text


def _read(sql: str, dialect: str) -> tuple[list[Any], list[Any]]:
    tokens = read_tokens(sql, dialect)
    trees = tokens if isinstance(tokens, Finding) else read_trees(sql, dialect, tokens)
    if isinstance(trees, Finding):
        raise SqlInvalid(f"{trees.what}.", hint="Format a query that can be run.")
    assert not isinstance(tokens, Finding)
    if any(type(tree).__name__ == "Command" for tree in trees):
        raise SqlInvalid("only queries can be formatted.")
    return tokens, trees


def _comments(tokens: Sequence[Any]) -> Counter[str]:
    return Counter(comment.strip() for token in tokens for comment in token.comments)


def _words(tokens: Sequence[Any]) -> Counter[str]:
    kinds = {"VAR", "IDENTIFIER", "STRING", "NUMBER"}
    following = zip(tokens, [*tokens[1:], None], strict=True)
    # What stands before a bracket may be a function with another name of the same meaning.
    return Counter(
        token.text.lower()
        for token, after in following
        if token.token_type.name in kinds and not (token.token_type.name == "VAR" and after and after.text == "(")
    )


def _as_written(text: str, tokens: Sequence[Any], dialect: str) -> str:
    """Give names of files their single quotes, and parameters their colons, as the person wrote them."""
    from sqlglot.dialects.dialect import Dialect

    texts = {token.text for token in tokens if token.token_type.name == "STRING"}
    names = {token.text for token in tokens if token.token_type.name == "IDENTIFIER"}
    colons = {
        after.text for token, after in itertools.pairwise(tokens) if token.text == ":" and after.start == token.end + 1
    }
    changes: list[tuple[int, int, str]] = []
    last = None
    for token in Dialect.get_or_raise(dialect).tokenize(text):
        if token.token_type.name == "IDENTIFIER" and token.text in texts - names:
            changes.append((token.start, token.end + 1, "'" + token.text.replace("'", "''") + "'"))
        if last is not None and last.text == "$" and token.text in colons:
            changes.append((last.start, last.end + 1, ":"))
        last = token
    for start, end, word in reversed(changes):
        text = text[:start] + word + text[end:]
    return text
