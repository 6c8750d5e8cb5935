"""Runs of workflows in JupyterLab and in a browser, light and dark: the live picture, the card, the report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.bare import becomes

pytestmark = [pytest.mark.races, pytest.mark.slow]

FLOW = """%%workflow
version: 1
name: flow
nodes:
  - {id: first, code: "import time; time.sleep(4); 41"}
  - {id: second, tool: calculator, args: {expression: "${nodes.first.data} + 1"}}
  - {id: agree, ask: {approve: "Is it ${nodes.second.data.value}?"}}
  - {id: each, tool: calculator, for_each: [1, 2, 3], args: {expression: "${item} * 2"}}
  - {id: broken, tool: file_read, args: {path: missing.csv}, on_error: continue}
"""


def _shoot(target: Any, name: str) -> None:
    """Leave a picture where a person wants to look at it."""
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        target.screenshot(path=Path(shots) / f"{name}.png")


def _luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_run_is_followed_and_its_card_fits_the_theme(lab: Any, open_notebook: Any, request: Any) -> None:
    cells = [nbformat.v4.new_code_cell(cell) for cell in ("%load_ext nbtools", FLOW, "print(_.folder)")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), lab.root / "flow.ipynb")
    notebook, theme = open_notebook("flow.ipynb"), request.node.callspec.id
    page = notebook.page
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    running = page.locator('g[data-state="running"]', has_text="first")
    running.wait_for()
    _shoot(page, f"live-{theme}")
    page.get_by_role("button", name="Yes").click()
    page.locator(".jp-OutputArea-output", has_text="/runs/flow-").first.wait_for()
    card = page.locator(".jp-RenderedHTMLCommon", has=page.locator("svg g")).last
    states = lambda: card.locator("svg g[data-state]").evaluate_all("all => all.map(g => g.dataset.state)")  # noqa: E731
    becomes(page, lambda: sorted(states()), ["failed", "ok", "ok", "ok", "ok"])
    card.locator("text", has_text="3/3").wait_for()
    _shoot(card, f"card-{theme}")
    colour = card.locator("svg g text").first.evaluate("each => getComputedStyle(each).fill")
    page_colour = page.evaluate("() => getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")
    assert abs(_luminance(colour) - _luminance(page_colour)) > 0.5, (colour, page_colour)
    report = Path(page.locator(".jp-OutputArea-output", has_text="/runs/flow-").last.inner_text().strip())
    page.emulate_media(color_scheme=theme)
    page.goto(f"file://{report}/report.html")
    _shoot(page, f"report-{theme}")
    becomes(page, page.locator("svg g[data-state]").count, 5)
    words = page.evaluate("() => getComputedStyle(document.body).color")
    behind = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert abs(_luminance(words) - _luminance(behind)) > 0.5, (words, behind)
    assert notebook.abroad == []
