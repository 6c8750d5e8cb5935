"""Processes of a kernel, and how their end reads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.processes import process_tree
from nbtools.processes.client import Exit
from nbtools.processes.fd_socket import FdSocket
from nbtools.processes.process import Warden, WatchedKernel
from tests.conftest import wait_until

pytestmark = pytest.mark.races


def test_the_end_of_a_process_reads_well() -> None:
    assert str(Exit(code=3)) == "exit code 3"
    assert str(Exit(signal=9)) == "killed by SIGKILL"
    assert str(Exit(signal=9, ended_by="file_limit")) == "ended by its file limit"
    assert Exit(signal=250).signal_name == "signal 250"


def test_what_a_process_had_before_its_end_stays_known(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, process:
        warden, watched = Warden(FdSocket(ours), str(tmp_path)), WatchedKernel(id="a", pid=process.pid)
        warden._watch(watched, 0.0)
        had = watched.data
        process.kill()
        wait_until(lambda: process_tree.is_dead(process.pid))
        warden._watch(watched, 1.0)
    assert watched.data == had > 0


def test_threads_and_the_dead_are_told_from_the_living() -> None:
    script = (
        "import subprocess, sys, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "dead = subprocess.Popen(['true'])\nprint(dead.pid, flush=True)\nsys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        dead = int(child.stdout.readline())
        wait_until(lambda: process_tree.is_dead(dead))
        assert not process_tree.is_dead(child.pid)
        used = process_tree.use(process_tree.descendants([child.pid]))
        assert (used.alive, used.numbers) == (1, 3)
        child.stdin.close()


def test_descendants_are_found_through_threads_and_generations() -> None:
    script = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, process_tree.MARK: "abc123abc123"})
    try:
        wait_until(lambda: len(process_tree.descendants([child.pid])) >= 2)
        assert process_tree.kernel_of(child.pid) == "abc123abc123"
        found, marked = set(process_tree.descendants([child.pid])), frozenset({"abc123abc123"})
        # While a program is started in a process, its environment is the old one no more and the new one not yet.
        wait_until(lambda: found <= set(process_tree.find_marked(marked)))
        assert process_tree.is_beyond(1, [child.pid])
        assert not process_tree.is_beyond(1 << 40, [child.pid])
    finally:
        for pid in process_tree.descendants([child.pid]):
            os.kill(pid, 9)
        child.wait()
