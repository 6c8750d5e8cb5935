"""One attempt of a step: a tool through the door, code in a managed kernel, a prompt to a model.

A `StepAttempt` holds everything that an attempt needs, filled in, and can go to another process. What comes back is a
result: a mapping of `nbtools.workflow.spec.RESULT_FIELDS` but the state, with ``usage`` beside them for models.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nbtools import errors
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Reply, Rule
from nbtools.contract.approval.label_rules import label_of_files
from nbtools.contract.execute import LocalExecutor, perform
from nbtools.contract.label import UNLABELLED, Label
from nbtools.contract.registry import Registry
from nbtools.contract.result import Artifact
from nbtools.contract.tool import CallJournal, Context, Effects, ToolCall
from nbtools.contract.wire.json_values import replace_nested
from nbtools.ground.aio import in_thread
from nbtools.ground.home import make_private
from nbtools.kernels.inside.values import is_lost
from nbtools.toolbox.policies import SandboxPolicy
from nbtools.toolbox.scripts.execution import ScriptMemory
from nbtools.workflow import spec
from nbtools.workflow.driver.files import folders_of, keep, readable
from nbtools.workflow.driver.host import Prompt, WorkflowHost
from nbtools.workflow.notebooks import Notebook
from nbtools.workflow.runs.keys import file_texts
from nbtools.workflow.runs.state import failure_result
from nbtools.workflow.runs.tables import is_table
from nbtools.workflow.schemas import SchemaType

if TYPE_CHECKING:
    from nbtools.contract.door import Door
    from nbtools.kernels.interface import Execution, OutputPiece
    from nbtools.memory import AgentMemory

Show = Callable[[str, str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Means:
    """What the driver of a run lends a step.

    Attributes
    ----------
    show
        Called with ``(stream, text)`` as output appears.
    journal
        Where the start of what may change something is written down.
    tokens
        Tokens that the run may still use; `None` sets no limit.
    usd
        US dollars that the run may still spend; `None` sets no limit.
    """

    show: Show
    journal: CallJournal | None = None
    tokens: int | None = None
    usd: float | None = None


_SHOWN = frozenset({"stdout", "stderr", "display", "progress"})
_PICTURES = frozenset({".png", ".svg", ".jpg", ".jpeg", ".pdf"})
_LONGEST_S, _GRACE_S, _WAITING_S = 7 * 86_400.0, 60.0, 1.0
# Nothing confines a command as it does a script; a policy of the person's comes first.
_MODELS_COMMANDS = tuple(
    Rule(action="ask", tool=name, effects=("destructive",), why="a model wrote the command")
    for name in ("shell", "process")
)
_OWN_FOLDER = (
    "Code runs in its own folder: name a file of yours by an input. A table of another node is its last "
    'expression, and nodes["ID"] is the DataFrame here; files of a node are files["ID"]["NAME"].'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAttempt:
    """One attempt of a node, or of one of its items.

    Attributes
    ----------
    run_id
        Id of the run.
    workflow
        Name of the run's workflow.
    agent
        The agent whose memory the agent scope is.
    node
        The node.
    item_index
        Number of the item, from 0; `None` for a node without items.
    attempt
        Number of the attempt, from 1.
    fence
        Number of the driver that makes it, from 1.
    values
        The node's texts with expressions filled in, by field.
    label
        What the results of the needed nodes may hold.
    inputs
        The inputs of the run, as code sees them.
    nodes
        The results of the needed nodes, as code sees them.
    item
        The item, as code sees it.
    files
        The files of the needed nodes, by node and name.
    tables
        The files of all tables in the results of the needed nodes.
    extra_files
        Files of a run outside of this one that its inputs name.
    source
        The code.
    memory
        Which memory the step has.
    artifacts
        The folder for files that it makes.
    folder
        Where relative paths in inputs start.
    settings
        Of a prompt: keys of the agent's file, overlaid by the node's.
    offered
        Of a prompt: the tools that the model may call, by name or as a configuration.
    is_model
        Whether a model wrote the scripts, which are confined as such.
    approved
        Digest of the call that a person has approved; empty where none waited for that.
    approved_by
        Who approved it; empty where nobody did.
    needs_value
        Whether anything reads what the step gives.
    """

    run_id: str
    workflow: str
    agent: str
    node: spec.NodeFields
    item_index: int | None = None
    attempt: int = 1
    fence: int = 1
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    label: Label = UNLABELLED
    nodes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    item: Any = None
    files: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    tables: tuple[str, ...] = ()
    extra_files: tuple[str, ...] = ()
    source: str = ""
    memory: spec.MemorySettings = dataclasses.field(default_factory=spec.MemorySettings)
    artifacts: Path = Path()
    folder: Path = Path()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    offered: tuple[Any, ...] = ()
    is_model: bool = False
    approved: str = ""
    approved_by: str = ""
    needs_value: bool = False

    @property
    def of(self) -> dict[str, Any]:
        """What events say of which attempt they are."""
        return {"node": self.node.id, "item": self.item_index, "attempt": self.attempt, "fence": self.fence}

    def paths(self) -> list[str]:
        """Return the files that the step may read: those of the needed nodes, their tables, and what it was given."""
        return [*(path for paths in self.files.values() for path in paths.values()), *self.tables, *self.extra_files]


class Runner(Protocol):
    """Performs the steps of a run, here or elsewhere."""

    def for_tools(self, tools: Registry) -> Runner:
        """Return a runner for the nodes of another workflow, with the tools that they may call."""

    async def aperform(self, step: StepAttempt, means: Means) -> Any:
        """Return the result of a step, in which an expected failure is; ``question`` in it says that it is unknown."""


class StepRunner:
    """Performs steps in this process.

    Parameters
    ----------
    host
        The surroundings.
    tools
        The tools that nodes may call, those of the file among them.
    """

    def __init__(self, host: WorkflowHost, tools: Registry) -> None:
        self._host = host
        self.tools = tools
        self._executors: dict[tuple[str, ...], LocalExecutor] = {}

    def for_tools(self, tools: Registry) -> StepRunner:
        """Return a runner for the nodes of another workflow."""
        return StepRunner(self._host, tools)

    async def aperform(self, step: StepAttempt, means: Means) -> Any:
        """Return the result of a step; an expected failure is in it."""
        begun = time.perf_counter()
        try:
            match step.node:
                case spec.ToolNode():
                    result = await self._call(step, means)
                case spec.CodeNode() | spec.NotebookNode():
                    result = await self._run_code(step, means)
                case spec.PromptNode():
                    # A model may call tools with effects, so asking it is the start of what may change something.
                    if means.journal is not None:
                        await means.journal.started(step.run_id)
                    result = await self._ask_model(step, means)
                case _:
                    raise errors.InternalError(f"a {step.node.kind} node is not a separate step")
            check_output(step.node, result)
        except errors.NbtoolsError as exc:
            result = failure_of(exc)
        result.setdefault("duration_s", round(time.perf_counter() - begun, 6))
        # An error, too, may repeat what the step was given.
        return result | {"label": (step.label | Label.of(result.get("label", ["private"]))).names()}

    async def _call(self, step: StepAttempt, means: Means) -> dict[str, Any]:
        node = step.node
        assert isinstance(node, spec.ToolNode)
        call = ToolCall(
            tool=node.tool,
            arguments=await self._readable(step, step.values.get("args", {})),
            caller="workflow",
            run_id=step.run_id,
            label=step.label,
            timeout=node.timeout_s,
            on_output=lambda kind, text, _: means.show(kind, text),
            journal=means.journal,
        )
        result = await self.executor(step).acall(call)
        done = result.to_dict()
        # Of a result the fields that expressions may read. What people see besides, such as the span, would fill the
        # log.
        fields = {name: done[name] for name in ("ok", "text", "data", "error", "artifacts", "duration_s")}
        fields["label"] = result.label.names()
        if result.ok and result.said_by_door:
            fields["notes"] = [result.said_by_door]
        if fields["artifacts"]:
            # The folder of what scripts left goes with the workbench, and a run is read long after.
            fields["artifacts"] = await in_thread(keep, fields["artifacts"], self._host.artifacts(), step.artifacts)
        return fields if result.ok else fields | _waits(result.to_error())

    async def _readable(self, step: StepAttempt, value: Any) -> Any:
        """Return a value that names files of the run by what tools may read."""
        paths = step.paths()
        return await in_thread(readable, value, paths, self._host.artifacts()) if paths else value

    async def _run_code(self, step: StepAttempt, means: Means) -> dict[str, Any]:
        node, source = step.node, step.source
        assert isinstance(node, spec.KernelNode)
        language = "" if isinstance(node, spec.NotebookNode) else node.language
        arguments = {"node": node.id, "language": language or "notebook", "code": source}
        # The kernel ends the code itself and says more about it; the door only has to wait for that.
        seconds = _LONGEST_S if node.timeout_s is None else node.timeout_s + _GRACE_S
        whose: dict[str, Any] = {"caller": "workflow", "run_id": step.run_id, "journal": means.journal}
        call = ToolCall(tool="workflow_code", arguments=arguments, timeout=seconds, label=step.label, **whose)
        door = self.executor(step).door
        effects = functools.partial(self._effects, is_models=step.is_model)
        how: dict[str, Any] = {"effects": effects, "origins": ("code_execute",), "text_of": lambda done: done.stdout}
        how["error_of"] = lambda done: done.to_error(timeout=node.timeout_s, data={})
        work = functools.partial(self._execute, step, means, call, door)
        done, outcome = await self._host.perform(call, work, door=door, **how)
        named = await in_thread(label_of_files, door.services, map(Path, _paths_of(step)))
        if done.error is not None and done.error.cell is not None:
            source = Notebook(source, step.values["parameters"]).cells[done.error.cell - 1].source
        # The usual first mistake: code names a file of the person as if it ran in their folder.
        hint = self._hint(step, done)
        error = done.to_error(timeout=node.timeout_s, hint=hint, script=source)
        if isinstance(error, errors.CallTimeout):
            error.hint = "Raise timeout_s of the node, or do less at once."
        # A value that was dropped would be null for the next step, which could not tell it from a real one.
        lost = next(filter(is_lost, done.notes), None)
        if error is None and lost is not None:
            error = errors.LimitExceeded(
                f"{lost}.", hint="Return less, a DataFrame, or write a file and return its path."
            )
        result = {
            "ok": error is None,
            "text": done.stdout if error is None else "\n".join(filter(None, [done.stdout, error.message])),
            "data": done.value if language in {"", "python"} else _printed(done.stdout, node),
            "error": None if error is None else error.to_dict(),
            "artifacts": await in_thread(_files_of, done, step.artifacts),
            "label": (outcome.label | named).names(),
            "duration_s": round(done.duration_s, 6),
        }
        return {**result, "notes": list(done.notes)} if done.notes else result

    def _effects(self, context: Context, *, is_models: bool) -> Effects:
        """Return what code does to the world: what a person's own code fetches is what they want."""
        is_open = not is_models or context.use(SandboxPolicy).model != "strict" or self._host.kernels().has_network
        return Effects(destructive=True, open_world=(is_models or context.by_model) and is_open)

    async def _execute(self, step: StepAttempt, means: Means, call: ToolCall, door: Door) -> Execution:
        """Run the code or the notebook of a step in a kernel."""
        node, kernels = step.node, self._host.kernels()

        def tell(piece: OutputPiece) -> None:
            if piece.kind in _SHOWN:
                means.show(piece.kind, piece.text)

        def tell_waiting() -> None:
            if kernels.waiting:
                means.show("waits", "waits for a kernel to start")

        policy = door.services[SandboxPolicy]()
        memory = ScriptMemory(functools.partial(self.memory, step), call, functools.partial(perform, door))
        options: dict[str, Any] = {
            "inputs_paths": _paths_of(step),
            "on_output": tell,
            "memory": memory if step.memory.enabled else None,
            "artifacts_folder": step.artifacts,
            "sandbox": policy.model if step.is_model else None,
        }
        # Most kernels are ready before that, and a line about waiting that is over at once would only flicker.
        waiting = asyncio.get_running_loop().call_later(_WAITING_S, tell_waiting)
        try:
            if isinstance(node, spec.NotebookNode):
                item = "" if step.item_index is None else f".{step.item_index}"
                # In the strict level code sees its own folder alone, so a working folder elsewhere could not be
                # entered.
                is_confined = (policy.model if step.is_model else policy.person) == "strict"
                return await Notebook(step.source, step.values["parameters"]).arun(
                    kernels,
                    f"{node.id[:48]}{item}-{step.run_id[-4:]}",
                    step.artifacts / Path(node.notebook).name,
                    keeps_kernel=node.keep_kernel,
                    timeout=node.timeout_s,
                    show=functools.partial(means.show, "cell"),
                    cwd=None if is_confined else step.folder,
                    **options,
                )
            assert isinstance(node, spec.CodeNode)
            is_python = node.language == "python"
            seen = {"inputs": step.inputs, "nodes": step.nodes, "item": step.item, "files": step.files}
            return await kernels.arun(
                step.source,
                language=node.language,
                timeout="setting" if node.timeout_s is None else node.timeout_s,
                variables=replace_nested(seen, _as_parquet) if is_python else seen,
                wants_value=is_python,
                **options,
            )
        finally:
            waiting.cancel()

    def _hint(self, step: StepAttempt, done: Execution) -> str | None:
        """Return what to do about a file that code did not find, or how a notebook goes on."""
        if isinstance(step.node, spec.NotebookNode):
            return done.notes[0] if done.notes else None
        if done.error is None or done.error.name != "FileNotFoundError":
            return None
        named = [text for text in (*step.inputs.values(), step.item) if isinstance(text, str) and text]
        if any(text in done.error.value for text in named):
            return f"There is no such file below {step.folder}, or it may not be read; paths of inputs start there."
        return _OWN_FOLDER

    async def _ask_model(self, step: StepAttempt, means: Means) -> dict[str, Any]:
        node = step.node
        assert isinstance(node, spec.PromptNode)
        if self._host.prompter is None:
            raise errors.ConfigMissing("there is no agent to ask.", hint="pip install 'nbtools[agent]'.")
        instructions = step.values.get("instructions") or ()
        tools = self._offered(step)
        is_named = "*" not in step.offered
        prompt = Prompt(
            node=node,
            text=await self._readable(step, step.values["prompt"]),
            instructions=(instructions,) if isinstance(instructions, str) else tuple(instructions),
            settings={"tools": list(tools), **step.settings} if is_named else step.settings,
            executor=self.executor(step, tools),
            tokens=means.tokens,
            usd=means.usd,
            run_id=step.run_id,
            folder=step.artifacts,
            label=step.label,
            show=means.show,
        )
        try:
            async with asyncio.timeout(node.timeout_s) as clock:
                answer = await self._host.prompter(prompt)
        except TimeoutError as exc:
            # Providers raise the same class for their own timeout, which says more.
            if not clock.expired() or isinstance(exc, errors.NbtoolsError):
                raise
            raise errors.CallTimeout(f"the model did not answer within {node.timeout_s:g} s.") from None
        data = answer.text if node.answer is None else answer.data
        result: dict[str, Any] = {"ok": True, "text": answer.text, "data": data, "error": None, "artifacts": []}
        result["label"] = answer.label.names()
        return {**result, "usage": {"tokens": answer.tokens, "usd": answer.usd}}

    def _offered(self, step: StepAttempt) -> Registry:
        """Return the tools that the model of a step may call."""
        # All of them as they are, configured ones too: the list of names would be as long as the registry.
        if "*" in step.offered:
            return self.tools
        return Registry(
            self.tools.create_tool_from_config(one, name=None if isinstance(one, str) else one["name"])
            for one in step.offered
        )

    def executor(self, step: StepAttempt, tools: Registry | None = None) -> LocalExecutor:
        """Return who performs calls of a step: memory tools use the memory of its scope.

        `tools` are those that a model is offered; `None` is all that nodes may call.
        """
        approver = _AnsweredBefore(step.approved, step.approved_by) if step.approved else None
        settings = step.memory
        # One for all nodes of a scope: nothing of it depends on the step.
        key = (str(settings.enabled), settings.default_scope, step.node.id if settings.default_scope == "node" else "")
        # What one step alone may do must not be found by the next one of its scope.
        is_own = tools is not None or approver is not None or step.is_model
        if is_own or key not in self._executors:
            from nbtools.memory import AgentMemory

            memory = functools.partial(self.memory, step) if settings.enabled else _no_memory
            executor = self._host.executor(approver, {AgentMemory: memory}, self.tools if tools is None else tools)
            if step.is_model:
                policy = executor.door.services[SandboxPolicy]()
                confined = dataclasses.replace(policy, person=policy.model)
                door = executor.door.but(services={SandboxPolicy: lambda: confined}, rules=_MODELS_COMMANDS)
                executor = LocalExecutor(executor.tools(), door=door)
            if is_own:
                return executor
            self._executors[key] = executor
        return self._executors[key]

    def memory(self, step: StepAttempt) -> AgentMemory:
        """Return the memory of a step's scope."""
        from nbtools.memory.watched import watched

        ids = {"agent_id": step.agent, "workflow_id": step.workflow, "node_id": step.node.id}
        # Code uses it past the door, and the observer of what calls change is told there too.
        return watched(self._host.memory().scoped(**ids, scope=step.memory.default_scope))


def _no_memory() -> Any:
    raise errors.PermissionDenied("this node has no memory.", hint="Set memory: {enabled: true} for it.")


def failure_of(exc: errors.NbtoolsError) -> dict[str, Any]:
    """Return the result of a step that an error has ended; ``waits`` in it tells what waits for approval."""
    return {**failure_result(exc.code, exc.message, exc.hint), "duration_s": 0.0, **_waits(exc)}


def _waits(exc: errors.NbtoolsError) -> dict[str, Any]:
    is_pending = exc.code == errors.ApprovalPending.code and "digest" in exc.data
    return {"waits": dict(exc.data)} if is_pending else {}


def _paths_of(step: StepAttempt) -> list[Any]:
    """Return the files and folders that code is given."""
    return [*folders_of(step.paths()), *file_texts([step.inputs, step.item, step.values], step.folder)]


class _AnsweredBefore:
    """Says yes to the one call that a person has approved; any other has to wait."""

    def __init__(self, digest: str, by: str) -> None:
        self._digest = digest
        self._by = by

    async def approve(self, request: ApprovalRequest) -> Reply:
        """Return a yes for the call as it was shown."""
        # By the seal: the same tool with another argument is another question.
        return Reply(answer="once" if request.seal == self._digest else "later", by=self._by)


def check_output(node: spec.NodeFields, result: dict[str, Any]) -> None:
    """Raise `ExecutionFailed` for data that do not fit the ``output`` of the node."""
    schema = node.answer if isinstance(node, spec.PromptNode) else node.output
    if schema is None or not result["ok"]:
        return
    for misfit in SchemaType(schema).misfits(result["data"], infer=lambda _: None):
        if misfit.what != "unknown":  # JSON Schema lets an object have more than it names
            where = "".join(f"[{part!r}]" for part in misfit.loc)
            missing = f"lacks {misfit.message!r}" if misfit.what == "missing" else misfit.message
            notes = "; ".join(result.get("notes", ()))
            raise errors.ExecutionFailed(
                f"data{where} does not fit output: {missing}", hint=misfit.hint or notes or None
            )


def _as_parquet(value: Any) -> Any:
    """Return what code reads as a DataFrame, for a table."""
    return {"__parquet__": value["parquet"]} if is_table(value) else value


def _printed(text: str, node: spec.NodeFields) -> Any:
    """Return what code of another language gave: its output, read as JSON where the node says what it gives."""
    if node.output is None:
        return text
    try:
        return json.loads(text)
    except ValueError as exc:
        raise errors.InvalidArguments(
            f"the output of {node.id} is not JSON: {exc}.", hint="Print one JSON value, and messages to stderr."
        ) from None


def _files_of(done: Execution, folder: Path) -> list[dict[str, Any]]:
    """Describe the files of a run, with the pictures that it only showed."""
    pictures = [bundle["image/png"] for bundle in done.displays if isinstance(bundle.get("image/png"), str)]
    saved = [path for path in done.artifacts if path.suffix.lower() in _PICTURES]
    # A figure that is saved and left open is shown as well: the file is enough.
    pictures = [] if len(saved) >= len(pictures) else pictures
    if pictures:
        make_private(folder)
    for i, picture in enumerate(pictures, 1):
        (folder / f"figure-{i}.png").write_bytes(base64.b64decode(picture))
    paths = [*done.artifacts, *(folder / f"figure-{i}.png" for i, _ in enumerate(pictures, 1))]
    return [Artifact.from_path(path, follow_no_links=True, hashed=0).to_dict() for path in dict.fromkeys(paths)]
