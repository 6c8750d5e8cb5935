"""The node schema of DuckDB's syntax tree: kinds of nodes, their keys that hold further nodes, and their other keys.

A node of a kind that is not in ``reviewed/duckdb_tree.toml``, or with a key that is not there, is refused: the
checker cannot judge what it does not know.
"""

from __future__ import annotations

from nbtools.sql.verdict.reviewed import names, read, reasons

Shape = tuple[tuple[str, ...], frozenset[str]]


def _shape(keys: str, always: str) -> Shape:
    children, _, leaves = keys.partition("|")
    return tuple(children.split()), names(children, leaves, always)


_TREE = read("duckdb_tree")
# Nodes with a class are expressions and are known by it; others by their type.
SHAPES: dict[str, Shape] = {
    kind: _shape(keys, group["always"])
    for group in _TREE["nodes"].values()
    for kind, keys in group.items()
    if kind != "always"
}
# Records without a kind.
PLAIN_KEYS = names(_TREE["records"]["keys"])
PLAIN_LEAVES = names(_TREE["records"]["without_nodes"])
# Nodes that change something, and the word of the text they come from.
MODIFYING = reasons(_TREE["modifying"])
SHOWS = names(_TREE["show"]["kinds"])
SHOWN = names(_TREE["show"]["named"])
