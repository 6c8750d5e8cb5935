"""Prompt nodes of workflows: the same loop, with the tools, limits and records of the workflow."""

from __future__ import annotations

from pathlib import Path

from nbtools import Workbench

FLOW = """
version: 1
name: ask
limits: {tokens: 5000, usd: 0.5}
nodes:
  - id: count
    prompt: How many?
    agent: agent.yaml
    tools: [look]
    output: {type: object, properties: {n: {type: integer}}, required: [n]}
outputs: {n: "${nodes.count.data.n}"}
"""


def test_a_prompt_node_is_answered_by_the_agent(wb: Workbench, tmp_path: Path) -> None:
    (tmp_path / "turns.yaml").write_text("turns:\n  - {calls: [{tool: look}]}\n  - answer: {n: 3}\n")
    (tmp_path / "agent.yaml").write_text(f"model: scripted:{tmp_path}/turns.yaml\ninstructions: Be kind.\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    run = wb.workflows.run(tmp_path / "flow.yaml").raise_for_error()
    assert run.outputs == {"n": 3}
    (call,) = [call for call in wb.call_records() if call["tool"] == "look"]
    assert (call["caller"], call["run_id"]) == ("model", run.run_id)
