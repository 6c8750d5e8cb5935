"""The graph of a workflow with the states of its nodes, as an SVG."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence

from nbtools.texts.visible import brief
from nbtools.workflow.graph import edges
from nbtools.workflow.runs.state import NodeState, RunState
from nbtools.workflow.spec import NodeFields, Workflow
from nbtools.workflow.views.layout import layered, reduced
from nbtools.workflow.views.signs import SIGNS, count_of, drawing, seconds_of, shown_state, stated, what_runs, words_of

_LETTER = 7.5  # width of a letter of the names, in pixels, a little more than it is
_HIGH, _ROW, _GAP, _MARGIN = 42, 42, 46, 6
_LONGEST = 28


class GraphDrawing:
    """The graph of a workflow, laid out once and drawn for any state of a run.

    Parameters
    ----------
    workflow
        What is drawn.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._name = workflow.name
        self._nodes = {node.id: node for node in workflow.nodes}
        needs = reduced(needs_of(workflow))
        self._layout = layered(needs, last=[name for name, node in self._nodes.items() if node.finally_])
        layer_of = {name: layer for name, (layer, _) in self._layout.places.items()}
        self._widths = _widths(self._nodes, layer_of, self._layout.width)
        self._lefts = list(itertools.accumulate((width + _GAP for width in self._widths), initial=float(_MARGIN)))

    def svg(self, state: RunState | None = None, *, now: float | None = None) -> str:
        """Return the drawing as an SVG element, see `graph_svg`."""
        layout, lefts, widths = self._layout, self._lefts, self._widths
        wide = (lefts[-1] - _GAP if widths else 0) + _MARGIN
        high = layout.height * _ROW + 2 * _MARGIN
        shapes = []
        for (_, name), line in layout.lines.items():
            points = [(lefts[layer], lefts[layer] + widths[layer], _MARGIN + y * _ROW) for layer, y in line]
            shapes.append(_line(points, "pending" if state is None else shown_state(state.nodes[name])))
        for name, (layer, y) in layout.places.items():
            of = NodeState() if state is None else state.nodes[name]
            top = _MARGIN + y * _ROW - _HIGH / 2
            shapes.append(_box(self._nodes[name], of, lefts[layer], top, widths[layer], now))
        title = html.escape(f"{self._name}: {'not run' if state is None else state.state}")
        return drawing(wide, high, title, shapes)


def graph_svg(workflow: Workflow, state: RunState | None = None, *, now: float | None = None) -> str:
    """Return the graph as an SVG element, from left to right.

    Each state has a colour, a sign and an outline. Lines that say nothing new, because a longer way says it too, are
    left out. Text takes the colour of the page, so that it can be read on light and on dark ones.

    Parameters
    ----------
    workflow
        What is drawn.
    state
        A run; `None` draws every node as pending.
    now
        The present, in seconds since 1970; `None` asks the clock.
    """
    return GraphDrawing(workflow).svg(state, now=now)


def needs_of(workflow: Workflow) -> dict[str, list[str]]:
    """Return each node with the nodes that it needs."""
    names = {node.id for node in workflow.nodes}
    return {
        node.id: list(dict.fromkeys(edge.target for edge in edges(node) if edge.target in names))
        for node in workflow.nodes
    }


def _labels(node: NodeFields) -> tuple[str, str]:
    return brief(node.id, _LONGEST), brief(what_runs(node), _LONGEST)


def _widths(nodes: Mapping[str, NodeFields], layer_of: Mapping[str, int], count: int) -> list[float]:
    """Return the width of each layer: that of its longest name, with room for the sign and the time."""
    widths = [60.0] * count
    for name, node in nodes.items():
        above, below = _labels(node)
        need = max(len(above) * _LETTER + 34, (len(below) + 12) * _LETTER * 0.85 + 14)
        widths[layer_of[name]] = max(widths[layer_of[name]], need)
    return widths


def _line(points: Sequence[tuple[float, float, float]], state: str) -> str:
    """Return the line of an edge: curves between layers, straight beside the nodes that it passes."""
    (_, x, y), *rest = points
    path = f"M{x:.1f} {y:.1f}"
    for left, right, there in rest:
        bend = (left - x) / 2
        path += f"C{x + bend:.1f} {y:.1f} {left - bend:.1f} {there:.1f} {left:.1f} {there:.1f}"
        if (left, right, there) != points[-1]:
            path += f"H{right:.1f}"
        x, y = right, there
    end = points[-1][0]
    dashes = ' stroke-dasharray="3 3"' if state in {"skipped", "cancelled", "declined"} else ""
    head = f"M{end - 6:.1f} {y - 3.5:.1f}L{end:.1f} {y:.1f}L{end - 6:.1f} {y + 3.5:.1f}"
    line = 'fill="none" stroke="#868e96" stroke-width="1.3"'
    return f'<path d="{path}" {line}{dashes}/><path d="{head}" {line}/>'


def _box(node: NodeFields, of: NodeState, x: float, y: float, wide: float, now: float | None) -> str:
    state = shown_state(of)
    sign = SIGNS[state]
    above, below = _labels(node)
    counted, seconds = count_of(of), seconds_of(of, now)
    small = f"{counted[0]}/{counted[1]}" if counted else "" if seconds is None else f"{seconds:.2f} s"
    title = ": ".join(filter(None, [node.id, stated(of)]))
    hover = "\n".join(filter(None, [title, node.description, of.why, words_of(of.result, 300)]))
    width, dashes = sign.outline
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    box = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_HIGH}" rx="6" fill="{sign.colour}" '
        f'fill-opacity="0.12" stroke="{sign.colour}" stroke-width="{width}"{dashed}/>'
    )
    shape = (
        f'<path transform="translate({x + 7:.1f} {y + 5:.1f})" d="{sign.shape}" fill="none" stroke="{sign.colour}" '
        f'stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round"/>'
    )
    grey = 'fill="currentColor" fill-opacity="0.75" font-size="11"'
    texts = (
        f'<text x="{x + 26:.1f}" y="{y + 17:.1f}" fill="currentColor" font-size="13">{html.escape(above)}</text>'
        f'<text x="{x + 8:.1f}" y="{y + 33:.1f}" {grey}>{html.escape(below)}</text>'
        f'<text x="{x + wide - 8:.1f}" y="{y + 33:.1f}" text-anchor="end" {grey}>{small}</text>'
    )
    done = ""
    if counted and counted[1]:
        done = (
            f'<rect x="{x + 4:.1f}" y="{y + _HIGH - 4:.1f}" width="{(wide - 8) * counted[0] / counted[1]:.1f}" '
            f'height="2" fill="{sign.colour}"/>'
        )
    return f'<g data-state="{state}"><title>{html.escape(hover)}</title>{box}{shape}{texts}{done}</g>'
