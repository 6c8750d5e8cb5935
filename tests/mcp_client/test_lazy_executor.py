"""Servers that are connected when they are needed: nobody waits for one whose tools were not asked for."""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

import pytest

from nbtools import Workbench
from nbtools.contract.door import Door
from nbtools.contract.execute import CompositeExecutor, LocalExecutor
from nbtools.contract.tool import ToolCall, tool
from nbtools.ground import aio
from nbtools.mcp_client import McpExecutor

pytestmark = pytest.mark.processes

# Answers to `initialize` only when it is told to, and leaves a file behind when it is started at all.
PLAIN_SERVER = """
import json, pathlib, sys

tools, mark = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
mark.touch()
for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked.get("method"), asked.get("id")
    if tools is None or number is None:
        continue
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "s", "version": "1"}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": "called"}]},
    }
    answer = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)
"""
GOOD = {"name": "good", "inputSchema": {"type": "object"}}
BAD = {"name": "bad", "inputSchema": {"type": "array"}}


@tool(read_only=True)
def double(x: int) -> int:
    """Double it."""
    return 2 * x


def settings(mark, tools):
    arguments = ["-c", PLAIN_SERVER, json.dumps(tools), str(mark)]
    return {"command": sys.executable, "args": arguments, "trusted": True}


@pytest.fixture
def made(tmp_path):
    """A composite of a local tool, a server ``s`` that is well but for one tool, and a silent one, ``odd``."""
    door = Door()
    servers = [
        McpExecutor(name, settings(tmp_path / name, tools), door=door, connect_timeout=seconds)
        for name, tools, seconds in (("s", [GOOD, BAD], 20.0), ("odd", None, 2.0))
    ]
    yield CompositeExecutor([LocalExecutor([double], door=door), *servers])
    for server in servers:
        server.close()


def call(executor, name, arguments=None, **more):
    return aio.run(executor.acall(ToolCall(tool=name, arguments=arguments or {}, **more)))


def test_a_local_call_starts_no_server(made, tmp_path):
    assert call(made, "double", {"x": 2}).data == 4
    assert call(made, "duble").error.hint == "Did you mean 'double'?"
    assert made.tools()["double"].name == "double"
    assert "double" in made.tools()
    assert "triple" not in made.tools()
    assert list(tmp_path.iterdir()) == []


def test_a_call_connects_its_own_server_alone_and_tells_bad_tools_once(made, tmp_path):
    with pytest.warns(UserWarning, match="'s': the tool 'bad'"):
        assert call(made, "s__good").text == "called"
    assert call(made, "s__good").text == "called"
    assert call(made, "duble").error.hint == "Did you mean 'double'?"
    assert call(made, "s__god").error.hint == "Did you mean 's__good'?"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_tool_that_was_left_out_is_missed_with_the_reason(made):
    with pytest.warns(UserWarning, match="'bad' has an invalid declaration"):
        refused = call(made, "s__bad")
    assert refused.error.code == "TOOL_NOT_FOUND"
    assert "'s'" in refused.error.message
    assert "the tool 'bad' has an invalid declaration" in refused.error.message


def test_a_tool_of_a_server_that_cannot_be_reached_says_so(made):
    with pytest.warns(UserWarning, match="did not answer"):
        refused = call(made, "odd__good")
    again = call(made, "odd__good")
    for result in (refused, again):
        assert result.error.code == "TOOL_NOT_FOUND"
        assert "'odd' is unreachable" in result.error.message
        assert "did not answer within 2 s" in result.error.message
    assert "odd__good" not in made.tools()


def test_a_calls_own_time_ends_the_wait_for_its_server(made):
    assert call(made, "odd__good", timeout=0.3).error.code == "TIMEOUT"


def test_closing_ends_the_wait_for_a_server(tmp_path):
    server = McpExecutor("odd", settings(tmp_path / "odd", None))
    assert call(server, "odd__good", timeout=0.3).error.code == "TIMEOUT"
    begun = time.monotonic()
    server.close()
    assert server.tools().names == ()
    assert time.monotonic() - begun < 15, "the wait for the answer itself takes 20 s"


def test_a_client_that_was_closed_starts_no_server(tmp_path):
    server = McpExecutor("s", settings(tmp_path / "s", [GOOD]))
    server.close()
    assert server.tools().names == ()
    assert call(server, "s__good").error.code == "TOOL_NOT_FOUND"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
def test_pictures_go_with_their_client_without_a_warning(tmp_path, is_closed, recwarn):
    server = McpExecutor("s", settings(tmp_path / "s", [GOOD]))
    picture = Path(server._save("iVBORw0KGgo=", "image/png").path)
    assert picture.suffix == ".png"
    assert picture.exists()
    if is_closed:
        server.close()
    del server
    gc.collect()
    assert not picture.parent.exists()
    assert not recwarn.list


def test_a_client_that_was_used_and_closed_starts_its_server_no_more(tmp_path):
    server = McpExecutor("s", settings(tmp_path / "s", [GOOD]), door=Door())
    assert call(server, "s__good").ok
    server.close()
    (tmp_path / "s").unlink()
    result = call(server, "s__good")
    assert result.error.code == "NETWORK_ERROR"
    assert "was closed" in result.error.message
    assert list(tmp_path.iterdir()) == []
    assert not [problem for problem in server.problems if "started again" in problem]


def test_listing_connects_all(made, tmp_path):
    with pytest.warns(UserWarning, match="'odd'"), pytest.warns(UserWarning, match="'bad'"):
        assert made.tools().names == ("double", "s__good")
    assert {path.name for path in tmp_path.iterdir()} == {"s", "odd"}


def test_a_name_that_two_offer_is_told_when_tools_are_listed(tmp_path):
    clash = tool(name="s__good")(lambda: None)
    server = McpExecutor("s", settings(tmp_path / "s", [GOOD]))
    both = CompositeExecutor([LocalExecutor([clash]), server])
    with pytest.raises(ValueError, match="'s__good' is offered twice"):
        list(both.tools())
    server.close()


def test_servers_whose_names_begin_alike_are_told_apart(tmp_path):
    first = McpExecutor("s", settings(tmp_path / "s", [GOOD]))
    second = McpExecutor("s__t", settings(tmp_path / "t", [GOOD]))
    both = CompositeExecutor([LocalExecutor([double]), first, second])
    assert call(both, "s__good").ok
    assert call(both, "s__t__good").ok
    first.close()
    second.close()


def test_the_workbench_waits_for_no_server_that_is_not_asked_for(tmp_path):
    mark = tmp_path / "started"
    with Workbench(memory_url=":memory:", mcp_servers={"odd": settings(mark, None)}) as wb:
        assert wb.call("calculator", {"expression": "6*7"}).data["value"] == 42
        assert wb.tools.calculator(expression="6*7").ok
        assert not mark.exists()
