"""What a run becomes: a workflow that is valid and runs, a notebook that says what came again, all that was sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import TypedDict

from nbtools import Workbench, tool
from nbtools.agent.exports.proof import _moved
from nbtools.contract.approval.gate import AskFunction, Reply
from nbtools.errors import InvalidArguments, PathNotAllowed
from tests.agent.conftest import look

CALLS = """
turns:
  - calls:
      - {tool: look, arguments: {name: "first ${x}"}}
      - {tool: look, arguments: {name: gone, fail: true}}
      - {tool: look, arguments: {name: harbour}}
  - calls: [{tool: file_write, arguments: {path: note.txt, content: one}}]
  - calls: [{tool: file_read, arguments: {path: note.txt}}]
  - calls: [{tool: string_length, arguments: {text: "yes"}}]
  - say: Done.
"""

YES = AskFunction(lambda _: "once")


@pytest.fixture
def bench(open_bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[str]) -> Workbench:
    monkeypatch.chdir(tmp_path)
    made: Workbench = open_bench()
    return made


def test_calls_become_nodes_that_need_what_came_before_and_run_again(bench: Workbench, tmp_path: Path) -> None:
    yes = AskFunction(lambda asked: Reply(answer="once", arguments={**asked.call.arguments, "content": "two"}))
    run = bench.agent("Look at the harbour.", script=CALLS, approver=yes)
    made = bench.agent.export(run, "flow.yaml", as_workflow=True)
    assert (made.calls, made.proof, made.is_good) == (5, "", True)
    flow = yaml.safe_load((tmp_path / "flow.yaml").read_text())
    nodes = {node["id"]: node for node in flow["nodes"]}
    assert list(nodes) == ["look", "look_2", "file_write", "file_read", "string_length"]
    assert {name: node.get("needs") for name, node in nodes.items()} == {
        "look": None,
        "look_2": None,
        "file_write": ["look", "look_2"],
        "file_read": ["file_write"],
        "string_length": ["file_write"],
    }
    # What differed between calls of a tool, what someone changed, and what several calls share.
    assert nodes["look_2"]["args"] == {"name": "${inputs.name}"}
    assert nodes["look"]["args"] == {"name": "first $${x}"}
    assert flow["inputs"]["content"]["default"] == "two"
    assert nodes["file_read"]["args"] == {"path": "${inputs.path}"}
    assert nodes["string_length"]["args"] == {"text": "yes"}
    (tmp_path / "note.txt").unlink()
    again = bench.workflows.run(tmp_path / "flow.yaml", {"content": "three"})
    assert again.progress.state == "ok"
    assert (tmp_path / "note.txt").read_text() == "three"
    assert set(again.progress.outputs) == {"file_read", "string_length"}


class Made(TypedDict):
    """What was made."""

    place: str


@tool(destructive=False)
def make(kind: str) -> Made:
    """Make something.

    Parameters
    ----------
    kind
        What.
    """
    return Made(place=f"the place of {kind}")


def test_a_value_of_an_earlier_result_is_an_expression(open_bench: Any, tmp_path: Path) -> None:
    bench = open_bench(tools=(make, look))
    script = """
    - calls: [{tool: make, arguments: {kind: boat}}]
    - calls: [{tool: look, arguments: {name: the place of boat}}]
    - say: Done.
    """
    run = bench.agent("Go.", script=script)
    bench.agent.export(run, tmp_path / "flow.yaml", as_workflow=True)
    nodes = yaml.safe_load((tmp_path / "flow.yaml").read_text())["nodes"]
    assert [node["args"] for node in nodes] == [{"kind": "boat"}, {"name": "${nodes.make.data.place}"}]
    again = bench.workflows.run(tmp_path / "flow.yaml")
    assert again.progress.outputs == {"look": "saw the place of boat"}


def test_a_secret_is_an_input_without_a_value(bench: Workbench, tmp_path: Path) -> None:
    script = """
    - calls: [{tool: http_client, arguments: {url: "http://127.0.0.1:9/", headers: {Authorization: "Bearer abcdefg1"}}}]
    - calls: [{tool: look, arguments: {name: "sk-ant-api03-4k2j5h6g7f8d9s0a4k2j5h6g7f8d9s0a"}}]
    - say: Done.
    """
    run = bench.agent("Look.", script=script)
    bench.agent.export(run, "flow.yaml", as_workflow=True)
    assert "4k2j5h6g" not in (tmp_path / "flow.yaml").read_text()


def test_what_makes_no_workflow_and_where_it_may_not_be_written_is_told(bench: Workbench, tmp_path: Path) -> None:
    run = bench.agent("Look.", script="- calls: [{tool: look, arguments: {fail: true}}]\n- say: No.\n")
    with pytest.raises(InvalidArguments, match="no call of the run succeeded"):
        bench.agent.export(run, "flow.yaml", as_workflow=True)
    with pytest.raises(InvalidArguments, match="only a notebook can be proved"):
        bench.agent.export(run, "flow.yaml", as_workflow=True, prove=True)
    with pytest.raises(PathNotAllowed):
        bench.agent.export(run, "/etc/flow.ipynb")
    assert not list(tmp_path.glob("flow*"))


@pytest.mark.parametrize(
    ("name", "as_workflow", "why"),
    [
        ("mine.csv", False, "does not have the ending of a notebook"),
        ("mine.csv", True, "does not have the ending of a workflow"),
        ("mine.ipynb", False, "exists, and was not exported from a run"),
        ("mine.yaml", True, "exists, and was not exported from a run"),
    ],
)
def test_an_export_replaces_nothing_but_exports(
    bench: Workbench, tmp_path: Path, name: str, why: str, *, as_workflow: bool
) -> None:
    run = bench.agent("Look.", script="- calls: [{tool: look, arguments: {name: sea}}]\n- say: Yes.\n")
    (tmp_path / name).write_text("my own")
    with pytest.raises(InvalidArguments, match=why):
        bench.agent.export(run, name, as_workflow=as_workflow)
    assert (tmp_path / name).read_text() == "my own"
    for _ in range(2):
        bench.agent.export(run, "run.ipynb")
        bench.agent.export(run, "run.yaml", as_workflow=True)


@pytest.mark.parametrize(
    ("value", "in_copy"),
    [
        *((path, path) for path in ("/data-2/a", "/data2", "/my/data", "/data_2")),
        ({"p": ["/data", "in /data/x, /data."]}, {"p": ["/copy/0-data", "in /copy/0-data/x, /copy/0-data."]}),
    ],
)
def test_a_proof_moves_the_paths_of_its_folders_and_none_that_begin_or_end_like_them(value: Any, in_copy: Any) -> None:
    assert _moved(value, {"/data": "/copy/0-data"}) == in_copy


@pytest.mark.slow
def test_a_proof_leaves_files_as_they_are_and_lends_a_models_script_no_rights(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a\n1\n")
    attempt = f"try:\n    open({str(tmp_path / 'escaped')!r}, 'w')\nexcept OSError:\n    pass\nprint(1)"
    calls = [
        {"tool": "file_write", "arguments": {"path": "note.txt", "content": "one"}},
        {"tool": "file_write", "arguments": {"path": "other.txt", "content": "two"}},
        {"tool": "data_analyze", "arguments": {"input_file_path": "in.csv", "analysis_script": attempt}},
        {"tool": "sql_query", "arguments": {"query": "select sum(a) as s from 'in.csv'"}},
        {"tool": "memory_save", "arguments": {"key": "k", "value": "new"}},
        {"tool": "file_read", "arguments": {"path": str(tmp_path / "note.txt")}},
        {"tool": "wipe", "arguments": {"name": "shelf"}},
    ]
    first, run = (
        bench.agent(
            "Write.", script=yaml.safe_dump([*({"calls": [one]} for one in made), {"say": "Done."}]), approver=YES
        )
        for made in (calls[:4], calls)
    )
    (tmp_path / "note.txt").write_text("a person's own words")
    (tmp_path / "other.txt").unlink()
    bench.memory.write("k", "mine")
    made = bench.agent.export(run, "run.ipynb", prove=True)
    counted, left = made.proof.splitlines()
    assert counted == "reproduced 6 of 7, 1 not repeated", made.proof
    assert left == "call 7, wipe: not repeated, because it destroys"
    assert made.is_good
    assert bench.memory["k"] == "mine"
    cells = json.loads((tmp_path / "run.ipynb").read_text())["cells"]
    assert not any("InCopy" in cell["source"] for cell in cells)
    with pytest.raises(InvalidArguments, match="there is no call 8"):
        bench.agent.export(run, "run.ipynb", repeat=[8])
    assert bench.agent.export(run, "again.ipynb", repeat=[7]).not_repeated == 0
    assert (tmp_path / "note.txt").read_text() == "a person's own words"
    assert not (tmp_path / "other.txt").exists()
    assert not (tmp_path / "escaped").exists()
    flow = bench.agent.export(first, "flow.yaml", as_workflow=True)
    assert flow.is_good, flow.proof
    text = (tmp_path / "flow.yaml").read_text()
    inputs = yaml.safe_load(text)["inputs"]
    (data,) = (name for name, schema in inputs.items() if schema["default"] == "in.csv")
    assert f"from '${{inputs.{data}}}'" in text
    (tmp_path / "more.csv").write_text("a\n41\n1\n")
    again = bench.workflows.run("flow.yaml", inputs={data: "more.csv"})
    assert again.progress.state == "ok"
    assert "42" in again.progress.outputs["sql_query"]
    assert not (tmp_path / "escaped").exists()
    open_script = text.replace("scripts_of: model\n", "")
    (tmp_path / "mine.yaml").write_text(open_script)
    assert bench.workflows.run("mine.yaml").progress.state == "ok"
    assert (tmp_path / "escaped").exists()  # which a person's script may write


@pytest.mark.processes
def test_a_tool_that_is_gone_is_told_by_the_workflow(open_bench: Any, tmp_path: Path) -> None:
    bench = open_bench(memory_url=f"duckdb:///{tmp_path}/m.duckdb", tools=(make,))
    run = bench.agent("Go.", script="- calls: [{tool: make, arguments: {kind: boat}}]\n- say: Yes.\n")
    bench.close()
    other = open_bench(memory_url=f"duckdb:///{tmp_path}/m.duckdb", tools=())
    made = other.agent.export(run.run_id, tmp_path / "flow.yaml", as_workflow=True)
    assert "make" in made.proof
    assert not made.is_good


def test_all_that_was_sent_is_told(bench: Workbench) -> None:
    run = bench.agent(
        "Look at it.", script="- say: I look.\n  calls: [{tool: look, arguments: {name: A}}]\n- say: Yes.\n"
    )
    sent = "\n".join(bench.agent.sent(run.run_id))
    assert sent.index("Look at it.") < sent.index("— tools")
    for text in ("— tools", "Look at something.", "— instructions", "Look at it.", "I look.", '"name": "A"', "saw A"):
        assert text in sent


@pytest.mark.processes
def test_commands_of_a_models_workflow_are_asked_for(
    open_bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside the home: a folder that holds it takes nothing new from what a model runs.
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    calls = [{"tool": "shell", "arguments": {"command": command}} for command in ("touch made.txt", "ls")]
    script = yaml.safe_dump({"turns": [*({"calls": [call]} for call in calls), {"say": "Done."}]})
    bench = open_bench(allowed_commands=["touch", "ls"])
    run = bench.agent("Touch.", script=script, approver=AskFunction(lambda _: "once"))
    assert [call.result.ok for call in run.calls] == [True, True]
    bench.agent.export(run, "flow.yaml", as_workflow=True)
    (work / "made.txt").unlink()
    again = bench.workflows.run("flow.yaml")
    assert (again.progress.state, again.error["code"]) == ("failed", "APPROVAL_DENIED")
    assert not (work / "made.txt").exists()
    asked = []
    other = open_bench(allowed_commands=["touch", "ls"], approver=AskFunction(lambda one: asked.append(one) or "once"))
    assert other.workflows.run("flow.yaml").progress.state == "ok"
    assert (work / "made.txt").exists()
    assert [request.call.arguments["command"] for request in asked] == ["touch made.txt", "ls"]
    assert "a model wrote the command" in asked[0].text()
    trusting = open_bench(allowed_commands=["touch", "ls"], policy={"shell": "allow"})
    assert trusting.workflows.run("flow.yaml").progress.state == "ok"


def test_an_exported_notebook_shows_a_models_words_and_loads_nothing(bench: Workbench, tmp_path: Path) -> None:
    said = "Look: ![x](http://evil.example/?q=1) <img src='http://evil.example/'> \\<b> a < b"
    look = {"tool": "look", "arguments": {"name": "<script>", "fail": True}}
    good = {"tool": "look", "arguments": {"name": "a"}}
    script = yaml.safe_dump({"turns": [{"say": said, "calls": [look, good]}, {"say": "Done."}]})
    run = bench.agent("<b>Look</b>", script=script)
    bench.agent.export(run, "run.ipynb")
    cells = json.loads((tmp_path / "run.ipynb").read_text())["cells"]
    words = [cell["source"] for cell in cells if cell["cell_type"] == "markdown"]
    assert not [text for text in words if "<" in text or "![" in text]
    assert any("&lt;img src=" in text and "\\&lt;b>" in text for text in words)
