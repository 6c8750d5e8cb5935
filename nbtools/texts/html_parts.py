"""The parts of HTML that results and records are shown by; every text is escaped here.

The few styles stand on the elements and take colours from JupyterLab's variables, so a page follows light and dark
themes. Where a front end drops styles, as for untrusted notebooks, plain elements are left.
"""

from __future__ import annotations

import html
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nbtools.texts.visible import brief, visible

_MUTED = "color:var(--jp-ui-font-color2,#777)"
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"
_UNBROKEN = 24  # a date, a name or an outcome should not be torn apart by a long neighbour
_SHOWN, _HOVERED = 200, 2_000  # characters of a cell, and of the text that shows when the pointer rests on it


def footer(text: str) -> str:
    """Return a line in small grey letters; nothing for an empty text."""
    return f"<div style='{_MUTED};font-size:85%;margin-top:4px'>{html.escape(text)}</div>" if text else ""


def preformatted(text: str) -> str:
    """Return a text whose spaces and lines are kept, long lines wrapped; nothing for an empty text."""
    return f"<pre style='margin:0;white-space:pre-wrap'>{html.escape(text)}</pre>" if text else ""


def error_block(head: str, message: str, hint: str | None = None) -> str:
    """Return what failed, why, and what to do next, marked as an error."""
    body = f"<div style='white-space:pre-wrap'>{html.escape(message)}</div>"
    advice = f"<div>→ {html.escape(hint)}</div>" if hint else ""
    style = "border-left:3px solid var(--jp-error-color1,#c33);padding-left:8px"
    return f"<div style='{style}'><b>{html.escape(head)}</b>{body}{advice}</div>"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str = "",
    below: str = "",
    empty: str = "nothing here",
    right: Collection[int] = (),
) -> str:
    """Return rows under column names; a cell shows 200 characters, and more when the pointer rests on it.

    Parameters
    ----------
    columns
        Names of the columns.
    rows
        For each row, one value a column: text, what can be written as JSON, or a pair of the text that is shown and the
        whole one.
    title
        Line above the table; empty for none.
    below
        Line below the table; empty for none.
    empty
        What stands in place of a table without rows.
    right
        The columns of numbers, which end below each other.
    """
    head = f"<div><b>{html.escape(title)}</b></div>" if title else ""
    sides = [_CELL.replace("left", "right", 1) if index in right else _CELL for index in range(len(columns))]
    body = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in rows)
    if not body:
        return f"<div>{head}<i>{html.escape(empty)}</i>{footer(below)}</div>"
    names = "".join(f"<th style='{side}'>{html.escape(name)}</th>" for name, side in zip(columns, sides, strict=True))
    return f"<div>{head}<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{footer(below)}</div>"


def card(title: str, about: str, facts: Mapping[str, str], parts: Iterable[str] = ()) -> str:
    """Return a title, a text, labelled facts, and more parts (HTML already) below them."""
    text = f"<div style='white-space:pre-wrap'>{html.escape(about)}</div>" if about else ""
    label = f"<tr><th style='{_CELL};font-weight:normal;{_MUTED}'>"
    rows = "".join(
        f"{label}{html.escape(name)}</th><td style='{_CELL}'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    listed = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    line = "border-top:1px solid var(--jp-border-color2,#ddd);padding:6px 0"
    return f"<div style='{line}'><b>{html.escape(title)}</b>{text}{listed}{''.join(parts)}</div>"


def _cell(value: Any, side: str) -> str:
    value, whole = value if isinstance(value, tuple) else ("" if value is None else value, None)
    text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), lines=True)
    short = brief(value, _SHOWN)
    whole = text if whole is None and short != text and len(text) > _SHOWN else whole
    hover = f" title='{html.escape(whole[:_HOVERED])}'" if whole else ""
    nowrap = ";white-space:nowrap" if len(short) <= _UNBROKEN else ""
    return f"<td style='{side}{nowrap}'{hover}>{html.escape(short)}</td>"
