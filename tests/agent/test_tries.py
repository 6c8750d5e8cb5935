"""Several tries of one prompt: each by itself, together within the budgets, and one of them is kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.agent.records.budgets import Budgets
from nbtools.agent.tries import in_columns
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import AskFunction, Reply
from nbtools.errors import ConfigInvalid, InvalidArguments


def _play(folder: Path, file: str, tool: str, say: str = "Done.", **arguments: Any) -> str:
    """Write a script that makes one call and answers; return the name of its model."""
    turns = [{"calls": [{"tool": tool, "arguments": arguments}]}, {"say": say}]
    (folder / file).write_text(f"turns: {json.dumps(turns)}\n")
    return f"scripted:{folder / file}"


def test_the_budgets_are_those_of_all_tries_together(wb: Workbench, tmp_path: Path) -> None:
    parts = Budgets.of({"steps": 10, "usd": 0.3, "seconds": 60, "tool_calls": None})
    assert parts.part(3, at_once=True) == Budgets(steps=3, usd=0.3 / 3, seconds=60, tool_calls=None)
    assert parts.part(3, at_once=False).seconds == 20
    # What is given as a whole number may be divided into parts that are not.
    assert Budgets(steps=10, usd=1).part(2, at_once=True) == Budgets(steps=5, usd=0.5, tool_calls=100)
    look = _play(tmp_path, "look.yaml", "look")
    runs = wb.agent.tries("Look!", 3, model=look, budgets={"steps": 5})
    assert [(run.state, run.usage["steps"]) for run in runs] == [("budget", 1)] * 3
    with pytest.raises(ConfigInvalid, match="the budget of steps is 2, for 3 tries"):
        wb.agent.tries("Look!", 3, model=look, budgets={"steps": 2})
    assert len(wb.agent.runs(None)) == 3


def test_tries_stand_side_by_side_and_one_is_kept(wb: Workbench, tmp_path: Path, done: list[str]) -> None:
    models = [_play(tmp_path, f"{n}.yaml", "add_line", f"I am {n}.\nWell.", text=str(n)) for n in (1, 2)]
    runs = wb.agent.tries("Add, see own.example!", models, at_once=False)
    assert {run.record.options.hosts for run in runs} == {("own.example",)}, "it stands in the code that asks"
    assert done == ["1", "2"]
    columns = in_columns(runs)
    assert [row[0] for row in columns if row[0]] == ["run", "model", "did", "outcome", "answer", "cost"]
    assert columns[0] == ("", "try 1", "try 2")
    assert ("answer", "I am 1.", "I am 2.") in columns
    assert all(row[1].startswith("✓ add_line") for row in columns if row[0] == "did")
    assert wb.agent.keep(runs[1]).run_id == runs[1].run_id
    assert "agent_keep" in [call["tool"] for call in wb.call_records()]
    with pytest.raises(InvalidArguments, match="is not one of several tries"):
        wb.agent.keep(wb.agent.run("Add!", model=models[0]))
    for tries in (1, 0, [], ["scripted:1.yaml"], "two"):
        with pytest.raises(InvalidArguments, match="at least two"):
            wb.agent.tries("Add!", tries)
    how: dict[str, Any] = {"model": models[0], "tries": 3}
    with pytest.raises(InvalidArguments, match="'tries' is not a setting of a run") as one:
        wb.agent.run("Add!", **how)
    assert "wb.agent.tries(PROMPT, 3)" in str(one.value.hint)


def test_one_person_is_asked_by_one_try_at_a_time_and_what_waits_is_cancelled_when_another_is_kept(
    open_bench: Any, tmp_path: Path, done: list[str]
) -> None:
    asking: list[str] = []
    texts: set[str] = set()

    async def answer(request: ApprovalRequest) -> Reply:
        asking.append(request.call.call_id)
        texts.add(request.text().rpartition("\n")[2][:22])
        await asyncio.sleep(0.1)  # in which another would come
        assert len(asking) == 1
        asking.clear()
        return Reply(answer="once" if request.call.arguments["name"] == "1" else "later")

    wb = open_bench(approver=AskFunction(answer))
    models = [_play(tmp_path, f"{n}.yaml", "wipe", name=str(n)) for n in (1, 2, 3)]
    runs = wb.agent.tries("Wipe!", models)
    assert [run.state for run in runs] == ["done", "pending", "pending"]
    assert done == ["wiped 1"]
    assert texts == {f"  (try [{n}] of 3 asks; " for n in (1, 2, 3)}
    wb.agent.keep(runs[0])
    assert [wb.agent.get(run.run_id).state for run in runs] == ["done", "cancelled", "cancelled"]


@pytest.fixture
def loaded(open_bench: Any) -> Workbench:
    """A workbench with a session that a model has loaded."""
    bench: Workbench = open_bench()
    script = {"analysis_script": "rows = list(range(10)); print(len(rows))", "session": "loaded"}
    assert bench.call("data_analyze", script, caller="model").text == "10\n"
    return bench


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")
def test_each_try_works_in_a_copy_and_the_one_that_is_kept_becomes_the_session(
    loaded: Workbench, tmp_path: Path
) -> None:
    def fit(n: int) -> str:
        script = f"fitted = len(rows) * {n}; rows.clear(); print(fitted)"
        return _play(tmp_path, f"{n}.yaml", "data_analyze", analysis_script=script, session="loaded")

    runs = loaded.agent.tries("Fit three models.", [fit(n) for n in (1, 2, 3)])
    assert [run.calls[0].result.text for run in runs] == ["10\n", "20\n", "30\n"]
    sessions = {one["name"]: one["copy_of"] for one in loaded.kernels.list()}
    assert list(sessions.values()) == [None, *["loaded"] * 3]
    forks = [call["run_id"] for call in loaded.call_records() if call["tool"] == "session_fork"]
    assert sorted(forks) == sorted(run.run_id for run in runs)
    more = {"analysis_script": "more = 1", "session": "loaded"}
    assert loaded.call("data_analyze", more, caller="model").ok
    with pytest.raises(InvalidArguments, match=r"'loaded' has run since .* last 'more = 1', and that would be lost"):
        loaded.agent.keep(runs[1])
    assert {one["name"]: one["copy_of"] for one in loaded.kernels.list()} == sessions
    loaded.kernels.stop("loaded")
    loaded.agent.keep(runs[1])
    assert [one["name"] for one in loaded.kernels.list()] == ["loaded"]
    look = {"analysis_script": "print(fitted, rows)", "session": "loaded"}
    assert loaded.call("data_analyze", look, caller="model").text == "20 []\n"


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")
def test_a_workflow_of_a_try_works_in_the_copies_of_the_try(open_bench: Any, tmp_path: Path) -> None:
    args = "{analysis_script: 'rows.clear(); rows.append(id(rows)); print(len(rows))', session: loaded}"
    nodes = f"nodes:\n  - {{id: clear, tool: data_analyze, args: {args}}}\n"
    (tmp_path / "clear.yaml").write_text(f"version: 1\nname: clear-rows\ndescription: Clear\n{nodes}")
    bench = open_bench(workflows=[tmp_path / "clear.yaml"], policy={"*": "allow"})
    script = {"analysis_script": "rows = [1, 2]", "session": "loaded"}
    assert bench.call("data_analyze", script, caller="model").ok
    runs = bench.agent.tries("Clear!", [_play(tmp_path, f"{n}.yaml", "clear-rows") for n in (1, 2)])
    assert all(run.calls[0].result.ok for run in runs)
    assert [one["copy_of"] for one in bench.kernels.list()] == [None, "loaded", "loaded"]
    bench.agent.keep(runs[1])  # which is refused where the session itself has run since
    look = {"analysis_script": "print(len(rows))", "session": "loaded"}
    assert bench.call("data_analyze", look, caller="model").text == "1\n"


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")
def test_a_try_whose_session_cannot_be_copied_is_told_why_as_far_as_its_model_may_know(
    open_bench: Any, tmp_path: Path
) -> None:
    bench = open_bench(policy={"*": "allow"})
    thread = (
        "import threading, time; t = threading.Thread(target=time.sleep, args=(60,), name='of-row-17', daemon=True)"
    )
    script = {"analysis_script": f"{thread}; t.start()", "session": "loaded"}
    assert bench.call("data_analyze", script, caller="model").ok
    models = [_play(tmp_path, f"{n}.yaml", "data_analyze", analysis_script="1", session="loaded") for n in (1, 2)]
    for share, is_told in (("values", True), ("schema", False)):
        for run in bench.agent.tries("Look.", models, share=share):
            assert "works in a copy of session 'loaded', which failed" in run.calls[0].result.text
            assert ("of-row-17" in run.calls[0].sent) == is_told
