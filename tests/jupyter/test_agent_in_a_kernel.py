"""``%%agent`` in a real kernel: every wire, Stop, a kernel that starts again while a call waits, proof and undo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.agent.stand_ins import WIRES, Answer, StandIn, stand_in
from tests.conftest import trusted_settings, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.slow]
LOOK = Answer(text="I count.", calls=[("sql_query", '{"query": "select count(*) as n from \'birds.csv\'"}')])
WRITE = Answer(calls=[("file_write", '{"path": "report.txt", "content": "as proposed"}')])


class Kernel:
    """A kernel with the extension, which can be started again."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(cwd=str(folder))
        self._connect()

    def _connect(self) -> None:
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.run("%load_ext nbtools")

    def start_anew(self) -> None:
        """Restart, as the button of a front end does."""
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self._connect()

    def run(self, code: str, stop_at: str | None = None, waits: Callable[[], bool] = lambda: True) -> str:
        """Run a cell, and return all that it shows; stop it when it has shown a text, and then waits."""
        asked, shown, stopped = self.client.execute(code), "", False
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return shown
            shown += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            shown += "\n".join(content.get("traceback", ())) if kind == "error" else ""
            if stop_at is not None and stop_at in shown and not stopped:
                stopped = True
                wait_until(waits)
                self.manager.interrupt_kernel()

    def close(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def servers() -> Iterator[dict[str, StandIn]]:
    with ExitStack() as stack:
        yield {wire: stack.enter_context(stand_in(wire)) for wire in WIRES}


@pytest.fixture
def kernel(folder: Path, servers: dict[str, StandIn]) -> Iterator[Kernel]:
    lines = []
    for wire, server in servers.items():
        lines += [f'[models."{wire}-here"]', f'model = "{wire}:m"', f'base_url = "{server.url}"', ""]
    trusted_settings(folder, "\n".join(lines))
    (folder / "birds.csv").write_text("name,n\na,1\nb,2\n")
    started = Kernel(folder)
    yield started
    started.close()


def _terminal(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "nbtools.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_same_prompt_works_on_all_wires_and_stop_leaves_the_thread(
    kernel: Kernel, servers: dict[str, StandIn]
) -> None:
    for wire, server in servers.items():
        server.answers = [LOOK, Answer(text="There are two.")]
        shown = kernel.run(f"%%agent --new --model {wire}-here --share values\nHow many birds are in birds.csv?")
        assert "There are two." in shown, wire
        assert "✓ sql_query" in shown, wire
        assert (len(server.requests), b"birds.csv" in server.requests[0]) == (2, True), wire
    # Stop while the model is waited for; the next cell goes on in the same thread.
    server = servers["openai"]
    server.requests.clear()
    server.answers = [LOOK, Answer(status=429, retry_after="50"), Answer(text="As I said, two.")]
    begun = time.monotonic()
    shown = kernel.run(
        "%%agent --new --model openai-here --share values\nHow many birds?",
        stop_at="✓ sql_query",
        waits=lambda: len(server.requests) == 2,  # else the next cell is what has to try later
    )
    assert "Cancelled" in shown
    assert time.monotonic() - begun < 30
    shown = kernel.run("%%agent --model openai-here --share values\nGo on.")
    assert "As I said, two." in shown
    assert b"How many birds?" in server.requests[-1]
    assert b"Go on." in server.requests[-1]


def test_a_call_that_waits_outlives_the_kernel_and_is_changed_from_a_terminal(
    kernel: Kernel, servers: dict[str, StandIn], folder: Path
) -> None:
    (folder / "report.txt").write_text("as it was")
    server = servers["anthropic"]
    server.answers = [LOOK, WRITE, Answer(text="The report is written.")]
    shown = kernel.run("run << %%agent --model anthropic-here --share values --approve later\nWrite the report.")
    assert "pending" in shown
    kernel.start_anew()
    run_id = json.loads(_terminal(folder, "agent", "runs", "--json"))[0]["run_id"]
    answered = _terminal(folder, "agent", "resume", run_id, "--answer", "once", "--set", "content=as changed")
    assert "The report is written." in answered
    assert (folder / "report.txt").read_text() == "as changed"
    assert b"as changed" in server.requests[-1]  # the model is told
    # The card, the record and the export have what ran.
    shown = kernel.run(f"%agent show {run_id[:8]}")
    assert "approved with changes" in shown
    assert "as changed" in shown
    ask = "[call['arguments'] for call in shared().call_records() if call['tool'] == 'file_write' and call['ok']]"
    recorded = kernel.run(f"from nbtools.assembly.shared import shared\n{ask}")
    assert "as changed" in recorded
    assert "as proposed" not in recorded
    assert "a notebook of 2 calls" in kernel.run(f"%agent export {run_id} proof.ipynb")
    written = (folder / "proof.ipynb").read_text()
    assert ("as changed" in written, "as proposed" in written) == (True, False)
    assert kernel.run(f"%agent undo {run_id}").count("taken back") == 1
    assert (folder / "report.txt").read_text() == "as it was"


def test_an_exported_run_is_proved_by_jupyter(kernel: Kernel, servers: dict[str, StandIn], folder: Path) -> None:
    server = servers["gemini"]
    script = "import pandas as pd\nprint(pd.read_csv(input_file_path).n.sum())"
    analyze = json.dumps({"input_file_path": "birds.csv", "analysis_script": script})
    server.answers = [LOOK, Answer(calls=[("data_analyze", analyze)]), Answer(text="Three.")]
    kernel.run("%%agent --model gemini-here --share values --approve auto\nAdd the birds up.")
    run_id = json.loads(_terminal(folder, "agent", "runs", "--json"))[0]["run_id"]
    kernel.run(f"%agent export {run_id} proof.ipynb")
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "proof.ipynb"]
    subprocess.run(command, cwd=folder, check=True, timeout=120, capture_output=True, env=dict(os.environ))
    last: Any = json.loads((folder / "proof.ipynb").read_text())["cells"][-1]
    assert "reproduced 2 of 2" in str(last["outputs"])
