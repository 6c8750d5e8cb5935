"""Macros and views of a catalog: a query that uses one is judged by what stands behind it.

A database file may bring macros and views that someone else wrote. A macro may even hide a built-in function, because
its name is found first. The engine then calls it where the text names no function, as SUMMARIZE calls ``avg``, so such
a macro is judged with every query. Each definition is judged once and on its own; what it uses in turn is followed as a
graph, so that no nesting of definitions costs more than their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nbtools.sql.verdict.duckdb.functions import is_built_in
from nbtools.sql.verdict.guards import scan
from nbtools.sql.verdict.verdict import Verdict

Kind = Literal["macro", "view"]
_Bodies = dict[str, list[str]]
# A macro of the file that is read could take the place of any function without a schema, or of an operator. NOT and IS
# NULL are neither.
_MACROS = "SELECT function_name, macro_definition FROM system.main.duckdb_functions()"
_CATALOG = (
    f"{_MACROS} WHERE macro_definition IS NOT NULL AND NOT internal",
    "SELECT view_name, sql FROM system.main.duckdb_views() WHERE NOT internal",
)
_QUERY_WORDS = frozenset({"select", "with", "from", "values", "pivot", "unpivot", "table", "describe", "summarize"})


class DefinitionKey(NamedTuple):
    """A macro or a view, by its lower-case name."""

    kind: Kind
    name: str


# The verdict on a definition by itself, and which others it uses.
Judge = Callable[[str, Kind], tuple[Verdict, Sequence[DefinitionKey]]]
# Why a definition is refused, if it is, which others it uses, and the files that it reads.
_Judged = tuple[str | None, Sequence[DefinitionKey], Sequence[str]]


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
    >>> Definitions({"plus_one": ["a + 1"]}, {}).has(DefinitionKey("macro", "plus_one"))
    True

    Attributes
    ----------
    hiding
        The macros that hide a built-in function.
    """

    def __init__(self, macros: Mapping[str, Sequence[str]], views: Mapping[str, Sequence[str]]) -> None:
        self._bodies: dict[DefinitionKey, tuple[str, ...]] = {}
        for kind, bodies_of in (("macro", macros), ("view", views)):
            for name, bodies in bodies_of.items():
                node = DefinitionKey("macro" if kind == "macro" else "view", name.lower())
                self._bodies[node] = (*self._bodies.get(node, ()), *bodies)
        self.hiding = tuple(key for key in self._bodies if key.kind == "macro" and is_built_in(key.name))
        self._judged: dict[DefinitionKey, _Judged] = {}
        self._lock = threading.Lock()

    def has(self, node: DefinitionKey) -> bool:
        """Tell whether the catalog has a macro or a view of that lower-case name."""
        return node in self._bodies

    def follow(self, node: DefinitionKey, judge: Judge) -> tuple[str | None, Sequence[str]]:
        """Return why a macro or a view is refused, or anything that it uses, else `None`; and the files that they read.

        Parameters
        ----------
        node
            What the query uses.
        judge
            Judges a query by itself, taking every macro and view in it as allowed.
        """
        seen: set[DefinitionKey] = set()
        files, todo = list[str](), [node]
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            reason, used, read = self._one(here, judge)
            files += read
            if reason is not None:
                return reason if here == node else f"its {here.kind} {here.name} is refused: {reason}", files
            todo += used
        return None, files

    def _one(self, node: DefinitionKey, judge: Judge) -> _Judged:
        with self._lock:
            judged = self._judged.get(node)
        if judged is None:
            judged = self._judge(node, judge)
            with self._lock:
                # A definition that reads files is judged each time: links move.
                if judged[0] is None and not judged[2]:
                    self._judged[node] = judged
        return judged

    def _judge(self, node: DefinitionKey, judge: Judge) -> _Judged:
        used, files = list[DefinitionKey](), list[str]()
        for body in self._bodies[node]:
            verdict, keys = judge(_query_of(body), node.kind)
            files += verdict.files
            if not verdict.allowed:
                return verdict.reasons[0].partition(": ")[2], (), files
            used += keys
        return None, used, files


def read_definitions(select: Callable[[str], Sequence[tuple[Any, ...]]]) -> tuple[_Bodies, _Bodies]:
    """Return the macros and the views of a catalog, name to definitions; `select` runs a query and returns its rows."""
    all_bodies: list[_Bodies] = []
    for query in _CATALOG:
        bodies: _Bodies = {}
        for name, body in select(query):
            bodies.setdefault(name.lower(), []).append(body)
        all_bodies.append(bodies)
    return all_bodies[0], all_bodies[1]


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
