"""sqlglot's view of a statement: the second opinion for DuckDB, and the first for every other dialect.

sqlglot parses only after `complexity` has counted its tokens, and on a stack that is large enough for them.

As a second opinion its tree serves one purpose: it shows what changes something. sqlglot makes such a node only of
certain words. A text without any of them is not parsed again (`is_free_of_changes`), which saves most of the time of a
verdict for most queries.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import re
from collections.abc import Iterator
from typing import Any

from nbtools.sql.verdict import complexity
from nbtools.sql.verdict.reviewed import names, read
from nbtools.sql.verdict.verdict import READ_ONLY, Finding

_ONLY_LETTERS = bytes(byte if 65 <= byte <= 90 else 32 for byte in range(256))
# Fewer cannot keep the parser busy, whatever they hold.
_MANY_BRACKETS = 10


# What sqlglot has logged in a thread that asked for it.
_thread_warnings = contextvars.ContextVar[list[str] | None]("thread_warnings", default=None)


def _is_logged(record: logging.LogRecord) -> bool:
    heard = _thread_warnings.get()
    if heard is not None and record.levelno >= logging.WARNING:
        heard.append(record.getMessage())
    return heard is None


@contextlib.contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect what sqlglot warns about in this thread instead of logging it, so that a verdict prints nothing."""
    logging.getLogger("sqlglot").addFilter(_is_logged)
    heard: list[str] = []
    token = _thread_warnings.set(heard)
    try:
        yield heard
    finally:
        _thread_warnings.reset(token)


@functools.cache
def _modifying_classes() -> frozenset[type]:
    from sqlglot import exp

    # Which of the classes exist depends on the release.
    return frozenset(getattr(exp, name) for name in names(read("sqlglot")["modifying"]) if hasattr(exp, name))


@functools.cache
def _changing_words() -> frozenset[bytes]:
    return frozenset(word.encode() for word in names(read("sqlglot")["duckdb_changing_words"]))


def is_free_of_changes(sql: str) -> bool:
    """Tell whether sqlglot's tree of a text for DuckDB is certain to be one statement without anything that changes.

    It is when the text holds none of the words of such nodes, not even in a name, a comment or a string, and no
    semicolon before the end. A text with many square brackets is parsed all the same: they can bomb the parser, and
    only the parse asks `complexity`.
    """
    if sql.count("[") + sql.count("{") > _MANY_BRACKETS or ";" in sql.rstrip().removesuffix(";"):
        return False
    # By the letters alone: "1delete" is a number and a word to sqlglot. In upper case, as sqlglot compares them.
    return _changing_words().isdisjoint(sql.upper().encode().translate(_ONLY_LETTERS).split())


def read_tokens(sql: str, dialect: str) -> list[Any] | Finding:
    """Return sqlglot's tokens, or what is wrong with the text: it cannot be read, or it nests too deep."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import SqlglotError

    try:
        reader = Dialect.get_or_raise(dialect)
        if dialect in names(read("sqlglot")["digit_groups"]):
            reader.NUMBERS_CAN_BE_UNDERSCORE_SEPARATED = True
        tokens: list[Any] = reader.tokenize(sql)
    except SqlglotError as exc:
        return _wrong(_first_line(exc))
    return complexity.find_excess(tokens, dialect) or tokens


def _wrong(what: str, offset: int = -1, width: int = 1) -> Finding:
    return Finding(what, offset, width, "SQL_INVALID")


def read_trees(sql: str, dialect: str, tokens: list[Any]) -> list[Any] | Finding:
    """Return the trees of a text's statements, empty ones left out, or what is wrong with the text."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, SqlglotError

    def work() -> list[Any]:
        # sqlglot logs in the thread that parses.
        with collect_warnings():
            return list(Dialect.get_or_raise(dialect).parser().parse(tokens, sql))

    size = complexity.stack_bytes(tokens, dialect)
    if size is None:
        return Finding("the text contains too many words and operators that may nest to be judged", 0)
    try:
        parsed = work() if size == 0 else complexity.run_on_stack(size, work)
    except ParseError as exc:
        return _wrong(*_locate_error(exc, sql))
    except (SqlglotError, RecursionError) as exc:
        return _wrong(_first_line(exc))
    except Exception as exc:  # a parser that stumbles has not understood the text
        return _wrong(f"the parser failed: {_first_line(exc)}")
    return [tree for tree in parsed if tree is not None and type(tree).__name__ != "Semicolon"]


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().split("\n")[0] or type(exc).__name__)[:200].rstrip(".")


def _locate_error(exc: Any, sql: str) -> tuple[str, int, int]:
    """Return what a ParseError says and where, in characters."""
    details = exc.errors[0] if exc.errors else {}
    what = str(details.get("description") or _first_line(exc)).split("\n")[0][:200].rstrip(".")
    what = re.sub(r"Required \w+: '\w+' missing for <.*>", "something is missing", what)  # in a class of sqlglot's
    highlight = str(details.get("highlight") or "")
    before = len(str(details.get("start_context") or ""))
    line, column = details.get("line"), details.get("col")
    if not line or not column:
        return what, -1, 1
    # The column is that of the token's last character.
    start = sum(len(text) + 1 for text in sql.split("\n")[: line - 1]) + column - max(1, len(highlight))
    return what, max(0, min(start, len(sql))) if before or start > 0 else 0, max(1, len(highlight))


def position(node: Any) -> tuple[int, int]:
    """Return the first place that sqlglot noted in a tree, in characters, and its width."""
    for part in node.walk():
        start, end = part.meta.get("start"), part.meta.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end:
            return start, end - start + 1
    return -1, 1


def find_changes(tree: Any) -> list[Finding]:
    """Find, anywhere in a tree, what is a statement by itself or changes something."""
    forbidden = _modifying_classes()
    return [
        Finding(f"{word(node)} writes; {READ_ONLY}", *position(node))
        for node in tree.walk()
        if node.__class__ in forbidden
    ]


def word(node: Any) -> str:
    """Return the word of SQL that a node's class stands for: ``TruncateTable`` is TRUNCATE TABLE."""
    name = type(node).__name__
    return "".join(f" {char}" if char.isupper() and at else char for at, char in enumerate(name)).upper()
