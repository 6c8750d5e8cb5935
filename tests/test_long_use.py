"""A long day: a thousand mixed calls, and a thousand cells, leave as many threads, descriptors, processes as a few.

The cells run in a shell, and in a kernel as a notebook has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nbtools.kernels.forked.backend import ForkedBackend

pytestmark = [
    pytest.mark.races,
    pytest.mark.slow,
    pytest.mark.skipif(not ForkedBackend.is_supported(), reason="counts by /proc"),
]

# What hangs ends with the traces of all threads.
COUNTED = """
import faulthandler, gc, os, pathlib, sys, tempfile, threading, time

faulthandler.dump_traceback_later(400, exit=True)

def descendants(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found

def counted():
    # Kernels of scripts end behind their results.
    time.sleep(1.5)
    gc.collect()
    status = pathlib.Path("/proc/self/status").read_text()
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": len(descendants(os.getpid())),
        "files": sum(len(files) for _, _, files in os.walk(tempfile.gettempdir())),
        "megabytes": int(status.split("VmRSS:")[1].split()[0]) / 1024,
    }
"""
CALLS = """
import json
import nbtools

def mixed(wb, number):
    wb.call("memory_save", {"key": f"k{number % 50}", "value": f"note {number}"}).raise_for_error()
    wb.call("memory_search", {"query": "note"}).raise_for_error()
    wb.call("sql_query", {"query": f"select sum(a) + {number} from 'data.csv'"}).raise_for_error()
    wb.call("string_length", {"text": "x" * (number % 2_000)}).raise_for_error()
    assert not wb.call("sql_query", {"query": "select nothing"}).ok
    if number % 10 == 0:
        script = "import pandas as pd\\nprint(len(pd.read_csv(input_file_path)))"
        call = {"input_file_path": "data.csv", "analysis_script": script}
        wb.call("data_analyze", call | {"session": "s"} if number % 20 else call).raise_for_error()
        wb.workflows.run(flow).raise_for_error()
        wb.explore(f"select {number} as n")
    if number % 50 == 0:
        wb.kernels.stop("s") if number % 100 else wb.kernels.run("while True: pass", timeout=0.1)

flow = "version: 1\\nname: f\\nnodes:\\n  - {id: a, tool: string_length, args: {text: abc}}\\n"
pathlib.Path("data.csv").write_text("a,b\\n1,2\\n")
with nbtools.Workbench() as wb:
    counts = []
    for number in range(int(sys.argv[1])):
        mixed(wb, number + 1)
        if number + 1 in (int(sys.argv[1]) // 4, int(sys.argv[1])):
            # With the session and a spare each time, which have sockets.
            wb.kernels.run("1", session="s")
            wb.kernels.warm()
            counts.append(counted())
print(json.dumps(counts))
"""
CELLS = """
import json

def work(run, counted, count):
    "Run cells, one after the other; return what is counted after a quarter of them, and after all."
    run("%load_ext nbtools")
    pathlib.Path("data.csv").write_text("a,b\\n1,2\\n")
    cells = [
        "%memory save k {number}", "%explore data.csv", "%%nbsql\\nselect sum(a) from 'data.csv'", "%nbtools",
        "n = {number}", "%memory list", "assert wb.call('string_length', {{'text': 'x' * n}}).ok",
    ]
    counts = []
    run("import nbtools; wb, n = nbtools.workbench(), 1")
    for number in range(count):
        run(cells[number % len(cells)].format(number=number))
        if number % 100 == 0:
            run("%%data_analyze data.csv\\nprint(1)")
        if number % 100 == 50:
            run("%%nbsql\\nselect nothing", False)
        if number + 1 in (count // 4, count):
            counts.append(counted())
    print(json.dumps(counts))
"""
SHELL = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()

def run(cell, is_well=True):
    assert shell.run_cell(cell).success == is_well, cell

work(run, counted, int(sys.argv[1]))
"""
NOTEBOOK = f"""
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
texts = [""]

def listen(message):
    texts.append(message["content"].get("text", texts[-1]))

def run(cell, is_well=True):
    # As a notebook has few cells, which run again and again: each shows its explorer in place of the one before.
    client.session.metadata = {{"cellId": cell[:8]}}
    reply = client.execute_interactive(cell, timeout=120, output_hook=listen)
    assert (reply["content"]["status"] == "ok") == is_well, (cell, reply["content"])

def counted_there():
    run("print(json.dumps(counted()))")
    return json.loads(texts[-1])

run({COUNTED!r} + "import json")
try:
    work(run, counted_there, int(sys.argv[1]))
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""


@pytest.mark.parametrize(
    ("code", "count"),
    [(CALLS, 200), (CELLS + SHELL, 1_000), (CELLS + NOTEBOOK, 1_000)],
    ids=["calls", "shell", "notebook"],
)
def test_nothing_grows_with_what_was_done(tmp_path: Path, code: str, count: int) -> None:
    env = {**os.environ, "NBTOOLS_HOME": str(tmp_path / "home"), "ALLOWED_PATHS": str(tmp_path)}
    # Short, or the sockets lie elsewhere.
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp") as short:
        env |= {"TMPDIR": short, "NBTOOLS_KERNEL_WARM": "0s", "IPYTHONDIR": str(tmp_path / "ipython")}
        command = [sys.executable, "-c", COUNTED + code, str(count)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout[-1_000:], done.stderr[-8_000:])
    early, late = json.loads(done.stdout.splitlines()[-1])
    assert late.pop("megabytes") - early.pop("megabytes") < 20
    # Workers of threads come as they are needed, and go when they are not.
    grown = {name: late[name] - early[name] for name in early}
    assert all(more <= 6 for more in grown.values()), (early, late)
