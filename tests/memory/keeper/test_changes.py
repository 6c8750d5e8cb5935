"""What was read is not asked for again while nothing was changed, and nobody ever reads what is no longer true."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.memory import AgentMemory
from nbtools.memory.keeper.changes import ChangeCount, ChangeReader, places_of_keys
from nbtools.memory.keeper.client import KeeperRepository
from nbtools.memory.records import Scope
from nbtools.memory.repository import Change
from tests.conftest import wait_until

SCOPE = Scope(agent_id="a")

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.processes,
    pytest.mark.skipif(os.name == "nt", reason="a process is stopped by a signal"),
]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "m.duckdb"
    with contextlib.suppress(OSError, ValueError, KeyError):
        os.kill(json.loads((tmp_path / "m.duckdb.keeper" / "lock").read_text())["pid"], signal.SIGKILL)


def _open(path: Path, timeout: float = 20.0) -> AgentMemory:
    return AgentMemory(KeeperRepository(path, idle_exit=3, timeout=timeout), owns_repository=True)


def _keeper(memory: AgentMemory) -> int:
    return int(memory.info()["pid"])


@pytest.mark.races
def test_what_nobody_has_changed_is_read_without_the_keeper(path: Path) -> None:
    # The one that waits for a short time does not start the keeper: that may take longer.
    with _open(path) as starter, _open(path, timeout=1.0) as memory:
        starter.write("known", {"a": [1]})
        starter.write("other", 2)
        for _ in range(2):  # the first question is also the one that finds the keeper
            assert memory.read("known") == {"a": [1]}
            assert memory.read("absent") is None
        pid = _keeper(memory)
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                assert memory.read("known") == {"a": [1]}
                assert memory.read("absent") is None
            with pytest.raises(Exception, match="did not answer"):
                memory.read("other")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert memory.read("other") == 2


def test_a_change_by_anybody_is_seen_by_the_next_read(path: Path) -> None:
    with _open(path) as one, _open(path) as two:
        for number in range(50):
            writer, reader = (one, two) if number % 2 else (two, one)
            record = writer.write("k", number)
            assert reader.read("k") == writer.read("k") == number
            assert reader.record("k").version == record.version
        one.delete("k")
        assert two.read("k") is None
        two.restore("k")
        assert one.read("k") == 49
        one.forget("k")
        assert two.read("k") is None


def test_what_a_reader_does_with_a_value_is_its_own_affair(path: Path) -> None:
    with _open(path) as memory:
        memory.write("k", {"a": [1]})
        for _ in range(3):
            memory.read("k")["a"].append(2)
        assert memory.read("k") == {"a": [1]}


@pytest.mark.races
def test_what_expires_is_gone_though_nobody_has_changed_it(path: Path) -> None:
    with _open(path) as memory:
        memory.write("k", 1, ttl=0.4)
        assert memory.read("k") == 1
        wait_until(lambda: memory.read("k") is None)


@pytest.mark.races
def test_another_keeper_and_another_folder_are_noticed(path: Path) -> None:
    with _open(path) as one, _open(path) as two:
        one.write("k", 1)
        assert one.read("k") == two.read("k") == 1
        os.kill(_keeper(one), signal.SIGKILL)
        assert one.read("k") == 1
        two.write("k", 2)
        assert one.read("k") == 2
        os.kill(_keeper(one), signal.SIGKILL)
        for left in path.parent.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        two.write("k", 3)
        assert one.read("k") == 3


def test_a_forked_child_reads_for_itself(path: Path) -> None:
    with _open(path) as memory:
        memory.write("k", 1)
        assert memory.read("k") == 1
        child = os.fork()
        if child == 0:
            os._exit(0 if memory.read("k") == 1 and memory.write("k", 2) and memory.read("k") == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert memory.read("k") == 2


@pytest.mark.races
def test_what_was_written_and_what_others_did_not_touch_is_read_without_the_keeper(path: Path) -> None:
    with _open(path) as starter, _open(path, timeout=1.0) as memory:
        starter.incr("started")
        for key in ("same", "mine", "counted", "kept"):
            memory.write(key, {"rows": [1]} if key == "mine" else 1, tags=["t"], ttl=60)
        memory.incr("counted")
        for number in range(20):
            starter.write(f"other {number}", number)
        starter.repository.apply([Change(kind="call", key="c1", value="{}")])
        starter.write("same", 2)
        before = starter.record("mine"), starter.record("counted")
        pid = _keeper(memory)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert (memory.record("mine"), memory.record("counted"), memory.read("kept")) == (*before, 1)
            memory.read("mine")["rows"].append(2)
            assert memory.read("mine") == {"rows": [1]}
            with pytest.raises(Exception, match="did not answer"):
                memory.read("same")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert memory.read("same") == 2
        starter.clear()
        assert memory.read("mine") is None


def _write(key: str, **more: Any) -> Change:
    return Change(kind="write", scope=SCOPE, key=key, value="1", **more)


def test_counts_say_nothing_during_changes_after_a_failure_and_at_the_end(tmp_path: Path) -> None:
    count = ChangeCount(tmp_path)
    reader = ChangeReader(tmp_path / count.name)
    first, other = reader.read(places_of_keys(SCOPE, ["k"])), reader.read(places_of_keys(SCOPE, ["other"]))
    assert first is not None
    with count.changing([[_write("k")]]):
        assert reader.read(places_of_keys(SCOPE, ["k"])) is reader.read(places_of_keys(SCOPE, ["other", "k"])) is None
        assert reader.read(places_of_keys(SCOPE, ["other"])) == other
    assert reader.read(places_of_keys(SCOPE, ["k"])) not in (None, first)
    with contextlib.suppress(OSError), count.changing([[_write("k")]]):
        raise OSError("no space")
    assert reader.read(places_of_keys(SCOPE, ["k"])) is None
    with count.changing([[Change(kind="clear", scope=SCOPE)]]):
        assert reader.read(places_of_keys(SCOPE, ["other"])) is None
    following = ChangeCount(tmp_path)
    second = ChangeReader(tmp_path / following.name)
    assert second.read(places_of_keys(SCOPE, ["k"])) not in (None, first)
    following.close()
    assert second.read(places_of_keys(SCOPE, ["k"])) is None
    assert not list(tmp_path.iterdir())


def test_a_writer_is_told_the_counts_only_of_what_is_still_so(tmp_path: Path) -> None:
    count = ChangeCount(tmp_path)
    reader = ChangeReader(tmp_path / count.name)
    batches = [[_write("a")], [_write("b")], [_write("a")], [_write("c"), _write("d")], [Change(kind="call", key="a")]]
    with count.changing(batches) as told:
        pass
    first, second = ([reader.read(places), places] for places in (places_of_keys(SCOPE, [key]) for key in "ab"))
    assert told == [None, second, first, None, None]
    with count.changing([[_write("a")], [Change(kind="clear", scope=SCOPE)]]) as told:
        pass
    assert told == [None, None]
    count.close()


WORKER = """
import json, random, sys, time
from pathlib import Path
from nbtools.memory import AgentMemory
from nbtools.memory.keeper.client import KeeperRepository

memory = AgentMemory(KeeperRepository(Path(sys.argv[1]), idle_exit=3), owns_repository=True)
memory.read("k0")
print("there", flush=True)
sys.stdin.readline()
chance, said = random.Random(int(sys.argv[2])), []
for _ in range(600):
    key = f"k{chance.randrange(3)}"
    begun = time.monotonic_ns()
    is_write = chance.random() < 0.2
    value = memory.incr(key) if is_write else memory.read(key, 0)
    said.append((begun, time.monotonic_ns(), key, value, is_write))
print(json.dumps(said))
"""


def test_histories_of_processes_are_those_of_one_memory(path: Path) -> None:
    """Each read gives the sum of some moment between its begin and its end: none is older, none from the future."""
    command = [sys.executable, "-c", WORKER, str(path)]
    seeds = [str(random.randrange(10**6)) for _ in range(4)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen([*command, seed], **pipes) for seed in seeds]
    assert [worker.stdout.readline() for worker in workers] == ["there\n"] * 4
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    histories = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]
    assert list(map(len, histories)) == [600] * 4
    events = [event for history in histories for event in history]
    for key in {event[2] for event in events}:
        mine = [event for event in events if event[2] == key]
        written = sorted((value, begun, end) for begun, end, _, value, is_write in mine if is_write)
        assert [value for value, *_ in written] == list(range(1, len(written) + 1)), f"seeds {seeds}"
        for begun, end, _, value, is_write in mine:
            if is_write:
                continue
            # All increments that had ended before the read began are in it; none that began after its end is.
            assert value >= max((v for v, _, ended in written if ended < begun), default=0), f"seeds {seeds}"
            assert value <= max((v for v, started, _ in written if started < end), default=0), f"seeds {seeds}"


def _keys_in_table(memory: AgentMemory) -> list[str]:
    return list(memory.table(is_pandas=True)["key"])


@pytest.mark.races
def test_the_table_of_all_records_is_asked_for_again_only_after_a_change(path: Path) -> None:
    with _open(path) as starter, _open(path) as memory:
        starter.write("k", 1)
        starter.write("forgotten", 1)
        memory.read("k")  # the first question is also the one that finds the keeper
        assert _keys_in_table(memory) == ["forgotten", "k"]
        starter.repository.apply([Change(kind="call", key="c1", value="{}")])
        pid = _keeper(memory)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert _keys_in_table(memory) == ["forgotten", "k"]
        finally:
            os.kill(pid, signal.SIGCONT)
        starter.forget("forgotten")
        assert _keys_in_table(memory) == ["k"]
        for number in range(20):
            starter.write("n", number)
            assert list(memory.table(is_pandas=True)["value"]) == ["1", str(number)]
        starter.clear()
        assert _keys_in_table(memory) == []
        os.kill(pid, signal.SIGKILL)
        starter.write("of the next keeper", 1)
        assert _keys_in_table(memory) == ["of the next keeper"]


@pytest.mark.races
def test_the_table_has_nothing_that_has_expired_since(path: Path) -> None:
    with _open(path) as memory:
        memory.write("stays", 1, ttl=60)
        memory.write("goes", 1, ttl=0.4)
        memory.write("for ever", 1)
        assert _keys_in_table(memory) == ["for ever", "goes", "stays"]
        wait_until(lambda: memory.read("goes") is None)
        assert _keys_in_table(memory) == ["for ever", "stays"]
