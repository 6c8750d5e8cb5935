"""What a run has to keep, stored behind the run: one batch at a time, each with all that came since the one before.

The run goes on meanwhile, so that several answers of a fast model share one write. Whoever needs to know that
everything is on the disk, such as a call with effects before it starts, waits for `RunWriter.stored`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage

from nbtools.agent.records.events import AgentEvent, CallEnded
from nbtools.agent.records.run_record import RunRecord
from nbtools.agent.records.store import RunStore, StoredConversation

_LOGGED_TEXT = 20_000
# What comes within that time is stored together, but where someone waits for it.
_TOGETHER_S = 0.01


class RunWriter:
    """Stores the messages of a run, its record, its log, and what is known of its calls; on nbtools' loop.

    Parameters
    ----------
    store
        Where runs lie.
    record
        The run.

    Attributes
    ----------
    thread
        The conversation of the run.
    is_new
        Whether the run began with a prompt: another run that was first lets it go on in a branch.
    """

    def __init__(self, store: RunStore, record: RunRecord) -> None:
        self.thread = StoredConversation(store, record.conversation_id)
        self.is_new = False
        self._store = store
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._log: list[dict[str, Any]] = []
        self._messages: Sequence[ModelMessage] | None = None
        self._values: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = asyncio.Event()

    def log(self, event: AgentEvent) -> None:
        """Keep an event, which is stored with the next messages."""
        line = _as_logged(event)
        last = self._log[-1] if self._log else None
        if last is not None and line["kind"] == last["kind"] == "text" and line["step"] == last["step"]:
            last["text"] += line["text"]
        else:
            self._log.append(line)

    def soon(self, values: Mapping[str, Any] | None = None, *, messages: Sequence[ModelMessage] | None = None) -> None:
        """Begin to store values by their keys, and the messages that are new, and return at once.

        Raises
        ------
        Exception
            Something could not be stored before; it is raised each time.
        """
        self._values |= values or {}
        self._messages = self._messages if messages is None else messages
        if self._task is not None and self._task.done():
            self._task.result()
            self._task = None
        if self._task is None:
            self._task = self._loop.create_task(self._write())

    def take_changes(self, values: Mapping[str, Any]) -> None:
        """Begin to store values, from any thread."""
        self._loop.call_soon_threadsafe(self.soon, dict(values))

    async def stored(self) -> None:
        """Wait until all that was handed over is stored; what went wrong there is raised each time."""
        if self._task is not None:
            self._is_wanted.set()
            await asyncio.shield(self._task)

    async def mark(self, call_id: str, state: str, **more: Any) -> dict[str, Any]:
        """Store what is known of a call, with all else that is to be stored, and return it."""
        mark = {"id": call_id, "state": state, **more}
        key = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.soon({f"call/{self._record.run_id}/{key}": mark})
        await self.stored()
        return mark

    async def _write(self) -> None:
        while self._values or self._messages is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TOGETHER_S):
                    await self._is_wanted.wait()
            values, self._values = self._values, {}
            messages, self._messages = self._messages, None
            if messages is None:
                await self._store.put(values)
            else:
                await self._write_messages(messages, values)
        self._is_wanted.clear()

    async def _write_messages(self, messages: Sequence[ModelMessage], values: dict[str, Any]) -> None:
        """Store new messages, the record of the run, what was logged since, and values, in one batch."""
        record = self._record
        if self._log:
            values[f"log/{record.run_id}/{record.logged:06d}"] = self._log
            record.logged += 1
            self._log = []

        def also(head: str | None) -> dict[str, Any]:
            record.ended_with = head
            return {f"run/{record.run_id}": record.to_dict(), **values}

        try:
            await self.thread.save(messages, also)
        except ConversationConflict:
            if not self.is_new:
                raise
            # Another run went on from the same place, and was first: this one goes on in a branch.
            self.thread = self.thread.branched()
            record.conversation_id = self.thread.id
            await self.thread.save(messages, also)


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
