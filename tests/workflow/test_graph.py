"""Who needs whom, and what may be skipped: against plain references, on graphs of any form."""

from __future__ import annotations

import graphlib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from nbtools.workflow.graph import cycle_of, edges, skippable
from nbtools.workflow.spec import NODE, NodeFields

_NAMES = "abcdefg"


@st.composite
def _workflows(draw: st.DrawFn) -> list[NodeFields]:
    nodes = []
    for i, name in enumerate(_NAMES):
        earlier = st.sets(st.sampled_from(_NAMES[:i]), max_size=2) if i else st.just(set())
        refs = {f"x{t}": f"${{nodes.{t}.text{draw(st.sampled_from(['', ' | default(1)']))}}}" for t in draw(earlier)}
        node = {"id": name, "tool": "t", "args": refs, "needs": sorted(draw(earlier))}
        when = draw(st.sampled_from([None, None, "always", "${inputs.go}"]))
        nodes.append(NODE.validate_python(node | ({"when": when} if when else {})))
    return nodes


@given(_workflows(), st.sets(st.sampled_from(_NAMES)))
def test_what_may_be_skipped_is_what_some_run_skips(nodes: list[NodeFields], refused: set[str]) -> None:
    """Play a run in which some conditions are false: nothing is skipped that was not foreseen."""
    skipped: set[str] = set()
    for node in nodes:
        hard = {edge.target for edge in edges(node) if edge.required}
        by_itself = node.when == "${inputs.go}" and node.id in refused
        if by_itself or (hard & skipped and node.when != "always"):
            skipped.add(node.id)
    foreseen = skippable(nodes)
    assert skipped <= foreseen
    if refused == set(_NAMES):
        assert skipped == foreseen


@given(st.dictionaries(st.sampled_from(_NAMES), st.sets(st.sampled_from(_NAMES))))
def test_a_cycle_is_one_and_is_found_when_there_is_one(graph: dict[str, set[str]]) -> None:
    cycle = cycle_of(graph)
    for one, other in itertools.pairwise(cycle):
        assert other in graph[one]
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError:
        assert cycle
        assert cycle[0] == cycle[-1]
    else:
        assert not cycle


def test_needs_and_references_are_edges_with_their_places() -> None:
    node = NODE.validate_python(
        {
            "id": "z",
            "prompt": "${nodes.a.text} ${nodes.b.text | default('')}",
            "needs": ["b", "c"],
            "when": "${nodes.d.ok}",
        }
    )
    found = [(edge.target, edge.loc, edge.required) for edge in edges(node)]
    assert found == [
        ("b", ("needs", 0), False),
        ("c", ("needs", 1), True),
        ("d", ("when",), True),
        ("a", ("prompt",), True),
        ("b", ("prompt",), False),
    ]


def test_a_refused_approval_skips_whoever_needs_it() -> None:
    nodes = [
        NODE.validate_python({"id": "ask", "ask": {"approve": "Go on?"}}),
        NODE.validate_python({"id": "send", "code": "1", "needs": ["ask"]}),
        NODE.validate_python({"id": "tidy", "code": "1", "needs": ["send"], "finally": True}),
        NODE.validate_python({"id": "other", "code": "1"}),
    ]
    assert skippable(nodes) == {"ask", "send"}
