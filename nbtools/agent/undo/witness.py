"""Record what a run changes while it does: files with their contents, notes with their versions, the rest by name.

A run's calls carry a `ChangeWitness`, and so does each call that they make in turn: of a workflow's nodes, of scripts
that use the memory. It sees the files that arguments name, before and after; the memory is handed to the tool so that
every change of it is seen, however it is made. What cannot be seen is recorded as such.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from nbtools.agent.records.run_log import AgentRunFolder, name_of
from nbtools.agent.sharing import is_own
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Context, Tool
from nbtools.contract.wire.json_values import find_nested
from nbtools.errors import CallTimeout, NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.ground.paths import Place, Roots
from nbtools.memory import AgentMemory, MemoryFiles
from nbtools.memory.watched import WATCHER, NoteChange, watched

FOLDER = "it is a folder, and its files were not kept"
_MOST_BYTES = 8 * 2**20
_MOST_NOTES = 5_000
_NOT_KEPT = "What this call changed could not be recorded, so it cannot be undone: {why}"


class ChangeWitness:
    """Keeps the state before the calls of a run.

    Parameters
    ----------
    run
        The run, with which it is kept.
    """

    def __init__(self, run: AgentRunFolder) -> None:
        self._run = run
        # Files of which some call of the run has kept what was there.
        self._seen_keys: set[str] = set()
        self._owed: list[dict[str, Any]] = []
        self._writing = threading.Lock()

    def owed(self) -> list[int]:
        """Return the keys of changes that there was no room for yet; they are written before the next ones."""
        return [entry["key"] for entry in self._owed]

    async def watch(
        self,
        tool: Tool,
        values: Mapping[str, Any],
        run: Callable[[Context], Awaitable[ToolResult]],
        context: Context,
    ) -> ToolResult:
        """Return what `run` returns, and keep what it changes; see `nbtools.contract.tool.Witness`."""
        sight = _Sight(tool, values, context)
        await in_thread(sight.look)
        self._seen_keys.update(sight.files)
        token = WATCHER.set(sight.notes.extend)
        try:
            result = await run(dataclasses.replace(context, services=sight.services))
        except BaseException as exc:
            sight.is_cut = isinstance(exc, CallTimeout) or not isinstance(exc, NbtoolsError)
            why = await self._keep(sight, exc.data.get("artifacts", ()) if isinstance(exc, NbtoolsError) else ())
            if isinstance(exc, NbtoolsError) and why:
                exc.hint = f"{exc.hint} {why}" if exc.hint else why
            raise
        finally:
            WATCHER.reset(token)
        why = await self._keep(sight, result.artifacts)
        return result.but(text=f"{why}\n{result.text}", said_by_door=why) if why else result

    async def _keep(self, sight: _Sight, artifacts: Iterable[Any]) -> str:
        """Keep what a call changed; where that fails return why, for the call was made and its result counts."""
        try:
            has_rest = sight.is_cut or sight.may_have_done_more
            await in_thread(self._write_changes, sight, [str(artifact.path) for artifact in artifacts], has_rest)
        except (OSError, NbtoolsError) as exc:
            return _NOT_KEPT.format(why=getattr(exc, "strerror", None) or exc)
        return ""

    def _write_changes(self, sight: _Sight, artifacts: Sequence[str], has_rest: bool) -> None:
        call = sight.context.call.call_id
        entry = {"key": time.time_ns(), "call": call, "tool": sight.tool.name, "changes": [], "rest": True}
        try:
            changes = [*self._files(sight), *_notes(sight.notes), *self._memory_files(sight)]
            roots = sight.context.use(Roots) if Roots in sight.context.services else None
            for path in artifacts:
                is_private = roots is None or not roots.allows(path) or roots.is_left(Path(path))
                if path not in self._seen_keys and not is_private:
                    changes.append({"kind": "made", "target": path})
            entry |= {"changes": changes, "rest": has_rest}
        finally:
            if entry["changes"] or entry["rest"]:
                self._write_down(entry)

    def _write_down(self, entry: dict[str, Any]) -> None:
        with self._writing:
            self._owed.append(entry)
            while self._owed:
                self._run.add_undo(self._owed[0])
                del self._owed[0]

    def _files(self, sight: _Sight) -> Iterator[dict[str, Any]]:
        for path, was in sight.files.items():
            now = content_of(Path(path))
            if was == now and (was != FOLDER or is_own(sight.tool)):
                continue
            change = {"kind": "file", "target": path, "is": _mark(now), "mode": sight.modes[path]}
            yield change | self._before(was)

    def _memory_files(self, sight: _Sight) -> Iterator[dict[str, Any]]:
        before, after = sight.memory_files, sight.files_of_memory() if sight.named else {}
        for path in {**dict.fromkeys(sight.named), **before, **after}:
            was, now = (None if text is None else text.encode() for text in (before.get(path), after.get(path)))
            if was != now:
                yield {"kind": "memory", "target": path, "is": _mark(now), **self._before(was)}

    def _before(self, was: bytes | str | None) -> dict[str, Any]:
        """Return what is recorded of a content: its hash, or why it is not kept."""
        if not isinstance(was, bytes):
            return {"was": was}
        try:
            return {"was": None, "image": self._run.keep_content(was)}
        except OSError as exc:
            return {"was": f"its content could not be kept: {exc.strerror}"}


class _Sight:
    """One call: what is seen before, and while it runs.

    Attributes
    ----------
    files
        Content of each file that the arguments name, before the call.
    modes
        Permission bits of each of these files, before the call.
    named
        Files of the memory tool that the arguments name.
    memory_files
        Content of each of these files, before the call.
    notes
        The changes of notes.
    services
        What the tool may use: a memory that is watched, the rest as it is.
    is_cut
        Whether it was cut off, and may still be running.
    """

    def __init__(self, tool: Tool, values: Mapping[str, Any], context: Context) -> None:
        self.tool = tool
        self.context = context
        self._values = values
        self.files: dict[str, bytes | str | None] = {}
        self.modes: dict[str, int | None] = {}
        self.named: list[str] = []
        self.memory_files: dict[str, str] = {}
        self.notes: list[NoteChange] = []
        own: dict[type, Callable[[], Any]] = {}
        if AgentMemory in context.services:
            own[AgentMemory] = lambda: watched(context.services[AgentMemory](), self.notes.extend)
        self.services = collections.ChainMap(own, cast("Any", context.services))
        self.is_cut = False

    def look(self) -> None:
        """Look at the state before the call."""
        places = (match for _, match in find_nested(self._values, lambda one: isinstance(one, Place | Path)))
        for path in dict.fromkeys(match.real if isinstance(match, Place) else match for match in places):
            self.files[str(path)], self.modes[str(path)] = content_of(path), _mode_of(path)
        if "memory" in (self.tool.name, *self.tool.origins) and MemoryFiles in self.context.services:
            named = (self._values.get(name) for name in ("path", "old_path", "new_path"))
            self.named = [path for path in named if path]
            self.memory_files = self.files_of_memory()

    def files_of_memory(self) -> dict[str, str]:
        """Return the texts of the memory tool's files that arguments name."""
        return self.context.use(MemoryFiles).below(self.named)

    @property
    def may_have_done_more(self) -> bool:
        """Whether the tool could change more than was looked at, by what a run's own tools say they reach."""
        effects = self.context.effects or self.tool.effects
        return effects.open_world or not is_own(self.tool)


def content_of(path: Path) -> bytes | str | None:
    """Return the content of a file; `None` if there is none, or as text why it is not kept."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        if path.is_symlink():
            return f"it was a link to {os.fspath(path.readlink())!r}"
        if path.is_dir():
            return FOLDER
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return "it was not a regular file"
            if status.st_size > _MOST_BYTES:
                return f"it had {status.st_size:,} bytes, at {status.st_mtime_ns}, and {_MOST_BYTES:,} are kept"
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as exc:
        return f"it could not be read: {exc.strerror}"


def _mark(content: bytes | str | None) -> str | None:
    return name_of(content) if isinstance(content, bytes) else content


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.lstat().st_mode)
    except OSError:
        return None


def _notes(changes: Sequence[NoteChange]) -> Iterator[dict[str, Any]]:
    """Yield the changes of notes, each once: its state before the first one and after the last one."""
    merged: dict[str, NoteChange] = {}
    for change in changes:
        record_id = change.scope.record_id(change.key)
        first = merged.get(record_id, change)
        forgotten = first.is_forgotten or change.is_forgotten
        merged[record_id] = dataclasses.replace(first, now=change.now, is_forgotten=forgotten)
    for change in list(merged.values())[:_MOST_NOTES]:
        scope = change.scope
        ids = {"agent_id": scope.agent_id, "workflow_id": scope.workflow_id, "node_id": scope.node_id}
        facts = {"ends": change.ends, "is_forgotten": change.is_forgotten}
        yield {"kind": "note", "target": change.key, "ids": ids, "was": change.was, "is": change.now, **facts}
    if len(merged) > _MOST_NOTES:
        yield {"kind": "more", "target": f"{len(merged) - _MOST_NOTES:,} more notes"}
