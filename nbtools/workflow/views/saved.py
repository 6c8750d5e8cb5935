"""What the folder of a run tells: its workflow as it was at the start, and the state that its log leads to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbtools.workflow.checks.shape import read_workflow
from nbtools.workflow.document import Document
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import NodeFields, Workflow


def read_progress(run: FrozenRun) -> tuple[RunState, Workflow | None]:
    """Return the state of a run, and what it runs; `None` where that file can no longer be read."""
    workflow, _, _ = read_workflow(Document.open(run.main, str(run.main)))
    names = [] if workflow is None else [node.id for node in workflow.nodes]
    is_driven = run.holder() is not None  # asked first: what a driver writes until it ends is read
    progress = RunState.of(names, inputs=run.facts["inputs"], events=run.events())
    if not is_driven and progress.state == "running":
        progress.lose(max(event.at for event in run.events()))
    return progress, workflow


def read_drift(run: FrozenRun, was: Workflow | None) -> Iterator[str]:
    """Yield what is different from the files as they are now, in words, nodes by their names; they are not used."""
    files = run.drift()
    yield from files
    main = str(run.facts["main"])
    if was is None or not any(line.startswith(f"{main} was changed") for line in files):
        return
    path = Path(run.facts["root"]) / main
    now, _, _ = read_workflow(Document.open(path, str(path)))
    before = {node.id: _definition_of(node) for node in was.nodes}
    after = {} if now is None else {node.id: _definition_of(node) for node in now.nodes}
    for change, names in (
        ("added", [name for name in after if name not in before]),
        ("removed", [name for name in before if name not in after]),
        ("changed", [name for name in after if name in before and after[name] != before[name]]),
    ):
        if names and now is not None:
            yield f"{'node' if len(names) == 1 else 'nodes'} {change}: {', '.join(names)}"


def _definition_of(node: NodeFields) -> dict[str, Any]:
    """Return what a node says; a script only by its name, since the run has it beside the workflow."""
    fields = node.model_dump()
    code = fields.get("code")
    return {**fields, "code": Path(code["file"]).name} if isinstance(code, dict) else fields
