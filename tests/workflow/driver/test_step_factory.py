"""Steps as they are started: what they read of the results of others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.step_factory import StepFactory
from nbtools.workflow.runs.plan import RunPlan
from nbtools.workflow.runs.state import RunState, StepState


def test_a_result_is_looked_through_once_and_not_for_each_item_that_needs_it(folder: Path, wb: Workbench) -> None:
    class Watched(list[Any]):
        looks = 0

        def __iter__(self) -> Iterator[Any]:
            Watched.looks += 1
            return super().__iter__()

    text = """\
version: 1
name: x
nodes:
  - {id: a, code: "[1, 2, 3]"}
  - {id: b, code: "nodes['a']", needs: [a], for_each: "${nodes.a.data}"}
"""
    workflow = wb.workflows.validate(text).workflow
    state = RunState.of(("a", "b"), inputs={})
    table = {"parquet": "t.parquet", "row_count": 1}
    state.nodes["a"].state, state.nodes["a"].result = "ok", {"data": Watched([table, 2, 3])}
    state.nodes["b"].items, state.nodes["b"].steps = [table, 2, 3], [StepState() for _ in range(3)]
    definition = RunDefinition(folder / "x.yaml", workflow, wb.workflows.host, folder=folder)
    factory = StepFactory(definition, RunPlan(workflow), state, folder)
    assert [factory.step(workflow.nodes[1], item, 1).paths() for item in range(3)] == [["t.parquet"]] * 3
    assert Watched.looks == 1


def test_what_would_be_told_of_waiting_ends_with_the_code(wb: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[asyncio.TimerHandle] = []
    real = asyncio.BaseEventLoop.call_later

    def call_later(self: Any, delay: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
        made = real(self, delay, callback, *args, **more)
        if getattr(callback, "__name__", "") == "tell_waiting":
            told.append(made)
        return made

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", call_later)
    wb.workflows.run("version: 1\nname: w\nnodes:\n  - {id: a, code: '1'}\n").raise_for_error()
    assert [timer.cancelled() for timer in told] == [True]
