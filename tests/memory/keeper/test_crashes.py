"""Nothing acknowledged is lost, and nothing is done twice, whoever is killed whenever."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nbtools.errors import MemoryWriteFailed
from nbtools.memory import open_memory
from nbtools.memory.duckdb.directory import MemoryDirectory
from tests.memory.conftest import end_keeper, keeper_of, wait_until

pytestmark = [pytest.mark.races, pytest.mark.slow]

# Says after each operation what was acknowledged; the line is written before the next one is begun.
WRITER = """
import sys
from nbtools.memory import open_memory
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
memory = open_memory(path, agent_id="a", idle_exit=20)
memory.read("x")
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    memory.write(f"{name}-{number}", {"n": number}, tags=[name])
    print("w", number, flush=True)
    if number % 5 == 0:
        memory.incr("counter")
        print("i", number, flush=True)
print("done", flush=True)
"""


def start_writers(path: Path, count: int, each: int) -> list[subprocess.Popen]:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, f"p{n}", str(each)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(count)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    return writers


@pytest.mark.parametrize("processes", [4, 8])
def test_a_keeper_killed_again_and_again_loses_and_repeats_nothing(path, processes):
    each = 300
    writers = start_writers(path, processes, each)
    chosen = random.Random(processes)
    kills = 0
    while any(writer.poll() is None for writer in writers) and kills < 8:
        pid = keeper_of(path)
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass
        # Not synchronisation: the kills should fall at any moment.
        time.sleep(chosen.uniform(0.05, 0.5))
    for writer in writers:
        assert "done" in writer.communicate(timeout=120)[0]
    assert kills >= 2
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        missing = [f"p{n}-{i}" for n in range(processes) for i in range(each) if f"p{n}-{i}" not in memory]
        assert missing == []
        assert memory["counter"] == processes * len(range(0, each, 5))
        assert memory.record("p0-0").version == 1
        assert [r.version for r in memory.history("counter")][-1] == memory["counter"]
        assert len(memory.find(["p1"])) == each
        assert memory.info()["notices"] == []


def test_whatever_is_removed_beside_a_keeper_loses_and_repeats_nothing(path):
    each, place, chosen = 60, MemoryDirectory(path), random.Random(3)
    writers = start_writers(path, 4, each)
    deeds = [
        lambda: place.socket_path().unlink(),
        place.lock.unlink,
        lambda: shutil.rmtree(place.log),
        lambda: shutil.rmtree(place.folder),
    ]
    while any(writer.poll() is None for writer in writers):
        # Gone already, or filled again while it was removed: the next one will do.
        with contextlib.suppress(OSError):
            if keeper_of(path):
                chosen.choice(deeds)()
        time.sleep(chosen.uniform(0.1, 0.6))
    for writer in writers:
        assert "done" in writer.communicate(timeout=120)[0]
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        missing = [f"p{n}-{i}" for n in range(4) for i in range(each) if f"p{n}-{i}" not in memory]
        assert missing == []
        assert memory["counter"] == 4 * len(range(0, each, 5))


def test_killed_clients_leave_what_they_were_told_is_stored(path):
    each = 400
    writers = start_writers(path, 4, each)
    chosen = random.Random(1)
    for writer in writers:
        time.sleep(chosen.uniform(0.02, 0.1))
        writer.kill()
    acknowledged = {n: writer.communicate()[0].splitlines() for n, writer in enumerate(writers)}
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        adds = 0
        for n, lines in acknowledged.items():
            told = [int(line.split()[1]) for line in lines if line.startswith("w ")]
            adds += sum(line.startswith("i ") for line in lines)
            assert all(memory.read(f"p{n}-{i}") == {"n": i} for i in told)
        # A killed client may have added once more without hearing of it.
        assert adds <= memory.read("counter", 0) <= adds + len(writers)


def test_everybody_killed_at_once(path):
    for round_ in range(3):
        writers = start_writers(path, 3, 10_000)
        wait_until(lambda: keeper_of(path))
        time.sleep(0.3)
        os.kill(wait_until(lambda: keeper_of(path)), signal.SIGKILL)
        for writer in writers:
            writer.kill()
        said = [writer.communicate()[0].splitlines() for writer in writers]
        with open_memory(path, agent_id="a", idle_exit=20) as memory:
            for n, lines in enumerate(said):
                told = [int(line.split()[1]) for line in lines if line.startswith("w ")]
                assert all(memory.read(f"p{n}-{i}") == {"n": i} for i in told), round_
            memory.clear()


def test_the_journal_torn_by_a_crash_is_taken_up_to_the_tear(path):
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        for number in range(30):
            memory.write(f"k{number}", number)
        end_keeper(path, signal.SIGKILL)
        (segment,) = (path.with_name("m.duckdb.keeper") / "log").glob("*.log")
        lines = segment.read_bytes().rstrip(b"\0")
        with segment.open("rb+") as file:
            file.seek(len(lines))
            file.write(b'00000000 [31,"half a li')
        with pytest.warns(UserWarning, match="ended in half a line"):
            assert len(memory) == 30
        memory.write("k30", 30)
        end_keeper(path, signal.SIGKILL)
        assert len(memory) == 31


def test_an_upgrade_in_the_middle_of_writing_loses_nothing(path):
    from nbtools.memory.keeper.client import KeeperRepository
    from nbtools.memory.records import Scope
    from nbtools.memory.repository import Change, Query

    scope = Scope(agent_id="a")
    add = [Change(kind="incr", scope=scope, key="n")]
    added = 0
    for version in range(1, 5):
        clients = [KeeperRepository(path, idle_exit=20, _protocol=version) for _ in range(2)]
        for _ in range(10):
            for client in clients:
                client.apply(add)
                added += 1
        for client in clients:
            client.close()
    last = KeeperRepository(path, idle_exit=20, _protocol=4)
    assert last.query(Query(scope=scope, keys=("n",))).records[0].value == added
    last.close()


def test_a_disk_that_is_full_refuses_and_recovers(tmp_path):
    """A file size limit on the keeper stands in for the full disk: writes past it fail the same way."""
    path = tmp_path / "m.duckdb"
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from nbtools.memory.keeper.__main__ import main\n"
        "import nbtools.memory.duckdb.journal, nbtools.memory.duckdb.recovery, duckdb\n"
        "limit = 4_000_000\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "sys.exit(main([sys.argv[1], '--foreground', '--idle', '20']))\n"
    )
    keeper = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert json.loads(keeper.stdout.readline()) == {"ready": True}
    stored = []
    with open_memory(path, agent_id="a") as memory:
        with contextlib.suppress(MemoryWriteFailed):
            while len(stored) < 200:
                memory.write(f"k{len(stored)}", "x" * 100_000)
                stored.append(f"k{len(stored)}")
        assert 0 < len(stored) < 200
        with pytest.raises(MemoryWriteFailed, match="not stored"):
            memory.write("more", "x" * 100_000)
        assert memory[stored[-1]] == "x" * 100_000
    keeper.send_signal(signal.SIGKILL)
    keeper.communicate()
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        assert sorted(memory) == sorted(stored)
        memory.write("room", 1)
    end_keeper(path)
