"""Workers and schedulers that are killed at any moment: the same outputs, no effect twice, every unknown told.

Each effect is a line that code appends to a file. A run that does not know whether a step was done asks; the answer
here is what a person would find out: done where the line is there, and again where it is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.tool import tool
from tests.conftest import KILLS, wait_until

pytestmark = [pytest.mark.races, pytest.mark.slow]
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

WORKERS = 2
SPAN_S = 4.0
SETTLED_S = 1.5
TEXT = """
version: 1
name: killed
inputs: {folder: {type: string}}
limits: {max_parallel: 3, seconds: 300}
nodes:
  - id: put
    tool: put
    for_each: [a, b, c, d]
    args: {folder: "${inputs.folder}", name: "${item}", wait_s: 0.2}
  - id: mark
    code: |
      import time
      time.sleep(0.2)
      with open(inputs["folder"] + "/marks", "a") as handle:
          handle.write(f"{item}\\n")
      time.sleep(0.2)
    for_each: [0, 1, 2]
    needs: [put]
  - id: again
    code: |
      import time
      time.sleep(0.3)
      6 * 7
    idempotent: true
  - id: read
    tool: lines
    args: {path: "${inputs.folder}/marks"}
    needs: [mark]
outputs: {put: "${nodes.put.data}", marks: "${nodes.read.data}", again: "${nodes.again.data}"}
"""
OUTPUTS = {"put": ["a", "b", "c", "d"], "marks": ["0", "1", "2"], "again": 42}


@tool(idempotent=True)
def put(folder: str, name: str, wait_s: float) -> str:
    """Leave a file of that name."""
    time.sleep(wait_s)
    (Path(folder) / name).write_text(name)
    return name


@tool(read_only=True)
def lines(path: str) -> list[str]:
    """Return the lines of a file in order."""
    return sorted(Path(path).read_text().split())


@tool(idempotent=True)
def die_elsewhere(here: int) -> int:
    """End the process, unless it is that one."""
    if os.getpid() != here:
        os._exit(1)
    return here


@tool(read_only=True)
def pid(here: int = 0) -> int:
    """Return the process that does this, and wait a little while it is that one and no other has done it."""
    if os.getpid() != here:
        Path("seen").touch()
    elif not Path("seen").exists():
        time.sleep(0.4)
    return os.getpid()


@tool
def wait_for(path: str, killed: str) -> bool:
    """Ask for something by a file, and wait until another file is there."""
    Path(killed).touch()
    while not Path(path).exists():
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def wb(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    with Workbench(
        home=home, allowed_paths=[tmp_path], memory_url=":memory:", tools=(put, lines, die_elsewhere, pid, wait_for)
    ) as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    # It would close a worker for good that is not there 15 s after it was killed, be it started and killed again since.
    stays = dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
    options: dict[str, Any] = {"threads_per_worker": 2, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with stays, distributed.LocalCluster(n_workers=WORKERS, **options) as made:
        yield made


def check(wb: Workbench, run: Any, folder: Path, resume: Callable[[str], Any]) -> None:
    """Answer what is asked until the run has ended, and compare what it did."""
    for _ in range(5):
        if run.state != "unknown":
            break
        time.sleep(SETTLED_S)  # the code of a killed worker ends with it, but not within the same moment
        marks = marks_in(folder)
        assert run.questions, "who does not know has to ask"
        for question in run.questions:
            item = question.step.partition("[")[2].rstrip("]")
            wb.workflows.answer(run.run_id, question.step, "done" if item in marks else "retry", by="a test")
        run = resume(run.run_id)
    assert (run.state, run.outputs) == ("ok", OUTPUTS), str(run)
    assert sorted(marks_in(folder)) == ["0", "1", "2"], "an effect happened twice, or never"


def marks_in(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return (folder / "marks").read_text().split()
    return []


class Soon:
    """Does something once, at a random moment after the first event of a run."""

    def __init__(self, function: Callable[[], object], seed: int) -> None:
        self._timer = threading.Timer(random.Random(seed).uniform(0.0, SPAN_S), function)
        self._has_begun = False

    def __call__(self, event: Any) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._timer.start()

    def join(self) -> None:
        self._timer.join()


@pytest.mark.parametrize("seed", range(max(2, KILLS // 2)))
def test_a_worker_is_killed(wb: Workbench, cluster: Any, tmp_path: Path, seed: int) -> None:
    with distributed.Client(cluster, set_as_default=False) as client:
        victims = []
        while len(victims) < WORKERS:  # the one that the last test killed may still be listed, or not be back
            client.wait_for_workers(WORKERS, timeout=60)
            victims = [info["pid"] for info in client.run(_process, on_error="ignore").values() if info]
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    timer = Soon(lambda: _kill(victims[seed % WORKERS]), seed)
    run = wb.workflows.run(TEXT, {"folder": str(tmp_path)}, executor=address, on_event=timer)
    timer.join()
    check(wb, run, tmp_path, lambda run_id: wb.workflows.resume(run_id, executor=address))


def test_a_node_that_kills_its_workers_fails_after_some_of_them(wb: Workbench, cluster: Any) -> None:
    # Not even a driver that goes on by itself may end the process of the tests.
    dies = f"{{id: a, tool: die_elsewhere, args: {{here: {os.getpid()}}}, on_error: continue}}"
    text = f"version: 1\nname: w\nnodes:\n  - {dies}\n"
    text += "  - {id: b, tool: put, args: {folder: ., name: b, wait_s: 0.0}, when: always, needs: [a]}\n"
    run = wb.workflows.run(text, executor=cluster.scheduler_address.replace("tcp://", "dask://"))
    failed = run.progress.nodes["a"].view()["error"]
    assert (run.state, failed["code"]) == ("ok", "KERNEL_DIED")
    assert "its worker was lost, 3 times" in failed["message"]


def _process() -> dict[str, int]:
    return {"pid": os.getpid()}


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", range(max(2, KILLS // 4)))
def test_the_scheduler_is_killed(wb: Workbench, tmp_path: Path, seed: int) -> None:
    """Every second one is started again at once, with workers, and gets what follows."""
    with contextlib.ExitStack() as stack:
        address, scheduler, workers = stack.enter_context(programs(tmp_path))

        def kill() -> None:
            scheduler.kill()
            scheduler.wait()
            if seed % 2:
                (tmp_path / "scheduler.json").unlink()
                stack.enter_context(programs(tmp_path, port=address.rpartition(":")[2]))

        timer = Soon(kill, 100 + seed)
        run = wb.workflows.run(TEXT, {"folder": str(tmp_path)}, executor=address, on_event=timer)
        timer.join()
        for worker in workers:
            worker.kill()
    check(wb, run, tmp_path, wb.workflows.resume)


AGAIN = """
version: 1
name: again
limits: {max_parallel: 1, seconds: 300}
nodes:
  - {id: far, tool: pid}
  - {id: wait, tool: wait_for, args: {path: back, killed: killed}, needs: [far]}
  - {id: then, tool: pid, for_each: %s, args: {here: %d}, needs: [wait]}
outputs: {far: "${nodes.far.data}", then: "${nodes.then.data}"}
"""


def test_a_scheduler_that_was_started_again_gets_steps_again(wb: Workbench, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        address, scheduler, workers = stack.enter_context(programs(tmp_path))
        again: list[int] = []

        def restart() -> None:
            wait_until((tmp_path / "killed").exists, 300)
            for one in (scheduler, *workers):
                one.kill()
                one.wait()
            (tmp_path / "scheduler.json").unlink()
            (tmp_path / "seen").unlink(missing_ok=True)
            _, _, started = stack.enter_context(programs(tmp_path, port=address.rpartition(":")[2]))
            again.extend(one.pid for one in started)
            (tmp_path / "back").touch()

        thread = threading.Thread(target=restart)
        thread.start()
        run = wb.workflows.run(AGAIN % (list(range(150)), os.getpid()), executor=address).raise_for_error()
        thread.join()
    assert run.outputs["far"] in {one.pid for one in workers}
    assert run.outputs["then"][0] == os.getpid(), "the driver went on by itself"
    assert run.outputs["then"][-1] in again


STAYS = """
version: 1
name: stays
inputs: {folder: {type: string}}
nodes:
  - id: stays
    code: |
      import time
      open(inputs["folder"] + "/begun", "w").close()
      time.sleep(60)
"""


def test_a_cluster_whose_workers_do_not_come_back_is_not_told_as_a_lost_scheduler(
    wb: Workbench, tmp_path: Path
) -> None:
    settings = dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"})
    with settings, programs(tmp_path) as (address, _, workers):

        def kill() -> None:
            assert wait_until((tmp_path / "begun").exists, 60)
            for one in workers:
                one.kill()

        thread = threading.Thread(target=kill)
        thread.start()
        run = wb.workflows.run(STAYS, {"folder": str(tmp_path)}, executor=address)
        thread.join()
    assert run.state == "unknown"
    assert "no worker of the cluster came back within 1 s; whether" in run.questions[0].text


@contextlib.contextmanager
def programs(
    folder: Path, port: str = "0"
) -> Iterator[tuple[str, subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and its workers as programs of their own, as on a cluster."""
    file = folder / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    with contextlib.ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[bytes]:
            made = stack.enter_context(subprocess.Popen(command, **quiet))
            stack.callback(made.kill)
            return made

        options = ["--host", "127.0.0.1", "--port", port, "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        scheduler = start(*module, *options, "--scheduler-file", str(file))
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny"]
        workers = [
            start(*worker, "--nthreads", "2", "--no-dashboard", "--local-directory", str(folder))
            for _ in range(WORKERS)
        ]
        wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        address = json.loads(file.read_text())["address"]
        with distributed.Client(address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(WORKERS, timeout=60)
        yield address.replace("tcp://", "dask://"), scheduler, workers
