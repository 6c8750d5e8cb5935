"""Approvals in runs: yes, no, with changes, later; what an answer is bound to; and what is not done twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench, tool
from nbtools.agent.records.events import ApprovalAnswered, ApprovalAsked
from nbtools.errors import ApprovalPending, InvalidArguments
from nbtools.gate import ApprovalRequest, AskFunction, Reply

WIPE = "turns:\n  - {calls: [{tool: wipe, arguments: {name: a}}]}\n  - {when: {ok: true}, say: Gone.}\n  - say: Kept.\n"


def _asking(*answers: Any) -> tuple[AskFunction, list[ApprovalRequest]]:
    left, seen = list(answers), []

    def answer(request: ApprovalRequest) -> Any:
        seen.append(request)
        return left.pop(0)

    return AskFunction(answer), seen


def test_nobody_there_denies_and_the_model_is_told(wb: Workbench, done: list[str]) -> None:
    run = wb.agent("Wipe!", script=WIPE)
    assert (run.status, run.text, done) == ("done", "Kept.", [])
    assert "nobody is here to give it" in run.calls[0].sent


@pytest.mark.parametrize(
    ("answer", "text", "did"),
    [
        ("once", "Gone.", ["wiped a"]),
        (True, "Gone.", ["wiped a"]),
        ("no", "Kept.", []),
        (Reply(answer="no", reason="it is Friday"), "Kept.", []),
        (Reply(answer="once", arguments={"name": "b"}, by="me"), "Gone.", ["wiped b"]),
        (Reply(answer="once", arguments={"nam": "b"}), "Kept.", []),
    ],
)
def test_an_answer_is_followed_told_and_recorded(
    wb: Workbench, done: list[str], answer: Any, text: str, did: list[str]
) -> None:
    approver, asked = _asking(answer)
    run = wb.agent("Wipe!", script=WIPE, approver=approver)
    assert (run.text, done, len(asked)) == (text, did, 1)
    assert [event.tool for event in run if isinstance(event, ApprovalAsked)] == ["wipe"]
    assert len([event for event in run if isinstance(event, ApprovalAnswered)]) == 1
    (call,) = wb.call_records()
    assert call["ok"] == bool(did)
    if isinstance(answer, Reply) and answer.reason:
        assert "it is Friday" in run.calls[0].sent
    if did == ["wiped b"]:
        assert 'It ran with {"name": "b"}' in run.calls[0].sent
        assert call["approval"]["proposed"] == {"name": "a"}
        assert call["approval"]["changed"] == {"name": "b"}
        assert call["approval"]["by"] == "me"


def test_a_grant_holds_for_the_conversation_until_strangers_were_read(wb: Workbench, done: list[str]) -> None:
    wipe = {"tool": "wipe", "arguments": {"name": "a"}}
    turns = [{"calls": [wipe]}, {"calls": [wipe]}, {"calls": [{"tool": "fetch", "arguments": {"address": "x"}}]}]
    script = f"turns: {json.dumps([*turns, {'calls': [wipe]}, {'say': 'Done.'}])}\n"
    approver, asked = _asking("tool", "no")
    run = wb.agent("Wipe!", script=script, approver=approver)
    assert [call.result.ok for call in run.calls] == [True, True, True, False]
    assert len(asked) == 2
    assert done == ["wiped a", "wiped a"]


def test_later_ends_the_run_which_another_process_finishes(open_bench: Any, done: list[str], tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/m.duckdb"
    calls = [{"tool": "add_line", "arguments": {"text": "side"}}, {"tool": "wipe", "arguments": {"name": "a"}}]
    script = f"turns: {json.dumps([{'calls': calls}, {'when': {'tool': 'wipe', 'ok': True}, 'say': 'Gone.'}])}\n"
    first = open_bench(memory_url=url)
    run = first.agent("Wipe!", script=script, approver=_asking("later")[0])
    assert (run.status, done) == ("pending", ["side"])
    with pytest.raises(ApprovalPending, match="waits for approval of wipe"):
        run.raise_for_error()
    (waiting,) = run.pending
    assert waiting.arguments == {"name": "a"}
    first.close()

    second = open_bench(memory_url=url)
    assert second.agent.runs()[0]["state"] == "pending"
    with pytest.raises(InvalidArguments, match="no call 'x' waits"):
        second.agent.resume(run.run_id, {"x": True})
    again = second.agent.resume(run.run_id, {waiting.id: Reply(answer="once", arguments={"name": "b"}, by="terminal")})
    assert (again.status, again.text, done) == ("done", "Gone.", ["side", "wiped b"])
    records = [(call["tool"], call["ok"], call.get("approval")) for call in second.call_records()]
    assert [record[:2] for record in records] == [("wipe", True), ("add_line", True)]
    assert records[0][2]["changed"] == {"name": "b"}
    assert again.run_id == run.run_id
    assert again.usage["tool_calls"] == 3  # the one that waited came to the door twice


def test_a_pending_call_can_be_refused_or_put_off_again(wb: Workbench, done: list[str]) -> None:
    run = wb.agent("Wipe!", script=WIPE, approver=_asking("later")[0])
    run = wb.agent.resume(run, approver=_asking("later")[0])
    assert run.status == "pending"
    run = wb.agent.resume(run, Reply(answer="no", reason="not today"))
    assert (run.status, run.text, done) == ("done", "Kept.", [])
    assert "not today" in run.calls[-1].sent


def test_an_answer_lapses_when_the_file_has_changed_since(open_bench: Any, tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(destructive=True)
    def overwrite(path: Path) -> str:
        """Overwrite a file.

        Parameters
        ----------
        path
            Which.
        """
        ran.append(path.read_text())
        return "done"

    target = tmp_path / "a.txt"
    target.write_text("one")
    bench = open_bench(tools=[overwrite])
    call = {"tool": "overwrite", "arguments": {"path": str(target)}}
    script = f"turns: {json.dumps([{'calls': [call]}, {'say': 'x'}])}\n"
    run = bench.agent("Go!", script=script, approver=_asking("later")[0])
    target.write_text("two")
    approver, asked = _asking("no")
    again = bench.agent.resume(run, "once", approver=approver)
    assert ran == []
    assert "has changed since" in asked[0].reason
    assert again.status == "done"

    def change(request: ApprovalRequest) -> str:
        target.write_text("three")
        return "once"

    run = bench.agent("Go!", script=script, approver=AskFunction(change))
    assert ran == []
    assert "changed while it was asked for" in run.calls[0].sent


def test_parallel_calls_are_asked_for_one_after_the_other(wb: Workbench, done: list[str]) -> None:
    calls = [{"tool": "wipe", "arguments": {"name": name}} for name in "abc"]
    script = f"turns: {json.dumps([{'calls': calls}, {'say': 'x'}])}\n"
    approver, asked = _asking("once", "no", "once")
    run = wb.agent("Wipe!", script=script, approver=approver)
    assert [request.call.arguments["name"] for request in asked] == ["a", "b", "c"]
    assert done == ["wiped a", "wiped c"]
    assert [call.result.ok for call in run.calls] == [True, False, True]


def test_a_run_goes_on_where_its_tools_have_changed(open_bench: Any, done: list[str], tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/m.duckdb"
    first = open_bench(memory_url=url)
    run = first.agent("Wipe!", script=WIPE, approver=_asking("later")[0])
    first.close()
    second = open_bench(memory_url=url, tools=[])
    again = second.agent.resume(run.run_id, "once")
    assert (again.status, again.text, done) == ("done", "Kept.", []), again
    assert [(call.tool, call.result.error.code) for call in again.calls if call.result.error] == [
        ("wipe", "TOOL_NOT_FOUND")
    ]


def test_a_changed_tool_is_asked_for_again(open_bench: Any, done: list[str], tmp_path: Path) -> None:
    @tool(name="wipe", destructive=True)
    def wipe_all(name: str, deep: bool = True) -> str:
        """Wipe something and all that belongs to it.

        Parameters
        ----------
        name
            What.
        deep
            Whether all.
        """
        done.append("wiped all")
        return "wiped all"

    url = f"duckdb:///{tmp_path}/m.duckdb"
    first = open_bench(memory_url=url)
    run = first.agent("Wipe!", script=WIPE, approver=_asking("later")[0])
    first.close()
    approver, asked = _asking("no")
    again = open_bench(memory_url=url, tools=[wipe_all]).agent.resume(run.run_id, "once", approver=approver)
    assert (again.status, done, len(asked)) == ("done", [], 1)
    assert "has changed since" in asked[0].reason
