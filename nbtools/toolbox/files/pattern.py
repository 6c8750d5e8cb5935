"""Matching of path patterns in one walk: each folder is read once, whatever the pattern.

A pattern is a list of parts; while walking, the set of parts that may come next is carried along, as in a finite
automaton. So ``**/**/**/*x*`` costs no more than ``**``, and a folder that no part can match is not entered.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from nbtools.errors import FileMissing, InvalidArguments, PathNotAllowed
from nbtools.ground.paths import Roots

_MAX_LENGTH, _MAX_PARTS, _MAX_SEEN = 1_000, 64, 100_000
_ANY_DEPTH = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pattern:
    """A parsed pattern; make one with `Pattern.parse`."""

    parts: tuple[re.Pattern[str] | None, ...]
    hidden: tuple[bool, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read a pattern such as ``data/**/*.csv``.

        Raises
        ------
        InvalidArguments
            It is empty or over-long.
        PathNotAllowed
            It is absolute or has a part ``..``: it has to stay below the folder that it is looked up in.
        """
        parts = [part for part in text.replace("\\", "/").split("/") if part not in {"", "."}]
        if not parts or "\0" in text or len(text) > _MAX_LENGTH or len(parts) > _MAX_PARTS:
            raise InvalidArguments(f"{text[:60]!r} is not a pattern: it is empty or too long.", hint="Try '**/*.csv'.")
        if text.startswith(("/", "\\", "~")) or ".." in parts or re.match(r"[A-Za-z]:", text):
            raise PathNotAllowed(
                f"the pattern {text!r} leaves its folder.", hint="Give the folder as base_path and a pattern below it."
            )
        compiled = tuple(_ANY_DEPTH if part == "**" else re.compile(fnmatch.translate(part)) for part in parts)
        return cls(parts=compiled, hidden=tuple(part.startswith(".") for part in parts))

    def _open(self, states: frozenset[int]) -> frozenset[int]:
        """Return the states with those that are reached by letting ``**`` stand for nothing."""
        closure = set(states)
        for state in sorted(states):
            position = state
            while position < len(self.parts) - 1 and self.parts[position] is _ANY_DEPTH:
                position += 1
                closure.add(position)
        return frozenset(closure)

    def _step(self, states: frozenset[int], name: str) -> tuple[bool, frozenset[int]]:
        """Return whether an entry matches the whole pattern, and what may match below it."""
        matched, below = False, set[int]()
        for state in self._open(states):
            if name.startswith(".") and not self.hidden[state]:
                continue
            part, last = self.parts[state], state == len(self.parts) - 1
            if part is _ANY_DEPTH:
                matched |= last
                below.add(state)
            elif part.match(name):
                matched |= last
                if not last:
                    below.add(state + 1)
        return matched, frozenset(below)

    def walk(self, start: Path, roots: Roots) -> Iterator[str | None]:
        """Yield the matching paths relative to a folder; `None` in the end when it gave up for size.

        Folders behind links are not entered, and neither are those that may not be read.
        """
        todo: list[tuple[str, frozenset[int]]] = [("", frozenset({0}))]
        seen = 0
        while todo:
            relative, states = todo.pop()
            for name, is_folder in _entries(start / relative, roots):
                seen += 1
                if seen > _MAX_SEEN:
                    yield None
                    return
                matched, below = self._step(states, name)
                path = f"{relative}/{name}" if relative else name
                if matched:
                    yield path
                if below and is_folder:
                    todo.append((path, below))


def _entries(folder: Path, roots: Roots) -> list[tuple[str, bool]]:
    try:
        with roots.folder(folder) as opened:
            statuses = [(name, opened.status(name)) for name in opened.names()]
    except (PathNotAllowed, FileMissing, PermissionError):
        return []
    return [(name, stat.S_ISDIR(status.st_mode)) for name, status in statuses if status is not None]
