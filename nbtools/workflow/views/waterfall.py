"""When each step ran: bars below each other on one scale of seconds."""

from __future__ import annotations

import html
import time

from nbtools.texts.visible import brief
from nbtools.workflow.runs.state import RunState, StepState, step_label
from nbtools.workflow.views.signs import SIGNS, drawing, seconds_of, shown_state

_LABEL, _BARS, _ROW, _SECONDS = 180, 340, 18, 70
_MOST = 300


def waterfall_svg(state: RunState) -> str:
    """Return the bars as an SVG element; the first 300 steps that have begun. Empty where none has.

    The scale goes from the first start to the last end, so the time in which a run waited for a person is on it too.
    """
    now = time.time()
    begun: list[tuple[str, StepState, float, float]] = []
    for name, item, step in state.steps():
        seconds = seconds_of(step, now)
        if step.started_at is not None and seconds is not None:
            begun.append((step_label(name, item), step, step.started_at, seconds))
    if not begun:
        return ""
    begun.sort(key=lambda row: row[2])
    first = begun[0][2]
    scale = _BARS / max(0.001, *(start + seconds - first for _, _, start, seconds in begun))
    rows = []
    for i, (name, step, start, seconds) in enumerate(begun[:_MOST]):
        sign = SIGNS[shown_state(step)]
        y, x = i * _ROW, _LABEL + (start - first) * scale
        wide = max(2.0, seconds * scale)
        width, dashes = sign.outline
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        rows.append(
            f'<text x="{_LABEL - 6}" y="{y + 13}" text-anchor="end">{html.escape(brief(name, 26))}</text>'
            f'<rect x="{x:.1f}" y="{y + 4}" width="{wide:.1f}" height="11" rx="2" fill="{sign.colour}" '
            f'fill-opacity="0.45" stroke="{sign.colour}" stroke-width="{min(width, 1.5)}"{dashed}/>'
            f'<text x="{x + wide + 5:.1f}" y="{y + 13}" fill-opacity="0.75">{seconds:.2f} s</text>'
        )
    high, wide = len(rows) * _ROW + 4, _LABEL + _BARS + _SECONDS
    return drawing(wide, high, "When each step ran", rows)
