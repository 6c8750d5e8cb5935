"""A run inside of another: where it is kept, and what it gives the step that it is."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import Workflow


def free_folder(outer: Path, label: str) -> str:
    """Return the name of a folder for a step's run that is not there yet, below the folder of the run around it."""
    names = (label if count == 1 else f"{label}~{count}" for count in itertools.count(1))
    return next(name for name in names if not (outer / "sub" / name).exists())


def result_of(workflow: Workflow, state: RunState, seconds: float) -> dict[str, Any]:
    """Return the result of the step, from the state in which the run has ended."""
    outputs = state.outputs or {}
    # A workflow that returns all it promised has dealt with the no itself.
    is_dealt_with = state.state == "declined" and workflow.outputs.keys() == outputs.keys() > set()
    error = None if state.error is None or is_dealt_with else {"hint": None, **state.error}
    return {
        "ok": error is None,
        **({"declined": True} if error is not None and state.state == "declined" else {}),
        "text": "\n".join(f"{name}: {value}" for name, value in outputs.items())
        if error is None
        else error.get("message", ""),
        "data": dict(outputs) if error is None else None,
        "error": error,
        "artifacts": [artifact for one in state.nodes.values() for artifact in one.view()["artifacts"]],
        "label": state.label().names(),
        "duration_s": round(seconds, 6),
        "usage": {"tokens": state.tokens, "usd": state.usd},
    }
