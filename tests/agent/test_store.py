"""Conversations in the memory's repository: what a write costs, and that nobody overwrites what another wrote."""

from __future__ import annotations

import asyncio
import collections
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest

from nbtools import tool
from nbtools.agent.records.images import Images
from nbtools.agent.records.run_record import RunOptions, RunRecord
from nbtools.agent.records.store import RunStore, StoredConversation
from nbtools.agent.records.writer import RunWriter
from nbtools.errors import MemoryWriteFailed
from nbtools.memory.duckdb.repository import DuckDBRepository
from nbtools.memory.in_memory import InMemoryRepository
from nbtools.memory.repository import Query


class Counted:
    """Hands everything on to a repository, and counts the calls."""

    def __init__(self, behind: Any) -> None:
        self.behind = behind
        self.counts: collections.Counter[str] = collections.Counter()

    def __getattr__(self, name: str) -> Any:
        self.counts[name] += 1
        return getattr(self.behind, name)


def _messages(*texts: str) -> list[Any]:
    return [ModelRequest.user_text_prompt(text) for text in texts]


async def _save(conversation: StoredConversation, *texts: str) -> None:
    await conversation.save([*conversation.messages, *_messages(*texts)], lambda head: {"run/r": {"head": head}})


def test_a_conversation_that_grows_is_written_and_not_read_again() -> None:
    async def grow() -> collections.Counter[str]:
        counted = Counted(InMemoryRepository())
        conversation = StoredConversation(RunStore(counted, "a", Images(Path(), 1.0, 1)), "c")
        await conversation.load()
        await _save(conversation, "one")
        counted.counts.clear()
        for number in range(5):
            await _save(conversation, f"more {number}")
        return counted.counts

    assert asyncio.run(grow()) == {"apply": 5}


def test_what_another_process_wrote_is_not_overwritten() -> None:
    async def write() -> list[str]:
        repository = InMemoryRepository()
        mine, theirs = (StoredConversation(RunStore(repository, "a", Images(Path(), 1.0, 1)), "c") for _ in range(2))
        await _save(mine, "one")
        await theirs.load()
        await _save(theirs, "two")
        with pytest.raises(ConversationConflict):
            await _save(mine, "three")
        await mine.load()
        await _save(mine, "four")
        return [str(message.parts[0].content) for message in mine.messages]

    assert asyncio.run(write()) == ["one", "two", "four"]


def test_calls_that_read_wait_for_no_disk_and_those_with_effects_do(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    has_looked = threading.Event()
    apply = DuckDBRepository.apply

    def slowly(self: DuckDBRepository, changes: Any, **more: Any) -> Any:
        if "tool-call" in str(changes) and not has_looked.is_set():
            assert has_looked.wait(60), "the call waited for the disk"
        done = apply(self, changes, **more)
        happened.extend("stored" for change in changes if change.key.startswith("entry/"))
        return done

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

    monkeypatch.setattr(DuckDBRepository, "apply", slowly)
    script = "turns:\n- {calls: [{tool: look}]}\n- {calls: [{tool: change}]}\n- {say: Done.}\n"
    run = open_bench(tools=(look, change)).agent("Go!", script=script)
    assert run.state == "done", run
    # The prompt and the answer, then the result and the answer; an effect has everything before it on the disk.
    assert happened[:1] == ["looked"]
    assert happened[: happened.index("changed")].count("stored") == 4


def test_what_cannot_be_stored_ends_the_run_before_an_effect(
    open_bench: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = DuckDBRepository.apply

    def fail(self: DuckDBRepository, changes: Any, **more: Any) -> Any:
        if "tool-call" in str(changes):
            raise MemoryWriteFailed("the disk is full.")
        return apply(self, changes, **more)

    monkeypatch.setattr(DuckDBRepository, "apply", fail)
    script = "turns:\n- {calls: [{tool: add_line, arguments: {text: a}}]}\n- {say: Done.}\n"
    run = open_bench().agent("Go!", script=script)
    assert (run.state, done) == ("failed", [])
    assert run.error is not None
    assert "the disk is full" in run.error.message


def test_answers_and_changes_that_come_together_share_one_write_and_a_mark_waits_for_it() -> None:
    async def write() -> tuple[collections.Counter[str], list[str], set[str]]:
        counted = Counted(InMemoryRepository())
        store = RunStore(counted, "a", Images(Path(), 1.0, 1))
        writer = RunWriter(store, RunRecord(prompt="Go!", options=RunOptions(), model="m", conversation_id="c"))
        sent = _messages("one", "two", "three")
        writer.take_changes({"undo/x": {"tool": "t", "changes": []}})
        await asyncio.sleep(0)
        for number in range(1, 4):
            writer.soon({f"also/{number}": number}, messages=sent[:number])
        await writer.mark("call", "started")
        found = StoredConversation(store, "c")
        counts = +counted.counts
        await found.load()
        records = counted.behind.query(Query(scope=store._scope)).records
        return counts, [message.parts[0].content for message in found.messages], {r.key.split("/")[0] for r in records}

    counts, texts, kinds = asyncio.run(write())
    assert counts["apply"] == 1
    assert texts == ["one", "two", "three"]
    assert kinds == {"also", "call", "conversation", "entry", "run", "undo"}


def test_what_could_not_be_stored_is_raised_each_time() -> None:
    async def write() -> None:
        repository = InMemoryRepository()
        store = RunStore(repository, "a", Images(Path(), 1.0, 1))
        await _save(StoredConversation(store, "c"), "of someone else")
        writer = RunWriter(store, RunRecord(prompt="Go!", options=RunOptions(), model="m", conversation_id="c"))
        writer.soon(messages=_messages("mine"))
        for _ in range(2):
            with pytest.raises(ConversationConflict):
                await writer.stored()
        with pytest.raises(ConversationConflict):
            writer.soon({"a": 1})

    asyncio.run(write())


def test_a_record_that_another_version_kept_is_read() -> None:
    record = RunRecord(prompt="Go!", options=RunOptions(), model="m", conversation_id="c")
    assert RunRecord.from_dict({**record.to_dict(), "place": "elsewhere"}) == record
