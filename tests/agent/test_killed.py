"""Runs whose process is killed: they go on in another one, and what was done is not done again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench, tool
from nbtools.errors import InvalidArguments, PermissionDenied
from tests.agent.conftest import interrupt
from tests.conftest import KILLS, wait_until

pytestmark = pytest.mark.races

STEPS = 6
PROGRAM = """
import os, sys, time
from pathlib import Path
from nbtools import Workbench, tool

folder = Path(sys.argv[1])

@tool(destructive=False)
def add_line(text: str) -> str:
    '''Add a line.

    Parameters
    ----------
    text
        The line.
    '''
    with (folder / "lines.txt").open("a") as file:
        file.write(text + "\\n")
    time.sleep(0.04)
    return "added " + text

if __name__ == "__main__":
    with Workbench(home=folder / "home", memory_url=f"duckdb:///{folder}/m.duckdb", tools=[add_line]) as wb:
        print("ready", flush=True)
        if len(sys.argv) > 2:
            run = wb.agent.start(sys.argv[2], script=(folder / "turns.yaml"))
        else:
            run = wb.agent.get(wb.agent.runs()[0]["run_id"])
            if run.state != "done":  # it was killed a moment too late
                assert run.state == "interrupted", run.state
                run = wb.agent.resume(run)
        print(run.wait().state, run.error or "", flush=True)
"""


def _start(folder: Path, *prompt: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(folder / "program.py"), str(folder), *prompt]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    turns: list[object] = [
        {"calls": [{"tool": "add_line", "arguments": {"text": f"{n}{c}"}} for c in "ab"]} for n in range(STEPS)
    ]
    (tmp_path / "turns.yaml").write_text(f"turns: {json.dumps([*turns, {'say': 'Done.'}])}\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def _kill_and_resume(folder: Path, after_s: float) -> None:
    started = _start(folder, "Go!")
    lines = folder / "lines.txt"
    wait_until(lines.exists, 60)
    time.sleep(after_s)
    started.send_signal(signal.SIGKILL)
    started.communicate(timeout=30)
    output, _ = _start(folder).communicate(timeout=60)
    assert output == "done \n"
    found = lines.read_text().splitlines()
    # A call that was cut off is not made again, whether its line was written or not.
    assert len(found) == len(set(found)), found
    assert len(found) >= 2 * STEPS - 2


@pytest.mark.slow
def test_a_killed_run_goes_on_and_repeats_no_effect(folder: Path) -> None:
    _kill_and_resume(folder, 0.05)


def test_a_run_that_is_killed_after_its_answer_asks_the_model_nothing_more(open_bench: Any) -> None:
    bench = open_bench()
    run = bench.agent("Go!", script="- say: Done.\n")
    interrupt(bench, run.run_id)
    again = bench.agent.resume(run.run_id)
    assert (again.state, again.text, again.usage["steps"]) == ("done", "Done.", 1)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(KILLS))
def test_at_any_moment_a_killed_run_goes_on_and_repeats_no_effect(folder: Path, moment: int) -> None:
    _kill_and_resume(folder, random.Random(moment).uniform(0, 0.6))


def test_a_run_of_a_living_process_is_not_taken_over(tmp_path: Path) -> None:
    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    script = "turns:\n  - {say: hm, wait: 20}\n"
    url = f"duckdb:///{tmp_path}/m.duckdb"
    with Workbench(home=tmp_path, memory_url=url, tools=[look]) as wb:
        run = wb.agent.start("Go!", script=script)
        with pytest.raises(PermissionDenied, match="still runs, in process"):
            wb.agent.resume(run.run_id)
        with pytest.raises(InvalidArguments, match="is running"):
            wb.agent("And?", script=script, after=run)
        run.cancel()
        assert run.wait().state == "cancelled"
