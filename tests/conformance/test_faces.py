"""Whoever is asked for a call sees all its arguments, declared or not, and what it would change: in every face."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import AskFunction, AskTerminal
from nbtools.contract.consequence import Consequence
from nbtools.contract.prepared import prepare
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Context, Effects, Tool, ToolCall
from nbtools.ground import aio
from tests.conftest import wait_until

GIVEN = {"room": "attic", "also_the_cellar": True}
SCRIPT = json.dumps({"turns": [{"calls": [{"tool": "sweep", "arguments": GIVEN}]}, {"say": "Done."}]}) + "\n"
# An argument that the tool does not declare, the tool's own words, and a line of the difference.
WANTED = ("attic", "also_the_cellar", "three boxes are thrown away", "the letters")
RAN: list[Mapping[str, Any]] = []


def _sweep(**arguments: Any) -> str:
    RAN.append(arguments)
    return "swept"


def _thrown_away(values: Mapping[str, Any], ctx: Context) -> Iterator[Consequence]:
    yield Consequence("three boxes are thrown away", f"-the letters of the {values['room']}")


SWEEP = Tool(
    name="sweep",
    function=_sweep,
    parameters=SchemaParameters({"type": "object", "properties": {"room": {"type": "string"}}}),
    effects=Effects(destructive=True),
    consequences_of=_thrown_away,
    about="Sweep a room.",
)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    RAN.clear()
    how: dict[str, Any] = {"policy": {"sweep": "ask"}, "memory_url": ":memory:", "allowed_paths": [tmp_path]}
    with Workbench(home=tmp_path / "home", tools=[SWEEP], **how) as made:
        yield made


def _call(bench: Workbench) -> None:
    aio.run(bench.executor.acall(ToolCall(tool="sweep", arguments=GIVEN, caller="model")))


def _terminal(bench: Workbench) -> str:
    out = io.StringIO()
    bench.door.approver = AskTerminal(reader=lambda _: "n", out=out)
    _call(bench)
    return out.getvalue()


def _requested(bench: Workbench) -> ApprovalRequest:
    asked: list[ApprovalRequest] = []
    bench.door.approver = AskFunction(lambda request: asked.append(request) or False)
    _call(bench)
    return asked[0]


def _card(bench: Workbench) -> str:
    from nbtools.widgets.approval_card import ApprovalCard
    from nbtools.widgets.forms.proposals import Proposal

    return json.dumps(ApprovalCard(Proposal.of_request(_requested(bench))).proposal, ensure_ascii=False)


def _saved_card(bench: Workbench) -> str:
    from nbtools.widgets.approval_card import ApprovalCard
    from nbtools.widgets.forms.proposals import Proposal

    return ApprovalCard(Proposal.of_request(_requested(bench))).plain_text()


def _chat(bench: Workbench) -> str:
    pytest.importorskip("pydantic_ai")
    from nbtools.widgets.live.live_widget import ViewRequest

    chat = bench.chat(script=SCRIPT)
    chat.answer_send(ViewRequest("send", {"text": "Sweep!"}, print))
    wait_until(lambda: any(item.get("state") == "asking" for item in chat.items))
    shown = next(item["asked"] for item in chat.items if item["kind"] == "approval")
    chat.answer_decide(ViewRequest("decide", {"id": _key(chat), "answer": "no", "edited": {}}, print))
    wait_until(lambda: chat.state == "idle")
    return json.dumps(shown, ensure_ascii=False)


def _key(chat: Any) -> str:
    return str(next(item["id"] for item in chat.items if item["kind"] == "approval"))


def _pending(bench: Workbench) -> Any:
    pytest.importorskip("pydantic_ai")
    return bench.agent("Sweep!", script=SCRIPT, approver=AskFunction(lambda _: "later"))  # type: ignore[arg-type,return-value]


def _deferred(bench: Workbench) -> str:
    return str(_pending(bench).pending[0].text)


def _deferred_whole(bench: Workbench) -> str:
    return str(_pending(bench).pending[0].whole)


def _deferred_card(bench: Workbench) -> str:
    card = bench.pending_card(_pending(bench))
    return json.dumps(next(item["asked"] for item in card.items if item["kind"] == "approval"), ensure_ascii=False)


def _runs_event(bench: Workbench) -> str:
    run = bench.agent.get(_pending(bench).run_id)
    return json.dumps(next(e.to_dict()["parts"] for e in run if e.kind == "approval_asked")) + str(run.pending)


def _workflow(bench: Workbench) -> str:
    steps = [{"id": "out", "tool": "sweep", "args": GIVEN}]
    Path("w.yaml").write_text(json.dumps({"name": "w", "version": 1, "nodes": steps}))
    from nbtools.cli.runs import _Later, _questions

    bench.door.approver = _Later()
    return "\n".join(_questions(bench.workflows.show(bench.workflows.run("w.yaml", wait_s=0).run_id)))


def _over_mcp(bench: Workbench, mode: str) -> str:
    pytest.importorskip("mcp")
    from mcp import types
    from mcp.client.client import Client

    from nbtools.mcp_server import make_server

    asked: list[str] = []

    async def answer(_: Any, params: Any) -> Any:
        asked.append(params.message)
        return types.ElicitResult(action="decline")

    async def work() -> None:
        async with Client(make_server(bench), mode=mode, elicitation_callback=answer) as client:
            await client.call_tool("sweep", GIVEN)

    aio.run(work(), timeout=60)
    return asked[0]


FACES: Mapping[str, Callable[[Workbench], str]] = {
    "terminal": _terminal,
    "card": _card,
    "saved card": _saved_card,
    "chat": _chat,
    "deferred": _deferred,
    "deferred, whole": _deferred_whole,
    "deferred card": _deferred_card,
    "events of a run": _runs_event,
    "question of a workflow": _workflow,
    "MCP": lambda bench: _over_mcp(bench, "auto"),
    "MCP, older": lambda bench: _over_mcp(bench, "legacy"),
}


@pytest.mark.parametrize("face", FACES)
def test_all_arguments_and_the_consequence_are_shown(bench: Workbench, face: str) -> None:
    shown = FACES[face](bench)
    assert [word for word in WANTED if word not in shown] == []
    assert RAN == []


def test_the_record_of_a_yes_tells_what_it_was_given_for(bench: Workbench) -> None:
    bench.door.approver = AskFunction(lambda _: True)
    _call(bench)
    assert RAN == [GIVEN]
    approval = bench.call_records()[0]["approval"]
    assert (approval["proposed"], approval["parts"]) == (GIVEN, ["three boxes are thrown away"])


def test_an_undeclared_argument_can_be_changed_and_taken_away_in_a_card(bench: Workbench) -> None:
    from nbtools.widgets.forms.proposals import Proposal

    proposal = Proposal.of_request(_requested(bench))
    assert proposal.reply("once", {"also_the_cellar": "false"}, "", "me").arguments == {
        "room": "attic",
        "also_the_cellar": False,
    }
    assert proposal.reply("once", {"also_the_cellar": ""}, "", "me").arguments == {"room": "attic"}


def test_a_consequence_that_cannot_be_told_is_said_and_the_hosts_are_named() -> None:
    def broken(values: Mapping[str, Any], ctx: Context) -> Iterator[Consequence]:
        raise ValueError(values)

    odd = dataclasses.replace(SWEEP, effects=Effects(destructive=True, open_world=True), consequences_of=broken)
    call = ToolCall(tool="sweep", arguments={"to": "https://example.org/a"}, caller="model")
    text = aio.run(ApprovalRequest.of(aio.run(prepare(odd, call)), {}, "by default")).text()
    assert "→ what it would change is not known: ValueError" in text
    assert "→ reaches example.org" in text
