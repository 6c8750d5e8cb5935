"""What other systems lack is taken away here: the code paths of macOS run, and say what they do not hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# After what asks for the system while it is imported, which would look for modules of that system.
PROGRAM = """
import builtins, io, json, os, sys, zoneinfo
import asyncio, duckdb, jupyter_client, pandas, psutil, pyarrow

sys.platform = "darwin"

def without_proc(function):
    def look(path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and str(path).startswith(("/proc", "/sys/fs/cgroup")):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *args, **kwargs)
    return look

for owner, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "listdir"), (os, "scandir")):
    setattr(owner, name, without_proc(getattr(owner, name)))
for name in ("memfd_create", "pidfd_open", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)

from nbtools import ToolCall, Workbench
from nbtools.confine import host

measure = host._measure
lost = {"failed": ["Landlock and seccomp are Linux's"], "landlock_abi": 0, "refused": {}}
host._measure = lambda: {**measure(), **lost}

with Workbench(home=sys.argv[1], allowed_paths=[sys.argv[2]], memory_url=":memory:") as wb:
    wb.memory.write("a", [1])
    script = {"analysis_script": "x = 42\\nprint(x)", "session": "s"}
    asked = wb.call(ToolCall(tool="data_analyze", arguments={**script, "session": "m"}, caller="model"))
    print(json.dumps({
        "script": [wb.call("data_analyze", script).text, wb.kernels.run("print(x)", session="s").stdout],
        "kernels": wb.kernels.describe()["backend"],
        "model": asked.to_dict()["error"]["code"],
        "sql": wb.sql("select value from nbtools.memory").value.tolist(),
        "doctor": {check.name: f"{check.finding} {check.remedy}" for check in wb.doctor()},
    }))
"""


@pytest.mark.slow
def test_where_there_is_no_proc_and_no_fork_server_scripts_run_and_the_doctor_says_what_does_not_hold(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "home"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert (facts["script"], facts["kernels"], facts["sql"]) == (["42\n", "42\n"], "spawned", ["[1]"])
    # Nothing confines a script there, so a model's is asked about, and nobody is here.
    assert facts["model"] == "APPROVAL_DENIED"
    assert "Landlock" in facts["doctor"]["confinement"]
    assert "Run in Linux" in facts["doctor"]["confinement"]


# Read by every process before anything else: neither forks nor Unix sockets are there, as on Windows.
WITHOUT_UNIX = """
import os, signal, socket
import asyncio, psutil, subprocess, tempfile

unix, pair = socket.AF_UNIX, socket.socketpair
socket.socketpair = lambda family=None, *rest: pair(unix if family is None else family, *rest)
for owner, names in (
    (socket, "AF_UNIX send_fds recv_fds SO_PEERCRED"),
    (os, "fork forkpty memfd_create pidfd_open sched_getaffinity pipe2"),
    (signal, "pthread_kill"),
):
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
"""
USES = """
import json, sys
from nbtools import Workbench

with Workbench(home=sys.argv[1], allowed_paths=[sys.argv[2]]) as wb:
    wb.memory.write("a", [1])
    script = wb.call("data_analyze", {"analysis_script": "print(42)", "session": "s"})
    print(json.dumps({
        "memory": [wb.memory.read("a"), wb.memory.info()["mode"]],
        "sql": wb.sql("select value from nbtools.memory").value.tolist(),
        "file": wb.call("file_write", {"path": "x.txt", "content": "a\\r\\nb"}).ok,
        "script": script.to_dict()["error"],
        "doctor": {check.name: f"{check.finding} {check.remedy}" for check in wb.doctor()},
    }))
"""


@pytest.mark.slow
def test_without_unix_sockets_and_forks_memory_and_sql_work_and_scripts_say_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_UNIX)
    command = [sys.executable, "-c", USES, str(tmp_path / "home"), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert (facts["memory"], facts["sql"], facts["file"]) == ([[1], "keeper"], ["[1]"], True)
    assert (tmp_path / "x.txt").read_bytes() == b"a\r\nb"
    assert facts["script"]["message"] == "managed kernels need Unix sockets, which this system lacks."
    assert "WSL" in facts["script"]["hint"]
    assert "Unix sockets" in facts["doctor"]["kernels"]
