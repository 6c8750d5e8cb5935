"""Approvals, runs, forms, notes, kernels and the chat in JupyterLab: one notebook in each theme, by mouse and keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.bare import axe_findings, becomes, press

pytestmark = [pytest.mark.races, pytest.mark.slow]

FLOW = """%%workflow
version: 1
name: flow
nodes:
  - {id: first, code: "import time; time.sleep(2); 41"}
  - {id: second, tool: calculator, args: {expression: "${nodes.first.data} + 1"}}
  - {id: agree, ask: {approve: "Is it ${nodes.second.data.value}?"}}
  - {id: broken, tool: file_read, args: {path: missing.csv}, on_error: continue}
"""
TURNS = """
turns:
  - when: {prompt: write}
    say: "I write it. %s"
    calls: [{tool: file_write, arguments: {path: out.txt, content: mine}}]
  - when: {tool: file_write, ok: true}
    say: Written.
  - say: Not written.
"""
WORDS = " ".join(f"word{number}" for number in range(400))
CELLS = (
    "%load_ext nbtools\n%config NBTools.confirm = True\none, two = 'a\\nb', 'a\\nc'\nopen('a.txt', 'w').write(one)",
    "%tool file_write --path a.txt --content {two}",
    "%tool file_write --path a.txt --content {one}",
    "print(repr(open('a.txt').read()))",
    FLOW,
    '%memory save goal {"kpi": "churn"} --tags plan\n%memory save note \'customers leave\'',
    "%memory browse",
    "%kernels start work",
    "%kernels monitor",
    "%tool_form code_execute",
    "import nbtools\nnbtools.workbench().chat(script='turns.yaml')",
)


class _Journey:
    """A page with the notebook, and what a person does with it."""

    def __init__(self, lab: Any, notebook: Any, theme: str) -> None:
        self.page, self.root, self.theme = notebook.page, lab.root, theme
        self.problems: list[str] = []
        self.page.on("console", lambda line: self.problems.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def cell(self, number: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def widget(self, number: int) -> Any:
        found = self.cell(number).locator(".nbt")
        found.wait_for()
        return found

    def press(self, target: Any) -> None:
        """Press it, by the mouse where all is light, and by keys where it is dark."""
        press(target, "keys" if self.theme == "dark" else "mouse")

    def look(self, name: str) -> None:
        """See that nothing is wrong with what is shown now, and leave a picture for whoever wants one."""
        if shots := os.environ.get("NBTOOLS_SHOTS"):
            self.page.screenshot(path=Path(shots) / f"{name}-{self.theme}.png")
        assert axe_findings(self.page) == [], name


def _approve_and_deny(journey: _Journey) -> None:
    card = journey.widget(1)
    content = card.get_by_label("content")
    content.fill("a\nd\n")
    # The cell is drawn again once, to show the time; what was typed stays.
    journey.cell(1).get_by_text("running for").wait_for()
    card.locator(".diff", has_text="+d").wait_for()
    journey.look("approval")
    journey.cell(1).get_by_role("button", name="Allow file_write all session").wait_for()
    # Keys of the notebook stay in the field, and the button is pressed without a mouse.
    content.press("Control+End")
    journey.page.keyboard.type("bax")
    becomes(journey.page, content.input_value, "a\nd\nbax")
    content.press("Control+z")
    content.fill("a\nd\n")
    journey.press(card.locator('button[data-answer="once"]'))
    card.get_by_text("allowed with changes").wait_for()
    other = journey.widget(2)
    other.get_by_label("Reason of a no").fill("not now")
    journey.press(other.locator('button[data-answer="no"]'))
    journey.cell(2).get_by_text("the answer was no: not now").wait_for()


def _watch_and_answer(journey: _Journey) -> None:
    run = journey.widget(4)
    run.locator('g[data-state="running"]').first.wait_for()
    run.get_by_role("button", name="Yes").wait_for()
    journey.look("run")
    journey.press(run.get_by_role("button", name="Yes"))
    run.locator(".bar .pill", has_text="ok").wait_for()
    journey.press(run.locator("summary", has_text="Times"))
    run.get_by_text("When each step ran").wait_for(state="attached")  # a title is not seen


def _browse_memory(journey: _Journey) -> None:
    notes = journey.widget(6)
    search = notes.get_by_label("Search notes")
    search.fill("churn")
    notes.get_by_text("1 of 2 notes").wait_for()
    search.fill("")
    notes.get_by_text("2 notes", exact=True).wait_for()
    journey.press(notes.get_by_role("button", name="plan 1"))
    notes.get_by_text("1 of 2 notes").wait_for()
    journey.press(notes.locator('.note[data-key="goal"]'))
    notes.get_by_label("value", exact=True).fill('{"kpi": "growth"}')
    journey.press(notes.get_by_role("button", name="Save"))
    notes.get_by_text("version 2,").wait_for()
    journey.press(notes.locator("summary", has_text="History"))
    notes.locator(".diff .is-added", has_text="growth").wait_for()
    journey.look("memory")
    journey.press(notes.get_by_role("button", name="Delete"))
    notes.get_by_text("0 of 1 notes").wait_for()
    journey.press(notes.get_by_role("button", name="Undo"))
    notes.get_by_text("version 4,").wait_for()


def _stop_and_end(journey: _Journey) -> None:
    monitor, form = journey.widget(8), journey.widget(9)
    journey.press(form.get_by_role("button", name="Run", exact=True))
    form.get_by_text("required, but not given").first.wait_for()
    form.get_by_label("code").fill("print('so far', flush=True)\nimport time\ntime.sleep(600)")
    form.get_by_label("language").select_option(label="python")
    journey.press(form.get_by_role("button", name="Run", exact=True))
    form.get_by_text("so far", exact=True).wait_for()
    journey.press(form.get_by_role("button", name="Stop"))
    form.get_by_text("You stopped it.").wait_for()
    monitor.get_by_role("button", name="Kill work").scroll_into_view_if_needed()
    journey.look("monitor")
    journey.press(monitor.get_by_role("button", name="Kill work"))
    journey.press(monitor.get_by_text("Loses its variables: sure?"))
    monitor.get_by_text("No sessions yet").wait_for()


def _talk_restart_and_go_on(journey: _Journey) -> None:
    page, chat = journey.page, journey.widget(10)
    box = chat.get_by_label("Message")
    box.fill("Please write.")
    box.press("Enter")
    later = chat.locator('button[data-answer="later"]')
    later.wait_for()
    becomes(page, chat.locator(".message").nth(1).inner_text, f"I write it. {WORDS}")  # no character is lost
    journey.press(later)
    chat.get_by_text("waits for you").wait_for()
    journey.look("chat")
    page.evaluate("() => { window.tested.sessionContext.session.kernel.restart(); }")
    journey.press(chat.get_by_role("button", name="Insert a cell to continue"))
    added = journey.cell(len(CELLS))
    added.locator(".cm-content", has_text="%agent resume").wait_for()
    assert not (journey.root / "out.txt").exists()
    added.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    journey.press(added.locator('button[data-answer="once"]'))
    added.get_by_text("Written.").wait_for()
    assert (journey.root / "out.txt").read_text() == "mine"


def test_people_approve_watch_browse_stop_and_talk(lab: Any, open_notebook: Any, request: Any) -> None:
    (lab.root / "turns.yaml").write_text(TURNS % WORDS, encoding="utf-8")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    book.metadata["kernelspec"] = kernel
    nbformat.write(book, lab.root / "cards.ipynb")
    notebook = open_notebook("cards.ipynb")
    journey = _Journey(lab, notebook, request.node.callspec.id)
    page = journey.page
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    _approve_and_deny(journey)
    # A cell that fails stops those behind it.
    page.evaluate(
        """() => { const book = window.tested.content; book.activeCellIndex = 2;
            window.jupyterapp.commands.execute('notebook:run-all-below'); book.deselectAll(); }"""
    )
    _approve_again(journey)
    _watch_and_answer(journey)
    _browse_memory(journey)
    _stop_and_end(journey)
    page.set_viewport_size({"width": 700, "height": 1700})
    journey.look("narrow")
    page.set_viewport_size({"width": 1200, "height": 1700})
    _talk_restart_and_go_on(journey)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.reload(wait_until="domcontentloaded")
    page.get_by_text("goal").first.wait_for()
    ours = [line for line in journey.problems if any(word in line for word in ("nbtools", "blob:", "anywidget"))]
    assert not ours, ours
    assert notebook.abroad == [], "nothing may leave this machine"


def _approve_again(journey: _Journey) -> None:
    card = journey.widget(2)
    journey.press(card.locator('button[data-answer="content"]'))
    journey.cell(3).locator(".jp-OutputArea-output", has_text="'a\\nb'").wait_for()
