"""Dynamic PIVOT rewritten so that the engine shows its tree.

``PIVOT t ON year USING sum(x)`` takes its columns from the data. The engine turns it into several statements, which it
will not serialise. With a list of columns, ``ON year IN ('x')``, it is one SELECT. So for judging only, each item of ON
gets such a list; where a query tells the columns, ``IN (SELECT …)``, the list takes its place and the query is judged
on its own. Everything else of the text stays, token by token, so whatever it reads or calls is in the trees.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import NamedTuple

from nbtools.sql.verdict.guards import Token, scan

# Words that begin a dynamic PIVOT, that end its list of columns, and that begin a query in its place.
_PIVOTS = frozenset({"pivot", "pivot_wider"})
_ENDS = frozenset({"using", "group", "order", "limit", "offset", "union", "except", "intersect", "having", "qualify"})
_QUERIES = frozenset({"select", "with", "from", "values", "table", "pivot", "describe", "summarize", "show"})


class _Edit(NamedTuple):
    """Characters from start to end give way to a text."""

    start: int
    end: int
    text: str
    is_query: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewrittenPivots:
    """A text with constant columns in its pivots, the queries taken out, and where text was put in or taken out."""

    sql: str
    queries: tuple[str, ...]
    # (place in the patched text, bytes added there), in order.
    shifts: tuple[tuple[int, int], ...]

    def origin(self, at: int) -> int:
        """Return the place in the original text, in bytes, of a place in the patched text."""
        moved = at
        for position, added in self.shifts:
            if position < at:
                moved -= min(added, at - position) if added > 0 else added
        return moved


def rewrite_dynamic_pivots(sql: str) -> RewrittenPivots | None:
    """Return the text with constant columns in every PIVOT, or `None` when no PIVOT of the kind is found."""
    tokens = scan(sql)
    depths = _depths(tokens)
    edits: list[_Edit] = []
    for at, token in enumerate(tokens):
        if token.word in _PIVOTS:
            for start, end in _items(tokens, depths, at):
                edits += _edits(tokens, depths, start, end)
    return _apply_edits(sql, edits) if edits else None


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


def _edits(tokens: list[Token], depths: list[int], start: int, end: int) -> list[_Edit]:
    level = depths[start]
    listed = next((at for at in range(start, end) if depths[at] == level and tokens[at].word == "in"), None)
    if listed is None or not _is_simple(tokens[start:listed]):
        first, last = tokens[start], tokens[end - 1]
        behind = last.start + len(last.text)
        return [_Edit(first.start, first.start, "("), _Edit(behind, behind, ") IN ('x') ")]
    opening = listed + 1
    if opening + 1 >= end or tokens[opening].text != "(" or tokens[opening + 1].word not in _QUERIES:
        return []
    closing = next((at for at in range(opening + 1, end) if depths[at] == level and tokens[at].text == ")"), None)
    if closing is None:
        return []
    return [_Edit(tokens[opening].start + 1, tokens[closing].start, "'x'", is_query=True)]


def _is_simple(tokens: list[Token]) -> bool:
    """Tell whether an item of ON is a column, or an expression in brackets: only these can have a list."""
    if tokens and tokens[0].text == "(":
        return tokens[-1].text == ")"
    return all(token.text == "." or token.kind in {"identifier", "keyword"} for token in tokens)


def _apply_edits(sql: str, edits: list[_Edit]) -> RewrittenPivots:
    queries: list[str] = []
    parts: list[str] = []
    shifts: list[tuple[int, int]] = []
    seen = length = 0
    for edit in sorted(edits):
        if edit.start < seen:
            continue  # inside a query that was taken out: it is judged there
        if edit.is_query:
            queries.append(" " * len(sql[: edit.start].encode()) + sql[edit.start : edit.end])
        unchanged = sql[seen : edit.start]
        parts += [unchanged, edit.text]
        length += len(unchanged.encode())
        shifts.append((length, len(edit.text) - len(sql[edit.start : edit.end].encode())))
        length += len(edit.text)
        seen = edit.end
    parts.append(sql[seen:])
    return RewrittenPivots(sql="".join(parts), queries=tuple(queries), shifts=tuple(shifts))
