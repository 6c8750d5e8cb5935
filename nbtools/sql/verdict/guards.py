"""Text guards: what is refused before any parser sees it, because parsers themselves can be bombed.

Brackets nested by the thousand make DuckDB's parser busy for minutes and crash the compiled sqlglot, so a text may be
100 kB long and nest 64 deep. Depth is counted outside quotes and comments, on the engine's own tokens: its lexer is
linear, never recurses, and by definition agrees with its parser about where a quote ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nbtools.sql.verdict.verdict import Finding

# At 20,000 nested brackets the compiled sqlglot ends the process, and DuckDB's parser works for minutes.
MAX_BYTES = 100_000
MAX_DEPTH = 64
_OPEN = frozenset("([{")
_CLOSE = frozenset(")]}")
_ENDS_RUN = frozenset("()[]{},;.*")
_NESTING = "([{!-~+@"
# Shorter texts have no room for that many words.
_MANY_NOTS = MAX_DEPTH * len("NOT ")
_ANALYZE = frozenset({"analyze", "analyse"})
# May stand in WITH, in place of a query.
WRITES = frozenset({"copy", "delete", "insert", "merge", "replace", "truncate", "update", "upsert"})


class Token(NamedTuple):
    """A token of DuckDB's own lexer: its text without the blanks behind it, and its place in characters."""

    text: str
    start: int
    kind: str

    @property
    def word(self) -> str:
        """The token in lower case when it is a bare word, else an empty string."""
        return self.text.lower() if self.kind in {"keyword", "identifier"} and self.text[:1] not in '"`' else ""


def first_bad_character(sql: str) -> Finding | None:
    """Find a NUL or half a surrogate pair, which parsers read in different ways."""
    at = sql.find("\0")
    if at >= 0:
        return Finding("the text contains a NUL character", at, 1, "SQL_INVALID")
    try:
        sql.encode()
    except UnicodeEncodeError as exc:
        return Finding("the text contains half a surrogate pair, which is not a character", exc.start, 1, "SQL_INVALID")
    return None


def size(sql: str) -> Finding | None:
    """Find a text that is longer than `MAX_BYTES` in UTF-8."""
    if len(sql) * 4 <= MAX_BYTES or (length := len(sql.encode())) <= MAX_BYTES:
        return None
    return Finding(f"the text has {length:,} bytes; at most {MAX_BYTES:,} are allowed", 0)


def scan(sql: str) -> list[Token]:
    """Return the tokens of DuckDB's lexer, comments left out."""
    import duckdb

    marks = duckdb.tokenize(sql)
    # The lexer counts bytes, people count characters.
    offsets: Sequence[int] = range(len(sql) + 1)
    if not sql.isascii():
        offsets = [*(at for at, char in enumerate(sql) for _ in char.encode()), len(sql)]
    starts = [*(offsets[start] for start, _ in marks), len(sql)]
    return [
        Token(sql[start:end].rstrip(), start, kind.name)
        for (_, kind), start, end in zip(marks, starts, starts[1:], strict=False)
        if kind.name != "comment"
    ]


def nesting(sql: str) -> Finding | None:
    """Find the bracket, or the operator before an operand, that nests deeper than `MAX_DEPTH`."""
    # Without that many of them there is no such depth, quotes or not: the common case costs nothing.
    if sum(map(sql.count, _NESTING)) + (sql.upper().count("NOT") if len(sql) > _MANY_NOTS else 0) <= MAX_DEPTH:
        return None
    depth = run = 0
    for token in scan(sql):
        is_operator = token.kind == "operator" and not _ENDS_RUN.issuperset(token.text)
        run = run + 1 if is_operator or token.word == "not" else 0
        if run > MAX_DEPTH:
            return Finding(f"more than {MAX_DEPTH} operators in a row", token.start)
        if token.text in _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                return Finding(f"brackets nest deeper than {MAX_DEPTH}", token.start)
        elif token.text in _CLOSE:
            depth = max(0, depth - 1)
    return None


def find_explained(tokens: Sequence[Token]) -> int | None:
    """Return where the statement starts that an EXPLAIN of DuckDB explains; `None` when the text is not an EXPLAIN."""
    if not tokens or tokens[0].word != "explain":
        return None
    at = 1
    if at < len(tokens) and tokens[at].word in _ANALYZE:
        at += 1
    if at + 1 < len(tokens) and tokens[at].text == "(" and tokens[at + 1].word in {*_ANALYZE, "format"}:
        end = next((i for i in range(at, len(tokens)) if tokens[i].text == ")"), None)
        if end is None or not all(_is_option(token) for token in tokens[at + 1 : end]):
            return None
        at = end + 1
    return tokens[at].start if at < len(tokens) else None


def _is_option(token: Token) -> bool:
    return bool(token.word) or token.text == "," or token.kind in {"string_const", "numeric_const"}


def hidden_statement(sql: str) -> str | None:
    """Return the word of a statement that writes and stands in WITH, of a text that DuckDB can parse; else `None`."""
    tokens = scan(sql)
    for before, bracket, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if bracket.text == "(" and token.word in WRITES and before.word in {"as", "materialized"}:
            return token.word.upper()
    return None
