"""Matching of path patterns in one walk: each folder is read once, whatever the pattern.

A pattern is a tuple of parts; while walking, all that may be left of it is carried along. So ``**/*/**/*x*`` costs no
more than ``**``, and a folder in which nothing can match is not entered.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from nbtools.errors import FileMissing, InvalidArguments, PathNotAllowed
from nbtools.ground.paths import Roots

_MAX_LENGTH, _MAX_PARTS, _MAX_SEEN = 1_000, 64, 100_000
_ANY_DEPTH = "**"
_WHOLE: tuple[str, ...] = ()


def parse_pattern(text: str) -> tuple[str, ...]:
    """Return the parts of a pattern such as ``data/**/*.csv``.

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
    # Any depth and again any depth is any depth.
    return tuple(part for part, before in zip(parts, ["", *parts], strict=False) if not part == before == _ANY_DEPTH)


def find_matching(parts: tuple[str, ...], start: Path, roots: Roots) -> Iterator[str | None]:
    """Yield the matching paths relative to a folder; `None` in the end when it gave up for size.

    Folders behind links are not entered, and neither are those that may not be read.
    """
    todo = [("", {parts})]
    seen = 0
    while todo:
        relative, patterns = todo.pop()
        for name, is_folder in _entries(start / relative, roots):
            seen += 1
            if seen > _MAX_SEEN:
                yield None
                return
            left = set().union(*(_left_behind(name, pattern) for pattern in patterns))
            path = f"{relative}/{name}" if relative else name
            if _WHOLE in left:
                yield path
            if is_folder and (below := left - {_WHOLE}):
                todo.append((path, below))


def _left_behind(name: str, parts: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return all that may be left of a pattern behind a name; nothing when it does not match.

    Examples
    --------
    >>> sorted(_left_behind("a", ("**", "a", "*"))), _left_behind("a", ("a",)), _left_behind(".a", ("*", "a"))
    ([('*',), ('**', 'a', '*')], {()}, set())
    """
    part, rest = parts[0], parts[1:]
    is_hidden = name.startswith(".") and not part.startswith(".")
    if part != _ANY_DEPTH:
        return {rest} if not is_hidden and fnmatch.fnmatchcase(name, part) else set()
    if is_hidden:
        return _left_behind(name, rest) if rest else set()
    return {parts} | (_left_behind(name, rest) if rest else {_WHOLE})


def _entries(folder: Path, roots: Roots) -> list[tuple[str, bool]]:
    try:
        with roots.folder(folder) as opened:
            statuses = [(name, opened.status(name)) for name in opened.names()]
    except (PathNotAllowed, FileMissing, PermissionError):
        return []
    return [(name, stat.S_ISDIR(status.st_mode)) for name, status in statuses if status is not None]
