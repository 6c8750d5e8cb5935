"""Workflows: what it costs to find that a file is right, without running it.

The peers are what a file costs at the least: reading the YAML, and pydantic's judgement of its shape alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.paired import row, take_turns

NODES = 200


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
    """Measure validation of 200 nodes."""
    import yaml

    from nbtools.registry import Registry
    from nbtools.toolbox import STANDARD
    from nbtools.workflow.spec import Workflow
    from nbtools.workflow.validation import validate

    registry = Registry(function for toolset in STANDARD for function in toolset)
    text = grid()
    assert not str(validate(text, registry)), "the file of the benchmark is wrong"
    sides = {
        "nbtools": _timed(lambda: validate(text, registry)),
        "yaml.safe_load": _timed(lambda: yaml.safe_load(text)),
        "yaml's C loader, pydantic": _timed(lambda: Workflow.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))),
    }
    rounds = take_turns(sides, rounds=5 if quick else 21)
    ours = rounds.pop("nbtools")
    case = f"validate {NODES} nodes, {len(text) / 1000:.0f} kB"
    return [
        row(case, ours, peer, theirs, unit="ms CPU", note="the peer judges less") for peer, theirs in rounds.items()
    ]


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        begun = time.process_time()
        work()
        return 1000 * (time.process_time() - begun)

    return measure
