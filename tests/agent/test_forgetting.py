"""What is forgotten is in no byte of a home: not in transcripts, logs, results, artifacts or what undo keeps."""

from __future__ import annotations

import json

import pytest

from nbtools import Workbench
from nbtools.cli import main
from nbtools.contract.approval.gate import AskFunction
from nbtools.errors import FileMissing
from tests.memory.conftest import end_keeper

pytestmark = pytest.mark.processes

MARK = "hunter2-geheim-9f31"
WORKFLOW = """
version: 1
name: reads
agent_id: default
memory: {default_scope: agent}
nodes:
  - {id: read, tool: memory_retrieve, args: {key: secret}}
  - id: leave
    needs: [read]
    code: |
      found = memory.read("secret")["password"]
      open("left.bin", "wb").write(b"\\xff\\x00" + found.encode())
      print(found)
"""


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "home"
    end_keeper(tmp_path / "home" / "memory.duckdb")


def traces(*folders):
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sorted(path.name for path in files if MARK.encode() in path.read_bytes())


def test_a_file_that_a_script_left_with_a_value_is_named_when_it_is_forgotten(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "open('o.txt', 'w').write(memory.read('secret'))\nopen('p.txt', 'w').write('other')"
    with Workbench(home=home, allowed_paths=["."]) as wb:
        wb.memory.write("secret", MARK)
        wb.call("data_analyze", {"analysis_script": script, "variables": {"x": 1}}).raise_for_error()
        wb.recorder.flush()
        with pytest.warns(UserWarning, match=r"still holds what was forgotten: \S*/o\.txt$"):
            assert wb.memory.forget("secret") == 1


def test_a_forgotten_value_is_in_no_byte_of_a_home(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.yaml").write_text(
        "turns:\n- calls:\n  - {tool: memory_retrieve, arguments: {key: secret}}\n"
        "- calls:\n  - {tool: file_write, arguments: {path: note.txt, content: other}}\n- say: it is known\n"
    )
    (tmp_path / "reads.yaml").write_text(WORKFLOW)
    (tmp_path / "note.txt").write_text(f"before: {MARK}")
    with Workbench(home=home, allowed_paths=["."], approver=AskFunction(lambda _: "once")) as wb:
        wb.memory.write("secret", {"user": "running", "password": MARK})
        wb.memory.write("kept", "other")
        run = wb.agent("read it", script="turns.yaml", share="values")
        done = wb.workflows.run("reads.yaml")
        assert done.ok, done.error
        (wb.artifacts / "made.txt").write_text(MARK)
        wb.recorder.flush()
        places = (home, wb.artifacts)
        assert {"log.jsonl", "left.bin", "made.txt"} <= {*traces(*places)}
        assert MARK in json.dumps(wb.agent.sent(run.run_id))
        assert wb.memory.forget("secret") == 1
        assert traces(*places) == []
        told = json.dumps([wb.agent.sent(run.run_id), wb.agent.log(run.run_id)]) + repr(wb.agent.messages(run.run_id))
        assert MARK not in told
        assert "it is known" in told
        assert wb.agent.runs()[0]["run_id"] == run.run_id
        shown = wb.workflows.show(done.run_id)
        assert shown.ok
        assert shown.progress.nodes["leave"].state == "ok"
        assert wb.memory["kept"] == "other"
    assert traces(home) == []


def test_a_forgotten_run_leaves_no_byte_and_what_others_go_on_from_stays(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.yaml").write_text(f"turns:\n- say: it is {MARK}\n- say: and more\n")
    with Workbench(home=home) as wb:
        first = wb.agent(f"tell me of {MARK}", script="turns.yaml", after=None)
        second = wb.agent("go on", script="turns.yaml", after=first.run_id)
        alone = wb.agent(f"another {MARK}", script="turns.yaml")
        wb.agent.forget(alone.run_id[:10])
        with pytest.raises(FileMissing):
            wb.agent.get(alone.run_id)
        wb.agent.forget(first)
        assert [run["run_id"] for run in wb.agent.runs()] == [second.run_id]
        assert MARK in repr(wb.agent.messages(second.run_id))
        assert traces(home)
        wb.agent.forget(second.run_id)
        assert (wb.agent.runs(), traces(home)) == ([], [])
        with pytest.raises(FileMissing, match="no run"):
            wb.agent.forget(second.run_id)


def test_a_run_of_a_workflow_is_forgotten_by_the_command_line(home, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBTOOLS_HOME", str(home))
    (tmp_path / "w.yaml").write_text(f"version: 1\nname: w\nnodes:\n  - {{id: a, code: print('{MARK}')}}\n")
    with Workbench() as wb:
        run = wb.workflows.run("w.yaml")
        assert traces(home / "runs")
    assert main(["runs", "forget", run.run_id]) == 0
    assert not run.folder.exists()
    assert main(["runs", "forget", run.run_id]) == 1
    assert "no run" in capsys.readouterr().err
