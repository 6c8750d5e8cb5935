"""A notebook that repeats a run step by step, and that itself runs from top to bottom.

Each node is a cell that runs only this node, as a run does, on the results of the cells before it: `RepeatedSteps`.
What people and models answered is not asked again: the answers of the run stand in the first cell, as do its inputs.
What a cell does can be changed and run again, which is what such a notebook is for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.conduct.notebook_file import code_cell, markdown_cell, notebook_file
from nbtools.texts.python_tree import python_literal
from nbtools.texts.redaction import conceal, redact
from nbtools.texts.secret_values import MASK
from nbtools.workflow import spec
from nbtools.workflow.document import Document
from nbtools.workflow.graph import edges
from nbtools.workflow.notebooks import Notebook
from nbtools.workflow.runs.environment import variables_of, without_variables
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.state import RunState, step_label
from nbtools.workflow.views.layout import layers_of
from nbtools.workflow.views.saved import read_progress
from nbtools.workflow.views.signs import seconds_of, stated, what_runs

_LONGEST_OUTPUT = 4_000


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
    """
    data: Any = Document.open(run.main, str(run.main)).data
    nodes = {node["id"]: node for node in data["nodes"]}
    cells = [
        markdown_cell(_intro(run, progress, workflow)),
        code_cell(_setup(run, progress, workflow, data, folder)),
    ]
    for node in _in_order(workflow):
        cells += [markdown_cell(_heading(node, progress)), code_cell(f"steps.run({python_literal(nodes[node.id])})")]
    cells.append(code_cell(f"outputs = steps.fill({python_literal(workflow.outputs)})\noutputs"))
    if progress.outputs:
        outputs = json.dumps(redact(dict(progress.outputs)), ensure_ascii=False, indent=1, default=repr)
        cells.append(markdown_cell(f"The run gave:\n\n```json\n{outputs[:_LONGEST_OUTPUT]}\n```"))
    return notebook_file(cells)


def _in_order(workflow: spec.Workflow) -> list[spec.NodeFields]:
    """Return the nodes in an order in which they can run, those that are final last."""
    layer_of = layers_of({node.id: [edge.target for edge in edges(node)] for node in workflow.nodes})
    return sorted(workflow.nodes, key=lambda node: (node.finally_, layer_of[node.id]))


def _intro(run: FrozenRun, progress: RunState, workflow: spec.Workflow) -> str:
    about = f"\n\n{workflow.description}" if workflow.description else ""
    return (
        f"# {workflow.name}{about}\n\nThis repeats the run `{run.folder.name}`, which ended as **{progress.state}** "
        f"after {progress.seconds:.1f} s. Each cell runs a step as the run did, from what the cells before it "
        f"gave: change one, and run it again."
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


def _setup(run: FrozenRun, progress: RunState, workflow: spec.Workflow, data: Mapping[str, Any], folder: Path) -> str:
    """Return the first cell: the workbench, the inputs, the answers, and all of the workflow but its nodes."""
    # Relative, so that the notebook and the folder can move together, and it contains no path of this machine.
    start = os.path.relpath(run.facts["working_folder"], folder)
    lines = ["import os", "", "from nbtools import Workbench", "from nbtools.workflow import RepeatedSteps", ""]
    if start != ".":
        lines += [
            'START = globals().get("START", os.getcwd())  # the folder of this notebook',
            f"os.chdir(os.path.join(START, {start!r}))",
        ]
    variables = variables_of(workflow)
    # Masked as in the record: a notebook is handed on more readily than the folder of a run.
    inputs = conceal(without_variables(variables, dict(progress.inputs)))
    answers = redact(without_variables(variables, dict(_answers(run))))
    masked = f"  # {MASK} stands for a secret: fill it in" if MASK in repr(inputs) else ""
    settings = {name: value for name, value in data.items() if name not in {"nodes", "outputs"}}
    if "tools" in settings:
        settings["tools"] = {name: _tool(tool, data["nodes"]) for name, tool in settings["tools"].items()}
    main, *names = (str(name) for name in (run.facts["main"], *run.facts["files"]))
    frozen = run.folder / str(run.facts["frozen"])
    files = {name: redact(_text_of(frozen / name)) for name in names if name != main}
    lines += [
        "wb = Workbench()",
        f"inputs = {python_literal(inputs)}{masked}",
        f"answers = {python_literal(answers)}  # of people and models, by step",
        f"workflow = {python_literal(settings)}",
        f"files = {python_literal(files)}  # which the workflow names",
        f"steps = RepeatedSteps(wb.workflows.host, workflow, inputs, answers, files, path={main!r})",
    ]
    return "\n".join(lines)


def _text_of(path: Path) -> str:
    """Return a file that the workflow names; of a notebook not what earlier runs left in it, which nobody looked at."""
    text = path.read_text(encoding="utf-8")
    return Notebook(text).bare_text() if path.suffix == ".ipynb" else text


def _tool(tool: Mapping[str, Any], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a tool of the file without the node that it is made of, whose cell may come later."""
    if (node := next((one for one in nodes if one["id"] == tool.get("node")), None)) is None:
        return dict(tool)
    fixed = {**spec.literals(node.get("args", {})), **tool.get("fixed_config", {})}
    rest = {name: value for name, value in tool.items() if name != "node"}
    return {name: node[name] for name in ("tool", "workflow") if name in node} | rest | {"fixed_config": fixed}


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
