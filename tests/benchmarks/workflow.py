"""Workflows: what it costs to find that a file is right, to say what a run would do, and to run it.

The peers of validation are what a file costs at the least: reading the YAML, and pydantic's judgement of its shape
alone. The engines run the same graphs of nodes that do nothing but hand a number on, see `_workflow_sides`. Our side
reads and checks the file within the measured time, theirs have built their graphs before. Without effects we are
compared to engines that keep nothing, and LangGraph's checkpoints; a node with effects has its start and its result on
the disk, which only DBOS compares to, and DBOS writes results alone.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import _workflow_sides as sides
from benchmarks.paired import row, take_turns

NODES = 200
SMALL = 49
ITEMS = 10_000


def grid(nodes: int = NODES) -> str:
    """Return a workflow of tool, code and prompt nodes in which each needs one or two earlier ones."""
    lines = ["version: 1", "name: grid", "inputs:", "  path: {type: string, default: data.csv}", "nodes:"]
    for i in range(nodes):
        lines.append(f"  - id: n{i}")
        needed = f"n{i - 1}" if i else ""
        if i % 4 == 0:
            text = f"after ${{nodes.{needed}.text}}" if i else "${inputs.path}"
            lines += ["    tool: string_length", f'    args: {{text: "{text}"}}', "    retry: {attempts: 2}"]
        elif i % 4 == 1:
            lines += [
                "    code: |",
                f'      n = nodes["{needed}"]["characters"]',
                f'      {{"rows": n, "path": inputs["path"], "i": {i}}}',
            ]
            lines += [f"    needs: [{needed}]", "    output: {type: object, properties: {rows: {type: integer}}}"]
        elif i % 4 == 2:
            lines += [
                "    tool: sql_query",
                f'    args: {{query: "select $n", params: {{n: "${{nodes.{needed}.data.rows}}"}}}}',
            ]
        else:
            lines += [
                "    prompt: >-",
                f"      Explain ${{nodes.{needed}.data.rows | json}}",
                "      to a manager.",
                "    tools: [memory_retrieve]",
            ]
    return "\n".join([*lines, "outputs:", f'  last: "${{nodes.n{nodes - 1}.text}}"', ""])


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure validation and preview of 200 nodes, and the cost of a node in runs."""
    with _home() as folder:
        rows = [*_validation(quick), *_plan(quick, folder), *_nodes(quick, folder), *_items(quick, folder)]
        with contextlib.suppress(ImportError):
            rows += _workers(quick, folder)
        return rows


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        try:
            yield Path(made)
        finally:
            os.chdir(before)


def _validation(quick: bool) -> list[dict[str, Any]]:
    import yaml

    from nbtools.contract.registry import Registry
    from nbtools.toolbox import STANDARD
    from nbtools.workflow.spec import Workflow
    from nbtools.workflow.validation import validate

    registry = Registry(function for toolset in STANDARD for function in toolset)
    text = grid()
    assert not str(validate(text, registry)), "the file of the benchmark is wrong"
    measured = {
        "nbtools": _timed(lambda: validate(text, registry)),
        "yaml.safe_load": _timed(lambda: yaml.safe_load(text)),
        "yaml's C loader, pydantic": _timed(lambda: Workflow.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))),
    }
    rounds = take_turns(measured, rounds=5 if quick else 21)
    ours = rounds.pop("nbtools")
    case = f"validate {NODES} nodes, {len(text) / 1000:.0f} kB"
    return [
        row(case, ours, peer, theirs, unit="ms CPU", note="the peer judges less") for peer, theirs in rounds.items()
    ]


def _plan(quick: bool, folder: Path) -> list[dict[str, Any]]:
    with _workbench(folder) as wb:
        measured = {}
        for shape in ("chain", "grid"):
            text = as_yaml(getattr(sides, shape)(NODES), "hand_on")
            wb.workflows.run(text).raise_for_error()
            measured[f"plan {NODES} nodes, all reused, {shape}"] = _timed(lambda text=text: wb.workflows.plan(text))
        text = grid()
        measured[f"plan {NODES} nodes, none ever ran, mixed"] = _timed(lambda: wb.workflows.plan(text))
        rounds = take_turns(measured, rounds=5 if quick else 21)
    return [row(case, values, unit="ms CPU", note="reads and checks the file") for case, values in rounds.items()]


def _nodes(quick: bool, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for shape in ("chain", "fan", "grid"):
        graph = getattr(sides, shape)(SMALL)
        with contextlib.ExitStack() as stack:
            wb = stack.enter_context(_workbench(folder))
            measured: dict[str, Callable[[], float]] = {}
            for name, tool in (("kept", "hand_on"), ("durable", "hand_on_durably")):
                text = as_yaml(graph, tool)
                measured[name] = sides.timed(lambda wb=wb, t=text: wb.workflows.run(t).raise_for_error(), SMALL)
            peers = {
                "LangGraph": lambda graph=graph: sides.langgraph(graph),
                "LangGraph, SqliteSaver": lambda graph=graph: sides.langgraph(graph, folder),
                "Dask": lambda graph=graph: sides.dask(graph),
                "DBOS on SQLite": lambda graph=graph: sides.dbos(graph, folder),
            }
            for peer, enter in peers.items():
                with contextlib.suppress(ImportError):
                    measured[peer] = stack.enter_context(enter())
            rounds = take_turns(measured, rounds=3 if quick else 15)
        for name, case in (("kept", f"a node of a {shape}"), ("durable", f"a node of a {shape}, durable start")):
            rows += [row(case, rounds[name], peer, rounds.get(peer), unit="ms") for peer in peers]
    return rows


def _workers(quick: bool, folder: Path) -> list[dict[str, Any]]:
    """Measure a node that a worker of Dask performs, connecting to the cluster within the measured time."""
    from distributed import LocalCluster

    rows = []
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as cluster, _workbench(folder) as wb:
        where = cluster.scheduler_address.replace("tcp://", "dask://")
        for shape in ("chain", "fan", "grid"):
            graph = getattr(sides, shape)(SMALL)
            text = as_yaml(graph, "hand_on")
            with sides.dask(graph) as plain:
                ours = sides.timed(
                    lambda text=text: wb.workflows.run(text, executor=where).raise_for_error(), len(graph)
                )
                rounds = take_turns({"ours": ours, "Dask": plain}, rounds=3 if quick else 9)
            rows.append(row(f"a node of a {shape}, on Dask", rounds["ours"], "Dask", rounds["Dask"], unit="ms"))
    return rows


def _items(quick: bool, folder: Path) -> list[dict[str, Any]]:
    """Measure an item of few and of many: the cost of each must not grow with their number."""
    text = (
        "version: 1\nname: items\ninputs: {xs: {type: array, items: {type: integer}}}\nnodes:\n"
        "  - {id: a, tool: hand_on, for_each: '${inputs.xs}', args: {values: ['${item}']}}\n"
    )
    with _workbench(folder) as wb:
        measured = {
            f"an item of {count:,}": sides.timed(
                lambda xs=list(range(count)): wb.workflows.run(text, {"xs": xs}).raise_for_error(), count
            )
            for count in (100, 1_000 if quick else ITEMS)
        }
        rounds = take_turns(measured, rounds=1 if quick else 3)
    return [row(case, values, unit="ms") for case, values in rounds.items()]


@contextlib.contextmanager
def _workbench(folder: Path) -> Iterator[Any]:
    """Open a workbench with the nodes of the graphs: a tool that reads, and one that has effects."""
    from nbtools import Workbench
    from nbtools.contract.tool import tool

    @tool(read_only=True)
    def hand_on(values: list[int]) -> int:
        """Return one more than the largest."""
        return sides.work(*values)

    @tool
    def hand_on_durably(values: list[int]) -> int:
        """Return one more than the largest."""
        return sides.work(*values)

    with Workbench(home=folder / "home", memory_url=":memory:", tools=[hand_on, hand_on_durably]) as wb:
        yield wb


def as_yaml(graph: sides.Graph, tool: str) -> str:
    """Return a graph as a workflow whose nodes call a tool."""
    lines = ["version: 1", f"name: {tool}{len(graph)}", "nodes:"]
    for name, needs in graph.items():
        values = ", ".join(f'"${{nodes.{one}.data}}"' for one in needs)
        lines.append(f"  - {{id: {name}, tool: {tool}, args: {{values: [{values}]}}}}")
    return "\n".join([*lines, f'outputs: {{last: "${{nodes.{list(graph)[-1]}.data}}"}}', ""])


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        begun = time.process_time()
        work()
        return 1000 * (time.process_time() - begun)

    return measure
