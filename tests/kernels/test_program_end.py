"""The end of a script and of a session: as the interpreter ends a program, in bounded time."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.kernels import Kernels
from tests.conftest import with_enough_time

pytestmark = pytest.mark.processes

UNCLOSED = """
import gzip, io, sys, zipfile
text = open("text.txt", "w"); text.write("whole")
packed = gzip.open("packed.gz", "wt"); packed.write("whole")
archive = zipfile.ZipFile("archive.zip", "w"); archive.writestr("inner.txt", "whole")
class Report:
    def __del__(self):
        text.write(" and the last words")
report = Report()
report.itself = report
class Last:
    def __del__(self, open=open):
        open("class.txt", "w").write("whole")
class Holder:
    held = Last()
def hold():
    file = open("held.txt", "w")
    file.write("whole")
    raise ValueError("with a file in its frame")
"""
LATE = """
import asyncio, atexit, concurrent.futures, multiprocessing, threading, time
forks = multiprocessing.get_context("fork")  # from 3.14 on not the usual one
over = forks.Event()  # so that none of them is early, however slow the machine is
def late(name):
    over.wait()
    time.sleep(0.2)
    open(name, "w").write("x")
    print(f"{name}\\n", end="")
atexit.register(late, "by-atexit")
threading.Thread(target=late, args=("by-thread",)).start()
concurrent.futures.ThreadPoolExecutor(1).submit(late, "by-future")
forks.Process(target=late, args=("by-process",)).start()
pool = concurrent.futures.ProcessPoolExecutor(1, forks)
pool.submit(late, "by-pool")
print("the last statement", flush=True)
over.set()
"""


@pytest.fixture(scope="module")
def kernels() -> Iterator[Kernels]:
    with Kernels(spares=1, preloads=("numpy",)) as opened:
        yield opened


def _check_unclosed(folder: Path) -> None:
    assert (folder / "text.txt").read_text() == "whole and the last words"
    assert (folder / "class.txt").read_text() == "whole"
    assert gzip.decompress((folder / "packed.gz").read_bytes()) == b"whole"
    with zipfile.ZipFile(folder / "archive.zip") as archive:
        assert archive.read("inner.txt") == b"whole"


def test_files_that_nobody_closed_are_whole_when_they_are_told(kernels: Kernels, tmp_path: Path) -> None:
    done = kernels.run(UNCLOSED, cwd=tmp_path)
    assert (done.status, done.stderr) == ("ok", "")
    assert [path.name for path in done.artifacts] == ["archive.zip", "class.txt", "packed.gz", "text.txt"]
    _check_unclosed(tmp_path)


def test_a_script_that_raised_keeps_what_its_functions_wrote(kernels: Kernels, tmp_path: Path) -> None:
    assert kernels.run(UNCLOSED + "hold()", cwd=tmp_path).status == "error"
    assert (tmp_path / "held.txt").read_text() == "whole"
    _check_unclosed(tmp_path)


@pytest.mark.parametrize("end", ["stop", "restart", "close"])
def test_a_session_ends_as_a_script_does(tmp_path: Path, end: str) -> None:
    with Kernels(spares=0, preloads=()) as own:
        own.run(UNCLOSED, session="s", cwd=tmp_path)
        if end != "close":
            getattr(own, end)("s")
            _check_unclosed(tmp_path)
    _check_unclosed(tmp_path)


def test_what_the_end_of_a_session_writes_in_its_own_folder_is_kept(tmp_path: Path) -> None:
    with Kernels(spares=0, preloads=(), artifacts_folder=tmp_path / "kept") as own:
        own.run(UNCLOSED, session="s")
    _check_unclosed(tmp_path / "kept")


def test_threads_futures_children_and_exit_functions_come_to_their_end(kernels: Kernels, tmp_path: Path) -> None:
    done = kernels.run(LATE, cwd=tmp_path)
    names = ["by-atexit", "by-future", "by-pool", "by-process", "by-thread"]
    assert [path.name for path in done.artifacts] == names
    assert done.stdout.splitlines()[0] == "the last statement"
    assert sorted(done.stdout.splitlines()[1:]) == names
    of_children = "changed meanwhile, by a process that this script started or by another program: by-pool, by-process"
    assert done.notes in ((of_children,), ())  # where the system does not tell


@pytest.mark.races
def test_tasks_that_nobody_awaited_are_cancelled_and_that_is_told(kernels: Kernels) -> None:
    script = (
        "import asyncio\nasync def work():\n    try: await asyncio.sleep(60)\n    finally: print('cancelled')\n"
        "task = asyncio.create_task(work())\nawait asyncio.sleep(0)"
    )
    done = kernels.run(script)
    assert (done.status, done.stdout) == ("ok", "cancelled\n")
    assert done.notes == ("1 task of asyncio was not awaited and cancelled at the end of the script",)


@pytest.mark.races
def test_a_thread_without_end_is_named_when_time_runs_out(kernels: Kernels, tmp_path: Path) -> None:
    script = (
        "import threading, time, atexit\nfor _ in range(2): threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "atexit.register(print, 'bye')\nfile = open('text.txt', 'w')\nfile.write('whole')"
    )
    seconds, done = with_enough_time(lambda s: kernels.run(script, cwd=tmp_path, timeout=s), lambda it: it.notes)
    assert (done.status, done.stdout) == ("timeout", "bye\n")
    assert done.notes == ("2 threads were still running",)
    assert str(done.to_error(timeout=seconds)).startswith(f"timed out after {seconds} s; 2 threads were still running")
    assert (tmp_path / "text.txt").read_text() == "whole"


@pytest.mark.races
def test_a_thread_that_must_be_killed_is_named_too(kernels: Kernels) -> None:
    script = "import atexit, signal, time\natexit.register(lambda: [signal.signal(2, signal.SIG_IGN), time.sleep(60)])"
    _, done = with_enough_time(lambda s: kernels.run(script, timeout=s, grace=0.2), lambda it: it.notes, 0.5)
    assert (done.status, done.notes) == ("timeout", ("1 function of atexit was still running",))


@pytest.mark.parametrize("backend", ["forked", "spawned"])
def test_large_output_leaves_nothing_that_would_run_as_the_scripts_own(backend: Any) -> None:
    code = "import atexit\nprint('x' * 200_000, flush=True)\nprint(atexit._ncallbacks())"
    with Kernels(backend, spares=0, preloads=()) as own:
        for _ in range(3):
            assert own.run(code).stdout.endswith("x\n0\n")


def test_an_exit_function_that_raises_is_printed_and_the_others_run(kernels: Kernels) -> None:
    done = kernels.run("import atexit\natexit.register(print, 'bye')\natexit.register(lambda: 1 / 0)")
    assert (done.status, done.stdout) == ("ok", "bye\n")
    assert "Exception ignored in atexit callback" in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    "script",
    [
        "import os\nif os.fork():\n    os.wait()\n    print('parent')\nelse:\n    print('child')",
        "import atexit, os\natexit.register(lambda: print('parent' if os.fork() and os.wait() else 'child'))",
        "import os\nif os.fork():\n    print('parent') if os.wait()[1] else 0\nelse:\n    print('child')\n    1 / 0",
    ],
)
def test_a_fork_of_the_script_ends_where_the_script_ends(kernels: Kernels, script: str) -> None:
    done = kernels.run(script, timeout=20)
    assert done.status == "ok"
    assert sorted(done.stdout.split()) == ["child", "parent"]


@pytest.mark.parametrize("stream", ["None", "object()", "open('log.txt', 'w')", "sys.stdout.close()"])
def test_a_script_may_replace_or_close_its_output(kernels: Kernels, tmp_path: Path, stream: str) -> None:
    script = f"import sys\nprint('before')\nsys.stdout = {stream}\nif hasattr(sys.stdout, 'write'): print('after')"
    done = kernels.run(script, cwd=tmp_path, timeout=20)
    assert (done.status, done.stdout) == ("ok", "before\n")
    assert [path.read_text() for path in done.artifacts] == (["after\n"] if "open" in stream else [])


def test_what_cannot_be_written_at_the_end_is_an_error(kernels: Kernels) -> None:
    done = kernels.run("full = open('/dev/full', 'w')\nfull.write('x')")
    assert done.status == "error"
    assert "/dev/full: No space left on device" in str(done.error)
    assert "/dev/full" in done.error.traceback  # which is what a tool shows of an error


def test_a_script_that_breaks_its_own_end_has_an_end(kernels: Kernels) -> None:
    assert kernels.run("import gc\ngc.collect = None\nprint('before')", timeout=20).stdout == "before\n"


def test_many_open_files_are_closed(kernels: Kernels, tmp_path: Path) -> None:
    script = (
        "import resource\nmost = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
        "files = [open('many.txt', 'a') for _ in range(2_000)]\nfor file in files: file.write('x')"
    )
    assert kernels.run(script, cwd=tmp_path).status == "ok"
    assert (tmp_path / "many.txt").read_text() == "x" * 2_000


@pytest.mark.slow
@pytest.mark.parametrize("spares", [0, 1])
def test_objects_are_looked_through_only_where_something_is_open(spares: int) -> None:
    # What a script waits for at its end, when it has opened nothing.
    script = "print(__name__, len(In))\nimport gc\nlook = gc.get_objects\n"
    script += "gc.get_objects = lambda: print('looked') or look()\n"
    with Kernels(spares=spares, preloads=()) as kernels:
        kernels.warm()
        outputs = [kernels.run(script + more).stdout for more in ("", "file = open('/dev/null', 'w')")]
    assert outputs == ["__main__ 2\n", "__main__ 2\nlooked\n"]
