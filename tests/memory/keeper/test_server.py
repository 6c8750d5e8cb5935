from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments, MemoryUnavailable, VersionConflict
from nbtools.memory import open_memory
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.keeper.client import KeeperRepository
from nbtools.memory.keeper.protocol import PROTOCOL, connect_to, dumps, frame, receive
from nbtools.memory.records import Scope
from nbtools.memory.repository import Change, Query
from tests.conftest import is_running, wait_until
from tests.memory.conftest import end_keeper, keeper_of

pytestmark = [pytest.mark.in_memory, pytest.mark.processes]

SCOPE = Scope(agent_id="a")


def test_two_clients_see_each_others_last_write_at_once(open_shared):
    one, two = open_shared(), open_shared()
    for number in range(20):
        one.write("k", number)
        assert two["k"] == number
        two.write("l", number)
        assert one["l"] == number
    assert one.info()["pid"] == two.info()["pid"] != os.getpid()


def test_nothing_is_started_before_the_first_question(open_shared, path):
    open_shared()
    assert not path.exists()
    assert not MemoryDirectory(path).folder.exists()


@pytest.mark.races
def test_the_keeper_leaves_by_itself_and_leaves_nothing_behind(open_shared, path):
    memory = open_shared(idle_exit=0.2)
    memory.write("k", 1)
    pid = keeper_of(path)
    memory.close()
    wait_until(lambda: not is_running(pid))
    place = MemoryDirectory(path)
    assert not place.socket_path().exists()
    assert not place.opened.exists()
    assert place.holder() == {}
    assert not path.with_name("m.duckdb.wal").exists()
    assert open_shared(idle_exit=0.2)["k"] == 1


@pytest.mark.races
def test_a_client_that_is_silent_does_not_hold_the_keeper_for_ever(open_shared):
    memory = open_shared(idle_exit=0.05)
    memory.write("k", 1)
    pid = memory.info()["pid"]  # its lock may be gone before it is looked at
    wait_until(lambda: not is_running(pid))
    assert memory["k"] == 1
    assert memory.info()["pid"] != pid


def test_the_keeper_is_its_users_alone(open_shared, path):
    open_shared().write("k", 1)
    place = MemoryDirectory(path)
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.socket_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(os.fsencode(place.socket_path())) <= 107


def test_ps_says_what_the_keeper_is(open_shared, path):
    open_shared().write("k", 1)
    import psutil

    process = psutil.Process(keeper_of(path))
    assert process.cmdline()[1:4] == ["-m", "nbtools.memory.keeper", str(path)]
    assert process.ppid() != os.getpid()
    assert not [name for name in process.environ() if name.endswith(("_KEY", "_TOKEN"))]


def test_a_long_path_gets_its_socket_elsewhere(tmp_path):
    deep = tmp_path / ("d" * 100) / "m.duckdb"
    with open_memory(deep, agent_id="a", idle_exit=20) as memory:
        memory.write("k", 1)
        place = MemoryDirectory(deep)
        where = place.socket_path()
        assert place.holder()["address"] == {"unix": str(where)}
        assert len(os.fsencode(where)) <= 107
        assert stat.S_IMODE(where.parent.stat().st_mode) == 0o700
    end_keeper(deep)
    assert not where.exists()
    with contextlib.suppress(OSError):
        where.parent.rmdir()


def test_errors_of_the_keeper_arrive_as_they_are(open_shared):
    memory = open_shared()
    memory.write("k", "text")
    with pytest.raises(InvalidArguments, match="not a number"):
        memory.incr("k")
    with pytest.raises(VersionConflict) as caught:
        memory.write("k", 1, if_version=7)
    assert caught.value.data == {"key": "k", "expected": 7, "found": 1}


@pytest.mark.races
def test_a_killed_keeper_is_replaced_and_nothing_is_lost(open_shared, path):
    memory = open_shared()
    for number in range(50):
        memory.write(f"k{number}", number)
        if number % 20 == 10:
            end_keeper(path, signal.SIGKILL)
    assert dict(memory) == {f"k{number}": number for number in range(50)}
    assert memory.info()["notices"] == []


@pytest.mark.races
def test_a_request_is_applied_once_over_a_kill(open_shared, path):
    memory = open_shared()
    changes = [Change(kind="incr", scope=SCOPE, key="n")]
    first = memory.repository.apply(changes, request_id="r")
    end_keeper(path, signal.SIGKILL)
    assert memory.repository.apply(changes, request_id="r") == first
    end_keeper(path, signal.SIGTERM)
    assert memory.repository.apply(changes, request_id="r") == first
    assert memory["n"] == 1


@pytest.mark.slow
@pytest.mark.races
def test_many_starters_get_one_keeper(path):
    """Eight processes want a memory at the same moment; all get the same one."""
    code = (
        "import sys; from nbtools.memory import open_memory\n"
        "m = open_memory(sys.argv[1], agent_id='a', idle_exit=20); sys.stdin.readline()\n"
        "print(m.incr('n'), m.info()['pid'])"
    )
    command = [sys.executable, "-c", code, str(path)]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for starter in starters:
        starter.stdin.write("\n")
        starter.stdin.flush()
    said = [starter.communicate(timeout=60)[0].split() for starter in starters]
    assert sorted(int(number) for number, _ in said) == list(range(1, 9))
    assert len({pid for _, pid in said}) == 1


@pytest.mark.races
def test_threads_share_a_client(open_shared):
    memory = open_shared()

    def work(name):
        for number in range(30):
            memory.write(f"{name}-{number}", number)
            assert memory[f"{name}-{number}"] == number
            memory.incr("n")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory["n"] == 120
    assert len(memory) == 121


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_connects_by_itself(open_shared):
    memory = open_shared()
    memory.incr("n")
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                for _ in range(10):
                    memory.incr("n")
                os._exit(0)
            os._exit(1)
        children.append(child)
    for _ in range(10):
        memory.incr("n")
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert memory["n"] == 41


def test_a_client_travels_to_another_process(open_shared):
    memory = open_shared()
    memory.write("k", 1)
    copy = pickle.loads(pickle.dumps(memory.repository))
    assert copy.query(Query(scope=SCOPE, keys=("k",))).records[0].value == 1
    copy.close()


@pytest.mark.races
def test_an_older_keeper_hands_over_to_a_newer_client(path):
    scope = SCOPE
    old = KeeperRepository(path, idle_exit=20)
    old.apply([Change(kind="write", scope=scope, key="k", value="1")])
    pid = keeper_of(path)
    new = KeeperRepository(path, idle_exit=20, _protocol=PROTOCOL + 1)
    new.apply([Change(kind="incr", scope=scope, key="k")])
    assert keeper_of(path) != pid
    assert wait_until(lambda: not is_running(pid))
    with pytest.raises(MemoryUnavailable, match="newer nbtools"):
        old.query(Query(scope=scope))
    assert new.query(Query(scope=scope, keys=("k",))).records[0].value == 2
    old.close()
    new.close()


def test_a_keeper_on_a_port_wants_the_token(path):
    repository = KeeperRepository(path, idle_exit=20, tcp=True)
    repository.apply([Change(kind="write", scope=SCOPE, key="k", value="1")])
    address = MemoryDirectory(path).holder()["address"]
    assert sorted(address) == ["tcp", "token"]
    for greeting in ({"hello": 1}, {"hello": 1, "token": "guess"}, {"op": "info"}):
        stranger = connect_to(address, timeout=10)
        stranger.sendall(frame(dumps(greeting)))
        with pytest.raises((EOFError, ConnectionError)):
            receive(stranger)
        stranger.close()
    assert repository.query(Query(scope=SCOPE, give="count")).total == 1
    repository.close()


DEEP = frame("[" * 200_000)


@pytest.mark.parametrize(
    "noise",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02[]", b"\xff" * 100, b"\x00\x00\x00\x05hello", DEEP],
    ids=range(5),
)
def test_noise_does_not_disturb_the_keeper(open_shared, path, noise):
    memory = open_shared()
    memory.write("k", 1)
    keeper = memory.info()["pid"]
    stranger = connect_to(MemoryDirectory(path).holder()["address"], timeout=10)
    stranger.sendall(noise)
    stranger.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        assert stranger.recv(100) == b""
    stranger.close()
    assert (memory["k"], memory.info()["pid"]) == (1, keeper)


@pytest.mark.races
def test_a_client_that_does_not_read_holds_nobody_up(open_shared, path):
    memory = open_shared()
    memory.write("big", "x" * 900_000)
    lazy = connect_to(MemoryDirectory(path).holder()["address"], timeout=10)
    lazy.sendall(frame(dumps({"hello": 1})))
    receive(lazy)
    question = frame(dumps({"op": "get", "scope": ["a", None, None], "keys": ["big"]}))
    for _ in range(5):
        lazy.sendall(question)
    for number in range(20):
        memory.write("k", number)
        assert memory["k"] == number
    assert all(len(receive(lazy)["rows"][0][4]) == 900_000 for _ in range(1))
    lazy.close()


@pytest.mark.races
def test_an_interrupted_question_does_not_spoil_the_next(open_shared, monkeypatch):
    memory = open_shared()
    memory.write("k", "right")
    open_shared().write("l", "wrong")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbtools.memory.keeper.protocol.receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        memory.read("l")
    monkeypatch.undo()
    assert memory["k"] == "right"


@pytest.mark.races
def test_a_keeper_that_does_not_answer_is_told(open_shared, path):
    patient, hasty = open_shared(), open_shared(timeout=1.0)
    patient.write("k", 1)
    pid = keeper_of(path)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(MemoryUnavailable, match="did not answer") as caught:
            hasty.write("k", 2)
        assert caught.value.retryable
    finally:
        os.kill(pid, signal.SIGCONT)
    assert patient.write("l", 3).value == 3


@pytest.mark.races
def test_what_cannot_be_opened_is_told_by_whoever_starts_the_keeper(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("no database\n" * 1000)
    with open_memory(text) as memory, pytest.raises(MemoryUnavailable, match="not a memory file"):
        memory.read("k")
    with open_memory("/proc/nowhere/m.duckdb") as memory, pytest.raises(MemoryUnavailable, match="cannot be kept"):
        memory.read("k")
    with open_memory(tmp_path / "m.duckdb", embedded=True) as holder:
        holder.write("k", 1)
        memory = open_memory(tmp_path / "m.duckdb", timeout=1.0)
        with pytest.raises(MemoryUnavailable, match=f"process {os.getpid()}"):
            memory.read("k")
        memory.close()


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize(("name", "reason"), [("lock", "Is a directory"), ("log", "File exists")])
def test_what_the_disk_refuses_at_a_start_is_told(path, name, reason, embedded):
    place = MemoryDirectory(path)
    place.make()
    if name == "lock":
        place.lock.mkdir()
    else:
        place.log.symlink_to("nowhere")
    with open_memory(path, embedded=embedded) as memory, pytest.raises(MemoryUnavailable, match=reason) as caught:
        memory.read("k")
    assert "NBTOOLS_HOME" in caught.value.hint


def test_a_failure_that_nobody_foresaw_is_told_too(path, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import nbtools.memory.duckdb.journal as j\n"
        "def fail(*_, **__):\n    raise LookupError('of another kind')\n"
        "j.Journal = fail"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with open_memory(path) as memory, pytest.raises(MemoryUnavailable, match="LookupError: of another kind") as caught:
        memory.read("k")
    assert "of another kind" in MemoryDirectory(path).messages.read_text()
    assert str(MemoryDirectory(path).messages) in caught.value.hint


def test_an_index_that_was_left_half_made_is_made_anew(path, open_shared):
    with open_memory(path, agent_id="a", embedded=True) as memory:
        memory.write("k", "word")
        memory.search("word")
    with sqlite3.connect(MemoryDirectory(path).index) as database:
        database.execute("DELETE FROM facts")
    database.close()
    assert [record.key for record in open_shared().search("word")] == ["k"]


@pytest.mark.races
def test_a_file_of_another_machine_names_the_machine(path):
    with open_memory(path, embedded=True) as memory:
        memory.write("k", 1)
    place = MemoryDirectory(path)
    place.lock.write_text(
        json.dumps({"pid": 99_999_999, "host": "other-host", "user": 0, "address": {"unix": "/nowhere"}})
    )
    with open_memory(path, agent_id="a", timeout=1.0) as memory, pytest.raises(MemoryUnavailable) as caught:
        memory.read("k")
    assert "other-host" in caught.value.message
    assert "postgresql://" in caught.value.hint
    # A machine that has not renewed its word for a while is taken for gone.
    os.utime(place.lock, (time.time() - 3600,) * 2)
    with open_memory(path, idle_exit=20) as memory:
        assert memory["k"] == 1


def test_a_damaged_file_is_repaired_by_the_next_keeper(open_shared, path):
    memory = open_shared()
    for number in range(20):
        memory.write(f"k{number}", number)
    end_keeper(path)
    path.write_bytes(b"scrambled" * 5000)
    with pytest.warns(UserWarning, match="was damaged"):
        assert len(memory) == 20
    assert "set aside" in memory.info()["notices"][0]
    assert list(path.parent.glob("m.duckdb.damaged-*"))


def test_a_closed_client_says_so(open_shared):
    memory = open_shared()
    memory.write("k", 1)
    memory.close()
    with pytest.raises(MemoryUnavailable, match="was closed"):
        memory.read("k")


def test_spawned_processes_use_it_too(open_shared, path):
    memory = open_shared()
    memory.write("n", 0)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.starmap(_add, [(memory.repository, SCOPE)] * 6)
    assert memory["n"] == 6


def _add(repository, scope):
    repository.apply([Change(kind="incr", scope=scope, key="n")])


@pytest.mark.races
def test_the_index_outlives_a_killed_keeper(path, open_shared):
    memory = open_shared()
    for number in range(300):
        memory.write(f"k{number}", f"note {number} alpha", tags=["t"])
    assert len(memory.search("alpha", limit=500)) == 300
    memory.write("k7", "beta")
    memory.delete("k8")
    end_keeper(path)
    index = MemoryDirectory(path).index
    assert index.exists()
    memory.write("k9", "gamma", tags=[])
    made = index.stat().st_ino
    end_keeper(path, signal.SIGKILL)
    assert sorted(record.key for record in memory.search("beta gamma")) == ["k7", "k9"]
    assert len(memory.search("alpha", limit=500)) == len(memory.find(["t"])) - 1 == 297
    assert memory.search("note 5", limit=1)[0].key == "k5"
    assert memory.search("8") == []
    # The same file was taken up, not made again.
    assert index.stat().st_ino == made


_SLOW_DISK = """
import sys, time
from pathlib import Path
from nbtools.memory.duckdb import journal
from nbtools.memory.keeper.__main__ import serve

def sync(fd):
    time.sleep(0.02)
    while Path(sys.argv[2]).exists():
        time.sleep(0.01)
    real(fd)

real, journal._sync = journal._sync, sync
serve(Path(sys.argv[1]), idle_exit=20)
"""


@pytest.mark.races
def test_reads_are_answered_while_a_slow_disk_keeps_a_write_waiting(open_shared, path, tmp_path):
    stalls = tmp_path / "stalls"
    with (
        subprocess.Popen([sys.executable, "-c", _SLOW_DISK, str(path), str(stalls)]) as keeper,
        contextlib.ExitStack() as last,
    ):
        last.callback(end_keeper, path)
        last.callback(stalls.unlink, missing_ok=True)
        wait_until(lambda: MemoryDirectory(path).holder().get("address"))
        one, two = open_shared(), open_shared()
        one.write("a", 1)
        assert one.info()["pid"] == keeper.pid
        stalls.touch()
        writer = threading.Thread(target=one.write, args=("b", 2))
        writer.start()
        wait_until(lambda: any(b'"b"' in segment.read_bytes() for segment in MemoryDirectory(path).log.glob("*.log*")))
        assert two["a"] == 1
        assert writer.is_alive(), "the read did not wait for the write"
        stalls.unlink()
        writer.join()
        assert two["b"] == 2


@pytest.mark.races
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how often a thread woke")
def test_a_keeper_that_nobody_asks_wakes_seldom(open_shared, path):
    memory = open_shared(idle_exit=120)
    memory.write("k", 1)
    pid = keeper_of(path)

    def wakes() -> int:
        texts = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
        return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in texts)

    def in_five_seconds() -> int:
        before = wakes()
        time.sleep(5)
        return wakes() - before

    wait_until(lambda: in_five_seconds() <= 5, 90)  # 60 a minute; it takes a while until it is calm
    memory.write("k", 2)
    assert memory["k"] == 2
