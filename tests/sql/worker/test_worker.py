"""The worker: it is confined, it can be killed, and what it sends is looked at before it is believed."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

import nbtools
from nbtools.errors import (
    CallTimeout,
    Cancelled,
    InternalError,
    LimitExceeded,
    NbtoolsError,
    SqlFailed,
    error_from_wire,
    error_to_wire,
)
from nbtools.sql import SqlSession
from nbtools.sql.engines.protocol import EngineOptions, QueryControl, QueryRequest
from nbtools.sql.worker.client import IsolatedEngine
from nbtools.sql.worker.protocol import MessageSocket, plain_loads
from tests.conftest import is_running, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[IsolatedEngine]:
    with contextlib.closing(IsolatedEngine(None, EngineOptions(roots=(tmp_path,)))) as opened:
        yield opened


def ask(engine: IsolatedEngine, sql: str, **more: Any) -> list[list[Any]]:
    return engine.run(QueryRequest(sql=sql, **more), QueryControl()).rows.to_lists()


def worker_of(engine: IsolatedEngine) -> psutil.Process:
    engine.warm()
    return psutil.Process(engine._idle[-1].process.pid)


def gone(process: psutil.Process) -> bool:
    # While threads of it still end, a process that is marked dead cannot be waited for yet.
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    return True


@contextlib.contextmanager
def signalled_at_work(engine: IsolatedEngine, number: int) -> Iterator[None]:
    """Send a signal to the worker of an engine as soon as it answers something."""

    def send() -> None:
        at_work = lambda: [one for one in [*engine._busy.values()] if one.is_answering]  # noqa: E731
        os.kill(wait_until(at_work)[0].process.pid, number)

    with ThreadPoolExecutor(1) as beside:
        sent = beside.submit(send)
        yield
        sent.result()


def test_a_worker_is_used_again(engine: IsolatedEngine) -> None:
    first = worker_of(engine).pid
    for number in range(5):
        assert ask(engine, f"select {number}") == [[number]]
    assert worker_of(engine).pid == first


@pytest.mark.races
def test_the_worker_ends_with_its_engine(engine: IsolatedEngine) -> None:
    process = worker_of(engine)
    engine.close()
    wait_until(lambda: gone(process))
    assert not engine._spill.exists()


@pytest.mark.races
def test_the_worker_ends_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of its own: engines of other tests remove what killed processes left, too.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = (
        "import os, sys\n"
        "from nbtools.sql.worker.client import IsolatedEngine\n"
        "from nbtools.sql.engines.protocol import EngineOptions\n"
        "engine = IsolatedEngine(None, EngineOptions())\n"
        "engine.warm()\n"
        "print(engine._idle[0].process.pid, engine._spill, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, spill = done.stdout.split()
    wait_until(lambda: not psutil.pid_exists(int(pid)) or gone(psutil.Process(int(pid))))
    assert Path(spill).is_dir(), "nobody was left to remove it"
    with contextlib.closing(IsolatedEngine(None, EngineOptions())):
        assert not Path(spill).exists(), "the next engine did"


@pytest.mark.races
def test_a_dead_worker_is_replaced(engine: IsolatedEngine) -> None:
    process = worker_of(engine)
    process.kill()
    wait_until(lambda: gone(process))
    assert ask(engine, "select 1") == [[1]]


@pytest.mark.races
def test_a_worker_that_dies_at_work_is_said_so(engine: IsolatedEngine) -> None:
    with signalled_at_work(engine, signal.SIGKILL), pytest.raises(LimitExceeded, match="signal 9"):
        ask(engine, "select count(*) from range(100000000) a, range(100000000) b")
    assert ask(engine, "select 1") == [[1]]


@pytest.mark.races
def test_a_worker_whose_file_was_cut_is_not_said_to_lack_memory(engine: IsolatedEngine) -> None:
    with signalled_at_work(engine, signal.SIGBUS), pytest.raises(SqlFailed, match="was shortened") as caught:
        ask(engine, "select count(*) from range(100000000) a, range(100000000) b")
    assert caught.value.retryable


def test_an_error_of_the_worker_arrives_as_it_was_raised() -> None:
    given = SqlFailed("changed", hint="again", tried="running SQL", data={"line": 1}, retryable=True)
    again = error_from_wire(json.loads(json.dumps(error_to_wire(given))))
    assert (type(again), again.message, again.tried, again.data) == (SqlFailed, "changed", "running SQL", {"line": 1})
    assert again.to_dict() == given.to_dict()
    assert isinstance(error_from_wire({"class": "difflib", "message": "x"}), InternalError)


@pytest.mark.races
def test_a_worker_that_ran_out_of_memory_is_not_used_again(tmp_path: Path) -> None:
    opening = EngineOptions(roots=(tmp_path,), memory_bytes=100_000_000, spill_bytes=1_000_000)
    with contextlib.closing(IsolatedEngine(None, opening)) as engine:
        process = worker_of(engine)
        with pytest.raises(LimitExceeded) as caught:
            ask(engine, "select length(string_agg(repeat('x', 1000000), '')) from range(1000)")
        assert gone(process)
        assert ask(engine, "select 1") == [[1]]
        assert "SET" not in str(caught.value)
        assert "allocate" in caught.value.message


def test_a_worker_is_kept_when_its_query_was_wrong(engine: IsolatedEngine) -> None:
    first = worker_of(engine).pid
    with pytest.raises(NbtoolsError):
        ask(engine, "select nothing")
    assert worker_of(engine).pid == first


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="data is limited, and shown, by Linux")
def test_what_a_query_took_is_there_for_the_next_whether_it_was_stopped_or_not(engine: IsolatedEngine) -> None:
    # Two shapes, because what an allocator keeps of the one does not fit the other.
    rows = "(select hash(range) h, count(*) from range(3000000) group by h)"
    wide = "(select hash(range) h, range i from range(1000000000000) order by h limit 1000000000)"

    def data() -> int:
        (line,) = Path(f"/proc/{worker_of(engine).pid}/status").read_text().split("VmData:")[1:]
        return int(line.split()[0]) * 1024

    def is_free() -> bool:
        return data() - new < 50_000_000

    new = data()
    assert ask(engine, f"select count(*) from {rows}") == [[3_000_000]]
    assert wait_until(is_free)
    for _ in range(2):
        first, control = worker_of(engine), QueryControl()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(engine.run, QueryRequest(sql=f"select sum(i) from {wide}"), control)
            assert wait_until(lambda first=first: first.memory_info().rss > 300_000_000)
            assert wait_until(lambda control=control, asked=asked: control.stop("stop") or asked.done())
        with pytest.raises(Cancelled):
            asked.result()
        assert wait_until(is_free)
    assert ask(engine, f"select count(*) from {rows}") == [[3_000_000]]
    assert wait_until(is_free)


@pytest.mark.races
def test_queries_at_the_same_time_have_a_worker_each(engine: IsolatedEngine) -> None:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(ask(engine, f"select {n}"))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [[[n]] for n in range(4)]
    assert len(engine._idle) <= 2
    assert not engine._busy


def test_the_environment_of_the_worker_holds_no_secrets(
    engine: IsolatedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBTOOLS_TEST_SECRET", "hidden")
    monkeypatch.setenv("HOME", "/somewhere")
    names = set(worker_of(engine).environ())
    assert "NBTOOLS_TEST_SECRET" not in names
    assert "HOME" not in names


def test_a_worker_that_does_not_start_says_why(engine: IsolatedEngine) -> None:
    engine._settings["kind"], engine._settings["options"] = "duckdb", {"roots": [], "no_such_option": 1}
    with pytest.raises(InternalError, match=r"did not start: .*TypeError: .*'no_such_option'$") as caught:
        engine.warm()
    assert "^^" not in str(caught.value)


@pytest.mark.races
def test_a_worker_that_ends_without_a_word_says_how(engine: IsolatedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InternalError, match="it said nothing and ended with exit code 1"):
        engine.warm()


@pytest.mark.races
def test_a_worker_that_is_never_ready_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 600\n')
    stuck.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stuck))
    slow = IsolatedEngine(None, EngineOptions(roots=(tmp_path,)), start_s=1.0)
    said = r"did not start within 1 s: it said nothing and was ended$"
    with contextlib.closing(slow), pytest.raises(InternalError, match=said):
        slow.warm()
    if (named := tmp_path / "stuck.pid").exists():  # the machine may be too busy for a shell to begin
        assert wait_until(lambda: not is_running(int(named.read_text())))


def test_a_worker_that_runs_says_nothing(engine: IsolatedEngine) -> None:
    descriptors = Path("/proc", str(worker_of(engine).pid), "fd")
    if not descriptors.exists():
        pytest.skip("this system does not tell open files")
    assert (descriptors / "2").readlink() == Path(os.devnull)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Landlock and seccomp are Linux's")
def test_the_worker_cannot_reach_files_or_the_network(engine: IsolatedEngine, tmp_path: Path) -> None:
    if engine.warm():
        pytest.skip(f"this host lacks {engine.warm()}")
    pid = worker_of(engine).pid
    status = Path(f"/proc/{pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert "CapEff:\t0000000000000000" in status


def test_limits_are_set_on_the_worker(engine: IsolatedEngine) -> None:
    process = worker_of(engine)
    if not hasattr(process, "rlimit"):
        pytest.skip("this system shows no limits of others")
    assert process.rlimit(psutil.RLIMIT_DATA)[0] == 1_512_000_000
    assert process.rlimit(psutil.RLIMIT_FSIZE)[0] == 1_000_000_000
    assert process.rlimit(psutil.RLIMIT_CORE)[0] == 0


@pytest.mark.races
def test_a_late_interrupt_does_not_end_the_next_request(engine: IsolatedEngine) -> None:
    engine.warm()
    worker = engine._idle[-1]
    for number in range(30):
        worker.interrupt()
        assert ask(engine, f"select {number}") == [[number]]


def test_frames_reach_the_worker_without_pyarrow(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "s": ["x", None], "t": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    with contextlib.closing(IsolatedEngine(None, EngineOptions(roots=(tmp_path,)), arrow=False)) as engine:
        found = engine.run(
            QueryRequest(sql="select a, s, t::date as d from frame", frames={"frame": frame}), QueryControl()
        )
        assert found.rows.to_lists() == [[1, "x", "2024-01-01"], [2, None, "2024-01-02"]]
        assert type(found.rows).__name__ == "PythonRows"
        assert list(engine._spill.glob("frames/*")) == []
        assert ask(engine, "select timestamptz '2024-01-01 00:00:00+00'")[0][0].startswith("2024-01-01 00:00:00")
        assert ask(engine, "select 1.5::decimal(5,2), uuid '00000000-0000-0000-0000-000000000001'")[0][0] == 1.5


def test_everything_works_in_process_without_pyarrow() -> None:
    program = (
        "import sys, json\n"
        "sys.modules['pyarrow'] = None\n"
        "import pandas as pd\n"
        "from nbtools.sql import SqlSession\n"
        "frame = pd.DataFrame({'a': [1, 2], 's': ['x', None]})\n"
        "with SqlSession() as session:\n"
        "    for isolated in (False, True):\n"
        "        result = session.query('select a, s, now() as t from f', frames={'f': frame}, isolated=isolated)\n"
        "        assert result.to_rows()[0][:2] == [1, 'x'], result.to_rows()\n"
        "        assert list(result.to_pandas()['a']) == [1, 2]\n"
        "        assert result.text().endswith('(2 rows)')\n"
        "print('good')\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "good\n", done.stderr


def test_the_working_folder_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.csv").write_text("v\n1\n")
    with SqlSession(allowed_paths=[tmp_path]) as session:
        monkeypatch.chdir(tmp_path)
        assert session.query("from 'a/x.csv'", isolated=True).to_rows() == [[1]]
        monkeypatch.chdir(tmp_path / "a")
        assert session.query("from 'x.csv'", isolated=True).to_rows() == [[1]]


def test_a_database_file_is_read_in_the_worker(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(tmp_path / "d.duckdb") as connection:
        connection.execute("create table t as select 5 as a; create macro inc(x) as x + 1; create view v as from t")
    with SqlSession(connections={"d": f"duckdb:///{tmp_path}/d.duckdb"}) as session:
        found = session.query("select inc(a) from v", connection="d", isolated=True)
        assert found.to_rows() == [[6]]
        assert found.isolated


# -- the line ------------------------------------------------------------------------------------------------------


def _pair(limit: int = 1_000) -> tuple[MessageSocket, MessageSocket]:
    one, two = socket.socketpair()
    return MessageSocket(one), MessageSocket(two, limit=limit)


@pytest.mark.races
def test_messages_arrive_whole_with_their_descriptors() -> None:
    sender, receiver = _pair(limit=1 << 24)
    with open(os.devnull) as file:  # noqa: PTH123 - a descriptor is the point
        thread = threading.Thread(target=sender.send, args=(b"Q", b"x" * (3 << 20), (file.fileno(),)))
        thread.start()
        kind, body = receiver.receive()
        assert (kind, len(body)) == (b"Q", 3 << 20)
        taken = receiver.take_descriptors()
        assert len(taken) == 1
        thread.join()
        sender.send(b"Q")
        assert receiver.receive() == (b"Q", bytearray())
        assert receiver.take_descriptors() == []
    os.close(taken[0])
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    sender, receiver = _pair(limit=10)
    sender.send(b"A", b"x" * 11)
    with pytest.raises(InternalError):
        receiver.receive()
    sender.close()
    receiver.close()


def test_tuples_hold_plain_values_only() -> None:
    plain = [
        (1, 1.5, "x", b"y", None, True, [1], {"a": (2,)}),
        (dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.timedelta(1), dt.time(1)),
        (decimal.Decimal("1.5"), uuid.UUID(int=1)),
    ]
    assert plain_loads(pickle.dumps(plain)) == plain
    for hostile in (os.system, subprocess.Popen, eval, json.loads, Path("/")):
        with pytest.raises(pickle.UnpicklingError):
            plain_loads(pickle.dumps(hostile))


# -- bombs ---------------------------------------------------------------------------------------------------------


def test_the_first_progress_of_a_query_is_not_that_of_the_one_before(engine: IsolatedEngine) -> None:
    """The worker is asked for the share of a query that ends before anybody reads the answer."""
    query = QueryRequest(sql="select sum(sin(range)) from range(100000000000)", progress=True)

    @contextlib.contextmanager
    def running() -> Iterator[QueryControl]:
        control = QueryControl()

        def run() -> None:
            with contextlib.suppress(NbtoolsError):
                engine.run(query, control)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_until(lambda: control in engine._busy and engine._busy[control].is_answering)
            yield control
        finally:
            while thread.is_alive():  # an interrupt that comes while the engine prepares is lost
                control.stop("stop")
                thread.join(0.02)

    with running() as first:
        assert wait_until(first.progress) > 0
        worker = engine._busy[first]
        wait_until(lambda: select.select([worker._side], [], [], 0)[0])
    with running() as second:
        assert engine._busy[second] is worker
        assert second.progress() is None
        assert wait_until(second.progress) > 0


BOMBS = {
    "one long string": "select length(repeat(repeat('x', 1000000), 4000))",
    "a list of a thousand million": "select len(range(1000000000))",
    "lists of everything": "select list(range) from range(1000000000)",
    "an edit distance": "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "a list sorted at once": "select list_sort(range(20000000)::varchar[])[1]",
    "a cross join": "select count(*) from range(100000000) a, range(100000000) b",
    "a sort of too much": "from range(1000000000) order by random()",
    "an hour of backtracking": "select regexp_matches(repeat('a', 1000000), '(a*)*(a*)*b')",
    "split into everything": "select len(string_split(repeat('a,', 400000000), ','))",
    "a great number": "select length((repeat('9', 10000000)::bignum)::varchar)",
    "joined strings": "select string_agg(repeat('x', 1000), '') from range(20000000)",
    "strings that pile up": "select list(repeat('x', 1000000)) from range(20000)",
}


@pytest.mark.races
@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_ends_in_time_and_costs_the_owner_nothing(bomb: str) -> None:
    owner = psutil.Process()
    with SqlSession() as session:
        session.query("select 1", isolated=True)
        before = owner.memory_info().rss
        begun = time.monotonic()
        with contextlib.suppress(NbtoolsError):
            session.query(BOMBS[bomb], isolated=True, timeout=2)
        assert time.monotonic() - begun < 30, "killed half a second after its time; the rest is for a busy machine"
        assert owner.memory_info().rss - before < 150_000_000
        assert session.query("select 1", isolated=True).to_rows() == [[1]]


@pytest.mark.races
@pytest.mark.slow
def test_what_ignores_interrupts_is_killed_and_said_so() -> None:
    with SqlSession() as session:
        session.query("select 1", isolated=True)
        with pytest.raises(CallTimeout, match="was killed"):
            session.query(BOMBS["a list sorted at once"], isolated=True, timeout=0.5)


def test_the_worker_finds_packages_where_its_owner_finds_them(tmp_path: Path) -> None:
    code = "from nbtools.sql import SqlSession as S; print(S().query('select 42 as a', isolated=True).to_rows())"
    (tmp_path / "lib").mkdir()
    told = f"import sys; open({str(tmp_path / 'told')!r}, 'a').write(' '.join(sys.orig_argv) + chr(10))"
    (tmp_path / "lib" / "sitecustomize.py").write_text(told, encoding="utf-8")
    package = str(Path(nbtools.__file__).parent.parent)
    found = os.pathsep.join([package, str(tmp_path / "lib")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": found},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "[[42]]\n", done.stderr
    # Python imports the module as it starts, wherever it finds it.
    assert "nbtools.sql.worker" in (tmp_path / "told").read_text(encoding="utf-8")
