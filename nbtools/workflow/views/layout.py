"""Where the nodes of a graph stand: in layers from left to right, few lines crossing.

The steps are those of Sugiyama: each node is placed one layer after the last one that it needs; a line over several
layers gets a point in each of them; nodes are ordered by the mean position of their neighbours, forth and back; then
they move towards that position as far as the other nodes of the layer allow.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

_SWEEPS = 8
_GAP = 0.45  # between two nodes of a layer, in heights of a node; a passing line needs less


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Places in units: a layer is 1 wide, a node is 1 high.

    Attributes
    ----------
    places
        Node to its layer, counted from 0, and the middle of its height.
    lines
        For each edge ``(needed, node)`` the places that its line goes through, both ends included.
    width
        How many layers there are.
    height
        How high all layers are.
    """

    places: Mapping[str, tuple[int, float]]
    lines: Mapping[tuple[str, str], Sequence[tuple[int, float]]]
    width: int
    height: float


def layers_of(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the layer of each node: one more than that of the last one that it needs."""
    layers: dict[str, int] = {}
    todo = list(needs)
    while todo:
        name = todo[-1]
        missing = [needed for needed in needs[name] if needed not in layers]
        # An explicit stack, because a chain of nodes may be longer than Python's recursion.
        if missing and name not in layers:
            todo += missing
        else:
            todo.pop()
            layers.setdefault(name, 1 + max((layers[needed] for needed in needs[name]), default=-1))
    return {name: layers[name] for name in needs}


def reduced(needs: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the graph without edges that say nothing new, because a longer way leads there too."""
    above: dict[str, set[str]] = {}
    for name in sorted(needs, key=layers_of(needs).__getitem__):
        above[name] = set(needs[name]).union(*(above[needed] for needed in needs[name]))
    return {
        name: [one for one in dict.fromkeys(needed) if not any(one in above[other] for other in needed if other != one)]
        for name, needed in needs.items()
    }


def layered(needs: Mapping[str, Sequence[str]], *, last: Sequence[str] = ()) -> Layout:
    """Return where nodes stand.

    Parameters
    ----------
    needs
        Each node with those that it needs; no cycles.
    last
        Nodes that stand behind all others.
    """
    layer_of = layers_of(needs)
    behind = 1 + max((layer_of[name] for name in needs if name not in last), default=-1)
    layer_of |= {name: behind + layer_of[name] * (layer_of[name] < behind) for name in last}
    ways: dict[tuple[str, str], list[str]] = {}
    before: dict[str, list[str]] = {name: [] for name in needs}
    for name, needed in needs.items():
        for one in needed:
            # A line over several layers occupies space in each of them, as a node would, so that no box covers it.
            points = [f"{one}>{name}>{layer}" for layer in range(layer_of[one] + 1, layer_of[name])]
            ways[one, name] = [one, *points, name]
            for left, right in itertools.pairwise(ways[one, name]):
                before.setdefault(right, []).append(left)
            layer_of |= {point: layer_of[one] + i for i, point in enumerate(points, 1)}
    width = 1 + max(layer_of.values(), default=-1)
    layers: list[list[str]] = [[] for _ in range(width)]
    for name, layer in layer_of.items():
        layers[layer].append(name)
    after: dict[str, list[str]] = {name: [] for name in layer_of}
    for name, lefts in before.items():
        for left in lefts:
            after[left].append(name)
    _reorder(layers, before, after)
    heights = {name: 1.0 if name in needs else 0.3 for name in layer_of}
    y = _settle(layers, before, after, heights)
    places = {name: (layer_of[name], y[name]) for name in layer_of}
    lines = {edge: [places[name] for name in way] for edge, way in ways.items()}
    height = max((y[name] + heights[name] / 2 for name in y), default=0.0)
    return Layout(places={name: places[name] for name in needs}, lines=lines, width=width, height=height)


def _reorder(layers: list[list[str]], before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> None:
    """Sort each layer by the mean place of the neighbours, forth and back in turn."""
    order = {name: i for layer in layers for i, name in enumerate(layer)}
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        beside = before if forth else after
        for layer in layers if forth else reversed(layers):
            mean = {
                name: sum(order[one] for one in near) / len(near) if (near := beside.get(name)) else order[name]
                for name in layer
            }
            layer.sort(key=mean.__getitem__)
            order |= {name: i for i, name in enumerate(layer)}


def _settle(
    layers: Sequence[Sequence[str]],
    before: Mapping[str, list[str]],
    after: Mapping[str, list[str]],
    heights: Mapping[str, float],
) -> dict[str, float]:
    """Return the middle of each node's height, all of them from 0 on."""
    y: dict[str, float] = {}
    for layer in layers:
        _stack(layer, dict.fromkeys(layer, 0.0), heights, y)
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            beside = {name: [*before.get(name, ()), *after[name]] for name in layer}
            wish = {name: sum(y[one] for one in near) / len(near) if near else y[name] for name, near in beside.items()}
            _stack(layer, wish, heights, y)
    top = min((y[name] - heights[name] / 2 for name in y), default=0.0)
    return {name: value - top for name, value in y.items()}


def _stack(layer: Sequence[str], wish: Mapping[str, float], heights: Mapping[str, float], y: dict[str, float]) -> None:
    """Place a layer's nodes below each other, each near its ideal position; then shift all of them."""
    edge = -float("inf")
    for name in layer:
        y[name] = max(wish[name], edge + heights[name] / 2)
        edge = y[name] + heights[name] / 2 + _GAP
    if layer:
        # Stacking pushes everything down; taken back by the mean, which keeps the layer where its neighbours want it.
        shift = sum(wish[name] - y[name] for name in layer) / len(layer)
        for name in layer:
            y[name] += shift
