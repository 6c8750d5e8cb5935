"""Servers that declare, name and answer badly: one bad tool takes nothing away, and silence ends."""

from __future__ import annotations

import http.server
import itertools
import json
import sys
import textwrap
import threading

import pytest

from nbtools.contract.schema import FORMATS
from nbtools.contract.signature.schema_mistakes import mistakes_of
from nbtools.contract.tool import ToolCall
from nbtools.errors import NetworkError
from nbtools.mcp_client import McpExecutor

pytestmark = pytest.mark.processes

SERVER = """
    import json, sys

    sys.setrecursionlimit(10_000)
    tools, silent = json.loads(open(sys.argv[1]).read()), sys.argv[2]
    begun = '{"jsonrpc":"2.0","id":%s,'
    broken = {"cut": begun + '"result":{"content":[{"te', "no message": begun + '"got":1}'}
    for line in sys.stdin:
        asked = json.loads(line)
        method, number = asked.get("method"), asked.get("id")
        if method == silent or number is None:
            continue
        server = {"name": "s", "version": "1"}
        more = {"nextCursor": "again and again"} if silent == "no end" else {}
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server},
            "tools/list": {"tools": tools, **more},
            "tools/call": {"content": 5 if asked.get("params", {}).get("name") == "odd" else [
                {"type": "text", "text": "called " + str(asked.get("params", {}).get("name"))}
            ]},
        }
        if method == "tools/call" and silent == "many texts":
            results["tools/call"] = {"content": [{"type": "text", "text": "x"}] * 5_000}
        if method == "tools/call" and silent == "many pictures":
            results["tools/call"] = {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}] * 200}
        if method == "tools/call" and silent == "no picture":
            results["tools/call"] = {"content": [{"type": "image", "mimeType": "image/png", "data": "A"}]}
        if method == "tools/call" and silent == "many words":
            words = "password=hunter2 and more\\n" * 100_000
            results["tools/call"] = {"content": [{"type": "text", "text": words}], "isError": True}
        if method == "tools/call" and silent == "a long no":
            error = {"code": -32001, "message": "no" * 1_000_000}
            print(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}), flush=True)
            continue
        if method == "tools/list" and silent == "asks":
            asking = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"x": 1}}
            print("\\n".join([json.dumps(asking)] * 20_000))
        if method == "tools/call" and silent in broken:
            print(broken[silent] % number, flush=True)
            continue
        if method == "tools/call" and silent == "flood":
            notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            print("\\n".join([json.dumps(notice)] * 20_000))
        answer = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)
"""
GOOD = {"type": "object"}


@pytest.fixture
def connect(tmp_path):
    opened = []

    def make(tools, silent="nothing", timeout=60, **options):
        (tmp_path / "tools.json").write_text(json.dumps(tools))
        arguments = ["-c", textwrap.dedent(SERVER), str(tmp_path / "tools.json"), silent]
        given = {"command": sys.executable, "args": arguments, "trusted": True, "timeout": timeout}
        executor = McpExecutor("s", given, **options)
        opened.append(executor)
        executor.connect()
        return executor

    yield make
    for executor in opened:
        executor.close()


_BAD = [
    None,
    "text",
    {"type": "array"},
    {"type": "object", "properties": [1]},
    {"type": "object", "properties": {"x": 5}},
    {"type": "object", "required": 7},
    {"type": "object", "properties": {"x": {"$ref": "#/$defs/nowhere"}}},
    {"type": "object", "properties": {"x": {"type": "strange"}}},
    {"type": "object", "properties": {"x": {"type": ["string", 5]}}},
    {"type": "object", "properties": {"x": {"anyOf": {"type": "string"}}}},
]


def test_a_bad_schema_leaves_out_its_tool_alone(connect):
    bad = [
        {"name": f"bad {at}", **({} if schema is None else {"inputSchema": schema})} for at, schema in enumerate(_BAD)
    ]
    executor = connect([*bad, {"name": "good", "inputSchema": GOOD}])
    assert executor.tools().names == ("s__good",)
    assert len(executor.problems) == len(bad)
    assert all(f"'{tool['name']}'" in problem for tool, problem in zip(bad, executor.problems, strict=True))
    assert executor.call(ToolCall(tool="s__good")).text == "called good"


_UNUSUAL = [
    {"type": "object", "properties": {"x": {"$ref": "#/definitions/P"}}, "definitions": {"P": {"type": "string"}}},
    {"type": "object", "properties": {"x": {"$ref": "#"}}, "$schema": "http://json-schema.org/draft-07/schema#"},
    {"type": "object", "properties": {"x": {}, "y": {"items": True}}, "additionalProperties": False},
    {"type": "object", "properties": {"type": {"type": "string"}, "required": {"type": "boolean"}}},
]


def test_unusual_schemas_are_taken_and_rendered(connect):
    executor = connect([{"name": f"fine{at}", "inputSchema": schema} for at, schema in enumerate(_UNUSUAL)])
    assert executor.problems == []
    tools = executor.tools()
    assert len(tools) == len(_UNUSUAL)
    for name, render in itertools.product(tools.names, FORMATS.values()):
        assert json.dumps(render(tools[name]))


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


_ENDLESS = {
    "itself": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "a ring": {"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    "deep": nested(200),
    "large": {"type": "object", "properties": {"x": {"enum": ["y" * 300_000]}}},
}


def test_a_schema_that_never_ends_leaves_out_its_tool_alone(connect):
    bad = [{"name": name, "inputSchema": schema} for name, schema in _ENDLESS.items()]
    executor = connect([*bad, {"name": "good", "inputSchema": GOOD}])
    assert executor.tools().names == ("s__good",)
    assert len(executor.problems) == len(bad)
    assert all(len(problem) < 300 for problem in executor.problems)


def test_a_schema_that_refers_to_itself_below_a_property_is_taken(connect):
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    executor = connect([{"name": "a", "inputSchema": {**tree, "$defs": {"t": tree}}}])
    assert executor.call(ToolCall(tool="s__a", arguments={"children": [{"children": []}]})).ok


def test_words_of_a_server_are_cut_and_plain(connect):
    hidden = "a\x1b[2Jb\u202ec\u200bd"
    schema = {"type": "object", "properties": {"p": {"type": "string", "description": hidden}}}
    bad = {"name": "bad", "title": hidden, "description": "x" * 2_000_000, "inputSchema": schema}
    executor = connect([bad])
    made = executor.tools()["s__bad"]
    assert len(made.description) == 8_000
    assert (made.title, made.schema["properties"]["p"]["description"]) == ("a[2Jbcd", "a[2Jbcd")
    assert "was cut" in executor.problems[0]


@pytest.mark.parametrize("kind", ["cut", "no message"])
def test_a_broken_answer_fails_its_call_at_once(connect, kind):
    executor = connect([{"name": "a", "inputSchema": GOOD}], silent=kind)
    result = executor.call(ToolCall(tool="s__a"))
    assert result.error.code == "EXECUTION_FAILED"
    assert "not valid MCP" in result.error.message


def test_a_flood_of_notices_is_thinned_out_and_told(connect):
    executor = connect([{"name": "a", "inputSchema": GOOD}], silent="flood")
    assert executor.call(ToolCall(tool="s__a")).ok
    assert any("200 notifications" in problem for problem in executor.problems)


def test_a_flood_of_requests_is_thinned_out_and_told(connect):
    executor = connect([{"name": "t", "inputSchema": GOOD}], "asks")
    assert executor.call(ToolCall(tool="s__t")).text == "called t"
    assert any("200 notifications" in problem for problem in executor.problems)


def test_a_list_of_very_many_tools_is_cut_and_told(connect):
    executor = connect([{"name": f"t{number}", "inputSchema": GOOD} for number in range(1_500)])
    assert len(executor.tools()) == 1_000
    assert "it lists 1,500 tools at once; only the first 1,000 are used" in executor.problems


def test_an_answer_of_very_many_parts_is_cut_and_says_so(connect):
    tools = [{"name": "t", "inputSchema": GOOD}]
    text = connect(tools, "many texts").call(ToolCall(tool="s__t")).text
    assert text.count("x\n") == 1_000
    assert text.endswith("[the answer has 5,000 blocks; the first 1,000 end here]")
    result = connect(tools, "many pictures").call(ToolCall(tool="s__t"))
    assert result.error.message == "s: the answer has more than 100 pictures and sounds."


@pytest.mark.parametrize(("kind", "code"), [("many words", "EXECUTION_FAILED"), ("a long no", "INVALID_ARGUMENTS")])
def test_a_failure_of_very_many_words_is_cut(connect, kind, code):
    result = connect([{"name": "t", "inputSchema": GOOD}], kind).call(ToolCall(tool="s__t"))
    assert result.error.code == code
    assert len(result.error.message) < 21_000
    assert "hunter2" not in result.error.message


def test_a_picture_that_is_none_is_a_failure_of_the_server(connect):
    result = connect([{"name": "t", "inputSchema": GOOD}], "no picture").call(ToolCall(tool="s__t"))
    assert result.error.code == "EXECUTION_FAILED"


def test_odd_names_are_made_plain_and_reach_the_server_as_they_are(connect):
    names = ["", "ä/ö?", "../../x", "drop table;", "a" * 200, "a b", "a.b"]
    executor = connect([{"name": name, "inputSchema": GOOD} for name in names])
    offered = executor.tools().names
    assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() and name.isascii() for name in offered)
    assert executor.call(ToolCall(tool="s__drop_table_")).text == "called drop table;"
    assert any("'s__a_b'" in problem for problem in executor.problems), "two names that become one are told"


def test_a_list_that_never_ends_is_read_once(connect):
    executor = connect([{"name": "a", "inputSchema": GOOD}], silent="no end")
    assert executor.tools().names == ("s__a",)


def test_a_call_that_is_never_answered_ends_with_its_time(connect):
    executor = connect([{"name": "a", "inputSchema": GOOD}], silent="tools/call", timeout=1)
    assert executor.call(ToolCall(tool="s__a")).error.code == "TIMEOUT"


def test_an_answer_that_is_no_result_is_a_failure_of_the_call(connect):
    executor = connect([{"name": "odd", "inputSchema": GOOD}, {"name": "a", "inputSchema": GOOD}])
    result = executor.call(ToolCall(tool="s__odd"))
    assert result.error.code == "EXECUTION_FAILED"
    assert "not valid MCP" in result.error.message
    assert executor.call(ToolCall(tool="s__a")).ok


@pytest.mark.parametrize("silent", ["initialize", "tools/list"])
def test_a_server_that_never_answers_is_given_up(connect, silent):
    with pytest.raises(NetworkError, match="did not answer within 1 s"):
        connect([], silent=silent, connect_timeout=1.0)


class _Streamed(http.server.BaseHTTPRequestHandler):
    """Answers a call by an event of 3 MB."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        results = {
            "initialize": server,
            "tools/list": {"tools": [{"name": "t", "inputSchema": GOOD}]},
            "tools/call": {"content": [{"type": "text", "text": "x" * 3_000_000}]},
        }
        answer = (
            {"result": results[asked["method"]]}
            if asked["method"] in results
            else {"error": {"code": -32601, "message": ""}}
        )
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **answer}).encode()
        self.send_response(200 if "id" in asked else 202)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: message\ndata: " + body + b"\n\n" if "id" in asked else b"")

    def log_message(self, *_):
        pass


def test_an_answer_of_megabytes_arrives_over_http_too():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Streamed) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        executor = McpExecutor("web", {"url": f"http://127.0.0.1:{server.server_port}/mcp", "trusted": True})
        executor.connect()
        text = executor.call(ToolCall(tool="web__t")).text
        executor.close()
        server.shutdown()
        thread.join(10)
    assert text == "x" * 3_000_000


class _Http(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, kind, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    "answer",
    [(500, "text/plain", b""), (200, "text/html", b"<html>"), (200, "application/json", b"{no"), (401, "a/b", b"")],
    ids=["fault", "page", "no json", "no entry"],
)
def test_what_is_no_mcp_server_over_http_is_said_in_one_error(answer, capfd):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Http) as server:
        server.answer = answer
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        executor = McpExecutor("web", {"url": f"http://127.0.0.1:{server.server_port}/mcp"})
        with pytest.raises(NetworkError, match="'web'"):
            executor.connect()
        executor.close()
        server.shutdown()
        thread.join(10)
    assert "Traceback" not in capfd.readouterr().err


def test_mistakes_of_a_schema_are_told_with_their_place():
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "txt"}}}, "required": ["x", 1]}
    assert mistakes_of(schema) == [
        "properties/x/items/type: No type is called 'txt'.",
        "required: required is ['x', 1].",
    ]
    assert mistakes_of(GOOD) == []
    assert mistakes_of([]) == ["the schema is [], not an object"]
