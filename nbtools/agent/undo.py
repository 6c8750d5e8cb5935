"""Taking back what a run did: files, also those of the memory tool, by what was in them, notes by their versions.

Each tool that may change something is wrapped for the run. Before it works, the files that its arguments name, and the
note that it writes, are looked at; afterwards too. What it does besides cannot be seen, so it cannot be taken back, and
that is said.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.agent.records.store import RunStore
from nbtools.aio import in_thread
from nbtools.errors import NbtoolsError
from nbtools.memory import AgentMemory, MemoryFiles
from nbtools.paths import Place, Roots
from nbtools.tool import Context, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BeforeImages", "take_back"]

_MOST_BYTES = 8 * 2**20
_NOTES = frozenset({"memory_save", "memory_delete"})


class BeforeImages:
    """Keeps what was there before the calls of a run.

    Parameters
    ----------
    take
        Takes values to be stored by their keys, from any thread.
    run_id
        The run.
    """

    def __init__(self, take: Callable[[Mapping[str, Any]], None], run_id: str) -> None:
        self._take = take
        self._run_id = run_id

    def watch(self, tool: Tool) -> Tool:
        """Return a tool that keeps what was there before; one that only reads is returned as it is."""
        if tool.effects.read_only:
            return tool
        function = tool.function

        @functools.wraps(function)
        def watched(**values: Any) -> Any:
            before = self._look(tool, values)
            try:
                return function(**values)
            finally:
                self._keep(tool, before, self._look(tool, values))

        @functools.wraps(function)
        async def awatched(**values: Any) -> Any:
            before = await in_thread(self._look, tool, values)
            try:
                return await function(**values)
            finally:
                await in_thread(lambda: self._keep(tool, before, self._look(tool, values)))

        # What was made of its docstring and types once is kept: making it anew for each run takes long.
        _ = tool.schema, tool.description, tool.fingerprint
        made = object.__new__(Tool)
        made.__dict__.update(tool.__dict__, function=awatched if tool.is_async else watched)
        return made

    def _look(self, tool: Tool, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is there now, by file or note."""
        seen: dict[str, Any] = {f"file {path}": _content(path) for path in _files(values)}
        if not _NOTES.isdisjoint((tool.name, *tool.origins)):
            context: Context = values[str(tool.parameters.hidden_name)]
            memory = context.use(AgentMemory)
            scope = values.get("scope") or memory.scope.name
            record = memory.scoped(scope=scope).record(values["key"])
            seen[f"note {scope} {values['key']}"] = None if record is None else record.version
        if "memory" in (tool.name, *tool.origins):
            context = values[str(tool.parameters.hidden_name)]
            is_view = values.get("command") == "view"  # which changes nothing
            named = [values[name] for name in ("path", "old_path", "new_path") if values.get(name) and not is_view]
            seen |= {"memory": None, **{f"memory {path}": None for path in named}}
            seen |= {f"memory {path}": text.encode() for path, text in context.use(MemoryFiles).below(named).items()}
        return seen

    def _keep(self, tool: Tool, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        place = f"{self._run_id}/{time.time_ns():020d}"
        changes: list[dict[str, Any]] = []
        values: dict[str, Any] = {}
        for number, name in enumerate({**before, **after}):
            was, now = before.get(name), after.get(name)
            if was == now:
                continue
            kind, _, target = name.partition(" ")
            change: dict[str, Any] = {"kind": kind, "target": target}
            if kind != "note":
                if isinstance(was, bytes):
                    change["kept"] = f"before/{place}/{number}"
                    values |= RunStore.text_values(change["kept"], base64.b64encode(was).decode())
                change |= {"was": was if isinstance(was, str) else None, "is": _mark_of(now)}
            else:
                change |= {"was": was, "is": now}
            changes.append(change)
        # A tool whose arguments name nothing that could be looked at may have done anything.
        if changes or not before:
            values[f"undo/{place}"] = {"tool": tool.name, "changes": changes}
            self._take(values)


def _files(values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that arguments name; of folders nothing could be kept."""
    for value in values.values():
        path = value.real if isinstance(value, Place) else value
        if isinstance(path, Path) and not path.is_dir():
            yield path


def _content(path: Path) -> bytes | str | None:
    """Return what is in a file; `None` where there is none, and as text why it is not kept."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return "it is no file"
            if status.st_size > _MOST_BYTES:
                return f"it had {status.st_size:,} bytes, at {status.st_mtime_ns}"
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as exc:
        return f"it could not be read: {exc.strerror}"


def _mark_of(content: bytes | str | None) -> str | None:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else content


def take_back(
    store: RunStore, run_id: str, *, roots: Roots, memory: AgentMemory, files: MemoryFiles
) -> list[dict[str, Any]]:
    """Take back what a run did, the last first, and return a row for each thing: what, whether, and why not.

    What somebody has changed since is left alone.
    """
    undo: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "file": lambda change: _undo_file(change, store, roots),
        "memory": lambda change: _undo_memory_file(change, store, files),
        "note": lambda change: _undo_note(change, memory),
    }
    rows: list[dict[str, Any]] = []
    for key, entry in sorted(store.undo_entries(run_id), reverse=True):
        if not entry["changes"]:
            told = "it may have changed anything, such as files and other machines; that is not known, so look yourself"
            rows.append({"tool": entry["tool"], "target": "", "undone": False, "why": told})
        left = []
        for change in reversed(entry["changes"]):
            try:
                why = undo[change["kind"]](change)
            except (NbtoolsError, OSError) as exc:
                why = str(exc)
            left += [change] if why else []
            rows.append({"tool": entry["tool"], "target": change["target"], "undone": not why, "why": why})
        if entry["changes"]:
            store.put_now({key: {**entry, "changes": left[::-1]} if left else None})
    return rows


def _undo_file(change: Mapping[str, Any], store: RunStore, roots: Roots) -> str:
    """Put a file back; return why not, or nothing."""
    path = Path(change["target"])
    if change["was"] is not None:
        return str(change["was"])
    if _mark_of(_content(path)) != change["is"]:
        return "it has been changed since"
    if "kept" in change:
        roots.write_file(roots.resolve(path, must_exist=False, for_writing=True), _kept(change, store))
    else:
        real = roots.resolve(path, for_writing=True)
        with roots.folder(real.parent) as folder:
            folder.remove(real.name)
    return ""


def _kept(change: Mapping[str, Any], store: RunStore) -> bytes:
    return base64.b64decode(store.load_text(change["kept"]) or "")


def _undo_memory_file(change: Mapping[str, Any], store: RunStore, files: MemoryFiles) -> str:
    """Give a file of the memory tool its text of before; return why not, or nothing."""
    path = change["target"]
    was = _kept(change, store).decode() if "kept" in change else None
    is_same = files.put_back(path, was, lambda text: _mark_of(None if text is None else text.encode()) == change["is"])
    return "" if is_same else "it has been changed since"


def _undo_note(change: Mapping[str, Any], memory: AgentMemory) -> str:
    """Give a note its version of before; return why not, or nothing."""
    scope, _, key = change["target"].partition(" ")
    scoped = memory.scoped(scope=scope)
    record = scoped.record(key)
    if (None if record is None else record.version) != change["is"]:
        return "it has been changed since"
    if change["was"] is None:
        scoped.delete(key, if_version=change["is"])
    else:
        scoped.restore(key, change["was"])
    return ""
