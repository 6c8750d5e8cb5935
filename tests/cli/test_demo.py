"""``nbtools demo``: what it leaves alone, and how a notebook ends. The tour is run by the tests of the notebooks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbtools.cli.demo import fresh_home, run_notebook
from nbtools.errors import CallTimeout, KernelDied

nbformat = pytest.importorskip("nbformat")


def test_only_the_demos_own_memory_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work", encoding="utf-8")
    (fresh_home(tmp_path) / "old").mkdir(parents=True)
    assert not fresh_home(tmp_path).exists()
    assert (tmp_path / "home" / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def _book(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


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
def test_stopping_the_demo_ends_it_in_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "NBTOOLS_HOME": str(tmp_path / "home"), "NBTOOLS_KERNEL_WARM": "0"}
    command = [sys.executable, "-m", "nbtools", "demo", "--out", "out"]
    how: dict[str, Any] = {"cwd": tmp_path, "env": environment, "start_new_session": True}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)
    assert process.stderr is not None
    try:
        while "%explore" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    lines = [line for line in said.splitlines() if not line.startswith("[")]
    assert (process.returncode, lines) == (130, ["stopped"])
