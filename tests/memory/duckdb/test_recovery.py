from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys

import duckdb
import pytest

from nbtools.errors import MemoryDamaged, MemoryUnavailable
from nbtools.memory import AgentMemory, open_memory
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.duckdb.recovery import FileOptions
from nbtools.memory.duckdb.repository import DuckDBRepository
from nbtools.memory.duckdb.schema import MIGRATIONS
from nbtools.memory.duckdb.tables import Tables
from nbtools.memory.repository import Change
from tests.memory.conftest import end_keeper

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broad,
    pytest.mark.filterwarnings("ignore:.*(was damaged|could not be read):UserWarning"),
]


@pytest.fixture
def place(tmp_path):
    return MemoryDirectory(tmp_path / "m.duckdb")


def fill(place, count=40, start=0):
    with open_memory(place.path, embedded=True) as memory:
        for number in range(start, start + count):
            memory.write(f"k{number}", {"n": number}, tags=["t"])


def all_there(place, count):
    with open_memory(place.path, embedded=True) as memory:
        assert len(memory) == count
        assert memory[f"k{count - 1}"] == {"n": count - 1}
        assert len(memory.find(["t"])) == count
        return memory.info()["notices"]


def all_keys(place):
    with open_memory(place.path, embedded=True) as memory:
        return list(memory)


def open_with(place, *, clean_every=1_000, **options):
    """Open the memory of a place, embedded, with options of its file."""
    repository = DuckDBRepository(place.path, options=FileOptions(**options), clean_every=clean_every)
    return AgentMemory(repository, owns_repository=True)


def snapshot(place):
    with open_with(place, snapshot_bytes=0, snapshot_share=0, clean_every=1) as memory:
        memory.write("snap", 1)
        memory.delete("snap")
    assert place.snapshot.exists()


def flip(path, places):
    data = bytearray(path.read_bytes())
    for at in places:
        data[at % len(data)] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture(scope="module", params=[False, True], ids=["without a snapshot", "with a snapshot"])
def filled(request, tmp_path_factory):
    """A folder with a memory, which each test copies."""
    place = MemoryDirectory(tmp_path_factory.mktemp("filled") / "m.duckdb")
    fill(place, 20)
    if request.param:
        snapshot(place)
    fill(place, 20, start=20)
    return place.path.parent


@pytest.mark.parametrize("damage", ["flipped block", "cut short", "not a database", "header", "gone"])
def test_a_damaged_file_loses_nothing(place, filled, damage):
    shutil.copytree(filled, place.path.parent, dirs_exist_ok=True)
    before = place.path.read_bytes()
    if damage == "flipped block":
        flip(place.path, range(12_288, len(before), 1000))
    elif damage == "cut short":
        os.truncate(place.path, 5000)
    elif damage == "header":
        flip(place.path, range(4096, 4200))
    elif damage == "gone":
        place.path.unlink()
    else:
        place.path.write_text("hello world " * 1000)
    notices = all_there(place, 40)
    aside = list(place.path.parent.glob("m.duckdb.damaged-*"))
    if damage != "gone":
        assert len(aside) == 1
        assert aside[0].name in notices[0]
    assert all_there(place, 40) == []


def as_after_a_crash(place):
    """Copy a memory that is open, with its write-ahead log."""
    copy = place.path.parent / "copy"
    shutil.copytree(place.folder, copy / place.folder.name, ignore=shutil.ignore_patterns("lock"))
    for path in (place.path, place.path.with_name("m.duckdb.wal")):
        shutil.copy(path, copy)
    return MemoryDirectory(copy / "m.duckdb")


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_write_ahead_log_loses_nothing(place, seed):
    """DuckDB itself drops what follows a flipped byte, without a word."""
    memory = open_memory(place.path, embedded=True)
    for number in range(40):
        memory.write(f"k{number}", {"n": number}, tags=["t"])
        if number % 10 == 9:
            memory.repository._engine.merge()
    crashed = as_after_a_crash(place)
    memory.close()
    wal = crashed.path.with_name("m.duckdb.wal")
    at = random.Random(seed).randrange(wal.stat().st_size)
    if seed % 2:
        flip(wal, [at])
    else:
        os.truncate(wal, at)
    all_there(crashed, 40)


def test_a_damaged_file_takes_its_write_ahead_log_with_it(place):
    """The log of a file that is gone belongs to no other one."""
    fill(place, 20)
    snapshot(place)
    memory = open_memory(place.path, embedded=True)
    for number in range(20, 40):
        memory.write(f"k{number}", {"n": number}, tags=["t"])
    memory.repository._engine.merge()
    copy = as_after_a_crash(place)
    memory.close()
    flip(copy.path, [*range(4096, 4200), *range(8192, 8300)])
    (notice,) = all_there(copy, 40)
    assert "Everything was recovered" in notice
    aside = {path.name.partition(".damaged-")[0] for path in copy.path.parent.glob("*.damaged-*")}
    assert aside == {"m.duckdb", "m.duckdb.wal"}


def test_a_lost_line_of_the_journal_is_told(place):
    memory = open_memory(place.path, embedded=True)
    for number in range(5):
        memory.write(f"k{number}", number)
    copy = place.path.parent / "copy"
    shutil.copytree(place.folder, copy / place.folder.name, ignore=shutil.ignore_patterns("lock"))
    memory.close()
    (segment,) = (copy / place.folder.name / "log").glob("*.log")
    flip(segment, [segment.read_bytes().index(b"k2")])
    memory = open_memory(copy / "m.duckdb", embedded=True)
    with pytest.warns(UserWarning, match="1 of the last changes"):
        memory.read("k0")
    assert list(memory) == ["k0", "k1", "k3", "k4"]
    memory.write("k5", 5)
    memory.close()


@pytest.mark.processes
@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_bad_block_met_in_use_is_repaired_before_anything_is_answered(place, monkeypatch, is_embedded):
    """In a file too long to be read through on each start, and closed in order."""
    with open_memory(place.path, embedded=True) as memory:
        changes = [Change(kind="write", scope=memory.scope, key=f"k{n}", value=f'"{n:0400}"') for n in range(2_000)]
        memory.repository.apply(changes)
        memory.repository.apply([Change(kind="incr", scope=memory.scope, key="n")])
    place.index.unlink(missing_ok=True)
    before = place.path.read_bytes()
    flip(place.path, range(300_000, len(before), 50_000))
    if not is_embedded:
        code = "import nbtools.memory.duckdb.recovery as r\n"
        code += "r.open_engine.__kwdefaults__['options'] = r.FileOptions(read_bytes=0)"
        (place.path.parent / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(place.path.parent), prepend=os.pathsep)
    with open_with(place, read_bytes=0) if is_embedded else open_memory(place.path, idle_exit=0.3) as memory:
        with pytest.warns(UserWarning, match="Everything was recovered"):
            assert {r.key: r.value for r in memory.list("k")} == {f"k{n}": f"{n:0400}" for n in range(2_000)}
        assert memory.incr("n") == 2
        assert len(memory.history("k7")) == 1
        (aside,) = place.path.parent.glob("m.duckdb.damaged-*")
        assert aside.name in memory.info()["notices"][0]
    if not is_embedded:
        end_keeper(place.path)


def test_a_bad_block_is_found_when_nobody_asks(place):
    fill(place)
    whole = place.path.read_bytes()
    tables = Tables(place.path)
    tables.read_all()
    tables.close()
    damaged = 0
    for at in range(12_288, len(whole), 150_000):
        place.path.write_bytes(whole)
        flip(place.path, range(at, at + 8))
        with open_with(place, read_bytes=0) as memory:
            assert memory["k0"] == {"n": 0}
            engine = memory.repository._get_engine()
            try:
                engine.run_upkeep(is_quiet=True)
            except MemoryDamaged:
                damaged += 1
        all_there(place, 40)
    assert damaged


def test_damaged_lines_at_the_end_of_the_journal_are_told_and_set_aside(place):
    memory = open_memory(place.path, embedded=True)
    for number in range(6):
        memory.write(f"k{number}", number)
    copy = MemoryDirectory(place.path.parent / "copy" / "m.duckdb")
    shutil.copytree(place.folder, copy.folder, ignore=shutil.ignore_patterns("lock"))
    memory.close()
    (segment,) = copy.log.glob("*.log")
    flip(segment, [segment.read_bytes().index(b'"k4"'), segment.read_bytes().index(b'"k5"')])
    memory = open_memory(copy.path, embedded=True)
    with pytest.warns(UserWarning, match="last 2 lines of the journal") as told:
        assert list(memory) == ["k0", "k1", "k2", "k3"]
    (aside,) = copy.log.glob("*.damaged")
    assert str(aside) in str(told[0].message)
    assert len(aside.read_bytes().splitlines()) == 2
    memory.write("k6", 6)
    memory.close()
    assert all_keys(copy) == ["k0", "k1", "k2", "k3", "k6"]


def test_what_is_no_memory_is_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.csv"
    text.write_text("a,b\n" * 2000)
    with open_memory(text, embedded=True) as memory, pytest.raises(MemoryUnavailable, match="not a memory file"):
        memory.read("k")
    assert text.read_text() == "a,b\n" * 2000
    other = tmp_path / "analysis.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE sales AS SELECT 1 AS x")
    with open_memory(other, embedded=True) as memory, pytest.raises(MemoryUnavailable, match="sales"):
        memory.read("k")
    with duckdb.connect(str(other)) as connection:
        assert connection.execute("SELECT * FROM sales").fetchall() == [(1,)]


def test_a_file_of_a_newer_schema_is_refused_and_left_alone(place):
    fill(place, 1)
    with duckdb.connect(str(place.path)) as connection:
        connection.execute("UPDATE nbtools_meta SET value = 99 WHERE name = 'schema'")
    before = place.path.read_bytes()
    with open_memory(place.path, embedded=True) as memory, pytest.raises(MemoryUnavailable, match="newer nbtools"):
        memory.read("k0")
    assert place.path.read_bytes() == before
    assert len(MIGRATIONS) < 99


@pytest.mark.processes
def test_a_file_that_somebody_else_has_open_names_them(place):
    fill(place, 1)
    code = f"import duckdb; c = duckdb.connect({str(place.path)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        holder.stdout.readline()
        with open_memory(place.path, embedded=True) as memory, pytest.raises(MemoryUnavailable) as caught:
            memory.read("k0")
        assert str(holder.pid) in caught.value.message
        holder.communicate("\n")
    all_there(place, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_read_only_folder_is_told(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with open_memory(folder / "m.duckdb", embedded=True) as memory, pytest.raises(MemoryUnavailable, match="kept at"):
        memory.read("k")


def test_a_place_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with open_memory(tmp_path / "file" / "m.duckdb", embedded=True) as memory, pytest.raises(MemoryUnavailable):
        memory.read("k")
    with (
        open_memory("/proc/nbtools/m.duckdb", embedded=True) as memory,
        pytest.raises(MemoryUnavailable, match="NBTOOLS"),
    ):
        memory.read("k")


def test_a_file_left_empty_by_a_crash_is_made_anew(place):
    place.path.write_bytes(b"")
    fill(place, 3)
    all_there(place, 3)


def test_snapshots_shorten_the_journal(place):
    with open_with(place, segment_bytes=2_000) as memory:
        for number in range(60):
            memory.write(f"k{number}", {"n": number}, tags=["t"])
    segments = len(list(place.log.glob("*.log")))
    snapshot(place)
    assert len(list(place.log.glob("*.log"))) < segments
    all_there(place, 60)


def test_changes_that_the_index_knows_and_the_journal_lacks_are_told(place):
    memory = open_memory(place.path, embedded=True)
    for number in range(6):
        memory.write(f"k{number}", number)
    memory.search("k5")
    memory.repository._get_engine().run_upkeep(is_quiet=True)
    copy = MemoryDirectory(place.path.parent / "copy" / "m.duckdb")
    shutil.copytree(place.folder, copy.folder, ignore=shutil.ignore_patterns("lock"))
    memory.close()
    (segment,) = copy.log.glob("*.log")
    os.truncate(segment, segment.read_bytes().index(b'"k4"'))
    memory = open_memory(copy.path, embedded=True)
    with pytest.warns(match="ended in half a line"), pytest.warns(UserWarning, match="last 2 changes are lost"):
        assert list(memory) == ["k0", "k1", "k2", "k3"]
    memory.close()
