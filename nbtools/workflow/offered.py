"""Workflow files as tools: the inputs are the parameters, the outputs are the data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.aio import in_thread
from nbtools.errors import ApprovalPending
from nbtools.parameters import SchemaParameters
from nbtools.result import Artifact, Output
from nbtools.tool import Context, Effects, Tool
from nbtools.workflow.runs.lines import event_line
from nbtools.workflow.spec import AskNode, CodeNode, NodeFields, PromptNode, ToolNode, Workflow, WorkflowNode
from nbtools.workflow.validation import validate

if TYPE_CHECKING:
    from nbtools.workflow.runs.events import RunEvent

__all__ = ["workflow_tool"]

_ANYTHING = Effects(destructive=True, open_world=True)
_LONGEST_S = 7 * 86_400.0


def workflow_tool(
    path: Path,
    run: Callable[..., Awaitable[Any]],
    *,
    name: str | None = None,
    description: str | None = None,
    known: Mapping[str, Tool],
) -> Tool:
    """Return a workflow file as a tool.

    Parameters
    ----------
    path
        The file. It is read again at each call; the parameters are those of now.
    run
        `nbtools.workflow.service.Workflows.arun`, which returns a run.
    name, description
        Of the tool; `None` takes the workflow's own.
    known
        The tools that nodes may call: what they do to the world is what the workflow does.

    Raises
    ------
    ConfigInvalid
        The workflow has mistakes.
    """
    report = validate(path)
    report.raise_for_errors()
    workflow: Workflow = report.workflow

    async def call(*, ctx: Context, **inputs: Any) -> Output[dict[str, Any]]:
        def show(event: RunEvent) -> None:
            if line := event_line(event):
                ctx.emit("progress", line)

        done = await run(path, inputs, on_event=show)
        if done.state in {"waiting", "unknown"}:
            asked = "; ".join(f"{one.step} asks: {one.text}" for one in done.questions)
            hint = f"A person answers: nbtools runs answer {done.run_id} NODE ANSWER; then nbtools run --resume."
            raise ApprovalPending(f"the run {done.run_id} waits: {asked}", hint=hint, data={"run_id": done.run_id})
        done.raise_for_error()
        return Output(data=dict(done.outputs), text=str(done), artifacts=await in_thread(_artifacts, done))

    about = description or workflow.description or f"Run the workflow {workflow.name}."
    return Tool(
        name=name or workflow.name,
        function=call,
        parameters=SchemaParameters(workflow.input_schema, hidden_name="ctx"),
        effects=_effects(workflow, path.parent, known),
        about=about,
        timeout=_LONGEST_S,
        returns=lambda: Output[dict[str, Any]],
    )


def _artifacts(done: Any) -> tuple[Artifact, ...]:
    files = [found["path"] for node in done.progress.nodes.values() for found in node.view()["artifacts"]]
    return tuple(Artifact.from_path(file) for file in dict.fromkeys(files) if Path(file).is_file())


def _effects(workflow: Workflow, folder: Path, known: Mapping[str, Tool]) -> Effects:
    """Return what all nodes together do to the world."""
    found = [effects for node in workflow.nodes for effects in _effects_of(workflow, node, folder, known)]
    return Effects(
        read_only=all(effects.read_only for effects in found),
        destructive=any(effects.destructive for effects in found),
        idempotent=all(effects.idempotent or effects.read_only for effects in found),
        open_world=any(effects.open_world for effects in found),
    )


def _effects_of(workflow: Workflow, node: NodeFields, folder: Path, known: Mapping[str, Tool]) -> Iterator[Effects]:
    names: list[str] = []
    match node:
        case ToolNode():
            names = [node.tool]
        case PromptNode():
            offered = node.tools if node.tools is not None else workflow.enabled_tools
            names = [one if isinstance(one, str) else one.name for one in offered]
            yield Effects(read_only=True, open_world=True)
        case CodeNode():
            yield Effects(destructive=True, open_world=True, idempotent=node.idempotent)
        case WorkflowNode():
            path = folder / node.workflow
            report = validate(path)
            yield _effects(report.workflow, path.parent, known) if report.workflow is not None else _ANYTHING
        case AskNode():
            yield Effects(read_only=True)
    for name in names:
        entry = workflow.tools.get(name)
        source = getattr(entry, "tool", name)
        yield known[source].effects if source in known else _ANYTHING
