"""Two clients on two notebooks of one JupyterLab never meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.bare import becomes
from tests.browser.test_lab_notebook import CELLS, SOURCES, Client, run_cell, write_notebooks

pytestmark = pytest.mark.slow

OPENED = """() => { const each = window.jupyterapp && [...window.jupyterapp.shell.widgets('main')]
    .find(each => each.sessionContext); window.tested = each;
    return each?.sessionContext.session?.kernel?.status === 'idle' }"""
_MOST = 6


@pytest.mark.parametrize("lab", ["notebook"], indirect=True)
def test_proposals_of_two_clients_reach_their_own_notebooks(lab: Any, open_notebook: Any) -> None:
    write_notebooks(lab.root)
    first = open_notebook("own.ipynb").page
    second = first.context.new_page()
    second.goto(first.url.replace("own.ipynb", "other.ipynb"))
    second.wait_for_function(OPENED)
    pages = {"own.ipynb": first, "other.ipynb": second}
    for page in pages.values():
        run_cell(page, 0)
        page.wait_for_function("window.tested.content.widgets[0].model.executionCount !== null")
        page.evaluate(
            """async () => { await window.tested.sessionContext.session.kernel.requestExecute(
                { code: "get_ipython().meta['nbtools'].dispatcher.session.listen()" }).done }"""
        )
    clients = {name: Client(lab.root.parent / "nbtools") for name in pages}
    begun = [
        (name, clients[name].begin("notebook_propose", action="insert", source=f"'{name}'", notebook=name, reason="x"))
        for _ in range(_MOST // 2)
        for name in pages
    ]
    for page in pages.values():
        for left in reversed(range(_MOST // 2)):
            becomes(page, page.locator(".nbt-proposal").count, left + 1)
            page.locator(".nbt-proposal button").first.click()
    for name, (thread, results) in begun:
        thread.join(60)
        assert (results[0].data["outcome"], Path(results[0].data["notebook"]).name) == ("accepted", name)
    for name, page in pages.items():
        assert page.evaluate(SOURCES)[3:] == [f"'{name}'"] * (_MOST // 2)
        for left in reversed(range(_MOST // 2)):
            page.bring_to_front()
            page.keyboard.press("Control+z")
            page.wait_for_function(f"{SOURCES}.length === {3 + left}")
    _deletes_and_comes_back(first, clients["own.ipynb"])


def _deletes_and_comes_back(page: Any, client: Client) -> None:
    page.bring_to_front()
    assert client.call("notebook_read", notebook="own.ipynb").ok
    proposed = {"notebook": "own.ipynb", "cell": "second", "reason": "Not needed."}
    thread, results = client.begin("notebook_propose", action="delete", **proposed)
    card = page.locator(".nbt-proposal")
    card.get_by_role("button", name="Delete").click()
    thread.join(30)
    assert results[0].data["outcome"] == "accepted"
    assert page.evaluate(SOURCES) == [CELLS["load"], CELLS["agent"]]
    becomes(page, card.count, 0)
    page.keyboard.press("Control+z")
    becomes(page, lambda: page.evaluate(SOURCES), list(CELLS.values()))

    # A card outlives a reload of its page, and goes with the cell that it is about.
    thread, results = client.begin("notebook_propose", action="replace", source="43", **proposed)
    lost, others = client.begin("notebook_propose", action="insert", source="1", notebook="own.ipynb", reason="One.")
    page.wait_for_function("document.querySelectorAll('.nbt-proposal').length === 2")
    page.reload()
    page.wait_for_function("document.querySelectorAll('.nbt-proposal').length === 2")
    page.wait_for_function(OPENED)
    card.get_by_role("button", name="Replace").click()
    thread.join(30)
    assert results[0].data["outcome"] == "accepted"
    assert page.evaluate(SOURCES) == [CELLS["load"], "43", CELLS["agent"]]
    assert page.evaluate("window.tested.content.widgets[1].model.executionCount") is None
    card.get_by_role("button", name="Dismiss").click()
    lost.join(30)
    assert others[0].data["outcome"] == "dismissed"
    becomes(page, card.count, 0)

    # It goes with its kernel, which alone could tell what became of it.
    lost, others = client.begin("notebook_propose", action="insert", source="2", notebook="own.ipynb", reason="Two.")
    card.wait_for()
    page.evaluate("window.tested.sessionContext.session.kernel.restart()")
    page.get_by_text("The kernel that made the proposal has ended").wait_for()
    becomes(page, card.get_by_role("button", name="Insert").count, 0)
    lost.join(60)
    assert not others[0].ok
