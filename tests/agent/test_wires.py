"""The real clients of the providers against stand-ins on loopback: what is said, called, and what goes wrong."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.agent import AgentRun
from nbtools.agent.records.events import TextDelta
from tests.agent.stand_ins import WIRES, Answer, StandIn, stand_in

LOOK = Answer(text="I look.", calls=[("look", '{"name": "penguins"}')])
SEEN = Answer(text="I saw penguins.")


def _run(open_bench: Any, server: StandIn, **settings: Any) -> AgentRun:
    models = {"m": {"model": f"{server.wire}:m", "base_url": server.url, "api_key": "sk-secret-of-the-test"}}
    bench: Workbench = open_bench(models=models, model="m")
    return bench.agent("Look!", **settings)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """The name of a protocol."""
    return str(request.param)


def test_the_same_prompt_works_on_every_wire_streaming(open_bench: Any, wire: str) -> None:
    with stand_in(wire, LOOK, SEEN) as server:
        run = _run(open_bench, server)
    assert (run.status, run.text, run.label) == ("done", "I saw penguins.", ""), run
    assert [call.sent for call in run.calls] == ["saw penguins"]
    assert [event.text for event in run if isinstance(event, TextDelta)] == ["I l", "ook.", "I saw p", "enguins."]
    assert (run.usage["input_tokens"], run.usage["output_tokens"]) == (20, 10)
    assert len(server.requests) == 2
    assert b"saw penguins" in server.requests[1]
    assert b"artifact_read" in server.requests[0]
    assert "sk-secret-of-the-test" not in str(run)


def test_whole_answers_work_on_every_wire_too(open_bench: Any, wire: str) -> None:
    with stand_in(wire, Answer(status=429, retry_after="0.05"), LOOK, SEEN, Answer(text="x", junk=True)) as server:
        models = {"m": {"model": f"{wire}:m", "base_url": server.url, "api_key": "x", "stream": False}}
        bench = open_bench(models=models, model="m")
        run = bench.agent("Look!")
        assert (run.status, run.text, run.usage["input_tokens"]) == ("done", "I saw penguins.", 20), run
        assert [call.sent for call in run.calls] == ["saw penguins"]
        assert "".join(event.text for event in run if isinstance(event, TextDelta)) == "I look.I saw penguins."
        assert not any(b'"stream": true' in body or b'"stream":true' in body for body in server.requests)
        assert bench.agent("Look!").status == "failed"


def test_anthropic_gets_its_own_definition_of_the_memory_tool_and_ours_performs_it(open_bench: Any) -> None:
    asked = '{"command": "create", "path": "/memories/a.md", "file_text": "penguins"}'
    with stand_in("anthropic", Answer(calls=[("memory", asked)]), SEEN) as server:
        run = _run(open_bench, server)
        tools = {tool["name"]: tool for tool in json.loads(server.requests[0])["tools"]}
    assert tools["memory"]["type"] == "memory_20250818"
    assert "input_schema" not in tools["memory"]
    assert [(call.tool, call.result.ok) for call in run.calls] == [("memory", True)], run
    with stand_in("openai-chat", SEEN) as server:
        _run(open_bench, server)
        tools = {tool["function"]["name"]: tool for tool in json.loads(server.requests[0])["tools"]}
    assert "command" in tools["memory"]["function"]["parameters"]["properties"]


def test_parallel_calls_and_calls_with_the_same_id_are_all_answered(open_bench: Any, wire: str) -> None:
    calls = [("look", '{"name": "a"}'), ("look", '{"name": "b"}'), ("add_line", '{"text": "c"}')]
    with stand_in(wire, Answer(calls=calls), SEEN) as server:
        run = _run(open_bench, server)
    assert run.status == "done", run
    assert sorted(call.sent for call in run.calls) == ["added c", "saw a", "saw b"]


def test_a_call_with_broken_arguments_is_told_to_the_model(open_bench: Any, wire: str) -> None:
    if wire == "gemini":
        pytest.skip("Gemini's protocol has no text of arguments that could be broken")
    with stand_in(wire, Answer(calls=[("look", '{"name": "pen')]), SEEN) as server:
        run = _run(open_bench, server)
    assert run.status == "done", run
    assert [call.result.error.code for call in run.calls if call.result.error] == ["INVALID_ARGUMENTS"]
    assert b"no JSON" in server.requests[1]


def test_a_tool_that_was_not_offered_is_told_to_the_model(open_bench: Any, wire: str) -> None:
    with stand_in(wire, Answer(calls=[("rm_rf", '{"path": "/"}')]), SEEN) as server:
        run = _run(open_bench, server)
    assert (run.status, [call.tool for call in run.calls]) == ("done", ["rm_rf"]), run
    assert b"rm_rf" in server.requests[1]


@pytest.mark.parametrize("status", [429, 503])
def test_what_passes_is_tried_again(open_bench: Any, wire: str, status: int) -> None:
    fault = Answer(status=status, retry_after="0.05")
    with stand_in(wire, fault, fault, SEEN) as server:
        run = _run(open_bench, server)
    assert (run.status, run.text) == ("done", "I saw penguins."), run
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (401, "CONFIG_MISSING", "refused the key"),
        (404, "INVALID_ARGUMENTS", "does not know"),
        (400, "HTTP_ERROR", "did not answer"),
        (500, "HTTP_ERROR", "did not answer"),
        (429, "HTTP_ERROR", "did not answer"),
    ],
)
def test_a_refusal_ends_the_run_and_says_why(open_bench: Any, wire: str, status: int, code: str, told: str) -> None:
    with stand_in(wire, *[Answer(status=status, retry_after="0.01")] * 5) as server:
        run = _run(open_bench, server)
        assert run.status == "failed"
        assert run.error is not None
        assert (run.error.code, run.error.retryable) == (code, status in {429, 500})
        assert told in run.error.message
        assert "sk-secret-of-the-test" not in repr(run)


def test_a_stream_that_is_cut_fails_and_can_be_resumed(open_bench: Any, wire: str) -> None:
    with stand_in(wire, LOOK, Answer(text="I saw many penguins, and also", cut=True), SEEN) as server:
        models = {"m": {"model": f"{wire}:m", "base_url": server.url}}
        bench = open_bench(models=models, model="m")
        run = bench.agent("Look!")
        assert run.status == "failed", run
        assert run.error is not None
        again = bench.agent.resume(run)
        assert (again.status, again.text) == ("done", "I saw penguins."), again
        assert len([call for call in bench.call_records() if call["tool"] == "look"]) == 1


def test_no_server_is_told_and_nothing_hangs(open_bench: Any, wire: str) -> None:
    with stand_in(wire) as server:
        pass
    begun = time.monotonic()
    run = _run(open_bench, server)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.code == "NETWORK_ERROR", run
    assert time.monotonic() - begun < 20


def test_an_empty_answer_and_junk_end_in_an_error_that_says_so(open_bench: Any, wire: str) -> None:
    with stand_in(wire, *[Answer()] * 6) as server:
        run = _run(open_bench, server)
        assert run.status in {"failed", "done"}
        assert run.status == "failed" or run.text == ""
    with stand_in(wire, *[Answer(text="a long text", junk=True)] * 6) as server:
        run = _run(open_bench, server)
        assert run.status == "failed", run
        assert run.error is not None
