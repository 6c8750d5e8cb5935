"""What a call would change, as a person reads it before approving: the diff of a file, what would be lost, what runs.

A tool declares its own (``@tool(consequences_of=…)``); the door asks for it once, and every face shows the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
from pathlib import Path
from typing import Any

from nbtools.texts.redaction import redact
from nbtools.texts.visible import counted, visible

_MOST_BYTES = 1_000_000
_MOST_LINES = 400
# What is lost with a file is on the disk to be read: its beginning says which one it is.
_LINES_OF_DELETED = 20


@dataclasses.dataclass(frozen=True)
class Consequence:
    """A part of what a call would do.

    Attributes
    ----------
    title
        What happens to what, in a few words.
    text
        More detail, in lines; in a diff they begin with ``+``, ``-`` or a space.
    files
        The files it was read from: an approval holds for them as they were then.
    """

    title: str
    text: str = ""
    files: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, str]:
        """Return the title and the text with invisible characters spelled out; secrets are removed from the text."""
        return {"title": visible(self.title), "text": redact(visible(self.text, lines=True))}


def as_lines(value: Any) -> str:
    """Return a value as the text that people read and edit."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def whole_file(target: Path, content: str) -> Consequence:
    """Return what happens to a file that is written in full."""
    before = text_of(target)
    if before is None:
        return Consequence(f"a new file {target.name}", difference("", content))
    if isinstance(before, int):
        title = f"{target.name} ({counted(before, 'byte')}, too large to show or not text) is replaced"
        return Consequence(title, difference("", content), (target,))
    if before == content:
        return Consequence(f"{target.name} stays as it is: it already has this content", "", (target,))
    return Consequence(f"{target.name} changes", difference(before, content), (target,))


def deleted(target: Path) -> Consequence:
    """Return what is lost with a file or folder."""
    before = text_of(target)
    if target.is_dir():
        items = counted(sum(1 for _ in target.iterdir()), "item")
        return Consequence(f"the folder {target.name} with {items} is deleted")
    if isinstance(before, str):
        lines = before.splitlines()
        left_out = len(lines) - _LINES_OF_DELETED
        text = difference("\n".join(lines[:_LINES_OF_DELETED]), "")
        text += f"\n[… {counted(left_out, 'more line')} not shown …]" if left_out > 0 else ""
        return Consequence(f"{target.name} ({counted(len(lines), 'line')}) is deleted", text, (target,))
    return Consequence(f"{target.name} ({counted(before or 0, 'byte')}) is deleted", "", (target,))


def replaced(target: Path) -> tuple[Consequence, ...]:
    """Return what is lost when something else replaces a file; nothing if there is no file."""
    if not target.is_file():
        return ()
    size = counted(target.stat().st_size, "byte")
    return (Consequence(f"{target.name} already exists ({size}); its content will be lost", "", (target,)),)


def text_of(path: Path) -> str | int | None:
    """Return the text of a file; its size if it is too large or is not text; `None` if there is no file."""
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
    """Return the lines that differ, with three around them; at most 400, and the last one says how many more."""
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    lines = [line for line in diff if not line.startswith(("---", "+++"))]
    if before == "" or after == "":
        lines = [line for line in lines if not line.startswith("@@")]
    left = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"  … {counted(left, 'more line')} …"] if left > 0 else [])])
