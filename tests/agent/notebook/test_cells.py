"""Cells of a notebook as a model or an outside client reads them, and what it proposes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.agent.notebook.cells import CELL_TOOLS, NotebookCells
from nbtools.agent.sharing import Sharing
from nbtools.contract.door import Door
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.label import Label
from nbtools.contract.tool import ToolCall, tool_of
from nbtools.errors import ConfigMissing

SOURCES = ("import os", "key = 'sk-ant-4k2j5h6g7f8d9s0a'", "print(4711)")


class Shown:
    """A page with some notebooks, whose person answers as it is told."""

    def __init__(self, *names: str, person: str = "accepted") -> None:
        self.cells = {name: [self._cell(name, at) for at in range(len(SOURCES))] for name in names}
        self.person = person
        self.proposals: list[dict[str, Any]] = []

    def _cell(self, name: str, at: int) -> dict[str, Any]:
        outputs = ["4711\n"] if at == 2 else []
        return {"id": f"{name}-{at}", "kind": "code", "source": SOURCES[at], "ran": at, "outputs": outputs}

    def ask(self, question: Any) -> Any:
        if question["ask"] == "who":
            return {"notebooks": list(self.cells)}
        if question["ask"] == "read":
            return {"cells": self.cells[question["notebook"]], "proposals": []}
        if question["ask"] == "propose":
            self.proposals.append(dict(question))
            return {"outcome": "waiting", "at": None}
        return {"outcome": self.person, "at": None if self.person == "waiting" else "2026-01-02 03:04:05+0000"}


def executor(page: Shown, **how: Any) -> LocalExecutor:
    cells = NotebookCells(page.ask, **how)
    return LocalExecutor(CELL_TOOLS, door=Door(services={NotebookCells: lambda: cells}))


def call(executor: LocalExecutor, name: str, **arguments: Any) -> Any:
    run_id = arguments.pop("run_id", "run")
    return executor.call(ToolCall(tool=name, arguments=arguments, caller="mcp", run_id=run_id))


def test_cells_are_read_with_their_label_and_without_secrets() -> None:
    found = call(executor(Shown("a.ipynb")), "notebook_read")
    assert found.label == Label(private=True, strangers=True)
    assert [cell["id"] for cell in found.data["cells"]] == ["a.ipynb-0", "a.ipynb-1", "a.ipynb-2"]
    assert found.data["cells"][2]["outputs"] == ["4711\n"]
    assert "=== cell 2 (code, id a.ipynb-2, ran as [2])\nprint(4711)\n--- output\n4711" in found.text
    assert "sk-ant" not in found.text
    sources = call(executor(Shown("a.ipynb")), "notebook_read", outputs=False)
    assert sources.label == Label(private=True)
    assert "--- output" not in sources.text


def test_a_notebook_that_came_of_strangers_texts_is_read_as_theirs(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with Workbench(home=tmp_path / "home", memory_url=":memory:", policy={"file_write": "allow"}) as bench:
        for name in ("theirs.ipynb", "own.ipynb"):
            theirs = Label(strangers=name == "theirs.ipynb")
            arguments = {"path": name, "content": name}
            bench.call(ToolCall(tool="file_write", arguments=arguments, caller="model", label=theirs)).raise_for_error()
        for name in ("work/theirs.ipynb", "work/own.ipynb"):  # as a page tells it whose server began one folder above
            cells = NotebookCells(Shown(name).ask)
            reader = LocalExecutor(CELL_TOOLS, door=bench.door.but(services={NotebookCells: lambda cells=cells: cells}))
            assert call(reader, "notebook_read", outputs=False).label.strangers is ("theirs" in name)


def test_a_model_sees_the_level_that_is_shared_and_no_more() -> None:
    seen: list[Label] = []
    found = call(executor(Shown("a.ipynb"), sharing=Sharing.of("schema"), see=seen.append), "notebook_read")
    assert "4711" not in found.text + str(found.data)
    assert "text of up to 16 characters" in found.text
    assert seen == [Label(private=True)]
    assert found.label == Label(strangers=True)


def test_a_long_notebook_is_cut_within_the_budget_and_says_where() -> None:
    page = Shown("a.ipynb")
    page.cells["a.ipynb"] = [{**page.cells["a.ipynb"][0], "id": str(n), "source": "x" * 9_000} for n in range(20)]
    found = call(executor(page), "notebook_read")
    assert len(found.text) < 20_000
    assert "[cut: 4,000 of 9,000 characters]" in found.text
    assert found.data["cut"] == "cells from 3 on are not shown: read on with first=3"
    assert call(executor(page), "notebook_read", first=18).data["cut"] == ""


def test_a_notebook_is_named_where_it_could_be_another() -> None:
    asking = executor(Shown("a.ipynb", "b/a.ipynb", "c.ipynb"))
    assert call(asking, "notebook_read").error.code == "INVALID_ARGUMENTS"
    assert call(asking, "notebook_read", notebook="a.ipynb").data["notebook"] == "a.ipynb"
    assert call(asking, "notebook_read", notebook="b/a.ipynb").data["notebook"] == "b/a.ipynb"
    assert "'c.ipynb'" in call(asking, "notebook_read", notebook="d.ipynb").error.hint
    assert call(executor(Shown()), "notebook_read").error.code == ConfigMissing.code


@pytest.mark.parametrize(("person", "words"), [("accepted", "it was not run"), ("dismissed", "nothing was changed")])
def test_a_proposal_is_shown_and_its_outcome_comes_back(person: str, words: str) -> None:
    page = Shown("a.ipynb", person=person)
    found = call(executor(page), "notebook_propose", action="insert", source="2 + 2", reason="It is four.")
    assert found.data["outcome"] == person
    assert words in found.text
    assert page.proposals[0]["lines"] == [["+", "2 + 2"]]
    assert page.proposals[0]["call"] == {"call_id": found.call_id, "run_id": "run"}


def test_what_nobody_clicked_on_waits_and_says_so() -> None:
    inserted = {"action": "insert", "source": "1", "reason": "x", "wait": 0.01}
    found = call(executor(Shown("a.ipynb", person="waiting")), "notebook_propose", **inserted)
    assert (found.data["outcome"], found.data["at"]) == ("waiting", None)
    assert "no one has clicked yet" in found.text


def test_only_what_the_same_client_read_is_replaced() -> None:
    page = Shown("a.ipynb")
    asking = executor(page)
    replaced = {"action": "replace", "cell": "a.ipynb-0", "source": "import sys", "reason": "x"}
    assert "was not read before" in call(asking, "notebook_propose", **replaced).error.message
    call(asking, "notebook_read", run_id="other")
    assert not call(asking, "notebook_propose", **replaced).ok
    call(asking, "notebook_read")
    page.cells["a.ipynb"][0]["source"] = "changed meanwhile"
    assert call(asking, "notebook_propose", **replaced).ok
    # The page compares this with what is there: what changed meanwhile is not replaced.
    assert page.proposals[0]["before"] == "import os"
    assert page.proposals[0]["lines"] == [["-", "import os"], ["+", "import sys"]]
    assert call(asking, "notebook_propose", action="delete", cell="a.ipynb-0", source="1", reason="x").error
    assert call(asking, "notebook_propose", action="insert", source=" ", reason="x").error


def test_a_thousand_interleaved_proposals_reach_their_notebooks_alone() -> None:
    page = Shown("a.ipynb", "b.ipynb")
    clients = [executor(page), executor(page)]

    async def propose(number: int) -> Any:
        name = "ab"[number % 2]
        arguments = {"action": "insert", "source": f"{name} {number}", "reason": "x", "notebook": f"{name}.ipynb"}
        asking = ToolCall(tool="notebook_propose", arguments=arguments, caller="mcp", run_id=name)
        return await clients[number % 2].acall(asking)

    async def propose_all() -> list[Any]:
        return await asyncio.gather(*map(propose, range(1_000)))

    results = asyncio.run(propose_all())
    assert len(page.proposals) == len({each["proposal"] for each in page.proposals}) == 1_000
    assert all(each["notebook"] == f"{each['source'][0]}.ipynb" for each in page.proposals)
    assert all(result.data["notebook"] == f"{'ab'[n % 2]}.ipynb" for n, result in enumerate(results))


def test_what_the_tools_do_is_declared() -> None:
    for function in CELL_TOOLS:
        effects = tool_of(function).effects
        assert effects.names() == ("read_only", "public")
