"""The graph of a workflow: where nodes stand, how states are told, and that no text of a file becomes markup."""

from __future__ import annotations

import itertools
import random
import re
import time
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from nbtools.workflow.runs.events import (
    ItemsFound,
    NodeEnded,
    NodeSkipped,
    NodeStarted,
    QuestionAsked,
    RunStarted,
)
from nbtools.workflow.runs.state import RunState, failure_result
from nbtools.workflow.spec import Workflow
from nbtools.workflow.views.graph import graph_svg
from nbtools.workflow.views.layout import layered, layers_of, reduced
from nbtools.workflow.views.signs import SIGNS
from nbtools.workflow.views.table import table

SVG = "{http://www.w3.org/2000/svg}"
OK = {"ok": True, "text": "t", "data": {"n": 1}, "error": None, "artifacts": [], "duration_s": 0.1}


def workflow(nodes: list[dict[str, Any]]) -> Workflow:
    return Workflow.model_validate({"version": 1, "name": "w", "nodes": nodes})


def chain(**needs: list[str]) -> Workflow:
    return workflow([{"id": name, "tool": "t", "needs": needed} for name, needed in needs.items()])


def crossings(needs: dict[str, list[str]]) -> int:
    """Count how often straight lines between neighbouring layers cross, by the places of both ends."""
    segments = [pair for line in layered(needs).lines.values() for pair in itertools.pairwise(line)]
    return sum(
        a[0][0] == b[0][0] and (a[0][1] - b[0][1]) * (a[1][1] - b[1][1]) < 0
        for a, b in itertools.combinations(segments, 2)
    )


def test_a_node_stands_one_layer_behind_the_last_that_it_needs() -> None:
    assert layers_of({"d": ["a", "c"], "a": [], "c": ["b"], "b": ["a"]}) == {"d": 3, "a": 0, "c": 2, "b": 1}


def test_an_edge_that_a_longer_way_says_too_is_left_out() -> None:
    assert reduced({"a": [], "b": ["a"], "c": ["a", "b"], "d": ["a", "c"]}) == {
        "a": [],
        "b": ["a"],
        "c": ["b"],
        "d": ["c"],
    }


def test_nodes_are_ordered_so_that_lines_do_not_cross() -> None:
    assert crossings({"a": [], "b": [], "c": [], "x": ["c"], "y": ["b"], "z": ["a"]}) == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_two_nodes_stand_on_the_same_place_and_all_lines_lead_to_the_right(seed: int) -> None:
    dice = random.Random(seed)
    names = [f"n{i}" for i in range(30)]
    needs = {name: dice.sample(names[:i], min(i, dice.randrange(4))) for i, name in enumerate(names)}
    layout = layered(reduced(needs), last=["n29"] if not any("n29" in found for found in needs.values()) else [])
    for one, other in itertools.combinations(layout.places.values(), 2):
        assert one[0] != other[0] or abs(one[1] - other[1]) > 1
    for line in layout.lines.values():
        assert all(left[0] + 1 == right[0] for left, right in itertools.pairwise(line))
    assert all(0.49 < y < layout.height for _, y in layout.places.values())


def a_run_with_every_state() -> tuple[Workflow, RunState]:
    names = ["pending", "running", "waiting", "ok", "reused", "failed", "skipped", "cancelled", "declined"]
    names += ["unknown", "each"]
    made = workflow(
        [{"id": name, "tool": "t", **({"for_each": [1, 2, 3]} if name == "each" else {})} for name in names]
    )
    state = RunState.of(names, inputs={}, events=[RunStarted(run_id="r", workflow="w", fence=1, at=100.0)])
    for name in names[1:]:
        if name not in {"waiting", "skipped", "declined", "each"}:
            state.apply(NodeStarted(node=name, attempt=1, fence=1, at=100.0))
    state.apply(QuestionAsked(node="waiting", question={"approve": "Go?"}, at=100.0))
    state.apply(NodeSkipped(node="skipped", why="when is false", at=101.0))
    for name, ended in {"ok": "ok", "reused": "ok", "failed": "failed", "cancelled": "cancelled"}.items():
        result = OK if ended == "ok" else failure_result("EXECUTION_FAILED", "<b>broken</b> & done")
        why = "reused from r0" if name == "reused" else ""
        state.apply(NodeEnded(node=name, attempt=1, fence=1, state=ended, result=result, why=why, at=102.5))
    state.apply(NodeEnded(node="declined", state="declined", result={**OK, "ok": False}, why="ann said no", at=102.5))
    lost: Any = {"state": "unknown", "result": failure_result("CANCELLED", "lost")}
    state.apply(NodeEnded(node="unknown", attempt=1, fence=1, **lost, at=103.0))
    state.apply(ItemsFound(node="each", items=[1, 2, 3], at=100.0))
    state.apply(NodeStarted(node="each", item=0, attempt=1, fence=1, at=100.0))
    state.apply(NodeEnded(node="each", item=0, attempt=1, fence=1, state="ok", result=OK, at=101.0))
    state.apply(NodeStarted(node="each", item=1, attempt=1, fence=1, at=101.0))
    return made, state


def test_each_state_has_a_colour_a_shape_and_an_outline_of_its_own() -> None:
    tree = ET.fromstring(graph_svg(*a_run_with_every_state(), now=104.0))
    told = {}
    for group in tree.iter(f"{SVG}g"):
        box, shape = group.find(f"{SVG}rect"), group.find(f"{SVG}path")
        told[group.get("data-state")] = (shape.get("d"), box.get("stroke"), box.get("stroke-width"))
    assert told.keys() == SIGNS.keys()
    assert len({shape for shape, *_ in told.values()}) == len(SIGNS)
    texts = " ".join("".join(text.itertext()) for text in tree.iter(f"{SVG}text"))
    assert "1/3" in texts
    assert "2.50 s" in texts
    assert "4.00 s" in texts, "what runs shows how long it has run so far"


def test_texts_of_a_file_are_no_markup() -> None:
    hostile = "</title><script>alert(1)</script>"
    made = workflow([{"id": "a", "tool": "t", "description": hostile}, {"id": "b", "workflow": f"{hostile}.yaml"}])
    state = RunState.of(["a", "b"], inputs={})
    state.apply(NodeSkipped(node="a", why=f"when is false: {hostile}"))
    svg = graph_svg(made, state)
    assert [element.tag for element in ET.fromstring(svg).iter() if "script" in str(element.tag)] == []
    assert "<script" not in svg


def test_the_graph_needs_nothing_beside_itself() -> None:
    svg = graph_svg(chain(a=[], b=["a"]))
    assert re.findall(r"https?://[^\"'\s]+", svg) == ["http://www.w3.org/2000/svg"]
    assert "<style" not in svg
    assert "url(" not in svg


def test_the_table_tells_who_waits_for_whom() -> None:
    made = chain(c=["a", "b"], a=[], b=["a"])
    state = RunState.of(["c", "a", "b"], inputs={})
    state.apply(NodeStarted(node="a", attempt=1, fence=1, why="never ran"))
    lines = table(state, made, now=state.nodes["a"].started_at, width=120).splitlines()
    assert lines[0].split() == ["node", "state", "attempt", "seconds", "why", "runs", "after", "result"]
    assert [line.split() for line in lines[1:]] == [
        ["c", "pending", "t", "a,", "b"],
        ["a", "running", "1", "0.00", "never", "ran", "t"],
        ["b", "pending", "t", "a"],
    ]


def test_the_table_tells_what_comes_behind_all_others() -> None:
    made = workflow([{"id": "a", "tool": "t", "finally": True}, {"id": "b", "tool": "t"}])
    lines = table(RunState.of(["a", "b"], inputs={}), made, width=40).splitlines()
    assert [line.split() for line in lines[1:]] == [["a", "pending", "t", "all", "others"], ["b", "pending", "t"]]


def test_the_table_tells_items_that_need_a_look_and_why() -> None:
    _, state = a_run_with_every_state()
    lines = table(state, now=104.0, width=200).splitlines()
    assert lines[0].split() == ["node", "state", "attempt", "seconds", "why", "result"]
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["reused"].split() == ["reused", "reused", "1", "2.50", "reused", "from", "r0", '{"n":', "1}"]
    assert "EXECUTION_FAILED: <b>broken</b> & done" in by_name["failed"]
    assert "each[0]" not in by_name, "what has gone well is in the line of the node"
    assert by_name["each[1]"].split()[1] == "running"
    assert all(len(line) <= 80 for line in table(state, width=80).splitlines())


def test_two_hundred_nodes_are_drawn_in_a_moment() -> None:
    needs = {f"n{i}": [f"n{j}" for j in range(max(0, i - 3), i)] for i in range(200)}
    made = chain(**needs)
    graph_svg(made)
    begun = time.thread_time()
    graph_svg(made)
    assert time.thread_time() - begun < 0.5
