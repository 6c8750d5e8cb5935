"""Who needs whom: the edges of a workflow, its cycles, and which nodes may be skipped.

A node needs what its ``needs`` names and what its expressions refer to. The rule of skipping: a node whose ``when`` is
false is skipped, and so are those that need it, unless the reference has ``| default(…)`` or the node says ``when:
always``; ``finally: true`` runs whatever happened. All here is pure, so the plan of a run and the checks share it.
"""

from __future__ import annotations

import dataclasses
import graphlib
from collections.abc import Iterable, Iterator, Mapping

from nbtools.workflow.document import Place
from nbtools.workflow.expressions import Expression, parse, walk
from nbtools.workflow.spec import AskNode, NodeFields, NotebookNode, PromptNode, ToolNode, WorkflowNode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edge:
    """That a node needs another: by which place in the node, and whether it is skipped with it."""

    target: str
    loc: Place
    required: bool = True
    reference: Expression | None = None


def texts(node: NodeFields) -> Iterator[tuple[Place, str]]:
    """Yield the texts of a node in which expressions are filled in, with their places in the node."""
    fields: dict[str, object] = {"when": node.when, "for_each": node.for_each}
    if isinstance(node, ToolNode | WorkflowNode):
        fields["args"] = node.args
    elif isinstance(node, NotebookNode):
        fields["parameters"] = node.parameters
    elif isinstance(node, PromptNode):
        fields |= {"prompt": node.prompt, "instructions": node.instructions}
    elif isinstance(node, AskNode):
        words = ("approve", "choose", "question")
        # The words of a question alone: the schema of a form may have `${` in a pattern, and is not filled in.
        fields["ask"] = {name: getattr(node.ask, name) for name in words if hasattr(node.ask, name)}
    yield from walk(fields)


def references(node: NodeFields) -> Iterator[tuple[Place, Expression]]:
    """Yield the expressions of a node, with the places of their texts in the node."""
    for loc, text in texts(node):
        for expression in parse(text).expressions:
            yield loc, expression


def edges(node: NodeFields) -> tuple[Edge, ...]:
    """Return whom a node needs, once for each place that says so.

    Examples
    --------
    >>> node = ToolNode(id="b", tool="t", args={"x": "${nodes.a.text | default('')}"}, needs=["c"])
    >>> [(edge.target, edge.required) for edge in edges(node)]
    [('c', True), ('a', False)]
    """
    needs = [
        Edge(target=expression.node, loc=loc, required=not expression.has_default, reference=expression)
        for loc, expression in references(node)
        if expression.node is not None
    ]
    # A name in `needs` says the order. Where each reference has a default, the node can do without the value.
    softened = {edge.target for edge in needs} - {edge.target for edge in needs if edge.required}
    named = [Edge(target=n, loc=("needs", i), required=n not in softened) for i, n in enumerate(node.needs)]
    return (*named, *needs)


def cycle_of(graph: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return a cycle of a graph, each name needing the next and the first standing again at the end; else nothing."""
    try:
        # Sorted, so that a file with several cycles tells the same one each time.
        graphlib.TopologicalSorter({name: sorted(set(needed)) for name, needed in graph.items()}).prepare()
    except graphlib.CycleError as exc:
        return tuple(reversed(exc.args[1]))
    return ()


def skippable(nodes: Iterable[NodeFields]) -> frozenset[str]:
    """Return the ids of the nodes that a run may skip: by their ``when``, by a refused approval, by a needed one."""
    rest = {node.id: node for node in nodes}
    needed = {name: {edge.target for edge in edges(node) if edge.required} for name, node in rest.items()}
    names = {name for name, node in rest.items() if _may_skip(node)}
    grown = True
    # To a fixed point, since a node may be skipped with one that stands behind it in the file.
    while grown:
        more = {name for name, node in rest.items() if name not in names and not node.always and needed[name] & names}
        names |= more
        grown = bool(more)
    return frozenset(names)


def _may_skip(node: NodeFields) -> bool:
    if isinstance(node, AskNode) and hasattr(node.ask, "approve"):
        return True
    return node.when not in {None, True, "always"}
