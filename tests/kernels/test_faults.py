"""What is left when things end badly: owners, zygotes and kernels killed, bombs, floods, daemons, many at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import psutil
import pytest

from nbtools.ground import aio
from nbtools.kernels import Execution, Kernels
from nbtools.kernels.forked.backend import ForkedBackend
from tests.conftest import is_running, wait_until, with_enough_time

pytestmark = [
    pytest.mark.own_zygote,
    pytest.mark.races,
    pytest.mark.slow,
    pytest.mark.skipif(not ForkedBackend.is_supported(), reason="what is below a process is looked up in /proc"),
]

BACKENDS: list[Literal["forked", "spawned"]] = ["forked", "spawned"]

# Forks twice, leaves session and group, closes everything, and would live for ten minutes.
DAEMON = """
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(w, str(os.getpid()).encode())
        os.closerange(0, 256)
        {disguise}
        time.sleep(600)
    os._exit(0)
os.wait()
print(os.read(r, 20).decode(), flush=True)
"""


@pytest.fixture(params=BACKENDS)
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    with Kernels(request.param, spares=0, preloads=("numpy",), processes=40, memory_bytes=1 << 30) as opened:
        yield opened


@pytest.mark.parametrize(
    "disguise",
    [
        "",
        "os.execve('/bin/sleep', ['sleep', '600'], dict(os.environ))",
        "os.execve('/bin/sleep', ['sleep', '600'], {})",
    ],
    ids=["forked", "exec", "exec without environment"],
)
def test_a_daemon_dies_with_the_kernel_that_made_it(kernels: Kernels, disguise: str) -> None:
    done = kernels.run(DAEMON.format(disguise=disguise))
    assert done.ok, done
    daemon = int(done.stdout)
    wait_until(lambda: not is_running(daemon))


def test_a_daemon_of_a_session_lives_as_long_as_the_session(kernels: Kernels) -> None:
    daemon = int(kernels.run(DAEMON.format(disguise=""), session="s").stdout)
    kernels.run("1")
    assert is_running(daemon)
    kernels.stop("s")
    wait_until(lambda: not is_running(daemon))


def test_a_fork_bomb_is_ended(kernels: Kernels) -> None:
    # Doubles nine times and no further: a failure of this test must not be the end of the machine that runs it.
    bomb = "import os, time\nfor _ in range(9):\n    os.fork()\ntime.sleep(20)"
    done = kernels.run(bomb, timeout=30)
    assert done.status == "process_limit"
    assert kernels.run("print('alive')").stdout == "alive\n"


def test_more_memory_than_allowed_fails_or_ends_the_kernel(kernels: Kernels) -> None:
    at_once = kernels.run("x = bytearray(20 << 30)")
    assert at_once.error is not None
    assert at_once.error.name == "MemoryError"
    together = (
        "import subprocess, sys\n"
        "code = 'x = bytearray(b\"x\") * (300 << 20); import time; time.sleep(30)'\n"
        "children = [subprocess.Popen([sys.executable, '-c', code]) for _ in range(5)]\n"
        "for child in children: child.wait()\n"
    )
    assert kernels.run(together, timeout=60).status == "memory_limit"


def test_shared_memory_counts_too(kernels: Kernels) -> None:
    script = (
        "import mmap, time\n"
        "m = mmap.mmap(-1, 1500 << 20)\n"
        "for at in range(0, len(m), 4096): m[at] = 1\n"
        "time.sleep(30)\n"
    )
    assert kernels.run(script, timeout=60).status == "memory_limit"


def test_a_gigabyte_of_output_is_cut_short(kernels: Kernels) -> None:
    done = kernels.run("line = 'x' * 999\nfor _ in range(1_000_000): print(line)", timeout=100)
    assert done.status == "output_limit"
    assert done.truncated
    assert len(done.stdout) == 4_000_000


def test_a_flood_through_the_raw_descriptor_is_cut_short(kernels: Kernels) -> None:
    done = kernels.run("import os\nline = b'x' * 999 + b'\\n'\nwhile True: os.write(1, line)", timeout=100)
    assert done.status == "output_limit"
    assert kernels.run("print('alive')").stdout == "alive\n"


def test_ignored_signals_do_not_help(kernels: Kernels) -> None:
    script = (
        "import signal, time\n"
        "for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(n, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\nwhile True: time.sleep(1)"
    )
    _, done = with_enough_time(lambda s: kernels.run(script, timeout=s, grace=0.3), lambda it: it.stdout)
    assert (done.status, done.stdout) == ("timeout", "deaf\n")


def test_closed_standard_streams_end_nothing_but_the_output(kernels: Kernels) -> None:
    done = kernels.run("import os, sys\nfor n in (0, 1, 2): os.close(n)\nprint('still here')", timeout=20)
    assert done.status in ("ok", "error", "died")
    assert kernels.run("import sys\nprint(sys.stdin.read() == '')", timeout=20).status in ("ok", "error")


def test_a_zygote_or_warden_that_is_killed_takes_its_kernels_along(
    kernels: Kernels, below: Callable[[int], list[int]]
) -> None:
    code = "import os, subprocess\np = subprocess.Popen(['setsid', 'sleep', '600'])\nprint(os.getpid())"
    kernel = int(kernels.run(code, session="s").stdout)
    wardens = {"nbtools.kernels.forked.zygote", "nbtools.processes"}
    above = psutil.Process(kernel).parents()
    warden = next(parent.pid for parent in above if wardens.intersection(parent.cmdline()))
    inside = below(warden)
    assert len(inside) >= 2
    os.kill(warden, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, [warden, *inside])))
    done = kernels.run("1", session="s")
    assert done.ok
    assert "was started again" in done.notes[0]


OWNER = """
import sys, threading, time
from nbtools.kernels import Kernels
ks = Kernels({backend!r}, spares=1, preloads=())
ks.run("import subprocess\\nsubprocess.Popen(['setsid', 'sleep', '600'])", session="a")
ks.run("1", session="b")
runs = threading.Event()
loop = "print('on', flush=True)\\nwhile True: pass"
threading.Thread(target=ks.run, args=(loop,), kwargs={{"on_output": lambda _: runs.set()}}, daemon=True).start()
runs.wait(60)
print(ks._folder.path, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_left_a_moment_after_the_owner_was_killed(backend: str, below: Callable[[int], list[int]]) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER.format(backend=backend)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    family = below(owner.pid)
    assert len(family) >= 5
    assert folder.is_dir()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not any(map(is_running, family)))
    wait_until(lambda: not folder.exists())


def test_a_hundred_leases_in_a_row_leave_nothing(no_leak: None) -> None:
    with Kernels("forked", spares=1, preloads=("numpy",)) as own:
        for number in range(100):
            done = own.run(f"import numpy as np\nprint(int(np.arange({number} + 1).sum()))")
            assert done.stdout == f"{number * (number + 1) // 2}\n", (number, done)


@pytest.mark.parametrize("backend", BACKENDS)
def test_twenty_at_once_all_answer(backend: str, no_leak: None) -> None:
    own = Kernels(backend, spares=1, preloads=("numpy",))

    async def work() -> list[Execution]:
        return await asyncio.gather(*(own.arun(f"print({n} * {n})", timeout=120) for n in range(20)))

    assert [done.stdout for done in aio.run(work())] == [f"{n * n}\n" for n in range(20)]
    own.close()


def test_death_of_a_kernel_is_told_at_once(kernels: Kernels) -> None:
    began = time.monotonic()
    done = kernels.run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", timeout=60)
    assert (done.status, done.signal) == ("died", "SIGSEGV")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kernel_starts_under_any_limit_of_processes(backend: Literal["forked", "spawned"]) -> None:
    with Kernels(backend, spares=0, preloads=(), processes=1) as opened:
        look = "import os\nprint(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc') else 9)\n"
        more = "import time\nif not os.fork():\n    time.sleep(60)\ntime.sleep(20)"
        assert int(opened.run(look, session="s").stdout) > 4
        assert opened.run(f"{look}{more}", session="s").status == "process_limit"
