"""Strict kernels through the service: what is refused, and what must go on working."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbtools import confine
from nbtools.errors import InvalidArguments, SandboxUnavailable
from nbtools.kernels import Execution, Kernels

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not confine.capabilities().can("strict"), reason="this host cannot enforce strict"),
]


# One has nothing loaded, so that libraries are imported behind the walls; the other is forked from who has loaded them.
@pytest.fixture(scope="module", params=[pytest.param("own process", marks=pytest.mark.own_zygote), "shared process"])
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    data, home = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("home")
    (data / "table.csv").write_text("a,b\n1,2\n3,4\n")
    with Kernels(sandbox="strict", allowed_paths=[data], spares=1, home=home, preloads=()) as opened:
        yield opened


@pytest.fixture
def data(kernels: Kernels) -> Path:
    assert kernels._roots is not None
    return kernels._roots.roots[0]


_ATTACKS = [
    "open('/etc/shadow').read()",
    "import os; os.listdir(os.path.expanduser('~root'))",
    "open('/tmp/nbtools-was-here', 'w')",
    "import socket; socket.create_connection(('127.0.0.1', 9), 1)",
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "import socket; socket.socket(socket.AF_UNIX).connect('/run/any.sock')",
    "import os; os.kill(os.getppid(), 9)",
    "import os; open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
    "import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
    "import os; os.chmod('/etc/hostname', 0o777)",
    "open('{data}/table.csv', 'a')",
    "import os; os.remove('{data}/table.csv')",
]
_WORKS = [
    "import pandas as pd; assert len(pd.read_csv('{data}/table.csv')) == 2",
    "import duckdb; assert duckdb.sql(\"select sum(a) from '{data}/table.csv'\").fetchall() == [(4,)]",
    "import numpy as np; a = np.ones((400, 400)); assert (a @ a)[0, 0] == 400",
    "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig('chart.png')",
    "import subprocess; assert subprocess.run(['echo', 'x'], capture_output=True).stdout == b'x\\n'",
    "!echo shell",
    "import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b'x')",
    "import threading; t = threading.Thread(target=print); t.start(); t.join()",
    "import asyncio\nawait asyncio.sleep(0.01)",
    "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1, 2]) == [1, 2]",
    "import shutil; open('a', 'w').write('x'); shutil.copy('a', 'b'); assert open('b').read() == 'x'",
    "import sqlite3; sqlite3.connect('x.db').execute('create table t (a)')",
    "import pathlib; pathlib.Path('deep/er').mkdir(parents=True)",
]


@pytest.fixture
def run(kernels: Kernels, data: Path) -> Iterator[Callable[[str], Execution]]:
    """Run scripts one after the other in one kernel."""
    yield lambda code: kernels.run(code.replace("{data}", str(data)), session="one", timeout=60)
    kernels.stop("one")


def test_what_is_outside_is_closed(run: Callable[[str], Execution]) -> None:
    for attack in _ATTACKS:
        done = run(attack)
        assert done.sandbox == "strict", attack
        assert done.error is not None, attack
        assert done.error.name in {"PermissionError", "OSError", "ValueError", "FileNotFoundError"}, attack


def test_honest_work_goes_on(run: Callable[[str], Execution]) -> None:
    for work in _WORKS:
        done = run(work)
        assert done.ok, done
        assert done.sandbox == "strict", work


def test_memory_works_through_the_handed_over_channel(kernels: Kernels) -> None:
    class Notes:
        def read(self, key: str, default: object = None) -> object:
            return {"a": 1}.get(key, default)

    assert kernels.run("print(memory.read('a'))", memory=Notes()).stdout == "1\n"


def test_a_given_folder_may_be_written_and_nothing_beside_it(kernels: Kernels, data: Path) -> None:
    work = data / "work"
    work.mkdir(exist_ok=True)
    done = kernels.run("open('made.txt', 'w').write('x')\nopen('../other.txt', 'w')", cwd=work)
    assert done.error is not None
    assert done.error.line == 2
    assert done.artifacts == (work / "made.txt",)


def test_named_paths_are_opened_for_this_script_only(kernels: Kernels, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("in")
    (tmp_path / "out").mkdir()
    script = f"open({str(tmp_path / 'out' / 'x')!r}, 'w').write(open({str(tmp_path / 'in.txt')!r}).read())"
    assert kernels.run(script).error is not None
    assert kernels.run(script, inputs_paths=[tmp_path / "in.txt"], write_paths=[tmp_path / "out"]).ok
    assert (tmp_path / "out" / "x").read_text() == "in"
    assert kernels.run(script).error is not None


def test_the_open_figure_is_saved_where_writing_is_allowed(kernels: Kernels, tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])"
    assert kernels.run(code, figure_path=path, write_paths=[tmp_path]).ok
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.races
def test_the_owner_is_out_of_reach(kernels: Kernels) -> None:
    done = kernels.run(f"import os\nos.kill({os.getpid()}, 0)")
    assert done.error is not None
    assert done.error.name == "PermissionError"


@pytest.mark.races
def test_the_rights_of_a_running_session_cannot_be_widened(kernels: Kernels, tmp_path: Path) -> None:
    kernels.run("x = 1", session="s")
    with pytest.raises(InvalidArguments):
        kernels.run("x", session="s", write_paths=[tmp_path])
    kernels.stop("s")


def test_a_level_that_cannot_be_had_is_refused_when_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    lesser = dataclasses.replace(confine.capabilities(), level="limits", missing=("Landlock",))
    monkeypatch.setattr(confine, "capabilities", lambda: lesser)
    with Kernels(spares=0, preloads=(), sandbox="strict") as own:
        with pytest.raises(SandboxUnavailable):
            own.run("1", sandbox="strict")
        done = own.run("1")
    assert done.sandbox == "limits"
    assert "Landlock" in done.notes[0]


def test_a_fork_finds_rules_and_places_of_the_sandbox_ready_made(kernels: Kernels) -> None:
    look = "from nbtools.confine import places, seccomp\n"
    look += "print(places.system_places.cache_info().hits > 0, seccomp.assemble.cache_info().hits > 0)"
    assert kernels.run(look).stdout == "True True\n"


def test_a_folder_that_was_made_again_is_open_to_the_next_script(kernels: Kernels, data: Path, tmp_path: Path) -> None:
    read = f"print(open({str(data / 'table.csv')!r}).read())"
    kernels.run(read)
    kernels.warm()
    aside = data.rename(tmp_path / "aside")
    data.mkdir()
    (data / "table.csv").write_text("new")
    try:
        done = kernels.run(read)
        assert (done.error, done.stdout) == (None, "new\n")
    finally:
        (data / "table.csv").unlink()
        data.rmdir()
        aside.rename(data)
