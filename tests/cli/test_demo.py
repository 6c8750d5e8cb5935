"""``nbtools demo``: what it leaves alone, and how a notebook ends. The tour is run by the tests of the notebooks."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbtools.cli.demo import run_notebook
from nbtools.errors import CallTimeout, KernelDied

nbformat = pytest.importorskip("nbformat")


def _book(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


@pytest.mark.processes
@pytest.mark.parametrize(
    ("cell", "kind", "message"),
    [
        ("import os; os._exit(1)", KernelDied, "the kernel ended"),
        pytest.param(*("import time; time.sleep(600)", CallTimeout, "took more than its 2 s"), marks=pytest.mark.slow),
    ],
)
def test_a_notebook_that_does_not_end_says_why(cell: str, kind: type[Exception], message: str, tmp_path: Path) -> None:
    source = tmp_path / "a.ipynb"
    nbformat.write(_book("n = 1", cell), source)
    with pytest.raises(kind, match=message):
        run_notebook(source, tmp_path / "b.ipynb", cell_seconds=2)
    assert nbformat.read(tmp_path / "b.ipynb", as_version=4).cells[0].execution_count == 1


@pytest.mark.slow
def test_stopping_the_demo_ends_it_in_one_line(stop_command: Callable[..., Any]) -> None:
    stopped = stop_command("demo", "--out", "out", at="%explore")
    lines = [line for line in stopped.err.splitlines() if not line.startswith("[")]
    assert (stopped.code, lines) == (130, ["stopped"])


@pytest.mark.slow
def test_what_nbclient_still_looked_for_when_it_was_stopped_is_not_shown(tmp_path: Path) -> None:
    # It looks each second whether the kernel lives; here it does so at the worst moment, when its client is gone.
    program = """
import asyncio, sys
from pathlib import Path
import nbclient
from nbtools.cli.demo import run_notebook
async def poll(client):
    while client.kc is not None:
        await asyncio.sleep(0)
    assert client.kc is not None
nbclient.NotebookClient._async_poll_kernel_alive = poll
try:
    run_notebook(Path("a.ipynb"), Path("b.ipynb"))
except KeyboardInterrupt:
    print("stopped", file=sys.stderr)
"""
    nbformat.write(_book("import time; time.sleep(600)"), tmp_path / "a.ipynb")
    options: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", program], **options) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("[ 1/1]")
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[1] == "stopped\n"
        finally:
            process.kill()
