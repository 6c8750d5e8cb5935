from __future__ import annotations

import json
import os
import sys

import pytest

from nbtools.errors import MemoryUnavailable, MemoryWriteFailed
from nbtools.memory import AgentMemory, CallLog, open_memory, open_repository
from nbtools.memory.duckdb import live_index, schema, tables
from nbtools.memory.duckdb.engine import MemoryEngine
from nbtools.memory.duckdb.recovery import FileOptions
from nbtools.memory.duckdb.repository import DuckDBRepository
from nbtools.memory.duckdb.tables import Tables
from nbtools.memory.records import Scope
from nbtools.memory.repository import CallQuery, Change, Query
from nbtools.memory.rules.record_table import table_of
from nbtools.memory.rules.rows import Clock
from nbtools.memory.rules.transitions import WriteRequest
from tests.conftest import repeated

pytestmark = pytest.mark.in_memory

SCOPE = Scope(agent_id="a")


def write(key, value="1", **fields):
    return Change(kind="write", scope=SCOPE, key=key, value=value, **fields)


class Time:
    """A clock that tests set."""

    def __init__(self, seconds=1_000_000.0):
        self.seconds = seconds

    def clock(self):
        return Clock(wall=lambda: self.seconds, steady=lambda: 0.0)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def engine(time):
    made = MemoryEngine(Tables(None), None, history=3, clock=time.clock())
    yield made
    made.close()


def merge_all(engine):
    while engine.merge():
        pass


def apply(engine, *changes, request_id="", is_new=True):
    (outcome,) = engine.commit([WriteRequest(request_id or os.urandom(4).hex(), changes, is_new)])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def keys(engine, **conditions):
    rows, _ = engine.query(Query(scope=SCOPE, **conditions))
    return [row.key for row, _ in rows]


def test_a_page_of_all_scopes_reads_no_more_keys_than_it_has(engine, monkeypatch):
    apply(engine, *[write(f"k{n:02}") for n in range(50)])
    engine.query(Query(limit=1))  # the index takes up what was written
    escape, read = live_index.escape_part, []
    monkeypatch.setattr(live_index, "escape_part", lambda key: read.append(key) or escape(key))
    rows, _ = engine.query(Query(limit=3, after=SCOPE.record_id("k06")))
    assert [row.key for row, _ in rows] == read == ["k07", "k08", "k09"]


def test_memory_is_not_taken_from_what_is_read(engine):
    apply(engine, *[write(f"k{n}") for n in range(3)])
    merge_all(engine)
    reading = engine.tables.scan(0)
    assert len(next(reading)) == 3
    assert not engine.tables.release_memory()
    reading.close()
    assert engine.tables.release_memory()


@pytest.mark.parametrize("merged", [False, True])
def test_reads_are_the_same_before_and_after_the_merge(engine, merged):
    apply(engine, *[write(f"k{n}", str(n), tags=(f"t{n % 2}",)) for n in range(10)])
    apply(engine, write("k3", '"new"'), Change(kind="delete", scope=SCOPE, key="k4"))
    apply(engine, Change(kind="call", key="c", value='{"call_id":"c","tool":"t"}'))
    if merged:
        merge_all(engine)
        assert engine.unmerged == 0
    assert keys(engine, tags=("t0",)) == ["k0", "k2", "k6", "k8"]
    assert engine.query(Query(scope=SCOPE, keys=("k3",)))[0][0][0].value == '"new"'
    assert engine.query(Query(scope=SCOPE, give="count"))[1] == 9
    assert keys(engine, text="new") == ["k3"]
    assert [row.version for row in engine.versions(SCOPE, "k3")] == [1, 2]
    assert [json.loads(text)["call_id"] for text in engine.calls(CallQuery(tool="t"))] == ["c"]
    apply(engine, write("k4", "44"))
    assert engine.versions(SCOPE, "k4")[-1].version == 3


def test_one_refused_request_does_not_touch_its_group(engine):
    requests = [
        WriteRequest("1", [write("a")]),
        WriteRequest("2", [write("b"), write("a", if_version=9)]),
        WriteRequest("3", [Change(kind="incr", scope=SCOPE, key="a", by=5)]),
        WriteRequest("1", [write("a")]),
    ]
    outcomes = engine.commit(requests)
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [False, True, False, False]
    assert keys(engine) == ["a"]
    assert engine.versions(SCOPE, "a")[-1].value == "6"
    assert outcomes[3] == outcomes[0]
    # A gap in the numbers would be damage for the journal.
    assert [row.seq for row in engine.versions(SCOPE, "a")] == [1, 2]


def test_a_group_sees_its_own_restore_and_clear(engine):
    apply(engine, write("a", "1"), write("a", "2"), Change(kind="restore", scope=SCOPE, key="a", version=1))
    assert engine.versions(SCOPE, "a")[-1].value == "1"
    done = apply(engine, write("b"), Change(kind="clear", scope=SCOPE), write("c"))
    assert done[1].touched == 2
    assert keys(engine) == ["c"]


def test_expired_records_vanish_at_once_and_are_swept_later(engine, time):
    apply(engine, write("a", ttl=10.0), write("b"))
    merge_all(engine)
    time.seconds += 9.999
    assert keys(engine) == ["a", "b"]
    time.seconds += 0.001
    assert keys(engine) == ["b"]
    assert engine.info()["records"] == 2
    assert engine.sweep() == 1
    assert engine.sweep() == 0
    assert engine.info()["records"] == 1
    assert [row.op for row in engine.versions(SCOPE, "a")] == ["write", "expire"]


def test_a_clock_that_is_set_back_does_not_bring_back_the_dead(engine, time):
    apply(engine, write("a", ttl=10.0))
    time.seconds += 11
    assert keys(engine) == []
    time.seconds -= 3600
    assert keys(engine) == []
    first = apply(engine, write("b"))[0].row
    assert first.updated >= 1_000_011 * 10**6


def test_a_clock_that_was_years_ahead_dates_only_what_it_dated(tmp_path):
    """The whole way: the file is opened by a process in another year, and again by one in ours."""
    path, now = tmp_path / "m.duckdb", 1_800_000_000.0

    def dates(seconds, *changes):
        repository = DuckDBRepository(path, clock=Clock(wall=lambda: seconds, steady=lambda: 0.0))
        records = [applied.record for applied in repository.apply(changes)]
        repository.close()
        return [(r.version, r.created_at.year, r.updated_at.year, r.expires_at and r.expires_at.year) for r in records]

    assert dates(now, write("a")) == [(1, 2027, 2027, None)]
    assert dates(now + 20 * 365.25 * 86400, write("a"), write("b")) == [(2, 2027, 2047, None), (1, 2047, 2047, None)]
    later = dates(now + 60, write("a"), write("b"), write("c", ttl=60.0))
    assert later == [(3, 2027, 2027, None), (2, 2027, 2027, None), (1, 2027, 2027, 2027)]
    with open_memory(path, agent_id="a", embedded=True) as memory:
        assert [(r.version, r.updated_at.year) for r in memory.history("a")] == [(1, 2027), (2, 2047), (3, 2027)]


def test_history_is_trimmed_but_not_what_might_be_repeated(engine, time):
    for number in range(10):
        apply(engine, write("a", str(number)), request_id=f"r{number}")
    merge_all(engine)
    engine.trim(after=0)
    assert len(engine.tables.history(SCOPE, "a")) == 10
    assert [row.version for row in engine.versions(SCOPE, "a")] == [8, 9, 10]
    time.seconds += 3600
    engine.trim(after=0)
    assert [row.version for row in engine.tables.history(SCOPE, "a")] == [8, 9, 10]


def test_deletions_are_forgotten_after_a_month(engine, time):
    apply(engine, write("a"), write("b"))
    apply(engine, Change(kind="delete", scope=SCOPE, key="a"))
    merge_all(engine)
    time.seconds += 40 * 86400
    engine.trim(after=0)
    assert engine.tables.history(SCOPE, "a") == []
    assert engine.tables.count() == 1
    assert keys(engine) == ["b"]


def test_a_repeated_request_is_found_in_memory_and_in_the_log():
    engine = MemoryEngine(Tables(None), None, remembered=1)
    changes = [Change(kind="incr", scope=SCOPE, key="n"), Change(kind="delete", scope=SCOPE, key="none")]
    first = apply(engine, *changes, request_id="r")
    assert apply(engine, *changes, request_id="r", is_new=False) == first
    merge_all(engine)
    assert [d.touched for d in apply(engine, *changes, request_id="r", is_new=False)] == [1, 0]
    apply(engine, write("another"))
    again = apply(engine, *changes, request_id="r", is_new=False)
    assert (again[0].row.value, again[0].row.version) == ("1", 1)
    assert engine.versions(SCOPE, "n")[-1].version == 1


def test_reads_stay_right_while_rows_are_merged(engine):
    seen = [0]

    def look():
        known = seen[0]
        rows, _ = engine.query(Query(scope=SCOPE, keys=("n",)))
        assert int(rows[0][0].value) >= known

    apply(engine, Change(kind="incr", scope=SCOPE, key="n"))
    with repeated(look, engine.merge):
        for _ in range(300):
            done = apply(engine, Change(kind="incr", scope=SCOPE, key="n"))
            seen[0] = int(done[0].row.value)
    assert seen[0] == 301


def test_a_listing_is_of_one_moment(engine):
    """Two counters are added to in one batch; no listing may see them differ."""
    apply(engine, write("x", "0"), write("y", "0"))
    both = [Change(kind="incr", scope=SCOPE, key=key) for key in ("x", "y")]

    def add():
        apply(engine, *both)
        engine.merge()

    with repeated(add):
        for _ in range(100):
            rows, _ = engine.query(Query(scope=SCOPE))
            assert len({row.value for row, _ in rows}) == 1


def test_the_filter_of_known_ids_is_made_anew_when_it_is_full(engine):
    for start in range(0, 6_000, 500):
        apply(engine, *[write(f"k{n}") for n in range(start, start + 500)])
        merge_all(engine)
    assert engine._filter.is_full
    assert engine.newest("a:*:*:nothing") is None
    engine.build_id_filter()
    assert not engine._filter.is_full
    assert engine.newest("a:*:*:k5").key == "k5"
    assert engine.query(Query(scope=SCOPE, give="count"))[1] == 6_000


def test_a_file_is_as_it_was_after_reopening(tmp_path):
    url = tmp_path / "deep" / "m.duckdb"
    with open_memory(url, embedded=True) as memory:
        memory.write("k", {"x": 1}, tags=["t"], ttl=600)
        memory.write("k", {"x": 2})
        memory.write("gone", 1)
        memory.delete("gone")
        CallLog(memory.repository).append({"call_id": "c", "tool": "t"})
        before = memory.record("k")
    with open_memory(url, embedded=True) as memory:
        assert memory.record("k") == before
        assert [r.key for r in memory.find(["t"])] == ["k"]
        assert [r.version for r in memory.history("k")] == [1, 2]
        assert memory.write("gone", 2).version == 3
        assert CallLog(memory.repository).list()[0]["tool"] == "t"
        assert memory.info()["place"] == str(url)


def test_an_embedded_file_has_one_process(tmp_path):
    url = tmp_path / "m.duckdb"
    with open_memory(url, embedded=True) as memory:
        memory.write("k", 1)
        other = DuckDBRepository(url, timeout=0.1)
        with pytest.raises(MemoryUnavailable) as caught:
            other.query(Query())
        assert str(os.getpid()) in caught.value.message
    other.query(Query())
    other.close()


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_may_not_use_an_embedded_file(tmp_path):
    with open_memory(tmp_path / "m.duckdb", embedded=True) as memory:
        memory.write("k", 1)
        child = os.fork()
        if not child:
            code = 1
            try:
                memory.write("k", 2)
            except MemoryUnavailable:
                memory.close()
                code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert memory.write("l", 1).version == 1


def test_a_full_disk_stores_nothing_and_says_so(tmp_path, monkeypatch):
    with open_memory(tmp_path / "m.duckdb", embedded=True) as memory:
        memory.write("k", 1)

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("nbtools.memory.duckdb.journal.os.write", full)
        with pytest.raises(MemoryWriteFailed, match="No space left") as caught:
            memory.write("k", 2)
        assert caught.value.retryable
        monkeypatch.undo()
        assert memory["k"] == 1
        assert memory.write("k", 3).version == 2


def test_a_write_that_cannot_be_taken_back_is_not_called_retryable(tmp_path):
    broken = []

    def sync(_):
        if broken:
            raise OSError(5, "Input/output error")

    repository = DuckDBRepository(tmp_path / "m.duckdb", options=FileOptions(sync=sync))
    with AgentMemory(repository, owns_repository=True) as memory:
        memory.incr("n")
        broken.append(True)
        with pytest.raises(MemoryWriteFailed, match="not known whether") as caught:
            memory.incr("n")
        assert not caught.value.retryable
        broken.clear()
        with pytest.raises(MemoryWriteFailed, match="not stored") as caught:
            memory.incr("n")
        assert caught.value.retryable


def test_calls_keep_what_json_cannot_hold(tmp_path):
    log = CallLog(open_repository(":memory:"))
    log.append({"call_id": "1", "arguments": {"x": float("nan"), 5: {1}, "p": tmp_path}, "ok": True})
    (record,) = log.list(call_id="1")
    assert record["arguments"] == {"x": "nan", "5": [1], "p": str(tmp_path)}
    with pytest.raises(ValueError, match="call_id"):
        log.append({"tool": "t"})


def test_the_table_has_what_is_merged_and_what_is_not_and_looks_at_no_record_in_python(engine):
    apply(engine, *(write(f"k{number:04}", str(number), tags=("t",)) for number in range(2_000)))
    merge_all(engine)
    apply(engine, write("k0001", '"new"', tags=("u",)), Change(kind="delete", scope=SCOPE, key="k0002"), write("z"))
    calls = []
    sys.setprofile(lambda _frame, event, _value: calls.append(event))
    try:
        table = engine.table(Query(scope=SCOPE))
    finally:
        sys.setprofile(None)
    assert len(calls) < 1_000, "a call for each record would be 2,000"
    rows, _ = engine.query(Query(scope=SCOPE))
    frame = table_of([table], is_pandas=True)
    assert list(zip(frame["key"], frame["value"], frame["tags"], frame["version"], strict=True)) == [
        (row.key, row.value, list(row.tags), row.version) for row, _ in rows
    ]
    assert engine.tags(Query()) == {"t": 1_998, "u": 1}


def test_a_memory_without_a_file_needs_duckdb_only_for_what_is_merged(monkeypatch):
    connections = []
    monkeypatch.setattr(tables, "connect", lambda path: connections.append(schema.connect(path)) or connections[-1])
    engine = MemoryEngine(Tables(None), None)
    apply(engine, write("a", '"word"', tags=("t",)), write("b"), request_id="r")
    apply(engine, Change(kind="delete", scope=SCOPE, key="b"))
    assert [row.key for row, _ in engine.query(Query(scope=SCOPE, text="word"))[0]] == ["a"]
    assert [row.value for row in engine.versions(SCOPE, "b")] == ["1", None]
    assert (engine.query(Query(scope=SCOPE, give="count"))[1], engine.calls(CallQuery()), engine.sweep()) == (1, [], 0)
    engine.build_id_filter()
    assert connections == []
    assert engine.tags(Query()) == {"t": 1}
    merge_all(engine)
    assert [row.key for row, _ in engine.query(Query(scope=SCOPE))[0]] == ["a"]
    engine.close()
    assert len(connections) == 1
