"""Edits: a text with parts of it exchanged, and which place of the original each of its places was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TextEdit(NamedTuple):
    """Characters from start to end give way to a text."""

    start: int
    end: int
    text: str


def rewrite(sql: str, edits: Sequence[TextEdit]) -> str:
    """Return a text with parts of it exchanged."""
    parts, seen = list[str](), 0
    for edit in sorted(edits):
        parts += (sql[seen : edit.start], edit.text)
        seen = edit.end
    return "".join([*parts, sql[seen:]])


def origin(edits: Sequence[TextEdit], at: int) -> int:
    """Return the place in the original text of a place in the rewritten one.

    Examples
    --------
    >>> [origin([TextEdit(5, 7, "long")], at) for at in (4, 5, 8, 9)]
    [4, 5, 5, 7]
    """
    moved = 0
    for edit in sorted(edits):
        start = edit.start + moved
        if at < start:
            break
        if at < start + len(edit.text):
            return edit.start
        moved += len(edit.text) - (edit.end - edit.start)
    return at - moved
