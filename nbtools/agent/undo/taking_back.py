"""Undo what a run did, from the record of its witness, and report the outcome for each thing."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.agent.records.events import CallStarted
from nbtools.agent.records.run_log import AgentRunFolder, name_of
from nbtools.agent.undo.witness import FOLDER, content_of
from nbtools.errors import NbtoolsError, VersionConflict
from nbtools.ground.paths import Roots
from nbtools.memory import AgentMemory, MemoryFiles
from nbtools.memory.records import Scope
from nbtools.memory.repository import Change

_CHANGED = "it has been changed since"
_GONE = "its earlier content is no longer kept"
_ANYTHING = "its changes, such as to files and other machines, are unknown: check by hand"
_CUT = "it began, and its changes were not recorded: check by hand"
_MORE = "its other changes, such as to files and other machines, are unknown: check by hand"


def take_back(run: AgentRunFolder, *, roots: Roots, memory: AgentMemory, files: MemoryFiles) -> list[dict[str, Any]]:
    """Undo what a run did, latest first, and return a row for each thing: what, whether, and why not.

    What has been changed since is left alone, and what cannot be undone is named.
    """
    undo: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "file": lambda change: _undo_file(change, run, roots),
        "memory": lambda change: _undo_memory_file(change, run, files),
        "note": lambda change: _undo_note(change, memory),
        "made": lambda _: "code wrote it, and its earlier content was not kept",
        "more": lambda _: "too many at once to record; the history of each has its versions",
    }
    rows: list[dict[str, Any]] = []
    entries = run.undo_entries()
    rows += [{"tool": tool, "target": "", "undone": False, "why": _CUT} for tool in _untold_calls(run, entries)]
    for entry in reversed(entries):
        has_rest = entry.get("rest", not entry["changes"])
        if has_rest:
            why = _MORE if entry["changes"] else _ANYTHING
            rows.append({"tool": entry["tool"], "target": "", "undone": False, "why": why})
        left, done = [], list(entry.get("done", ()))
        for target, moment in done:
            rows.append({"tool": entry["tool"], "target": target, "undone": True, "why": f"it was undone at {moment}"})
        now = f"{dt.datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"
        for change in reversed(entry["changes"]):
            try:
                why = undo[change["kind"]](change)
            except (NbtoolsError, OSError) as exc:
                why = str(exc)
            if why and (others := _others_since(run, change, entry["key"])):
                why += f"; since then {others} changed it"
            left += [change] if why else []
            done += [] if why else [(change["target"], now)]
            rows.append({"tool": entry["tool"], "target": change["target"], "undone": not why, "why": why})
        # Stored call by call: a second undo continues one that was cut off.
        if len(left) < len(entry["changes"]):
            try:
                run.add_undo({**entry, "changes": left[::-1], "rest": has_rest, "done": done})
            except OSError as exc:  # what is undone stays undone, and has its row
                why = f"the undo could not be recorded: {exc.strerror or exc}"
                rows.append({"tool": entry["tool"], "target": "", "undone": False, "why": why})
    return rows


def _others_since(run: AgentRunFolder, change: Mapping[str, Any], moment: int) -> str:
    """Return which other runs changed the same thing later, and by which tools; empty if none is known."""
    others = []
    for path in sorted(run.folder.parent.iterdir()):
        log = path / "log.jsonl"
        with contextlib.suppress(OSError):  # it is being removed
            if path == run.folder or log.stat().st_mtime_ns < moment:
                continue
            later = (entry for entry in AgentRunFolder(path).undo_entries() if entry["key"] > moment)
            tools = {entry["tool"] for entry in later if any(_is_same(change, one) for one in entry["changes"])}
            others += [f"run {path.name[:8]} ({', '.join(sorted(tools))})"] if tools else []
    return " and ".join(others)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two changes concern the same thing: a script's file is a file, and a note has its scope."""
    kinds = ({"made": "file"}.get(change["kind"], change["kind"]) for change in (one, other))
    return len({*kinds}) == 1 and (one["target"], one.get("ids")) == (other["target"], other.get("ids"))


def _untold_calls(run: AgentRunFolder, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the tools of calls that began and whose changes were not recorded, latest first."""
    tools = {line["call_id"]: line["tool"] for line in run.lines() if line["kind"] == CallStarted.kind}
    calls, keys = ({entry.get(name) for entry in entries} for name in ("call", "key"))
    for call_id, mark in reversed(run.marks().items()):
        if not keys.issuperset(mark.get("owed", ())) or (mark["state"] == "started" and call_id not in calls):
            yield tools.get(call_id, "a call")


def _undo_file(change: Mapping[str, Any], run: AgentRunFolder, roots: Roots) -> str:
    """Put a file back; return why not, or nothing."""
    path = Path(change["target"])
    if change["was"] is not None:
        return str(change["was"])
    # Someone who put a link there could have the old content written elsewhere.
    if Path(os.path.realpath(path.parent)) != path.parent:
        return "a link leads there now"
    content = content_of(path)
    now = name_of(content) if isinstance(content, bytes) else content
    # Compared by content: who changed it, and when, does not matter if the content is the same.
    if now == change.get("image"):
        return ""  # another call of the run changed it as well, and that was undone
    if now != change["is"]:
        return _why_changed(now)
    if change["is"] == FOLDER:
        return "there is a folder now, which stays"
    real = roots.resolve(path, must_exist=False, for_writing=True)
    if "image" in change:
        before = run.load_content(change["image"])
        if before is None:
            return _GONE
        with roots.folder(real.parent, make=True) as folder:
            folder.replace(real.name, before, mode=change.get("mode") if now is None else None)
    else:
        with roots.folder(real.parent) as folder:
            folder.remove(real.name)
    return ""


def _why_changed(now: str | None) -> str:
    if now is None:
        return "it no longer exists: it was moved or deleted since"
    return "it is a link now" if now.startswith("it was a link") else _CHANGED


def _undo_memory_file(change: Mapping[str, Any], run: AgentRunFolder, files: MemoryFiles) -> str:
    """Restore the earlier text of a file of the memory tool; return why not, or nothing."""
    text = None
    if change["was"] is not None:
        return str(change["was"])
    if "image" in change:
        before = run.load_content(change["image"])
        if before is None:
            return _GONE
        text = before.decode()

    def is_same(now: str | None) -> bool:
        mark = None if now is None else name_of(now.encode())
        return mark in {change["is"], change.get("image")}

    return "" if files.put_back(change["target"], text, is_same) else _CHANGED


def _undo_note(change: Mapping[str, Any], memory: AgentMemory) -> str:
    """Restore the earlier version of a note; return why not, or nothing."""
    key = change["target"]
    scoped = memory.scoped(**change["ids"], scope=Scope(**change["ids"]).name)
    if change.get("is_forgotten"):
        return "it was erased permanently"
    seconds = _seconds_left(change.get("ends"))
    try:
        if change["was"] is None or (seconds is not None and seconds <= 0):
            scoped.delete(key, if_version=change["is"])
        else:
            scoped.restore(key, change["was"], if_version=change["is"] or 0)
            if seconds is not None:
                scoped.repository.apply([Change(kind="touch", scope=scoped.scope, key=key, ttl=seconds)])
    except VersionConflict:
        return _CHANGED
    return ""


def _seconds_left(ends: str | None) -> float | None:
    """Return the seconds a note still had to live; `None` means no limit."""
    if ends is None:
        return None
    return (dt.datetime.fromisoformat(ends) - dt.datetime.now(dt.UTC)).total_seconds()
