"""``nbtools agent``: a scripted model at the command line, its runs, and answers to what waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbtools.cli import _parser

SCRIPT = """
turns:
  - say: I write.
    calls:
      - {tool: file_write, arguments: {path: out.txt, content: one}}
  - when: {tool: file_write, ok: true}
    say: It is written.
  - say: It is not written.
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.yaml").write_text(SCRIPT)
    return "scripted:turns.yaml"


def test_a_run_prints_text_calls_and_how_it_ended(nbtools: Callable[..., Any], script: str, tmp_path: Path) -> None:
    done = nbtools("agent", "Write!", "--model", script)
    assert done.code == 0
    assert done.out == "I write.It is not written."
    assert "✗ file_write(path=" in done.err
    assert "no one is at the keyboard to give it" in done.err
    assert "is done · 2 steps · 1 call" in done.err
    assert not (tmp_path / "out.txt").exists()


def test_tries_are_printed_side_by_side(nbtools: Callable[..., Any], script: str) -> None:
    done = nbtools("agent", "Write!", "--tries", f"{script},{script}")
    assert done.code == 0
    assert "[2] ✗ file_write(path=" in done.err
    lines = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert lines["outcome"] == ["outcome", "done", "done"]
    assert nbtools("agent", "keep", lines["run"][1]).code == 0
    assert [run["state"] for run in nbtools("agent", "Write!", "--model", script, "--tries", "2", "--json").json] == [
        *("done", "done")
    ]


@pytest.mark.usefixtures("memory_file")
def test_what_waits_is_answered_with_changes_from_another_process(
    nbtools: Callable[..., Any], script: str, tmp_path: Path
) -> None:
    from nbtools.assembly.workbench import Workbench
    from nbtools.contract.approval.gate import AskFunction

    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path]) as wb:
        run = wb.agent("Write!", model=script, approver=AskFunction(lambda _: "later"))
    listed = nbtools("agent", "runs")
    assert listed.out.startswith(f"{run.run_id}  pending      scripted (no LLM)  Write!")
    done = nbtools("agent", "resume", "--answer", "once", "--set", "content=two", "--json")
    assert (done.code, done.json["state"], done.json["text"]) == (0, "done", "It is written.")
    assert (tmp_path / "out.txt").read_text() == "two"
    shown = nbtools("agent", "show", run.run_id)
    assert shown.out.startswith("> Write!\n▸ scripted")
    events = nbtools("agent", "show", run.run_id, "--json").json["events"]
    assert [event["answer"] for event in events if event["kind"] == "approval_answered"] == ["later", "once"]
    undone = nbtools("agent", "undo", run.run_id)
    assert (undone.code, undone.out) == (0, f"file_write {tmp_path}/out.txt taken back\n")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "there is nothing to do"),
        (["Go", "on!"], 2, "put a prompt of several words in quotes"),
        (["show"], 2, "'show' needs a RUN.\n→ nbtools agent runs lists"),
        (["undo"], 2, "'undo' needs a RUN.\n→ nbtools agent runs lists"),
        (["runs", "x"], 2, "1 word after 'runs' does not fit"),
        (["export", "zzz"], 2, "give FILE.ipynb or --workflow FILE.yaml"),
        (["Go!"], 1, "no model was named"),
        (["Go!", "--model", "cluade"], 2, "Did you mean 'claude'?"),
        (["Go!", "--model", "scripted:gone.yaml"], 1, "cannot be read"),
        (["Go!", "--model", "scripted:turns.yaml", "--budget", "stepps=1"], 2, "Did you mean 'steps'?"),
        (["resume"], 2, "no run waits.\n→ nbtools agent runs lists all"),
        (["list"], 2, "there is no command 'list'.\n→ Did you mean 'runs'?"),
        (["resume", "zzz"], 1, "there is no run 'zzz'"),
        (["resume", "zzz", "--set", "a=1"], 2, "Add --answer once"),
    ],
)
def test_wrong_use_is_told_in_three_lines(
    nbtools: Callable[..., Any], script: str, words: list[str], code: int, told: str
) -> None:
    done = nbtools("agent", *words)
    assert (done.code, done.out) == (code, "")
    assert told in done.err


@pytest.mark.unit
@pytest.mark.parametrize("words", [["--approve", "auto"], ["--approve=auto"]])
def test_the_option_of_a_cell_that_approves_leads_to_what_the_command_line_has(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _parser("agent").parse_args(["agent", *words, "Go!"])
    assert "nbtools agent resume RUN --answer once" in capsys.readouterr().err


def test_a_budget_ends_with_its_code_and_events_are_lines_of_json(nbtools: Callable[..., Any], script: str) -> None:
    done = nbtools("agent", "Write!", "--model", script, "--budget", "steps=1", "--events")
    assert done.code == 1
    kinds = [json.loads(line)["kind"] for line in done.out.splitlines()]
    assert kinds[0] == "run_started"
    assert kinds[-2:] == ["budget_reached", "run_ended"]


def test_a_slip_in_a_verb_starts_no_model(nbtools: Callable[..., Any], script: str) -> None:
    for words in (["shwo", "abc"], ["run"], ["resum"]):
        done = nbtools("agent", *words, "--model", script)
        assert done.code == 2
        assert "Did you mean" in done.err
    assert nbtools("agent", "runs").out == "There are no runs yet.\n"
    assert nbtools("agent", "Write", "--model", script).code == 0
    assert nbtools("agent", "show", "nothing").code != 0
