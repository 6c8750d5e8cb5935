"""A workflow that was changed between its failure and its resuming, by code with an effect and by two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools import Workbench
from tests.conftest import wait_until
from tests.memory.conftest import end_keeper

INPUT = "inputs:\n  x: {type: string, default: q}\n"
CODE = """  - id: a
    code: |
      open("PLACE/log", "a").write(inputs["x"] + "\\n")
"""
LAST = """  - id: c
    needs: [a]
    code: |
      open("PLACE/count", "a").write("x")
      assert len(open("PLACE/count").read()) > 1
"""
NODES = CODE + LAST
FIRST = f"version: 1\nname: w\n{INPUT}nodes:\n{NODES}"
CHANGES = {
    "nothing": (FIRST, []),
    "an input that no code reads": (FIRST.replace(INPUT, f"{INPUT}  y: {{type: string, default: r}}\n"), []),
    "order of the nodes": (FIRST.replace(NODES, LAST + CODE), []),
    "retries": (FIRST.replace("- id: a\n", "- id: a\n    retry: {attempts: 2}\n"), []),
    "a node before": (FIRST.replace("nodes:\n", "nodes:\n  - {id: z, code: '1'}\n"), []),
    "a node is gone": (FIRST.replace(LAST, ""), []),
    "nobody needs it": (FIRST.replace("    needs: [a]\n", ""), []),
    "the default that it reads": (FIRST.replace("default: q", "default: r"), ["a"]),
    "its language": (FIRST.replace("- id: a\n", "- id: a\n    language: bash\n"), ["a"]),
    "its code": (FIRST.replace('+ "\\n")', '+ "!\\n")'), ["a"]),
    "what it needs": (
        FIRST.replace("nodes:\n", "nodes:\n  - {id: z, code: '1'}\n").replace("- id: a\n", "- id: a\n    needs: [z]\n"),
        ["a"],
    ),
    "its name": (FIRST.replace("- id: a\n", "- id: b\n").replace("needs: [a]", "needs: [b]"), ["b"]),
}


def write(text: str, place: Path) -> str:
    Path("w.yaml").write_text(text.replace("PLACE", str(place)))
    return "w.yaml"


@pytest.mark.parametrize("change", CHANGES)
def test_code_with_an_effect_is_done_again_only_where_it_changed_and_somebody_says_so(wb, folder, change):
    text, asked = CHANGES[change]
    run = wb.workflows.run(write(FIRST, folder))
    assert run.state == "failed", run.error
    write(text, folder)
    again = wb.workflows.resume(run.run_id)
    assert ([one.step for one in again.questions], again.state) == (asked, "waiting" if asked else "ok"), again.error
    assert Path("log").read_text() == "q\n"


@pytest.mark.slow
@pytest.mark.races
def test_of_two_processes_that_resume_a_run_one_does_it_and_the_other_says_so(tmp_path, folder, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("NBTOOLS_HOME", str(home))
    slow = CODE + LAST.replace("- id: c\n", "- id: c\n    timeout_s: 60\n").replace(
        "      assert",
        "      import os, time\n      while not os.path.exists('PLACE/go'): time.sleep(0.01)\n      assert",
    )
    go = Path("go")
    go.touch()
    with Workbench(home=home, allowed_paths=[folder]) as wb:
        run = wb.workflows.run(write(FIRST.replace(NODES, slow), folder))
        assert run.state == "failed", run.error
    go.unlink()
    command = [sys.executable, "-m", "nbtools", "run", "--resume", run.run_id, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    wait_until(lambda: any(process.poll() is not None for process in both))
    go.touch()
    texts = [process.communicate(timeout=120) for process in both]
    end_keeper(home / "memory.duckdb")
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 1], texts
    won, lost = texts[codes.index(0)], texts[codes.index(1)]
    assert json.loads(won[0])["state"] == "ok"
    assert "still runs, in process" in lost[1]
    assert Path("log").read_text() == "q\n"
    assert Path("count").read_text() == "xx"
