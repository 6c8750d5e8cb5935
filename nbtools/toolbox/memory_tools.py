"""Tools for the agent's memory: notes that outlive the kernel. The texts are part of the contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Gt, Interval

from nbtools.contract.approval.label_rules import marks_of, see_names
from nbtools.contract.consequence import Consequence, as_lines, difference
from nbtools.contract.record import Digest
from nbtools.contract.result import Output
from nbtools.contract.tool import Context, Effects, Reading, tool
from nbtools.errors import InvalidArguments, MemoryNotFound, nearest
from nbtools.ground.aio import in_thread
from nbtools.toolbox.result_types import NoteDeleted, NoteFound, NoteSaved

if TYPE_CHECKING:
    from nbtools.memory import AgentMemory, MemoryRecord

_ScopeName = Literal["agent", "workflow", "node"]
# What is below it has its own rules and effects: the tool memory's.
_FILES = "/memories/"
_READS, _WRITES = Effects(read_only=True), Effects(idempotent=True)
_DELETES = Effects(destructive=True, idempotent=True)
ACTS: Mapping[str, Mapping[str, Any]] = {
    "memory_retrieve": {"effects": _READS},
    "memory_search": {"effects": _READS},
    "memory_list": {"effects": _READS, "origins": ("memory_retrieve",)},
    "memory_history": {"effects": _READS, "origins": ("memory_retrieve",)},
    # A file may be replaced.
    "memory_export": {"effects": _DELETES, "origins": ("memory_retrieve",)},
    "memory_save": {"effects": _WRITES},
    "memory_restore": {"effects": _WRITES, "origins": ("memory_save",)},
    "memory_import": {"effects": _WRITES, "origins": ("memory_save",)},
    "memory_delete": {"effects": _DELETES},
    "memory_clear": {"effects": _DELETES, "origins": ("memory_delete",)},
    "memory_forget": {"effects": _DELETES, "origins": ("memory_delete",)},
}
"""What people do with the memory, by the name under which it is judged: its effects, and whose rules hold for it."""


def _memory(ctx: Context, scope: _ScopeName | None) -> AgentMemory:
    from nbtools.memory import AgentMemory

    memory = ctx.use(AgentMemory)
    return memory if scope is None else memory.scoped(scope=scope)


def _not_a_note(key: str) -> InvalidArguments:
    return InvalidArguments(f"{key!r} is a file, not a note.", hint="Change files with the tool memory.")


async def _read_scope(values: Mapping[str, Any], ctx: Context) -> dict[str, Reading]:
    from nbtools.memory import AgentMemory

    if values["scope"] is not None:
        return {}
    memory = await in_thread(ctx.use, AgentMemory)
    return {"scope": Reading(parts=(memory.scope.name,))}


def effects_of_save(values: Mapping[str, Any], ctx: Context | None = None) -> Effects:
    """Return what saving does: a replaced note can be restored, but one that ends takes what it replaced."""
    ends = isinstance(values.get("ttl"), int | float)
    return _DELETES if ends else _WRITES


def _changed_note(values: Mapping[str, Any], ctx: Context) -> tuple[Consequence, ...]:
    """Return what becomes of a note that is saved, or deleted where there is no new value."""
    key, new = values["key"], as_lines(values["value"]) if "value" in values else ""
    record = _memory(ctx, values["scope"]).record(key)
    if record is None:
        return (Consequence(f"a new note {key}", difference("", new)),) if "value" in values else ()
    outcome = "is replaced" if "value" in values else "is deleted"
    title = f"the note {key}, version {record.version}, {outcome}; its history stays"
    return (Consequence(title, difference(as_lines(record.value), new)),)


@tool(
    title="Save a note",
    destructive=True,
    idempotent=True,
    effects_of=effects_of_save,
    readings_of=_read_scope,
    consequences_of=_changed_note,
    examples=(
        {"key": "goal", "value": "Find out why customers leave.", "tags": ["plan"]},
        {"key": "seen", "value": {"rows": 344, "columns": ["species", "island"]}, "ttl": 86400},
    ),
)
def memory_save(
    key: str,
    value: Any,
    tags: tuple[str, ...] | None = None,
    scope: _ScopeName | None = None,
    ttl: Annotated[float, Gt(0)] | Literal["never"] | None = None,
    *,
    ctx: Context,
) -> Output[NoteSaved]:
    """Save a note in memory under a key, replacing an existing note.

    Notes are for facts and values that have a name; texts that grow, such as plans and logs, are files of the tool
    memory.

    The note outlives the notebook; every earlier version is kept. A key has at most 1,024 bytes, a value 1 MiB as
    JSON, and there are at most 64 tags.

    Parameters
    ----------
    key
        Name of the note.
    value
        Text, or any JSON value.
    tags
        Names to find it by; they replace the tags it has. Not given, or null, keeps those; an empty list removes them.
    scope
        Whose note it is: "agent" (shared by all workflows), "workflow" or "node"; null takes the caller's own.
    ttl
        Seconds until it vanishes, or "never". Not given, or null, keeps the end that the note has.

    Raises
    ------
    InvalidArguments, LimitExceeded
        The key, value or tags may not be stored; a key that begins with /memories/ is a file's.
    MemoryWriteFailed
        The store cannot be written.
    """
    from nbtools.memory.records import encode_value, ttl_of

    if f"{key}/".startswith(_FILES):
        raise _not_a_note(key)
    memory = _memory(ctx, scope)
    # Encoded once: the record of the call holds how long the text is, and its hash.
    text = encode_value(value, memory.limits)
    ctx.recorded["value"] = Digest(text)
    record = memory.write(key, text, tags=tags, ttl=ttl_of(ttl))
    data = {"key": key, "version": record.version, "tags": list(record.tags)}
    return Output(data=data, text=f"Memory item '{key}' saved successfully.")


@tool(
    title="Read notes",
    read_only=True,
    reads="the memory",
    idempotent=True,
    readings_of=_read_scope,
    examples=({"key": "goal"}, {"tags": ["plan", "2026"], "match": "any"}),
)
def memory_retrieve(
    key: str | None = None,
    tags: tuple[str, ...] | None = None,
    match: Literal["all", "any"] = "all",
    scope: _ScopeName | None = None,
    *,
    ctx: Context,
) -> Output[Any]:
    """Read notes from memory by key, by tags, or by both; at least one is needed.

    Notes are what memory_save saved; files are viewed with the tool memory.

    One match gives its value, several give a list of key, value and tags, sorted by key.

    Parameters
    ----------
    key
        Name of the note.
    tags
        Tags that the notes have.
    match
        Whether "all" of the tags are needed, or "any" of them is enough.
    scope
        Whose notes: "agent", "workflow" or "node"; null takes the caller's own.

    Raises
    ------
    MemoryNotFound
        No note matches.
    InvalidArguments
        Neither key nor tags were given.
    """
    if key is None and not tags:
        raise InvalidArguments("neither key nor tags were given.", hint="Give a key, tags, or both.")
    memory = _memory(ctx, scope)
    records = _find_notes(memory, key, tags or (), match)
    if not records:
        raise _not_found(ctx, memory, key, tags)
    if len(records) == 1:
        value = records[0].value
        return Output(data=value, text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    data = [{"key": r.key, "value": r.value, "tags": list(r.tags)} for r in records]
    return Output(data=data, text=json.dumps(data, ensure_ascii=False))


def _find_notes(
    memory: AgentMemory, key: str | None, tags: tuple[str, ...], match: Literal["all", "any"]
) -> list[MemoryRecord]:
    if key is None:
        return memory.find(tags, match=match)
    record = memory.record(key)
    if record is None:
        return []
    fits = all if match == "all" else any
    return [record] if not tags or fits(tag in record.tags for tag in tags) else []


def _not_found(
    ctx: Context, memory: AgentMemory, key: str | None, tags: tuple[str, ...] | None = None
) -> MemoryNotFound:
    if key is None:
        # Nobody knows who chose a tag.
        similar = None if marks_of(ctx.services).has_any() else nearest((tags or ("",))[0], memory.tags())
        hint = f"Did you mean the tag {similar!r}?" if similar else "memory_search finds notes by words."
        return MemoryNotFound(f"no memory item has the tags {', '.join(tags or ())}.", hint=hint)
    if tags and key in memory:
        return MemoryNotFound(f"there is no memory item '{key}' with these tags.", hint="Leave out the tags.")
    try:
        memory.need(key)
    except MemoryNotFound as exc:
        see_names(ctx, map(Path, filter(None, [exc.data.get("near")])))
        return MemoryNotFound(
            f"there is no memory item '{key}'.", hint=exc.hint or "memory_search finds notes by words."
        )
    return MemoryNotFound(f"there is no memory item '{key}'.", retryable=True)  # it came between two looks


@tool(
    title="Delete a note",
    destructive=True,
    idempotent=True,
    readings_of=_read_scope,
    consequences_of=_changed_note,
    examples=({"key": "goal"},),
)
def memory_delete(key: str, scope: _ScopeName | None = None, *, ctx: Context) -> Output[NoteDeleted]:
    """Delete a note from memory. Its history stays, so that it can be restored.

    Notes are what memory_save saved; files are deleted with the tool memory.

    Parameters
    ----------
    key
        Name of the note.
    scope
        Whose note: "agent", "workflow" or "node"; null takes the caller's own.

    Raises
    ------
    MemoryNotFound
        There is no such note.
    """
    if f"{key}/".startswith(_FILES):
        raise _not_a_note(key)
    memory = _memory(ctx, scope)
    if not memory.delete(key):
        raise _not_found(ctx, memory, key)
    return Output(data={"key": key, "deleted": True}, text=f"Memory item '{key}' deleted successfully.")


@tool(
    title="Search notes",
    read_only=True,
    reads="the memory",
    idempotent=True,
    readings_of=_read_scope,
    examples=({"query": "why customers leave"},),
)
def memory_search(
    query: str,
    tags: tuple[str, ...] | None = None,
    limit: Annotated[int, Interval(ge=1, le=100)] = 10,
    scope: _ScopeName | None = None,
    *,
    ctx: Context,
) -> Output[list[NoteFound]]:
    """Search the notes in memory by words, the best match first.

    Finds the notes of memory_save and the files of the tool memory alike (but for files that the settings keep in a
    separate folder or bucket).

    Returns a list of key, value, tags and score (higher is better; only the order means something). Words are looked
    for in keys, tags and values.

    Parameters
    ----------
    query
        Words to look for.
    tags
        Tags that the notes must have, all of them.
    limit
        How many to return at most, 1 to 100.
    scope
        Whose notes: "agent", "workflow" or "node"; null takes the caller's own.
    """
    records = _memory(ctx, scope).search(query, limit=limit, tags=tags or ())
    data = [{"key": r.key, "value": r.value, "tags": list(r.tags), "score": r.score} for r in records]
    text = json.dumps(data, ensure_ascii=False) if data else f"No memory item matches {query!r}."
    return Output(data=data, text=text)


TOOLS = (memory_save, memory_retrieve, memory_delete, memory_search)
"""The tools of this module."""
