"""A query with its clauses on their own lines: only blanks and line ends change, so it is the same query."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from nbtools.errors import SqlInvalid
from nbtools.sql.verdict.reviewed import names, read
from nbtools.sql.verdict.sqlglot_parser import read_tokens
from nbtools.sql.verdict.verdict import Finding

_INDENT = 2
# A query in brackets that is no longer than this stays on its line.
_SHORT = 60
_CLAUSES, _JOINS = (names(read("sqlglot")["layout"][part]) for part in ("clauses", "joins"))
# A clause whose parts stand on their own lines, and how deep.
_LISTS = {"WITH": 0, "SELECT": _INDENT}
_CONDITIONS = frozenset({"WHERE", "HAVING", "QUALIFY", "JOIN"})
_BEGIN = frozenset({"SELECT", "WITH", "FROM"})
_OPEN, _CLOSE = {"L_PAREN", "L_BRACKET", "L_BRACE"}, {"R_PAREN", "R_BRACKET", "R_BRACE"}


def formatted(sql: str, dialect: str = "duckdb") -> str:
    """Return a query laid out again: each clause, each column and each condition on a line.

    Parameters
    ----------
    sql
        One statement, or several with semicolons between them.
    dialect
        The dialect it is written in, by sqlglot's name.

    Raises
    ------
    SqlInvalid
        The text cannot be read in the dialect, or its brackets do not fit.
    """
    words = _words(sql, dialect)
    text = "\n".join(_SqlLayout(words).lines)
    if [word.text for word in _words(text, dialect)] != [word.text for word in words]:
        raise SqlInvalid("the query is left as it was: laid out again, it would not be the same.")
    return text


@dataclasses.dataclass(slots=True)
class _SqlWord:
    text: str
    kind: str
    # What stood before it in the text: blanks, or none.
    is_apart: bool
    comments: list[tuple[str, bool]]  # the text of each before it, and whether it began a line


def _words(sql: str, dialect: str) -> list[_SqlWord]:
    tokens = read_tokens(sql, dialect)
    if isinstance(tokens, Finding):
        raise SqlInvalid(f"{tokens.what}.", hint="Format a query that can be run.")
    words = []
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        words.append(
            _SqlWord(sql[token.start : token.end + 1], token.token_type.name, gap != "", list(_comments_of(gap)))
        )
        end = token.end + 1
    words.append(_SqlWord("", "", False, list(_comments_of(sql[end:]))))
    return words


def _comments_of(gap: str) -> Iterator[tuple[str, bool]]:
    """Return what is not blank between two tokens, a piece for each comment."""
    at = 0
    while (rest := gap[at:].lstrip()) != "":
        begin = len(gap) - len(rest)
        # Comments in brackets may nest; the last one of a gap ends where the gap does.
        end = _end_of_block(gap, begin) if rest.startswith("/*") else (gap.find("\n", begin) % (len(gap) + 1))
        yield gap[begin:end].rstrip(), "\n" in gap[at:begin]
        at = end


def _end_of_block(gap: str, begin: int) -> int:
    end = gap.find("*/", begin) + 2
    nested = gap.count("/*", begin, end) > 1
    return len(gap) if end < 2 or nested else end


@dataclasses.dataclass(slots=True)
class _Clauses:
    """A query that is being laid out, or what else stands in brackets, in one line."""

    indent: int
    is_flat: bool = False
    # How far the line is indented in which its bracket stands.
    base: int = 0
    clause: str = ""
    cases: int = 0
    is_between: bool = False


class _SqlLayout:
    """The lines of a text.

    Parameters
    ----------
    words
        All words of the text.
    """

    def __init__(self, words: Sequence[_SqlWord]) -> None:
        self.lines: list[str] = []
        self._words = words
        self._line = ""
        self._indent = 0
        # Whether the line ends in a comment that goes on to its end.
        self._is_over = False
        # How far the line that comes next is indented, once what still belongs to this one stands there.
        self._next: int | None = None
        self._open = [_Clauses(indent=0)]
        for at, word in enumerate(words):
            self._add_word(at, word)
        self._end_line(0)
        while self.lines and not self.lines[-1]:
            self.lines.pop()

    def _kind(self, at: int) -> str:
        return self._words[at].kind if 0 <= at < len(self._words) else ""

    def _add_word(self, at: int, word: _SqlWord) -> None:
        query = self._open[-1]
        while word.comments and not word.comments[0][1]:
            self._put_comment(*word.comments.pop(0))
        if self._next is not None:
            self._end_line(self._next)
        if word.kind in _CLOSE and len(self._open) > 1:
            self._open.pop()
            if not query.is_flat:
                self._end_line(query.base)
        elif not query.is_flat:
            self._begin_part(query, at, word.kind)
        self._put(word)
        if word.kind in _OPEN:
            is_flat = word.kind != "L_PAREN" or self._kind(at + 1) not in _BEGIN or self._is_short(at)
            base = len(self._line) - len(self._line.lstrip())
            self._open.append(_Clauses(indent=base + _INDENT, is_flat=is_flat, base=base))
            self._next = None if is_flat else base + _INDENT
        elif not query.is_flat:
            self._end_part(query, at, word.kind)

    def _begin_part(self, query: _Clauses, at: int, kind: str) -> None:
        """Go to the next line where a clause or a condition begins."""
        query.cases += {"CASE": 1, "END": -1}.get(kind, 0)
        before = self._kind(at - 1)
        if query.cases:
            return
        if self._is_clause(at, kind):
            self._end_line(query.indent)
            query.clause = kind
        elif kind in _JOINS and before not in _JOINS and before != "OUTER" and self._kind(at + 1) != "L_PAREN":
            self._end_line(query.indent)
            query.clause = "JOIN"
        elif kind == "WITH" and not query.clause:
            query.clause = "WITH"
        elif kind in {"AND", "OR"} and query.clause in _CONDITIONS and not query.is_between:
            self._end_line(query.indent + _INDENT)
        query.is_between = kind == "BETWEEN" or (query.is_between and kind != "AND")

    def _is_clause(self, at: int, kind: str) -> bool:
        before = self._kind(at - 1)
        is_part = (
            (kind == "FROM" and before == "DISTINCT") or (kind == "EXCEPT" and before == "STAR") or before == "DOT"
        )
        return kind in _CLAUSES and not is_part

    def _end_part(self, query: _Clauses, at: int, kind: str) -> None:
        """Go to the next line behind a comma of a list, and before the first of several columns."""
        if kind == "SEMICOLON" and len(self._open) == 1:
            self._next = 0
            query.clause = ""
        elif kind == "COMMA" and query.clause in _LISTS and not query.cases:
            self._next = query.indent + _LISTS[query.clause]
        elif self._is_head(at) and self._has_several(at):
            self._next = query.indent + _INDENT

    def _is_head(self, at: int) -> bool:
        """Tell whether the columns of a query begin behind a word."""
        kind, after = self._kind(at), self._kind(at + 1)
        is_distinct = kind == "DISTINCT" and self._kind(at - 1) == "SELECT"
        return (kind == "SELECT" and after != "DISTINCT") or (is_distinct and after != "ON")

    def _has_several(self, at: int) -> bool:
        depth = 0
        for here in range(at + 1, len(self._words)):
            kind = self._kind(here)
            depth += (kind in _OPEN) - (kind in _CLOSE)
            if depth < 0 or (depth == 0 and (kind == "SEMICOLON" or self._is_clause(here, kind))):
                return False
            if depth == 0 and kind == "COMMA":
                return True
        return False

    def _is_short(self, at: int) -> bool:
        depth = size = 0
        for here in range(at, len(self._words)):
            word = self._words[here]
            depth += (word.kind in _OPEN) - (word.kind in _CLOSE)
            size += len(word.text) + word.is_apart
            if word.comments or size > _SHORT:
                return False
            if depth == 0:
                return True
        return False

    def _put(self, word: _SqlWord) -> None:
        for comment in word.comments:
            self._put_comment(*comment)
        self._add(word.text, is_apart=word.is_apart)

    def _put_comment(self, text: str, is_first: bool) -> None:
        if is_first and self._line.strip():
            self._end_line(self._indent)
        self._add(text, is_apart=True)
        self._is_over = not text.startswith("/*")

    def _add(self, text: str, *, is_apart: bool) -> None:
        if self._is_over:
            self._end_line(self._indent)
        is_inside = bool(self._line.strip())
        after_comma = self._line.endswith(",")
        self._line += (" " if is_inside and text and (is_apart or after_comma) else "") + text

    def _end_line(self, indent: int) -> None:
        if self._line.strip():
            self.lines.append(self._line.rstrip())
        self._line, self._indent, self._is_over, self._next = " " * indent, indent, False, None
