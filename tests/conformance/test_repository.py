"""What every repository of memory does alike, InMemoryRepository being the plainest of them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from nbtools.errors import InvalidArguments, MemoryNotFound, MemoryUnavailable, VersionConflict
from nbtools.memory.records import Scope
from nbtools.memory.repository import CallQuery, Change, Query
from nbtools.memory.rules.record_table import table_of
from tests.conftest import wait_until

pytestmark = [pytest.mark.in_memory, pytest.mark.broad]

AGENT = Scope(agent_id="a")
OTHER = Scope(agent_id="b")
FLOW = Scope(agent_id="a", workflow_id="w")
NODE = Scope(agent_id="a", workflow_id="w", node_id="n")


def write(key, value='"v"', scope=AGENT, **fields):
    return Change(kind="write", scope=scope, key=key, value=value, **fields)


def put(repository, *args, **fields):
    return repository.apply([write(*args, **fields)])[0].record


def value_of(repository, key, scope=AGENT):
    records = repository.query(Query(scope=scope, keys=(key,))).records
    return records[0].value if records else None


def keys_of(repository, **conditions):
    return [r.key for r in repository.query(Query(**({"scope": AGENT} | conditions))).records]


def test_a_written_record_is_returned_whole(repository):
    before = datetime.now(UTC)
    written = put(repository, "k", '{"x":[1,2.5,null,"é"]}', NODE, tags=("t", "u"), ttl=60.0)
    (read,) = repository.query(Query(scope=NODE, keys=("k",))).records
    assert read == written
    assert (read.agent_id, read.workflow_id, read.node_id, read.key) == ("a", "w", "n", "k")
    assert read.id == "a:w:n:k"
    assert read.value == {"x": [1, 2.5, None, "é"]}
    assert read.tags == ("t", "u")
    assert read.version == 1
    assert read.created_at == read.updated_at
    assert before - timedelta(seconds=5) < read.created_at < before + timedelta(seconds=60)
    assert read.expires_at - read.updated_at == timedelta(seconds=60)


def test_a_second_write_counts_versions_and_keeps_the_birthday(repository):
    first = put(repository, "k", "1", tags=("t",))
    second = put(repository, "k", "2")
    assert (second.version, second.value, second.tags) == (2, 2, ("t",))
    assert second.created_at == first.created_at
    assert second.updated_at >= first.updated_at
    assert put(repository, "k", "3", tags=()).tags == ()


def test_a_write_keeps_the_tags_and_the_end_that_it_does_not_give(repository):
    first = put(repository, "k", "1", tags=("t",), ttl=600.0)
    assert (second := put(repository, "k", "2")).expires_at == first.expires_at
    assert second.tags == ("t",)
    assert repository.query(Query(scope=AGENT, keys=("k",))).records == (second,)
    third = put(repository, "k", "3", tags=())
    assert (third.tags, third.expires_at) == ((), first.expires_at)
    fourth = put(repository, "k", "4", tags=("u",), ttl=0.0)
    assert (fourth.tags, fourth.expires_at) == (("u",), None)
    longer = put(repository, "k", "5", ttl=900.0)
    assert (longer.tags, longer.expires_at - longer.updated_at) == (("u",), timedelta(seconds=900))


def test_values_are_fresh_objects_on_every_read(repository):
    put(repository, "k", "[1]")
    value_of(repository, "k").append(2)
    assert value_of(repository, "k") == [1]


def test_scopes_never_see_each_other(repository):
    for number, scope in enumerate((AGENT, OTHER, FLOW, NODE)):
        put(repository, "k", str(number), scope)
    assert [value_of(repository, "k", s) for s in (AGENT, OTHER, FLOW, NODE)] == [0, 1, 2, 3]
    assert repository.query(Query(scope=FLOW, give="count")).total == 1
    assert repository.query(Query(give="count")).total == 4
    assert [r.id for r in repository.query(Query()).records] == ["a:*:*:k", "a:w:*:k", "a:w:n:k", "b:*:*:k"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((Scope(agent_id="a:b"), "c"), (Scope(agent_id="a"), "b:c")),
        ((Scope(agent_id="a", workflow_id="*"), "k"), (Scope(agent_id="a"), "k")),
        ((Scope(agent_id="a%3Ab"), "k"), (Scope(agent_id="a:b"), "k")),
        ((Scope(agent_id="a", workflow_id="b:*"), "k"), (Scope(agent_id="a:b"), "*:k")),
    ],
)
def test_no_choice_of_names_makes_records_collide(repository, left, right):
    put(repository, left[1], '"left"', left[0])
    put(repository, right[1], '"right"', right[0])
    assert (value_of(repository, left[1], left[0]), value_of(repository, right[1], right[0])) == ("left", "right")


@pytest.mark.parametrize("key", [":", "*", "a:b:c:d", "50%", "'; drop table items; --", "é 记忆 🎈", "x" * 1024, "_%"])
def test_odd_keys_are_kept_as_they_are(repository, key):
    put(repository, key, "1")
    assert keys_of(repository) == [key]
    assert keys_of(repository, prefix=key) == [key]
    assert value_of(repository, key) == 1


def test_deletion_is_a_version_and_a_new_life_starts_anew(repository):
    first = put(repository, "k", "1", tags=("t",), ttl=600.0)
    assert repository.apply([Change(kind="delete", scope=AGENT, key="k")])[0].count == 1
    assert repository.apply([Change(kind="delete", scope=AGENT, key="k")])[0].count == 0
    assert value_of(repository, "k") is None
    again = put(repository, "k", "2")
    assert (again.version, again.tags, again.expires_at) == (3, (), None)
    assert again.created_at >= first.created_at
    history = repository.history(AGENT, "k")
    assert [(r.version, r.change, r.value) for r in history] == [(1, "write", 1), (2, "delete", None), (3, "write", 2)]


def test_history_is_bounded_and_oldest_first(repository):
    for number in range(1, 9):
        put(repository, "k", str(number))
    repository.apply([Change(kind="delete", scope=AGENT, key="k")])
    # Trimming may lag behind; the newest versions are always there.
    versions = [r.version for r in repository.history(AGENT, "k")]
    assert versions[-5:] == [5, 6, 7, 8, 9]
    assert [r.version for r in repository.history(AGENT, "k", limit=2)] == [8, 9]
    assert repository.history(AGENT, "none") == []


def test_restore_brings_back_value_and_tags_as_a_new_version(repository):
    put(repository, "k", '"old"', tags=("t",))
    put(repository, "k", '"new"', tags=("u",), ttl=600.0)
    restored = repository.apply([Change(kind="restore", scope=AGENT, key="k", version=1)])[0].record
    assert (restored.version, restored.value, restored.tags, restored.expires_at) == (3, "old", ("t",), None)
    assert repository.history(AGENT, "k")[-1].change == "restore"
    repository.apply([Change(kind="delete", scope=AGENT, key="k")])
    assert repository.apply([Change(kind="restore", scope=AGENT, key="k", version=2)])[0].record.value == "new"


@pytest.mark.parametrize("version", [2, 7])
def test_restore_of_a_deletion_or_an_unknown_version_is_refused(repository, version):
    put(repository, "k")
    repository.apply([Change(kind="delete", scope=AGENT, key="k")])
    with pytest.raises(MemoryNotFound):
        repository.apply([Change(kind="restore", scope=AGENT, key="k", version=version)])


def test_incr_adds_and_keeps_tags_and_expiry(repository):
    assert repository.apply([Change(kind="incr", scope=AGENT, key="n", by=2)])[0].record.value == 2
    counter = put(repository, "m", "5", tags=("t",), ttl=600.0)
    added = repository.apply([Change(kind="incr", scope=AGENT, key="m", by=-1.5)])[0].record
    assert (added.value, added.tags, added.expires_at) == (3.5, ("t",), counter.expires_at)
    assert added.version == 2


@pytest.mark.parametrize("text", ['"1"', "true", "null", "[1]", "1e308"])
def test_incr_of_what_is_no_number_is_refused(repository, text):
    put(repository, "k", text)
    with pytest.raises(InvalidArguments):
        repository.apply([Change(kind="incr", scope=AGENT, key="k", by=1.7e308)])
    assert repository.history(AGENT, "k")[-1].version == 1


def test_compare_and_set_refuses_another_version(repository):
    put(repository, "k", "1", if_version=0)
    with pytest.raises(VersionConflict) as caught:
        put(repository, "k", "2", if_version=0)
    assert caught.value.data == {"key": "k", "expected": 0, "found": 1}
    assert put(repository, "k", "2", if_version=1).version == 2
    for kind in ("write", "incr", "delete"):
        with pytest.raises(VersionConflict):
            repository.apply([Change(kind=kind, scope=AGENT, key="k", value="3", if_version=1)])
    repository.apply([Change(kind="delete", scope=AGENT, key="k", if_version=2)])
    assert put(repository, "k", "4", if_version=0).version == 4


def test_a_batch_is_applied_whole_or_not_at_all(repository):
    applied = repository.apply([write("a", "1"), write("a", "2"), Change(kind="incr", scope=AGENT, key="a", by=5)])
    assert [a.record.version for a in applied] == [1, 2, 3]
    assert value_of(repository, "a") == 7
    with pytest.raises(VersionConflict):
        repository.apply([write("a", "9"), write("b", "9"), write("c", "9", if_version=4)])
    assert (value_of(repository, "a"), keys_of(repository)) == (7, ["a"])


def test_a_request_id_is_applied_exactly_once(repository):
    batch = [Change(kind="incr", scope=AGENT, key="n"), write("w", '"x"'), Change(kind="call", key="c", value="{}")]
    first = repository.apply(batch, request_id="r1")
    put(repository, "w", '"later"')
    assert repository.apply(batch, request_id="r1") == first
    assert (value_of(repository, "n"), value_of(repository, "w")) == (1, "later")
    repository.apply(batch, request_id="r2")
    assert (value_of(repository, "n"), value_of(repository, "w")) == (2, "x")


def test_a_repeated_delete_and_clear_answer_as_the_first_time(repository):
    put(repository, "k")
    put(repository, "l")
    delete = [Change(kind="delete", scope=AGENT, key="k")]
    clear = [Change(kind="clear", scope=AGENT)]
    assert [repository.apply(delete, request_id="d")[0].count for _ in range(2)] == [1, 1]
    assert [repository.apply(clear, request_id="c")[0].count for _ in range(2)] == [1, 1]


def test_clear_empties_one_scope_alone(repository):
    for scope in (AGENT, OTHER, FLOW, NODE):
        put(repository, "k", scope=scope)
        put(repository, "l", scope=scope)
    assert repository.apply([Change(kind="clear", scope=AGENT)])[0].count == 2
    assert [repository.query(Query(scope=s, give="count")).total for s in (AGENT, OTHER, FLOW, NODE)] == [0, 2, 2, 2]
    assert repository.apply([Change(kind="clear", scope=FLOW, nodes=True)])[0].count == 4
    assert repository.query(Query(give="count")).total == 2
    assert repository.history(AGENT, "k")[-1].change == "delete"


def test_an_expired_record_is_absent_in_every_way(repository):
    put(repository, "gone", '"needle"', tags=("t",), ttl=0.05)
    put(repository, "stays", '"needle"', tags=("t",))
    wait_until(lambda: value_of(repository, "gone") is None)
    assert keys_of(repository) == ["stays"]
    assert keys_of(repository, tags=("t",)) == ["stays"]
    assert keys_of(repository, prefix="g") == []
    assert keys_of(repository, text="needle") == ["stays"]
    assert repository.query(Query(scope=AGENT, give="count")).total == 1
    assert repository.apply([Change(kind="delete", scope=AGENT, key="gone")])[0].count == 0
    again = put(repository, "gone", "1", if_version=0)
    assert again.tags == ()
    assert again.version >= 2


def test_an_expired_counter_starts_again(repository):
    put(repository, "n", "41", ttl=0.05)
    wait_until(lambda: value_of(repository, "n") is None)
    assert repository.apply([Change(kind="incr", scope=AGENT, key="n")])[0].record.value == 1


def test_keys_are_listed_by_code_point_and_paged(repository):
    names = ["b", "a", "Z", "é", "a:1", "a/2", "~"]
    repository.apply([write(name, "1") for name in names])
    assert keys_of(repository) == sorted(names)
    assert keys_of(repository, limit=2) == sorted(names)[:2]
    assert keys_of(repository, limit=3, after="Z") == sorted(names)[1:4]
    assert keys_of(repository, prefix="a") == ["a", "a/2", "a:1"]
    assert keys_of(repository, limit=0) == []
    ids = [r.id for r in repository.query(Query()).records]
    assert ids == sorted(ids)
    repository.apply([write("*", "1", OTHER), write("x", "1", OTHER), write("a%", "1", OTHER)])
    ids = sorted(r.id for r in repository.query(Query()).records)
    for start in (0, 2, 5, len(ids) - 2):
        for limit in (1, 3, None):
            page = repository.query(Query(after=ids[start], limit=limit)).records
            assert [r.id for r in page] == ids[start + 1 :][:limit]


def test_point_reads_answer_in_the_order_asked(repository):
    repository.apply([write(name, f'"{name}"') for name in "abc"])
    records = repository.query(Query(scope=AGENT, keys=("c", "nope", "a"))).records
    assert [(r.key, r.value) for r in records] == [("c", "c"), ("a", "a")]
    assert [r.value for r in repository.query(Query(scope=AGENT, keys=("c",), values=False)).records] == [None]


def test_tags_are_found_by_all_or_any(repository):
    put(repository, "x", tags=("red", "big"))
    put(repository, "y", tags=("red",))
    put(repository, "z", tags=("blue",))
    put(repository, "o", tags=("red",), scope=OTHER)
    assert keys_of(repository, tags=("red",)) == ["x", "y"]
    assert keys_of(repository, tags=("red", "big")) == ["x"]
    assert keys_of(repository, tags=("big", "blue"), match="any") == ["x", "z"]
    assert keys_of(repository, tags=("red",), prefix="y") == ["y"]
    put(repository, "x", tags=("green",))
    assert keys_of(repository, tags=("red",)) == ["y"]
    repository.apply([Change(kind="delete", scope=AGENT, key="y")])
    assert keys_of(repository, tags=("red",)) == []
    assert repository.query(Query(scope=AGENT, tags=("green",), give="count")).total == 1


def test_search_ranks_by_words_and_is_fresh(repository):
    put(repository, "other", '"nothing to see"')
    put(repository, "more", '"an empty line"')
    put(repository, "weak", '"churn among many other words that say little about it at all"')
    put(repository, "strong", '{"note":"churn churn plan"}')
    found = repository.query(Query(scope=AGENT, text="Churn PLAN!", limit=10)).records
    assert [r.key for r in found] == ["strong", "weak"]
    assert found[0].score > found[1].score > 0
    assert found[0].value == {"note": "churn churn plan"}
    put(repository, "strong", '"replaced"')
    assert keys_of(repository, text="churn") == ["weak"]
    repository.apply([Change(kind="delete", scope=AGENT, key="weak")])
    assert keys_of(repository, text="churn") == []
    assert keys_of(repository, text="replaced", scope=OTHER) == []


def test_search_sees_keys_tags_and_any_script(repository):
    put(repository, "quarterly_report", '"x"')
    put(repository, "t", '"y"', tags=("budget-2026",))
    put(repository, "cjk", '"长期记忆很好"')
    put(repository, "accent", '"Café crème"')
    assert keys_of(repository, text="quarterly") == ["quarterly_report"]
    assert keys_of(repository, text="budget") == ["t"]
    assert keys_of(repository, text="记忆") == ["cjk"]
    assert keys_of(repository, text="CAFE") == ["accent"]
    assert keys_of(repository, text="cafe", prefix="q") == []
    assert keys_of(repository, text="budget", tags=("budget-2026",)) == ["t"]


@pytest.mark.parametrize("text", ['"', "AND OR NOT", "a* NEAR(b)", "-", "^x:y{}()", "'; --", "\x00"])
def test_search_takes_any_text(repository, text):
    put(repository, "k")
    repository.query(Query(scope=AGENT, text=text, limit=5))


def test_vectors_are_fused_with_words(repository):
    if not repository.info()["vectors"]:
        pytest.skip("this repository ranks words alone")
    put(repository, "near", '"alpha"', vector=(1.0, 0.1))
    put(repository, "far", '"beta"', vector=(-1.0, 0.1))
    put(repository, "both", '"gamma"', vector=(0.9, 0.2))
    found = keys_of(repository, text="gamma", vector=(1.0, 0.0), limit=10)
    assert found[0] == "both"
    assert set(found) == {"both", "near"}
    put(repository, "near", '"alpha"')
    assert keys_of(repository, text="gamma", vector=(1.0, 0.0), limit=10) == ["both"]


def test_a_vector_alone_ranks_by_its_cosine(repository):
    """Below a prefix too, however many nearer ones lie elsewhere; of several vectors the nearest counts."""
    put(repository, "x/same", '"v"', vector=(2.0, 0.0))
    put(repository, "x/opposite", '"v"', vector=(-1.0, 0.0))
    put(repository, "x/two", '"v"', vector=(0.0, 1.0, 1.0, 1.0))
    put(repository, "x/none", '"v"')
    repository.apply([write(f"y/{n}", '"v"', vector=(1.0, 0.0)) for n in range(250)])
    found = repository.query(Query(scope=AGENT, prefix="x/", vector=(1.0, 0.0), limit=5)).records
    assert [record.key for record in found] == ["x/same", "x/two", "x/opposite"]
    assert [record.score for record in found] == pytest.approx([1.0, 0.5**0.5, -1.0])


def test_a_touch_prolongs_a_life_and_keeps_the_rest(repository):
    put(repository, "k", '"v"', tags=("t",), vector=(1.0, 0.0), ttl=60.0)
    touched = repository.apply([Change(kind="touch", scope=AGENT, key="k", ttl=600.0)])[0].record
    assert (touched.value, touched.tags) == ("v", ("t",))
    assert touched.expires_at - touched.updated_at == timedelta(seconds=600)
    assert keys_of(repository, vector=(1.0, 0.0)) == ["k"]
    nobody = Change(kind="touch", scope=AGENT, key="nobody", ttl=600.0)
    assert repository.apply([nobody])[0].count == 0
    assert keys_of(repository) == ["k"]


def test_calls_are_kept_in_order_and_replaced_by_id(repository):
    for number in range(5):
        record = f'{{"call_id":"c{number}","tool":"t{number % 2}","run_id":"r"}}'
        repository.apply([Change(kind="call", key=f"c{number}", value=record)])
    repository.apply([Change(kind="call", key="c1", value='{"call_id":"c1","tool":"t1","run_id":"r","ok":true}')])
    calls = repository.calls(CallQuery())
    assert sorted(c["call_id"] for c in calls) == ["c0", "c1", "c2", "c3", "c4"]
    assert [c["call_id"] for c in repository.calls(CallQuery(tool="t0", limit=2))] == ["c2", "c4"]
    assert repository.calls(CallQuery(call_id="c1"))[0]["ok"] is True
    assert repository.calls(CallQuery(run_id="nope")) == []
    assert repository.query(Query(give="count")).total == 0


def test_threads_share_a_repository_without_losing_a_count(repository):
    def count():
        for _ in range(10):
            repository.apply([Change(kind="incr", scope=AGENT, key="n")])

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value_of(repository, "n") == 40


def test_a_large_value_comes_back_whole(repository):
    text = '"' + "é" * 400_000 + '"'
    put(repository, "big", text)
    assert len(value_of(repository, "big")) == 400_000


def test_info_tells_what_a_status_card_needs(repository):
    put(repository, "k")
    info = repository.info()
    assert info["backend"]
    assert info["place"]
    assert info["records"] == 1
    assert info["notices"] == []


def test_a_closed_repository_says_so(repository):
    repository.close()
    repository.close()
    with pytest.raises(MemoryUnavailable):
        repository.query(Query(scope=AGENT))


def test_a_forgotten_key_was_never_there(repository):
    put(repository, "k", '"first secret"', tags=("t",))
    put(repository, "k", '{"deep": ["second secret"]}', ttl=600.0, vector=(1.0, 0.0))
    put(repository, "k", '"other scope"', FLOW)
    put(repository, "l", '"stays"', tags=("t",))
    calls = {
        "1": {"tool": "memory_save", "arguments": {"key": "k", "value": "first secret"}, "message": "k is wrong"},
        "2": {"tool": "python", "arguments": {"script": "f('second secret')"}, "message": None},
        "3": {"tool": "python", "arguments": {"script": "f('third')"}, "message": None},
    }
    repository.apply([_call(name, record) for name, record in calls.items()])
    (done,) = repository.apply([Change(kind="forget", scope=AGENT, key="k")])
    assert (done.count, done.record) == (2, None)
    assert value_of(repository, "k") is None
    assert repository.history(AGENT, "k") == []
    assert keys_of(repository, tags=("t",)) == keys_of(repository) == ["l"]
    assert keys_of(repository, text="secret") == keys_of(repository, vector=(1.0, 0.0)) == []
    with pytest.raises(MemoryNotFound):
        repository.apply([Change(kind="restore", scope=AGENT, key="k", version=1)])
    assert value_of(repository, "k", FLOW) == "other scope"
    left = {call["call_id"]: (call["arguments"], call["message"]) for call in repository.calls(CallQuery())}
    assert left == {
        "1": ({"key": "k", "value": "[forgotten]"}, "[forgotten]"),
        "2": ({"script": "f('[forgotten]')"}, None),
        "3": ({"script": "f('third')"}, None),
    }
    assert put(repository, "k", '"new"').version == 1
    assert repository.apply([Change(kind="forget", scope=AGENT, key="none")])[0].count == 0


def test_a_record_of_a_call_that_comes_behind_a_forget_is_cleaned(repository):
    put(repository, "k", '"a secret"')
    repository.apply([Change(kind="forget", scope=AGENT, key="k")])
    repository.apply([_call("1", {"tool": "memory_save", "arguments": {"key": "k", "value": "a secret"}})])
    assert repository.calls(CallQuery())[0]["arguments"] == {"key": "k", "value": "[forgotten]"}


def test_a_forget_is_once_per_request_and_so_is_what_was_forgotten(repository):
    written = repository.apply([write("k", '"a secret"')], request_id="w")
    forget = [Change(kind="forget", scope=AGENT, key="k")]
    first = repository.apply(forget, request_id="f")
    assert first[0].count == 1
    again = repository.apply([write("k", '"a secret"')], request_id="w")
    assert again[0].record.version == written[0].record.version
    assert value_of(repository, "k") is None
    put(repository, "k", '"new"')
    assert repository.apply(forget, request_id="f") == first
    assert value_of(repository, "k") == "new"


def test_within_a_batch_a_forget_stands_between_before_and_after(repository):
    batch = [write("k", "1"), Change(kind="forget", scope=AGENT, key="k"), write("k", "2"), write("k", "3")]
    assert [a.count for a in repository.apply(batch)] == [1, 1, 1, 1]
    assert [(r.version, r.value) for r in repository.history(AGENT, "k")] == [(1, 2), (2, 3)]


def _call(name, record):
    return Change(kind="call", key=name, value=json.dumps({"call_id": name, **record}))


def test_the_table_and_the_tags_say_what_all_records_say(repository):
    odd = ['"a, \\"b\\""', '{"n": [1, null], "é": "line\\nbreak"}', "null", '""', '"NULL"']
    for number, value in enumerate(odd):
        put(repository, f"k:{number}*", value, (AGENT, NODE)[number % 2], tags=("t", f'"{number}",')[: number % 3])
    put(repository, "gone", "1", tags=("t",))
    put(repository, "due", "1", tags=("t",), ttl=0.001)
    repository.apply([Change(kind="delete", scope=AGENT, key="gone")])
    wait_until(lambda: not repository.query(Query(scope=AGENT, keys=("due",))).records)
    for scope in (None, AGENT, NODE, OTHER):
        records = repository.query(Query(scope=scope)).records
        frame = table_of([repository.query(Query(scope=scope, give="table")).table], is_pandas=True)
        wanted = [record.to_dict() for record in records]
        found = [row | {"value": json.loads(row["value"])} for row in frame.astype(object).to_dict("records")]
        for row in found:
            row |= {name: None if pd.isna(row[name]) else row[name] for name in ("workflow_id", "node_id")}
            row |= {name: None if pd.isna(row[name]) else row[name].isoformat() for name in row if name.endswith("_at")}
        assert found == wanted
        tags = Counter(tag for record in records for tag in record.tags)
        assert repository.query(Query(scope=scope, give="tags")).tags == tags
