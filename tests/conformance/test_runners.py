"""What every runner promises, seen through whole runs: the same outputs wherever steps are performed.

``local`` is the `StepRunner` of this process, ``dask`` sends the same steps to a cluster of two worker processes.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.approval.gate import AskFunction
from nbtools.contract.tool import tool
from nbtools.errors import ExecutionFailed, InvalidArguments, NetworkError
from nbtools.workflow.runs.events import NodeOutput, RetryPlanned

pytestmark = pytest.mark.processes

HEAD = "version: 1\nname: w\n"
PATH = "inputs: {path: {type: string}}\n"


@tool(read_only=True)
def whoami(wait_s: float = 0.0) -> int:
    """Return the process that calls."""
    time.sleep(wait_s)
    return os.getpid()


@tool(read_only=True)
def look(value: Any = None) -> Any:
    """Return a value."""
    return value


@tool
def note(path: str, line: str) -> int:
    """Append a line to a file: an effect that may happen once."""
    with Path(path).open("a") as handle:
        handle.write(f"{line}\n")
    return os.getpid()


@tool(idempotent=True)
def fail_until(path: str, times: int) -> int:
    """Fail the first times."""
    with Path(path).open("a") as handle:
        handle.write("x")
    tried = len(Path(path).read_text())
    if tried <= times:
        raise ExecutionFailed(f"attempt {tried} fails", hint="try again")
    return tried


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


@pytest.fixture(params=["local", pytest.param("dask", marks=pytest.mark.slow)])
def executor(request: pytest.FixtureRequest) -> str:
    return "local" if request.param == "local" else request.getfixturevalue("scheduler")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture
def tmp_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own below the one of all, so that workers keep what they have opened for the first."""
    folder = Path(tempfile.mkdtemp(dir=root))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def shared(root: Path) -> Iterator[Workbench]:
    with Workbench(home=root / "home", allowed_paths=[root], tools=(whoami, look, note, fail_until)) as made:
        yield made


@pytest.fixture
def wb(shared: Workbench, tmp_path: Path) -> Workbench:
    return shared


def test_values_go_from_node_to_node(wb: Workbench, executor: str) -> None:
    text = (
        HEAD
        + """
inputs: {n: {type: integer, default: 2}}
nodes:
  - {id: a, tool: look, args: {value: {x: ["${inputs.n}", 5]}}}
  - {id: b, code: "print('adding')\\nsum(nodes['a']['x']) * inputs['n']", needs: [a]}
  - {id: each, tool: look, for_each: "${nodes.a.data.x}", args: {value: "${item}"}}
  - {id: never, tool: look, when: "${nodes.b.error}"}
outputs: {all: "${nodes.b.data}", each: "${nodes.each.data}", text: "${nodes.b.text}"}
"""
    )
    seen: list[Any] = []
    run = wb.workflows.run(text, {"n": 3}, executor=executor, on_event=seen.append).raise_for_error()
    assert run.outputs == {"all": 24, "each": [3, 5], "text": "adding\n"}
    assert run.progress.nodes["never"].state == "skipped"
    assert any(isinstance(event, NodeOutput) and event.text == "adding\n" for event in seen)


def test_the_memory_is_one(wb: Workbench, executor: str) -> None:
    text = (
        HEAD
        + f"""
nodes:
  - {{id: a, code: "memory.write('k', '{executor[:4]}')"}}
  - {{id: b, code: "memory.read('k')", needs: [a]}}
outputs: {{said: "${{nodes.b.data}}"}}
"""
    )
    assert wb.workflows.run(text, executor=executor).raise_for_error().outputs == {"said": executor[:4]}


def test_files_and_tables_come_back(wb: Workbench, executor: str) -> None:
    text = (
        HEAD
        + """
nodes:
  - {id: a, code: "import pandas as pd\\nopen('left.txt', 'w').write('left')\\npd.DataFrame({'x': range(3000)})"}
  - {id: b, code: "int(nodes['a']['x'].sum())", needs: [a]}
outputs: {sum: "${nodes.b.data}", rows: "${nodes.a.data.row_count}"}
"""
    )
    run = wb.workflows.run(text, executor=executor).raise_for_error()
    assert run.outputs == {"sum": 4_498_500, "rows": 3000}
    left = [Path(artifact["path"]) for artifact in run.progress.nodes["a"].view()["artifacts"]]
    assert [path.read_text() for path in left if path.name == "left.txt"] == ["left"]
    assert all(path.is_relative_to(run.folder / "artifacts" / "a") for path in left)


def test_a_failure_is_a_result_with_its_hint(wb: Workbench, executor: str, tmp_path: Path) -> None:
    text = HEAD + PATH + "nodes:\n  - {id: a, tool: fail_until, args: {path: '${inputs.path}', times: 9}}\n"
    run = wb.workflows.run(text, {"path": str(tmp_path / "t")}, executor=executor)
    assert run.state == "failed"
    told = {"code": "EXECUTION_FAILED", "message": "attempt 1 fails", "hint": "try again", "node": "a"}
    assert told.items() <= (run.error or {}).items()


@pytest.mark.parametrize("step", ["code: \"open('there').read()\"", "notebook: look.ipynb"])
def test_a_step_that_failed_runs_when_the_run_goes_on(wb: Workbench, executor: str, tmp_path: Path, step: str) -> None:
    """Its failure was heard: nobody is asked what became of it."""
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": []}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, "source": "open('there').read()"}]}
    Path("look.ipynb").write_text(json.dumps(book))
    file = tmp_path / "w.yaml"
    step = step.replace("there", str(tmp_path / "there"))
    file.write_text(f"{HEAD}nodes:\n  - {{id: a, {step}}}\noutputs: {{a: '${{nodes.a.data}}'}}\n")
    run = wb.workflows.run(file, executor=executor)
    assert (run.state, run.error["code"]) == ("failed", "EXECUTION_FAILED")
    Path("there").write_text("yes")
    again = wb.workflows.resume(run.run_id, executor=executor)
    assert (again.state, again.outputs) == ("ok", {"a": "yes"})


def test_a_node_is_tried_again(wb: Workbench, executor: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    text = (
        HEAD
        + PATH
        + "nodes:\n  - {id: a, tool: fail_until, args: {path: '${inputs.path}', times: 2}, "
        + "retry: {attempts: 3, backoff_s: 0.01}}\n"
    )
    run = wb.workflows.run(
        text, {"path": str(tmp_path / "t")}, executor=executor, on_event=seen.append
    ).raise_for_error()
    assert run.progress.nodes["a"].attempt == 3
    assert sum(isinstance(event, RetryPlanned) for event in seen) == 2


def test_time_is_bounded(wb: Workbench, executor: str) -> None:
    text = HEAD + "nodes:\n  - {id: a, code: 'import time; time.sleep(60)', timeout_s: 0.5}\n"
    begun = time.monotonic()
    run = wb.workflows.run(text, executor=executor)
    assert run.error is not None
    assert (run.state, run.error["code"]) == ("failed", "TIMEOUT")
    assert time.monotonic() - begun < 40


def test_a_cancelled_run_ends_the_code_that_runs(wb: Workbench, executor: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import time\\nopen({str(mark)!r}, 'w').write('x')\\ntime.sleep(60)"
    text = HEAD + f'nodes:\n  - {{id: a, code: "{code}"}}\n'

    def stop(event: Any) -> None:
        if event.kind == "node_started":
            wb.workflows.cancel(wb.workflows.runs()[0].run_id, by="a test")

    begun = time.monotonic()
    run = wb.workflows.run(text, executor=executor, on_event=stop)
    assert (run.state, run.progress.nodes["a"].state) == ("cancelled", "cancelled")
    assert time.monotonic() - begun < 40


def test_workflows_inside_run_the_same_way(wb: Workbench, executor: str, tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text(
        "version: 1\nname: inner\ninputs: {x: {type: integer}}\nnodes:\n"
        "  - {id: n, tool: look, args: {value: '${inputs.x}'}}\noutputs: {got: '${nodes.n.data}'}\n"
    )
    (tmp_path / "outer.yaml").write_text(
        HEAD
        + "nodes:\n  - {id: all, workflow: inner.yaml, for_each: [1, 2], args: {x: '${item}'}}\n"
        + "outputs: {all: '${nodes.all.data}'}\n"
    )
    run = wb.workflows.run(tmp_path / "outer.yaml", executor=executor).raise_for_error()
    assert run.outputs == {"all": [{"got": 1}, {"got": 2}]}


def test_effects_and_keys_stay_with_the_driver(
    wb: Workbench, scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY_OF_A_TEST", "s3cr3t-value")
    text = (
        HEAD
        + """
nodes:
  - {id: reads, tool: whoami}
  - {id: writes, tool: note, args: {path: log, line: x}}
  - {id: knows, tool: look, args: {value: "${env.A_KEY_OF_A_TEST}"}}
"""
    )
    run = wb.workflows.run(text, executor=scheduler).raise_for_error()
    nodes = run.progress.nodes
    assert nodes["writes"].view()["data"] == os.getpid()
    assert nodes["reads"].view()["data"] != os.getpid()
    assert "s3cr3t-value" not in (run.folder / "log.jsonl").read_text()
    assert (tmp_path / "log").read_text() == "x\n"


def test_who_may_have_to_be_asked_stays_with_the_driver(root: Path, tmp_path: Path, scheduler: str) -> None:
    text = HEAD + "nodes:\n  - {id: a, tool: whoami}\n  - {id: b, tool: look, args: {value: 1}}\n"
    rules = {"whoami": "ask"}
    with Workbench(
        home=root / "home",
        allowed_paths=[root],
        tools=(whoami, look),
        policy=rules,
        approver=AskFunction(lambda _: True),
    ) as wb:
        run = wb.workflows.run(text, executor=scheduler).raise_for_error()
        assert run.progress.nodes["a"].view()["data"] == os.getpid()


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_told_and_the_run_can_be_resumed(wb: Workbench) -> None:
    text = HEAD + "nodes:\n  - {id: a, tool: look, args: {value: 7}}\noutputs: {a: '${nodes.a.data}'}\n"
    # Dask's own setting says how long one is waited for that is busy, or only starts.
    patience = pytest.importorskip("dask").config.set({"distributed.comm.timeouts.connect": "300ms"})
    with patience, pytest.raises(NetworkError, match=r"127\.0\.0\.1:9.* after 0\.3 s"):
        wb.workflows.run(text, executor="dask://127.0.0.1:9")
    run = wb.workflows.runs()[0]
    assert wb.workflows.resume(run.run_id).raise_for_error().outputs == {"a": 7}
    with pytest.raises(InvalidArguments, match="is not an executor"):
        wb.workflows.run(text, executor="spark")


@pytest.mark.slow
def test_a_node_gets_a_worker_that_has_what_it_needs(wb: Workbench) -> None:
    distributed = pytest.importorskip("distributed")
    text = HEAD + 'nodes:\n  - {id: a, code: "1 + 1", idempotent: true, resources: {GPU: 1}}\n'
    spec = {
        0: {"cls": distributed.Worker, "options": {"nthreads": 1}},
        1: {"cls": distributed.Worker, "options": {"nthreads": 1, "resources": {"GPU": 1}}},
    }
    with distributed.SpecCluster(
        scheduler={"cls": distributed.Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}}, workers=spec
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        run = wb.workflows.run(text, executor=address).raise_for_error()
        lacking = wb.workflows.run(text.replace("GPU: 1", "GPU: 4"), executor=address)
    assert run.progress.nodes["a"].view()["data"] == 2
    assert (lacking.state, lacking.error["code"]) == ("failed", "CONFIG_MISSING")
    assert "no worker of the cluster has GPU=4" in lacking.error["message"]
