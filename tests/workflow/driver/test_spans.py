"""The spans of a run: one for the run, below it one for each attempt of a step, below these what they call."""

from __future__ import annotations

from nbtools.ground.telemetry import recent

HEAD = "version: 1\nname: w\n"


def test_a_run_has_a_span_and_each_attempt_one_below_it(wb, folder) -> None:
    (folder / "inner.yaml").write_text("version: 1\nname: inner\nnodes:\n  - {id: deep, tool: look}\n")
    (folder / "w.yaml").write_text(
        HEAD
        + """
nodes:
  - {id: a, tool: fail_until, args: {path: t, times: 1}, retry: {attempts: 2, backoff_s: 0.01}}
  - {id: each, workflow: inner.yaml, for_each: [1, 2]}
"""
    )
    run = wb.workflows.run("w.yaml").raise_for_error()
    found = recent()
    [top] = [one for one in found if one.name == "workflow w" and one.facts["run_id"] == run.run_id]
    below = [one for one in found if one.parent_id == top.span_id]
    assert (top.outcome, top.facts["state"]) == ("ok", "ok")
    tries = [(one.facts["attempt"], one.outcome, one.facts["state"]) for one in below if one.name == "workflow_step a"]
    assert tries == [(1, "EXECUTION_FAILED", "pending"), (2, "ok", "ok")]
    each = [one for one in below if one.name == "workflow_step each"]
    assert sorted(one.facts["item"] for one in each) == [0, 1]
    inner = [one for one in found if one.parent_id in {one.span_id for one in each}]
    assert [one.name for one in inner] == ["workflow inner", "workflow inner"]
    assert {one.trace_id for one in found if one.name == "execute_tool look"} >= {top.trace_id}


def test_the_span_of_a_failed_run_has_the_code(wb) -> None:
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: a, tool: fail_until, args: {path: t, times: 9}}\n")
    [top] = [one for one in recent() if one.name == "workflow w" and one.facts.get("run_id") == run.run_id]
    assert (top.outcome, top.facts["state"]) == ("EXECUTION_FAILED", "failed")
