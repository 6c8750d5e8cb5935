"""Where a run of an agent is kept: its record, what happened in it, its conversation, and results that are long.

::

    agent_runs/AGENT/RUN_ID/
      run.json       the record: what was asked, of which model, what it used, how it ended, what it waits for
      log.jsonl      events, what is known of calls with effects, and what these changed
      messages/      the messages of the conversation: each file says from which one on they are these
      texts/         results that were too long for the model, and the tools that it was sent
      before/        what was in files before the run changed them, by the hash of it
      next           which run goes on with the conversation; another one begins a branch

The messages of the runs before are the same files, by hard links. So a run can be removed whole, and those that go on
from it lose nothing. What is stored while a run goes on is stored behind it: one batch at a time, each with all that
came since the one before, so that several answers of a fast model share one write. A caller that needs to know that
everything is on the disk, such as a call with effects before it starts, waits for `AgentRunLog.stored`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.agent.records.events import AgentEvent, AgentRunEnded, AgentRunStarted, AgentState, CallEnded
from nbtools.agent.records.run_record import RunRecord
from nbtools.conduct.run_folder import DrivenRun, RunFolder, link_file, write_file, write_whole
from nbtools.ground.aio import in_thread
from nbtools.ground.home import not_written

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

_LOGGED_TEXT = 20_000
# What comes within that time is stored together, but where someone waits for it.
_TOGETHER_S = 0.01
_MARK, _UNDO = "mark", "undo"


class AgentRunFolder(RunFolder):
    """A run of an agent, as a reader sees it; see `RunFolder`."""

    @classmethod
    def create(cls, folder: Path, record: RunRecord, before: AgentRunFolder | None = None) -> None:
        """Lay down the folder of a new run, with the conversation of the run that it goes on from."""
        cls.lay_down(folder, "messages", "texts", "before")
        if before is not None:
            for path in (*before.folder.glob("messages/*"), *before.folder.glob("texts/*")):
                link_file(path, folder / path.relative_to(before.folder))
            record.began_with = len(before.batches())
        cls.write_facts(folder, record.to_dict())

    @property
    def has_ended(self) -> bool:
        """Whether it neither waits for an answer nor was interrupted."""
        return self.read_record().state not in {"running", "pending", "interrupted"}

    def read_record(self) -> RunRecord:
        """Return what is kept of the run; one that nobody drives and whose log has no end is interrupted."""
        record = RunRecord.from_dict(self.facts)
        if record.state == "running" and self.holder() is None:
            record.state = "interrupted"
            # Its driver may have ended it since the record was read, or was ended before it could write the record.
            turns = [line for line in self.lines() if line["kind"] in {AgentRunStarted.kind, AgentRunEnded.kind}]
            if turns and turns[-1]["kind"] == AgentRunEnded.kind:
                end = turns[-1]
                record.state, record.text, record.ended_at = end["state"], end["text"], end["at"]
        return record

    def claim(self) -> bool:
        """Tell whether the caller is the first that goes on with the conversation of this run."""
        try:
            (self.folder / "next").touch(exist_ok=False)
        except OSError:
            return False
        return True

    def events(self) -> list[dict[str, Any]]:
        """Return what happened in the run, as dicts, in order."""
        return [line for line in self.lines() if line["kind"] not in {_MARK, _UNDO}]

    def marks(self) -> dict[str, dict[str, Any]]:
        """Return what is known of calls that may change something: the id of each to its state."""
        return {line["id"]: line for line in self.lines() if line["kind"] == _MARK}

    def undo_entries(self) -> list[dict[str, Any]]:
        """Return what calls of the run changed, in the order of the calls."""
        return list({line["key"]: line for line in self.lines() if line["kind"] == _UNDO}.values())

    def add_undo(self, entry: Mapping[str, Any]) -> None:
        """Write down what a call changed, in place of what was written of it before; from any thread."""
        # Separate, because a call that was cut off may tell what it changed after the run has ended.
        with (self.folder / "log.jsonl").open("ab", buffering=0) as log:
            # On a new line, also behind one that was cut.
            write_whole(log, f"\n{_line_of({'kind': _UNDO, **entry})}\n".encode("utf-8", "replace"))

    def batches(self) -> list[Path]:
        """Return the files of messages, oldest first."""
        return sorted(self.folder.glob("messages/*.json"))

    def messages(self) -> list[ModelMessage]:
        """Return the messages of the conversation, oldest first."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        messages: list[ModelMessage] = []
        for path in self.batches():
            batch = json.loads(path.read_bytes())
            messages[batch["from"] :] = ModelMessagesTypeAdapter.validate_python(batch["messages"])
        return messages

    def load_text(self, name: str) -> str | None:
        """Return a long text; blocks, and `None` when there is none."""
        # Compared with what is there, since a model says the name.
        path = next((path for path in self.folder.glob("texts/*") if path.name == name), None)
        return None if path is None else path.read_text(encoding="utf-8")

    def keep_text(self, name: str, text: str) -> None:
        """Keep a long text under a name, where there is none; blocks."""
        if not (self.folder / "texts" / name).exists():
            write_file(self.folder / "texts" / name, text.encode("utf-8", "replace"))

    def keep_content(self, content: bytes) -> str:
        """Keep what is in a file, and return its name here; blocks.

        Raises
        ------
        OSError
            It could not be stored.
        """
        path = self.folder / "before" / name_of(content)
        if not path.exists():
            write_file(path, content)
        return path.name

    def load_content(self, name: str) -> bytes | None:
        """Return what was in a file; `None` where it is not there any more, or is not what was kept."""
        with contextlib.suppress(OSError):
            content = (self.folder / "before" / name).read_bytes()
            return content if name_of(content) == name else None
        return None


class AgentRunLog(DrivenRun, AgentRunFolder):
    """A run of an agent, for the one process that drives it; on nbtools' loop.

    Parameters
    ----------
    folder
        The run's folder.
    record
        The run, which is kept up to date elsewhere; `None` is what is stored.

    Attributes
    ----------
    watch
        Takes the events as they happen.
    """

    def __init__(self, folder: Path, record: RunRecord | None = None) -> None:
        super().__init__(folder)
        self.record = RunRecord.from_dict(self.facts) if record is None else record
        self.watch: Callable[[AgentEvent], object] = lambda _: None
        self._lines: list[dict[str, Any]] = []
        self._stored: list[ModelMessage] = []
        self._messages: Sequence[ModelMessage] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = asyncio.Event()

    def take_up(self) -> list[ModelMessage]:
        """Return the messages that are stored, from which the run goes on."""
        self._stored = self.messages()
        return list(self._stored)

    def save_record(self) -> None:
        """Store the record as it is now; blocks."""
        self.write_facts(self.folder, self.record.to_dict())

    def emit(self, event: AgentEvent) -> None:
        """Log an event and hand it on, with the name of the run."""
        # Logged first: a watcher may raise, and the log is what a resumed run reads.
        self.watch(self.log(event))

    def named(self, event: AgentEvent) -> AgentEvent:
        """Return an event with the name of the run."""
        return dataclasses.replace(event, run_id=self.record.run_id, label=self.record.label)

    def log(self, event: AgentEvent) -> AgentEvent:
        """Keep an event, which is stored with the next messages, and return it with the name of the run."""
        event = self.named(event)
        line = _as_logged(event)
        last = self._lines[-1] if self._lines else {"kind": ""}
        if last["kind"] == line["kind"] == "text" and line["step"] == last["step"]:
            last["text"] += line["text"]
        else:
            self._lines.append(line)
        return event

    def end(self, state: AgentState) -> AgentEvent:
        """Say in record and log that the run is over, or waits; the code that ends it stores both."""
        record = self.record
        record.state, record.ended_at = state, time.time()
        error = None if record.error is None else record.error["message"]
        return self.log(AgentRunEnded(state=state, text=record.text, error=error))

    async def cancel(self) -> None:
        """End the run, which nobody plays, and store that."""
        self.record.pending = ()
        self.end("cancelled")
        self.soon()
        await self.stored()
        await in_thread(self.save_record)

    def soon(self, messages: Sequence[ModelMessage] | None = None) -> None:
        """Begin to store what was logged, and the messages that are new, and return at once.

        Raises
        ------
        Exception
            Something could not be stored before; it is raised each time.
        """
        self._messages = self._messages if messages is None else messages
        if self._task is not None and self._task.done():
            self._task.result()
            self._task = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def stored(self) -> None:
        """Wait until all that was handed over is stored; what went wrong there is raised each time."""
        if self._task is not None:
            self._is_wanted.set()
            await asyncio.shield(self._task)

    async def mark(self, call_id: str, state: str, **more: Any) -> dict[str, Any]:
        """Store what is known of a call, with all else that is to be stored, and return it."""
        mark = {"kind": _MARK, "id": call_id, "state": state, **more}
        self._lines.append(mark)
        self.soon()
        await self.stored()
        return mark

    async def _write(self) -> None:
        while self._lines or self._messages is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TOGETHER_S):
                    await self._is_wanted.wait()
            lines, self._lines = self._lines, []
            messages, self._messages = self._messages, None
            await in_thread(self._store, lines, messages, self.record.to_dict())
            await self.sync()
        self._is_wanted.clear()

    def _store(
        self, lines: list[dict[str, Any]], messages: Sequence[ModelMessage] | None, record: Mapping[str, Any]
    ) -> None:
        try:
            # First the messages: a line that says that a call was made must not be there without what asked for it.
            if messages is not None:
                self._store_messages(messages)
                self.write_facts(self.folder, record)
            for line in lines:
                self.append_line(_line_of(line))
        except OSError as exc:
            raise not_written(exc) from exc

    def _store_messages(self, messages: Sequence[ModelMessage]) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        same = 0
        for stored, message in zip(self._stored, messages, strict=False):
            # Identity first: most messages are the very objects of before, and long.
            if stored is not message and stored != message:
                break
            same += 1
        if same < max(len(messages), len(self._stored)):
            added = ModelMessagesTypeAdapter.dump_python(list(messages[same:]), mode="json")
            batch = _line_of({"from": same, "messages": added})
            write_file(self.folder / "messages" / f"{len(self.batches()):06d}.json", batch.encode("utf-8", "replace"))
            self._stored = list(messages)


def name_of(content: bytes) -> str:
    """Return the name of a content: its SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _line_of(fields: Mapping[str, Any]) -> str:
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:  # a model may send NaN, which JSON has not: it is kept as a text
        return _line_of(json.loads(json.dumps(fields, default=str), parse_constant=str))


def _as_logged(event: AgentEvent) -> dict[str, Any]:
    """Return an event as it is stored: a long result by its beginning."""
    if not isinstance(event, CallEnded):
        return event.to_dict()
    line = event.to_dict()
    result = line["result"]
    if len(result.get("text") or "") > _LOGGED_TEXT:
        result["text"] = f"{result['text'][:_LOGGED_TEXT]}…"
    if len(json.dumps(result.get("data"), default=repr)) > _LOGGED_TEXT:
        result["data"] = None
    if line["sent"] == result["text"]:
        line["sent"] = None
    return line
