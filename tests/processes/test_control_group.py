"""What a warden started ends with its control group, where this host lets us make one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nbtools.kernels import Kernels
from nbtools.processes import control_group
from tests.conftest import is_running, wait_until

pytestmark = [
    pytest.mark.own_zygote,
    pytest.mark.processes,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or control_group.describe().startswith("no "),
        reason=f"nothing can be ended so here: {control_group.describe()}",
    ),
]

# Nothing tells whose these are but the group: no environment, another name, no parent left.
HIDE = """
import os, subprocess
os.symlink('/bin/sleep', 'innocent')
started = "for n in 1 2 3; do setsid ./innocent 611 >/dev/null 2>&1 & echo $!; done"
print(subprocess.run(['sh', '-c', started], env={}, capture_output=True, text=True).stdout, flush=True)
"""


def group_of(pid: int) -> Path:
    inner = next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
    assert "/nbk-" in inner
    return control_group._own() / Path(inner).name


def test_a_group_ends_what_hides_when_its_warden_is_killed() -> None:
    with Kernels(spares=0, preloads=()) as kernels:
        hidden = [int(word) for word in kernels.run(HIDE, session="s").stdout.split()]
        pid = kernels.list()[0]["pid"]
        group = group_of(pid)
        assert {group_of(one) for one in hidden} == {group}
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]), signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, [pid, *hidden])) and not group.exists())
        # The next warden has a group of its own, which goes when it is told to leave.
        group = group_of(int(kernels.run("import os; print(os.getpid())", session="t").stdout))
    wait_until(lambda: not group.exists())


def test_a_group_goes_with_an_owner_that_was_killed() -> None:
    code = f"""
from nbtools.kernels import Kernels
kernels = Kernels(spares=0, preloads=())
print(kernels.run({HIDE!r}, session='s').stdout, kernels.list()[0]['pid'], flush=True)
input()
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    words: list[str] = []
    while len(words) < 4:
        words += owner.stdout.readline().split()
    pids = [int(word) for word in words]
    group = group_of(pids[0])
    owner.kill()
    owner.communicate()
    wait_until(lambda: not any(map(is_running, pids)) and not group.exists())


@pytest.mark.parametrize("age_s", [0, 61])
def test_the_next_warden_removes_a_group_that_has_outlived_its_own(age_s: int) -> None:
    # A warden that is on its way into its group is not seen there yet: a young group is left alone.
    left = control_group._own() / f"{control_group._prefix()}1-{time.monotonic_ns() - age_s * 10**9:x}"
    (left / f"{control_group._prefix()}2-1").mkdir(parents=True)  # of a warden that a script had started
    stray = subprocess.Popen(["sleep", "611"])
    (left / "cgroup.procs").write_text(str(stray.pid))
    try:
        with Kernels(spares=0, preloads=()) as kernels:
            kernels.run("1")
        if age_s:
            assert stray.wait(10) == -signal.SIGKILL
        wait_until(lambda: left.exists() == is_running(stray.pid) == (not age_s))
    finally:
        control_group.end(left)
        stray.wait(10)
