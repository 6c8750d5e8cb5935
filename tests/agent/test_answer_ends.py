"""How answers end, on every wire, by the real clients of the providers against stand-ins on loopback.

The matrix is generated: a stream stops after each of its events, tidily and in the middle of its body, and a whole
answer is cut at each eighth. What is not whole is never taken for an answer, and no call of it is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench, tool
from nbtools.agent import AgentRun
from nbtools.agent.records.events import TextDelta
from tests.agent.stand_ins import ENDS, STREAMS, WIRES, Answer, StandIn, stand_in

pytestmark = [pytest.mark.in_memory, pytest.mark.processes]

KEY = "sk-secret-of-the-test"
TEXT = Answer(text="It rose by 12 in March but fell by 30 in April.")
CALL = Answer(text="I add it.", calls=[("add_line", '{"text": "half a call"}')])
SEEN = Answer(text="I saw penguins.")
# The event of each stream that says why the answer ended.
SAYS_END = {
    "openai-chat": '"finish_reason": "',
    "openai": '"type": "response.completed"',
    "anthropic": '"type": "message_delta"',
    "gemini": '"finishReason"',
}
ADDED: list[str] = []
Ask = Callable[..., AgentRun]


@tool
def add_line(text: str) -> str:
    """Add a line.

    Parameters
    ----------
    text
        The line.
    """
    ADDED.append(text)
    return f"added {text}"


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, StandIn]]:
    """A stand-in for each protocol."""
    with contextlib.ExitStack() as stack:
        yield {wire: stack.enter_context(stand_in(wire)) for wire in WIRES}


@pytest.fixture(scope="module")
def bench(servers: dict[str, StandIn], quick_folders: Callable[[str], Path]) -> Iterator[Workbench]:
    """A workbench with a model of each protocol, piece by piece and whole."""
    folder = quick_folders("ends")
    models = {
        f"{wire}-{how}": {"model": f"{wire}:m", "base_url": server.url, "api_key": KEY, "stream": how == "streaming"}
        | {"retry_wait": 0.001}
        for wire, server in servers.items()
        for how in ("streaming", "plain")
    }
    with Workbench(
        home=folder / "home", memory_url=":memory:", allowed_paths=[folder], tools=[add_line], models=models,
        policy={"add_line": "allow"},
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def ask(bench: Workbench, servers: dict[str, StandIn]) -> Ask:
    """Ask the model of a protocol, which gives these answers."""
    ADDED.clear()

    def ask_once(wire: str, how: str, *answers: Answer, **settings: Any) -> AgentRun:
        servers[wire].answers[:] = answers
        return bench.agent("Look!", model=f"{wire}-{how}", **settings)

    return ask_once


def _text(run: AgentRun) -> str:
    return "".join(event.text for event in run.events if isinstance(event, TextDelta))


@pytest.mark.processes
@pytest.mark.parametrize("tidy", [True, False], ids=["tidy", "torn"])
@pytest.mark.parametrize("wire", [*(pytest.param(wire, marks=pytest.mark.slow) for wire in WIRES[:2]), *WIRES[2:]])
def test_a_stream_that_stops_after_any_event_is_no_answer(
    bench: Workbench, servers: dict[str, StandIn], ask: Ask, wire: str, tidy: bool
) -> None:
    for answer in (TEXT, CALL):
        events = list(STREAMS[wire](answer, 1))
        says_end = next(number for number, event in enumerate(events) if SAYS_END[wire] in event)
        # What was torn before it began is asked for again at once.
        for number in range(len(events)) if tidy else range(1, len(events) - 1):
            ADDED.clear()
            run = ask(wire, "streaming", dataclasses.replace(answer, events=number, tidy=tidy), *[SEEN] * 3)
            where = f"{wire}, {number} of {len(events)} events: {run}"
            if tidy and number > says_end:
                assert run.state == "done", where
                continue
            assert run.state in ({"incomplete"} if number else {"incomplete", "failed"}), where
            assert ADDED == [], where
            assert run.error is not None, where
            assert (run.error.code, number) in {("NETWORK_ERROR", number), ("EXECUTION_FAILED", 0)}, where
            assert run.text == _text(run), where
            assert len(run.error.message) < 300, where
            if number == says_end - 1:  # the longest that is not an answer
                again = bench.agent.resume(run)
                assert (again.state, again.text) == ("done", "I saw penguins."), where


@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_answer_that_is_cut_anywhere_is_no_answer(ask: Ask, wire: str) -> None:
    for answer in (TEXT, CALL):
        run = ask(wire, "plain", *[dataclasses.replace(answer, cut=True)] * 4, SEEN)
        assert run.state == "failed", run
        assert run.error is not None
        assert (run.error.code, ADDED) == ("NETWORK_ERROR", []), run


@pytest.mark.parametrize("how", ["streaming", "plain"])
@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_at_its_longest_is_incomplete_and_goes_on(
    bench: Workbench, servers: dict[str, StandIn], ask: Ask, wire: str, how: str
) -> None:
    cut = dataclasses.replace(TEXT, text="One, two,", end="length")
    run = ask(wire, how, cut, Answer(text=" three."))
    assert (run.state, run.text) == ("incomplete", "One, two,"), run
    assert run.error is not None
    assert (run.error.code, ENDS[wire]["length"] in run.error.message) == ("LIMIT_EXCEEDED", True), run
    again = bench.agent.resume(run)
    assert (again.state, again.text) == ("done", "One, two, three."), again
    assert b"Go on exactly where it stopped" in servers[wire].requests[-1]
    run = ask(wire, how, dataclasses.replace(CALL, end="length"), SEEN)
    assert (run.state, ADDED) == ("incomplete", []), run
    assert bench.agent.resume(run).text == "I add it.I saw penguins."
    assert ADDED == []


@pytest.mark.parametrize("how", ["streaming", "plain"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_refusal_is_told_in_a_sentence(bench: Workbench, ask: Ask, wire: str, how: str) -> None:
    said = Answer(refusal="I cannot help with that.") if "openai" in wire else Answer(end="filter")
    why = "I cannot help with that" if "openai" in wire else "SAFETY" if wire == "gemini" else ""
    for answer, text in ((said, ""), (Answer(text="Sure, here is", end="filter"), "Sure, here is")):
        run = ask(wire, how, answer, SEEN)
        assert (run.state, run.text) == ("refused", text), run
        assert run.error is not None
        told = run.error.message
        assert (run.error.code, "refused to answer" in told, "\n" in told) == ("EXECUTION_FAILED", True, False), run
        assert len(told) < 100, told
        assert text or why in told, told
        assert bench.agent.resume(run).text == "I saw penguins."


@pytest.mark.parametrize("wire", WIRES)
def test_a_workflow_takes_a_cut_answer_where_it_says_so_alone(
    bench: Workbench, servers: dict[str, StandIn], tmp_path: Path, wire: str
) -> None:
    flow = "version: 1\nname: f\nnodes: [{{id: a, prompt: Count, model: {wire}-streaming{more}}}]\n"
    flow += "outputs: {{t: '${{nodes.a.text}}'}}\n"
    for more, state, outputs in (("", "failed", {}), (", accept: incomplete", "ok", {"t": "One, two,"})):
        servers[wire].answers[:] = [Answer(text="One, two,", end="length")]
        run = bench.workflows.run(flow.format(wire=wire, more=more))
        assert (run.state, dict(run.outputs or {})) == (state, outputs), run
        assert more or "accept: incomplete" in str(run.error), run


@pytest.mark.parametrize("wire", WIRES)
def test_a_used_up_budget_makes_no_further_call(
    bench: Workbench, servers: dict[str, StandIn], ask: Ask, wire: str
) -> None:
    run = ask(wire, "streaming", CALL, SEEN, budgets={"tokens": 10})
    assert (run.state, ADDED, [call.tool for call in run.calls]) == ("budget", [], []), run
    again = bench.agent.resume(run)
    assert (again.state, ADDED, len(servers[wire].answers)) == ("budget", [], 1), again
    more = bench.agent.resume(run, budgets={"tokens": 1_000})
    assert (more.state, more.text, ADDED) == ("done", "I saw penguins.", ["half a call"]), more
    last = ask(wire, "streaming", SEEN, budgets={"tokens": 10})
    assert (last.state, last.text) == ("done", "I saw penguins."), "the answer is there"


@pytest.mark.parametrize("wire", WIRES)
def test_what_a_provider_says_is_told_as_a_sentence_without_the_key(ask: Ask, wire: str) -> None:
    for status in (400, 401, 404, 418, 529):
        run = ask(wire, "plain", *[Answer(status=status, refusal=f"the key {KEY} is over its quota")] * 4)
        assert run.error is not None
        told = run.error.message
        assert f"status {status}, the key *** is over its quota" in told, told
        assert not {"{", "'"} & set(told), told
