"""The tool `memory`: Anthropic's memory-tool protocol, whose commands and texts models know by heart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Len

from nbtools.contract.approval.label_rules import see_names
from nbtools.contract.consequence import Consequence, difference
from nbtools.contract.result import ToolResult
from nbtools.contract.signature.parameters import Canonical
from nbtools.contract.tool import Context, Effects, tool


def _without_slash(path: str) -> str:
    return path.rstrip("/") or path


_Path = Annotated[str, Canonical(_without_slash)]
_Command = Literal["view", "create", "str_replace", "insert", "delete", "rename", "update"]


def _effects_of_command(values: Mapping[str, Any], ctx: Context) -> Effects:
    """Return what a command does: files are deleted, moved or replaced whole by some of them only."""
    command = values["command"]
    return Effects(read_only=command == "view", destructive=command in {"delete", "rename", "update"})


def _changed_files(values: Mapping[str, Any], ctx: Context) -> list[Consequence]:
    """Return what is lost of files that a command deletes or replaces whole."""
    from nbtools.memory import MemoryFiles

    command, path = values["command"], values["path"]
    if command not in {"delete", "update"} or path is None:
        return []
    new = (values["file_text"] or values["content"] or "") if command == "update" else ""
    outcome = "is replaced" if command == "update" else "is deleted"
    files = ctx.use(MemoryFiles).below([path])
    return [Consequence(f"{name} {outcome}", difference(text, new)) for name, text in files.items()]


@tool(
    title="Memory files",
    destructive=True,
    consequences_of=_changed_files,
    effects_of=_effects_of_command,
    examples=(
        {"command": "create", "path": "/memories/global/plan.md", "file_text": "# Plan\n"},
        {"command": "view", "path": "/memories"},
        {"command": "str_replace", "path": "/memories/global/plan.md", "old_str": "Plan", "new_str": "The plan"},
    ),
)
def memory(
    command: _Command,
    path: _Path | None = None,
    view_range: Annotated[list[int], Len(2, 2)] | None = None,
    file_text: str | None = None,
    old_str: str | None = None,
    new_str: str | None = None,
    insert_line: Annotated[int, Ge(0)] | None = None,
    insert_text: str | None = None,
    old_path: _Path | None = None,
    new_path: _Path | None = None,
    content: str | None = None,
    *,
    ctx: Context,
) -> ToolResult:
    """Keep notes as files below /memories: view, create, str_replace, insert, delete, rename and update them.

    Files are for texts that grow, such as plans and logs; memory_save keeps single facts and values. memory_search
    finds both, but for files in a separate folder or bucket.

    Usual folders are /memories/global, /memories/users/{id} and /memories/sessions/{id}. A file holds at most 1 MiB
    (16 MiB in a folder or bucket), and a view returns at most 16,000 characters.

    Parameters
    ----------
    command
        What to do: "view" (path, view_range), "create" (path, file_text), "str_replace" (path, old_str, new_str),
        "insert" (path, insert_line, insert_text), "delete" (path), "rename" (old_path, new_path), or "update" (path,
        file_text: replaces a file whole).
    path
        File or folder, /memories or below it.
    view_range
        First and last line to view, counted from 1; -1 as last is the end.
    file_text
        The whole text of a new file.
    old_str
        Text to replace; it must occur in the file exactly once.
    new_str
        What replaces it; null deletes it.
    insert_line
        Line after which to insert; 0 is the top.
    insert_text
        Text to insert.
    old_path
        File or folder to rename.
    new_path
        Its new path, which must be free.
    content
        The same as file_text.
    """
    # Before anything else is a local name.
    arguments = {name: value for name, value in locals().items() if name != "ctx" and value is not None}
    from nbtools.memory import MemoryFiles

    see_names(ctx, _files_below(ctx, filter(None, (path, old_path))))
    return ctx.use(MemoryFiles).call(arguments)


def _files_below(ctx: Context, paths: Iterable[str]) -> Iterator[Path]:
    """Yield the files that a call shows or moves; looked up where someone asks for them."""
    from nbtools.memory import MemoryFiles

    yield from map(Path, ctx.use(MemoryFiles).names_below(paths))


TOOLS = (memory,)
"""The tools of this module."""
