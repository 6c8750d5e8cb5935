"""Taking back what a run did: files and notes that nobody has changed since, and a word on what cannot be."""

from __future__ import annotations

import errno
import json
import time
import types
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench, tool
from nbtools.agent.records.run_log import AgentRunFolder
from nbtools.agent.undo.taking_back import _undo_note
from nbtools.agent.undo.witness import ChangeWitness
from nbtools.contract.approval.gate import AskFunction
from nbtools.contract.tool import Context, ToolCall, tool_of
from nbtools.errors import CallTimeout, ExecutionFailed, NbtoolsError, PermissionDenied
from nbtools.ground import aio
from nbtools.memory import AgentMemory
from nbtools.toolbox.files.file_tools import file_write

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
    assert "are unknown" in rows[0]["why"]
    assert (old.read_bytes(), new.exists(), gone.read_text()) == (b"\x00one", False, "gone")
    assert (wb.memory.read("goal"), "fresh" in wb.memory) == ("before", False)
    again = wb.agent.undo(run)  # once is enough
    assert [row["tool"] for row in again if not row["why"].startswith("it was undone at ")] == ["add_line"]
    assert wb.call_records()[0]["tool"] == "agent_undo"


def test_what_another_run_has_changed_since_names_that_run_and_its_tool(wb: Workbench, tmp_path: Path) -> None:
    file, alone = tmp_path / "a.txt", tmp_path / "b.txt"
    one = _run(wb, *(("file_write", {"path": str(path), "content": "one"}) for path in (file, alone)))
    other = _run(wb, ("file_write", {"path": str(file), "content": "two"}), ("memory_save", {"key": "k", "value": 1}))
    last = _run(wb, ("memory_save", {"key": "k", "value": 2}))
    alone.write_text("by hand")
    rows = {row["target"]: row["why"] for row in wb.agent.undo(one)}
    assert rows[str(file)] == f"it has been changed since; since then run {other.run_id[:8]} (file_write) changed it"
    assert rows[str(alone)] == "it has been changed since"
    rows = {row["target"]: row["why"] for row in wb.agent.undo(other)}
    assert rows[str(file)] == ""
    assert f"run {last.run_id[:8]} (memory_save)" in rows["k"]
    assert file.read_text() == "one"


def test_what_was_changed_since_is_left_alone(wb: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    run = _run(wb, ("file_write", {"path": str(file), "content": "two"}), ("memory_save", {"key": "k", "value": 1}))
    file.write_text("mine")
    wb.memory.write("k", "mine")
    rows = wb.agent.undo(run.run_id)
    assert [row["why"] for row in rows] == ["it has been changed since"] * 2
    assert (file.read_text(), wb.memory.read("k")) == ("mine", "mine")


def test_what_one_call_changed_twice_is_what_it_was_before_both(open_bench: Any) -> None:
    @tool
    def count(ctx: Context) -> str:
        """Write a note twice."""
        memory = ctx.use(AgentMemory)
        memory.write("k", 1)
        memory.write("k", 2)
        return "done"

    bench = open_bench(tools=(count,))
    bench.memory.write("k", 0)
    run = _run(bench, ("count", {}))
    assert bench.memory.read("k") == 2
    assert [row["undone"] for row in bench.agent.undo(run) if row["target"]] == [True]
    assert bench.memory.read("k") == 0


@pytest.mark.parametrize(("ends", "lives"), [("2020-01-01T00:00:00+00:00", False), ("2999-01-01T00:00:00+00:00", True)])
def test_a_note_whose_time_is_over_does_not_live_again(wb: Workbench, ends: str, lives: bool) -> None:
    ids = {name: getattr(wb.memory.scope, name) for name in ("agent_id", "workflow_id", "node_id")}
    for value in ("before", "after"):
        wb.memory.write("k", value)
    assert _undo_note({"target": "k", "ids": ids, "was": 1, "is": 2, "ends": ends}, wb.memory) == ""
    assert wb.memory.read("k") == ("before" if lives else None)


def test_a_file_that_is_too_large_is_told(wb: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(bytes(9 * 2**20))
    run = _run(wb, ("file_write", {"path": str(file), "content": "two"}))
    (row,) = wb.agent.undo(run)
    assert "9,437,184 bytes" in row["why"]
    assert file.read_text() == "two"


@pytest.mark.processes
def test_undo_works_in_another_process(open_bench: Any, tmp_path: Path, done: list[str]) -> None:
    url, file = f"duckdb:///{tmp_path}/m.duckdb", tmp_path / "a.txt"
    file.write_text("one")
    first = open_bench(memory_url=url)
    run = _run(first, ("file_write", {"path": str(file), "content": "two"}))
    first.close()
    second = open_bench(memory_url=url)
    assert [(row["undone"], row["why"]) for row in second.agent.undo(run.run_id)] == [(True, "")]
    file.write_text("mine")
    (again,) = second.agent.undo(run.run_id)
    assert (again["undone"], again["why"][:17]) == (True, "it was undone at ")
    assert file.read_text() == "mine"


def test_a_run_that_goes_on_cannot_be_undone(wb: Workbench) -> None:
    run = wb.agent.start("Go!", script="turns:\n  - {say: late, wait: 30}\n")
    with pytest.raises(PermissionDenied, match="still runs"):
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


@pytest.mark.processes
def test_what_code_and_commands_did_is_said_to_be_unknown(open_bench: Any, tmp_path: Path) -> None:
    bench = open_bench(allowed_commands=["echo"])
    run = _run(bench, ("shell", {"command": "echo hello"}))
    assert [call.result.ok for call in run.calls] == [True]
    assert [(row["tool"], row["undone"]) for row in bench.agent.undo(run)] == [("shell", False)]
    assert "check by hand" in bench.agent.undo(run)[0]["why"]


_FLOW = """\
version: 1
name: flow
description: Changes a file and notes.
agent_id: default
memory: {enabled: true, default_scope: agent}
nodes:
  - {id: file, tool: file_write, args: {path: FILE, content: overwritten}}
  - {id: note, tool: memory_save, args: {key: saved, value: overwritten}}
  - {id: code, code: "memory.write('coded', 'overwritten')"}
"""


@pytest.mark.slow
@pytest.mark.processes
def test_changes_by_scripts_and_by_nodes_of_a_workflow_come_back(open_bench: Any, tmp_path: Path) -> None:
    file, picture, flow = (tmp_path / name for name in ("keep.txt", "picture.png", "flow.yaml"))
    file.write_text("mine")
    picture.write_bytes(b"mine")
    flow.write_text(_FLOW.replace("FILE", str(file)))
    bench = open_bench(workflows=[flow])
    for key in ("written", "gone", "drawn", "saved", "coded"):
        bench.memory.write(key, "mine")
    bench.memory.write("ends", "mine", ttl=5_000)
    script = "memory.write('written', 1); memory.write('written', 2); memory.delete('gone'); memory.write('new', 1)"
    chart = "memory.write('drawn', 1); import matplotlib.pyplot as plt; plt.plot([1])"
    data = {"input_file_path": str(file)}
    run = _run(
        bench,
        ("data_analyze", {**data, "analysis_script": f"{script}; memory.write('ends', 1, ttl=None); print(1)"}),
        ("data_visualize", {**data, "visualization_script": chart, "output_image_path": str(picture)}),
        ("flow", {}),
    )
    assert (bench.memory["coded"], file.read_text(), picture.read_bytes()[:4]) == (
        "overwritten",
        "overwritten",
        b"\x89PNG",
    )
    rows = bench.agent.undo(run)
    assert {(row["tool"], row["target"]) for row in rows if row["undone"]} == {
        ("data_analyze", "written"), ("data_analyze", "gone"), ("data_analyze", "new"), ("data_analyze", "ends"),
        ("data_visualize", "drawn"), ("data_visualize", str(picture)),
        ("file_write", str(file)), ("memory_save", "saved"), ("workflow_code", "coded"),
    }  # fmt: skip
    assert {row["tool"] for row in rows if not row["undone"]} == {"workflow_code", "flow"}  # code may do anything
    assert dict(bench.memory) == dict.fromkeys(("coded", "drawn", "ends", "gone", "saved", "written"), "mine")
    ends = bench.memory.record("ends").expires_at
    assert ends is not None
    assert 4_000 < ends.timestamp() - time.time() <= 5_000
    assert (file.read_text(), picture.read_bytes()) == ("mine", b"mine")


def test_what_is_elsewhere_now_is_named_and_left_alone(wb: Workbench, tmp_path: Path) -> None:
    moved, linked, folder = tmp_path / "moved.txt", tmp_path / "linked.txt", tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    others, link = folder / "inner" / "a.txt", tmp_path / "link.txt"
    link.symlink_to(others)
    for file in (moved, linked, others):
        file.write_text("one")
    run = _run(
        wb,
        *(("file_write", {"path": str(file), "content": "two"}) for file in (moved, linked, others)),
        ("file_delete", {"path": str(link)}),
        ("file_move", {"source": str(folder), "dest": str(tmp_path / "elsewhere")}),
    )
    moved.rename(tmp_path / "mine.txt")
    linked.rename(tmp_path / "target.txt")
    linked.symlink_to(tmp_path / "target.txt")
    folder.symlink_to(tmp_path / "elsewhere")
    why = {Path(row["target"]).name: row["why"] for row in wb.agent.undo(run)}
    assert "moved or deleted since" in why["moved.txt"]
    assert why["linked.txt"] == "it is a link now"
    assert why["a.txt"] == "a link leads there now"
    assert "it was a link to" in why["link.txt"]
    assert "folder" in why["folder"]
    assert "folder" in why["elsewhere"]
    assert [(tmp_path / name).read_text() for name in ("mine.txt", "target.txt")] == ["two", "two"]
    assert (tmp_path / "elsewhere" / "inner" / "a.txt").read_text() == "two"


def test_contents_are_kept_once_and_a_lost_one_is_told(wb: Workbench, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_text("the same")
    run = _run(wb, *(("file_write", {"path": str(file), "content": "new"}) for file in files))
    (image,) = tmp_path.glob("home/agent_runs/*/*/before/*")
    assert image.read_text() == "the same"
    image.write_text("someone's")
    assert ["no longer kept" in row["why"] for row in wb.agent.undo(run)] == [True, True]
    assert files[0].read_text() == "new"


def test_a_tool_of_somebody_else_is_never_taken_to_have_done_nothing_more(open_bench: Any, tmp_path: Path) -> None:
    @tool(destructive=True)
    def clear_shelf(shelf: Path, log: Path) -> str:
        """Empty a folder.

        Parameters
        ----------
        shelf
            The folder.
        log
            A file that tells of it.
        """
        for file in shelf.iterdir():
            file.unlink()
        log.write_text("done")
        return "done"

    shelf, log = tmp_path / "shelf", tmp_path / "log.txt"
    shelf.mkdir()
    (shelf / "a").touch()
    bench = open_bench(tools=(clear_shelf,))
    run = _run(bench, ("clear_shelf", {"shelf": str(shelf), "log": str(log)}))
    rows = {row["target"]: row for row in bench.agent.undo(run)}
    assert rows[str(log)]["undone"]
    assert not rows[str(shelf)]["undone"]
    assert "its other changes" in rows[""]["why"]


@pytest.mark.parametrize(("error", "rests"), [(CallTimeout("late"), [True]), (ExecutionFailed("no"), [])], ids=repr)
def test_what_a_call_that_took_too_long_may_still_do_is_unknown(
    tmp_path: Path, error: NbtoolsError, rests: list[bool]
) -> None:
    entries: list[dict[str, Any]] = []
    run: Any = types.SimpleNamespace(add_undo=entries.append)

    async def fail(_: Context) -> Any:
        raise error

    context = Context(call=ToolCall(tool="file_write", arguments={}, caller="model"), services={})
    with pytest.raises(type(error)):
        aio.run(ChangeWitness(run).watch(tool_of(file_write), {"path": tmp_path / "a.txt"}, fail, context))
    assert [entry["rest"] for entry in entries] == rests


def test_a_call_whose_changes_find_no_room_keeps_its_result_and_says_so(
    wb: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, is_full = tmp_path / "a.txt", [True]
    file.write_text("one")
    add_undo = AgentRunFolder.add_undo

    def add(run: AgentRunFolder, entry: Any) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        add_undo(run, entry)

    monkeypatch.setattr(AgentRunFolder, "add_undo", add)
    run = _run(wb, ("file_write", {"path": str(file), "content": "two"}))
    (call,) = run.calls
    assert call.result.text.startswith("What this call changed could not be recorded"), call.result
    assert "No space left" in call.result.text
    assert file.read_text() == "two"
    is_full.clear()
    assert [(row["tool"], row["undone"]) for row in wb.agent.undo(run)] == [("file_write", False)]

    is_full.append(True)
    file.write_text("one")
    (tmp_path / "b.txt").write_text("b")

    def make_room_before_the_second(_: Any) -> bool:
        if file.read_text() == "two":
            is_full.clear()
        return True

    steps = [("file_write", {"path": str(file), "content": "two"}), ("file_delete", {"path": str(tmp_path / "b.txt")})]
    turns = [{"calls": [{"tool": name, "arguments": arguments}]} for name, arguments in steps]
    script, approver = f"turns: {json.dumps([*turns, {'say': 'Done.'}])}\n", AskFunction(make_room_before_the_second)
    later = wb.agent("Go!", script=script, approver=approver)
    assert [row["undone"] for row in wb.agent.undo(later)] == [True, True]  # written with what came next
    assert file.read_text() == "one"

    last = _run(wb, ("file_write", {"path": str(file), "content": "three"}))
    is_full.append(True)
    assert [(row["target"], row["undone"]) for row in wb.agent.undo(last)] == [(str(file), True), ("", False)]
    assert file.read_text() == "one"  # and what was undone is told


def test_an_undo_names_a_call_that_was_cut_before_it_could_say_what_it_changed(wb: Workbench, tmp_path: Path) -> None:
    run = _run(wb, ("memory_save", {"key": "a", "value": 1}), ("add_line", {"text": "a"}))
    (path,) = tmp_path.rglob(f"{run.run_id}/log.jsonl")
    lines = [line for line in path.read_text().splitlines() if line]
    at = next(at for at, line in enumerate(lines) if json.loads(line).get("tool") == "add_line")
    is_cut = [line for line in lines[at:] if json.loads(line)["kind"] == "undo" or '"state":"done"' in line]
    path.write_text("".join(f"{line}\n" for line in lines if line not in is_cut))  # as if it was killed there
    rows = wb.agent.undo(run)
    assert [(row["tool"], row["undone"]) for row in rows] == [("add_line", False), ("memory_save", True)]
    assert "it began" in rows[0]["why"]
