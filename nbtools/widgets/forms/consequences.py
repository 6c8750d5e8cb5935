"""What a call would change, looked up before it runs: the difference of a file or a note, and what would be lost."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.errors import NbtoolsError
from nbtools.prepared import PreparedCall
from nbtools.redaction import redact
from nbtools.visible import visible

if TYPE_CHECKING:
    from nbtools.memory import AgentMemory

__all__ = ["as_lines", "consequences", "difference"]

_MOST_BYTES = 1_000_000
_MOST_LINES = 400


def consequences(prepared: PreparedCall, memory: Callable[[], AgentMemory] | None = None) -> list[dict[str, str]]:
    """Return what a call would change, in parts.

    Parameters
    ----------
    prepared
        The call. Its arguments are not repeated: whoever shows the parts shows those too.
    memory
        Returns the memory, to see which note is replaced; `None` where that is not to be looked at.

    Returns
    -------
    list
        ``title`` and ``text`` of each part; lines of the text begin with ``+``, ``-`` or a space.
    """
    known = {prepared.tool.name, *prepared.tool.origins}
    if known & {"memory_save", "memory_delete"} and memory is not None:
        with contextlib.suppress(NbtoolsError):  # a key that cannot be: the call itself will say so
            return [_note_part(prepared, memory(), is_gone="memory_delete" in known)]
        return []
    target = prepared.place("path")
    if target is not None and isinstance(prepared.values.get("content"), str):
        return [_written_part(target, prepared.values["content"])]
    if "file_delete" in known and target is not None:
        return [_deleted_part(target)]
    goal = prepared.place("dest")
    if "file_move" in known and goal is not None and goal.is_file():
        return [_part(f"{goal.name} is there already, {goal.stat().st_size:,} bytes; it is lost", "")]
    return []


def _part(title: str, text: str) -> dict[str, str]:
    return {"title": visible(title), "text": redact(visible(text, lines=True))}


def _note_part(prepared: PreparedCall, memory: AgentMemory, *, is_gone: bool) -> dict[str, str]:
    key, scope = str(prepared.values["key"]), prepared.values.get("scope")
    record = (memory if scope is None else memory.scoped(scope=scope)).record(key)
    new = "" if is_gone else as_lines(prepared.values.get("value"))
    if record is None:
        return _part(f"a new note {key}", difference("", new))
    told = "is deleted; its history stays" if is_gone else "is replaced; its history stays"
    return _part(f"the note {key}, version {record.version}, {told}", difference(as_lines(record.value), new))


def as_lines(value: Any) -> str:
    """Return a value as the text that people read and edit."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _written_part(target: Path, content: str) -> dict[str, str]:
    before = _content(target)
    if before is None:
        return _part(f"a new file {target.name}", difference("", content))
    if isinstance(before, int):
        return _part(f"{target.name}, {before:,} bytes that are no short text, is replaced", difference("", content))
    if before == content:
        return _part(f"{target.name} stays as it is: it has this content already", "")
    return _part(f"{target.name} changes", difference(before, content))


def _deleted_part(target: Path) -> dict[str, str]:
    before = _content(target)
    if target.is_dir():
        return _part(f"the folder {target.name} with {sum(1 for _ in target.iterdir()):,} entries is deleted", "")
    if isinstance(before, str):
        return _part(f"{target.name}, {len(before.splitlines()):,} lines, is deleted", difference(before, ""))
    return _part(f"{target.name}, {before or 0:,} bytes, is deleted", "")


def _content(path: Path) -> str | int | None:
    """Return the text of a file; its size where that is large or no text; `None` where there is no file."""
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        if size > _MOST_BYTES or not path.is_file():
            return size
        try:
            return path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return size
    return None


def difference(before: str, after: str) -> str:
    """Return the lines that differ, with three around them; at most 400, which the last one says."""
    made = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    lines = [line for line in made if not line.startswith(("---", "+++"))]
    if before == "" or after == "":
        lines = [line for line in lines if not line.startswith("@@")]
    left = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"  … {left:,} more lines …"] if left > 0 else [])])
