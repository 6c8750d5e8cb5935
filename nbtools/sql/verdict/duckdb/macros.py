"""Macros and views of a catalog: a query that uses one is judged by what stands behind it.

A database file may bring macros and views that somebody else wrote. A macro may even hide a built-in function, because
its name is found first. Each definition is judged once and on its own; what it uses in turn is followed as a graph, so
that no nesting of definitions costs more than their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nbtools.sql.verdict.guards import scan
from nbtools.sql.verdict.verdict import Verdict

__all__ = ["Definitions", "Kind", "Node"]

Kind = Literal["macro", "view"]
_QUERY_WORDS = frozenset({"select", "with", "from", "values", "pivot", "unpivot", "table", "describe", "summarize"})


class Node(NamedTuple):
    """A macro or a view, by its lower-case name."""

    kind: Kind
    name: str


class Definitions:
    """The macros and views of a catalog.

    Parameters
    ----------
    macros
        Name to the definitions under it: expressions, or queries for macros that are used as tables.
    views
        Name to the definitions under it, as ``CREATE VIEW`` statements or queries.

    Examples
    --------
    >>> Definitions({"plus_one": ["a + 1"]}, {}).has("macro", "plus_one")
    True
    """

    def __init__(self, macros: Mapping[str, Sequence[str]], views: Mapping[str, Sequence[str]]) -> None:
        self._bodies: dict[Node, tuple[str, ...]] = {}
        for kind, found in (("macro", macros), ("view", views)):
            for name, bodies in found.items():
                node = Node("macro" if kind == "macro" else "view", name.lower())
                self._bodies[node] = (*self._bodies.get(node, ()), *bodies)
        self._judged: dict[Node, tuple[str | None, tuple[Node, ...]]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._bodies)

    def has(self, kind: Kind, name: str) -> bool:
        """Tell whether the catalog has a macro or a view of that lower-case name."""
        return Node(kind, name) in self._bodies

    @classmethod
    def from_connection(cls, connection: Any) -> Definitions:
        """Read the definitions of all databases that an open DuckDB connection has attached."""
        macros = connection.execute(
            "SELECT lower(function_name), macro_definition FROM duckdb_functions()"
            " WHERE NOT internal AND macro_definition IS NOT NULL"
        ).fetchall()
        views = connection.execute("SELECT lower(view_name), sql FROM duckdb_views() WHERE NOT internal").fetchall()
        return cls(_group(macros), _group(views))

    def refusal(self, node: Node, judge: Callable[[str, Kind], Verdict]) -> str | None:
        """Return why a macro or a view is refused, or anything that it uses; `None` when all may be used.

        Parameters
        ----------
        node
            What the query uses.
        judge
            Judges a query by itself, taking every macro and view in it as allowed.
        """
        seen: set[Node] = set()
        todo = [node]
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            reason, used = self._one(here, judge)
            if reason is not None:
                return reason if here == node else f"its {here.kind} {here.name} is refused: {reason}"
            todo += used
        return None

    def _one(self, node: Node, judge: Callable[[str, Kind], Verdict]) -> tuple[str | None, tuple[Node, ...]]:
        with self._lock:
            known = self._judged.get(node)
        if known is None:
            known = self._judge(node, judge)
            with self._lock:
                # A definition that reads files is judged each time: links move.
                if known[0] is None:
                    self._judged[node] = known
        return known

    def _judge(self, node: Node, judge: Callable[[str, Kind], Verdict]) -> tuple[str | None, tuple[Node, ...]]:
        used: list[Node] = []
        for body in self._bodies[node]:
            verdict = judge(_query_of(body), node.kind)
            if not verdict.allowed:
                return verdict.reasons[0].partition(": ")[2], ()
            used += [Node("macro", name) for name in verdict.functions if Node("macro", name) in self._bodies]
            names = [name.rpartition(".")[2].lower() for name in verdict.tables]
            used += [Node("view", name) for name in names if Node("view", name) in self._bodies]
        return None, tuple(used)


def _group(rows: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, body in rows:
        found.setdefault(name, []).append(body)
    return found


def _query_of(body: str) -> str:
    """Return a definition as a query: a view loses its CREATE, an expression gains a SELECT."""
    tokens = scan(body)
    words = [token.word for token in tokens]
    if words[:1] == ["create"] and "as" in words:
        start = tokens[words.index("as")].start
        return body[start + 2 :].strip().rstrip(";")
    if words and words[0] in _QUERY_WORDS:
        return body
    return f"SELECT ({body}\n)"
