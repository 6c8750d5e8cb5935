"""Runs and their conversations, kept in the memory's repository.

A conversation is a chain of messages, each stored once, as pydantic-ai's `ConversationStore` has it; a run is a record
beside it: what was asked, of which model, what it used, how it ended, what it waits for, and its log of events. All of
it lies in one scope of its own, so that no search of the memory meets it, and every write is one batch.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

import pydantic
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from nbtools.agent.records.images import Images
from nbtools.errors import MemoryNotFound, VersionConflict, did_you_mean
from nbtools.ground.aio import in_thread
from nbtools.ground.telemetry import fresh_id
from nbtools.memory.records import Scope
from nbtools.memory.repository import Change, Query, Repository

_SCOPE = "nbtools.agent"
# Texts are cut into values that every store takes.
_CHUNK = 400_000
_RECORD: pydantic.TypeAdapter[ConversationRecord] = pydantic.TypeAdapter(ConversationRecord)

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=str).encode


class RunStore(ConversationStore):
    """Conversations and runs in a repository.

    Parameters
    ----------
    repository
        Where they lie.
    agent_id
        Whose they are.
    images
        What was in files before runs changed them.
    """

    def __init__(self, repository: Repository, agent_id: str, images: Images) -> None:
        self.images = images
        self._repository = repository
        self._scope = Scope(agent_id=agent_id, workflow_id=_SCOPE)
        # The revision that was written last, and its version: it need not be read to be replaced.
        self._appended: dict[str, tuple[str, int]] = {}

    # -- the five primitives of a conversation store -------------------------------------------------------------------

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return what is kept of a conversation besides its messages."""
        value = await self._value(f"conversation/{conversation_id}")
        return None if value is None else _RECORD.validate_python(value)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the conversations, the newest first."""
        records = [_RECORD.validate_python(value) for value in await in_thread(self._below, "conversation/")]
        records = [record for record in records if scope is None or record.scope == scope]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
        also: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a record, its new messages and, in the same batch, other values by their keys."""
        key = f"conversation/{record.conversation_id}"
        # Taken out: where the write below fails, nobody knows what stands there, and it is read next time.
        revision, version = self._appended.pop(key, ("", 0))
        if revision != expected_revision:
            version = await in_thread(self._version, key, record.conversation_id, expected_revision)
        values = {f"entry/{entry.id}": _entry_to_dict(entry) for entry in new_entries}
        # One batch: messages without their record, or the other way round, would be a conversation that cannot be read.
        changes = [self._write(key, _RECORD.dump_python(record, mode="json"), version)]
        changes += [self._write(name, value) for name, value in {**values, **(also or {})}.items()]
        try:
            applied = await in_thread(self._repository.apply, changes)
        except VersionConflict:
            raise ConversationConflict(record.conversation_id) from None
        if applied[0].record is not None:
            self._appended[key] = record.revision, applied[0].record.version

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation's record; its messages stay, because a fork may share them."""
        key = f"conversation/{conversation_id}"
        version = await in_thread(self._version, key, conversation_id, expected_revision)
        change = Change(kind="delete", scope=self._scope, key=key, if_version=version)
        try:
            await in_thread(self._repository.apply, [change])
        except VersionConflict:
            raise ConversationConflict(conversation_id) from None

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one message."""
        value = await self._value(f"entry/{entry_id}")
        if value is None:
            raise LookupError(entry_id)
        return _entry_from_dict(value)

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def put(self, values: Mapping[str, Any]) -> None:
        """Store values by their keys, in one batch."""
        await in_thread(self.put_now, values)

    def put_now(self, values: Mapping[str, Any]) -> None:
        """Store values as `put` does, and block; one that is `None` is deleted."""
        deleted = [Change(kind="delete", scope=self._scope, key=key) for key, value in values.items() if value is None]
        changes = [self._write(key, value) for key, value in values.items() if value is not None]
        self._repository.apply([*deleted, *changes])

    async def forget_run(self, record: Mapping[str, Any]) -> None:
        """Erase a run with its log and, unless another run shares them, its messages, for ever."""
        run_id, conversation = record["run_id"], record["conversation_id"]
        keys = {f"run/{run_id}"}
        for part in ("log", "call", "undo"):
            keys |= {key async for key in self._keys(f"{part}/{run_id}/")}
        forked = {one.conversation_id: one.forked_from for one in await self.read_records()}

        def root(name: str) -> str:
            while (before := forked.get(name)) is not None:
                name = before
            return name

        # Branches share the messages from before they parted, so the whole family is asked who still needs them.
        runs = [one for one in await self.runs(limit=None) if one["run_id"] != run_id]
        others = [one for one in runs if root(one["conversation_id"]) == root(conversation)]
        if all(one["conversation_id"] != conversation for one in others):
            keys.add(f"conversation/{conversation}")
        shared = {entry.id for one in others for entry in await self.read_history(one["ended_with"])}
        mine = {entry.id for entry in await self.read_history(record["ended_with"])}
        keys |= {f"entry/{name}" for name in mine - shared}
        changes = [Change(kind="forget", scope=self._scope, key=key) for key in sorted(keys)]
        await in_thread(self._repository.apply, changes)

    async def _keys(self, prefix: str) -> AsyncIterator[str]:
        query = Query(scope=self._scope, prefix=prefix, values=False)
        for record in (await in_thread(self._repository.query, query)).records:
            yield record.key

    async def stored_keys(self, keys: Collection[str]) -> set[str]:
        """Return those of the keys under which there is a value."""
        result = await in_thread(self._repository.query, Query(scope=self._scope, keys=tuple(keys)))
        return {record.key for record in result.records}

    def undo_entries(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Return what calls of a run changed, by keys in the order of the calls; blocks."""
        records = self._repository.query(Query(scope=self._scope, prefix=f"undo/{run_id}/")).records
        return [(record.key, record.value) for record in records]

    async def run(self, run_id: str) -> dict[str, Any]:
        """Return the record of a run, by its id or the beginning of it.

        Raises
        ------
        MemoryNotFound
            There is none, or several begin so.
        """
        by_id = await self._value(f"run/{run_id}")
        if by_id is not None:
            return dict(by_id)
        records = {record["run_id"]: record for record in await self.runs(limit=None)}
        fitting = [name for name in records if run_id and name.startswith(run_id)]
        # People type the first characters, as a list shows them.
        if len(fitting) == 1:
            return dict(records[fitting[0]])
        problem = f"{len(fitting)} runs begin with {run_id!r}." if fitting else f"there is no run {run_id!r}."
        raise MemoryNotFound(
            problem, hint=did_you_mean(run_id, records, "%agent runs (nbtools agent runs) lists them.")
        )

    async def runs(self, limit: int | None = 20) -> list[dict[str, Any]]:
        """Return the records of runs, the newest first."""
        records = await in_thread(self._below, "run/")
        return sorted(records, key=lambda record: float(record["started_at"]), reverse=True)[:limit]

    async def log(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run, as dicts, in order."""
        parts = await in_thread(self._below, f"log/{run_id}/")
        return [event for part in parts for event in part]

    async def marks(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Return what is known of calls that may change something: the id of each to its state."""
        marks = await in_thread(self._below, f"call/{run_id}/")
        return {mark["id"]: mark for mark in marks}

    @staticmethod
    def text_values(name: str, text: str) -> dict[str, Any]:
        """Return the values that keep a long text under a name."""
        parts = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
        return {f"text/{name}/{number:04d}": part for number, part in enumerate(parts)}

    def load_text(self, name: str) -> str | None:
        """Return a long text; blocks, and `None` when there is none."""
        return "".join(self._below(f"text/{name}/")) or None

    # -- the repository ------------------------------------------------------------------------------------------------

    def _write(self, key: str, value: Any, version: int | None = None) -> Change:
        try:
            text = _encode(value)
        except ValueError:  # a model may send NaN, which JSON has not: it is kept as a text
            text = _encode(json.loads(json.dumps(value, default=str), parse_constant=str))
        return Change(kind="write", scope=self._scope, key=key, value=text, if_version=version)

    async def _value(self, key: str) -> Any:
        return await in_thread(self._load, key)

    def _load(self, key: str) -> Any:
        records = self._repository.query(Query(scope=self._scope, keys=(key,))).records
        return records[0].value if records else None

    def _below(self, prefix: str) -> list[Any]:
        return [record.value for record in self._repository.query(Query(scope=self._scope, prefix=prefix)).records]

    def _version(self, key: str, conversation_id: str, expected_revision: str | None) -> int:
        """Return the version of a stored record whose revision is the expected one."""
        records = self._repository.query(Query(scope=self._scope, keys=(key,))).records
        if (records[0].value["revision"] if records else None) != expected_revision:
            raise ConversationConflict(conversation_id)
        return records[0].version if records else 0


def _entry_to_dict(entry: ConversationEntry) -> dict[str, Any]:
    message = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")[0]
    return {"id": entry.id, "parent_id": entry.parent_id, "message": message}


def _entry_from_dict(fields: Mapping[str, Any]) -> ConversationEntry:
    message = ModelMessagesTypeAdapter.validate_python([fields["message"]])[0]
    return ConversationEntry(id=fields["id"], parent_id=fields["parent_id"], message=message)


class StoredConversation:
    """A conversation as it is in the store, which grows with the messages of a run.

    Parameters
    ----------
    store
        Where it lies.
    conversation_id
        Which one; it need not be there yet.

    Attributes
    ----------
    lineage
        Its id, and those of the conversations that it is a branch of.
    """

    def __init__(self, store: RunStore, conversation_id: str) -> None:
        self._store = store
        self._record: ConversationRecord | None = None
        self._entries: list[ConversationEntry] = []
        self.id = conversation_id
        self.lineage = [conversation_id]

    @property
    def messages(self) -> list[ModelMessage]:
        """Its messages, oldest first."""
        return [entry.message for entry in self._entries]

    @property
    def head(self) -> str | None:
        """The id of its newest message."""
        return self._entries[-1].id if self._entries else None

    async def load(self) -> None:
        """Read what is stored."""
        self._record = await self._store.read_record(self.id)
        if self._record is not None:
            self._entries = await self._store.read_history(self._record.head_id)
        record = self._record
        # A damaged store may lead in a circle.
        while record is not None and record.forked_from is not None and record.forked_from not in self.lineage:
            self.lineage.append(record.forked_from)
            record = await self._store.read_record(record.forked_from)

    def branched(self) -> StoredConversation:
        """Return a new conversation with the same messages, of which nothing is stored yet."""
        branch = StoredConversation(self._store, fresh_id())
        branch._entries, branch.lineage = list(self._entries), [branch.id, *self.lineage]
        branch._record = None
        return branch

    async def save(self, messages: Sequence[ModelMessage], also: Callable[[str | None], Mapping[str, Any]]) -> None:
        """Store the messages that are new and, in the same batch, what `also` returns for the id of the newest one.

        Raises
        ------
        ConversationConflict
            Someone else has stored messages meanwhile.
        """
        same = 0
        for entry, message in zip(self._entries, messages, strict=False):
            # Identity first: most messages are the very objects of before, and long.
            if entry.message is not message and entry.message != message:
                break
            same += 1
        old, left = self._entries[:same], self._entries[same:]
        added: list[ConversationEntry] = []
        parent = old[-1].id if old else None
        for message in messages[same:]:
            added.append(ConversationEntry(parent_id=parent, message=message))
            parent = added[-1].id
        before = self._record
        record = ConversationRecord(
            conversation_id=self.id,
            head_id=parent,
            forked_from=before.forked_from if before else next(iter(self.lineage[1:]), None),
            forked_at=before.forked_at if before else old[-1].id if old and self.lineage[1:] else None,
            branches=[*(before.branches if before else ()), *(entry.id for entry in left[-1:])],
        )
        revision = before.revision if before else None
        await self._store.write_record(record, new_entries=added, expected_revision=revision, also=also(parent))
        self._record, self._entries = record, [*old, *added]
