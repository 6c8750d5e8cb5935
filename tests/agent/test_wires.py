"""The real clients of the providers against stand-ins on loopback: what is said, called, and what goes wrong."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.agent import AgentRun
from nbtools.agent.models.choice import choose_model
from nbtools.agent.models.requests import RepeatedRequests, WholeAnswers
from nbtools.agent.records.events import BudgetReached, TextDelta
from tests.agent.conftest import add_line, look
from tests.agent.stand_ins import WIRES, Answer, StandIn, stand_in
from tests.conftest import free_port, wait_until

pytestmark = [pytest.mark.in_memory, pytest.mark.processes]

LOOK = Answer(text="I look.", calls=[("look", '{"name": "penguins"}')])
SEEN = Answer(text="I saw penguins.")
KEY = "sk-secret-of-the-test"
Bench = Callable[[StandIn], Workbench]
Serve = Callable[..., StandIn]


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """The name of a protocol."""
    return str(request.param)


@pytest.fixture(params=[True, False], ids=["streaming", "plain"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether answers come piece by piece."""
    return bool(request.param)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, StandIn]]:
    """A stand-in for each protocol."""
    with contextlib.ExitStack() as stack:
        yield {wire: stack.enter_context(stand_in(wire)) for wire in WIRES}


@pytest.fixture
def serve(servers: dict[str, StandIn]) -> Serve:
    """Let the stand-in of a protocol give these answers, and know of no request yet."""

    def begin(wire: str, *answers: Answer) -> StandIn:
        server = servers[wire]
        server.answers = list(answers)
        server.requests.clear()
        return server

    return begin


def _settings(server: StandIn, stream: bool) -> dict[str, Any]:
    at = {"base_url": server.url, "api_key": KEY, "stream": stream, "retry_wait": 0.001}
    return {"models": {"m": {"model": f"{server.wire}:m", **at}}, "model": "m"}


@pytest.fixture(scope="module")
def benches(quick_folders: Callable[[str], Path]) -> Iterator[Callable[[StandIn, bool], Workbench]]:
    """Return a function that opens a workbench for each protocol and way, once."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def open_one(server: StandIn, stream: bool) -> Workbench:
            folder = quick_folders("bench")
            given: dict[str, Any] = {"home": folder / "home", "memory_url": ":memory:", "allowed_paths": [folder]}
            made = Workbench(**given, tools=(look, add_line), **_settings(server, stream))
            return stack.enter_context(made)

        yield open_one


@pytest.fixture
def bench_at(benches: Callable[[StandIn, bool], Workbench], request: pytest.FixtureRequest) -> Bench:
    """Return the workbench whose model is at a stand-in."""
    stream = bool(request.getfixturevalue("stream")) if "stream" in request.fixturenames else True
    return lambda server: benches(server, stream)


def _codes(run: AgentRun) -> list[str]:
    return [call.result.error.code for call in run.calls if call.result.error]


def test_the_same_prompt_works_on_every_wire(serve: Serve, bench_at: Bench, wire: str, stream: bool) -> None:
    server = serve(wire, LOOK, SEEN)
    run = bench_at(server).agent("Look!")
    assert (run.state, run.text, run.label) == ("done", "I saw penguins.", ""), run
    assert [call.sent for call in run.calls] == ["saw penguins"]
    pieces = [event.text for event in run if isinstance(event, TextDelta)]
    assert pieces == (["I l", "ook.", "I saw p", "enguins."] if stream else ["I look.", "I saw penguins."])
    assert (run.usage["input_tokens"], run.usage["output_tokens"]) == (20, 10)
    assert len(server.requests) == 2
    assert b"saw penguins" in server.requests[1]
    assert b"artifact_read" in server.requests[0]
    assert KEY not in str(run)
    asks_for_pieces = [b'"stream": true' in body or b'"stream":true' in body for body in server.requests]
    assert wire == "gemini" or asks_for_pieces == [stream] * 2  # whose address says it


def _results_on_the_wire(body: bytes) -> list[str]:
    """Return the texts of results as they stand in a request."""
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                visit(each)
        elif isinstance(node, dict):
            if node.get("type") == "function_call_output":
                found.append(node["output"])
            elif node.get("role") == "tool":
                found.append(node["content"])
            elif node.get("type") == "tool_result":
                found.extend(part["text"] for part in node["content"])
            elif "functionResponse" in node:
                found.append(node["functionResponse"]["response"]["return_value"])
            for each in node.values():
                visit(each)

    visit(json.loads(body))
    return found


def test_a_text_goes_to_every_wire_as_it_is(serve: Serve, bench_at: Bench, wire: str) -> None:
    name = 'a "quoted" name\nof two lines'
    server = serve(wire, Answer(calls=[("look", json.dumps({"name": name}))]), SEEN)
    bench_at(server).agent("Look!")
    assert _results_on_the_wire(server.requests[1]) == [f"saw {name}"]


def test_anthropic_gets_its_own_definition_of_the_memory_tool_and_ours_performs_it(
    serve: Serve, bench_at: Bench, stream: bool
) -> None:
    asked = '{"command": "create", "path": "/memories/a.md", "file_text": "penguins"}'
    server = serve("anthropic", Answer(calls=[("memory", asked)]), SEEN)
    run = bench_at(server).agent("Look!")
    tools = {tool["name"]: tool for tool in json.loads(server.requests[0])["tools"]}
    assert tools["memory"]["type"] == "memory_20250818"
    assert "input_schema" not in tools["memory"]
    assert [(call.tool, call.result.ok) for call in run.calls] == [("memory", True)], run
    server = serve("openai-chat", SEEN)
    bench_at(server).agent("Look!", tools=["memory"])
    tools = {tool["function"]["name"]: tool for tool in json.loads(server.requests[0])["tools"]}
    assert "command" in tools["memory"]["function"]["parameters"]["properties"]


# -- what a model does wrong -------------------------------------------------------------------------------------------


def test_parallel_calls_and_calls_with_the_same_id_are_all_answered(
    serve: Serve, bench_at: Bench, wire: str, stream: bool
) -> None:
    calls = [("look", '{"name": "a"}'), ("look", '{"name": "b"}'), ("add_line", '{"text": "c"}')]
    server = serve(wire, Answer(calls=calls), SEEN)
    run = bench_at(server).agent("Look!")
    assert run.state == "done", run
    assert sorted(call.sent for call in run.calls) == ["added c", "saw a", "saw b"]


def test_an_id_that_is_used_again_names_another_call(
    serve: Serve, bench_at: Bench, wire: str, stream: bool, done: list[str]
) -> None:
    one, two = (Answer(calls=[("add_line", json.dumps({"text": text}))], same_ids=True) for text in "ab")
    twice = Answer(calls=[("add_line", '{"text": "c"}'), ("add_line", '{"text": "d"}')], same_ids=True)
    server = serve(wire, one, two, twice, SEEN, SEEN)
    run = bench_at(server).agent("Look!")
    assert (run.state, done[:2], sorted(done[2:])) == ("done", ["a", "b"], ["c", "d"]), run


def test_broken_arguments_are_told_to_the_model(serve: Serve, bench_at: Bench, wire: str, stream: bool) -> None:
    if wire == "gemini" or (wire == "anthropic" and not stream):
        pytest.skip("this protocol has no text of arguments that could be broken")
    server = serve(wire, Answer(calls=[("look", '{"name": "pen')]), SEEN)
    run = bench_at(server).agent("Look!")
    assert (run.state, _codes(run)) == ("done", ["INVALID_ARGUMENTS"]), run
    assert b"the arguments are not JSON" in server.requests[1]


def test_wrong_arguments_and_unknown_tools_are_told_to_the_model(
    serve: Serve, bench_at: Bench, wire: str, stream: bool
) -> None:
    wrong = [("look", '{"name": [1]}'), ("look", '{"nme": "a"}'), ("rm_rf", '{"path": "/"}')]
    server = serve(wire, *[Answer(calls=[call]) for call in wrong], SEEN)
    run = bench_at(server).agent("Look!")
    assert (run.state, _codes(run)) == ("done", [*["INVALID_ARGUMENTS"] * 2, "TOOL_NOT_FOUND"]), run
    assert b"rm_rf" in server.requests[3]
    assert b"nme" in server.requests[2]


def test_a_model_that_calls_for_ever_ends_at_its_steps(serve: Serve, bench_at: Bench, wire: str, stream: bool) -> None:
    server = serve(wire, *[LOOK] * 9)
    bench = bench_at(server)
    run = bench.agent("Look!", budgets={"steps": 5})
    assert (run.state, run.usage["steps"], len(server.requests)) == ("budget", 5, 5), run
    assert [event.budget for event in run if isinstance(event, BudgetReached)] == ["steps"]


def test_an_empty_answer_is_asked_for_again_and_then_ends_the_run(
    serve: Serve, bench_at: Bench, wire: str, stream: bool
) -> None:
    server = serve(wire, Answer(), SEEN)
    assert bench_at(server).agent("Look!").text == "I saw penguins."
    server = serve(wire, *[Answer()] * 9)
    run = bench_at(server).agent("Look!")
    assert run.state == "incomplete"
    assert run.error is not None
    assert (run.error.code, len(server.requests)) == ("EXECUTION_FAILED", 4), run


# -- what goes wrong on the way ----------------------------------------------------------------------------------------


def test_what_passes_is_tried_again(serve: Serve, bench_at: Bench, wire: str, stream: bool) -> None:
    server = serve(wire, *[Answer(status=status) for status in (429, 500, 503)], SEEN)
    run = bench_at(server).agent("Look!")
    assert (run.state, run.text, len(server.requests)) == ("done", "I saw penguins.", 4), run


# What a server asks to wait, and from how many to how many seconds are waited each time; none ends the run.
_WAITS: dict[str, list[tuple[float, float]]] = {
    "": [(0.375, 0.625), (0.75, 1.25), (1.5, 2.5)],
    "3": [(3, 3)] * 3,
    "61": [],
    "soon": [(0.375, 0.625)],
}


def test_it_waits_as_long_as_the_server_says(open_bench: Any, wire: str, stream: bool) -> None:
    bench = open_bench()
    for asked, waits in _WAITS.items():
        waited, run = _run_waiting(bench, wire, stream, asked, max(len(waits), 1))
        assert len(waited) == len(waits), waited
        assert all(low <= seconds <= high for seconds, (low, high) in zip(waited, waits, strict=True)), waited
        assert run.state == ("done" if waits else "failed"), run
        if not waits:
            assert run.error is not None
            assert "61 s" in str(run.error.hint)


def _run_waiting(bench: Workbench, wire: str, stream: bool, asked: str, faults: int) -> tuple[list[float], AgentRun]:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with stand_in(wire, *[Answer(status=429, retry_after=asked)] * faults, SEEN) as server:
        choice = choose_model("m", {"m": {"model": f"{wire}:m", "base_url": server.url}})
        model: Any = RepeatedRequests(choice.build().wrapped, sleep=sleep)
        return waited, bench.agent("Look!", model=model if stream else WholeAnswers(model))


# What a server answers until the run ends; the error's code, and words of it.
_REFUSALS = [
    ((401,), "CONFIG_MISSING", "refused the key"),
    ((404,), "INVALID_ARGUMENTS", "does not know"),
    ((400,), "HTTP_ERROR", "did not answer"),
    *(((429, 500, 503, last), "HTTP_ERROR", "did not answer") for last in (429, 500, 503)),
]


def test_a_refusal_ends_the_run_and_says_why(serve: Serve, bench_at: Bench, wire: str) -> None:
    server = serve(wire)
    bench = bench_at(server)
    for statuses, code, told in _REFUSALS:
        server.requests.clear()
        server.answers = [*(Answer(status=status) for status in statuses), SEEN]
        run = bench.agent("Look!")
        assert run.state == "failed"
        assert run.error is not None
        assert (run.error.code, run.error.retryable) == (code, len(statuses) > 1)
        assert told in run.error.message
        assert KEY not in repr(run)
        assert len(server.requests) == len(statuses)


def test_an_answer_that_is_cut_fails_and_can_be_resumed(serve: Serve, bench_at: Bench, wire: str, stream: bool) -> None:
    cut = Answer(text="I saw many penguins, and also", cut=True)
    server = serve(wire, LOOK, *[cut] * (1 if stream else 4), SEEN)
    bench = bench_at(server)
    before = {call["call_id"] for call in bench.call_records()}
    run = bench.agent("Look!")
    assert (run.state, run.text[:10]) == (("incomplete", "I saw many") if stream else ("failed", "I look.")), run
    assert run.error is not None
    assert (run.error.code, "broke off" in run.error.message) == ("NETWORK_ERROR", True), run
    again = bench.agent.resume(run)
    assert (again.state, again.text) == ("done", "I saw penguins."), again
    assert [call["tool"] for call in bench.call_records() if call["call_id"] not in before] == ["look"]


def test_an_answer_that_is_no_json_ends_in_an_error_that_says_so(
    serve: Serve, bench_at: Bench, wire: str, stream: bool
) -> None:
    server = serve(wire, *[Answer(text="a long text", junk=True)] * 6)
    run = bench_at(server).agent("Look!")
    assert run.state in {"failed", "incomplete"}, run
    assert run.error is not None
    assert run.error.code in {"EXECUTION_FAILED", "HTTP_ERROR", "NETWORK_ERROR"}, run


def test_no_server_is_told_and_nothing_hangs(open_bench: Any, wire: str, stream: bool) -> None:
    with stand_in(wire) as server:
        server.server_port = free_port()  # another test might get the one that it had
    begun = time.monotonic()
    run = open_bench(**_settings(server, stream)).agent("Look!")
    assert run.state == "failed"
    assert run.error is not None
    assert run.error.code == "NETWORK_ERROR", run
    assert time.monotonic() - begun < 60


def test_stop_while_a_model_is_waited_for_ends_the_run_at_once(serve: Serve, bench_at: Bench, wire: str) -> None:
    server = serve(wire, Answer(status=429, retry_after="30"), SEEN)
    bench = bench_at(server)
    run = bench.agent.start("Look!")
    wait_until(lambda: server.requests)
    begun = time.monotonic()
    run.cancel()
    assert run.wait(20).state == "cancelled"
    assert time.monotonic() - begun < 20, "the server asks for 30 s"
    assert bench.agent("Go on.", after=run).text == "I saw penguins."


def test_numbers_that_json_has_not_end_no_run(serve: Serve, bench_at: Bench, wire: str, stream: bool) -> None:
    server = serve(wire, Answer(calls=[("look", '{"name": NaN, "fail": 1e999}')]), SEEN)
    bench = bench_at(server)
    run = bench.agent("Look!")
    assert (run.state, _codes(run)) == ("done", ["INVALID_ARGUMENTS"]), run
    assert bench.agent.log(run.run_id)[-1]["kind"] == "run_ended"
