"""Agents and outside clients read a notebook in JupyterLab, and a person's click writes what they propose."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbtools.agent.notebook.cells import CELL_TOOLS, NotebookCells
from nbtools.contract.door import Door
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.tool import ToolCall
from nbtools.mcp_server.notebooks import OpenNotebooks
from tests.browser.bare import becomes, press

pytestmark = pytest.mark.slow

TURNS = """
turns:
  - calls: [{tool: notebook_read}]
  - when: {tool: notebook_read, contains: "id second"}
    calls: [{tool: notebook_propose, arguments: {action: replace, cell: second, source: "40 + 3", reason: "One more."}}]
  - when: {tool: notebook_propose, contains: accepted}
    say: It is there.
  - say: Something else came.
"""
CELLS = {
    "load": "%load_ext nbtools\n%env NBTOOLS_MODEL=ollama:none",
    "second": "40 + 2",
    "agent": "%%agent --script turns.yaml\nMend the sum.",
}
SOURCES = "[...window.tested.content.model.cells].map((each) => each.sharedModel.getSource())"
IDLE = "window.tested.sessionContext.session.kernel.status === 'idle'"


def write_notebooks(root: Path) -> None:
    (root / "turns.yaml").write_text(TURNS, encoding="utf-8")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text, id=key) for key, text in CELLS.items()])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for name in ("own.ipynb", "other.ipynb"):
        nbformat.write(book, root / name)


def run_cell(page: Any, cell: int) -> None:
    page.evaluate(
        """(at) => { window.tested.content.activeCellIndex = at;
            window.jupyterapp.commands.execute('notebook:run-cell') }""",
        cell,
    )


class Client:
    """An outside client, whose calls wait beside the page."""

    def __init__(self, home: Path) -> None:
        cells = NotebookCells(OpenNotebooks(home).ask)
        self._executor = LocalExecutor(CELL_TOOLS, door=Door(services={NotebookCells: lambda: cells}))

    def call(self, tool: str, **arguments: Any) -> Any:
        return self._executor.call(ToolCall(tool=tool, arguments=arguments, caller="mcp", run_id="client"))

    def begin(self, tool: str, **arguments: Any) -> tuple[threading.Thread, list[Any]]:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(self.call(tool, **arguments)))
        thread.start()
        return thread, results


@pytest.mark.parametrize(("lab", "way"), [("dark", "keys"), ("light", "mouse")], indirect=["lab"])
def test_cells_are_read_and_proposed_and_written_by_a_click_alone(lab: Any, open_notebook: Any, way: str) -> None:
    write_notebooks(lab.root)
    notebook = open_notebook("own.ipynb")
    page = notebook.page
    decide = lambda answer: press(page.locator(".nbt-proposal").get_by_role("button", name=answer), way)  # noqa: E731
    run_cell(page, 0)
    page.wait_for_function("window.tested.content.widgets[0].model.executionCount !== null")
    run_cell(page, 2)
    card = page.locator(".nbt-proposal")
    card.wait_for()
    in_its_cell = page.locator(".jp-Cell").nth(1).locator(".nbt-proposal :is(.nbt-less, .nbt-more)")
    becomes(page, lambda: [each.strip() for each in in_its_cell.all_inner_texts()], ["- 40 + 2", "+ 40 + 3"])
    assert page.evaluate(SOURCES)[1] == "40 + 2"
    decide("Replace")  # Enter is not a key of the notebook here
    page.get_by_text("It is there.").wait_for()
    assert page.evaluate(SOURCES)[1] == "40 + 3"
    assert page.evaluate("window.tested.content.widgets[1].model.executionCount") is None
    becomes(page, card.count, 0)
    page.wait_for_function(IDLE)
    page.keyboard.press("Control+z")
    page.wait_for_function(f"{SOURCES}[1] === '40 + 2'")

    client = Client(lab.root.parent / "nbtools")
    problems = lambda: client.call("notebook_read").error or []  # noqa: E731
    becomes(page, problems, [])
    told = client.call("notebook_read")
    assert [cell["id"] for cell in told.data["cells"]] == list(CELLS)
    assert told.data["proposals"][0]["outcome"] == "accepted"
    thread, results = client.begin("notebook_propose", action="insert", source="7 * 6", cell="second", reason="Six.")
    decide("Insert")
    thread.join(30)
    assert results[0].data["outcome"] == "accepted"
    assert page.evaluate(SOURCES)[2] == "7 * 6"
    assert page.evaluate("window.tested.content.widgets[2].model.executionCount") is None
    page.keyboard.press("Control+z")
    page.wait_for_function(f"{SOURCES}.length === 3")

    # What changed since it was shown is left as it is.
    thread, results = client.begin("notebook_propose", action="delete", cell="second", reason="Not needed.")
    card.wait_for()
    page.evaluate("window.tested.content.widgets[1].model.sharedModel.setSource('mine')")
    decide("Delete")
    thread.join(30)
    assert results[0].data["outcome"] == "stale"
    assert page.evaluate(SOURCES)[1] == "mine"
    decide("Dismiss")

    # An error offers a question, where a model is set up.
    run_cell(page, 1)
    press(page.locator(".nbt-ask"), way)
    page.wait_for_function(f"{SOURCES}.length === 4")
    question = "%%agent\nThe cell above (id second) failed: NameError: name 'mine' is not defined"
    becomes(page, lambda: page.evaluate(SOURCES)[2][: len(question)], question)
    assert page.evaluate("window.tested.content.widgets[2].model.executionCount") is None
    assert notebook.abroad == []
