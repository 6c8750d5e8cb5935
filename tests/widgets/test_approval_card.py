"""The card with a real door behind it: a front end without a browser answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.approval.gate import AskFunction, Reply
from nbtools.contract.tool import ToolCall
from nbtools.ground import aio
from nbtools.widgets.approval_card import CardApprover, can_click
from nbtools.widgets.live import live_widget


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:") as opened:
        yield opened


class _Cell:
    """Takes the cards that an approver shows, and lets a view say that it is there."""

    def __init__(self, workbench: Workbench, front_end: Any, *, has_view: bool = True) -> None:
        self.views: list[Any] = []
        self._front_end, self._has_view = front_end, has_view
        self.shown = asyncio.Event()
        self.asked_behind = 0
        workbench.door.approver = CardApprover(AskFunction(self._behind), self._show)

    def _behind(self, _: Any) -> Reply:
        self.asked_behind += 1
        return Reply(answer="no", reason="asked behind")

    def _show(self, card: Any) -> None:
        self.views.append(self._front_end(card))
        if self._has_view:
            self.views[-1].receive(t="ready")
        aio.loop().call_soon_threadsafe(self.shown.set)


async def _call(
    workbench: Workbench, cell: _Cell, tool: str, arguments: dict[str, Any], *answers: dict[str, Any]
) -> Any:
    call = ToolCall(tool=tool, arguments=arguments, caller="model")
    running = asyncio.ensure_future(workbench.executor.acall(call))
    await asyncio.wait_for(cell.shown.wait(), 30)
    cell.shown.clear()
    told = [await aio.in_thread(lambda given=given: cell.views[-1].ask(**given)) for given in answers]
    return await asyncio.wait_for(running, 30), told


def _decide(answer: str, **edited: Any) -> dict[str, Any]:
    return {"name": "decide", "answer": answer, "edited": edited, "reason": "too early" if answer == "no" else ""}


@pytest.fixture
def clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbtools.widgets.approval_card.can_click", lambda: True)  # there is no kernel here


@pytest.mark.usefixtures("clicks")
def test_a_card_shows_the_difference_and_a_changed_call_runs_as_changed(
    workbench: Workbench, front_end: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    cell = _Cell(workbench, front_end)
    given = {"path": "a.txt", "content": "one\nthree\n"}
    check = {"name": "check", "edited": {"content": "one\nfour\n"}}
    wrong = _decide("once", encoding="no such", path="/etc/passwd")
    result, told = aio.run(
        _call(workbench, cell, "file_write", given, check, wrong, _decide("once", content="one\nfour\n"))
    )
    card = cell.views[-1].widget
    assert card.proposal["consequence"] == "may overwrite, delete or run things"
    assert "(may overwrite, delete or run things) allowed with changes" in card.plain_text(), "so does a saved page"
    assert card.proposal["parts"] == [{"title": "a.txt changes", "text": "@@ -1,2 +1,2 @@\n one\n-two\n+three"}]
    assert told[0] == {
        "problems": {},
        "parts": [{"title": "a.txt changes", "text": "@@ -1,2 +1,2 @@\n one\n-two\n+four"}],
    }
    assert "path" in told[1]["problems"] or "" in told[1]["problems"], (
        "what is wrong stands in the card, and it waits on"
    )
    assert result.ok
    assert (tmp_path / "a.txt").read_text() == "one\nfour\n"
    assert (card.state, card.outcome) == ("answered", "allowed with changes")
    assert workbench.call_records()[0]["approval"]["by"] == "notebook"


@pytest.mark.usefixtures("clicks")
def test_a_no_tells_its_reason_and_a_session_grant_asks_no_more(
    workbench: Workbench, front_end: Any, tmp_path: Path
) -> None:
    cell = _Cell(workbench, front_end)
    given = {"path": "a.txt", "content": "x"}
    result, _ = aio.run(_call(workbench, cell, "file_write", given, _decide("no")))
    assert "too early" in result.text
    assert not (tmp_path / "a.txt").exists()
    result, _ = aio.run(_call(workbench, cell, "file_write", given, _decide("tool")))
    assert result.ok
    call = ToolCall(tool="file_write", arguments={"path": "b.txt", "content": "y"}, caller="model")
    assert aio.run(workbench.executor.acall(call)).ok
    assert len(cell.views) == 2


@pytest.mark.usefixtures("clicks")
def test_a_card_shows_the_note_that_is_lost(workbench: Workbench, front_end: Any) -> None:
    workbench.memory.write("plan", {"step": 1})
    cell = _Cell(workbench, front_end)
    result, _ = aio.run(_call(workbench, cell, "memory_delete", {"key": "plan"}, _decide("later")))
    part = cell.views[-1].widget.proposal["parts"][0]
    assert part["title"] == "the note plan, version 1, is deleted; its history stays"
    assert '-  "step": 1' in part["text"]
    assert "waits for approval" in result.text
    assert workbench.memory["plan"] == {"step": 1}


def test_where_no_view_answers_whoever_stands_behind_is_asked(
    workbench: Workbench, front_end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ToolCall(tool="file_write", arguments={"path": "a.txt", "content": "x"}, caller="model")
    cell = _Cell(workbench, front_end)
    assert not can_click()
    assert "asked behind" in aio.run(workbench.executor.acall(call)).text
    assert cell.views == []
    monkeypatch.setattr("nbtools.widgets.approval_card.can_click", lambda: True)
    monkeypatch.setattr(live_widget, "VIEW_S", 0.01)
    cell = _Cell(workbench, front_end, has_view=False)
    for _ in range(2):
        assert "asked behind" in aio.run(workbench.executor.acall(call)).text
    assert len(cell.views) == 1, "a page that hands no clicks on is tried once"
    assert cell.views[0].widget.state == "over"
