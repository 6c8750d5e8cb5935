"""A call that waits for a yes: all its arguments, what it would change, and why it is asked.

What it would change is looked up once, here, for all ways to ask: a card, a terminal, MCP, or later. A yes is
for exactly that: the seal is of the call, of what was shown, and of the files that it was read from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.approval.label_rules import hosts_of
from nbtools.contract.consequence import Consequence
from nbtools.contract.prepared import PreparedCall
from nbtools.contract.tool import Context, Services, Tool, ToolCall
from nbtools.errors import NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.texts.redaction import redact
from nbtools.texts.visible import counted, visible

_ASKERS: Mapping[str, str] = {"model": "a model", "mcp": "an MCP client", "workflow": "a workflow", "magic": "a magic"}
# More is shown by its head and its tail.
_SHOWN_LINES, _SHOWN_CHARACTERS = 400, 40_000
_MOST_HASHED = 64 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """A call that waits for a yes.

    Attributes
    ----------
    prepared
        What is to run, exactly so.
    reason
        Why it is asked.
    parts
        What it would change.
    seal
        What an answer is bound to: the prepared call, its tool, `parts`, and the files that they and the arguments
        name, as they were.
    changed
        Returns the request for the call with other arguments, and raises what is wrong with them; `None` where nobody
        can tell yet.
    """

    prepared: PreparedCall
    reason: str
    parts: tuple[Consequence, ...] = ()
    seal: str = ""
    changed: Callable[[Mapping[str, Any]], Coroutine[Any, Any, ApprovalRequest]] | None = None

    @classmethod
    async def of(cls, prepared: PreparedCall, services: Services, reason: str, **more: Any) -> ApprovalRequest:
        """Return the request for a call, for which is looked up what it would change with its services."""
        parts, seal = await in_thread(_look, prepared, services)
        return cls(prepared=prepared, reason=reason, parts=parts, seal=seal, **more)

    @property
    def tool(self) -> Tool:
        """The tool that is to run."""
        return self.prepared.tool

    @property
    def call(self) -> ToolCall:
        """The call, with the arguments that the tool gets."""
        return self.prepared.call

    @property
    def consequence(self) -> str:
        """What a yes would do, in a few words."""
        effects = self.prepared.effects
        if effects.undeclared:
            return "declares no effects: it may do anything"
        parts = [
            "may overwrite, delete or run things" if effects.destructive else "",
            "reaches beyond this machine" if effects.open_world else "",
            "" if effects.destructive or effects.read_only else "changes something",
        ]
        effects_text = ", ".join(part for part in parts if part) or "only reads"
        return effects_text if self.tool.trusted else f"its server claims: {effects_text}"

    def shown_parts(self) -> list[dict[str, str]]:
        """Return what it would change, as every face shows it: ``title`` and ``text`` of each part."""
        return [part.to_dict() for part in self.parts]

    def text(self, *, whole: bool = False) -> str:
        """Return the request as a person reads it: the tool, its arguments and the consequence.

        The middle of a very long argument is left out, and named, unless it is to be `whole`.

        No argument can look like another part of it: several lines stand behind a bar, and characters that cannot be
        seen, or would move what is seen, are spelled out.
        """
        head = f"{self.tool.name} ({self.consequence}) wants to run, asked for by {asker(self.call.caller)}:"
        return request_text(head, self.call.arguments, self.reason, self.shown_parts(), whole=whole)


def _look(prepared: PreparedCall, services: Services) -> tuple[tuple[Consequence, ...], str]:
    parts = tuple(_parts(prepared, services))
    places = [prepared.path_of(name) for name in prepared.values]
    files = (path for path in (*places, *(file for part in parts for file in part.files)) if path is not None)
    # The files as they are now, too: a script that is named may be changed while someone reads the question.
    texts = [prepared.digest, *(f"{part.title}\n{part.text}" for part in parts), *map(_state, dict.fromkeys(files))]
    return parts, hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _parts(prepared: PreparedCall, services: Services) -> Iterator[Consequence]:
    tool = prepared.tool
    if tool.consequences_of is not None:
        try:
            yield from tool.consequences_of(prepared.values, Context(call=prepared.call, services=services))
        except NbtoolsError as exc:
            yield Consequence(f"what it would change is not known: {exc.message}")
        except Exception as exc:  # the tool's own code
            yield Consequence(f"what it would change is not known: {type(exc).__name__}")
    elif not prepared.effects.read_only:
        for name in prepared.values:
            path = prepared.path_of(name)
            if path is not None and path.is_file():
                yield Consequence(f"{name}: {path.name} already exists, {path.stat().st_size:,} bytes")
    # Long arguments hide an address; on a separate line it is seen.
    if prepared.effects.may_reach_out and (hosts := hosts_of(prepared.call.arguments)):
        yield Consequence(f"reaches {', '.join(sorted(hosts))}")


def _state(path: Path) -> str:
    """Return a file as it is: by its content, where it is not very large."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a `Place` may be no `Path`
        if os.path.isdir(path):  # noqa: PTH112 - same
            return f"{path} is a folder"
        if os.path.isfile(path) and status.st_size <= _MOST_HASHED:  # noqa: PTH113 - same
            with open(path, "rb") as file:  # noqa: PTH123 - same
                return f"{path} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as exc:
        return f"{path} {type(exc).__name__}"
    # The writer of a file can set its time of change back; that of its inode is the system's own.
    return f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def asker(caller: str) -> str:
    """Return who asked for a call, in words."""
    return _ASKERS.get(caller, caller)


def request_text(
    head: str,
    arguments: Mapping[str, Any],
    reason: str,
    parts: Iterable[Mapping[str, str]] = (),
    *,
    whole: bool = False,
) -> str:
    """Return a call that waits for a yes as `ApprovalRequest.text` does: its arguments, what it would change, and why.

    Parameters
    ----------
    head
        The first line.
    arguments
        All that the tool gets.
    reason
        Why it is asked.
    parts
        See `ApprovalRequest.shown_parts`.
    whole
        Whether nothing is left out.
    """
    lines = [visible(head)]
    for name, value in redact(dict(arguments)).items():
        label, texts = f"  {visible(name)}:", lines_of(value, whole=whole)
        lines += [f"{label} {texts[0]}"] if len(texts) == 1 else [label, *(f"  │ {line}" for line in texts)]
    for part in parts:
        texts = lines_of(part["text"], whole=whole) if part["text"] else []
        lines += [f"  → {part['title']}", *(f"  │ {line}" for line in texts)]
    return "\n".join([*lines, f"  ({visible(reason)})"])


def lines_of(value: Any, *, whole: bool = False) -> list[str]:
    """Return a value in lines: whole, or its head and its tail around the number of lines that are left out."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    lines = visible(text, lines=True).split("\n")
    if whole:
        return lines
    half = _SHOWN_LINES // 2
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:half], f"[… {counted(len(lines) - 2 * half, 'more line')} not shown …]", *lines[-half:]]
    if sum(map(len, lines)) <= _SHOWN_CHARACTERS:
        return lines
    part = _SHOWN_CHARACTERS // len(lines) // 2
    return [line if len(line) <= 2 * part else _ends(line, part) for line in lines]


def _ends(line: str, part: int) -> str:
    return f"{line[:part]}[… {counted(len(line) - 2 * part, 'more character')} not shown …]{line[-part:]}"
