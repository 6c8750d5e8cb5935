"""The text form of a table for models: few characters, nothing hidden silently."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from nbtools.sql.results.texts import cell_text, type_name
from nbtools.texts.visible import counted

# Characters of a cell, about thirty tokens: enough to tell what it is.
_CELL = 120
# Rows from the end that are kept when the middle is left out: they show the extremes of a sorted result.
_TAIL = 3


def compact(
    columns: Sequence[str],
    types: Sequence[str],
    count: int,
    rows: Callable[[int, int | None], list[list[Any]]],
    *,
    more: bool,
    max_chars: int | None,
    max_rows: int | None,
) -> str:
    """Return a table of text with a header of names and types, and a last line that counts the rows.

    Parameters
    ----------
    columns
        Names of the columns.
    types
        The engine's name of the type of each column.
    count
        Rows there are.
    rows
        Returns the rows from one index to before another, as JSON values.
    more
        Whether the result itself was cut, so that there are more rows than `count`.
    max_chars
        Characters of the whole text, `None` for no limit. First long cells are shortened, then rows in the middle are
        left out, and the text says so.
    max_rows
        Rows of the text, `None` for no limit; rows in the middle are left out.
    """
    longest = _CELL if max_chars is not None else sys.maxsize
    max_chars = sys.maxsize if max_chars is None else max_chars
    max_rows = count if max_rows is None else max_rows
    head, tail = (count, 0) if count <= max_rows else (max_rows - _TAIL, _TAIL)
    names = " | ".join(f"{_cell(name, 60)} {_type(kind)}".rstrip() for name, kind in zip(columns, types, strict=True))
    # Every column gets a fair share of a line; what a short one does not need is not given to the others.
    width = max(12, min(longest, max_chars // max(1, 4 * len(columns))))
    first = [_line(row, width) for row in rows(0, head)]
    last = [_line(row, width) for row in rows(count - tail, count)] if tail else []
    budget = max_chars - min(len(names), max_chars // 2) - sum(map(len, last)) - 120
    shown_lines: list[str] = []
    for line in first:
        budget -= len(line) + 1
        if budget < 0 and shown_lines:
            break
        shown_lines.append(line)
    left_out = count - len(shown_lines) - len(last)
    room = max(max_chars // 2, 200)
    lines = [names if len(names) <= room else f"{names[:room]}… ({counted(len(columns), 'column')})", *shown_lines]
    if left_out:
        lines.append(f"… {counted(left_out, 'row')} not shown …")
    lines.extend(last)
    lines.append(f"({counted(count, 'row')}{'; there are more, the result was cut' if more else ''})")
    return "\n".join(lines)


def _type(kind: str) -> str:
    name = type_name(kind)
    return f"({name if len(name) <= 40 else name[:39] + '…'})" if name else ""


def _line(row: Sequence[Any], width: int) -> str:
    texts = (cell_text(value, None) for value in row)
    return " | ".join(_cell("NULL" if text is None else text, width) for text in texts)


def _cell(text: str, width: int) -> str:
    """Put a value on one line and cut it, saying how much is missing."""
    flat = text.replace("\r\n", "⏎").replace("\n", "⏎").replace("|", "¦") if "|" in text or "\n" in text else text
    if len(flat) <= width:
        return flat
    note = f"…(+{len(flat) - width:,})"
    return flat[: max(1, width - len(note))] + note
