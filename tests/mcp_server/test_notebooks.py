"""Notebooks that are open in kernels of the same home, as an outside client reaches them."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import ConfigMissing, InvalidArguments
from nbtools.jupyter.notebook.socket import NotebookSocket
from nbtools.mcp_server.notebooks import OpenNotebooks

pytestmark = pytest.mark.processes


class Shown:
    """A page, that keeps what it is asked."""

    def __init__(self) -> None:
        self.questions: list[Any] = []
        self.names = ["a.ipynb"]

    def ask(self, question: Any) -> Any:
        self.questions.append(question)
        if question["ask"] == "who":
            if not self.names:
                raise ConfigMissing("it does not answer.", hint="Open it.")
            return {"notebooks": self.names}
        return {"outcome": "waiting", "at": None}


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Shown]:
    shown = Shown()
    listening = NotebookSocket(tmp_path, shown.ask)
    yield shown
    listening.close()
    assert not list((tmp_path / "notebooks").iterdir())


def test_a_question_goes_to_the_kernel_that_has_the_notebook(page: Shown, tmp_path: Path) -> None:
    clients = [OpenNotebooks(tmp_path), OpenNotebooks(tmp_path)]
    for client in clients:
        assert client.ask({"ask": "who"}) == {"notebooks": ["a.ipynb"]}
    proposal = {"ask": "propose", "notebook": "a.ipynb", "proposal": "p1"}
    assert clients[0].ask(proposal)["outcome"] == "waiting"
    assert page.questions[-1] == proposal
    page.names = []
    # What became of a proposal is told by the kernel that has it, when its notebook is closed too.
    with pytest.raises(ConfigMissing, match="does not answer"):
        clients[0].ask({"ask": "who"})
    assert clients[0].ask({"ask": "outcome", "notebook": "a.ipynb", "proposal": "p1"})["outcome"] == "waiting"
    with pytest.raises(InvalidArguments, match="in no kernel"):
        OpenNotebooks(tmp_path).ask({"ask": "read", "notebook": "b.ipynb"})


def test_the_socket_is_the_users_alone_and_one_of_a_dead_kernel_is_forgotten(page: Shown, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    dead = folder / "1.json"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "1.sock"))
    dead.write_text(json.dumps({"unix": str(folder / "1.sock")}))
    assert OpenNotebooks(tmp_path).ask({"ask": "who"}) == {"notebooks": ["a.ipynb"]}
    assert not dead.exists()
    (folder / "1.sock").unlink()


def test_without_a_kernel_no_notebook_is_open(tmp_path: Path) -> None:
    assert OpenNotebooks(tmp_path).ask({"ask": "who"}) == {"notebooks": []}
