"""Text from elsewhere as a person is shown it: what cannot be seen, or would move what is seen, is spelled out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Any

__all__ = ["aligned", "brief", "visible"]

# Letters and marks that count as printable and show nothing: fillers, joiners, selectors of variants.
_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text in which every control, escape, bidirectional, zero-width or blank character is spelled out.

    Parameters
    ----------
    text
        What somebody else wrote.
    lines
        Whether line ends and tabs stay what they are.

    Examples
    --------
    >>> visible("a\x1b[2K\u202eb"), visible("a\nb"), visible("a\nb", lines=True)
    ('a<U+001B>[2K<U+202E>b', 'a<U+000A>b', 'a\nb')
    """
    kept = "\n\t" if lines else ""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in kept or (char.isprintable() and char not in _BLANK) else f"<U+{ord(char):04X}>" for char in text
    )


def brief(value: Any, longest: int = 80) -> str:
    """Return a value on one line, as text or JSON, cut to a number of characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    flat = visible(" ".join(text.split()))
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def aligned(rows: Sequence[Sequence[Any]], width: int | None = None) -> list[str]:
    """Return rows as lines with their columns below each other, nothing for `None`; the widest column gives way.

    Parameters
    ----------
    rows
        At least one, all with as many values.
    width
        Characters of a line at the most; `None` asks the terminal.
    """
    cells = [["" if value is None else brief(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    spare = (width or shutil.get_terminal_size((120, 24)).columns) - 2 * (len(widths) - 1)
    while sum(widths) > spare and max(widths) > 12:
        widths[widths.index(max(widths))] -= 1
    return ["  ".join(brief(text, w).ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in cells]
