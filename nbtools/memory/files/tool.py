"""The file tool of Anthropic's memory protocol (``memory_20250818``): virtual files below ``/memories``.

`MemoryFiles.call` takes a command as the model sent it and returns a result whose text is exactly what the clients of
that protocol expect, for failures too; no raw exception leaves it. Edits read, change and write only if the file is
still what was read, and start again otherwise.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nbtools.contract.result import ErrorInfo, ToolResult
from nbtools.errors import (
    FileAlreadyExists,
    InvalidArguments,
    LimitExceeded,
    MemoryNotFound,
    NbtoolsError,
    PermissionDenied,
    VersionConflict,
    nearest,
)
from nbtools.ground.aio import in_thread
from nbtools.ground.telemetry import fresh_id, span
from nbtools.memory.files.paths import ROOT, check_path, tree_lines
from nbtools.memory.files.store import FileStore, FolderFileStore, MemoryFileStore
from nbtools.memory.store import AgentMemory

MAX_FILE = 16 << 20
MAX_VIEW = 16_000
_MAX_LINES = 999_999
# Each try fails only when another writer succeeded, so that this many are reached by a fault, not by chance.
_TRIES = 50

# Some clients send `update` too, which the protocol does not have, and the whole text of a file under another name.
_WHOLE = {"content": "file_text"}
# Command to its parameters: name to (type, required).
COMMANDS: Mapping[str, Mapping[str, tuple[type, bool]]] = {
    "view": {"path": (str, True), "view_range": (list, False)},
    "create": {"path": (str, True), "file_text": (str, True)},
    "str_replace": {"path": (str, True), "old_str": (str, True), "new_str": (str, False)},
    "insert": {"path": (str, True), "insert_line": (int, True), "insert_text": (str, True)},
    "delete": {"path": (str, True)},
    "rename": {"old_path": (str, True), "new_path": (str, True)},
    "update": {"path": (str, True), "file_text": (str, True)},
}


class MemoryFiles:
    """The memory tool over a store.

    Parameters
    ----------
    store
        A memory, the URL of an object store (``gs://…``, ``s3://…``, ``az://…``, ``file:///…``), or any `FileStore`.

    Examples
    --------
    >>> from nbtools.memory import open_memory
    >>> files = MemoryFiles(open_memory(":memory:"))
    >>> files.call({"command": "create", "path": "/memories/a.txt", "file_text": "hello"}).text
    'File created successfully at: /memories/a.txt'
    """

    def __init__(self, store: AgentMemory | FileStore | str | os.PathLike[str]) -> None:
        self._store = _open_store(store)

    def call(self, command: Mapping[str, Any]) -> ToolResult:
        """Perform a command; a failure is a result too, with the text that the protocol prescribes.

        Parameters
        ----------
        command
            ``command`` (view, create, str_replace, insert, delete, rename, update) and its parameters.
        """
        # What the span says is taken before anything is checked: a refused command is worth a span as well.
        fields: Mapping[str, Any] = command if isinstance(command, dict) else {}
        name, path = str(fields.get("command")), fields.get("path", fields.get("old_path"))
        with span(f"tool.memory.{name}", operation=name, path=str(path)) as timed:
            result = self._perform(command)
            timed.facts["ok"] = result.ok
            timed.outcome = result.error.code if result.error else "ok"
        return result

    async def acall(self, command: Mapping[str, Any]) -> ToolResult:
        """Perform a command in a thread, so that the running event loop goes on."""
        return await in_thread(self.call, command)

    def below(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the texts of files, and of all files below folders, by path; nothing for other paths."""
        texts: dict[str, str] = {}
        for name in self.names_below(paths):
            with contextlib.suppress(NbtoolsError):
                if name != ROOT and (text := self._store.read(name)) is not None:
                    texts[name] = text[0]
        return texts

    def names_below(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield paths, and all files below them; nothing for other paths."""
        for path in paths:
            with contextlib.suppress(NbtoolsError):
                root = check_path(path)
                yield from (root, *self._store.sizes(root))

    def put_back(self, path: str, text: str | None, fits: Callable[[str | None], bool]) -> bool:
        """Give a file an earlier text, `None` deletes it, if its present one fits; return whether it did."""
        current = self._store.read(path)
        if not fits(None if current is None else current[0]):
            return False
        if text is not None:
            self._store.write(path, text, None if current is None else current[1])
        elif current is not None:
            self._store.delete([path])
        return True

    def close(self) -> None:
        """Close a store that was opened by its URL; a memory that was passed in stays open."""
        self._store.close()

    def _perform(self, command: Any) -> ToolResult:
        call_id = fresh_id()
        try:
            name, parameters = _parameters(command)
            answer = getattr(self, f"_{name}")(**parameters)
        except NbtoolsError as exc:
            error = ErrorInfo(code=exc.code, message=exc.message, hint=exc.hint, retryable=exc.retryable)
            return ToolResult(ok=False, tool="memory", call_id=call_id, text=exc.message, error=error)
        text, content = answer if isinstance(answer, tuple) else (answer, {})
        path = check_path(parameters.get("new_path") or parameters["path"])
        return ToolResult(ok=True, tool="memory", call_id=call_id, text=text, data={"path": path, **content})

    # -- the commands

    def _view(self, path: str, view_range: list[Any] | None = None) -> tuple[str, dict[str, Any]]:
        target = check_path(path)
        current = None if target == ROOT else self._store.read(target)
        if current is not None:
            lines = current[0].split("\n")
            if len(lines) > _MAX_LINES:
                raise LimitExceeded(f"File {target} exceeds maximum line limit of 999,999 lines.")
            first, last = _range(view_range, len(lines))
            content = "\n".join(lines[first - 1 : last])
            cut = {"truncated": True} if len(content) > MAX_VIEW else {}
            return _truncate(_number_lines(target, lines, first, last)), {"content": content[:MAX_VIEW], **cut}
        sizes = self._store.sizes(target)
        if not sizes and target != ROOT:
            raise MemoryNotFound(f"The path {target} does not exist. Please provide a valid path.")
        # Word for word as the protocol has it: its clients and models expect these texts.
        head = f"Here're the files and directories up to 2 levels deep in {target}, "
        head += "excluding hidden items and node_modules:"
        return _truncate("\n".join([head, *tree_lines(target, sizes)])), {"files": dict(sizes)}

    def _create(self, path: str, file_text: str) -> str:
        target = check_path(path)
        self._refuse_taken(target, "Error: File {path} already exists")
        _refuse_large(target, file_text)
        # Someone may create the file between the look and the write; the store decides.
        try:
            self._store.write(target, file_text, None)
        except VersionConflict:
            raise FileAlreadyExists(f"Error: File {target} already exists") from None
        return f"File created successfully at: {target}"

    def _str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        def edit(target: str, text: str) -> tuple[str, str]:
            count = text.count(old_str) if old_str else 0
            if count == 0:
                raise InvalidArguments(
                    f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {target}."
                )
            if count > 1:
                lines = ", ".join(map(str, _lines_of(text, old_str)))
                raise InvalidArguments(
                    f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {lines}. "
                    "Please ensure it is unique"
                )
            edited = text.replace(old_str, new_str)
            head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
            return edited, f"{head}\n{_snippet(edited, _lines_of(text, old_str)[0])}"

        return self._edit(path, edit)

    def _insert(self, path: str, insert_line: int, insert_text: str) -> str:
        def edit(target: str, text: str) -> tuple[str, str]:
            # A last line with an end is one line, not two: line numbers count as editors count them.
            lines = text.split("\n")
            if lines[-1] == "":
                lines.pop()
            if not 0 <= insert_line <= len(lines):
                raise InvalidArguments(
                    f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
                )
            lines.insert(insert_line, insert_text.removesuffix("\n"))
            return "\n".join(lines) + "\n", f"The file {target} has been edited."

        return self._edit(path, edit)

    def _update(self, path: str, file_text: str) -> str:
        return self._edit(
            path,
            lambda target, _: (file_text, f"File updated successfully at: {target}"),
            missing="The path {path} does not exist. Please provide a valid path.",
        )

    def _delete(self, path: str) -> str:
        target = check_path(path)
        if target == ROOT:
            raise PermissionDenied(f"Error: Cannot delete the {ROOT} directory itself")
        paths = self._below(target)
        if not paths:
            raise MemoryNotFound(f"Error: The path {target} does not exist")
        self._store.delete(paths)
        return f"Successfully deleted {target}"

    def _rename(self, old_path: str, new_path: str) -> str:
        old = check_path(old_path)
        new = check_path(new_path)
        if ROOT in (old, new):
            raise PermissionDenied(f"Error: Cannot rename the {ROOT} directory itself")
        for _ in range(_TRIES):
            paths = self._below(old)
            if not paths:
                raise MemoryNotFound(f"Error: The path {old} does not exist")
            if new.startswith(f"{old}/"):
                raise InvalidArguments(f"Error: The destination {new} is inside {old}")
            self._refuse_taken(new, "Error: The destination {path} already exists")
            # Someone edited one of the files between the look and the move: what is there now is moved.
            with contextlib.suppress(VersionConflict):
                self._store.move([(path, new + path.removeprefix(old)) for path in paths])
                return f"Successfully renamed {old} to {new}"
        raise VersionConflict(f"Error: {old} changes too often to be renamed", retryable=True)

    # -- what the commands share

    def _below(self, target: str) -> list[str]:
        """Return the file at a path, or all files below it."""
        return [target] if self._store.read(target) is not None else sorted(self._store.sizes(target))

    def _refuse_taken(self, target: str, message: str) -> None:
        """Refuse a path that is a file or a folder, or that lies below a file."""
        if target == ROOT or self._below(target):
            raise FileAlreadyExists(message.format(path=target))
        parts = target.split("/")
        for length in range(3, len(parts)):
            parent = "/".join(parts[:length])
            if self._store.read(parent) is not None:
                raise FileAlreadyExists(f"Error: File {parent} already exists")

    def _edit(
        self,
        path: str,
        edit: Callable[[str, str], tuple[str, str]],
        missing: str = "Error: The path {path} does not exist. Please provide a valid path.",
    ) -> str:
        """Edit an existing file; if another client changes it meanwhile, read it again and repeat the edit."""
        target = check_path(path)
        for _ in range(_TRIES):
            current = None if target == ROOT else self._store.read(target)
            if current is None:
                raise MemoryNotFound(missing.format(path=target))
            # `edit` is called again for each try, with the text as it is then.
            text, report = edit(target, current[0])
            _refuse_large(target, text)
            try:
                self._store.write(target, text, current[1])
            except VersionConflict:
                continue
            return report
        raise VersionConflict(f"Error: {target} changes too often to be edited", retryable=True)


def _open_store(store: AgentMemory | FileStore | str | os.PathLike[str]) -> FileStore:
    if isinstance(store, AgentMemory):
        return MemoryFileStore(store)
    if isinstance(store, str | os.PathLike):
        url = os.fspath(store)
        if url.startswith("file://") and url.removeprefix("file://").strip("/"):
            return FolderFileStore(url.removeprefix("file://"))
        from nbtools.memory.files.objects import ObjectFileStore

        return ObjectFileStore(url)
    return store


def _parameters(command: Any) -> tuple[str, dict[str, Any]]:
    """Return a command's name and values.

    Raises
    ------
    InvalidArguments
        The command is unknown, or a parameter is missing, unknown or of a wrong type.
    """
    if not isinstance(command, Mapping):
        raise InvalidArguments(f"Error: expected an object with `command`, found {type(command).__name__}")
    name = str(command.get("command"))
    if name not in COMMANDS:
        close = nearest(name, COMMANDS)
        raise InvalidArguments(
            f"Error: Unknown command: {name}" + (f". Did you mean {close}?" if close else ""),
            hint=f"Commands are {', '.join(COMMANDS)}.",
        )
    # Clients send `null` for values that were left out.
    values = {key: value for key, value in command.items() if key != "command" and value is not None}
    signature = COMMANDS[name]
    for other, key in _WHOLE.items():
        if other in values and key in signature:
            if key in values:
                raise InvalidArguments(f"Error: {name} takes exactly one of `{key}` and `{other}`")
            values[key] = values.pop(other)
    problems = [
        f"Missing required parameter: {key}" for key, (_, must) in signature.items() if must and key not in values
    ]
    problems += [f"Unknown parameter: {key}" for key in values if key not in signature]
    problems += [
        f"Parameter {key} must be {signature[key][0].__name__}, found {type(value).__name__}"
        for key, value in values.items()
        if key in signature and (not isinstance(value, signature[key][0]) or isinstance(value, bool))
    ]
    if problems:
        raise InvalidArguments(f"Error: {'; '.join(problems)}")
    return name, values


def _refuse_large(target: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArguments(f"Error: the text for {target} has a lone surrogate, which no file can hold") from None
    if size > MAX_FILE:
        raise LimitExceeded(f"Error: {target} would have {size:,} bytes; a file holds at most {MAX_FILE:,}")


def _number_lines(path: str, lines: Sequence[str], first: int, last: int) -> str:
    numbered = [f"{number:>6}\t{lines[number - 1]}" for number in range(first, last + 1)]
    return "\n".join([f"Here's the content of {path} with line numbers:", *numbered])


def _range(view_range: list[Any] | None, count: int) -> tuple[int, int]:
    if view_range is None:
        return 1, count
    whole = len(view_range) == 2 and all(isinstance(n, int) and not isinstance(n, bool) for n in view_range)
    first, last = view_range if whole else (0, 0)
    first, last = max(1, first), count if last == -1 else min(last, count)
    if first > last:
        raise InvalidArguments(
            f"Invalid `view_range` parameter: {view_range}. It should be two lines within the range [1, {count}]."
        )
    return first, last


def _truncate(text: str) -> str:
    if len(text) <= MAX_VIEW:
        return text
    # The note counts as well: a client may refuse what is longer than the limit.
    note = f"\n… cut after {MAX_VIEW:,} characters; see the rest with view_range."
    return text[: MAX_VIEW - len(note)] + note


def _lines_of(text: str, part: str) -> list[int]:
    numbers, start = [], text.find(part)
    while start != -1:
        numbers.append(text[:start].count("\n") + 1)
        start = text.find(part, start + 1)
    return numbers


def _snippet(text: str, changed: int) -> str:
    """Return the line where the change begins (counted from 1) with two lines either side, numbered."""
    lines = text.split("\n")
    span = range(max(1, changed - 2), min(len(lines), changed + 2) + 1)
    return "\n".join(f"{number:>6}\t{lines[number - 1]}" for number in span)
