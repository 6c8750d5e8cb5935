"""Paired measurement: all sides take turns within each round, so that a busy machine slows all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any


def take_turns(
    sides: Mapping[str, Callable[[], float]], rounds: int, *, is_warm: bool = False
) -> dict[str, list[float]]:
    """Measure every side once a round, in turning order, and return each side's values in order of rounds.

    Parameters
    ----------
    sides
        Name to a function that returns one measurement.
    rounds
        How often; one more is run first and thrown away, because it fills the caches of the disk.
    is_warm
        Whether that first one is left out.
    """
    values: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(is_warm, rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            value = sides[name]()
            if number:
                values[name].append(value)
    return values


def row(
    case: str, ours: list[float], peer: str = "", theirs: list[float] | None = None, *, unit: str, note: str = ""
) -> dict[str, Any]:
    """Return a row of a table: medians, and the median of the ratios peer / ours of each round."""
    ratios = [b / a for a, b in zip(ours, theirs or (), strict=bool(theirs)) if a]
    return {
        "case": case,
        "ours": statistics.median(ours),
        "peer": peer,
        "peer_value": statistics.median(theirs) if theirs else None,
        "ratio": statistics.median(ratios) if ratios else None,
        "unit": unit,
        "note": note,
    }
