"""What the folder of a run tells: its workflow as it was at the start, and the state that its log leads to."""

from __future__ import annotations

from nbtools.workflow.checks.shape import read_workflow
from nbtools.workflow.document import Document
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import Workflow

__all__ = ["read_progress"]


def read_progress(run: FrozenRun) -> tuple[RunState, Workflow | None]:
    """Return the state of a run, and what it runs; `None` where that file cannot be read any more."""
    workflow, _, _ = read_workflow(Document.open(run.main, str(run.main)))
    names = [] if workflow is None else [node.id for node in workflow.nodes]
    return RunState.of(names, inputs=run.facts["inputs"], events=run.events()), workflow
