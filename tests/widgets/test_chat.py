"""A conversation with the scripted model: real calls, real approvals, a front end without a browser."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.approval.gate import AskFunction
from nbtools.errors import NbtoolsError
from tests.conftest import wait_until

WORDS = " ".join(f"word{number} 🐘" for number in range(400))
SCRIPT = f"""
turns:
  - when: {{prompt: count}}
    say: "{WORDS}"
    calls: [{{tool: calculator, arguments: {{expression: 6*7}}}}]
  - when: {{tool: calculator}}
    calls: [{{tool: file_write, arguments: {{path: out.txt, content: mine}}}}]
  - when: {{tool: file_write, ok: true}}
    say: Written.
  - when: {{prompt: choose}}
    calls: [{{tool: ask_user, arguments: {{question: "Which?", choices: [a, b]}}}}]
  - say: Not written.
"""


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    pytest.importorskip("pydantic_ai")
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:") as opened:
        yield opened


class _Page:
    """A front end that waits for what a conversation shows."""

    def __init__(self, chat: Any, front_end: Any) -> None:
        self.chat, self.view = chat, front_end(chat)
        self._changed = threading.Condition()
        chat.observe(self._note, ["items", "state"])
        self.view.receive(t="ready")

    def _note(self, _: Any) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, fits: Any) -> Any:
        with self._changed:
            found = self._changed.wait_for(lambda: fits(self.chat), 30)
        assert found, (self.chat.state, self.chat.items)
        return found

    def item(self, kind: str, **facts: Any) -> dict[str, Any]:
        def found(chat: Any) -> Any:
            fitting = [one for one in chat.items if one["kind"] == kind and facts.items() <= one.items()]
            return fitting[-1] if fitting else None

        made: dict[str, Any] = self.wait(found)
        return made

    def decide(self, item: dict[str, Any], answer: str, **edited: Any) -> Any:
        return self.view.ask("decide", id=item["id"], answer=answer, edited=edited, reason="")


def test_text_loses_nothing_calls_are_cards_and_a_change_is_what_runs(
    workbench: Workbench, front_end: Any, tmp_path: Path
) -> None:
    page = _Page(workbench.chat(script=SCRIPT), front_end)
    page.view.ask("send", text="Please count.")
    asked = page.item("approval", state="asking")
    assert asked["asked"]["parts"] == [{"title": "a new file out.txt", "text": "+mine"}]
    text = page.item("text")
    pieces = [each for each in page.view.messages if each["t"] == "text" and each["name"] == text["id"]]
    assert "".join(piece["text"] for piece in pieces) == WORDS
    assert "6*7" in page.item("call", tool="calculator", state="done")["code"]
    assert page.view.ask("check", id=asked["id"], edited={"path": "/etc/x"})["problems"]
    assert page.decide(asked, "once", content="changed") == {"problems": {}}
    page.wait(lambda chat: chat.state == "idle")
    assert (tmp_path / "out.txt").read_text() == "changed"
    assert page.item("approval")["told"] == "allowed with changes"
    (row,) = page.view.ask("undo", run=page.item("end")["run"])
    assert row["undone"]
    assert not (tmp_path / "out.txt").exists()
    assert "Written." in page.chat.plain_text()
    assert "count" in page.chat.plain_html()


def test_what_is_left_for_later_waits_in_its_card_and_goes_on(
    workbench: Workbench, front_end: Any, tmp_path: Path
) -> None:
    page = _Page(workbench.chat(script=SCRIPT), front_end)
    page.view.ask("send", text="Please count.")
    page.decide(page.item("approval", state="asking"), "later")
    page.wait(lambda chat: chat.state == "pending")
    assert "%agent resume" in page.chat.plain_text()
    run = workbench.agent.get(page.chat.run_id)
    card = _Page(workbench.pending_card(run), front_end)  # as after a restart: nothing but what is stored
    item = card.item("approval", state="asking")
    assert item["asked"]["parts"] == [{"title": "a new file out.txt", "text": "+mine"}]
    assert card.decide(item, "once", content="later") == {"problems": {}}
    card.wait(lambda chat: chat.state == "idle")
    assert (tmp_path / "out.txt").read_text() == "later"
    assert not card.chat.can_write


def _waiting(workbench: Workbench, front_end: Any) -> tuple[_Page, Any]:
    """Return the card of a run that waits, and the run."""
    run = workbench.agent.run("Please count.", script=SCRIPT, approver=AskFunction(lambda _: "later"))
    assert run.state == "pending"
    return _Page(workbench.pending_card(run), front_end), run


def test_a_card_that_was_answered_in_another_cell_says_so_by_itself_and_on_a_click(
    workbench: Workbench, front_end: Any, tmp_path: Path
) -> None:
    card, run = _waiting(workbench, front_end)
    other = _Page(workbench.pending_card(run), front_end)
    asked, goes_on = threading.Event(), threading.Event()

    def answer(_: Any) -> str:
        asked.set()
        return "once" if goes_on.wait(30) else "no"

    again = workbench.agent.start_again(run.run_id, approver=AskFunction(answer))
    assert asked.wait(30)
    card.view.ask("look")
    assert (card.chat.state, card.item("approval")["state"]) == ("elsewhere", "elsewhere")
    goes_on.set()
    assert again.wait(30).state == "done"
    card.view.ask("look")
    assert other.decide(other.item("approval", state="asking"), "no") == {"problems": {}}
    for page in (card, other):
        item = page.item("approval")
        assert item["state"] == "answered"
        assert item["told"].startswith("allowed once · elsewhere, ")
        assert page.chat.state == "idle"
        assert page.item("end")["run"] == run.run_id
    assert (tmp_path / "out.txt").read_text() == "mine"
    assert "asks for approval: allowed once" in card.chat.plain_text()


@pytest.mark.parametrize("by_click", [True, False])
def test_a_card_of_a_run_that_was_cancelled_or_put_off_again_says_so(
    workbench: Workbench, front_end: Any, by_click: bool
) -> None:
    card, run = _waiting(workbench, front_end)
    item = card.item("approval")
    assert card.decide(item, "later") == {"problems": {}}
    workbench.agent.resume(run.run_id, approver=AskFunction(lambda _: "later"))
    card.view.ask("look")
    assert (card.chat.state, card.item("approval")["state"]) == ("pending", "asking")
    workbench.agent.cancel(run.run_id)
    assert card.decide(item, "once") == {"problems": {}} if by_click else card.view.ask("look") is None
    assert card.item("approval", state="over")["told"] == "not answered: the run is cancelled"
    assert card.chat.state == "idle"


@pytest.mark.slow
@pytest.mark.processes
def test_a_card_that_was_answered_by_another_process_says_what_was_said(
    tmp_path: Path, front_end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydantic_ai")
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path]) as workbench:
        card, run = _waiting(workbench, front_end)
        words = ["agent", "resume", run.run_id, "--answer", "no", "--reason", "Not now"]
        command = [sys.executable, "-m", "nbtools", *words]
        env = {**os.environ, "NBTOOLS_HOME": str(tmp_path / "home"), "ALLOWED_PATHS": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)
        assert done.returncode == 0, done.stderr
        assert card.decide(card.item("approval"), "once", content="mine") == {"problems": {}}
        assert card.item("approval", state="answered")["told"].startswith("not allowed: Not now · elsewhere, ")
        assert workbench.agent.get(run.run_id).state == "done"
        assert not (tmp_path / "out.txt").exists()


def test_a_question_is_answered_and_stop_ends_what_waits(workbench: Workbench, front_end: Any) -> None:
    page = _Page(workbench.chat(script=SCRIPT), front_end)
    page.view.ask("send", text="Please choose.")
    question = page.item("question", told="")
    assert (question["text"], question["choices"]) == ("Which?", ["a", "b"])
    page.view.ask("tell", id=question["id"], answer="b")
    page.wait(lambda chat: chat.state == "idle")
    assert "b" in page.item("call", tool="ask_user")["text"]
    page = _Page(workbench.chat(script=SCRIPT), front_end)
    page.view.ask("send", text="Please count.")
    page.item("approval", state="asking")
    begun = time.monotonic()
    page.view.ask("stop")
    page.wait(lambda chat: chat.state == "idle")
    assert time.monotonic() - begun < 10
    assert page.item("approval")["state"] == "over"


def test_a_model_that_cannot_be_had_is_told_in_the_reply(workbench: Workbench, front_end: Any) -> None:
    page = _Page(workbench.chat(), front_end)
    reply = page.view.reply(page.view.start("send", text="hello"))
    assert "model" in reply["error"]["message"]
    assert page.chat.items == []


def test_a_message_is_shown_before_its_run_has_begun(workbench: Workbench) -> None:
    seen: list[Any] = []
    chat = workbench.chat(
        script="turns: [{say: Hello.}]\n",
        context=lambda _: seen.append((chat.state, [item["text"] for item in chat.items])) or "",
    )
    asked = type("Asked", (), {"args": {"text": "Say hello"}})()
    chat.answer_send(asked)
    assert seen == [("starting", ["Say hello"])]
    wrong = workbench.chat(model="nobody:nothing")
    with pytest.raises(NbtoolsError):
        wrong.answer_send(asked)
    assert (wrong.state, wrong.items) == ("idle", []), "the page has the text again"


def test_an_answer_that_was_cut_is_resumed_by_a_click(workbench: Workbench, front_end: Any) -> None:
    turns = "turns: [{say: '', repeat: true, when: {prompt: hello}}]\n"
    page = _Page(workbench.chat(script=turns), front_end)
    page.view.ask("send", text="Say hello")
    end = page.item("end", is_last=True)
    assert end["error"]
    assert f"→ %agent resume {end['run'][:8]} continues it" in page.chat.plain_text()
    page.view.ask("resume")
    again = page.item("end", is_last=True)
    page.wait(
        lambda chat: chat.state == "idle" and [i["is_last"] for i in chat.items if i["kind"] == "end"] == [False, True]
    )
    assert again["run"] == end["run"], "it is the same run, which goes on"


def test_a_chat_says_why_an_answer_is_none(workbench: Workbench) -> None:
    chat = workbench.chat(script="turns: [{say: '', repeat: true}]\n")
    chat.answer_send(type("Asked", (), {"args": {"text": "Say hello"}})())
    wait_until(lambda: chat.state == "idle")
    assert "✗ scripted gave no answer, several times." in chat.plain_text()
    assert "is incomplete" in chat.plain_text()
