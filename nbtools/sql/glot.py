"""sqlglot's view of a statement: the second opinion for DuckDB, and the first for every other dialect.

sqlglot is asked only after its own tokens have been counted: brackets that nest too deep would overflow the stack of
its compiled form, and type names with brackets in each other double its work at each level.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any

from nbtools.sql.guards import MAX_DEPTH
from nbtools.sql.verdict import READ_ONLY, Finding

__all__ = ["listening", "modifying", "place", "read_tokens", "read_trees", "word"]

_MAX_TYPES = 10
# What is a statement of its own, or changes something inside a query. Named as text: which classes exist depends on
# the release, and importing sqlglot is what this module puts off.
_MODIFYING = """
    AddPartition Alter AlterColumn AlterSession Analyze Attach Block Cache Clone Command Comment Commit
    ConditionalInsert Copy Create Declare Delete Detach Directory DropPartition Drop EndStatement Execute ExecuteSql
    Export Get Grant IfBlock Insert Install Into Kill ListStage LoadData Lock LockingStatement LoopBlock Merge
    MultitableInserts NextValueFor OnConflict Pragma Put Refresh RepeatBlock ReplacePartition Returning Revoke
    Rollback Set SetItem StoredProcedure SwapTable Transaction TruncateTable Uncache Undrop Update Use WhileBlock
"""
_OPENING = frozenset({"L_PAREN", "L_BRACKET", "L_BRACE"})
_CLOSING = frozenset({"R_PAREN", "R_BRACKET", "R_BRACE"})


class _Ear(logging.Filter):
    """Takes what sqlglot logs in a thread that listens, so that a judgement prints nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.local = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        heard: list[str] | None = getattr(self.local, "heard", None)
        if heard is None:
            return True
        if record.levelno >= logging.WARNING:
            heard.append(record.getMessage())
        return False


@functools.cache
def _ear() -> _Ear:
    ear = _Ear()
    logging.getLogger("sqlglot").addFilter(ear)
    return ear


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect what sqlglot warns about in this thread instead of logging it."""
    local = _ear().local
    before = getattr(local, "heard", None)
    heard: list[str] = []
    local.heard = heard
    try:
        yield heard
    finally:
        local.heard = before


@functools.cache
def _classes() -> tuple[Any, frozenset[type], type]:
    from sqlglot import exp

    named = (getattr(exp, name, None) for name in _MODIFYING.split())
    return exp, frozenset(found for found in named if found is not None), exp.Semicolon


def read_tokens(sql: str, dialect: str) -> list[Any] | Finding:
    """Return sqlglot's tokens, or what is wrong with the text: it cannot be read, or it nests too deep."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import SqlglotError

    try:
        tokens: list[Any] = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError as exc:
        return _wrong(_first_line(exc))
    return _too_deep(tokens, sql, dialect) or tokens


def _wrong(what: str, offset: int = -1, width: int = 1) -> Finding:
    return Finding(what, offset, width, "SQL_INVALID")


def _too_deep(tokens: list[Any], sql: str, dialect: str) -> Finding | None:
    if sql.count("(") + sql.count("[") + sql.count("{") + sql.count("<") <= _MAX_TYPES:
        return None
    types = _type_tokens(dialect)
    opened: list[bool] = []
    typed = 0
    previous: Any = None
    for token in tokens:
        kind = token.token_type
        name = kind.name
        if name in _OPENING or (name == "LT" and previous in types):
            opened.append(previous in types)
            typed += opened[-1]
            if len(opened) > MAX_DEPTH:
                return Finding(f"brackets nest deeper than {MAX_DEPTH}", token.start)
            if typed > _MAX_TYPES:
                return Finding(f"types with brackets nest deeper than {_MAX_TYPES}", token.start)
        elif (name in _CLOSING or name == "GT") and opened:
            typed -= opened.pop()
        previous = kind
    return None


@functools.cache
def _type_tokens(dialect: str) -> frozenset[Any]:
    from sqlglot.dialects.dialect import Dialect

    found: frozenset[Any] = frozenset(Dialect.get_or_raise(dialect).parser_class.TYPE_TOKENS)
    return found


def read_trees(sql: str, dialect: str, tokens: list[Any]) -> list[Any] | Finding:
    """Return the trees of a text's statements, empty ones left out, or what is wrong with the text."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, SqlglotError

    try:
        with listening():
            parsed = Dialect.get_or_raise(dialect).parser().parse(tokens, sql)
    except ParseError as exc:
        return _wrong(*_described(exc, sql))
    except (SqlglotError, RecursionError) as exc:
        return _wrong(_first_line(exc))
    except Exception as exc:  # a parser that stumbles has not understood the text
        return _wrong(f"the parser stumbled: {_first_line(exc)}")
    semicolon = _classes()[2]
    return [tree for tree in parsed if tree is not None and not isinstance(tree, semicolon)]


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().split("\n")[0] or type(exc).__name__)[:200].rstrip(".")


def _described(exc: Any, sql: str) -> tuple[str, int, int]:
    """Return what a ParseError says and where, in characters."""
    details = exc.errors[0] if exc.errors else {}
    what = str(details.get("description") or _first_line(exc)).split("\n")[0][:200].rstrip(".")
    highlight = str(details.get("highlight") or "")
    before = len(str(details.get("start_context") or ""))
    line, column = details.get("line"), details.get("col")
    if not line or not column:
        return what, -1, 1
    # The column is that of the token's last character.
    start = sum(len(text) + 1 for text in sql.split("\n")[: line - 1]) + column - max(1, len(highlight))
    return what, max(0, min(start, len(sql))) if before or start > 0 else 0, max(1, len(highlight))


def place(node: Any) -> tuple[int, int]:
    """Return the first place that sqlglot noted in a tree, in characters, and its width."""
    for found in node.walk():
        start, end = found.meta.get("start"), found.meta.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end:
            return start, end - start + 1
    return -1, 1


def modifying(tree: Any) -> list[Finding]:
    """Find, anywhere in a tree, what is a statement of its own or changes something."""
    forbidden = _classes()[1]
    return [
        Finding(f"{word(node)} writes; {READ_ONLY}", *place(node))
        for node in tree.walk()
        if node.__class__ in forbidden
    ]


def word(node: Any) -> str:
    """Return the word of SQL that a node's class stands for: ``TruncateTable`` is TRUNCATE TABLE."""
    name = type(node).__name__
    return "".join(f" {char}" if char.isupper() and at else char for at, char in enumerate(name)).upper()
