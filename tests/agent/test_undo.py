"""Taking back what a run did: files and notes that nobody has changed since, and a word on what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.gate import AskFunction

YES = AskFunction(lambda _: True)


def _run(wb: Workbench, *calls: tuple[str, dict[str, Any]]) -> Any:
    turns = [{"calls": [{"tool": name, "arguments": arguments}]} for name, arguments in calls]
    run = wb.agent("Go!", script=f"turns: {json.dumps([*turns, {'say': 'Done.'}])}\n", approver=YES)
    assert [call.result.ok for call in run.calls] == [True] * len(calls), run.calls
    return run


def test_files_and_notes_come_back_and_the_rest_is_told(wb: Workbench, tmp_path: Path) -> None:
    old, new, gone = (tmp_path / name for name in ("old.txt", "new.txt", "gone.txt"))
    old.write_bytes(b"\x00one")
    gone.write_text("gone")
    wb.memory.write("goal", "before")
    run = _run(
        wb,
        ("file_write", {"path": str(old), "content": "two"}),
        ("file_write", {"path": str(old), "content": "three"}),
        ("file_write", {"path": str(new), "content": "new"}),
        ("file_delete", {"path": str(gone)}),
        ("memory_save", {"key": "goal", "value": "after"}),
        ("memory_save", {"key": "fresh", "value": "x"}),
        ("add_line", {"text": "a"}),
    )
    assert (old.read_text(), new.exists(), gone.exists(), wb.memory.read("goal")) == ("three", True, False, "after")
    rows = wb.agent.undo(run)
    assert [(row["tool"], row["undone"]) for row in rows] == [
        ("add_line", False), ("memory_save", True), ("memory_save", True), ("file_delete", True),
        ("file_write", True), ("file_write", True), ("file_write", True),
    ]  # fmt: skip
    assert "not known" in rows[0]["why"]
    assert (old.read_bytes(), new.exists(), gone.read_text()) == (b"\x00one", False, "gone")
    assert (wb.memory.read("goal"), "fresh" in wb.memory) == ("before", False)
    assert [row["tool"] for row in wb.agent.undo(run)] == ["add_line"]  # once is enough
    assert wb.call_records()[0]["tool"] == "agent_undo"


def test_what_was_changed_since_is_left_alone(wb: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    run = _run(wb, ("file_write", {"path": str(file), "content": "two"}), ("memory_save", {"key": "k", "value": 1}))
    file.write_text("mine")
    wb.memory.write("k", "mine")
    rows = wb.agent.undo(run.run_id)
    assert [row["why"] for row in rows] == ["it has been changed since"] * 2
    assert (file.read_text(), wb.memory.read("k")) == ("mine", "mine")


def test_a_file_that_is_too_large_is_told(wb: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(bytes(9 * 2**20))
    run = _run(wb, ("file_write", {"path": str(file), "content": "two"}))
    (row,) = wb.agent.undo(run)
    assert "9,437,184 bytes" in row["why"]
    assert file.read_text() == "two"


def test_undo_works_in_another_process(open_bench: Any, tmp_path: Path, done: list[str]) -> None:
    url, file = f"duckdb:///{tmp_path}/m.duckdb", tmp_path / "a.txt"
    file.write_text("one")
    first = open_bench(memory_url=url)
    run = _run(first, ("file_write", {"path": str(file), "content": "two"}))
    first.close()
    assert [row["undone"] for row in open_bench(memory_url=url).agent.undo(run.run_id)] == [True]
    assert file.read_text() == "one"


def test_a_run_that_goes_on_cannot_be_undone(wb: Workbench) -> None:
    run = wb.agent.start("Go!", script="turns:\n  - {say: late, wait: 30}\n")
    with pytest.raises(ValueError, match="still runs"):
        wb.agent.undo(run)
    run.cancel()
    run.wait(60)


def test_files_of_the_memory_tool_come_back(wb: Workbench) -> None:
    files = wb.memory_files
    files.call({"command": "create", "path": "/memories/a.md", "file_text": "one"})
    files.call({"command": "create", "path": "/memories/old/b.md", "file_text": "two"})
    files.call({"command": "create", "path": "/memories/d.md", "file_text": "four"})
    run = _run(
        wb,
        ("memory", {"command": "str_replace", "path": "/memories/a.md", "old_str": "one", "new_str": "1"}),
        ("memory", {"command": "rename", "old_path": "/memories/old", "new_path": "/memories/new"}),
        ("memory", {"command": "create", "path": "/memories/c.md", "file_text": "three"}),
        ("memory", {"command": "delete", "path": "/memories/d.md"}),
        ("memory", {"command": "view", "path": "/memories"}),
    )
    assert [call.result.ok for call in run.calls] == [True] * 5
    rows = wb.agent.undo(run)
    assert [row["why"] for row in rows] == [""] * len(rows)
    assert {row["target"] for row in rows} == {
        f"/memories/{name}" for name in ("a.md", "old/b.md", "new/b.md", "c.md", "d.md")
    }
    assert files.below(["/memories"]) == {
        "/memories/a.md": "one",
        "/memories/old/b.md": "two",
        "/memories/d.md": "four",
    }


def test_what_code_and_commands_did_is_said_to_be_unknown(open_bench: Any, tmp_path: Path) -> None:
    bench = open_bench(allowed_commands=["echo"])
    run = _run(bench, ("shell", {"command": "echo hello"}))
    assert [call.result.ok for call in run.calls] == [True]
    assert [(row["tool"], row["undone"]) for row in bench.agent.undo(run)] == [("shell", False)]
    assert "look yourself" in bench.agent.undo(run)[0]["why"]
