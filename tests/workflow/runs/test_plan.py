"""What comes next in a run, by the rules alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nbtools.workflow.runs.events import ItemsFound, NodeEnded, NodeSkipped, NodeStarted, QuestionAsked, RunEnded
from nbtools.workflow.runs.plan import RunPlan, Start
from nbtools.workflow.runs.state import RunState, failure_result
from nbtools.workflow.spec import Workflow

OK = {"ok": True, "text": "t", "data": {"n": 1}, "error": None, "artifacts": [], "duration_s": 0.1}


def workflow(nodes: list[dict[str, Any]], **more: Any) -> Workflow:
    return Workflow.model_validate({"version": 1, "name": "w", "nodes": nodes, **more})


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": "t", **more}


def skip(node: str, why: str) -> NodeSkipped:
    return NodeSkipped(node=node, why=why, at=0.0)


class Walk:
    """A run that is led by hand."""

    def __init__(self, nodes: list[dict[str, Any]], inputs: dict[str, Any] | None = None, **more: Any) -> None:
        self.plan = RunPlan(workflow(nodes, **more))
        self.state = RunState.of([node["id"] for node in nodes], inputs=inputs or {})

    def next(self, stopped: str = "") -> list[Any]:
        """Return what comes next, events without their time."""
        actions = self.plan.next_actions(self.state, env={}, stopped=stopped)
        return [one if isinstance(one, Start) else dataclasses.replace(one, at=0.0) for one in actions]

    def end(self, node: str, item: int | None = None, *, state: str = "ok", data: Any = None) -> None:
        step = self.state.step(node, item)
        attempt = step.attempt + 1
        self.state.apply(NodeStarted(node=node, item=item, attempt=attempt, fence=1))
        result = {**OK, "data": data} if state == "ok" else failure_result("EXECUTION_FAILED", "broken")
        self.state.apply(NodeEnded(node=node, item=item, attempt=attempt, fence=1, state=state, result=result))

    def skip(self, node: str, why: str = "") -> None:
        self.state.apply(NodeSkipped(node=node, why=why))


def test_a_node_starts_when_all_that_it_needs_have_ended() -> None:
    walk = Walk([tool("a"), tool("b"), tool("c", needs=["a"], args={"x": "${nodes.b.text}"})])
    assert walk.next() == [Start(node="a"), Start(node="b")]
    walk.end("a")
    assert walk.next() == [Start(node="b")]
    walk.end("b")
    assert walk.next() == [Start(node="c")]
    walk.end("c")
    assert walk.next() == [RunEnded(state="ok", outputs={}, at=0.0)]


def test_who_needs_a_skipped_node_is_skipped_unless_it_has_a_default_or_says_always() -> None:
    walk = Walk(
        [
            tool("a", when="${inputs.go}"),
            tool("b", needs=["a"]),
            tool("c", args={"x": "${nodes.a.text | default('')}"}),
            tool("d", needs=["a"], when="always"),
            tool("e", needs=["b"]),
        ],
        inputs={"go": False},
    )
    assert walk.next() == [skip("a", "when is false: ${inputs.go}")]
    walk.skip("a")
    assert walk.next() == [skip("b", "needs a, which was skipped"), Start(node="c"), Start(node="d")]


@pytest.mark.parametrize("state", ["declined", "cancelled"])
def test_who_needs_what_a_person_refused_is_skipped(state: str) -> None:
    walk = Walk([tool("a", on_error="continue"), tool("b", needs=["a"])])
    walk.end("a", state=state)
    assert walk.next() == [skip("b", f"needs a, which was {state}")]


@pytest.mark.parametrize("state", ["failed", "declined"])
def test_an_item_that_failed_or_was_refused_starts_no_other_one(state: str) -> None:
    walk = Walk([tool("a", for_each="${inputs.xs}")], inputs={"xs": [1, 2]}, limits={"max_parallel": 1})
    walk.state.apply(ItemsFound(node="a", items=[1, 2]))
    walk.end("a", 0, state=state)
    (action,) = walk.next()
    assert isinstance(action, NodeEnded)
    assert action.state == state


def test_a_failure_stops_what_has_not_begun_and_runs_what_is_final() -> None:
    walk = Walk([tool("a"), tool("b", needs=["a"]), tool("c"), tool("tidy", **{"finally": True})])
    walk.end("a", state="failed")
    assert walk.next() == [skip("b", "a failed"), skip("c", "a failed")]
    walk.skip("b")
    walk.skip("c")
    assert walk.next() == [Start(node="tidy")]
    walk.end("tidy")
    [end] = walk.next()
    assert end.state == "failed"
    assert end.error == {"code": "EXECUTION_FAILED", "message": "broken", "hint": None, "node": "a"}


def test_a_failure_that_continues_lets_the_others_go_on() -> None:
    walk = Walk([tool("a", on_error="continue"), tool("b", needs=["a"])], outputs={"why": "${nodes.a.error.message}"})
    walk.end("a", state="failed")
    assert walk.next() == [Start(node="b")]
    walk.end("b")
    assert walk.next() == [RunEnded(state="ok", outputs={"why": "broken"}, at=0.0)]


def test_items_run_a_few_at_a_time_and_are_collected_in_their_order() -> None:
    walk = Walk(
        [tool("a", for_each="${inputs.all}", max_parallel=2, on_item_error="collect")], inputs={"all": [7, 8, 9]}
    )
    [expand] = walk.next()
    assert expand == ItemsFound(node="a", items=[7, 8, 9], at=0.0)
    walk.state.apply(ItemsFound(node="a", items=expand.items))
    assert walk.next() == [Start(node="a", item=0), Start(node="a", item=1)]
    walk.end("a", 1, data="eight")
    walk.end("a", 0, state="failed")
    assert walk.next() == [Start(node="a", item=2)]
    walk.end("a", 2, data="nine")
    [collect] = walk.next()
    assert isinstance(collect, NodeEnded)
    assert (collect.state, collect.result["data"]) == ("ok", [None, "eight", "nine"])
    assert collect.result["text"] == "2 of 3 items; item 0: broken"


def test_the_first_item_that_fails_ends_the_node() -> None:
    walk = Walk([tool("a", for_each=[1, 2, 3], max_parallel=1)])
    walk.state.apply(ItemsFound(node="a", items=[1, 2, 3]))
    walk.end("a", 0, state="failed")
    [collect] = walk.next()
    assert (collect.state, collect.result["error"]["message"]) == ("failed", "item 0: broken")


def test_a_node_waits_for_an_item_whose_end_is_unknown_although_another_one_failed() -> None:
    walk = Walk([tool("a", for_each=[1, 2, 3])])
    walk.state.apply(ItemsFound(node="a", items=[1, 2, 3]))
    walk.end("a", 0, state="unknown")
    walk.end("a", 1, state="failed")
    assert walk.next() == walk.next("cancelled") == []
    walk.state.apply(NodeEnded(node="a", item=0, attempt=1, fence=1, state="ok", result={**OK, "data": 1}))
    [collect] = walk.next()
    assert (collect.state, collect.result["data"]) == ("failed", [1, None, None])


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"for_each": "${inputs.x}"}, "for_each is text, not a list"),
        ({"for_each": "${inputs.many}"}, "10,001 items; 10,000 are allowed"),
        ({"for_each": "${inputs.x.y}"}, "leads nowhere"),
        ({"when": "${inputs.x.y}"}, "leads nowhere"),
    ],
)
def test_what_cannot_be_filled_in_fails_the_node(node: dict[str, Any], words: str) -> None:
    walk = Walk([tool("a", **node)], inputs={"x": "text", "many": [0] * 10_001})
    [fail] = walk.next()
    assert isinstance(fail, NodeEnded)
    assert fail.state == "failed"
    assert words in fail.result["text"]


def test_a_question_holds_up_only_who_needs_it() -> None:
    walk = Walk([{"id": "q", "ask": {"approve": "Go?"}}, tool("b", needs=["q"]), tool("c")])
    walk.state.apply(QuestionAsked(node="q", question={"approve": "Go?"}))
    assert walk.next() == [Start(node="c")]
    walk.end("c")
    assert walk.next() == []


def test_nothing_new_starts_once_the_run_is_stopped() -> None:
    walk = Walk([tool("a"), tool("b"), tool("tidy", **{"finally": True})])
    assert walk.next("cancelled") == [skip("a", "cancelled"), skip("b", "cancelled")]
    walk.skip("a")
    walk.skip("b")
    assert walk.next("cancelled") == [Start(node="tidy")]
    walk.end("tidy")
    assert walk.next("cancelled")[0].state == "cancelled"


def test_the_late_end_of_an_older_attempt_changes_nothing() -> None:
    walk = Walk([tool("a")])
    walk.state.apply(NodeStarted(node="a", attempt=1, fence=1))
    walk.state.apply(NodeStarted(node="a", attempt=2, fence=2))
    late = NodeEnded(node="a", attempt=1, fence=1, state="ok", result=OK)
    assert walk.state.apply(late) is False
    assert walk.state.nodes["a"].state == "running"
    assert walk.state.apply(NodeEnded(node="a", attempt=2, fence=2, state="ok", result=OK)) is True


def test_a_final_node_is_skipped_by_its_own_condition() -> None:
    walk = Walk([tool("a"), tool("tidy", when="${inputs.go}", **{"finally": True})], inputs={"go": False})
    walk.end("a")
    assert walk.next() == [skip("tidy", "when is false: ${inputs.go}")]


def test_a_node_with_items_took_as_long_as_at_least_one_of_them_ran() -> None:
    walk = Walk([tool("a", for_each="${inputs.many}")], inputs={"many": [1, 2, 3, 4]})
    walk.state.apply(ItemsFound(node="a", items=[1, 2, 3, 4]))
    # Two at once, one after a wait, and one within another.
    for item, (ended_at, took) in enumerate([(10.0, 4.0), (11.0, 4.0), (100.0, 2.0), (99.5, 1.0)]):
        walk.state.apply(NodeStarted(node="a", item=item, attempt=1, fence=1))
        result = {**OK, "duration_s": took}
        walk.state.apply(NodeEnded(node="a", item=item, attempt=1, fence=1, state="ok", result=result, at=ended_at))
    (collected,) = walk.next()
    assert collected.result["duration_s"] == 7.0
