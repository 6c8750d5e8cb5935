"""How cards and browsers look: each on a bare page, light and dark, wide and narrow, with long words and odd texts."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.assembly.workbench import Workbench
from nbtools.contract.approval.gate import AskFunction
from nbtools.contract.prepared import prepare
from nbtools.contract.tool import ToolCall
from nbtools.ground import aio
from nbtools.widgets.approval_card import ApprovalCard
from nbtools.widgets.forms.proposals import Proposal
from nbtools.widgets.live.live_widget import ViewRequest
from tests.browser.bare import axe_findings, becomes, open_bare
from tests.conftest import wait_until

pytestmark = [pytest.mark.races, pytest.mark.slow]

LONG = "a_name_without_any_space_that_is_longer_than_most_columns_and_still_goes_on_" * 2
FLOW = """\
version: 1
name: sales_of_the_whole_year_by_city_and_product
nodes:
  - {id: first, tool: calculator, args: {expression: 6*7}}
  - {id: a_step_with_a_long_name, needs: [first], tool: calculator, args: {expression: "${nodes.first.data.value} + 1"}}
  - {id: broken, tool: file_read, args: {path: missing.csv}, on_error: continue}
  - id: form
    needs: [a_step_with_a_long_name]
    ask:
      question: Who signs the report?
      fill: {type: object, properties: {name: {type: string}, age: {type: integer}}, required: [name, age]}
"""
SCRIPT = f"""
turns:
  - when: {{prompt: count}}
    say: "I count <b>that</b> first: שלום, {LONG}."
    calls: [{{tool: calculator, arguments: {{expression: 6*7}}}}, {{tool: file_read, arguments: {{path: missing.csv}}}}]
  - when: {{tool: file_read}}
    calls: [{{tool: file_write, arguments: {{path: out.txt, content: mine}}}}]
  - say: Done.
"""


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    pytest.importorskip("pydantic_ai")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(30)))
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:") as opened:
        yield opened


def _no_notes(workbench: Workbench) -> Any:
    return workbench.browse_memory(), ("scopes", "scope", "matches")


def _notes(workbench: Workbench) -> Any:
    workbench.memory.write("goal", {"kpi": "churn"}, tags=["plan", "q3"])
    workbench.memory.write("goal", {"kpi": "growth"}, tags=["plan", "q3"])
    workbench.memory.write(LONG, f"{LONG} <b>שלום</b>", tags=[f"tag{n}" for n in range(12)])
    return workbench.browse_memory(), ("scopes", "scope", "matches")


def _kernels(workbench: Workbench) -> Any:
    workbench.kernels.start("work")
    return workbench.monitor(), ("rows",)


def _no_kernels(workbench: Workbench) -> Any:
    return workbench.monitor(), ("rows",)


def _form(workbench: Workbench) -> Any:
    return workbench.form("file_write"), ("about", "fields", "draft", "result")


def _approval(workbench: Workbench) -> Any:
    tool, services = workbench.executor.tools()["file_write"], workbench.door.for_models
    content = "".join(f"line {n}\n" if n % 9 else f"{LONG}{n}\n" for n in range(30))
    call = ToolCall(tool=tool.name, arguments={"path": "a.txt", "content": content}, caller="model")
    prepared = aio.run(prepare(tool, call, services))
    proposal = Proposal.of_request(aio.run(workbench.door.request(prepared, services, "by default: ask")))
    return ApprovalCard(proposal), ("proposal", "state", "outcome", "draft")


def _chat(workbench: Workbench) -> Any:
    chat = workbench.chat(script="script.yaml")
    chat.answer_send(ViewRequest("send", {"text": f"Please count {LONG}"}, print))
    wait_until(lambda: any(item.get("state") == "asking" for item in chat.items))
    chat._put("question", text="Which of the two?", choices=["the first", "the second"], told="")
    return chat, ("items", "state", "run_id", "can_write")


def _moved(workbench: Workbench) -> Any:
    run = workbench.agent.run("Please count.", script="script.yaml", approver=AskFunction(lambda _: "later"))
    assert run.state == "pending"
    return workbench.pending_card(run), ("items", "state", "run_id", "can_write")


def _see_it_move(page: Any, workbench: Workbench) -> None:
    """Answer as another cell does, and see that the card says so by itself."""
    page.locator("[data-answer=later]").click()
    page.wait_for_function("!document.querySelector('[data-answer=later]').disabled")
    asked, told = threading.Event(), threading.Event()

    def answer(_: Any) -> str:
        asked.set()
        return "once" if told.wait(60) else "no"

    again = workbench.agent.start_again(page.evaluate("model.get('run_id')"), approver=AskFunction(answer))
    assert asked.wait(60)
    page.locator("summary .pill", has_text="elsewhere").wait_for()
    becomes(page, page.locator("[data-answer]").count, 0)
    told.set()
    again.wait(60)
    page.locator("summary", has_text="allowed once · elsewhere").wait_for()


def _run(workbench: Workbench) -> Any:
    view = workbench.workflows.view(workbench.workflows.run(FLOW).run_id)
    traits = ("state", "run_id", "head", "graph", "bars", "columns", "rows", "questions")
    return view, (*traits, "is_driven", "is_followed", "is_short")


def _see_the_answer(page: Any, workbench: Workbench) -> None:
    page.locator(".question button").wait_for()
    workbench.workflows.answer(page.evaluate("model.get('run_id')"), "form", {"name": "Ann", "age": 7}, by="ann")
    page.get_by_text('answered: {"name": "Ann", "age": 7}, by ann').wait_for()
    becomes(page, page.locator(".question button").count, 0)
    page.get_by_role("button", name="Insert a cell to continue").wait_for()


def _edit_with_a_conflict(page: Any, workbench: Workbench) -> None:
    page.locator('.note[data-key="goal"]').click()
    page.get_by_label("value", exact=True).fill('{"kpi": "mine"}')
    workbench.memory.write("goal", {"kpi": "theirs"}, tags=["plan"])
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Someone else saved version 3 meanwhile").wait_for()
    page.locator("summary", has_text="History").click()


def _save_over_theirs(page: Any, workbench: Workbench) -> None:
    page.get_by_role("button", name="Save mine over it").click()
    page.get_by_text("version 4,").wait_for()
    assert workbench.memory["goal"] == {"kpi": "mine"}


def _miss_fields(page: Any, _: Workbench) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("required, but not given").first.wait_for()


def _change_it(page: Any, _: Workbench) -> None:
    page.get_by_label("content").fill("another\n")
    page.locator(".diff", has_text="+another").wait_for()
    page.get_by_role("button", name="Allow once with these changes").wait_for()


def _see_calls(page: Any, _: Workbench) -> None:
    page.locator(".approval").wait_for()
    page.locator(".call > summary").first.click()


def _stop(page: Any, _: Workbench) -> None:
    page.get_by_role("button", name="Stop").click()


def _see_times(page: Any, _: Workbench) -> None:
    page.get_by_label("name").wait_for()
    page.locator("summary", has_text="Times").click()


def _nothing(page: Any, _: Workbench) -> None:
    page.locator(".nbt").wait_for()


Act = Callable[[Any, Workbench], None]
WIDGETS: dict[str, tuple[Callable[[Workbench], Any], Act, Act]] = {
    "memory-empty": (_no_notes, _nothing, _nothing),
    "memory-conflict": (_notes, _edit_with_a_conflict, _save_over_theirs),
    "kernels-none": (_no_kernels, _nothing, _nothing),
    "kernels": (_kernels, _nothing, _nothing),
    "form": (_form, _miss_fields, _nothing),
    "approval-card": (_approval, _change_it, _nothing),
    "conversation": (_chat, _see_calls, _stop),
    "answered-elsewhere": (_moved, _see_it_move, _nothing),
    "run-waits": (_run, _see_times, _nothing),
    "run-answered-elsewhere": (_run, _see_the_answer, _nothing),
}


def _note(wrong: list[str], name: str, problem: Any) -> None:
    wrong.append(f"{name}: {problem}")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 700)])
def test_cards_and_browsers_are_found_good_by_axe_and_nothing_hangs_over(
    browser: Any, workbench: Workbench, theme: str, width: int
) -> None:
    wrong: list[str] = []
    for name, (make, act, then) in WIDGETS.items():
        widget, traits = make(workbench)
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", functools.partial(_note, wrong, name))
        open_bare(page, widget, *traits, theme=theme, width=width)
        act(page, workbench)
        if shots := os.environ.get("NBTOOLS_SHOTS"):
            page.screenshot(path=Path(shots) / f"{name}-{theme}-{width}.png", full_page=True)
        wrong += [f"{name}: {finding}" for finding in axe_findings(page)]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wrong.append(f"{name} is wider than the page")
        # What no widget may be too narrow for: a button whose words do not fit in it.
        wrong += [
            f"{name}: the button {text!r} is cut"
            for text in page.evaluate(
                """() => [...document.querySelectorAll('.nbt button:not(.note)')]
                    .filter((each) => each.offsetParent && each.scrollWidth > each.clientWidth + 1)
                    .map((each) => each.textContent)"""
            )
        ]
        then(page, workbench)
        page.close()
        widget.close()
    assert wrong == []


def test_where_views_only_look_nothing_is_drawn_that_acts(browser: Any, workbench: Workbench) -> None:
    (workbench.config.allowed_paths[0] / "few.csv").write_text("a\n1\n")
    explorer = workbench.explore("few.csv")
    made = {
        "explorer": (explorer, ("state", "view", "sql", "connection", "connections", "pinned")),
        "notes": _notes(workbench),
        "kernels": _kernels(workbench),
        "form": _form(workbench),
        "card": _approval(workbench),
        "chat": _moved(workbench),
        "run": _run(workbench),
    }
    drawn = {}
    for name, (widget, traits) in made.items():
        page = browser.new_page()
        open_bare(page, widget.hold(read_only=True), *traits, "read_only", theme="light", width=1280)
        page.locator(".nbt").wait_for()
        buttons = page.locator(".nbt button:not(.note, .chip)").all()
        drawn[name] = [each.inner_text() for each in buttons if each.is_visible()]
        if name == "explorer":
            page.locator(".dots").click()
            items = page.get_by_role("menuitem").all_inner_texts()
        page.close()
        widget.close()
    looking = {"Copy", "Wrap", "Insert as cell", "Chart", "Insert a cell to continue"}
    looking |= {"SQL", "few.csv", "⋮", "", "?"}  # what folds out, the menu and the filter of a column, and the keys
    assert {name: set(told) - looking for name, told in drawn.items() if set(told) - looking} == {}
    assert "Insert as cell" not in {*drawn["form"], *drawn["chat"]}
    assert "Chart" in drawn["explorer"]
    assert {"Chart", "Summary", "Filter…"} <= set(items)
    assert not {"Clean…", "Group rows", "Hide", "Columns…"} & set(items)
