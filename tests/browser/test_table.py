"""The table below a query in JupyterLab and Notebook 7: pages from the kernel, in the theme, nothing from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.bare import axe_findings, becomes, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]

CELLS = (
    "%load_ext nbtools",
    "%%nbsql\nselect range as id, (range * 7919) % 1009 as k, 'n' || range % 7 as name from range(1_000_000)",
    "%%nbsql\nselect 42 as answer",
    "import ipywidgets, nbtools\nipywidgets.HBox([nbtools.workbench().explore('from range(9)') for _ in '12'])",
)


def _write(root: Path, *cells: str) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    book.metadata["kernelspec"] = kernel
    nbformat.write(book, root / "table.ipynb")


def _use_the_mouse(page: Any, answer: Any) -> None:
    """Scroll the notebook over a table that has nothing to scroll, open our menu, and look at tables in a box."""
    page.set_viewport_size({"width": 1200, "height": 700})
    scrolled = """() => {
        let box = document.querySelector('.jp-Notebook .nbt');
        while (box && !(box.scrollTop > 0)) box = box.parentElement;
        return box ? box.scrollTop : 0; }"""
    answer.locator(".body [role=gridcell]").hover()
    page.mouse.wheel(0, -3000)
    page.wait_for_function(f"({scrolled})() === 0")
    answer.locator(".body [role=gridcell]").hover()
    before = page.evaluate(scrolled)
    page.mouse.wheel(0, 200)
    page.wait_for_function(f"(before) => ({scrolled})() > before + 100", arg=before)
    answer.locator("[role=columnheader] b").first.click(button="right")
    page.get_by_role("menuitem", name="Filter…").wait_for()
    assert page.locator(".lm-Menu").count() == 0
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 1200, "height": 1700})
    widths = "(all) => all.map((each) => each.getBoundingClientRect().width > 400)"
    becomes(page, lambda: page.locator(".widget-hbox .nbt").evaluate_all(widths), [True, True])


@pytest.mark.parametrize("lab", ["dark", "notebook"], indirect=True)
def test_a_query_shows_all_its_rows_in_the_browser(lab: Any, open_notebook: Any, request: Any) -> None:
    _write(lab.root, *CELLS)
    notebook, theme = open_notebook("table.ipynb"), request.node.callspec.id
    page = notebook.page
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    notebook.run_all()
    view, answer = page.locator(".nbt").first, page.locator(".nbt").nth(1)
    grid = view.locator("[role=grid]")
    grid.wait_for()
    view.locator(".count", has_text="1,000,000 rows \N{MULTIPLICATION SIGN} 3 columns").wait_for()
    answer.locator(".count", has_text="1 row \N{MULTIPLICATION SIGN} 1 column").wait_for()
    becomes(page, answer.locator(".body [role=gridcell]").inner_text, "42")
    grid.focus()
    page.keyboard.press("Control+End")
    becomes(page, view.locator(".body .row").last.locator("[aria-colindex='2']").inner_text, "999999")
    _use_the_mouse(page, answer)
    grid.focus()
    # Keys of the notebook do not reach it: a, b and x would add and cut cells.
    for key in ("a", "b", "x", "m"):
        page.keyboard.press(key)
    assert page.locator(".jp-Cell").count() == len(CELLS)
    page.locator(".sketch .bars").first.wait_for()
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.locator(".jp-Notebook").screenshot(path=Path(shots) / f"query-{theme}.png")
    assert axe_findings(page) == []
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.reload(wait_until="domcontentloaded")
    grid.wait_for()
    settled(page)
    page.evaluate("async () => { await window.jupyterapp.restored }")
    assert not [line for line in problems if "nbtools" in line or "blob:" in line or "anywidget" in line], problems
    assert notebook.abroad == []
