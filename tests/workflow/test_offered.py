"""Workflow files as tools: in Python, for models by the gate, in other files, and over MCP."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from nbtools import Workbench
from nbtools.contract.execute import CompositeExecutor
from nbtools.contract.tool import ToolCall
from nbtools.errors import ConfigInvalid
from nbtools.mcp_server import make_server
from nbtools.workflow.service import WorkflowExecutor
from tests.workflow.driver.conftest import TOOLS

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


@pytest.mark.processes
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


@pytest.mark.slow
@pytest.mark.processes
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


ALL_QUESTIONS = """\
version: 1
name: release
nodes:
  - {id: sure, ask: {approve: Send it?}}
  - {id: where, ask: {choose: [here, there], question: Where to?}, needs: [sure]}
  - id: who
    ask:
      question: Who signs?
      fill: {type: object, properties: {name: {type: string, minLength: 2}, copies: {type: integer}}, required: [name]}
    needs: [where]
  - {id: kept, tool: note, args: {path: sent.txt, line: "${nodes.who.data.name}"}, needs: [who]}
outputs: {where: "${nodes.where.data | default('')}", who: "${nodes.who.data | default('')}"}
"""


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_mcp_client_answers_the_questions_and_approves_the_calls_of_a_workflow(folder, mode):
    """In the newer era the call is repeated with each answer, and goes on with the run that it began."""
    (folder / "release.yaml").write_text(ALL_QUESTIONS)
    shown: list[str] = []
    names = iter(["x", "Ada"])

    async def answering(context, params):
        shown.append(params.message.splitlines()[-1] if "wants to run" not in params.message else "approval")
        fields = params.requested_schema["properties"]
        if "name" in fields:
            assert fields["copies"] == {"type": "integer"}
            return types.ElicitResult(action="accept", content={"name": next(names), "copies": 2})
        choices = fields["answer"]["enum"]
        said = next(word for word in ("yes, once", "yes", "there") if word in choices)
        return types.ElicitResult(action="accept", content={"answer": said})

    async def work():
        with open_workbench(
            folder, workflows=["release.yaml"], tools=TOOLS, policy={"note": "ask", "release": "ask"}
        ) as wb:
            async with Client(make_server(wb), mode=mode, elicitation_callback=answering) as client:
                return await client.call_tool("release", {}), wb.workflows.runs()

    said, runs = asyncio.run(work())
    assert not said.is_error, said.content[0].text
    assert said.structured_content == {"where": "there", "who": {"name": "Ada", "copies": 2}}
    assert (folder / "sent.txt").read_text() == "Ada\n", "the effect happened once"
    assert len(runs) == 1
    assert [line.split(": ")[-1] for line in shown] == [
        "approval", "Send it?", "Where to?", "Who signs?", "Who signs?", "approval",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_form_that_is_put_away_leaves_the_run_waiting(folder, mode):
    async def answering(context, params):
        return types.ElicitResult(action="cancel")

    async def work():
        with open_workbench(folder, workflows=["asking.yaml"]) as wb:
            async with Client(make_server(wb), mode=mode, elicitation_callback=answering) as client:
                return await client.call_tool("asking", {}), wb.workflows.runs()

    said, [run] = asyncio.run(work())
    assert f"nbtools runs answer {run.run_id}" in said.content[0].text
    assert run.state == "waiting"


@pytest.mark.processes
def test_a_call_that_nobody_can_approve_yet_waits_like_a_question(folder):
    """The answer is bound to the call as it was shown, and it is asked for again where that has changed."""
    asked: list[str] = []

    class Later:
        async def approve(self, request):
            asked.append(request.tool.name)
            return "later"

    flow = """
version: 1
name: w
nodes:
  - {id: a, tool: file_write, args: {path: a.txt, content: "${env.WF_TEXT}"}}
  - {id: b, code: "open('b.txt', 'w').write('b')"}
outputs: {a: "${nodes.a.ok}"}
"""
    with open_workbench(folder, policy={"file_write": "ask", "code_execute": "ask"}, approver=Later()) as wb:
        os.environ["WF_TEXT"] = "one"
        try:
            run = wb.workflows.run(flow)
            assert {one.step for one in run.questions} == {"a", "b"}
            assert "wants to run" in run.questions[0].text
            wb.workflows.answer(run.run_id, "a", "yes", by="Ada")
            os.environ["WF_TEXT"] = "two"
            again = wb.workflows.resume(run.run_id)
            assert {one.step for one in again.questions} == {"a", "b"}
            assert not (folder / "a.txt").exists()
            wb.workflows.answer(run.run_id, "a", "yes", by="Ada")
            wb.workflows.resume(run.run_id)
            wb.workflows.answer(run.run_id, "b", "no", by="Ada")
            done = wb.workflows.resume(run.run_id)
        finally:
            del os.environ["WF_TEXT"]
        assert (folder / "a.txt").read_text() == "two"
        assert done.error["message"] == "b: Ada said no"
        [record] = [one for one in wb.door.recorder.recent() if one.tool == "file_write" and one.ok]
        assert record.approval["by"] == "Ada"
    assert sorted(asked) == ["file_write", "workflow_code"]
