"""Copies of sessions: what comes along, what is refused before it is lost, and that a copy is a kernel as others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbtools.confine import Level
from nbtools.errors import InvalidArguments, KernelDied, LimitExceeded
from nbtools.kernels import Kernels
from nbtools.kernels.forked import backend
from nbtools.processes.process_tree import descendants
from tests.conftest import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")]


def test_a_copy_has_what_the_session_has_and_goes_its_own_way(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("import sqlite3, sys; x = 41; g = (i for i in range(9)); next(g); f = lambda: x + 1; out = sys.stdout")
    a.run("lite = sqlite3.connect(':memory:'); rows = lite.execute('values (1), (2)'); rows.fetchone()")
    b = a.fork("b")
    c = b.fork("c")
    for session in (a, b, c):
        done = session.run("x += 1; print(f(), next(g), rows.fetchone()); print('held', file=out); x")
        assert (done.status, done.text()) == ("ok", "43 1 (2,)\nheld\n42\n")
    assert [(shown["name"], shown["copy_of"]) for shown in kernels.list()] == [("a", None), ("b", "a"), ("c", "b")]


def test_a_copy_is_a_child_of_the_warden_and_outlives_its_original(kernels: Kernels, tmp_path: Path) -> None:
    a = kernels.session("a")
    a.run("import os; open('there.txt', 'w').close(); print(os.getcwd())")
    parent = int(a.run("print(os.getppid())").stdout)
    b = a.fork("b")
    a.close()
    done = b.run("print(os.getppid(), os.path.exists('there.txt'), os.environ['NBTOOLS_KERNEL'])")
    assert done.stdout.split()[:2] == [str(parent), "True"]
    folder = Path(b.run("print(os.getcwd())").stdout.strip())
    b.close()
    assert wait_until(lambda: not folder.exists())


def test_a_copy_takes_another_name_unless_that_is_taken(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("x = 41")
    a.fork("b").fork("c")
    with pytest.raises(InvalidArguments, match="A session 'a' already exists"):
        kernels.adopt("c", "a")
    kernels.adopt("b", "d")
    assert [(shown["name"], shown["copy_of"]) for shown in kernels.list()] == [("a", None), ("c", "d"), ("d", "a")]
    assert kernels.session("d").run("x += 1; x").text() == "42\n"
    assert a.run("x").text() == "41\n"


@pytest.mark.slow
@pytest.mark.races
def test_a_session_that_does_much_before_a_fork_is_copied_by_two_forks(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("import os, time; x = 41; before = lambda: time.sleep(1.2); os.register_at_fork(before=before)")
    parent = a.run("print(os.getppid())").stdout
    assert a.fork("b").run("print(x, os.getppid())").stdout == f"41 {parent}"


def test_a_copy_is_stopped_limited_and_told_of_as_any_kernel(kernels: Kernels, pid_of: Callable[[str], int]) -> None:
    a = kernels.session("a")
    a.run("import subprocess, time, os")
    b = a.fork("b")
    assert b.run("time.sleep(60)", timeout=0.5).status == "timeout"
    assert b.run("subprocess.run('echo raw; exit 3', shell=True).returncode").text() == "raw\n3\n"
    assert str(b.run("1 / 0").error).startswith("line 1: ZeroDivisionError")
    os.kill(pid_of("b"), signal.SIGKILL)
    assert wait_until(lambda: b.state == "dead")
    assert a.run("print('alive')").stdout == "alive\n"


@pytest.mark.slow
@pytest.mark.races
def test_a_copy_that_takes_too_much_memory_is_ended_and_its_original_not() -> None:
    with Kernels("forked", spares=0, preloads=(), memory_bytes=2 << 30) as kernels:
        a = kernels.session("a")
        a.run("x = bytearray(100 << 20)")
        b = a.fork("b")
        done = b.run("y = [bytes([i]) * (10 << 20) for i in range(250)]")
        assert done.status == "memory_limit" or (done.error is not None and done.error.name == "MemoryError")
        assert a.run("print(len(x))").stdout == f"{100 << 20}\n"


@pytest.mark.parametrize("level", ["strict", "limits"])
def test_a_copy_is_confined_as_its_original(kernels: Kernels, level: Level, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    a = kernels.session("a")
    if a.run("x = 1", sandbox=level).sandbox != level:
        pytest.skip("this host confines nothing")
    b = a.fork("b")
    done = b.run(f"open('own.txt', 'w').close(); open({str(outside)!r}, 'w')", sandbox=level)
    assert (done.sandbox, outside.exists()) == (level, level == "limits")


_SLEEPER = "import threading, time; threading.Thread(target=time.sleep, args=(60,), name='mine', daemon=True).start()"
_SERVER = "import socket; server = socket.create_server(('127.0.0.1', 0))"
_CLIENT = (
    f"{_SERVER}; client = socket.create_connection(server.getsockname()); end = server.accept()[0]; server.close()"
)
_SQLITE = "import sqlite3; lite = sqlite3.connect('x.db'); lite.execute('create table t(a)')"
_REFUSED = {
    "import subprocess; p = subprocess.Popen(['sleep', '60'])": "process",
    _SLEEPER: "thread 'mine'",
    "import concurrent.futures as cf; pool = cf.ThreadPoolExecutor(2); list(pool.map(abs, [1]))": "ThreadPoolExecutor",
    "import _thread, time; _thread.start_new_thread(time.sleep, (60,))": "unknown library",
    _SERVER: "listens on 127.0.0.1",
    _CLIENT: "connected to 127.0.0.1",
    f"{_SQLITE}; lite.execute('insert into t values (1)')": "x.db",
    "import duckdb; con = duckdb.connect('x.duckdb'); con.execute('create table t as select 1')": "x.duckdb",
    "import asyncio; t = asyncio.ensure_future(asyncio.sleep(60))": "asyncio",
}


@pytest.mark.parametrize("code", _REFUSED, ids=list(_REFUSED.values()))
def test_what_a_copy_would_lack_or_share_refuses_it_with_the_reason(kernels: Kernels, code: str) -> None:
    a = kernels.session("a")
    assert a.run(code).status == "ok"
    with pytest.raises(InvalidArguments, match=f"Session 'a' cannot be copied: .*{_REFUSED[code]}") as refused:
        a.fork("b")
    assert refused.value.hint
    assert a.run("print('alive')").stdout == "alive\n"
    assert "b" not in [shown["name"] for shown in kernels.list()]


_POLARS = "import polars; polars.DataFrame({'a': range(100_000)}).group_by(polars.col('a') % 7).len()"
# With one processor, or where a machine says that it has one, OpenMP would start no thread.
_OPENMP = pytest.param(  # as the others, and takes a second
    """
import os; os.environ["OMP_NUM_THREADS"] = "2"
import numpy as np; from sklearn.ensemble import HistGradientBoostingClassifier as Model
points = np.random.rand(4000, 10); Model(max_iter=2).fit(points, points[:, 0] > 0.5)
""",
    marks=pytest.mark.slow,
)
_S3 = """
import pyarrow.fs as fs
files = fs.S3FileSystem(anonymous=True, region="us-east-1", endpoint_override="127.0.0.1:1", connect_timeout=1)
"""


@pytest.mark.parametrize("code", [_POLARS, _OPENMP, _S3], ids=["polars", "OpenMP", "S3"])
def test_threads_of_libraries_that_do_not_survive_a_fork_refuse_it(kernels: Kernels, code: str) -> None:
    a = kernels.session("a")
    if a.run(code).status != "ok":
        pytest.skip("not installed")
    with pytest.raises(InvalidArguments, match=r"a thread of .* is running in it"):
        a.fork("b")


_LARGE = "from IPython.display import HTML, display; display(HTML('a' * 200_000))"


@pytest.mark.parametrize("code", ["print('a' * 200_000)", _LARGE, "%%bash\necho a"], ids=["text", "display", "bash"])
def test_a_copy_can_be_made_after_large_output_and_after_cells_of_other_programs(kernels: Kernels, code: str) -> None:
    """A thread that shows large messages without copying them, or waits for other programs, would prevent it."""
    a = kernels.session("a")
    before = a.run(code)
    assert before.ok
    b = a.fork("b")
    c = b.fork("c")
    for session in (a, b, c):
        done = session.run(code)
        assert (done.status, done.text(), len(done.displays)) == ("ok", before.text(), len(before.displays))


def test_what_a_program_in_the_background_has_written_is_not_lost_for_a_copy(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("%%bash --bg --out written\necho a")

    def why_not() -> str:
        with pytest.raises(InvalidArguments) as refused:
            a.fork("b")
        return refused.value.message

    assert wait_until(lambda: "thread" in why_not())
    assert a.run("await written.read()").text() == "b'a\\n'\n"


def test_databases_in_memory_come_along_wherever_they_are_held_and_can_be_closed(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run(
        "import duckdb\nclass Holder: pass\nholder = Holder(); holder.one = [duckdb.connect()]; con = duckdb.connect()"
    )
    a.run("for one in (con, *holder.one): one.execute('create table t as select range i from range(1_000_000)')")
    a.run("half = con.execute('select i from t order by i'); half.fetchone()")
    threads = a.run("print(con.cursor().execute(\"select current_setting('threads')\").fetchone())").stdout
    b = a.fork("b")
    for session in (a, b):
        assert session.run("print(half.fetchone())").stdout == "(1,)\n"
        assert session.run("print(con.execute(\"select current_setting('threads')\").fetchone())").stdout == threads
        code = "for one in (con, *holder.one): print(one.execute('select sum(i) from t').fetchone()); one.close()"
        assert session.run(code, timeout=20).stdout == "(499999500000,)\n" * 2


def test_open_files_are_read_on_by_each_and_written_once(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("lines = open('in.txt', 'w+'); lines.write('1\\n2\\n3\\n'); lines.seek(0); lines.readline()")
    a.run("log = open('log.txt', 'a'); log.write('once\\n')")
    a.run("import tempfile, os; both = tempfile.TemporaryFile('w+'), tempfile.NamedTemporaryFile('w+')")
    a.run("for one in both: one.write('1\\n2\\n'); one.seek(0); one.flush()")
    b = a.fork("b")
    for session in (a, b):
        assert session.run("print([os.read(one.fileno(), 9) for one in both])").stdout == "[b'1\\n2\\n', b'1\\n2\\n']\n"
        assert session.run("print(lines.readline(), end='')").stdout == "2\n"
        assert session.run("log.close(); print(open('log.txt').read(), end='')").stdout == "once\n"


def test_what_is_to_be_done_at_the_end_is_done_by_the_original_alone(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("import tempfile, atexit, os; place = tempfile.TemporaryDirectory(); here = os.getcwd()")
    a.run("file, shut = tempfile.NamedTemporaryFile(), tempfile.NamedTemporaryFile(); shut.file.close()")
    a.run("atexit.register(lambda: open(f'{here}/ends.txt', 'a').write('end\\n'))")
    b = a.fork("b")
    c = a.fork("c")
    b.run("del place, shut; file.close(); own = tempfile.NamedTemporaryFile()")
    own = b.run("print(own.name)").stdout.strip()
    b.close()
    look = "print(*map(os.path.exists, (place.name, file.name, shut.name, 'ends.txt')))"
    assert a.run(look).stdout == "True True True False\n"
    assert not Path(own).exists()
    a.close()
    assert c.run(f"{look}; print(open('ends.txt').read())").stdout == "False False False True\nend\n\n"


def test_a_session_with_thousands_of_open_files_is_copied(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("files = [open('/dev/null') for _ in range(1500)]")
    assert a.fork("b").run("print(len(files), files[-1].read())").stdout == "1500 \n"


@pytest.mark.races
def test_a_fork_while_a_run_is_on_is_refused_and_so_is_a_name_that_is_taken(kernels: Kernels, tmp_path: Path) -> None:
    a, begun = kernels.session("a"), tmp_path / "begun"
    a.run("import pathlib, time")
    running = threading.Thread(target=a.run, args=(f"pathlib.Path({str(begun)!r}).touch(); time.sleep(60)",))
    running.start()
    wait_until(begun.exists)
    with pytest.raises(InvalidArguments, match="is running code"):
        a.fork("b")
    a.interrupt()  # once: one that strikes the kernel's own steps behind the code is another matter
    running.join(60)
    assert not running.is_alive()
    with pytest.raises(InvalidArguments, match="'a' already"):
        a.fork("a")
    with pytest.raises(InvalidArguments, match="no session 'z'"):
        kernels.fork("z", "b")


def test_no_copy_takes_the_place_of_a_session_with_work_that_it_does_not_have(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("x = 1")
    one, other = a.fork("one"), a.fork("other")
    one.run("x = 2")
    kernels.adopt("one")
    with pytest.raises(InvalidArguments, match="'a' has run since 'other' was copied from it, last 'x = 2'") as refused:
        kernels.adopt("other")
    assert "%kernels stop other drops the copy" in str(refused.value.hint)
    kernels.session("a").close()
    kernels.session("a").run("x = 3")  # another one, with no more runs than the copy was made after
    with pytest.raises(InvalidArguments, match="last 'x = 3'"):
        kernels.adopt("other")
    assert other.run("print(x)").stdout == "1\n"


@pytest.mark.races
def test_a_name_that_a_run_has_taken_meanwhile_is_refused_and_the_copy_ends(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("x = 1")
    before, ends = set(descendants([os.getpid()])), list[str]()

    def fork() -> None:
        try:
            ends.append(a.fork("b").name)
        except InvalidArguments as exc:
            ends.append(str(exc))

    forking = threading.Thread(target=fork)
    forking.start()
    assert wait_until(lambda: next(shown["state"] for shown in kernels.list() if shown["name"] == "a") == "busy")
    assert kernels.run("print('own')", session="b").stdout == "own\n"
    forking.join(20)
    assert ends == ["b"] or "A session 'b' already exists" in ends[0]
    kernels.stop("b")
    assert wait_until(lambda: not set(descendants([os.getpid()])) - before)


@pytest.mark.races
def test_a_fork_that_is_cancelled_is_over_when_its_copy_is(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    a = kernels.session("a")
    a.run("x = 1")
    before, ends = set(descendants([os.getpid()])), list[bool]()
    close = backend.ForkingKernel.close

    async def note_whether_it_has_ended(kernel: backend.ForkingKernel) -> None:
        await close(kernel)
        ends.append(kernel.process.exited.done())

    monkeypatch.setattr(backend.ForkingKernel, "close", note_whether_it_has_ended)

    async def cancel_forks() -> None:
        for step in range(6):
            forking = asyncio.ensure_future(kernels.afork("a", f"b{step}"))
            await asyncio.sleep(0.005 * step)
            forking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await forking
            assert (await kernels.arun("print(x)", session="a")).stdout == "1\n"

    asyncio.run(cancel_forks())
    for name in [shown["name"] for shown in kernels.list() if shown["name"] != "a"]:
        kernels.stop(name)
    assert wait_until(lambda: not set(descendants([os.getpid()])) - before)
    assert ends
    assert all(ends)


@pytest.mark.races
def test_a_copy_that_speaks_before_the_warden_has_heard_it_is_taken_in(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a, go = kernels.session("a"), tmp_path / "go"
    a.run(f"import os, time\ndef wait():\n    while not os.path.exists({str(go)!r}): time.sleep(0.001)\n")
    a.run("import sys; sys.__stdout__.reconfigure(line_buffering=True); os.register_at_fork(after_in_child=wait)")
    warden, wake = int(a.run("print(os.getppid())").stdout), backend.ForkingKernel.wake

    async def wake_while_the_warden_stands_still(kernel: backend.ForkingKernel, *, is_heir: bool) -> None:
        os.kill(warden, signal.SIGSTOP)
        go.touch()
        try:
            await wake(kernel, is_heir=is_heir)
        finally:
            os.kill(warden, signal.SIGCONT)

    monkeypatch.setattr(backend.ForkingKernel, "wake", wake_while_the_warden_stands_still)
    assert a.fork("b").run("print(6 * 7)").stdout == "42\n"


def test_what_the_system_refuses_is_told_as_such(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    a = kernels.session("a")
    a.run("x = 1")
    with monkeypatch.context() as patch:
        patch.setattr(backend.socket, "socketpair", refuse)
        with pytest.raises(LimitExceeded, match="open files"):
            a.fork("b")
    assert a.fork("b").run("print(x)").stdout == "1\n"


@pytest.mark.races
@pytest.mark.parametrize("victim", ["original", "copy"])
def test_the_end_of_one_while_it_is_copied_leaves_nothing_that_waits(
    kernels: Kernels, pid_of: Callable[[str], int], victim: str
) -> None:
    """It is killed again and again, at other moments; whatever comes of it comes soon, and what is told is true."""
    ends = []
    for step in range(6):
        a = kernels.session("a")
        a.run("x = 1")
        pid, is_over = pid_of("a"), threading.Event()
        before = set(descendants([os.getpid()]))

        def kill(
            pid: int = pid, is_over: threading.Event = is_over, before: set[int] = before, step: int = step
        ) -> None:
            while not (new := set(descendants([os.getpid()])) - before) and not is_over.is_set():
                time.sleep(0.001)
            time.sleep(0.005 * step)
            for one in [pid] if victim == "original" else new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        began = time.monotonic()
        try:
            copy = a.fork(f"b{step}")
        except KernelDied:
            ends.append("died")
        else:
            done = copy.run("print(x)")
            # One that was killed before its first run is started again, without what it had, and says so.
            is_new = victim == "copy" and any("began empty" in note for note in done.notes)
            ends.append("died" if is_new else done.status)
        is_over.set()
        killer.join()
        assert time.monotonic() - began < 15
        assert a.run("print(1)").status in ("ok", "died")
    assert set(ends) <= {"ok", "died"}
