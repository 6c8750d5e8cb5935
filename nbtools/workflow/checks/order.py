"""The order of nodes: names in ``needs``, cycles, nodes that can never run, and what waits for the end."""

from __future__ import annotations

from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.findings import allowed
from nbtools.workflow.graph import cycle_of
from nbtools.workflow.spec import NodeFields


def check_order(subject: Subject) -> None:
    """Report needs that cannot be met."""
    for _, node in subject.nodes.values():
        for edge in subject.edges[node.id]:
            loc = subject.loc_of(node, *edge.loc)
            if edge.target not in subject.ids:
                # A reference that leads nowhere is told with its path, by the check of expressions.
                if edge.reference is None:
                    hint = allowed(edge.target, subject.ids, "Nodes")
                    subject.tell("WF026", loc, f"There is no node {edge.target!r}.", hint)
            elif edge.target in subject.nodes and subject.nodes[edge.target][1].finally_ and not node.finally_:
                message = f"{edge.target} runs at the end, after {node.id}."
                subject.tell("WF043", loc, message, "Only nodes with finally: true can need another such node.")
    _check_cycles(subject)
    _check_reach(subject)


def _check_cycles(subject: Subject) -> None:
    graph = {
        name: {edge.target for edge in subject.edges[node.id] if edge.target in subject.nodes}
        for name, (_, node) in subject.nodes.items()
    }
    while cycle := cycle_of(graph):
        # It begins with the node that stands first in the file, so that the same file tells the same cycle.
        first = min(range(len(cycle) - 1), key=lambda i: subject.nodes[cycle[i]][0])
        turned = (*cycle[first:-1], *cycle[: first + 1])
        node = subject.nodes[turned[0]][1]
        edge = next(edge for edge in subject.edges[node.id] if edge.target == turned[1])
        message = f"These nodes need each other: {' → '.join(turned)}."
        if len(turned) == 2:
            message = f"{node.id} needs itself."
        subject.tell("WF041", subject.loc_of(node, *edge.loc), message, "One of them must not need the next.")
        # Without this one the others are found as well, each once.
        graph = {name: needed - set(cycle) for name, needed in graph.items() if name not in cycle}


def _check_reach(subject: Subject) -> None:
    never: dict[str, str] = {}
    for name, (_, node) in subject.nodes.items():
        if node.when is False:
            never[name] = "when"
            subject.tell("WF042", subject.loc_of(node, "when"), f"{name} never runs.", "Take it out, or its condition.")
        elif node.for_each == []:
            never[name] = "for_each"
            subject.tell("WF042", subject.loc_of(node, "for_each"), f"{name} never runs: its list is empty.")
    grown = bool(never)
    while grown:
        grown = False
        for name, (_, node) in subject.nodes.items():
            cause = None if name in never or node.always else _unmet(subject, node, never)
            if cause is not None:
                never[name], grown = cause, True
                subject.tell(
                    "WF042", subject.loc_of(node, "id"), f"{name} never runs: it needs {cause}, which never does."
                )


def _unmet(subject: Subject, node: NodeFields, never: dict[str, str]) -> str | None:
    """Return the needed node that makes a node unreachable; an empty list of items skips nobody."""
    targets = (edge.target for edge in subject.edges[node.id] if edge.required)
    return next((target for target in targets if never.get(target, "for_each") != "for_each"), None)
