"""Complexity limits: how much work and stack sqlglot may need for a text, estimated only from its tokens.

A text can bomb a parser by recursive descent without a single bracket. ``CASE WHEN CASE WHEN …`` nests; the compiled
sqlglot recurses in C, which Python's own limit does not always stop, and a full stack ends the process. sqlglot tries
joins without a condition twice each, so thirty of them take hours; it copies chains such as ``a[1][1]…`` at each link.
So passes over the tokens limit, before the parser runs:

- brackets, and brackets of types in each other (the parser reads those twice at each level);
- joins still without a condition: each doubles the work for what follows;
- links of a chain behind a bracket, and steps of a pipe: the work grows with their square;
- tokens that may open something: as many as fit on the stack of the thread that parses.

A short text within these limits is parsed in the caller's thread, a longer one in a thread with a stack of its size.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from nbtools.sql.verdict.guards import MAX_DEPTH
from nbtools.sql.verdict.reviewed import names, read
from nbtools.sql.verdict.verdict import Finding

T = TypeVar("T")

# sqlglot reads a type with brackets twice at each level, so ten levels are a thousand readings.
_MAX_TYPES = 10
# Steps of the parser, roughly: a second of the interpreted form.
_MAX_WORK = 200_000
# Each link of a chain copies the links before it, and each step of a pipe the steps before it.
_MAX_CHAIN = 150
_MAX_CHAINS = 60_000
_MAX_PIPES = 100
# The most that a level of nesting was seen to take is 2.5 kB; each gets three times that, and the rest is for callers.
_LEVEL_BYTES = 8_192
_MAX_STACK = 512 * 1024 * 1024
# So many levels take 625 kB at the most, see above: any thread has that.
_INLINE_LEVELS = 250
_SPARE_BYTES = 2 * 1024 * 1024
_PAGE = 65_536
_OPENING = frozenset({"L_PAREN", "L_BRACKET", "L_BRACE"})
_CLOSING = frozenset({"R_PAREN", "R_BRACKET", "R_BRACE"})
# Joins that take no condition, and so are never tried twice.
_WITHOUT_CONDITION = frozenset({"CROSS", "NATURAL", "POSITIONAL"})
_STARTING = threading.Lock()


class TokenKinds(NamedTuple):
    """Kinds of tokens of a dialect, as its parser's own objects: comparing these is faster than comparing names."""

    opening: frozenset[Any]
    closing: frozenset[Any]
    leaves: frozenset[Any]
    looped: frozenset[Any]
    calm: frozenset[Any]
    types: frozenset[Any]
    named: dict[str, Any]


@functools.cache
def _kinds(dialect: str) -> TokenKinds:
    from sqlglot import TokenType
    from sqlglot.dialects.dialect import Dialect

    lists = read("sqlglot")
    # Nothing is nested in a leaf; behind an operand the parser reads some operators in a loop, not by recursion.
    leaves, looped = names(lists["leaf_tokens"]), names(lists["looped_tokens"])

    def of(words: frozenset[str]) -> frozenset[Any]:
        return frozenset(kind for kind in TokenType if kind.name in words)

    return TokenKinds(
        opening=of(_OPENING),
        closing=of(_CLOSING),
        leaves=of(leaves | _CLOSING | _OPENING),
        looped=of(looped),
        calm=of(_WITHOUT_CONDITION),
        types=frozenset(Dialect.get_or_raise(dialect).parser_class.TYPE_TOKENS),
        named={kind.name: kind for kind in TokenType},
    )


def find_excess(tokens: list[Any], dialect: str) -> Finding | None:
    """Return what would keep the parser busy for too long, or `None`."""
    kinds = _kinds(dialect)
    if len(tokens) < _MAX_TYPES:
        return None
    return (
        _find_deep_nesting(tokens, kinds)
        or _find_bare_queries(tokens, kinds)
        or _find_open_joins(tokens, kinds)
        or _find_long_chains(tokens, kinds)
    )


def _find_deep_nesting(tokens: list[Any], kinds: TokenKinds) -> Finding | None:
    """Find brackets, or brackets of types, that nest too deep."""
    opening, closing, types = kinds.opening, kinds.closing, kinds.types
    less, greater = kinds.named["LT"], kinds.named["GT"]
    opened: list[bool] = []
    typed = 0
    previous: Any = None
    for token in tokens:
        kind = token.token_type
        if kind in opening or (kind == less and previous in types):
            opened.append(previous in types)
            typed += opened[-1]
            if len(opened) > MAX_DEPTH:
                return Finding(f"brackets nest deeper than {MAX_DEPTH}", token.start)
            if typed > _MAX_TYPES:
                return Finding(f"types with brackets nest deeper than {_MAX_TYPES}", token.start)
        elif opened and (kind in closing or kind == greater):
            typed -= opened.pop()
        previous = kind
    return None


def _find_bare_queries(tokens: list[Any], kinds: TokenKinds) -> Finding | None:
    """Find queries in FROM without brackets, which only sqlglot takes: it copies such tables at each level."""
    source, queries = kinds.named["FROM"], {kinds.named["FROM"], kinds.named["SELECT"]}
    previous: Any = None
    for token in tokens:
        kind = token.token_type
        if previous == source and kind in queries:
            return Finding("a query in FROM must be in parentheses", token.start, 4, "SQL_INVALID")
        previous = kind
    return None


def _find_open_joins(tokens: list[Any], kinds: TokenKinds) -> Finding | None:
    """Find joins without a condition that would be tried so often that it takes too long; and steps of a pipe."""
    joins = {kinds.named[name] for name in ("JOIN", "STRAIGHT_JOIN") if name in kinds.named}
    conditions = {kinds.named["ON"], kinds.named["USING"]}
    pipe = kinds.named.get("PIPE_GT")
    levels = [0]
    waiting = piped = 0
    # Each join that waits for its condition doubles the work; a hundred tokens are parsed as one.
    most = max(1, (_MAX_WORK // max(200, len(tokens))).bit_length() - 1)
    method: Any = None
    for token in tokens:
        kind = token.token_type
        if kind in joins and method not in kinds.calm:
            levels[-1] += 1
            waiting += 1
            if waiting > most:
                return Finding(f"more than {most} joins in a row have no condition; write CROSS JOIN", token.start, 4)
        elif kind == pipe:
            piped += 1
            if piped > _MAX_PIPES:
                return Finding(f"more than {_MAX_PIPES} steps of a pipe", token.start, 2)
        elif kind in conditions and levels[-1]:
            levels[-1] -= 1
            waiting -= 1
        elif kind in kinds.opening:
            levels.append(0)
        elif kind in kinds.closing and len(levels) > 1:
            waiting -= levels.pop()
        method = kind
    return None


def _find_long_chains(tokens: list[Any], kinds: TokenKinds) -> Finding | None:
    """Find chains of brackets, ``a[1].f(2)[3]…``, that are too long to be copied at each link."""
    dot, cast = kinds.named["DOT"], kinds.named["DCOLON"]
    chains = [0]
    cost = 0
    previous: Any = None
    for token in tokens:
        kind = token.token_type
        if kind in kinds.opening:
            chains[-1] += 1
            cost += chains[-1]
            if chains[-1] > _MAX_CHAIN or cost > _MAX_CHAINS + len(tokens):
                return Finding(f"brackets follow each other in chains of more than {_MAX_CHAIN} links", token.start)
            chains.append(0)
        elif kind in kinds.closing:
            if len(chains) > 1:
                chains.pop()
        elif kind not in {dot, cast} and previous not in {dot, cast}:
            chains[-1] = 0
        previous = kind
    return None


def stack_bytes(tokens: list[Any], dialect: str) -> int | None:
    """Return the stack that parsing may take; 0 when any thread's own will do, `None` when no stack is that large."""
    if len(tokens) <= _INLINE_LEVELS:
        return 0
    kinds = _kinds(dialect)
    leaves, looped = kinds.leaves, kinds.looped
    levels = 0
    operand = False
    for token in tokens:
        kind = token.token_type
        if kind in leaves:
            operand = kind not in kinds.opening and kind != kinds.named["COMMA"]
        else:
            levels += not (operand and kind in looped)
            operand = False
    if levels <= _INLINE_LEVELS:
        return 0
    size = (levels + MAX_DEPTH) * _LEVEL_BYTES + _SPARE_BYTES
    return None if size > _MAX_STACK else -(-size // _PAGE) * _PAGE


def run_on_stack(size: int, work: Callable[[], T]) -> T:
    """Run `work` in a thread with a stack of that many bytes and return what it returns.

    Raises
    ------
    RecursionError
        The system grants no such stack.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as exc:
            failed.append(exc)

    thread = threading.Thread(target=run, name="nbtools-parse", daemon=True)
    with _STARTING:
        # The size holds for whichever thread starts next, so others wait; memory is taken only as it is used.
        before = threading.stack_size(size)
        try:
            thread.start()
        except RuntimeError as exc:
            raise RecursionError(f"no stack of {size:,} bytes for the parser") from exc
        finally:
            threading.stack_size(before)
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
