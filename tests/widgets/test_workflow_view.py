"""A run of a workflow in its view: what is shown while it goes on, questions that are answered in it, Stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.widgets.workflow_view import WorkflowView
from nbtools.workflow.runs.events import RunStarted
from nbtools.workflow.spec import Workflow

FLOW = """\
version: 1
name: flow
nodes:
  - {id: first, tool: calculator, args: {expression: 6*7}}
  - {id: agree, needs: [first], ask: {approve: "Is it ${nodes.first.data.value}?"}}
  - id: form
    needs: [agree]
    ask:
      question: Who?
      fill: {type: object, properties: {name: {type: string}, age: {type: integer}}, required: [name, age]}
"""


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:") as opened:
        yield opened


def _started(workbench: Workbench, view: WorkflowView) -> tuple[threading.Thread, list[Any]]:
    runs: list[Any] = []
    work = threading.Thread(
        target=lambda: runs.append(workbench.workflows.run(FLOW, on_event=view, ask=view.ask)), daemon=True
    )
    work.start()
    return work, runs


def _asking(
    workbench: Workbench, front_end: Any
) -> tuple[WorkflowView, Any, threading.Event, threading.Thread, list[Any]]:
    """Show a run, and return view, page, its changes of questions, thread and result once it asks."""
    definition = workbench.workflows.validate(FLOW).workflow
    assert definition is not None
    view = WorkflowView(definition, stop=workbench.workflows.cancel)
    page, changed = front_end(view), threading.Event()
    view.observe(lambda _: changed.set(), "questions")
    page.receive(t="ready")
    work, runs = _started(workbench, view)
    assert changed.wait(30)
    return view, page, changed, work, runs


def test_a_run_is_shown_and_its_questions_are_answered_in_the_view(workbench: Workbench, front_end: Any) -> None:
    view, page, changed, work, runs = _asking(workbench, front_end)
    assert view.questions[0]["text"] == "Is it 42?"
    assert view.is_driven
    assert page.ask("answer", step="agree", answer="perhaps")["problems"]
    changed.clear()
    assert page.ask("answer", step="agree", answer="yes") == {"problems": {}}
    while not any(one["step"] == "form" for one in view.questions):
        assert changed.wait(30)
        changed.clear()
    assert [field["kind"] for field in view.questions[0]["fields"]] == ["text", "number"]
    assert "expected a number" in page.ask("answer", step="form", answer={"age": "old"})["problems"]["age"]
    assert page.ask("answer", step="form", answer={"name": "Ada"})["problems"][""]
    assert page.ask("answer", step="form", answer={"name": "Ada", "age": "36"}) == {"problems": {}}
    work.join(30)
    view.end()
    assert runs[0].ok
    assert (view.state, view.is_driven, view.is_short) == ("ok", False, True)
    assert view.graph.count('data-state="ok"') == 3
    assert "When each step ran" in view.bars
    assert [row[:2] for row in view.rows] == [["first", "ok"], ["agree", "ok"], ["form", "ok"]]
    assert "agree" in view.plain_text()
    assert "<table" in view.plain_html()


def test_stop_in_the_view_ends_the_run(workbench: Workbench, front_end: Any) -> None:
    view, page, _, work, runs = _asking(workbench, front_end)
    page.ask("stop")
    work.join(30)
    assert runs[0].state == "cancelled"
    assert view.questions == []


def test_stop_ends_a_run_that_has_not_been_drawn_yet(front_end: Any) -> None:
    stopped: list[str] = []
    nodes = [{"id": "agree", "ask": {"approve": "Is it?"}}]
    view = WorkflowView(Workflow.model_validate({"version": 1, "name": "flow", "nodes": nodes}), stop=stopped.append)
    page = front_end(view)
    with view.follow._lock:  # what draws waits for it
        view(RunStarted(run_id="flow-1", workflow="flow", fence=1, driver="here:1"))
        assert view.is_driven
        page.ask("stop")
    assert stopped == ["flow-1"]


def test_a_run_that_waits_is_answered_in_its_view_and_goes_on_elsewhere(workbench: Workbench, front_end: Any) -> None:
    run = workbench.workflows.run(FLOW)
    assert run.state == "waiting"
    view = workbench.workflows.view(run.run_id)
    page = front_end(view)
    assert (view.state, view.is_driven, view.is_followed) == ("waiting", False, True)
    assert [one["step"] for one in view.questions] == ["agree"]
    assert page.ask("answer", step="agree", answer="yes") == {"problems": {}}
    page.ask("look")
    assert view.questions[0]["told"].startswith("answered: yes, by notebook, at ")
    workbench.workflows.resume(run.run_id)
    page.ask("look")
    assert view.rows[1][:2] == ["agree", "ok"]
    assert view.state == workbench.workflows.show(run.run_id).state


def test_a_question_that_was_answered_elsewhere_says_how_on_a_click(workbench: Workbench, front_end: Any) -> None:
    run = workbench.workflows.run(FLOW)
    view = workbench.workflows.view(run.run_id)
    page = front_end(view)
    workbench.workflows.answer(run.run_id, "agree", False, by="ann")
    assert page.ask("answer", step="agree", answer="yes") == {"problems": {}}
    (question,) = view.questions
    assert question["told"].startswith("answered: no, by ann, at ")
    assert question["told"] in view.plain_text()
    workbench.workflows.resume(run.run_id)
    assert page.ask("answer", step="agree", answer="yes") == {"problems": {}}
    assert view.questions == []
