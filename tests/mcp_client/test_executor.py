"""Tools of outside MCP servers: real servers in processes of their own, good ones and bad ones."""

from __future__ import annotations

import contextlib
import json
import sys

import psutil
import pytest

from nbtools.contract.approval.gate import AskFunction, Rule
from nbtools.contract.door import Door
from nbtools.contract.schema import output_schema, to_mcp
from nbtools.contract.tool import ToolCall
from nbtools.errors import ConfigInvalid, NetworkError
from nbtools.mcp_client import McpExecutor
from tests.mcp_client.test_lazy_executor import GOOD, PLAIN_SERVER, settings

pytestmark = pytest.mark.processes

SERVER = """
import asyncio, os, mcp.types as t
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

def made(name, schema=None, output=None, **hints):
    schema = schema or {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    hints = t.ToolAnnotations(**hints)
    return t.Tool(name=name, description=f"Tool {name}.", input_schema=schema, output_schema=output, annotations=hints)

async def list_tools(ctx, params):
    return t.ListToolsResult(tools=[
        made("echo", output={"type": "object", "required": ["given"]}, read_only_hint=True),
        made("wipe out!", destructive_hint=True), made("fail", output={"type": "object", "required": "x"}),
        made("die"), made("die once", idempotent_hint=True),
        made("context", {"type": "object", "properties": {"context": {"type": "string"}}}),
    ])

async def call_tool(ctx, params):
    given = params.arguments or {}
    if params.name == "die":
        os._exit(1)
    if params.name == "die once" and not os.path.exists(given["x"]):
        open(given["x"], "w").close()
        os._exit(1)
    if params.name == "fail":
        return t.CallToolResult(content=[t.TextContent(type="text", text="it broke")], is_error=True)
    if given.get("x") == "links":
        note = t.TextResourceContents(uri="note://1", text="a note")
        sound = t.BlobResourceContents(uri="note://2", blob="AAAA")
        content = [t.EmbeddedResource(type="resource", resource=each) for each in (note, sound)]
        link = t.ResourceLink(type="resource_link", name="report", uri="file:///r.csv")
        return t.CallToolResult(content=[link, *content], structured_content={"given": given})
    picture = t.ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/png")
    text = t.TextContent(type="text", text=f"{params.name}: {given}")
    return t.CallToolResult(content=[text, picture], structured_content={"given": given})

async def main():
    server = Server("other", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (r, w):
        await server.run(r, w, server.create_initialization_options())

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def outside():
    """A server that is made with the protocol's own library, which takes a second to import; others are plain."""
    executor = McpExecutor("other", {"command": sys.executable, "args": ["-c", SERVER], "trusted": True})
    executor.connect()
    try:
        yield executor
    finally:
        executor.close()


def call(executor, tool, arguments=None, **options):
    return executor.call(ToolCall(tool=tool, arguments=arguments or {}, **options))


def test_tools_come_under_the_name_of_their_server(outside):
    assert set(outside.tools()) == {
        "other__echo",
        "other__wipe_out_",
        "other__fail",
        "other__die",
        "other__die_once",
        "other__context",
    }
    assert outside.tools()["other__echo"].effects.read_only
    assert outside.tools()["other__wipe_out_"].effects.destructive


def test_the_output_schema_of_a_server_is_handed_on_if_it_is_one(outside):
    tools = outside.tools()
    assert to_mcp(tools["other__echo"])["outputSchema"] == {"type": "object", "required": ["given"]}
    assert [output_schema(tools[f"other__{name}"]) for name in ("fail", "die")] == [{"type": "object"}] * 2
    assert any("output schema of the tool 'fail'" in problem for problem in outside.problems)


def test_a_call_brings_text_data_and_pictures(outside):
    result = call(outside, "other__echo", {"x": "hi"})
    assert result.ok
    assert result.data == {"given": {"x": "hi"}}
    assert result.text == "echo: {'x': 'hi'}"
    assert result.artifacts[0].mime == "image/png"


def test_links_and_notes_of_an_answer_are_text(outside):
    assert call(outside, "other__echo", {"x": "links"}).text == "report: file:///r.csv\na note\nnote://2"


def test_an_argument_of_any_name_reaches_the_server(outside):
    assert call(outside, "other__context", {"context": "c"}).data == {"given": {"context": "c"}}


def test_wrong_arguments_are_refused_before_they_travel(outside):
    result = call(outside, "other__echo", {})
    assert result.error.code == "INVALID_ARGUMENTS"
    assert "x: required" in result.error.message


def test_a_failure_of_the_tool_is_a_failure_here(outside):
    result = call(outside, "other__fail", {"x": ""})
    assert result.error.code == "EXECUTION_FAILED"
    assert "it broke" in result.error.message


def test_a_server_that_dies_is_started_again_and_reported(outside):
    result = call(outside, "other__die", {"x": ""})
    assert result.error.code == "NETWORK_ERROR"
    assert "started again" in result.error.message
    assert call(outside, "other__echo", {"x": "back"}).ok
    assert any("started again" in problem for problem in outside.problems)


def test_a_harmless_call_is_repeated_after_the_death_of_its_server(outside, tmp_path):
    assert call(outside, "other__die_once", {"x": str(tmp_path / "died")}).ok


def test_a_server_that_is_not_trusted_is_asked_for_unless_a_rule_allows_its_tool(tmp_path):
    asked = []

    def approve(request):
        asked.append(request.tool.name)
        return len(asked) > 1

    server = {**settings(tmp_path / "s", [GOOD]), "trusted": False}
    with contextlib.closing(McpExecutor("s", server, door=Door(approver=AskFunction(approve)))) as executor:
        assert call(executor, "s__good").error.code == "APPROVAL_DENIED"
        assert call(executor, "s__good").ok
        assert asked == ["s__good", "s__good"]
    door = Door(rules=[Rule(action="allow", tool="s__good")])
    with contextlib.closing(McpExecutor("s", server, door=door)) as executor:
        assert call(executor, "s__good").ok


def test_only_the_tools_that_were_asked_for_are_offered_and_nothing_of_a_server_is_left_after_the_end(tmp_path):
    tools = [GOOD, {**GOOD, "name": "other"}]
    executor = McpExecutor("s", {**settings(tmp_path / "s", tools), "enabled_tools": ["good"]})
    executor.connect()
    assert executor.tools().names == ("s__good",)
    started = children_named(str(tmp_path))
    assert started
    executor.close()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []


@pytest.mark.parametrize(
    "given",
    [
        {"command": "no-such-command"},
        {"command": sys.executable, "args": ["-c", "print('this is not an MCP server')"]},
        {"url": "http://127.0.0.1:9/mcp"},
    ],
)
def test_a_server_that_cannot_be_used_is_said(given):
    executor = McpExecutor("bad", given)
    with pytest.raises(NetworkError, match="'bad'"):
        executor.connect()
    executor.close()


@pytest.mark.parametrize("given", [{}, {"command": "a", "url": "b"}, {"comand": "a"}])
def test_settings_that_do_not_fit_are_refused(given):
    with pytest.raises(ConfigInvalid):
        McpExecutor("bad", given)


def children_named(word):
    """Return the processes that this one started, and these, whose command has a word; one that ended has none."""
    matching = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            matching += [child] if word in " ".join(child.cmdline()) else []
    return matching


def test_a_tool_that_comes_back_with_other_words_is_asked_for_again(tmp_path):
    listed, asked = tmp_path / "tools.json", []
    server = settings(listed, [])
    server["args"][1] = PLAIN_SERVER.replace("json.loads(sys.argv[1])", "json.loads(open(sys.argv[2]).read())")

    def offer(words):
        listed.write_text(json.dumps([{**GOOD, "description": words}]))

    def answer(request):
        asked.append(request.tool.description)
        return "tool"

    offer("Look something up.")
    door = Door(approver=AskFunction(answer))
    with contextlib.closing(McpExecutor("s", {**server, "trusted": False}, door=door)) as executor:
        for _ in range(2):
            assert call(executor, "s__good", caller="model").ok
        offer("Look something up, and pay for it.")
        executor.connect()
        assert call(executor, "s__good", caller="model").ok
        assert len(children_named(str(listed))) == 1  # connecting again ends what was there
    assert asked == ["Look something up.", "Look something up, and pay for it."]
