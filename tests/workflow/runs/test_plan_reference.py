"""The plan against a second reading of its rules, on workflows and courses of events that nobody chose.

The reference keeps nothing from one question to the next: it looks at every node and item each time, in the words of
the rules. The plan and the state count as they go, so the two can only agree where the counts are right.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nbtools.workflow.runs.events import (
    ItemsFound,
    NodeEnded,
    NodeSkipped,
    NodeStarted,
    QuestionAnswered,
    RetryPlanned,
    RunEnded,
    RunEvent,
)
from nbtools.workflow.runs.plan import Action, RunPlan, Start
from nbtools.workflow.runs.state import RunState, StepState, failure_result
from nbtools.workflow.spec import Workflow

OK = {"ok": True, "text": "t", "data": 1, "error": None, "artifacts": [], "duration_s": 0.1}
BROKEN = failure_result("EXECUTION_FAILED", "broken")
ENDED = {"ok", "failed", "skipped", "cancelled"}
INPUTS = {"yes": True, "no": False}
Queues = dict[str, list[int]]


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return up to eight nodes; the last of them may run whatever happened."""
    made: list[dict[str, Any]] = []
    finals = draw(st.integers(0, 2))
    ordinary = draw(st.integers(1, 6))
    for i in range(ordinary + finals):
        node: dict[str, Any] = {"id": f"n{i}", "tool": "t", "args": {}}
        earlier = [f"n{j}" for j in range(i)]
        node["needs"] = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=2)) if earlier else []
        if earlier and draw(st.booleans()):
            soft = draw(st.sampled_from(earlier))
            node["args"]["x"] = f"${{nodes.{soft}.text | default('')}}"
        when = draw(st.sampled_from([None, None, "${inputs.yes}", "${inputs.no}", "always"]))
        if when is not None:
            node["when"] = when
        if draw(st.integers(0, 3)) == 0:
            node["for_each"] = draw(st.lists(st.integers(0, 9), max_size=4))
            node["max_parallel"] = draw(st.integers(1, 3))
            node["on_item_error"] = draw(st.sampled_from(["fail", "collect"]))
        node["on_error"] = draw(st.sampled_from(["fail", "continue"]))
        node["finally"] = i >= ordinary
        made.append(node)
    return made


def expected(made: list[dict[str, Any]], state: RunState, stopped: str, queues: Queues) -> list[Any]:
    """Return what comes next by the rules, told by kind and place alone."""
    fatal = [n["id"] for n in made if state.nodes[n["id"]].state == "failed" and n["on_error"] == "fail"]
    ordinary = [n for n in made if not n["finally"] and state.nodes[n["id"]].state not in ENDED]
    left = ordinary or [n for n in made if state.nodes[n["id"]].state not in ENDED]
    if not left:
        states = {state.nodes[n["id"]].state for n in made}
        return [("end", "failed" if fatal else "cancelled" if stopped or "cancelled" in states else "ok")]
    is_over = bool(ordinary) and bool(stopped or fatal)
    return [action for node in left for action in of_node(node, state, is_over, queues)]


def of_node(node: dict[str, Any], state: RunState, is_over: bool, queues: Queues) -> list[Any]:
    name, of = node["id"], state.nodes[node["id"]]
    if of.items is not None:
        return of_items(node, [step.state for step in of.steps], is_over, queues[name])
    if of.state != "pending":
        return []
    if is_over:
        return [("skip", name)]
    soft = node["args"].get("x", "")[len("${nodes.") :].partition(".")[0]
    needed = {*node["needs"], *filter(None, [soft])}
    if any(state.nodes[one].state not in ENDED for one in needed):
        return []
    hard = set(node["needs"]) - {soft}
    is_always = node["finally"] or node.get("when") == "always"
    if not is_always and any(state.nodes[one].state in {"skipped", "cancelled"} for one in hard):
        return [("skip", name)]
    if node.get("when") == "${inputs.no}":
        return [("skip", name)]
    return [("expand", name, node["for_each"])] if "for_each" in node else [("start", name, None)]


def of_items(node: dict[str, Any], states: list[str], is_over: bool, queue: list[int]) -> list[Any]:
    name = node["id"]
    has_failed = node["on_item_error"] == "fail" and "failed" in states
    if has_failed or is_over:
        if "running" in states or "unknown" in states:
            return []
        return [("collect", name, "failed" if has_failed else "cancelled")]
    if all(one in ENDED for one in states):
        return [("collect", name, "ok")]
    free = max(0, node["max_parallel"] - states.count("running"))
    return [("start", name, item) for item in queue[:free]]


def told(action: Action) -> Any:
    match action:
        case Start():
            return ("start", action.node, action.item)
        case NodeSkipped():
            return ("skip", action.node)
        case ItemsFound():
            return ("expand", action.node, action.items)
        case NodeEnded():
            return ("collect", action.node, action.state)
        case RunEnded():
            return ("end", action.state)
    raise AssertionError(action)


def outcomes(name: str, item: int | None, step: StepState) -> dict[str, RunEvent]:
    """Return what may happen to a step that runs, or whose outcome is unknown."""
    at: dict[str, Any] = {"node": name, "item": item}
    attempt: dict[str, Any] = {"attempt": step.attempt, "fence": step.fence}
    if step.state == "unknown":
        return {
            "retry": QuestionAnswered(**at, answer="retry"),
            "done": NodeEnded(**at, state="ok", result=OK),
            "fail": NodeEnded(**at, state="failed", result=BROKEN),
        }
    return {
        "ok": NodeEnded(**at, **attempt, state="ok", result=OK),
        "failed": NodeEnded(**at, **attempt, state="failed", result=BROKEN),
        "again": RetryPlanned(**at, attempt=step.attempt, wait_s=0.0, error=BROKEN["error"]),
        "unknown": NodeEnded(**at, **attempt, state="unknown", result={**BROKEN, "question": {"unknown": "?"}}),
        "late": NodeEnded(**at, attempt=step.attempt + 1, fence=step.fence, state="ok", result=OK),
    }


@given(nodes(), st.data())
def test_the_plan_says_what_the_rules_say(made: list[dict[str, Any]], data: st.DataObject) -> None:
    workflow = Workflow.model_validate({"version": 1, "name": "w", "nodes": made, "limits": {"max_parallel": 3}})
    plan, names = RunPlan(workflow), [node["id"] for node in made]
    state, happened, stopped = RunState.of(names, inputs=INPUTS), list[RunEvent](), ""
    queues: Queues = {}
    for _ in range(200):
        actions = plan.next_actions(state, env={}, stopped=stopped)
        assert [told(action) for action in actions] == expected(made, state, stopped, queues)
        if actions and isinstance(actions[-1], RunEnded):
            break
        steps = [found for found in state.steps() if found[2].state in {"running", "unknown"} and found[2].attempt]
        choices = [*actions, *steps]
        assert choices, "nothing can be done, and nothing is awaited"
        chosen = data.draw(st.sampled_from(choices))
        if isinstance(chosen, tuple):
            kinds = outcomes(*chosen)
            kind = data.draw(st.sampled_from(sorted(kinds)))
            event = kinds[kind]
            if chosen[1] is not None and kind in {"again", "retry"}:
                queues[chosen[0]].append(chosen[1])
        else:
            if isinstance(chosen, Start):
                attempt = state.step(chosen.node, chosen.item).attempt + 1
                event = NodeStarted(node=chosen.node, item=chosen.item, attempt=attempt, fence=1)
            else:
                event = chosen
            if isinstance(chosen, ItemsFound):
                queues[chosen.node] = list(range(len(chosen.items)))
            elif isinstance(chosen, Start) and chosen.item is not None:
                queues[chosen.node].remove(chosen.item)
        state.apply(event)
        happened.append(event)
        stopped = stopped or ("cancelled" if data.draw(st.integers(0, 40)) == 0 else "")
    else:
        return  # a course that only ever tries again; what was said on the way was right
    again = RunState.of(names, inputs=INPUTS, events=happened)
    assert again == state, "a log leads to the state that its writer had"
    assert not state.left
    assert state.open_questions() == []
