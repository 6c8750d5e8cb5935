"""``nbtools demo``: what it leaves alone, and how a notebook ends. The tour is run by the tests of the notebooks."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbtools.cli.demo import _set_parameters, fresh_home, run_notebook
from nbtools.errors import CallTimeout, KernelDied

nbformat = pytest.importorskip("nbformat")


def test_only_the_demos_own_memory_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work", encoding="utf-8")
    (fresh_home(tmp_path) / "old").mkdir(parents=True)
    assert not fresh_home(tmp_path).exists()
    assert (tmp_path / "home" / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def _book(*cells: str, tagged: bool = True) -> Any:
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    book.cells[0].metadata.tags = ["parameters"] if tagged else []
    return book


@pytest.mark.parametrize(
    ("tagged", "name", "note"),
    [(True, "n", ""), (True, "m", "does not set m"), (False, "n", "no cell has the tag 'parameters'")],
)
def test_a_value_that_may_have_no_effect_is_told(
    tagged: bool, name: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    book = _book("n = 1", tagged=tagged)
    _set_parameters(book, {name: 3})
    assert book.cells[int(tagged)].source == f"{name} = 3"
    assert (note in capsys.readouterr().err) if note else capsys.readouterr().err == ""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("cell", "kind", "message"),
    [
        ("import os; os._exit(1)", KernelDied, "the kernel ended"),
        ("while True: pass", CallTimeout, "took more than its 2 s"),
    ],
)
def test_a_notebook_that_does_not_end_says_why(cell: str, kind: type[Exception], message: str, tmp_path: Path) -> None:
    source = tmp_path / "a.ipynb"
    nbformat.write(_book("n = 1", cell), source)
    with pytest.raises(kind, match=message):
        run_notebook(source, tmp_path / "b.ipynb", cell_seconds=2)
    assert nbformat.read(tmp_path / "b.ipynb", as_version=4).cells[0].execution_count == 1


@pytest.mark.processes
def test_stopping_a_notebook_ends_it_without_a_traceback(tmp_path: Path) -> None:
    nbformat.write(_book("n = 1", "print('in it', flush=True)\nimport time\ntime.sleep(60)"), tmp_path / "a.ipynb")
    command = [sys.executable, "-m", "nbtools", "run", "a.ipynb"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    try:
        begun = [process.stderr.readline() for _ in range(2)]
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert begun[1].startswith("[ 2/2]")
    assert process.returncode == 130
    assert said.rstrip().endswith("stopped")
    assert "AssertionError" not in said
