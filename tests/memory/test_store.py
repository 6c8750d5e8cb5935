from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from nbtools.errors import InvalidArguments, LimitExceeded, MemoryNotFound, VersionConflict
from nbtools.memory import AgentMemory, InMemoryRepository, Limits, open_memory
from nbtools.memory.rules.marks import MarkingRepository
from nbtools.memory.watched import watched


def test_a_memory_reads_like_a_dict(memory):
    memory.write("b", 2)
    memory.write("a", {"x": 1})
    assert memory["a"] == {"x": 1}
    assert dict(memory) == {"a": {"x": 1}, "b": 2}
    assert list(memory) == ["a", "b"] == list(memory.keys())
    assert list(memory.values()) == [{"x": 1}, 2]
    assert list(memory.items()) == [("a", {"x": 1}), ("b", 2)]
    assert 2 in memory.values()
    assert ("b", 2) in memory.items()
    assert (len(memory), len(memory.items())) == (2, 2)
    assert "a" in memory
    assert memory.get("zz", 5) == 5
    assert memory == {"a": {"x": 1}, "b": 2}


def test_records_unpack_as_pairs_and_the_third_argument_of_write_is_its_time(memory):
    memory.write("p/a", 1, 60)
    memory.write("p/b", [2], tags=["t"])
    memory.write("q", 3)
    assert dict(memory.list("p/")) == {"p/a": 1, "p/b": [2]}
    assert [(key, value) for key, value in memory.find(["t"])] == [("p/b", [2])]
    assert memory.record("p/a").expires_at is not None
    assert memory.record("p/b").expires_at is None


@pytest.mark.parametrize("key", ["missing", "", 7, None, "a\x00", "x" * 3000, ()], ids=repr)
def test_what_cannot_be_there_is_not_there(memory, key):
    assert key not in memory
    with pytest.raises(KeyError):
        memory[key]


def test_writing_by_brackets_says_what_to_use(memory):
    with pytest.raises(TypeError, match=r"memory\.write\('k', value\)"):
        memory["k"] = 1
    with pytest.raises(TypeError, match=r"memory\.delete\('k'\)"):
        del memory["k"]


def test_read_gives_the_default_and_brackets_offer_the_nearest_key(memory):
    memory.write("goal", 1)
    assert memory.read("goal") == 1
    assert memory.read("gaol") is None
    assert memory.read("gaol", default=9) == 9
    with pytest.raises(MemoryNotFound) as caught:
        memory["gaol"]
    assert "'goal'" in caught.value.hint


def test_a_stored_null_is_not_a_missing_key(memory):
    memory.write("k", None)
    assert memory.read("k", default=5) is None
    assert "k" in memory


def test_write_returns_the_record(memory):
    record = memory.write("goal", {"kpi": "churn"}, tags=["plan", "plan"], ttl=60)
    assert (record.key, record.value, record.tags, record.version) == ("goal", {"kpi": "churn"}, ("plan",), 1)
    assert record == memory.record("goal")
    assert 59 < (record.expires_at - record.created_at).total_seconds() < 61


def test_what_a_write_is_not_given_stays_and_each_can_be_taken_away(memory):
    first = memory.write("goal", 1, tags=["plan"], ttl=60)
    kept = memory.write("goal", 2)
    assert (kept.tags, kept.expires_at) == (("plan",), first.expires_at)
    assert memory.write("goal", 3, ttl=None).expires_at is None
    assert memory.write("goal", 4, tags=[]).tags == ()
    assert "ttl: float | Keep | None = KEEP, *, tags: Iterable[str] | Keep | None = KEEP" in str(
        inspect.signature(AgentMemory.write)
    ).replace("'", "")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", 1), {}),
        (("k", {1, 2}), {}),
        (("k", 1), {"tags": "plan"}),
        (("k", 1), {"ttl": 0}),
        (("k", 1), {"ttl": -5}),
        (("k", 1), {"if_version": -1}),
        (("k", 1), {"if_version": 1.5}),
        (("k", 1), {"if_version": True}),
    ],
)
def test_a_wrong_write_stores_nothing(memory, arguments, options):
    with pytest.raises(InvalidArguments):
        memory.write(*arguments, **options)
    assert len(memory) == 0


def test_limits_are_the_stores_own():
    memory = AgentMemory(InMemoryRepository(), limits=Limits(key_bytes=4, value_bytes=10, tags=1))
    memory.write("1234", "12345678", tags=["a"])
    for key, value, tags in (("12345", 1, None), ("k", "x" * 20, None), ("k", 1, ["a", "b"])):
        with pytest.raises(LimitExceeded):
            memory.write(key, value, tags=tags)


def test_find_lists_by_tags_and_list_by_prefix(memory):
    memory.write("n/1", 1, tags=["red", "big"])
    memory.write("n/2", 2, tags=["red"])
    memory.write("m", 3, tags=["blue"])
    assert [r.key for r in memory.find(["red"])] == ["n/1", "n/2"]
    assert [r.key for r in memory.find(tags=["red", "big"])] == ["n/1"]
    assert [r.key for r in memory.find(tags=["big", "blue"], match="any")] == ["m", "n/1"]
    assert [r.key for r in memory.find(["red"], prefix="n/2")] == ["n/2"]
    assert [r.key for r in memory.find([])] == ["m", "n/1", "n/2"]
    assert memory.find([], match="any") == []
    assert [r.key for r in memory.list("n/")] == ["n/1", "n/2"]
    assert [r.key for r in memory.list(limit=1, after="m")] == ["n/1"]
    assert memory.tags() == {"red": 2, "big": 1, "blue": 1}
    with pytest.raises(InvalidArguments):
        memory.find(["red"], match="some")


def test_search_ranks_and_takes_limits(memory):
    memory.write("a", "churn churn plan")
    memory.write("b", "the churn of a long and winding note that goes on and on")
    memory.write("c", "nothing")
    memory.write("d", "nothing else")
    memory.write("e", "nothing at all")
    assert [r.key for r in memory.search("churn")] == ["a", "b"]
    assert [r.key for r in memory.search("churn", limit=1)] == ["a"]
    assert memory.search("churn", limit=0) == []
    assert memory.search("  ") == []
    assert memory.search("churn", prefix="b")[0].key == "b"
    with pytest.raises(InvalidArguments):
        memory.search(7)


def test_history_restore_and_incr(memory):
    memory.write("goal", 1, tags=["x"])
    memory.write("goal", 2, tags=["y"])
    memory.delete("goal")
    assert [(r.version, r.value, r.change) for r in memory.history("goal")] == [
        (1, 1, "write"),
        (2, 2, "write"),
        (3, None, "delete"),
    ]
    assert memory.restore("goal", 1).tags == ("x",)
    assert memory["goal"] == 1
    for version in (0, -1, "1"):
        with pytest.raises(InvalidArguments):
            memory.restore("goal", version)
    assert memory.incr("runs") == 1
    assert memory.incr("runs", by=2.5) == 3.5
    for by in (float("nan"), "1", None, True):
        with pytest.raises(InvalidArguments):
            memory.incr("runs", by=by)


def test_compare_and_set(memory):
    memory.write("k", 1, if_version=0)
    with pytest.raises(VersionConflict):
        memory.write("k", 2, if_version=0)
    assert memory.write("k", 2, if_version=1).version == 2
    with pytest.raises(VersionConflict):
        memory.delete("k", if_version=1)
    assert memory.delete("k") is True
    assert memory.delete("k") is False


def test_scopes_stay_apart_and_share_the_repository():
    with open_memory(":memory:", agent_id="a", workflow_id="w", node_id="n") as agent:
        workflow, node = agent.scoped(scope="workflow"), agent.scoped(scope="node")
        other = agent.scoped(node_id="m")
        for number, memory in enumerate((agent, workflow, node, other)):
            memory.write("k", number)
        assert [m["k"] for m in (agent, workflow, node, other)] == [0, 1, 2, 3]
        assert agent.scoped(agent_id="b").read("k") is None
        assert node.scoped(workflow_id="w").scope == workflow.scope
        assert agent.clear() == 1
        assert agent.clear_by_workflow("a", "w") == 3
        workflow.close()
        agent.write("still", "open")


def test_embed_finds_by_nearness():
    vectors = {"cat": (1.0, 0.0), "kitten": (0.9, 0.1), "car": (0.0, 1.0)}

    def embed(text):
        return next((vectors[word] for word in ("kitten", "cat", "car") if word in text.split()), (0.1, 0.1))

    with open_memory(":memory:", embed=embed) as memory:
        memory.write("x", "a kitten sleeps")
        memory.write("y", "the car is red")
        assert memory.search("cat")[0].key == "x"
        memory.write("x", "a car as well")
        memory.restore("x", 1)
        assert memory.search("cat")[0].key == "x"


def test_a_snapshot_is_a_table_even_when_it_is_empty(memory):
    assert list(memory.snapshot().columns)[:5] == ["id", "agent_id", "workflow_id", "node_id", "key"]
    memory.write("k", {"x": 1}, tags=["t"])
    memory.scoped(agent_id="b").write("k", 2)
    frame = memory.snapshot("memory")
    assert frame["id"].to_list() == ["a:*:*:k", "b:*:*:k"]
    assert frame["value"].to_list() == ['{"x":1}', "2"]
    assert str(frame["created_at"].dt.tz) == "UTC"
    assert len(memory.snapshot("calls")) == 0
    with pytest.raises(InvalidArguments):
        memory.snapshot("moon")


def test_a_memory_can_be_named_in_a_set_and_shown(memory):
    assert len({memory, memory.scoped()}) == 2
    assert repr(memory) == "AgentMemory('a:*:*:…')"


def test_errors_of_a_memory_travel(memory):
    with pytest.raises(MemoryNotFound) as caught:
        memory["gone"]
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message


def test_restore_without_a_number_takes_the_last_version(memory):
    for number in (1, 2, 3):
        memory.write("k", number)
    assert memory.restore("k").value == 2, "of a key that is there, the one before"
    memory.delete("k")
    assert memory.restore("k").value == 2, "of a key that is gone, the last"
    memory.write("new", 1)
    with pytest.raises(MemoryNotFound, match="no earlier version"):
        memory.restore("new")
    with pytest.raises(MemoryNotFound, match="no memory 'nev'") as missing:
        memory.restore("nev")
    assert missing.value.hint == "did you mean 'new'?"


def test_a_key_that_was_deleted_offers_the_restore_and_no_other_key(memory):
    memory.write("goal", 1)
    memory.write("goals", 2)
    memory.delete("goal")
    with pytest.raises(MemoryNotFound, match="it was deleted") as caught:
        memory["goal"]
    assert caught.value.hint == "%memory restore 'goal' brings it back"
    with pytest.raises(MemoryNotFound) as caught:
        memory["gaols"]
    assert caught.value.hint == "did you mean 'goals'?"


def test_copies_of_what_stands_before_a_repository_have_it_too():
    inner = InMemoryRepository()
    for outer in (MarkingRepository(inner, "a"), watched(AgentMemory(inner), print).repository):
        assert copy.copy(outer).info == inner.info
