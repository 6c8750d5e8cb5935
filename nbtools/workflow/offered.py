"""Workflow files as tools: the inputs are the parameters, the outputs are the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.contract.result import Artifact, Output
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Context, Effects, Tool
from nbtools.errors import ApprovalPending, InvalidArguments
from nbtools.ground.aio import in_thread
from nbtools.workflow import spec
from nbtools.workflow.driver.local import AskPerson
from nbtools.workflow.driver.questions import form_answer, question_form
from nbtools.workflow.runs.lines import event_line
from nbtools.workflow.validation import validate

if TYPE_CHECKING:
    from nbtools.workflow.runs.events import RunEvent

_ANYTHING = Effects(destructive=True, open_world=True)
_LONGEST_S = 7 * 86_400.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionForms:
    """How to ask the caller of a workflow tool its questions; an interface passes it as a service.

    Attributes
    ----------
    ask
        Shows a form, by its words and a flat JSON Schema, while the call waits; returns the fields, none for a no, and
        `None` without an answer. `None` if no one can be asked this way.
    leave
        Leaves the call by an exception, and has it repeated with the answers to forms by name, and with a text by which
        it goes on; `None` where that cannot be.
    answers
        The fields of each form that this call is repeated with, by the form's name.
    state
        The text that this call is repeated with; empty for a call that is not repeated.
    """

    ask: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]] | None = None
    leave: Callable[[Mapping[str, tuple[str, Mapping[str, Any]]], str], Any] | None = None
    answers: Mapping[str, Mapping[str, Any] | None] = dataclasses.field(default_factory=dict)
    state: str = ""

    def asking(self) -> AskPerson | None:
        """Return a function that asks until an answer fits; `None` if no one can be asked while the call waits."""
        show = self.ask
        if show is None:
            return None

        async def ask(step: str, question: Mapping[str, Any]) -> Any:
            words, schema = question_form(question)
            problem = ""
            while (fields := await show(f"{problem}{step}: {words}", schema)) is not None:
                try:
                    return _answer(question, fields)
                except InvalidArguments as exc:
                    problem = f"{exc.message}\n"
            return None

        return ask


def _answer(question: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """Return the answer of a form; a form without fields is a no, if that is a possible answer."""
    return form_answer(question, fields or {"answer": "no"}) if fields or "approve" in question else None


def workflow_tool(
    path: Path,
    workflows: Callable[[], Any],
    *,
    name: str | None = None,
    description: str | None = None,
    tools: Mapping[str, Tool],
) -> Tool:
    """Return a workflow file as a tool.

    Parameters
    ----------
    path
        The file. It is read again at each call; the parameters stay as they are now.
    workflows
        Returns the `nbtools.workflow.service.Workflows` that run it.
    name
        Name of the tool; `None` takes the workflow's own.
    description
        Description of the tool; `None` takes the workflow's own.
    tools
        The tools that nodes may call: what they do to the world is what the workflow does.

    Raises
    ------
    ConfigInvalid
        The workflow has mistakes.
    """
    workflow: spec.Workflow = validate(path).raise_for_errors().workflow

    async def call(*, ctx: Context, **inputs: Any) -> Output[dict[str, Any]]:
        def show(event: RunEvent) -> None:
            if line := event_line(event):
                ctx.emit("progress", line)

        forms: QuestionForms = ctx.services.get(QuestionForms, QuestionForms)()
        how: dict[str, Any] = {"on_event": show, "ask": forms.asking()}
        done = await (_go_on(workflows(), forms, how) if forms.state else workflows().arun(path, inputs, **how))
        ctx.seen.append(done.seen)  # also of what was done before it was called
        asked_now = {one.step: _form(one) for one in done.questions if one.step not in forms.answers}
        # The answer to an MCP client asks it to repeat the call: the call cannot wait for a person.
        if asked_now and forms.leave is not None:
            forms.leave(asked_now, done.run_id)
        if done.state in {"waiting", "unknown"}:
            questions = "; ".join(f"{one.step} asks: {one.text}" for one in done.questions)
            hint = f"A person answers: nbtools runs answer {done.run_id} NODE ANSWER; then nbtools run --resume."
            raise ApprovalPending(f"the run {done.run_id} waits: {questions}", hint=hint, data={"run_id": done.run_id})
        done.raise_for_error()
        return Output(data=dict(done.outputs), text=str(done), artifacts=await in_thread(_artifacts, done))

    about = description or workflow.description or f"Run the workflow {workflow.name}."
    return Tool(
        name=name or workflow.name,
        function=call,
        parameters=SchemaParameters(workflow.input_schema, hidden_name="ctx"),
        effects=_effects(workflow, path.parent, tools),
        reads="what its steps read",
        about=about,
        timeout=_LONGEST_S,
        returns=lambda: Output[dict[str, Any]],
    )


def _form(question: Any, problem: str = "") -> tuple[str, Mapping[str, Any]]:
    """Return the text and the schema of the form for an open question of a run."""
    words, schema = question_form(question.question)
    return f"{problem}{question.step}: {words}", schema


async def _go_on(workflows: Any, forms: QuestionForms, how: Mapping[str, Any]) -> Any:
    """Answer the questions of a run from its repeated call, and continue it."""
    run = await in_thread(workflows.show, forms.state)
    wrong: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for one in run.questions:
        if (fields := forms.answers.get(one.step)) is None:
            continue
        try:
            answer = _answer(one.question, fields)
        except InvalidArguments as exc:
            wrong[one.step] = _form(one, f"{exc.message}\n")
            continue
        if answer is not None:
            await in_thread(workflows.answer, run.run_id, one.step, answer)
    if wrong and forms.leave is not None:
        forms.leave(wrong, run.run_id)
    return await workflows.aresume(run.run_id, **how)


def _artifacts(done: Any) -> tuple[Artifact, ...]:
    files = [artifact["path"] for node in done.progress.nodes.values() for artifact in node.view()["artifacts"]]
    return tuple(Artifact.from_path(file) for file in dict.fromkeys(files) if Path(file).is_file())


def _effects(workflow: spec.Workflow, folder: Path, tools: Mapping[str, Tool]) -> Effects:
    """Return the combined effects of all nodes."""
    # Of all nodes, those behind a condition too: which of them run is known only when the call has been approved.
    all_effects = [effects for node in workflow.nodes for effects in _effects_of(workflow, node, folder, tools)]
    return Effects(
        read_only=all(effects.read_only for effects in all_effects),
        destructive=any(effects.destructive for effects in all_effects),
        idempotent=all(effects.idempotent or effects.read_only for effects in all_effects),
        open_world=any(effects.open_world for effects in all_effects),
        undeclared=any(effects.undeclared for effects in all_effects),
    )


def _effects_of(
    workflow: spec.Workflow, node: spec.NodeFields, folder: Path, tools: Mapping[str, Tool]
) -> Iterator[Effects]:
    names: list[str] = []
    match node:
        case spec.ToolNode():
            names = [node.tool]
        case spec.PromptNode():
            offered = node.tools if node.tools is not None else workflow.enabled_tools
            names = [one if isinstance(one, str) else one.name for one in offered]
            yield Effects(read_only=True, open_world=True)
        case spec.CodeNode() | spec.NotebookNode():
            yield Effects(destructive=True, open_world=True, idempotent=node.idempotent)
        case spec.WorkflowNode():
            path = folder / node.workflow
            report = validate(path)
            yield _effects(report.workflow, path.parent, tools) if report.workflow is not None else _ANYTHING
        case spec.AskNode():
            yield Effects(read_only=True)
    for name in names:
        entry = workflow.tools.get(name)
        source = getattr(entry, "tool", name)
        # A tool that is missing now may exist when the workflow runs, and could do anything.
        yield tools[source].effects if source in tools else _ANYTHING
