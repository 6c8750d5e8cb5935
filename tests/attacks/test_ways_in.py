"""Every way in is the door: resources, the command line, SQL, results that tools make themselves, tools that call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from nbtools import Workbench
from nbtools.cli import main
from nbtools.contract.approval.gate import AskFunction, Nobody
from nbtools.contract.door import CallLimits, Door
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.result import Artifact, ErrorInfo, Output, ToolResult
from nbtools.contract.tool import Caller, Context, ToolCall, tool
from nbtools.errors import ExecutionFailed, PermissionDenied, ToolNotEnabled
from nbtools.ground import aio
from nbtools.mcp_server import HttpServer, make_server


@tool(destructive=True)
def wipe(what: str) -> str:
    """Wipe something away.

    Parameters
    ----------
    what
        What is to go.
    """
    return f"wiped {what}"


@tool(read_only=True)
def leave(text: str) -> Output:
    """Leave a file.

    Parameters
    ----------
    text
        What is in it.
    """
    path = Path(f"{text}.bin")
    path.write_bytes(b"\0" + text.encode())
    return Output(text="left", artifacts=(Artifact.from_path(path.resolve()),))


@pytest.fixture
def open_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    made: list[Workbench] = []

    def open_one(**settings: Any) -> Workbench:
        made.append(Workbench(home=tmp_path / "home", memory_url=":memory:", tools=[wipe, leave], **settings))
        return made[-1]

    yield open_one
    for bench in made:
        bench.close()


def over_http(server: HttpServer, answer: str | None = None, asked: list[str] | None = None, **how: Any) -> Any:
    """Return a client of a server over HTTP, whose user gives one answer to everything."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def answering(context: Any, params: Any) -> Any:
        if asked is not None:
            asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": answer})

    session = httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.token}"}, timeout=None)
    options = {} if answer is None else {"elicitation_callback": answering}
    return Client(streamable_http_client(server.url, http_client=session), **options, **how)


@pytest.fixture
def serve(open_bench: Any) -> Iterator[Any]:
    servers: list[HttpServer] = []

    def start(**settings: Any) -> HttpServer:
        servers.append(HttpServer(open_bench(**settings)))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.close()


# -- MCP


@pytest.mark.parametrize("settings", [{"enabled_tools": ["calculator"]}, {"policy": {"memory_retrieve": "deny"}}])
def test_memory_resources_are_behind_the_gate_of_the_tools(open_bench: Any, settings: dict[str, Any]) -> None:
    bench = open_bench(**settings)
    bench.memory.write("diary", "private")

    async def work() -> None:
        async with Client(make_server(bench)) as client:
            assert (await client.list_resources()).resources == []
            with pytest.raises(MCPError, match=r"not found|may not run"):
                await client.read_resource("nbtools://memory/diary")

    aio.run(work(), timeout=60)
    assert {record["code"] for record in bench.call_records()} <= {"TOOL_NOT_FOUND", "PERMISSION_DENIED"}


def test_resources_that_are_read_are_recorded(open_bench: Any) -> None:
    bench = open_bench()
    bench.memory.write("diary", {"day": 1})

    async def work() -> str:
        async with Client(make_server(bench)) as client:
            listed = [str(found.uri) for found in (await client.list_resources()).resources]
            assert listed == ["nbtools://memory/diary"]
            left = await client.call_tool("leave", {"text": "x"})
            await client.read_resource(str(left.content[-1].uri))
            return (await client.read_resource(listed[0])).contents[0].text

    assert json.loads(aio.run(work(), timeout=60)) == {"day": 1}
    told = [(record["tool"], record["caller"], record["ok"]) for record in bench.call_records()]
    names = ["memory_list", "leave", "artifact_read", "memory_retrieve"]
    assert sorted(told) == sorted((name, "mcp", True) for name in names)
    assert len({record["run_id"] for record in bench.call_records()}) == 1


@pytest.mark.processes
def test_what_one_client_may_and_made_is_not_anothers(serve: Any) -> None:
    server, asked = serve(), []

    async def work() -> None:
        first = over_http(server, "yes, this tool for the whole session", asked, mode="legacy")
        async with first as mine, over_http(server, mode="legacy") as theirs:
            for what in "ab":
                assert not (await mine.call_tool("wipe", {"what": what})).is_error
            denied = await theirs.call_tool("wipe", {"what": "a"})
            assert denied.structured_content["error"]["code"] == "APPROVAL_DENIED"
            left = str((await mine.call_tool("leave", {"text": "x"})).content[-1].uri)
            assert left in [str(found.uri) for found in (await mine.list_resources()).resources]
            assert left not in [str(found.uri) for found in (await theirs.list_resources()).resources]
            assert (await mine.read_resource(left)).contents
            with pytest.raises(MCPError, match="not found"):
                await theirs.read_resource(left)

    aio.run(work(), timeout=60)
    assert len(asked) == 1


@pytest.mark.processes
def test_without_a_session_a_yes_is_for_one_call(serve: Any) -> None:
    server, asked = serve(), []

    async def work() -> None:
        async with over_http(server, "yes, once", asked) as client:
            for what in "ab":
                assert not (await client.call_tool("wipe", {"what": what})).is_error
        async with over_http(server, "yes, this tool for the whole session", asked) as client:
            assert (await client.call_tool("wipe", {"what": "c"})).is_error is False
            await client.call_tool("wipe", {"what": "d"})

    aio.run(work(), timeout=60)
    assert len(asked) == 4


@pytest.mark.processes
def test_an_answer_is_for_what_was_asked_and_taken_once(serve: Any) -> None:
    import requests

    server = serve()
    version = "2026-07-28"
    prefix = "io.modelcontextprotocol"
    meta = {
        f"{prefix}/protocolVersion": version,
        f"{prefix}/clientInfo": {"name": "x", "version": "1"},
        f"{prefix}/clientCapabilities": {"elicitation": {"form": {}}},
    }
    headers = {"Authorization": f"Bearer {server.token}", "Accept": "application/json, text/event-stream"}
    headers |= {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "wipe"}
    yes = {"inputResponses": {"approval": {"action": "accept", "content": {"answer": "yes, once"}}}}

    def post(what: str, **more: Any) -> Any:
        params = {"name": "wipe", "arguments": {"what": what}, "_meta": meta, **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = requests.post(server.url, json=body, headers=headers, timeout=30).text
        said = json.loads(answer.partition("data: ")[2].partition("\n")[0] if "data: " in answer else answer)
        return said["result"] if "result" in said else said["error"]

    asked = post("this")
    assert asked["resultType"] == "input_required"
    assert post("this", **yes)["resultType"] == "input_required"  # nobody was asked
    refused = post("that", **yes, requestState=asked["requestState"])
    assert (refused["code"], refused["message"]) == (-32602, "Invalid or expired requestState")
    state = post("this")["requestState"]
    assert post("this", **yes, requestState=state)["structuredContent"] == {"result": "wiped this"}
    assert post("this", **yes, requestState=state)["resultType"] == "input_required"  # it was taken


# -- the command line, Python


@pytest.mark.processes
def test_the_memory_of_the_command_line_is_judged_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home"))
    (tmp_path / "nbtools.toml").write_text('[policy.memory_delete]\naction = "deny"\ncallers = "cli"\n')
    assert main(["memory", "save", "goal", "win"]) == 0
    assert main(["memory", "delete", "goal"]) == 1
    assert main(["memory", "forget", "goal"]) == 1
    assert main(["memory", "get", "goal"]) == 0
    assert capsys.readouterr().out == "saved goal (version 1)\nwin\n"
    with Workbench() as bench:
        told = [(r["tool"], r["caller"], r["code"]) for r in reversed(bench.call_records())]
    assert told == [
        ("memory_save", "cli", None),
        ("memory_delete", "cli", "PERMISSION_DENIED"),
        ("memory_forget", "cli", "PERMISSION_DENIED"),
        ("memory_retrieve", "cli", None),
    ]


def test_half_a_character_in_a_call_leaves_the_records_readable(open_bench: Any) -> None:
    bench = open_bench()
    bench.call("file_read", {"path": "a", "encoding": "\ud800", "\udfff": "b"}, caller="model")
    bench.call("file_write", {"path": "a", "content": "\ud800"})
    told = bench.sql("select tool, arguments from nbtools.calls where tool like 'file%' order by started_at")
    assert list(told["tool"]) == ["file_read", "file_write"]


def test_sql_from_python_obeys_what_is_enabled(open_bench: Any) -> None:
    bench = open_bench(enabled_tools=["calculator"])
    with pytest.raises(ToolNotEnabled, match="'sql_query' is not enabled"):
        bench.sql("select 1")
    with pytest.raises(PermissionDenied, match="may not run"):
        open_bench(policy={"sql_query": "deny"}).export("select 1", "x.csv")


# -- the executor


def call(made: LocalExecutor, name: str, caller: Any = "model", **arguments: Any) -> ToolResult:
    return made.call(ToolCall(tool=name, arguments=arguments, caller=caller))


def code(result: ToolResult) -> str | None:
    return result.error.code if result.error else None


def test_a_tool_cannot_make_itself_a_person() -> None:
    made: list[LocalExecutor] = []

    @tool(destructive=False)
    async def forge(caller: Caller, *, ctx: Context) -> str | None:
        """Call as somebody else."""
        assert ctx.perform is not None
        return code(await ctx.perform(ToolCall(tool="wipe", arguments={"what": "all"}, caller=caller)))

    @tool(destructive=False)
    def detour() -> str | None:
        """Call by the way that people use."""
        return code(made[0].call(ToolCall(tool="wipe", arguments={"what": "all"})))

    made.append(LocalExecutor([wipe, forge, detour]))
    for caller in ("python", "magic", "cli"):
        asked = ToolCall(tool="forge", arguments={"caller": caller}, caller="model")
        assert made[0].call(asked).data == "APPROVAL_DENIED"
    assert call(made[0], "detour").data == "APPROVAL_DENIED"
    assert call(made[0], "detour", caller="python").data is None
    records = made[0].door.recorder.recent()
    outer = next(record for record in records if record.tool == "detour" and record.caller == "model")
    inner = next(record for record in records if record.parent_id == outer.call_id)
    assert (inner.caller, inner.code, inner.run_id) == ("model", "APPROVAL_DENIED", outer.run_id)
    assert len({record.run_id for record in records}) == 1


def test_an_unknown_caller_is_refused() -> None:
    assert code(call(LocalExecutor([wipe]), "wipe", caller="persn", what="all")) == "INVALID_ARGUMENTS"


@pytest.mark.parametrize("answer", [None, False, True, 1, "yes", "always", object(), ["once"], {}])
def test_an_approver_that_says_anything_else_says_no(answer: Any) -> None:
    class Odd:
        async def approve(self, request: Any) -> Any:
            return answer

    for approver in (Odd(), AskFunction(lambda _: answer)):
        made = LocalExecutor([wipe], door=Door(approver=approver))
        assert code(call(made, "wipe", what="all")) == (None if answer is True else "APPROVAL_DENIED")


def test_an_approver_cannot_change_what_it_is_shown() -> None:
    def change(request: Any) -> str:
        request.call.arguments["what"] = "more"
        return "once"

    result = call(LocalExecutor([wipe], door=Door(approver=AskFunction(change))), "wipe", what="all")
    assert code(result) == "INTERNAL"


def test_a_result_that_a_tool_makes_itself_is_held_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "plainvalue-abcdef")
    bad = ErrorInfo(code="WHATEVER", message="the key plainvalue-abcdef is wrong")

    @tool(destructive=False)
    def own(kind: str) -> ToolResult:
        """Return a result."""
        kinds: dict[str, dict[str, Any]] = {
            "secret": {"ok": True, "data": {"a": "plainvalue-abcdef"}, "text": "plainvalue-abcdef"},
            "large": {"ok": True, "data": "x" * 5_000},
            "odd": {"ok": True, "data": {"a": object()}},
            "failed": {"ok": False},
            "both": {"ok": True, "error": bad},
        }
        return ToolResult(tool="?", call_id="?", **kinds[kind])

    made = LocalExecutor([own], door=Door(limits=CallLimits(output_bytes=1_000)))
    results = {kind: call(made, "own", kind=kind) for kind in ("secret", "large", "odd", "failed", "both")}
    assert (results["secret"].data, results["secret"].text) == ({"a": "***"}, "***")
    assert code(results["large"]) == "LIMIT_EXCEEDED"
    assert {code(results[kind]) for kind in ("odd", "failed", "both")} == {"INTERNAL"}
    assert results["both"].ok is False
    assert "plainvalue" not in str(results["both"])
    assert {result.tool for result in results.values()} == {"own"}


def test_a_tool_whose_failures_are_to_end_things_raises_them() -> None:
    @tool(on_error="fail", destructive=False)
    def fail() -> None:
        """Fail."""
        raise ExecutionFailed("it broke")

    made = LocalExecutor([fail], door=Door(approver=Nobody()))
    with pytest.raises(ExecutionFailed, match="it broke"):
        call(made, "fail")
    assert [record.code for record in made.door.recorder.recent()] == ["EXECUTION_FAILED"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calculator", {"expression": nested(5_000)}),
        ("memory_save", {"key": "k", "value": nested(5_000)}),
        ("sql_query", {"query": "select 1", "params": nested(5_000)}),
        ("http_client", {"method": "GET", "url": "http://example.org", "headers": nested(5_000)}),
        ("http_client", {"method": "GET", "url": "http://a/\ud800"}),
        ("web_scrape", {"url": "\ud800"}),
    ],
)
def test_arguments_that_nothing_can_hold_are_wrong_and_no_fault(
    open_bench: Any, name: str, arguments: dict[str, Any]
) -> None:
    assert code(open_bench().call(name, arguments, caller="model")) == "INVALID_ARGUMENTS"
