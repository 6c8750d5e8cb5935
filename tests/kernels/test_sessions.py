"""Named sessions: state that lasts, what the monitor shows, and what happens when a kernel is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments
from nbtools.ground import aio
from nbtools.kernels import Execution, Kernels, OutputPiece
from tests.conftest import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def shared() -> Iterator[Kernels]:
    with Kernels(spares=1, preloads=("numpy",)) as opened:
        yield opened


@pytest.fixture
def kernels(shared: Kernels) -> Iterator[Kernels]:
    yield shared
    for shown in shared.list():
        shared.stop(shown["name"])


def test_a_session_keeps_its_state(kernels: Kernels) -> None:
    kernels.run("x = 41", session="s")
    done = kernels.run("print(x + 1)", session="s")
    assert (done.stdout, done.session, done.notes) == ("42\n", "s", ())


def test_sessions_are_strangers_to_each_other(kernels: Kernels) -> None:
    kernels.run("x = 1", session="a")
    assert kernels.run("x", session="b").status == "error"


def test_the_monitor_shows_state_age_and_last_call(kernels: Kernels) -> None:
    kernels.run("\n# first line\nx = 1", session="s")
    (shown,) = kernels.list()
    assert {key: shown[key] for key in ("name", "language", "state", "last_call", "last_status", "runs")} == {
        "name": "s",
        "language": "python",
        "state": "idle",
        "last_call": "# first line",
        "last_status": "ok",
        "runs": 1,
    }
    assert shown["pid"] > 0
    assert shown["memory_bytes"] > 1_000_000
    assert shown["cpu_s"] >= 0
    assert shown["age_s"] >= shown["idle_s"] >= 0


@pytest.mark.races
def test_a_busy_session_is_shown_as_busy(kernels: Kernels) -> None:
    async def work() -> tuple[str, Execution]:
        begun = asyncio.Event()
        script = "print(1, flush=True)\nwhile True: pass"
        task = asyncio.ensure_future(kernels.arun(script, session="s", on_output=lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        state = kernels.list()[0]["state"]
        await kernels.ainterrupt("s")
        return state, await task

    state, done = aio.run(work())
    assert state == "busy"
    assert done.error is not None
    assert done.error.name == "KeyboardInterrupt"


def test_variables_are_listed_without_the_machinery(kernels: Kernels) -> None:
    kernels.run("import numpy as np\na = np.zeros((3, 4))\nname = 'text'\n_hidden = 1\ndef f(): pass", session="s")
    listed = {one["name"]: one for one in kernels.variables("s")}
    assert set(listed) == {"np", "a", "name", "f"}
    assert (listed["a"]["type"], listed["a"]["size"]) == ("ndarray", "3 x 4")
    assert listed["name"]["text"] == "'text'"


@pytest.mark.races
def test_a_session_that_was_killed_says_so_and_starts_anew(kernels: Kernels) -> None:
    kernels.run("x = 1", session="s")
    lost = kernels.run("import os; os._exit(1)", session="s")
    assert lost.status == "died"
    assert "lost its state" in lost.notes[0]
    assert kernels.list()[0]["state"] == "dead"
    again = kernels.run("'x' in globals()", session="s")
    assert again.displays == ({"text/plain": "False"},)
    assert "was started again" in again.notes[0]
    assert kernels.run("1", session="s").notes == ()


@pytest.mark.races
def test_a_kernel_killed_from_outside_is_noticed(kernels: Kernels) -> None:
    kernels.run("x = 1", session="s")
    os.kill(kernels.list()[0]["pid"], 9)
    wait_until(lambda: kernels.list()[0]["state"] == "dead")
    heard: list[OutputPiece] = []
    again = kernels.run("print('x' in globals())", session="s", on_output=heard.append)
    assert again.notes[0].startswith("began empty: ")
    assert "was started again" in again.notes[0]
    # It is told before the output, and is none of it.
    assert [(piece.kind, piece.text) for piece in heard] == [("stderr", f"[{again.notes[0]}]\n"), ("stdout", "False\n")]
    assert again.stderr == ""


@pytest.mark.races
def test_start_stop_and_restart(kernels: Kernels) -> None:
    shown = kernels.start("s")
    assert shown["state"] == "idle"
    assert kernels.start("s")["pid"] == shown["pid"]
    kernels.run("x = 1", session="s")
    kernels.restart("s")
    assert kernels.list()[0]["pid"] != shown["pid"]
    assert kernels.run("x", session="s").status == "error"
    kernels.stop("s")
    assert kernels.list() == []


@pytest.mark.races
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(kernels: Kernels) -> None:
    kernels.start("analysis")
    with pytest.raises(InvalidArguments) as caught:
        kernels.stop("analyses")
    assert "'analysis'" in str(caught.value)
    with pytest.raises(InvalidArguments):
        kernels.variables("zzz")


def test_a_session_does_not_change_its_language_or_its_rights(kernels: Kernels) -> None:
    kernels.start("s")
    with pytest.raises(InvalidArguments):
        kernels.run("1", session="s", language="kernel:python3")
    with pytest.raises(InvalidArguments):
        kernels.run("1", session="s", sandbox="off")


def test_runs_in_one_session_wait_for_each_other(kernels: Kernels) -> None:
    async def work() -> list[Execution]:
        await kernels.astart("s")
        return await asyncio.gather(*(kernels.arun(f"n = {n}\nprint(n)", session="s") for n in range(5)))

    assert [done.stdout for done in aio.run(work())] == [f"{n}\n" for n in range(5)]


def test_files_of_a_session_are_artifacts_of_the_run_that_wrote_them(kernels: Kernels) -> None:
    first = kernels.run("open('a.txt', 'w').write('x')", session="s")
    second = kernels.run("open('b.txt', 'w').write('x')", session="s")
    assert [path.name for path in first.artifacts] == ["a.txt"]
    assert [path.name for path in second.artifacts] == ["b.txt"]


def test_the_folder_of_a_session_can_change_between_runs(kernels: Kernels, tmp_path: Path) -> None:
    kernels.run("x = 1", session="s")
    done = kernels.run("import os; print(os.getcwd(), x)", session="s", cwd=tmp_path)
    assert done.stdout == f"{tmp_path} 1\n"


@pytest.mark.slow
@pytest.mark.races
def test_an_idle_session_is_ended() -> None:
    with Kernels(spares=0, preloads=(), idle_s=0.2) as own:
        own.run("x = 1", session="s")
        wait_until(lambda: own.list() == [])
