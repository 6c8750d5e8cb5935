"""How a state is shown: by a word, a shape and a colour, so that no picture relies on colour alone.

The colours have a contrast of at least 3 to 1 on white and on black, so a picture needs to know nothing of its page.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.texts.redaction import redact
from nbtools.texts.visible import brief, visible
from nbtools.workflow import spec
from nbtools.workflow.runs.state import ENDED, NodeState, StepState, is_taken_over

_PRINTED_LINES = 10
_PRINTED_WIDTH = 400
_FONT = "font:12px var(--jp-ui-font-family,system-ui,sans-serif);color:var(--jp-ui-font-color1,inherit)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateSign:
    """How pictures tell a state.

    Attributes
    ----------
    colour
        For pages.
    shape
        The path of an SVG, 14 units wide and high, drawn as a line.
    outline
        Width of the line around a node, and its dashes.
    """

    colour: str
    shape: str
    outline: tuple[float, str] = (1.5, "")


SIGNS: Mapping[str, StateSign] = {
    "pending": StateSign(colour="#868e96", shape="M7 3a4 4 0 1 0 .01 0", outline=(1, "5 3")),
    "running": StateSign(colour="#3b82f6", shape="M4 2.5L11.5 7L4 11.5Z", outline=(3, "")),
    "waiting": StateSign(
        colour="#b7791f", shape="M4.5 5a2.5 2.5 0 1 1 3.6 2.2Q7 7.8 7 9.2M7 11.6v.6", outline=(3, "10 3")
    ),
    "ok": StateSign(colour="#2e9e4f", shape="M2.5 7.5L5.8 11L11.5 3.5"),
    "reused": StateSign(colour="#0d9488", shape="M11.5 7a4.5 4.5 0 1 1-1.6-3.4M10.2 1v3h-3"),
    "failed": StateSign(colour="#e5484d", shape="M3 3L11 11M11 3L3 11", outline=(3, "")),
    "skipped": StateSign(colour="#868e96", shape="M3 7h8", outline=(1, "1 3")),
    "cancelled": StateSign(colour="#868e96", shape="M3.5 3.5h7v7h-7z", outline=(1.5, "1 3")),
    "declined": StateSign(colour="#c2410c", shape="M3.5 3.5h7v7h-7zM3.5 10.5L10.5 3.5", outline=(2, "6 2")),
    "unknown": StateSign(colour="#a855f7", shape="M7 2v6.5M7 11v1", outline=(3, "2 3")),
}
"""Each state with its sign, and ``reused``: it is ok by what an earlier run, or this one before it ended, has left."""


def shown_state(step: StepState) -> str:
    """Return the state of a step as it is shown: one of `SIGNS`."""
    return "reused" if step.state == "ok" and is_taken_over(step.why) else step.state


def sign_svg(state: str) -> str:
    """Return the sign of a state as an SVG element that stands in a line of text."""
    sign = SIGNS.get(state, SIGNS["unknown"])
    return (
        f"<svg width='14' height='14' viewBox='0 0 14 14' style='vertical-align:-2px'><path d='{sign.shape}' "
        f"fill='none' stroke='{sign.colour}' stroke-width='2.2' stroke-linecap='round'/></svg>"
    )


def drawing(wide: float, high: float, title: str, shapes: Iterable[str]) -> str:
    """Return an SVG element of a size in pixels; the title is what a reader of the screen says of it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="0 0 {wide:.0f} {high:.0f}" style="{_FONT}" fill="currentColor"><title>{title}</title>'
        f"{''.join(shapes)}</svg>"
    )


def count_of(node: NodeState) -> tuple[int, int] | None:
    """Return how many items of a node have ended, and how many there are; `None` for a node without items."""
    return None if node.items is None else (sum(step.state in ENDED for step in node.steps), len(node.steps))


def stated(node: StepState) -> str:
    """Return the state in words, with the count of items: ``running 3/10``, ``ok 10/10, 2 failed``."""
    counted = count_of(node) if isinstance(node, NodeState) else None
    if counted is None or not isinstance(node, NodeState):
        return shown_state(node)
    failed = sum(step.state == "failed" for step in node.steps)
    return f"{shown_state(node)} {counted[0]}/{counted[1]}" + (f", {failed} failed" if failed else "")


def printed_of(result: Mapping[str, Any] | None) -> str:
    """Return the last lines of what a step printed before it failed, each cut to a width, without its error."""
    error = (result or {}).get("error") or {}
    message = str(error.get("message", ""))
    text = str((result or {}).get("text") or "")
    if not error or text.startswith(message):
        return ""
    text = text.removesuffix(message).strip()
    lines = str(redact(text)).splitlines()[-_PRINTED_LINES:]
    return "\n".join(visible(f"{line[:_PRINTED_WIDTH]}…" if len(line) > _PRINTED_WIDTH else line) for line in lines)


def seconds_of(step: StepState, now: float | None = None) -> float | None:
    """Return how many seconds a step took, or has taken so far; `None` where it has not begun."""
    if step.started_at is None:
        return None
    if step.ended_at is None and step.state not in {"running", "waiting"}:
        return None
    return max(0.0, (step.ended_at or now or time.time()) - step.started_at)


def what_runs(node: spec.NodeFields) -> str:
    """Return what a node runs: the tool, the language or the script, the model, the kind of question, the file."""
    match node:
        case spec.ToolNode():
            return node.tool
        case spec.CodeNode():
            return node.code.file if isinstance(node.code, spec.CodeFile) else node.language
        case spec.NotebookNode():
            return node.notebook
        case spec.PromptNode():
            return f"prompt {node.model or ''}".strip()
        case spec.AskNode():
            return next(name for name in ("approve", "choose", "fill") if hasattr(node.ask, name))
        case spec.WorkflowNode():
            return node.workflow
    return node.kind


def words_of(result: Mapping[str, Any] | None, longest: int = 80) -> str:
    """Return the first words of a result: of its error, its data or its text; empty where there is none."""
    if result is None:
        return ""
    data = result.get("data")
    if error := result.get("error"):
        text: Any = f"{error['code']}: {error['message']}"
    elif isinstance(data, Mapping) and "row_count" in data:
        text = f"{data['row_count']:,} rows of {', '.join(map(str, data.get('columns') or []))}"
    else:
        text = (result.get("text") or "") if data is None else data
    return brief(redact(text), longest)
