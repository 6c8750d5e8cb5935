"""What a client makes of a keeper that is silent, cannot be found, or was taken the ground from under."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

from nbtools.errors import InvalidArguments, MemoryUnavailable
from nbtools.memory import MemoryFiles, open_memory
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.keeper.protocol import apply_to_wire, connect_to, dumps, frame, receive
from nbtools.memory.records import Scope
from nbtools.memory.repository import Change
from tests.conftest import is_running, repeated, wait_until
from tests.memory.conftest import end_keeper, keeper_of

pytestmark = [pytest.mark.in_memory, pytest.mark.processes]

ADD = [Change(kind="incr", scope=Scope(agent_id="a"), key="n")]


@pytest.fixture
def stopped(path):
    """Stop the keeper of the file, and let it go on when asked to or when the test is over."""
    pids = []

    def stop():
        pids.append(keeper_of(path))
        os.kill(pids[-1], signal.SIGSTOP)
        return lambda: os.kill(pids[-1], signal.SIGCONT)

    yield stop
    for pid in pids:
        if is_running(pid):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.races
@pytest.mark.slow
def test_a_change_without_an_answer_is_told_to_be_unknown_and_repeats_as_itself(open_shared, stopped):
    patient, memory = open_shared(), open_shared(timeout=1.0)
    patient.incr("n")  # A machine with much to do starts a keeper in more than two seconds, or wakes one in one.
    assert memory["n"] == 1
    let_go = stopped()
    with pytest.raises(MemoryUnavailable, match="not known whether") as caught:
        memory.incr("n")
    assert not caught.value.retryable
    assert caught.value.data["outcome"] == "unknown"
    with pytest.raises(MemoryUnavailable, match="did not answer") as asked:
        memory.read("n")
    assert asked.value.retryable
    let_go()
    wait_until(lambda: patient["n"] == 2)
    # The same request, by its id, is not a second one.
    (applied,) = patient.repository.apply(ADD, request_id=caught.value.data["request_id"])
    assert applied.record.value == patient["n"] == 2


@pytest.mark.races
def test_a_change_that_was_never_sent_may_be_tried_again(open_shared, stopped):
    patient, hasty = open_shared(), open_shared(timeout=1.0)
    patient.incr("n")
    let_go = stopped()
    with pytest.raises(MemoryUnavailable, match="did not answer") as caught:
        hasty.incr("n")
    assert caught.value.retryable
    let_go()
    assert patient.incr("n") == 2


@pytest.mark.races
def test_a_change_whose_keeper_died_and_cannot_come_back_is_unknown(open_shared, path, stopped):
    memory = open_shared(timeout=3.0)
    memory.incr("n")
    place, pid = MemoryDirectory(path), keeper_of(path)
    stopped()

    def replace():
        shutil.rmtree(place.folder)
        place.folder.write_text("no folder")
        os.kill(pid, signal.SIGKILL)

    threading.Timer(0.2, replace).start()
    with pytest.raises(MemoryUnavailable, match="not known whether") as caught:
        memory.incr("n")
    assert not caught.value.retryable
    place.folder.unlink()


def test_a_change_that_arrives_behind_its_own_repetition_is_made_once(open_shared, path):
    memory = open_shared()
    memory.incr("n")
    connection = connect_to(MemoryDirectory(path).holder()["address"], timeout=10)
    connection.sendall(frame(dumps({"hello": 1})))
    receive(connection)
    answers = []
    for is_new in (False, True):
        connection.sendall(frame(apply_to_wire(ADD, "r", is_new=is_new)))
        answers.append(receive(connection)["done"])
    connection.close()
    assert answers[0] == answers[1]
    assert memory["n"] == 2


def test_a_change_that_makes_no_sense_does_not_fail_the_others(open_shared, path):
    memory = open_shared()
    with pytest.raises(InvalidArguments, match="cannot be decided"):
        memory.repository.apply([Change(kind="incr", scope=ADD[0].scope, key="n", by="one")])
    with pytest.raises(InvalidArguments, match="cannot be decided"):
        memory.repository.apply([Change(kind="write", key="n", value="1")])
    pid = keeper_of(path)
    assert memory.incr("n") == 1
    assert keeper_of(path) == pid


def test_a_keeper_whose_socket_was_removed_is_found_by_new_clients(open_shared, path):
    old = open_shared()
    old.write("k", 1)
    place, pid = MemoryDirectory(path), keeper_of(path)
    place.socket_path().unlink()
    new = open_shared(timeout=10.0)
    assert new["k"] == 1
    assert new.info()["pid"] == old.info()["pid"] == pid
    end_keeper(path)
    assert not place.socket_path().exists()


@pytest.mark.races
def test_a_keeper_whose_folder_was_removed_makes_room_and_loses_nothing(open_shared, path):
    old = open_shared()
    for number in range(300):
        old.write(f"k{number}", number)
    pid = keeper_of(path)
    shutil.rmtree(MemoryDirectory(path).folder)
    new = open_shared(timeout=15.0)
    assert [new.incr("n"), old.incr("n"), new.incr("n")] == [1, 2, 3]
    assert len(old) == 301
    assert new.info()["pid"] == old.info()["pid"] != pid
    wait_until(lambda: not is_running(pid))
    # The first keeper took nothing away that is the second one's, and everybody still comes in.
    place = MemoryDirectory(path)
    assert place.socket_path().exists()
    assert place.opened.exists()
    assert open_shared()["n"] == 3
    end_keeper(path, signal.SIGKILL)
    assert len(new) == 301


@pytest.mark.races
@pytest.mark.parametrize("name", ["lock", "log"])
def test_what_is_acknowledged_survives_though_a_part_of_the_folder_was_removed(open_shared, path, name):
    memory = open_shared()
    memory.write("before", 1)
    part = MemoryDirectory(path).folder / name
    shutil.rmtree(part) if part.is_dir() else part.unlink()
    for number in range(20):
        memory.write(f"k{number}", number)
    end_keeper(path, signal.SIGKILL)
    assert len(memory) == 21


def test_a_keeper_is_reached_after_its_machine_got_another_name(open_shared, path):
    old = open_shared()
    old.write("k", 1)
    place = MemoryDirectory(path)
    facts = place.holder()
    place.lock.write_text(json.dumps(facts | {"host": "as-it-was-called-before"}))
    new = open_shared(timeout=5.0)
    assert new["k"] == 1
    assert new.info()["pid"] == facts["pid"]


@pytest.mark.races
def test_the_lock_is_had_by_one_even_while_its_file_is_removed(tmp_path):
    """Threads stand in for processes: each opens the lock file by itself, and that is what the system locks."""
    places = [MemoryDirectory(tmp_path / "m.duckdb") for _ in range(4)]
    places[0].make()
    first = [place.acquire(0.0) for place in places]
    assert first == [True, False, False, False]
    places[0].lock.unlink()
    assert places[0].is_lost()
    assert [place.acquire(0.0) for place in places[1:]] == [True, False, False]
    places[0].release()
    assert not places[1].is_lost()
    places[1].release()


def test_a_process_with_many_open_files_starts_a_keeper_or_says_why_not(path):
    code = (
        "import os, resource, sys\n"
        "from nbtools.errors import MemoryUnavailable\n"
        "from nbtools.memory import open_memory\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1300, most))\n"
        "held = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]\n"
        "memory = open_memory(sys.argv[1], agent_id='a', idle_exit=20)\n"
        "print(memory.incr('n'))\n"
        "memory.repository._drop_idle()\n"
        "while True:\n"
        "    try: held.append(os.dup(held[0]))\n"
        "    except OSError: break\n"
        "try: memory.incr('n')\n"
        "except MemoryUnavailable as exc: print(exc.message)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    first, second = ran.stdout.splitlines()
    assert first == "1"
    assert "Too many open files" in second


@pytest.mark.races
def test_a_rename_beside_edits_moves_what_is_there(open_shared):
    files = MemoryFiles(open_shared())
    files.call({"command": "create", "path": "/memories/a", "file_text": "x\n"})
    edits = []

    def edit(mine):
        for name in "ab":
            said = mine.call(
                {"command": "insert", "path": f"/memories/{name}", "insert_line": 0, "insert_text": "line"}
            )
            edits.extend([1] if said.ok else [])

    names = ["a", "b"] * 15
    with repeated(*[partial(edit, MemoryFiles(open_shared())) for _ in range(2)]):
        moved = [
            files.call({"command": "rename", "old_path": f"/memories/{old}", "new_path": f"/memories/{new}"})
            for old, new in itertools.pairwise(names)
        ]
    assert [result.text for result in moved if not result.ok] == []
    text = files.call({"command": "view", "path": "/memories/b"}).text
    assert text.count("line") - text.count("with line numbers") == len(edits) > 0


def test_a_rename_of_what_is_not_there_or_onto_what_is_there_is_refused(open_shared):
    files = MemoryFiles(open_shared())
    for name in "ab":
        files.call({"command": "create", "path": f"/memories/{name}", "file_text": name})
    said = [
        files.call({"command": "rename", "old_path": f"/memories/{old}", "new_path": f"/memories/{new}"}).text
        for old, new in (("a", "b"), ("c", "d"), ("c", "c/d"))
    ]
    assert said == [
        "Error: The destination /memories/b already exists",
        "Error: The path /memories/c does not exist",
        "Error: The path /memories/c does not exist",
    ]


@pytest.mark.races
def test_what_an_embedded_memory_stored_survives_though_its_folder_was_removed(tmp_path):
    path = tmp_path / "m.duckdb"
    code = (
        "import os, shutil, sys; from nbtools.memory import open_memory\n"
        "memory = open_memory(sys.argv[1], agent_id='a', embedded=True)\n"
        "memory.write('before', 1)\n"
        "shutil.rmtree(sys.argv[1] + '.keeper')\n"
        "for number in range(20): memory.write(f'k{number}', number)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    with open_memory(path, agent_id="a", embedded=True) as memory:
        assert len(memory) == 21
