"""Workflow files as tools: in Python, for models by the gate, in other files, and over MCP."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from nbtools import Workbench
from nbtools.errors import ConfigInvalid
from nbtools.execute import CompositeExecutor
from nbtools.tool import ToolCall
from nbtools.workflow.service import WorkflowExecutor

ADD = """\
version: 1
name: add-one
description: Add one to a number
inputs: {n: {type: integer, description: The number}, label: {type: string, default: sum}}
nodes:
  - {id: a, tool: calculator, args: {expression: "${inputs.n} + 1"}}
outputs: {result: "${nodes.a.data.value}", said: "${inputs.label}"}
"""
CODED = """\
version: 1
name: coded
nodes:
  - {id: a, code: "1 + 1"}
outputs: {two: "${nodes.a.data}"}
"""
ASKING = """\
version: 1
name: asking
nodes:
  - {id: q, ask: {approve: Go?}}
"""
OUTER = """\
version: 1
name: outer
tools:
  plus:
    workflow: add.yaml
    fixed_config: {label: fixed}
    exposed_inputs: [n]
  loud: {node: base, description: The node as a tool}
nodes:
  - {id: base, tool: calculator, args: {expression: "2 + 2"}}
  - {id: a, tool: plus, args: {n: 4}}
  - {id: b, tool: loud, args: {}}
outputs: {a: "${nodes.a.data}", b: "${nodes.b.data.value}"}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"add": ADD, "coded": CODED, "asking": ASKING, "outer": OUTER}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def open_workbench(folder: Path, **settings) -> Workbench:
    return Workbench(home=folder / "home", allowed_paths=[folder], memory_url=":memory:", **settings)


def test_a_file_is_a_tool_of_the_workbench(folder):
    with open_workbench(folder, workflows=["add.yaml", "coded.yaml"]) as wb:
        tool = wb.executor.tools()["add-one"]
        assert tool.description == "Add one to a number"
        assert tool.schema["required"] == ["n"]
        assert tool.effects.read_only
        done = wb.call("add-one", {"n": 4}).raise_for_error()
        assert done.data == {"result": 5, "said": "sum"}
        wrong = wb.call("add-one", {"n": "x"})
        assert wrong.error.code == "INVALID_ARGUMENTS"
        assert "n: expected integer" in wrong.error.message
        assert wb.call("coded").data == {"two": 2}


def test_what_the_nodes_may_do_is_what_a_model_is_asked_for(folder):
    with open_workbench(folder, workflows=["add.yaml", "coded.yaml"]) as wb:
        assert wb.call("add-one", {"n": 1}, caller="model").ok
        refused = wb.call("coded", caller="model")
        assert refused.error.code == "APPROVAL_DENIED"


def test_a_question_inside_tells_the_caller_who_answers(folder):
    with open_workbench(folder, workflows=["asking.yaml"]) as wb:
        done = wb.call("asking")
        assert done.error.code == "APPROVAL_DENIED"
        assert "q asks: Go? [yes/no]" in done.error.message
        run = wb.workflows.runs()[0]
        wb.workflows.answer(run.run_id, "q", "yes")
        assert wb.workflows.resume(run.run_id).ok


def test_a_file_uses_another_file_and_a_node_as_tools(folder):
    with open_workbench(folder) as wb:
        run = wb.workflows.run("outer.yaml").raise_for_error()
    assert run.outputs == {"a": {"result": 5, "said": "fixed"}, "b": 4}


def test_an_executor_offers_files_beside_others(folder):
    with open_workbench(folder) as wb:
        executor = CompositeExecutor([wb.executor, WorkflowExecutor(wb.workflows, ["add.yaml"])])
        assert "add-one" in executor.tools()
        done = executor.call(ToolCall(tool="add-one", arguments={"n": 1}))
    assert done.data["result"] == 2


def test_a_file_with_mistakes_is_told(folder):
    (folder / "add.yaml").write_text("version: 1\nname: x\nnodes: []\n")
    with open_workbench(folder, workflows=["add.yaml"]) as wb, pytest.raises(ConfigInvalid, match=r"add\.yaml"):
        wb.executor.tools()


def test_a_file_is_called_by_an_mcp_client(folder):
    async def call():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "nbtools.cli", "mcp", "--folder", str(folder), "--workflow", "add.yaml"],
            env={**os.environ, "NBTOOLS_HOME": str(folder / "home"), "NBTOOLS_MEMORY_URL": ":memory:"},
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = {tool.name: tool for tool in (await session.list_tools()).tools}
            return listed["add-one"], await session.call_tool("add-one", {"n": 41})

    tool, result = asyncio.run(call())
    assert tool.description == "Add one to a number"
    assert result.structured_content["result"] == 42
