"""Dynamic PIVOT rewritten so that the engine shows its tree.

``PIVOT t ON year USING sum(x)`` takes its columns from the data. The engine turns it into several statements, which it
will not serialise. With a list of columns, ``ON year IN ('x')``, it is one SELECT. So for judging only, each item of ON
gets such a list; where a query tells the columns, ``IN (SELECT …)``, the list takes its place and the query is judged
on its own. Everything else of the text stays, token by token, so whatever it reads or calls is in the trees.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

from nbtools.sql.verdict.edits import TextEdit, origin, rewrite
from nbtools.sql.verdict.guards import Token, scan

# Words that begin a dynamic PIVOT, that end its list of columns, and that begin a query in its place.
_PIVOTS = frozenset({"pivot", "pivot_wider"})
_ENDS = frozenset({"using", "group", "order", "limit", "offset", "union", "except", "intersect", "having", "qualify"})
_QUERIES = frozenset({"select", "with", "from", "values", "table", "pivot", "describe", "summarize", "show"})


@dataclasses.dataclass(frozen=True)
class Part:
    """A text that stands for a part of the statement, and how its places lead back to the whole."""

    original: str
    edits: tuple[TextEdit, ...] = ()

    @functools.cached_property
    def sql(self) -> str:
        """The text that the engine shows the tree of."""
        return rewrite(self.original, self.edits)

    def origin(self, at: int) -> int:
        """Return the place in the original text, in bytes, of a place in this one."""
        character = origin(self.edits, len(self.sql.encode()[:at].decode()))
        return len(self.original[:character].encode())


def rewrite_dynamic_pivots(sql: str) -> list[Part]:
    """Return the text with constant columns in every PIVOT, and the queries taken out; nothing if there is no PIVOT."""
    tokens = scan(sql)
    depths = _depths(tokens)
    needed_edits: list[TextEdit] = []
    for at, token in enumerate(tokens):
        if token.word in _PIVOTS:
            for start, end in _items(tokens, depths, at):
                needed_edits += _edits(tokens, depths, start, end)
    edits: list[TextEdit] = []
    for edit in sorted(needed_edits):
        # Inside a query that was taken out it is judged there.
        if not edits or edit.start >= edits[-1].end:
            edits.append(edit)
    queries = [Part(" " * len(sql[:start].encode()) + sql[start:end]) for start, end, _ in edits if start < end]
    return [Part(sql, tuple(edits)), *queries] if edits else []


def _depths(tokens: list[Token]) -> list[int]:
    depths, depth = [], 0
    for token in tokens:
        if token.text in {")", "]", "}"}:
            depth -= 1
        depths.append(depth)
        if token.text in {"(", "[", "{"}:
            depth += 1
    return depths


def _items(tokens: list[Token], depths: list[int], pivot: int) -> list[tuple[int, int]]:
    """Return the items of a PIVOT's ON list as ranges of tokens."""
    level = depths[pivot]
    start = None
    end = len(tokens)
    for at in range(pivot + 1, len(tokens)):
        if depths[at] < level or tokens[at].text == ";":
            end = at
            break
        if depths[at] != level:
            continue
        # The source may be a join with its own ON: the last one is the pivot's.
        if tokens[at].word == "on":
            start = at + 1
        elif start is not None and tokens[at].word in _ENDS:
            end = at
            break
    if start is None or start >= end:
        return []
    commas = [at for at in range(start, end) if depths[at] == level and tokens[at].text == ","]
    edges = [start - 1, *commas, end]
    return [(left + 1, right) for left, right in itertools.pairwise(edges) if left + 1 < right]


def _edits(tokens: list[Token], depths: list[int], start: int, end: int) -> list[TextEdit]:
    level = depths[start]
    listed = next((at for at in range(start, end) if depths[at] == level and tokens[at].word == "in"), None)
    if listed is None or not _is_simple(tokens[start:listed]):
        first, last = tokens[start], tokens[end - 1]
        behind = last.start + len(last.text)
        return [TextEdit(first.start, first.start, "("), TextEdit(behind, behind, ") IN ('x') ")]
    opening = listed + 1
    if opening + 1 >= end or tokens[opening].text != "(" or tokens[opening + 1].word not in _QUERIES:
        return []
    closing = next((at for at in range(opening + 1, end) if depths[at] == level and tokens[at].text == ")"), None)
    if closing is None:
        return []
    return [TextEdit(tokens[opening].start + 1, tokens[closing].start, "'x'")]


def _is_simple(tokens: list[Token]) -> bool:
    """Tell whether an item of ON is a column, or an expression in brackets: only these can have a list."""
    if tokens and tokens[0].text == "(":
        return tokens[-1].text == ")"
    return all(token.text == "." or token.kind in {"identifier", "keyword"} for token in tokens)
