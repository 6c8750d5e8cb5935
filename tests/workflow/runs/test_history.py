"""What a run did before, and what becomes of its steps when it goes on: by the events alone."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from nbtools.workflow.driver.going_on import GoingOn
from nbtools.workflow.driver.steps import StepAttempt
from nbtools.workflow.runs.events import CallState, NodeEnded, NodeStarted, QuestionAsked, RunEvent, RunStarted
from nbtools.workflow.runs.history import ALONE, RunHistory
from nbtools.workflow.runs.state import RunState, failure_result
from nbtools.workflow.spec import ToolNode

PARTS = {"tool": "1", "args": "2"}
OK: dict[str, Any] = {"ok": True, "text": "", "data": None, "error": None, "artifacts": [], "duration_s": 0.0}


def history(
    state: Any, *, effect: Any = None, code: str = "EXECUTION_FAILED", artifacts: tuple[str, ...] = ()
) -> RunHistory:
    which: dict[str, Any] = {"node": "a", "attempt": 1, "fence": 1}
    events: list[RunEvent] = [RunStarted(run_id="r", workflow="w", fence=1), NodeStarted(**which, parts=PARTS)]
    events += [CallState(**which, state=one) for one in ("started", effect) if effect is not None]
    result = {**OK, "artifacts": [{"path": path} for path in artifacts]}
    ended = result if state == "ok" else failure_result(code, "it went wrong")
    events += [] if state == "running" else [NodeEnded(**which, state=state, result=ended)]
    return RunHistory(events, is_new=True)


@pytest.mark.parametrize(
    ("state", "effect", "code", "is_unknown"),
    [
        ("ok", "ok", "", False),
        ("failed", None, "EXECUTION_FAILED", False),
        ("failed", None, "TIMEOUT", False),
        ("failed", "failed", "EXECUTION_FAILED", False),
        ("failed", "failed", "TIMEOUT", True),
        ("failed", "failed", "NETWORK_ERROR", True),
        ("cancelled", "failed", "CANCELLED", True),
        ("failed", "started", "EXECUTION_FAILED", True),
        ("running", "started", "", True),
        ("unknown", "failed", "EXECUTION_FAILED", True),
        ("failed", "ok", "EXECUTION_FAILED", True),
    ],
)
def test_a_step_is_unknown_where_its_effect_began_and_nobody_heard_how_it_ended(
    state: Any, effect: Any, code: str, is_unknown: bool
) -> None:
    step = history(state, effect=effect, code=code).find("a", ALONE, PARTS)
    assert step is not None
    assert step.is_unknown == is_unknown


def choose(before: RunHistory, parts: dict[str, str], *, repeatable: bool) -> tuple[str, str]:
    node = ToolNode(id="a", tool="t")
    step = StepAttempt(run_id="r", workflow="w", agent="w", node=node)
    definition: Any = types.SimpleNamespace(by_name={"a": node}, is_repeatable=lambda _: repeatable)
    choice = GoingOn(before, definition, RunState.of(["a"], inputs={})).choose(step, parts)
    return choice.action, choice.why


@pytest.mark.parametrize(
    ("before", "parts", "repeatable", "action"),
    [
        (history("ok", effect="ok"), PARTS, False, "keep"),
        (history("ok", effect="ok"), PARTS | {"args": "3"}, False, "again"),
        (history("ok", effect="ok"), PARTS | {"args": "3"}, True, "run"),
        (history("ok"), PARTS | {"args": "3"}, False, "run"),
        (history("failed", effect="failed"), PARTS, False, "run"),
        (history("failed", effect="started"), PARTS, False, "unknown"),
        (history("failed", effect="started"), PARTS, True, "run"),
        (history("failed", effect="ok"), PARTS, False, "unknown"),
        (history("declined"), PARTS, False, "run"),
    ],
)
def test_what_may_have_been_done_is_never_done_again_without_a_word(
    before: RunHistory, parts: dict[str, str], repeatable: bool, action: str
) -> None:
    assert choose(before, parts, repeatable=repeatable)[0] == action


def test_a_result_whose_files_are_gone_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "chart.png"
    file.write_bytes(b"x")
    before = history("ok", effect="ok", artifacts=(str(file),))
    assert choose(before, PARTS, repeatable=False)[0] == "keep"
    file.unlink()
    assert choose(before, PARTS, repeatable=True) == ("run", "its files are gone")
    assert choose(before, PARTS, repeatable=False)[0] == "again"


def test_what_has_done_its_work_and_is_not_in_the_file_any_more_is_named() -> None:
    for before, nodes, labels in (
        (history("ok", effect="ok"), [], ["a"]),
        (history("ok", effect="ok"), ["a"], []),
        (history("ok"), [], []),
        (history("failed", effect="failed"), [], []),
    ):
        assert [one.label for one in before.gone(nodes)] == labels


@pytest.mark.parametrize(
    ("before", "parts", "labels"),
    [
        (history("ok", effect="ok"), PARTS, ["a"]),
        (history("ok", effect="ok"), PARTS | {"args": "3"}, ["a"]),
        (history("ok", effect="ok"), PARTS | {"tool": "9"}, []),
        (history("ok", effect="ok"), {"code": "1"}, []),
        (history("failed", effect="started"), PARTS, ["a"]),
        (history("failed", effect="failed"), PARTS, []),
        (history("ok"), PARTS, []),
    ],
)
def test_a_new_step_may_be_an_old_one_that_did_the_same_kind_of_work(
    before: RunHistory, parts: dict[str, str], labels: list[str]
) -> None:
    assert [one.label for one in before.orphans({"b": [ALONE]}, parts)] == labels
    assert before.orphans({"a": [ALONE]}, parts) == []


def test_an_answer_holds_for_the_very_question_that_was_answered() -> None:
    question = {"approve": "Go?"}
    asked = QuestionAsked(node="a", question=question)
    yes = NodeEnded(node="a", state="ok", result=OK)
    before = RunHistory([asked, yes], is_new=True)
    assert before.answered("a", ALONE, question) is not None
    assert before.answered("a", ALONE, {"approve": "Go now?"}) is None
    declined = RunHistory([asked, NodeEnded(node="a", state="declined", result=OK)], is_new=True)
    assert declined.answered("a", ALONE, question) is None
    # A question about a call, or about doing it again, is not one that the node itself asks.
    for more in ("digest", "again", "unknown"):
        other = {"approve": "Go?", more: "x"}
        of_call = RunHistory([QuestionAsked(node="a", question=other), yes], is_new=True)
        assert of_call.answered("a", ALONE, other) is None
