"""A fork whose child is a sibling: told by the system, and harmless where it does not come about."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from nbtools.processes import siblings

pytestmark = pytest.mark.processes

_PARENT = """
import ctypes, os, signal, sys
from nbtools.processes import siblings

go_r, go_w = os.pipe(); late_r, late_w = os.pipe(); said_r, said_w = os.pipe()
parent = os.getpid(); child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, lambda *_: os.write(said_w, b"heard "))
    os.register_at_fork(before=lambda: os.write(said_w, b"before "), after_in_child=lambda: os.write(said_w, b"after "))
    os.read(go_r, 1)
    {body}
    os._exit(0)
if not siblings.seize(child):
    print("not allowed"); sys.exit()
os.write(go_w, b"!")
sibling = siblings.let_fork(child, {patience})
os.write(late_w, b'!')
os.waitpid(child, 0)
is_own = False
if sibling > 0:
    os.waitpid(sibling, 0)  # which raises for any other than a child
    is_own = True
os.close(said_w)
print(is_own, os.read(said_r, 4096).decode(), "killed" if sibling < 0 else "", flush=True)
os.killpg(0, signal.SIGKILL)  # what waits for ever
"""
_FORK = "pid = os.fork(); os.write(said_w, b'child ' if pid == 0 and os.getppid() == parent else b'parent ')"
_WAITS = "libc = ctypes.CDLL(None); os.write(said_w, b'waits '); stack = ctypes.create_string_buffer(9999); "
_WITHIN = "top = (ctypes.addressof(stack) + 9000) & ~15; libc.clone(libc.pause, ctypes.c_void_p(top), 0x4111, None)"
_CASES = {
    "a fork": (_FORK, "True before after child parent"),
    "a signal": ("os.kill(os.getpid(), signal.SIGUSR1); " + _FORK, "True heard before after child parent"),
    "another program first": ("os.posix_spawn('/bin/true', ['true'], {}); " + _FORK, "True before after child parent"),
    "no fork": ("os.read(late_r, 1); os.write(said_w, b'waited ')", "False waited"),
    "an end": ("os._exit(3)", "False"),
    "a fork that waits for its child": (
        _WAITS + "libc.syscall(56, 0x4011, 0, 0, 0, 0) or libc.pause()",
        "False waits killed",
    ),
    "a process that has its memory": (_WAITS + _WITHIN + "; os.write(said_w, b'went on')", "False waits killed"),
    "a late fork": (f"os.read(late_r, 1); {_FORK}; pid and os.wait()", "False before after parent parent"),
}


@pytest.mark.parametrize("case", _CASES)
def test_the_next_fork_alone_makes_a_sibling(case: str) -> None:
    if not siblings.is_known():
        pytest.skip("not this machine")
    body, said = _CASES[case]
    patience = "0.2" if "late_r" in body or "libc" in body else "30"
    code = _PARENT.replace("{body}", body).replace("{patience}", patience)
    how: Any = {"capture_output": True, "text": True, "timeout": 60, "start_new_session": True}
    done = subprocess.run([sys.executable, "-c", code], check=False, **how)
    if done.stdout == "not allowed\n":
        pytest.skip("no process may hold another here")
    assert sorted(done.stdout.split()) == sorted(said.split())
