"""What a call does is told by its values, and a model is asked for what destroys, whatever the tool is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench, confine
from nbtools.contract.approval.gate import AskFunction, Rule

pytestmark = pytest.mark.processes

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 2])"
DRAW = {"input_file_path": "d.csv", "visualization_script": PLOT}


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> Iterator[Workbench]:
    (tmp_path / "d.csv").write_text("a\n1\n")
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.4 the only copy")
    monkeypatch.chdir(tmp_path)
    approver = AskFunction(lambda request: asked.append(request.tool.name))  # says nothing, which is no yes
    with Workbench(home=tmp_path / "home", memory_url=":memory:", spares=0, approver=approver) as made:
        yield made


NOTE = "/memories/a.md"


@pytest.mark.parametrize(
    ("tool", "arguments", "is_asked"),
    [
        ("memory_save", {"key": "goal", "value": "x"}, False),
        ("memory_save", {"key": "goal", "value": "x", "ttl": None}, False),
        ("memory_save", {"key": "goal", "value": "x", "ttl": "never"}, False),
        ("memory_save", {"key": "goal", "value": "x", "ttl": 0.001}, True),
        ("memory", {"command": "view", "path": "/memories"}, False),
        ("memory", {"command": "create", "path": NOTE, "file_text": "x"}, False),
        ("memory", {"command": "delete", "path": NOTE}, True),
        ("memory", {"command": "rename", "old_path": NOTE, "new_path": "/memories/b.md"}, True),
        ("memory", {"command": "update", "path": NOTE, "file_text": ""}, True),
        ("data_visualize", {**DRAW, "output_image_path": "report.pdf"}, True),
        ("data_visualize", {**DRAW, "output_image_path": "x/../report.pdf"}, True),
    ],
)
def test_a_model_is_asked_for_what_destroys_alone(
    bench: Workbench, asked: list[str], tool: str, arguments: dict[str, Any], is_asked: bool
) -> None:
    for caller in ("model", "mcp"):
        result = bench.call(tool, arguments, caller=caller)  # type: ignore[arg-type]  # two of the known
        assert (result.error is not None and result.error.code == "APPROVAL_DENIED") is is_asked
    assert asked == [tool, tool] * is_asked
    assert Path("report.pdf").read_bytes().endswith(b"the only copy")


def test_a_new_picture_is_drawn_unasked_where_scripts_are_confined(bench: Workbench, asked: list[str]) -> None:
    if confine.capabilities().level != "strict":
        pytest.skip("this host cannot confine strictly")
    bench.call("data_visualize", {**DRAW, "output_image_path": "new.png"}, caller="model").raise_for_error()
    assert asked == []


def test_a_file_that_appears_while_a_picture_is_drawn_is_not_replaced(bench: Workbench, asked: list[str]) -> None:
    if confine.capabilities().level != "strict":
        pytest.skip("this host cannot confine strictly")

    def meanwhile(kind: str, text: str, data: Any) -> None:
        if "drawn" in text:
            Path("new.png").write_text("the user's")
            bench.memory.write("go on", 1)

    waits = "print('drawn', flush=True)\nimport time\nwhile 'go on' not in memory: time.sleep(0.01)"
    arguments = {**DRAW, "visualization_script": f"{PLOT}\n{waits}", "output_image_path": "new.png"}
    result = bench.call("data_visualize", arguments, caller="model", on_output=meanwhile)
    assert result.error is not None
    assert (result.error.code, asked) == ("FILE_EXISTS", [])
    assert Path("new.png").read_text() == "the user's"


def test_a_models_scripts_are_asked_for_where_they_cannot_be_confined(
    bench: Workbench, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = dataclasses.replace(confine.capabilities(), level="limits", missing=("Landlock",))
    monkeypatch.setattr(confine, "capabilities", lambda: weak)
    script = {"input_file_path": "d.csv", "analysis_script": "open('pwned', 'w')"}
    for tool, arguments in (("data_analyze", script), ("data_visualize", {**DRAW, "output_image_path": "new.png"})):
        result = bench.call(tool, arguments, caller="model")
        assert result.error is not None
        assert result.error.code == "APPROVAL_DENIED"
    assert asked == ["data_analyze", "data_visualize"]
    assert not Path("pwned").exists()
    assert bench.call("data_analyze", {**script, "analysis_script": "print(1)"}).text == "1\n"


def test_a_models_script_uses_the_memory_through_the_door(bench: Workbench, asked: list[str]) -> None:
    if confine.capabilities().level != "strict":
        pytest.skip("this host cannot confine strictly")
    bench.memory.write("goal", "win")
    script = """
memory.write("note", memory["goal"])
for act in (lambda: memory.delete("goal"), lambda: memory.clear(), lambda: memory.write("goal", "x", ttl=0.001)):
    try:
        act()
    except PermissionError as exc:
        print(str(exc).partition(",")[0])
"""
    given = {"input_file_path": "d.csv", "analysis_script": script}
    result = bench.call("data_analyze", given, caller="model")
    needs = [f"{name} needs approval" for name in ("memory_delete", "memory_clear", "memory_save")]
    assert result.raise_for_error().text.splitlines() == needs
    assert asked == ["memory_delete", "memory_clear", "memory_save"]
    assert (bench.memory["goal"], bench.memory["note"]) == ("win", "win")
    inside = [r for r in bench.call_records() if r["parent_id"] == result.call_id]
    assert [(r["tool"], r["caller"], r["ok"]) for r in reversed(inside)] == [
        ("memory_retrieve", "model", True),
        ("memory_save", "model", True),
        *((name, "model", False) for name in asked),
    ]
    person = {**given, "analysis_script": "memory.delete('note')"}
    bench.call("data_analyze", person).raise_for_error()
    assert "note" not in bench.memory


@pytest.mark.parametrize("key", ["/memories", "/memories/", NOTE, "/memories/../a"])
def test_files_of_the_memory_are_changed_by_their_own_tool_alone(bench: Workbench, asked: list[str], key: str) -> None:
    bench.memory_files.call({"command": "create", "path": NOTE, "file_text": "the plan"})
    bench.door.rules = (Rule(action="allow"),)
    for tool, more in (("memory_save", {"value": {"no": "text"}}), ("memory_delete", {})):
        result = bench.call(tool, {"key": key, **more}, caller="model")
        assert result.error is not None
        assert result.error.code == "INVALID_ARGUMENTS"
        assert "with the tool memory" in (result.error.hint or "")
    assert "the plan" in bench.call("memory", {"command": "view", "path": NOTE}).text


def test_a_script_that_spoils_its_way_to_the_memory_does_not_wait_for_answers(bench: Workbench) -> None:
    script = "import os\nos.write(memory._fd, b'\\xff' * 8)\nmemory.read('x')"
    given = {"input_file_path": "d.csv", "analysis_script": script, "timeout": 60}
    result = bench.call("data_analyze", given, caller="model")
    assert result.error is not None
    assert result.error.code == "EXECUTION_FAILED", "it is told at once, and runs into no time limit"
