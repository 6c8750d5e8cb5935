"""Two clients on two notebooks of one JupyterLab never meet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.test_lab_notebook import SOURCES, Client, run_cell, write_notebooks

pytestmark = pytest.mark.slow

_MOST = 6


@pytest.mark.parametrize("lab", ["notebook"], indirect=True)
def test_proposals_of_two_clients_reach_their_own_notebooks(lab: Any, open_notebook: Any) -> None:
    write_notebooks(lab.root)
    first = open_notebook("own.ipynb").page
    second = first.context.new_page()
    second.goto(first.url.replace("own.ipynb", "other.ipynb"))
    second.wait_for_function(
        """() => { const each = window.jupyterapp && [...window.jupyterapp.shell.widgets('main')]
            .find(each => each.sessionContext); window.tested = each;
            return each?.sessionContext.session?.kernel?.status === 'idle' }"""
    )
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
        page.wait_for_function(f"document.querySelectorAll('.nbt-proposal').length === {_MOST // 2}")
        for _ in range(_MOST // 2):
            page.locator(".nbt-proposal button").first.click()
    for name, (thread, results) in begun:
        thread.join(60)
        assert (results[0].data["outcome"], results[0].data["notebook"]) == ("accepted", name)
    for name, page in pages.items():
        assert page.evaluate(SOURCES)[3:] == [f"'{name}'"] * (_MOST // 2)
        for left in reversed(range(_MOST // 2)):
            page.bring_to_front()
            page.keyboard.press("Control+z")
            page.wait_for_function(f"{SOURCES}.length === {3 + left}")
