"""Who sees a page need not own the kernel: where views only look, nothing that they send runs or changes anything."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

import nbtools
import nbtools.assembly.shared
from nbtools import Workbench
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.prepared import prepare
from nbtools.contract.tool import ToolCall
from nbtools.ground import aio
from nbtools.widgets.approval_card import ApprovalCard
from nbtools.widgets.forms.proposals import Proposal
from nbtools.widgets.live.live_widget import LiveWidget
from nbtools.widgets.table import TableView
from nbtools.widgets.workflow_view import view_of

FLOW = "version: 1\nname: w\nnodes:\n  - {id: agree, ask: {approve: Really?}}\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    place = tmp_path_factory.mktemp("read_only")
    (place / "a.csv").write_text("a\n1\n")
    with Workbench(home=place / "home", allowed_paths=[place], memory_url=":memory:", spares=0) as made:
        yield made


def _file(bench: Workbench) -> str:
    return str(bench.config.allowed_paths[0] / "a.csv")


def _card(bench: Workbench) -> LiveWidget:
    call = ToolCall(tool="file_delete", arguments={"path": _file(bench)})
    asked = aio.run(prepare(bench.executor.tools()["file_delete"], call, bench.door.services))
    request = aio.run(ApprovalRequest.of(asked, bench.door.services, "by default"))
    return ApprovalCard(Proposal.of_request(request)).hold(read_only=True)


def test_explore_of_the_package_takes_what_the_workbench_takes(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(nbtools.assembly.shared, "shared", lambda: bench)
    assert nbtools.explore(_file(bench), read_only=True).read_only


WIDGETS = {
    "explorer": lambda bench: bench.explore(_file(bench), read_only=True),
    "table": lambda _: TableView.from_frame(pd.DataFrame({"a": [1]})).hold(read_only=True),
    "chat": lambda bench: bench.chat().hold(read_only=True),
    "form": lambda bench: bench.form("calculator", expression="1").hold(read_only=True),
    "browser": lambda bench: bench.browse_memory(read_only=True),
    "monitor": lambda bench: bench.monitor(read_only=True),
    "run": lambda bench: view_of(bench.workflows.run(FLOW, wait_s=0), bench.workflows, read_only=True),
    "card": _card,
}
# What a page that only shows may ask for. Whatever is new in a widget is refused until it is entered here and there.
LOOKS = {
    "explorer": "cells chart check code copy filter finish part profile reload row sort values whole",
    "table": "cells copy filter finish part profile sort values whole",
    "chat": "look",
    "form": "",
    "browser": "find open",
    "monitor": "list",
    "run": "look",
    "card": "",
}


@pytest.mark.parametrize("name", WIDGETS)
def test_a_view_that_only_looks_can_do_nothing_else(bench: Workbench, front_end: Any, name: str) -> None:
    view = front_end(WIDGETS[name](bench))
    widget = view.widget
    assert widget.read_only
    asks = {each.removeprefix("answer_") for each in dir(widget) if each.startswith("answer_")}
    assert asks & widget.looks == set(LOOKS[name].split())
    # A page cannot say that it may act, nor write what this side reads.
    before = widget.get_state()
    widget.set_state({"read_only": False, "title": "mine", "connection": "other"})
    assert (widget.read_only, widget.title) == (True, before["title"])
    for ask in sorted(asks - widget.looks):
        error = view.reply(view.start(ask, answer="yes", text="x", code="x", id="x"))["error"]
        assert "this page only shows" in error["message"], ask
        assert "read_only=False" in error["hint"]


def test_what_looks_still_works(bench: Workbench, front_end: Any) -> None:
    view = front_end(WIDGETS["explorer"](bench))
    assert view.ask("cells", start=0, stop=1, columns=[0], rev=view.widget.state["rev"]) == [["1"]]
    view.ask("sort", order=[["a", True]])
    assert "ORDER BY" in view.widget.sql
    view.widget.hold(read_only=False)
    view.ask("query", text="select 2 as b", connection="")
    assert view.widget.state["columns"][0]["name"] == "b"


@pytest.mark.slow
def test_a_notebook_that_runs_with_nobody_before_it_makes_widgets_that_only_look(tmp_path: Path) -> None:
    """As a server of pages runs it; whoever made the page may say otherwise."""
    cells = [
        "import nbtools, pandas as pd\n%load_ext nbtools\nwb = nbtools.workbench()\ndf = pd.DataFrame({'a': [1]})",
        "print([wb.explore(df).read_only, wb.explore(df, read_only=False).read_only, wb.monitor().read_only])",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, iopub_timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[1].outputs[0].text == "[True, False, True]\n"


def test_a_page_of_marimo_only_looks_and_its_editor_acts(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package is not here: the stand-in has what its documentation says of ``app_meta().mode``."""
    for mode, only_looks in (("run", True), ("edit", False), (None, False)):
        said = types.SimpleNamespace(app_meta=lambda mode=mode: types.SimpleNamespace(mode=mode))
        monkeypatch.setitem(sys.modules, "marimo", said)
        assert bench.monitor().read_only is only_looks
