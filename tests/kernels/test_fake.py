"""Fake kernels as users' tests hold them: answers that were given, and scripts that run in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from nbtools import Workbench
from nbtools.errors import LanguageUnavailable, LimitExceeded
from nbtools.kernels import Execution, FakeKernels, RunContext
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.sessions.session import EarlierState, NamedSession
from nbtools.kernels.sessions.table import Sessions
from nbtools.processes import process_tree


def test_a_script_is_answered_by_its_text() -> None:
    with FakeKernels({"ls": "a.csv\n", "boom": Execution(status="died", signal="SIGSEGV")}) as kernels:
        assert kernels.run("ls", language="bash").stdout == "a.csv\n"
        assert kernels.run("boom").signal == "SIGSEGV"
        assert kernels.run("print(6 * 7)").stdout == "42\n"
        assert str(kernels.run("pwd", language="bash").error) == "LookupError: no answer was given for this script"
        assert kernels.codes == ["ls", "boom", "print(6 * 7)", "pwd"]


def test_a_function_answers_by_what_is_around_a_script() -> None:
    def answer(code: str, context: RunContext) -> str | None:
        return f"{code} over {context.variables['n']}" if "n" in context.variables else None

    with FakeKernels(answer) as kernels:
        assert kernels.run("count", variables={"n": 3}).stdout == "count over 3"
        assert kernels.run("print(1)").stdout == "1\n"


def test_only_so_many_sessions_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "most", 2)
    with FakeKernels() as kernels:
        assert [kernels.run("1", session=name).ok for name in "aba"] == [True] * 3
        with pytest.raises(LimitExceeded, match="2 sessions run, and 2 may"):
            kernels.run("1", session="c")
        kernels.stop("a")
        assert kernels.run("1", session="c").ok


def test_two_looks_at_once_give_up_one_state_for_what_one_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lease:
        kernel: Any = SimpleNamespace(pid=1, alive=True)

        async def close(self) -> None:
            await asyncio.sleep(0)

    async def look_twice() -> list[int]:
        lease: Any = Lease()
        states = [EarlierState(lease=lease, runs=runs) for runs in range(1, 6)]
        session = NamedSession(
            name="a", language="python", options=KernelOptions(memory_bytes=1), lease=lease, states=states
        )
        with FakeKernels() as kernels:
            table = kernels._sessions
            await asyncio.gather(table._bound(session), table._bound(session))
        return [state.runs for state in session.states]

    def is_beyond(_: int, pids: Collection[int]) -> bool:
        time.sleep(0.01)
        return len(pids) > 5

    monkeypatch.setattr(process_tree, "is_beyond", is_beyond)
    assert asyncio.run(look_twice()) == [2, 3, 4, 5]


def test_a_fake_without_answers_runs_python_alone() -> None:
    with FakeKernels() as kernels, pytest.raises(LanguageUnavailable, match="cannot run bash"):
        kernels.run("ls", language="bash")


def test_a_workbench_with_fake_kernels_runs_its_tools(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("grün")
    script = "memory.write('seen', open(input_file_path).read())\nprint(memory['seen'])"
    fake = FakeKernels()
    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path], kernels=fake) as bench:
        assert bench.kernels is fake
        given = {"input_file_path": str(tmp_path / "a.txt"), "analysis_script": script}
        result = bench.call("data_analyze", given).raise_for_error()
        assert (result.text, bench.memory["seen"]) == ("grün\n", "grün")
        failed = bench.call("data_analyze", {**given, "analysis_script": "x = 1\n1 / 0"})
        assert failed.error is not None
        assert failed.error.message == "line 2: ZeroDivisionError: division by zero (in: 1 / 0)"
    assert fake.run("print('still there')").ok
    fake.close()


def test_a_fake_kernel_prints_reads_and_ends_as_a_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("read")
    code = (
        "import io, sys\nfile = io.StringIO()\nprint('aside', file=file)\nprint('out', file.getvalue(), end='')\n"
        "print('err', file=sys.stderr)\nprint(open('a.txt').read(), output_image_path)\ninput()"
    )
    with FakeKernels() as kernels:
        done = kernels.run(code, cwd=tmp_path, figure_path=tmp_path / "plot.png")
        assert (done.stdout, done.stderr) == (f"out aside\nread {tmp_path / 'plot.png'}\n", "err\n")
        assert str(done.error) == "line 7: EOFError: no one can be asked here"
        assert str(kernels.run("x = 1\nif x:\nprint(2)").error).startswith("line 3: IndentationError")
        ends = [kernels.run(f"import sys; sys.exit({code})") for code in ("", "0", "3", "'sorry'")]
        assert [(done.status, done.exit_code) for done in ends] == [("ok", 0), ("ok", 0), ("error", 3), ("error", 1)]
        assert ends[-1].stderr == "sorry\n"


def test_a_fake_kernel_lists_what_a_session_defines_and_gives_a_value(tmp_path: Path) -> None:
    with FakeKernels() as kernels:
        session = kernels.session("s")
        session.run("x, _hidden = 41, 0")
        assert session.variables() == [{"name": "x", "type": "int", "text": "41"}]
        assert kernels.run("[1, {2}]", wants_value=True).value == [1, [2]]
        frame = pd.DataFrame({"a": [1, 2]})
        doubled = kernels.run("double = f * 2\nNone", frames={"f": frame}, wants_value=["double"], cwd=tmp_path).value
        assert doubled["a"].tolist() == [2, 4]
        shown = Execution(status="ok", outputs=(("display", {"text/plain": "a"}),))
    with FakeKernels({"show": shown}) as kernels:
        pieces: list[Any] = []
        kernels.run("show", on_output=pieces.append)
        assert kernels.run("show").displays == ({"text/plain": "a"},)
        assert [piece.kind for piece in pieces] == ["display"]


_TRACED = """
import sys, threading
threading.settrace(lambda *_: None)
sys.settrace(lambda *_: None)
from nbtools.ground import aio
from nbtools.kernels import FakeKernels

tasks = []
with FakeKernels() as kernels:
    session = kernels.session("a")
    interrupt = lambda _: tasks.append(aio.loop().create_task(session.ainterrupt()))
    execution = session.run("print('begun')\\nwhile True: pass", on_output=interrupt, timeout=20)
print(execution.stdout, execution.error.name)
"""


@pytest.mark.processes
def test_code_is_stopped_under_a_tracer() -> None:
    ended = subprocess.run([sys.executable, "-c", _TRACED], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "begun\n KeyboardInterrupt\n"
