"""Runs whose driver is killed: what has ended is not repeated, no effect is twice, and what is unknown is asked."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nbtools import Workbench
from nbtools.conduct.run_folders import list_runs
from nbtools.errors import Cancelled, FileMissing, InvalidArguments, PermissionDenied
from nbtools.workflow.runs.events import CallState, NodeStarted
from nbtools.workflow.runs.log import FrozenRun, RunLog
from nbtools.workflow.views.table import table
from tests.conftest import KILLS, wait_until
from tests.workflow.driver.conftest import TOOLS

pytestmark = pytest.mark.processes

FLOW = """
version: 1
name: killed
limits: {max_parallel: 3}
nodes:
  - {id: start, tool: look, args: {value: [a, b, c]}}
  - {id: notes, tool: note, for_each: "${nodes.start.data}", args: {path: effects, line: "note ${item}", wait_s: 0.05}}
  - {id: slow, tool: note, args: {path: effects, line: slow, wait_s: 0.2}, needs: [start]}
  - {id: read, tool: look, args: {value: "${nodes.notes.data}"}}
  - {id: last, tool: wreck, args: {path: effects, line: "last ${nodes.read.data | json}"}, needs: [slow]}
outputs: {all: "${nodes.notes.data}", last: "${nodes.last.data}"}
"""
OUTPUTS = {"all": ["note a", "note b", "note c"], "last": 'last ["note a", "note b", "note c"]'}

DRIVE = """
import sys
from pathlib import Path
from nbtools import Workbench
from tests.workflow.driver.conftest import TOOLS

home, flow = sys.argv[1:]
with Workbench(home=home, allowed_paths=["."], memory_url=":memory:", tools=TOOLS) as wb:
    print("ready", flush=True)
    wb.workflows.run(Path(flow).read_text()) if flow else wb.workflows.resume(wb.workflows.runs()[0].run_id)
"""


class Machine:
    """A folder in which drivers are started, and killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (folder / "flow.yaml").write_text(FLOW)

    def drive(self, flow: str = "flow.yaml") -> subprocess.Popen[str]:
        path = os.pathsep.join(map(str, [Path(__file__).parents[3], *filter(None, [os.environ.get("PYTHONPATH")])]))
        started = subprocess.Popen(
            [sys.executable, "-c", DRIVE, str(self.home), flow],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        return started

    def workbench(self) -> Workbench:
        return Workbench(home=self.home, allowed_paths=[self.folder], memory_url=":memory:", tools=TOOLS)

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_start(self, driver: subprocess.Popen[str], runs: int) -> None:
        """Wait until the newest of so many runs has begun to do something, or its driver is gone."""

        def starts() -> bool:
            found = list_runs(self.home / "runs")
            return len(found) == runs and any(isinstance(event, NodeStarted) for event in FrozenRun(found[0]).events())

        wait_until(lambda: starts() or driver.poll() is not None)

    def answer_unknown(self, wb: Workbench, run_id: str) -> int:
        """Answer as a person who has looked at the effects; return how many steps were unknown."""
        asked = wb.workflows.show(run_id).questions
        for question in asked:
            name, _, item = question.step.partition("[")
            line = {"notes": f"note {'abc'[int(item[:-1])]}" if item else "", "slow": "slow"}.get(name, OUTPUTS["last"])
            # An effect that happened has left its line; what was done counts as done.
            with contextlib.suppress(InvalidArguments):  # answered before the last kill
                wb.workflows.answer(run_id, question.step, {"done": line} if line in self.effects else "retry")
        return len(asked)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Machine(tmp_path)


@pytest.mark.races
def test_a_step_that_was_running_is_unknown_until_somebody_says(machine):
    driver = machine.drive()
    wait_until(lambda: "slow" in machine.effects)
    driver.kill()
    driver.wait()
    with machine.workbench() as wb:
        [run] = wb.workflows.runs()
        assert run.state == "lost"
        assert run.progress.nodes["slow"].state == "unknown"
        assert "running" not in run.table() == table(run.progress, run.definition, now=time.time() + 1e6), (
            "its seconds have ended"
        )
        with pytest.raises(Cancelled, match=r"is lost\."):
            run.raise_for_error()
        resumed = wb.workflows.resume(run.run_id)
        assert resumed.state == "unknown"
        steps = {question.step: question for question in resumed.questions}
        assert "slow" in steps
        assert "(retry)" in steps["slow"].text
        again = wb.workflows.resume(run.run_id)
        assert {question.step for question in again.questions} == set(steps), "asking twice changes nothing"
        before = machine.effects
        wb.workflows.answer(run.run_id, "slow", "done", by="me")
        for step in set(steps) - {"slow"}:
            note = f"note {'abc'[int(step[6])]}"  # a value that another node reads
            wb.workflows.answer(run.run_id, step, "retry" if note not in before else f'done "{note}"')
        done = wb.workflows.resume(run.run_id).raise_for_error()
        assert done.progress.nodes["slow"].why == "me said that it was done"
    assert machine.effects.count("slow") == 1


@pytest.mark.races
def test_fail_ends_the_run(machine):
    driver = machine.drive()
    wait_until(lambda: "slow" in machine.effects)
    driver.kill()
    driver.wait()
    with machine.workbench() as wb:
        run = wb.workflows.resume(wb.workflows.runs()[0].run_id)
        for question in run.questions:
            wb.workflows.answer(run.run_id, question.step, "fail")
        assert wb.workflows.resume(run.run_id).state == "failed"


@pytest.mark.races
def test_a_second_driver_is_told_who_has_the_run(machine):
    driver = machine.drive()
    wait_until(lambda: "slow" in machine.effects)
    with machine.workbench() as wb:
        [run] = wb.workflows.runs()
        assert run.driver["pid"] == driver.pid
        with pytest.raises(PermissionDenied, match=f"process {driver.pid}"):
            wb.workflows.resume(run.run_id)
        driver.wait()
        assert wb.workflows.show(run.run_id).outputs == OUTPUTS
        with pytest.raises(FileMissing, match="no run"):
            wb.workflows.resume("nothing-like-it")


@pytest.mark.races
def test_a_half_written_end_of_the_log_is_left_out(machine):
    driver = machine.drive()
    wait_until(lambda: "slow" in machine.effects)
    driver.kill()
    driver.wait()
    [folder] = list_runs(machine.home / "runs")
    with (folder / "log.jsonl").open("ab") as handle:
        handle.write(b'{"kind":"node_ended","node":"slow","resu')
    count = len(list(FrozenRun(folder).events()))
    log = RunLog(folder)
    log.append(NodeStarted(node="x", attempt=1, fence=9))
    log.close()
    assert len(list(FrozenRun(folder).events())) == count + 1


def test_an_end_that_a_late_attempt_reports_is_refused(machine):
    driver = machine.drive()
    driver.wait()
    with machine.workbench() as wb:
        run = wb.workflows.runs()[0]
        assert run.ok
        assert wb.workflows.resume(run.run_id).outputs == OUTPUTS, "a run that has ended is returned as it is"
    assert len(machine.effects) == 5


def test_only_what_the_door_had_started_is_unknown(machine):
    """A driver may be lost before its call began, while someone is asked to approve it for one, and after it ended."""
    flow = """
version: 1
name: w
nodes:
  - {id: before, tool: note, args: {path: effects, line: before}, needs: [agree]}
  - {id: within, tool: note, args: {path: effects, line: within}, needs: [agree]}
  - {id: after, tool: note, args: {path: effects, line: after}, needs: [agree]}
  - {id: agree, ask: {approve: Go on?}}
"""
    with machine.workbench() as wb:
        run = wb.workflows.run(flow)
        wb.workflows.answer(run.run_id, "agree", "yes")
        log = RunLog(run.folder)
        for name in ("before", "within", "after"):
            log.append(NodeStarted(node=name, attempt=1, fence=1))
        log.append(CallState(node="within", attempt=1, fence=1, state="started", call_id="a"))
        log.append(CallState(node="after", attempt=1, fence=1, state="started", call_id="b"))
        log.append(CallState(node="after", attempt=1, fence=1, state="ok", call_id="b"))
        log.close()
        resumed = wb.workflows.resume(run.run_id)
        assert {asked.step for asked in resumed.questions} == {"within", "after"}
        assert "had ended (ok)" in resumed.questions[1].text
        assert machine.effects == ["before"], "it was written as started by nobody: nothing was done"
        begun = [event for event in FrozenRun(run.folder).events() if isinstance(event, CallState)]
        assert begun[-1].node == "before"
        assert begun[-1].call_id == wb.door.recorder.recent()[-1].call_id


@pytest.mark.races
@pytest.mark.slow
def test_kills_at_random_moments(machine):
    """Each run is killed and resumed until it has ended: the outputs are the same, and no effect is twice."""
    chance = random.Random(7)
    kills = unknown = runs = 0
    # Some kill has to hit a step that runs; on a busy machine many come before it.
    while kills < max(8, KILLS) or not unknown:
        assert kills < 99
        (machine.folder / "effects").unlink(missing_ok=True)
        runs, flow = runs + 1, "flow.yaml"
        while True:
            driver = machine.drive(flow)
            machine.wait_for_start(driver, runs)
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(chance.uniform(0.0, 0.7))
            if driver.poll() is None:
                driver.kill()
                kills += 1
            driver.wait()
            flow = ""
            with machine.workbench() as wb:
                run = wb.workflows.runs()[0]
                if run.state == "lost":
                    run = wb.workflows.resume(run.run_id)
                unknown += machine.answer_unknown(wb, run.run_id)
                if run.state == "ok":
                    break
        assert run.outputs == OUTPUTS
        assert len(machine.effects) == len({*machine.effects}) == 5, "an effect happened twice"
