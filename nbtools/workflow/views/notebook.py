"""A notebook that repeats a run step by step, and that itself runs from top to bottom.

A tool node is a call, Python is a cell, other languages run in a kernel; a workflow inside is a function,
and ``for_each`` a loop. What people and models answered is not asked again: the answers of the run stand in the first
cell, as do its inputs. What a cell does can be changed and run again, which is what such a notebook is for.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbtools.conduct.notebook_file import code_cell, markdown_cell, notebook_file
from nbtools.errors import InvalidArguments
from nbtools.texts.python_tree import parse_python, python_literal
from nbtools.texts.redaction import conceal, redact
from nbtools.texts.secret_values import MASK
from nbtools.texts.visible import brief
from nbtools.workflow import spec
from nbtools.workflow.expressions import parse, walk
from nbtools.workflow.graph import edges, references, skippable
from nbtools.workflow.runs.environment import variables_of, without_variables
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.state import RunState, step_label
from nbtools.workflow.views.layout import layers_of
from nbtools.workflow.views.saved import read_progress
from nbtools.workflow.views.signs import seconds_of, stated, what_runs

_LONGEST_OUTPUT = 4_000
# Code that sets one of these would take from the notebook what later cells need: it runs in a managed kernel.
_OWN_NAMES = frozenset(
    {"AgentMemory", "RepeatedSteps", "START", "ToolCall", "Workbench", "answers", "inputs", "outputs", "steps", "wb"}
)


def repeating_notebook(run: FrozenRun, progress: RunState, workflow: spec.Workflow, *, folder: Path) -> dict[str, Any]:
    """Return the notebook, in the form of nbformat 4.5.

    Parameters
    ----------
    run
        The folder of the run.
    progress
        The states of its nodes.
    workflow
        What it ran.
    folder
        Where the notebook will lie: it goes from there to the folder in which the run was started.

    Raises
    ------
    InvalidArguments
        Two files configure tools of one name in two ways.
    """
    main = _Exported(workflow=workflow, folder=run.main.parent)
    inside = list(_inside(main))
    cells = [
        markdown_cell(_intro(run, progress, workflow)),
        code_cell(_setup(run, progress, [main, *inside], folder)),
        # Those that others need come last in the list, and have to be defined first.
        *(code_cell(_function(part)) for part in reversed(inside)),
    ]
    for node in _in_order(workflow):
        cells += [markdown_cell(_heading(node, progress)), code_cell(_step(main, node))]
    cells.append(code_cell(f"outputs = steps.fill({python_literal(workflow.outputs)})\noutputs"))
    if progress.outputs:
        outputs = json.dumps(redact(dict(progress.outputs)), ensure_ascii=False, indent=1, default=repr)
        cells.append(markdown_cell(f"The run gave:\n\n```json\n{outputs[:_LONGEST_OUTPUT]}\n```"))
    return notebook_file(cells)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Exported:
    """A workflow of the run: its model, the folder of its file, and the name of its function."""

    workflow: spec.Workflow
    folder: Path
    function: str = ""
    inner: dict[str, _Exported] = dataclasses.field(default_factory=dict)


def _inside(outer: _Exported, exported: dict[Path, _Exported] | None = None) -> Iterator[_Exported]:
    """Yield the workflows that run inside, those that need others before these."""
    from nbtools.workflow.checks.shape import read_workflow
    from nbtools.workflow.document import Document

    exported = {} if exported is None else exported
    for node in outer.workflow.nodes:
        if not isinstance(node, spec.WorkflowNode):
            continue
        path = (outer.folder / node.workflow).resolve()
        if path not in exported:
            workflow, _, _ = read_workflow(Document.open(path, str(path)))
            if workflow is None:
                raise InvalidArguments(f"{node.workflow} cannot be read any more.")
            name = re.sub(r"\W", "_", f"run_{workflow.name}")
            names = {part.function for part in exported.values()}
            name = name if name not in names else f"{name}_{len(names)}"
            exported[path] = _Exported(workflow=workflow, folder=path.parent, function=name)
            yield exported[path]
            yield from _inside(exported[path], exported)
        outer.inner[node.workflow] = exported[path]


def _in_order(workflow: spec.Workflow) -> list[spec.NodeFields]:
    """Return the nodes in an order in which they can run, those that are final last."""
    layer_of = layers_of({node.id: [edge.target for edge in edges(node)] for node in workflow.nodes})
    return sorted(workflow.nodes, key=lambda node: (node.finally_, layer_of[node.id]))


# -- what stands around the steps


def _intro(run: FrozenRun, progress: RunState, workflow: spec.Workflow) -> str:
    about = f"\n\n{workflow.description}" if workflow.description else ""
    return (
        f"# {workflow.name}{about}\n\nThis repeats the run `{run.folder.name}`, which ended as **{progress.state}** "
        f"after {progress.seconds:.1f} s. Code runs in the kernel of this notebook, in the folder in which the run was "
        f"started."
    )


def _heading(node: spec.NodeFields, progress: RunState) -> str:
    of = progress.nodes[node.id]
    seconds = seconds_of(of, progress.ended_at)
    facts = [stated(of), "" if seconds is None else f"{seconds:.2f} s", of.why]
    lines = [f"## {node.id}", f"`{what_runs(node)}` · in the run: {', '.join(filter(None, facts))}", node.description]
    if node.retry is not None:
        needed = max([of.attempt, *(step.attempt for step in of.steps)])
        lines.append(f"It is tried up to {node.retry.attempts} times; the run needed {needed}.")
    if isinstance(node, spec.PromptNode):
        lines += ["The answer is the one of the run, to this:", _quoted(node.prompt)]
    if isinstance(node, spec.AskNode):
        lines.append("The answer is the one of the run.")
    return "\n\n".join(filter(None, lines))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _setup(run: FrozenRun, progress: RunState, exported: list[_Exported], folder: Path) -> str:
    """Return the first cell: the workbench, the inputs, the answers."""
    tools = _tools([part.workflow for part in exported])
    settings = f"tools={python_literal(tools)}" if tools else ""
    # Relative, so that the notebook and the folder can move together, and no path of this machine stands in it.
    start = os.path.relpath(run.facts["working_folder"], folder)
    remembers = any(_remembers(part.workflow) for part in exported)
    lines = [
        "import os",
        "",
        "from nbtools import ToolCall, Workbench" if remembers else "from nbtools import Workbench",
    ]
    lines += ["from nbtools.memory import AgentMemory"] if remembers else []
    lines += ["from nbtools.workflow import RepeatedSteps", ""]
    if start != ".":
        lines += [
            'START = globals().get("START", os.getcwd())  # the folder of this notebook',
            f"os.chdir(os.path.join(START, {start!r}))",
        ]
    if any(part.workflow.scripts_of == "model" for part in exported):
        lines += [
            "from nbtools.ground.config import Config",
            "",
            "# The scripts are a model's: they run as confined as a model's do.",
            'os.environ["NBTOOLS_SANDBOX"] = Config.load().model_sandbox',
        ]
    variables = variables_of(exported[0].workflow)
    # Masked as in the record: a notebook is handed on more readily than the folder of a run.
    inputs = conceal(without_variables(variables, dict(progress.inputs)))
    answers = redact(without_variables(variables, dict(_answers(run))))
    masked = f"  # {MASK} stands for a secret: fill it in" if MASK in repr(inputs) else ""
    lines += [
        f"wb = Workbench({settings})",
        f"inputs = {python_literal(inputs)}{masked}",
        f"answers = {python_literal(answers)}  # of people and models, by step",
        "steps = RepeatedSteps(inputs, answers, env=os.environ)",
    ]
    return "\n".join(lines)


def _tools(workflows: list[spec.Workflow]) -> dict[str, Any]:
    """Return the tools that the files configure, as settings of a workbench."""
    tools: dict[str, Any] = {}
    for workflow in workflows:
        for name, entry in workflow.tools.items():
            if isinstance(entry, spec.ConfiguredTool):
                config = entry.model_dump(exclude_none=True)
                if tools.setdefault(name, config) != config:
                    raise InvalidArguments(
                        f"two files configure {name} in two ways, and a workbench has one.",
                        hint="Give the tools different names.",
                    )
    return tools


def _answers(run: FrozenRun, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what people and models answered, by step, also in the runs inside."""
    progress, workflow = read_progress(run)
    asking = {n.id: n for n in (workflow.nodes if workflow else ()) if isinstance(n, spec.AskNode | spec.PromptNode)}
    for name, item, step in progress.steps():
        node = asking.get(name)
        label = f"{prefix}{step_label(name, item)}"
        if isinstance(node, spec.AskNode) and step.answer is not None:
            yield label, step.answer
        elif isinstance(node, spec.PromptNode) and step.state == "ok":
            yield label, step.view()["data"]
    for folder in sorted((run.folder / "sub").glob("*")):
        if "~" not in folder.name:
            yield from _answers(FrozenRun(folder), f"{prefix}{folder.name}/")


def _function(exported: _Exported) -> str:
    """Return a workflow inside as a function."""
    workflow = exported.workflow
    defaults = {name: schema["default"] for name, schema in workflow.inputs.items() if "default" in schema}
    lines = [
        f"def {exported.function}(inputs, label):",
        f"    {json.dumps(f'{workflow.name}: {workflow.description}', ensure_ascii=False)}",
        f"    inputs = {python_literal(defaults)} | inputs" if defaults else "",
        "    steps = RepeatedSteps(inputs, answers, env=os.environ, label=label)",
    ]
    for node in _in_order(workflow):
        lines += ["", f"    # -- {node.id}: {brief(what_runs(node))}", _indented(_step(exported, node))]
    lines += ["", _indented(f"return steps.fill({python_literal(workflow.outputs)})")]
    return "\n".join(line for i, line in enumerate(lines) if line or i > 3)


# -- one step


def _step(exported: _Exported, node: spec.NodeFields) -> str:
    """Return the code of a node, with its condition, its loop, and what happens to its errors."""
    item = ", item" if node.for_each is not None else ""
    code = _work(exported, node, item)
    if node.retry is not None:
        tries = f"{node.retry.attempts}, backoff_s={node.retry.backoff_s:g}"
        code = _indented(f"with attempt:\n{_indented(code)}")
        code = f"for attempt in steps.tries({tries}):\n{code}"
    if _goes_on(node):
        code = f"with steps.may_fail({node.id!r}):\n{_indented(code)}"
    if node.for_each is not None:
        code = f"for item in steps.each({node.id!r}, {python_literal(node.for_each)}):\n{_indented(code)}"
    if condition := _condition(exported.workflow, node):
        code = f"if steps.goes({node.id!r}, {condition}):\n{_indented(code)}"
    if not exported.function and (node.for_each is not None or condition or _goes_on(node)):
        code = f"{code}\nsteps[{node.id!r}]"
    return code


def _goes_on(node: spec.NodeFields) -> bool:
    """Tell whether an exception of a node's code is kept; a call keeps its error by itself."""
    if isinstance(node, spec.ToolNode) and node.retry is None:
        return False
    return node.on_item_error == "collect" if node.for_each is not None else node.on_error == "continue"


def _condition(workflow: spec.Workflow, node: spec.NodeFields) -> str:
    """Return what `RepeatedSteps.goes` is asked; nothing where the node runs in any case."""
    may_skip = skippable(workflow.nodes)
    needed: dict[str, bool] = {}
    for edge in edges(node):
        needed[edge.target] = needed.get(edge.target, False) or edge.required
    lost = () if node.always else tuple(name for name, required in needed.items() if required and name in may_skip)
    parts = [f"when={node.when!r}"] if node.when not in {None, True, "always"} else []
    return ", ".join([*parts, *([f"needs={lost!r}"] if lost else [])])


def _work(exported: _Exported, node: spec.NodeFields, item: str) -> str:
    match node:
        case spec.ToolNode():
            return _call(exported.workflow, node, item)
        case spec.CodeNode():
            return _script(exported, node)
        case spec.NotebookNode():
            to = f"{Path(node.notebook).stem}.executed.ipynb"
            values = f"steps.fill({python_literal(node.parameters)}{item})"
            book = f"Notebook({python_literal(node.source(exported.folder))}, {values})"
            run = f"done = {book}.run(wb.kernels, {node.id!r}, Path({to!r}), cwd=os.getcwd())"
            imports = "from pathlib import Path\n\nfrom nbtools.workflow.notebooks import Notebook\n"
            return f"{imports}\n{run}\nsteps.ran({node.id!r}, done, has_value=True)"
        case spec.WorkflowNode():
            arguments = f"steps.fill({python_literal(node.args)}{item})"
            function = exported.inner[node.workflow].function
            return f"steps.gave({node.id!r}, {function}({arguments}, steps.label({node.id!r})))"
    return f"steps.answered({node.id!r})"


def _call(workflow: spec.Workflow, node: spec.ToolNode, item: str) -> str:
    arguments = python_literal(node.args)
    filled = f"steps.fill({arguments}{item})" if "${" in repr(node.args) else arguments
    timeout = "" if node.timeout_s is None else f", timeout={node.timeout_s:g}"
    before = ""
    if _uses_memory(workflow, node):
        before = f"{_memory(workflow, node)}\ncalls = wb.executor_with(services={{AgentMemory: lambda: memory}})\n"
        call = f"done = calls.call(ToolCall(tool={node.tool!r}, arguments={filled}{timeout}))"
    else:
        call = f"done = wb.call({node.tool!r}, {filled}{timeout})"
    stops = node.on_item_error == "fail" if node.for_each is not None else node.on_error == "fail"
    checked = "done.raise_for_error()" if stops or node.retry is not None else "done"
    return f"{before}{call}\nsteps.called({node.id!r}, {checked})"


def _script(exported: _Exported, node: spec.CodeNode) -> str:
    source = node.source(exported.folder).rstrip("\n")
    needs = ", ".join(repr(name) for name in dict.fromkeys(edge.target for edge in edges(node)))
    settings = node.memory or exported.workflow.memory
    memory = _memory(exported.workflow, node) if settings.enabled and re.search(r"\bmemory\b", source) else ""
    has_files = bool(needs) and re.search(r"\bfiles\b", source) is not None
    head = [
        memory,
        f"nodes = steps.seen({needs})" if needs else "",
        f"files = steps.files({needs})" if has_files else "",
    ]
    # A cell of the notebook itself where that is possible: that is what people want to change and run again.
    body = _with_value(source) if node.language == "python" and not _gives_files(exported, node) else None
    if body is not None:
        return "\n".join([*filter(None, head), body, f"steps.gave({node.id!r}, value)"])
    item = "item" if node.for_each is not None else "None"
    files = "files" if has_files else "{}"
    seen = f"{{'inputs': inputs, 'nodes': {'nodes' if needs else '{}'}, 'item': {item}, 'files': {files}}}"
    options = f"language={node.language!r}, variables={seen}, cwd=os.getcwd()"
    if node.language == "python":
        options += f", wants_value=True{', memory=memory' if memory else ''}"
        kind = ", has_value=True"
    else:
        kind = ", is_json=True" if node.output is not None else ""
    done = f"done = wb.kernels.run({python_literal(source)}, {options})"
    return "\n".join([*filter(None, head), done, f"steps.ran({node.id!r}, done{kind})"])


def _uses_memory(workflow: spec.Workflow, node: spec.ToolNode) -> bool:
    entry = workflow.tools.get(node.tool)
    name = entry.tool if isinstance(entry, spec.ConfiguredTool) else node.tool
    return name.startswith("memory")


def _remembers(workflow: spec.Workflow) -> bool:
    return any(isinstance(node, spec.ToolNode) and _uses_memory(workflow, node) for node in workflow.nodes)


def _memory(workflow: spec.Workflow, node: spec.NodeFields) -> str:
    scope = (node.memory or workflow.memory).default_scope
    ids = f"agent_id={workflow.agent!r}, workflow_id={workflow.name!r}, node_id={node.id!r}"
    return f"memory = wb.memory.scoped({ids}, scope={scope!r})"


def _gives_files(exported: _Exported, node: spec.CodeNode) -> bool:
    """Tell whether an expression or other code of the workflow reads the files that a node made."""
    others = exported.workflow.nodes
    expressions = [expression for other in others for _, expression in references(other)]
    expressions += [expression for _, text in walk(exported.workflow.outputs) for expression in parse(text).expressions]
    if any(each.node == node.id and "artifacts" in each.steps for each in expressions):
        return True
    scripts = [other for other in others if isinstance(other, spec.CodeNode) and node.id in other.needs]
    return any(re.search(r"\bfiles\b", script.source(exported.folder)) for script in scripts)


# -- text of code


def _with_value(source: str) -> str | None:
    """Return Python with the value of its last expression in ``value``; `None` where it cannot stand in a cell.

    It cannot where it would hide a name that the notebook needs, or has what only the top of a module may have.
    """
    try:
        tree = parse_python(source)
        # Inside of a loop or a function the code has to be valid too, which an import of a star is not.
        compile(f"def f():\n{_indented(source)}", "<cell>", "exec")
    except (SyntaxError, ValueError):
        return None
    if not tree.body or not _OWN_NAMES.isdisjoint(_names_set(tree)):
        return None
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        return f"{source}\nvalue = None"
    lines = source.split("\n")
    line = lines[last.lineno - 1].encode()
    lines[last.lineno - 1] = (line[: last.col_offset] + b"value = " + line[last.col_offset :]).decode()
    return "\n".join(lines)


def _names_set(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.alias():
                names.add((node.asname or node.name).partition(".")[0])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
    return names


def _indented(code: str) -> str:
    """Return code one level deeper; lines inside of texts stay as they are."""
    inner_lines: set[int] = set()
    for node in ast.walk(parse_python(code)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None:
            inner_lines.update(range(node.lineno + 1, node.end_lineno + 1))
    lines = code.split("\n")
    return "\n".join(line if i in inner_lines or not line else f"    {line}" for i, line in enumerate(lines, 1))
