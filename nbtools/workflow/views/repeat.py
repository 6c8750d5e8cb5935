"""The steps of a run once more, one at a time: each by the driver of runs, from what those before it gave."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.result import ErrorInfo, ToolResult
from nbtools.errors import InvalidArguments
from nbtools.ground import aio
from nbtools.texts.visible import harmless
from nbtools.workflow.driver.definition import RunDefinition, check_inputs
from nbtools.workflow.driver.host import Prompt, PromptAnswer, WorkflowHost
from nbtools.workflow.driver.local import Drive, DriveOptions
from nbtools.workflow.driver.steps import StepRunner
from nbtools.workflow.expressions import fill
from nbtools.workflow.runs.events import RunEvent
from nbtools.workflow.runs.log import FrozenRun, RunLog, RunOrder
from nbtools.workflow.runs.state import NodeState, RunState
from nbtools.workflow.validation import validate
from nbtools.workflow.views.cards import output_part
from nbtools.workflow.views.pictures import PictureBudget
from nbtools.workflow.views.signs import stated, words_of

_PICTURES = 4 * 2**20
_LONGEST = 2_000


class RepeatedSteps(Mapping[str, Mapping[str, Any]]):
    """The results of steps by node, as expressions see them: ok, state, text, data, error, artifacts, duration_s.

    Parameters
    ----------
    host
        What runs use of a workbench: ``wb.workflows.host``.
    workflow
        The file, without its nodes and outputs.
    inputs
        Values of the workflow's inputs.
    answers
        What people and models answered in the run, by step: ``agree``, ``each[2]``, ``each[2]/agree``.
    files
        The other files that it names, each by its path, with its text.
    path
        The path of the file itself.
    """

    def __init__(
        self,
        host: WorkflowHost,
        workflow: Mapping[str, Any],
        inputs: Mapping[str, Any],
        answers: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        *,
        path: str = "workflow.yaml",
    ) -> None:
        self.inputs = inputs
        self._workflow = workflow
        self._answers = answers or {}
        self._host = dataclasses.replace(host, prompter=self._answered)
        self._folder = Path(tempfile.mkdtemp(prefix="nbtools-"))
        # With this object; a TemporaryDirectory that goes with its owner warns of that.
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._path = self._folder / "files" / path
        for name, text in {path: "", **(files or {})}.items():
            file = self._folder / "files" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._events: dict[str, list[RunEvent]] = {}
        self._state = RunState()
        self._count = 0

    def __getitem__(self, node: str) -> Mapping[str, Any]:
        return self._state.nodes[node].view()

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def fill(self, value: Any) -> Any:
        """Return a value with the expressions in its texts filled in."""
        return fill(value, {**self._state.scope(), "inputs": self.inputs, "env": os.environ})

    async def arun(self, node: Mapping[str, Any]) -> RepeatedStep:
        """Run a node, written as in the file, and return what it gave.

        Raises
        ------
        ConfigInvalid
            The node is wrong, or reads what no cell before it gave.
        InvalidArguments
            The run was not asked what the node asks.
        NbtoolsError
            It failed, and the workflow does not go on then.
        """
        return await aio.here(self._run(str(node.get("id")), node))

    run = aio.blocking(arun)

    async def _run(self, name: str, node: Mapping[str, Any]) -> RepeatedStep:
        nodes, lacking = {**self._nodes, name: node}, list[str]()

        async def ask(step: str, _: Mapping[str, Any]) -> Any:
            if step not in self._answers:
                lacking.append(step)
            return self._answers.get(step)

        definition, log = await aio.in_thread(self._begin, name, nodes)
        try:
            runner = StepRunner(self._host, definition.tools)
            state = await Drive(log, definition, runner, DriveOptions(ask=ask)).adrive()
        finally:
            await aio.in_thread(log.close)
        if lacking:
            hint = f"Write one: answers[{lacking[0]!r}] = …"
            raise InvalidArguments(f"the run has no answer to {lacking[0]}.", hint=hint)
        if state.state not in {"ok", "declined"}:
            error = state.error or {"code": "CANCELLED", "message": f"{name} was stopped."}
            info = ErrorInfo(code=str(error["code"]), message=str(error["message"]), hint=error.get("hint"))
            raise ToolResult(ok=False, tool=name, call_id=log.folder.name, error=info).to_error()
        self._nodes, self._state = nodes, state
        self._events[name] = [event for event in log.events() if getattr(event, "node", None) == name]
        return RepeatedStep(name, state.nodes[name])

    def _begin(self, name: str, nodes: Mapping[str, Mapping[str, Any]]) -> tuple[RunDefinition, RunLog]:
        """Lay down a run of all nodes so far, in whose log all but one have ended already."""
        content = {**self._workflow, "nodes": [*nodes.values()]}
        self._path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False), encoding="utf-8")
        report = validate(self._path, self._host.tools()).raise_for_errors()
        inputs = check_inputs(report.workflow, self.inputs)
        order = RunOrder(workflow=report.workflow.name, source=self._path.name, inputs=inputs, files=report.files)
        self._count += 1
        run = FrozenRun.create(self._folder / f"run-{self._count}", order)
        definition, log = RunDefinition.of_run(run, self._host), RunLog(run.folder)
        for other, events in self._events.items():
            for event in events if other != name else ():
                log.append(event)
        return definition, log

    async def _answered(self, prompt: Prompt) -> PromptAnswer:
        """Answer a prompt as the model did in the run."""
        # Folders of runs and of their steps by turns: run-3/sub/each[2]/artifacts/agree.
        *outer, last = prompt.folder.relative_to(self._folder).parts[2::2]
        node, _, item = last.partition(".")
        label = "/".join([*outer, f"{node}[{item}]" if item else node])
        if label not in self._answers:
            hint = f"Write one: answers[{label!r}] = …"
            raise InvalidArguments(f"the run has no answer to {label}.", hint=hint)
        answer = self._answers[label]
        return PromptAnswer(text=answer if isinstance(answer, str) else json.dumps(answer), data=answer)


@dataclasses.dataclass(frozen=True)
class RepeatedStep:
    """What a step gave, as a cell shows it.

    Attributes
    ----------
    name
        The node.
    state
        Its state, with its result.
    """

    name: str
    state: NodeState

    def __str__(self) -> str:
        return harmless(f"{self.name}: {stated(self.state)} {words_of(self.state.result, _LONGEST)}".rstrip())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        view = self.state.view()
        rows = {"printed": view["text"], "value": view["data"]}
        table = output_part({name: value for name, value in rows.items() if value not in (None, "")})
        head = f"<div>{html.escape(self.name)}: {html.escape(stated(self.state))}</div>"
        return "".join([head, table, *PictureBudget(_PICTURES).images(view["artifacts"])])
