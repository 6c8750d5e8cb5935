"""The magics in a real Jupyter kernel: what a notebook file keeps, streaming, Stop."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.conftest import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def executed(folder: Path, *cells: str) -> list[list[Any]]:
    """Run cells as nbclient does and return the outputs of each."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in ("%load_ext nbtools", *cells)])
    client = NotebookClient(book, timeout=120, iopub_timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [cell["outputs"] for cell in book.cells[1:]]


def text_of(outputs: list[Any], name: str = "stdout") -> str:
    return "".join(o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == name)


def test_a_notebook_keeps_text_html_and_pictures(folder) -> None:
    analyzed, drawn, listed, asked, bound = executed(
        folder,
        "%%data_analyze sales.csv\nprint('from the script')",
        "%%data_visualize sales.csv -i a.png\nimport matplotlib.pyplot as plt\nplt.bar([1, 2], [3, 4]);",
        "%memory save k v\n%memory list",
        "%%nbsql\nselect * from 'sales.csv'",
        "rows << %nbsql select 1 as x\nrows.x.tolist()",
    )
    assert text_of(analyzed) == "from the script\n"
    assert "data_analyze" in analyzed[-1]["data"]["text/html"]
    assert sum("image/png" in o.get("data", {}) for o in drawn) == 1
    assert "<table" in listed[-1]["data"]["text/html"]
    assert "k" in listed[-1]["data"]["text/plain"]
    view, saved = asked
    assert view["data"].keys() >= {"application/vnd.jupyter.widget-view+json"}
    assert "2 rows" in saved["data"]["text/html"]
    assert "2 rows" in saved["data"]["text/plain"]
    assert bound[-1]["data"]["text/plain"] == "[1]"
    assert not any(text_of(outputs, "stderr") for outputs in (analyzed, drawn, listed, asked, bound))


def test_an_error_is_three_lines_in_the_notebook_too(folder) -> None:
    with pytest.raises(CellExecutionError) as caught:
        executed(folder, "%memory get nothing", "print('not reached')")
    assert "There is no memory 'nothing'" in str(caught.value)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%load_ext nbtools\n%memory get nothing")])
    NotebookClient(
        book, timeout=60, iopub_timeout=60, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    ).execute()
    error = book.cells[0]["outputs"][-1]
    assert error["ename"] == "MemoryNotFound"
    assert len(error["traceback"]) <= 3


SLOW = "import time\nprint('one', flush=True)\ntime.sleep(3.2)\nprint('two')"


def test_the_time_of_long_work_leaves_nothing_in_the_notebook(folder) -> None:
    alone, bound, beside = executed(
        folder,
        f"%%data_analyze sales.csv\n{SLOW}\nimport pandas as pd\ndisplay(pd.DataFrame([1]))",
        f"r << %%data_analyze sales.csv\n{SLOW}\nr = 42",
        f"print('before')\nget_ipython().run_cell_magic('data_analyze', 'sales.csv', {SLOW!r});",
    )
    assert [o["output_type"] for o in alone] == ["stream", "display_data", "execute_result"]
    assert text_of(alone) == "one\ntwo\n"
    assert text_of(bound) == "one\ntwo\nr: int\n"
    assert {o["output_type"] for o in bound} == {"stream"}
    assert alone[-1]["data"]["text/plain"].startswith("data_analyze · ")
    # Other code of the cell has shown something too, which is not taken away: the display is empty.
    assert text_of(beside) == "before\none\ntwo\n"
    assert [o["data"] for o in beside if o["output_type"] == "display_data"] == [{}]
    assert "running for" not in str([*alone, *bound, *beside])


def test_a_cell_shows_a_part_of_a_flood_and_says_where_the_rest_is(folder) -> None:
    flood = "for i in range(300_000): print(i)"
    analyzed, kept, coded, shown = executed(
        folder,
        f"%%data_analyze sales.csv\n{flood}",
        "len(_.data['stdout'].split())",
        f"%%code python\nimport sys\nprint('no', file=sys.stderr)\n{flood}",
        "%%data_analyze sales.csv\nfor i in range(2_000): display(i)",
    )
    for outputs in (analyzed, coded):
        text = text_of(outputs)
        assert len(text.splitlines()) < 2_100
        assert "lines (" in text
        assert "not shown here" in text
        assert text.endswith("299998\n299999\n")
        assert len(str(outputs)) < 200_000
    assert kept[-1]["data"]["text/plain"] == "300000"
    assert sum(o["output_type"] == "display_data" for o in shown) == 500
    assert "1,500 displays are not shown here" in text_of(shown)


def test_nobody_at_the_keyboard_means_no(folder) -> None:
    (folder / "nbtools.toml").write_text('[policy]\nmemory_delete = "ask"\n')
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("%load_ext nbtools\n%memory save k v\n%memory delete k")]
    )
    NotebookClient(
        book, timeout=60, iopub_timeout=60, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    ).execute()
    error = book.cells[0]["outputs"][-1]
    assert error["ename"] == "ApprovalDenied"


class Kernel:
    """A kernel that is talked to as a front end does."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder), env=dict(os.environ))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def send(self, code: str, cell: str | None = None) -> str:
        """Run a cell, with its id in the notebook where one is given; return the number of the message."""
        message = self.client.session.msg("execute_request", {"code": code, "silent": False, "stop_on_error": True})
        message["metadata"]["cellId"] = cell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def messages(self, sent: str, *, timeout: float = 60) -> Iterator[dict[str, Any]]:
        """Yield what the cell shows, until it is done."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != sent:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return
            yield message
        raise AssertionError("the cell did not end in time")

    def run(self, code: str, cell: str | None = None) -> list[dict[str, Any]]:
        return list(self.messages(self.send(code, cell)))

    def printed(self, code: str) -> str:
        return "".join(m["content"]["text"] for m in self.run(code) if m["msg_type"] == "stream")


@pytest.fixture
def kernel(folder: Path) -> Iterator[Kernel]:
    made = Kernel(folder)
    made.run("%load_ext nbtools")
    yield made
    made.client.stop_channels()
    made.manager.shutdown_kernel(now=False)


def test_output_arrives_while_the_script_runs_and_stop_ends_it(kernel) -> None:
    sent = kernel.send(
        "%%data_analyze sales.csv\nimport os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
    )
    child, errors, seen = 0, [], []
    for message in kernel.messages(sent):
        seen.append((message["msg_type"], str(message["content"])[:300]))
        # Once: a cell that took long enough to show its time is drawn again at its end.
        if not child and message["msg_type"] == "stream" and "pid" in message["content"]["text"]:
            child = int(message["content"]["text"].split()[1])
            kernel.manager.interrupt_kernel()
        if message["msg_type"] == "error":
            errors.append(message["content"])
    assert child
    assert [error["ename"] for error in errors] == ["Cancelled"], seen
    assert len(errors[0]["traceback"]) == 3
    shown = kernel.run("%%data_analyze sales.csv\nprint('again')")
    assert any("again" in m["content"].get("text", "") for m in shown)
    # The kernel is killed when it does not end by the interrupt, so it is gone soon, or its cell has ended.
    wait_until(lambda: not psutil.pid_exists(child))


def test_tab_answers_in_every_cell_magic_of_a_session(kernel) -> None:
    kernel.run("import os\nabcdef = 1")
    for text, offered in [
        ("%%time\nabcd", "abcdef"),
        ("%%time\nos.getcw", "getcwd"),
        ("%memory sa", "save"),
        ("%%html\n<b>abcd", "abcdef"),
        ("%%data_analyze sales.csv\nos.getcw", "getcwd"),
        ("%%time\nx = abcd", "abcdef"),
    ]:
        answer = kernel.client.complete(text, reply=True, timeout=30)["content"]
        assert answer["status"] == "ok"
        assert offered in answer["matches"], text
        assert offered.startswith(text[answer["cursor_start"] : answer["cursor_end"]])


def wait_until_busy(pid: int) -> None:
    """Wait until a process has worked for half a second."""
    process = psutil.Process(pid)
    before = process.cpu_times().user
    wait_until(lambda: process.cpu_times().user >= before + 0.5)


def test_stop_ends_a_query_too(kernel) -> None:
    kernel.run("%nbsql select 1 as x")  # the import of the engine is not what is to be stopped
    sent = kernel.send("%%nbsql\nselect count(*) from range(100000000000) a, range(1000) b where a.range % 7 = b.range")
    begun = time.monotonic()
    pressed = False
    errors = []
    for message in kernel.messages(sent, timeout=25):
        if message["msg_type"] == "execute_input" and not pressed:
            pressed = True
            wait_until_busy(kernel.pid)
            kernel.manager.interrupt_kernel()
        if message["msg_type"] == "error":
            errors.append(message["content"]["ename"])
    assert errors == ["Cancelled"]
    assert time.monotonic() - begun < 20
    assert kernel.run("%nbsql select 1 as x")


def test_no_process_is_left_when_the_extension_is_unloaded(kernel) -> None:
    kernel.run("%%data_analyze sales.csv --session s\nx = 1")
    assert psutil.Process(kernel.pid).children(recursive=True)
    kernel.run("%unload_ext nbtools")
    wait_until(lambda: psutil.Process(kernel.pid).children(recursive=True) == [])


def test_a_person_is_asked_in_the_cell_and_the_answer_counts(kernel, folder) -> None:
    (folder / "nbtools.toml").write_text('[policy]\nmemory_delete = "ask"\n')
    kernel.run("%memory save k v")
    sent = kernel.client.execute("%memory delete k", allow_stdin=True)
    asked = kernel.client.get_stdin_msg(timeout=30)
    assert "Allow?" in asked["content"]["prompt"]
    kernel.client.input("y")
    shown = list(kernel.messages(sent))
    assert any("memory_delete" in m["content"].get("text", "") for m in shown if m["msg_type"] == "stream")
    assert any("deleted successfully" in str(m["content"]) for m in shown if m["msg_type"] == "execute_result")


def test_the_workbench_of_the_notebook_sees_its_frames_before_any_magic(kernel) -> None:
    shown = kernel.run(
        "import nbtools, pandas as pd\n"
        "sales = pd.DataFrame({'amount': [1, 41]})\n"
        "int(nbtools.workbench().sql('select sum(amount) as s from sales')['s'][0])"
    )
    assert [m["content"]["data"]["text/plain"] for m in shown if m["msg_type"] == "execute_result"] == ["42"]


def test_a_workflow_is_a_picture_while_it_runs_and_a_card_at_the_end(folder) -> None:
    cell = """%%workflow
version: 1
name: flow
nodes:
  - {id: a, code: "import time; time.sleep(0.5); 41"}
  - {id: b, tool: calculator, args: {expression: "${nodes.a.data} + 1"}}
outputs: {b: "${nodes.b.data.value}"}
"""
    [shown] = executed(folder, cell)
    line, card = (output["data"] for output in shown)
    assert "flow" in line["text/html"]
    assert "data-state" not in line["text/html"], "the card has the graph"
    assert card["text/html"].count('data-state="ok"') == 2
    assert "b: 42" in card["text/plain"]


AGENT = """
turns:
  - {say: "Slowly.\\n", calls: [{tool: calculator, arguments: {expression: 6*7}}]}
  - {when: {prompt: begin}, say: Never said., wait: 60}
  - {when: {prompt: Go on}, say: Here again.}
"""


def test_an_agent_streams_is_stopped_and_goes_on_in_the_same_thread(kernel, folder) -> None:
    (folder / "turns.yaml").write_text(AGENT)
    sent = kernel.send("%%agent --script turns.yaml\nPlease begin.")
    seen, stopped_at = [], 0.0
    for message in kernel.messages(sent):
        seen.append(message)
        if not stopped_at and "calculator" in str(message["content"].get("data")):
            stopped_at = time.monotonic()
            kernel.manager.interrupt_kernel()
    assert time.monotonic() - stopped_at < 10
    assert [m["content"]["ename"] for m in seen if m["msg_type"] == "error"] == ["Cancelled"]
    assert "Slowly." in str(seen)
    again = kernel.run("%%agent --script turns.yaml\nGo on.")
    assert "Here again." in str(again)
    threads = "{run['conversation_id'] for run in nbtools.assembly.shared.shared().agent.runs()}"
    (counted,) = [
        m for m in kernel.run(f"import nbtools.assembly.shared\nlen({threads})") if m["msg_type"] == "execute_result"
    ]
    assert counted["content"]["data"]["text/plain"] == "1"


def test_an_agent_asks_nobody_in_a_notebook_that_runs_by_itself(folder) -> None:
    script = "turns:\n  - calls: [{tool: file_delete, arguments: {path: sales.csv}}]\n  - say: It may not be deleted.\n"
    (folder / "turns.yaml").write_text(script)
    (ended,) = executed(folder, "%%agent --script turns.yaml\nDelete it.")
    assert (folder / "sales.csv").is_file()
    assert "APPROVAL_DENIED" in str(ended)
    assert "It may not be deleted." in text_of(ended)
    assert "scripted (no LLM)" in ended[-1]["data"]["text/html"]


_GRIDS = """
import gc, os
from nbtools.widgets.grid.grid_widget import GridWidget
alive = [each for each in gc.get_objects() if isinstance(each, GridWidget) and each.comm is not None]
print(len(alive), len(os.listdir("/proc/self/task")))
del alive
"""


def test_a_grid_ends_when_its_cell_runs_again_or_its_name_is_gone(kernel: Kernel) -> None:
    def count() -> tuple[int, int]:
        alive, threads = map(int, kernel.printed(_GRIDS).split())
        return alive, threads

    for _ in range(6):
        kernel.run("%%nbsql\nselect * from 'sales.csv'", "first")
    assert count()[0] == 1
    for _ in range(6):
        kernel.run("%explore sales.csv", "first")
    assert count()[0] == 1
    kernel.run("%explore sales.csv", "second")  # both are on the screen
    assert count()[0] == 2
    for _ in range(4):
        kernel.run("import nbtools\nnamed = nbtools.workbench().explore('sales.csv')", "third")
    assert count()[0] == 4  # the last but one had the name until the last got it
    kernel.run("boxed = [named]\nnamed = None\n%explore sales.csv", "second")
    assert count()[0] == 3  # a list holds the one without a name
    make = "seen = nbtools.workbench().explore('sales.csv')"
    for code, cell in ((make, "maker"), ("first = id(seen)\nseen", "viewer"), (make, "maker"), (make, "maker")):
        kernel.run(code, cell)
    kernel.run("del seen\n%explore sales.csv", "third")
    alive = "print([each.comm is not None for each in gc.get_objects() if id(each) == first])"
    assert kernel.printed(alive) == "[True]\n"  # another cell shows it, and is not the one that ran again
    for number in range(8):
        kernel.run("%explore sales.csv", f"cell {number}")
    before = count()[1]
    kernel.run("%explore sales.csv", "one more")
    assert count()[1] <= before + 2  # of the earlier ones, all but a few rest
    kernel.run("nbtools.workbench().close()")
    assert count()[1] < before
