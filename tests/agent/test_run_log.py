"""Runs of agents in their folders: what a write costs, what waits for it, and what is there after a process ended."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest

from nbtools import tool
from nbtools.agent.records import run_log
from nbtools.agent.records.run_log import AgentRunFolder, AgentRunLog
from nbtools.agent.records.run_record import RunOptions, RunRecord
from nbtools.conduct.run_folder import write_file
from nbtools.conduct.run_folders import RunFolders
from nbtools.errors import LimitExceeded, PermissionDenied


def _messages(*texts: str) -> list[Any]:
    return [ModelRequest.user_text_prompt(text) for text in texts]


def _laid_down(folder: Path, before: AgentRunFolder | None = None, **more: Any) -> AgentRunLog:
    record = RunRecord(prompt="Go!", options=RunOptions(), model="m", run_id=folder.name, **more)
    AgentRunFolder.create(folder, record, before)
    return AgentRunLog(folder, record)


def _texts(run: AgentRunFolder) -> list[str]:
    return [str(message.parts[0].content) for message in run.messages()]


async def _save(log: AgentRunLog, messages: list[Any]) -> None:
    log.soon(messages)
    await log.stored()


def test_of_a_conversation_that_grows_only_what_is_new_is_written(tmp_path: Path) -> None:
    async def grow() -> list[list[int]]:
        log, messages = _laid_down(tmp_path / "a"), _messages("one", "two")
        await _save(log, messages)
        await _save(log, [*messages, *_messages("three")])
        await _save(log, [messages[0], *_messages("other")])
        log.close()
        batches = [json.loads(path.read_bytes()) for path in log.batches()]
        return [[batch["from"], len(batch["messages"])] for batch in batches]

    assert asyncio.run(grow()) == [[0, 2], [2, 1], [1, 1]]
    assert _texts(AgentRunFolder(tmp_path / "a")) == ["one", "other"]


def test_a_run_that_goes_on_from_another_has_its_messages_and_leaves_them_alone(tmp_path: Path) -> None:
    async def branch() -> None:
        first = _laid_down(tmp_path / "a")
        await _save(first, _messages("one"))
        first.keep_text("result-1", "long")
        second = _laid_down(tmp_path / "b", first)
        await _save(second, [*second.take_up(), *_messages("two")])
        await _save(first, [*_messages("one"), *_messages("beside")])

    asyncio.run(branch())
    first, second = (AgentRunFolder(tmp_path / name) for name in "ab")
    assert (_texts(first), _texts(second)) == (["one", "beside"], ["one", "two"])
    assert (second.load_text("result-1"), second.load_text("../run.json")) == ("long", None)
    assert (first.claim(), first.claim()) == (True, False)


def test_a_second_driver_is_told_who_drives(tmp_path: Path) -> None:
    log = _laid_down(tmp_path / "a")
    with pytest.raises(PermissionDenied, match="still runs, in process"):
        AgentRunLog(tmp_path / "a")
    assert AgentRunFolder(tmp_path / "a").read_record().state == "running"
    log.close()
    assert AgentRunFolder(tmp_path / "a").read_record().state == "interrupted"
    AgentRunLog(tmp_path / "a").close()


def test_what_follows_a_half_written_line_is_read(tmp_path: Path) -> None:
    _laid_down(tmp_path / "a").close()
    with (tmp_path / "a" / "log.jsonl").open("ab") as file:
        file.write(b'{"kind": "text", "te')
    log = AgentRunLog(tmp_path / "a")
    asyncio.run(log.mark("call", "started"))
    log.add_undo({"key": 1, "tool": "t", "changes": [1]})
    log.add_undo({"key": 1, "tool": "t", "changes": []})
    log.close()
    run = AgentRunFolder(tmp_path / "a")
    assert (run.events(), run.marks()["call"]["state"]) == ([], "started")
    assert [entry["changes"] for entry in run.undo_entries()] == [[]]


def test_runs_that_wait_are_not_removed_for_their_age(tmp_path: Path) -> None:
    for number in range(25):
        _laid_down(tmp_path / f"r{number:02d}", state="pending" if number < 4 else "done").close()
    (tmp_path / "half").mkdir()
    os.utime(tmp_path / "half", (0, 0))
    newer = tmp_path / "r04"
    AgentRunFolder.write_facts(newer, {**AgentRunFolder(newer).facts, "format": 99})
    kept = RunFolders(tmp_path, AgentRunFolder, seconds=0.0, most_bytes=0, listed_by="nbtools agent runs")
    kept.prune_once()
    left = sorted(run.folder.name for run in kept.newest(None))
    assert left[:4] == ["r00", "r01", "r02", "r03"]
    assert newer.exists()
    assert not (tmp_path / "half").exists()
    assert 19 <= len(left) < 24


def test_calls_that_read_wait_for_no_disk_and_those_with_effects_do(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    has_looked = threading.Event()

    def slowly(path: Path, content: bytes) -> None:
        if b"tool-call" in content and not has_looked.is_set():
            assert has_looked.wait(60), "the call waited for the disk"
        write_file(path, content)
        if path.parent.name == "messages":
            happened.extend(["stored"] * len(json.loads(content)["messages"]))

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        happened.append("looked")
        has_looked.set()
        return "seen"

    @tool(destructive=False)
    def change() -> str:
        """Change something."""
        happened.append("changed")
        return "changed"

    monkeypatch.setattr(run_log, "write_file", slowly)
    script = "turns:\n- {calls: [{tool: look}]}\n- {calls: [{tool: change}]}\n- {say: Done.}\n"
    run = open_bench(tools=(look, change)).agent("Go!", script=script)
    assert run.state == "done", run
    # The prompt and the answer, then the result and the answer; an effect has everything before it on the disk.
    assert happened[:1] == ["looked"]
    assert happened[: happened.index("changed")].count("stored") == 4


def test_what_cannot_be_stored_ends_the_run_before_an_effect(
    open_bench: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        if b"tool-call" in content:
            raise OSError(errno.ENOSPC, "no space left", str(path))
        write_file(path, content)

    monkeypatch.setattr(run_log, "write_file", fail)
    script = "turns:\n- {calls: [{tool: add_line, arguments: {text: a}}]}\n- {say: Done.}\n"
    run = open_bench().agent("Go!", script=script)
    assert (run.state, done) == ("failed", [])
    assert run.error is not None
    assert "no space left" in run.error.message


def test_answers_that_come_together_share_one_write_and_a_mark_waits_for_it(tmp_path: Path) -> None:
    async def write() -> None:
        log, sent = _laid_down(tmp_path / "a"), _messages("one", "two", "three")
        for number in range(1, 4):
            log.soon(sent[:number])
        await log.mark("call", "started")

    asyncio.run(write())
    run = AgentRunFolder(tmp_path / "a")
    assert (len(run.batches()), _texts(run)) == (1, ["one", "two", "three"])
    assert run.marks().keys() == {"call"}


def test_what_could_not_be_stored_is_raised_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left", str(path))

    async def write() -> None:
        log = _laid_down(tmp_path / "a")
        monkeypatch.setattr(run_log, "write_file", fail)
        log.soon(_messages("mine"))
        for _ in range(2):
            with pytest.raises(LimitExceeded):
                await log.stored()
        with pytest.raises(LimitExceeded):
            log.soon()

    asyncio.run(write())


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = _laid_down(tmp_path / "a", conversation_id="c", state="done")
    log.close()
    stored = AgentRunFolder(tmp_path / "a").read_record()
    assert (stored.options.tools, stored.ledger.budgets) == (["*"], log.record.ledger.budgets)
    assert stored.to_dict() == json.loads(json.dumps({**log.record.to_dict(), "pending": ()})) | {"pending": ()}
