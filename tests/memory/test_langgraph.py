"""LangGraph's store over a memory; what its own suites ask of a store is asked here in a few words."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

pytest.importorskip("langgraph.store.base")

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp

from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.memory import open_memory
from nbtools.memory.langgraph import NbtoolsStore

pytestmark = pytest.mark.in_memory

WORDS = ("cat", "dog", "car")


def embed(text):
    """Stand for a model: how often the few words that it knows occur, and a little of everything."""
    return [0.1 + text.count(word) for word in WORDS]


@pytest.fixture(params=[":memory:", "postgresql"])
def opened(request):
    url = request.param if request.param == ":memory:" else request.getfixturevalue("postgres_database")
    with open_memory(url, agent_id="a", embed=embed) as memory:
        yield memory


@pytest.fixture
def plain():
    with open_memory(":memory:") as memory:
        yield NbtoolsStore(memory)


def keys(found):
    return [item.key for item in found]


def test_a_batch_reads_before_it_writes(plain):
    plain.put(("a",), "k", {"v": 1})
    ops = [
        PutOp(("a",), "k", {"v": 2}),
        GetOp(("a",), "k"),
        PutOp(("b", "c"), "k", {"v": 3}),
        PutOp(("b", "c"), "k", {"v": 4}),
        SearchOp(("a",), filter={"v": 1}),
        ListNamespacesOp(),
    ]
    answers = plain.batch(ops)
    assert answers[1].value == {"v": 1}
    assert (keys(answers[4]), answers[5]) == (["k"], [("a",)])
    assert (plain.get(("a",), "k").value, plain.get(("b", "c"), "k").value) == ({"v": 2}, {"v": 4})
    plain.delete(("a",), "k")
    assert plain.get(("a",), "k") is None
    assert plain.list_namespaces() == [("b", "c")]


def test_items_have_their_times_and_keep_their_birthday(plain):
    plain.put(("a",), "k", {"v": 1})
    first = plain.get(("a",), "k")
    plain.put(("a",), "k", {"v": 2})
    second = plain.get(("a",), "k")
    assert (second.created_at, second.namespace, second.key) == (first.created_at, ("a",), "k")
    assert second.updated_at >= first.updated_at


@pytest.mark.parametrize("label", ["a/b", "a=b", "50%", "%2F", "a\n", "tab\t", "e\u0301", "记忆", "*", "a:b", "'"])
def test_odd_labels_and_keys_are_kept_apart(plain, label):
    plain.put((label, "x"), label, {"v": 1})
    plain.put((label.strip() + "x",), label, {"v": 2})
    assert plain.get((label, "x"), label).namespace == (label, "x")
    assert [(item.namespace, item.key) for item in plain.search((label,))] == [((label, "x"), label)]
    assert plain.list_namespaces(prefix=(label,)) == ([(label, "x")] if label != "*" else plain.list_namespaces())
    assert plain.get((label,), "x") is None


@pytest.mark.parametrize("namespace", [("a.b",), ("",), ("a\x00",), (7,)])
def test_what_langgraph_refuses_is_refused_as_there(plain, namespace):
    with pytest.raises(InvalidNamespaceError):
        plain.batch([PutOp(namespace, "k", {"v": 1})])
    with pytest.raises(InvalidNamespaceError):
        plain.batch([SearchOp(namespace)])


def test_what_cannot_be_stored_says_why_and_stores_nothing(plain):
    with pytest.raises(LimitExceeded):
        plain.batch([PutOp(("a",), "k", {"v": 1}), PutOp(("x" * 100,) * 12, "k", {"v": 1})])
    with pytest.raises(InvalidArguments):
        plain.put(("a",), "k", {"v": {1, 2}})
    with pytest.raises(InvalidArguments, match="expected a dict"):
        plain.put(("a",), "k", [1, 2])
    with pytest.raises(InvalidArguments):
        plain.batch([object()])
    assert plain.list_namespaces() == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"color": "red"}, ["1", "3"]),
        ({"color": {"$ne": "red"}}, ["2"]),
        ({"n": {"$gt": 1, "$lte": 3}}, ["2", "3"]),
        ({"day": {"$gte": "2026-02-01"}}, ["2", "3"]),
        ({"color": {"$lt": 3}}, []),
        ({"size": {"w": 1}}, ["1"]),
        ({"size.w": {"$gt": 1}}, ["2"]),
        ({"nothing": 1}, []),
    ],
    ids=repr,
)
def test_filters_compare_what_can_be_compared(plain, wanted, found):
    for number, color in enumerate(("red", "blue", "red"), 1):
        value = {"color": color, "n": number, "day": f"2026-0{number}-01"}
        plain.put(("a",), str(number), value | ({"size": {"w": number}} if number < 3 else {}))
    assert keys(plain.search(("a",), filter=wanted)) == found
    assert {*keys(plain.search(("a",), query="red blue", filter=wanted))} == {*found}


def test_an_unknown_operator_is_named(plain):
    plain.put(("a",), "k", {"v": 1})
    with pytest.raises(InvalidArguments, match=r"\$in"):
        plain.search(("a",), filter={"v": {"$in": [1]}})


def test_without_an_embedder_words_are_found(plain):
    plain.put(("a",), "1", {"text": "notes about churning customers"})
    plain.put(("a",), "2", {"text": "something else"})
    found = plain.search(("a",), query="churn")
    assert (keys(found), found[0].score) == (["1"], 1.0)
    assert keys(plain.search(("a",))) == ["1", "2"]
    assert keys(plain.search(("a",), limit=1, offset=1)) == ["2"]


@pytest.mark.processes
def test_the_memory_s_embedder_ranks_items_by_nearness(opened):
    store = NbtoolsStore(opened)
    store.put(("a",), "1", {"text": "a dog"})
    store.put(("a",), "2", {"text": "a cat and a cat"})
    store.put(("a",), "3", {"text": "no index cat"}, index=False)
    store.put(("b",), "4", {"text": "cat"})
    found = store.search(("a",), query="cat")
    assert keys(found) == ["2", "1", "3"]
    assert found[0].score > 0.9 > found[1].score
    assert found[2].score is None
    assert keys(store.search(("a",), query="cat", filter={"text": "a dog"})) == ["1"]
    assert [keys(store.search(("a",), query="cat", limit=1, offset=n)) for n in range(4)] == [["2"], ["1"], ["3"], []]
    store.put(("a",), "2", {"text": "car"})
    assert keys(store.search(("a",), query="dog"))[0] == "1"


@pytest.mark.processes
def test_langgraph_s_index_says_what_is_embedded_and_by_what(opened):
    asked = []

    def embed_texts(texts):
        asked.append(list(texts))
        return [embed(text) for text in texts]

    store = NbtoolsStore(opened, index={"dims": 3, "embed": embed_texts, "fields": ["title", "parts[*].text"]})
    parts = [{"text": "dog"}, {"text": "car"}]
    store.batch(
        [
            PutOp(("a",), "1", {"title": "cat", "parts": parts, "rest": "secret"}),
            PutOp(("a",), "2", {"title": "dog", "rest": "cat"}),
            PutOp(("a",), "3", {"title": "dog", "rest": "cat"}, index=["rest"]),
            PutOp(("a",), "4", {"other": "nothing to embed"}),
        ]
    )
    assert asked == [["cat", "dog", "car"]]
    found = store.search(("a",), query="car")
    assert (found[0].key, found[0].score, found[-1].key, found[-1].score) == ("1", pytest.approx(1.0), "4", None)
    assert {item.key for item in store.search(("a",), query="cat", limit=2)} == {"1", "3"}
    only = NbtoolsStore(opened, index={"fields": ["rest"]})
    only.put(("b",), "5", {"title": "dog", "rest": "car"})
    assert only.search(("b",), query="car")[0].score == pytest.approx(1.0)


@pytest.mark.processes
def test_reading_lets_an_item_live_for_its_time_again(opened):
    store = NbtoolsStore(opened, ttl={"default_ttl": 10, "refresh_on_read": True})
    store.put(("a",), "k", {"text": "cat"})
    store.put(("a",), "still", {"text": "dog"}, ttl=None)

    def end():
        return next(record for record in opened.list() if record.key.endswith("=k")).expires_at

    first = end()
    assert store.get(("a",), "k", refresh_ttl=False).value == {"text": "cat"}
    assert end() == first
    for read in (
        lambda: store.get(("a",), "k"),
        lambda: store.search(("a",)),
        lambda: store.search(("a",), query="cat"),
    ):
        before = end()
        read()
        assert before < end() < before + timedelta(minutes=1)
    # What was read is what it was, its vector too.
    assert store.search(("a",), query="cat")[0].key == "k"
    assert [r.version for r in opened.list() if r.key.endswith("=still")] == [1]
    before = end()
    assert NbtoolsStore(opened, ttl={"refresh_on_read": False}).search(("a",))[0].key == "k"
    assert end() == before
    store.put(("a",), "k", {"text": "cat"}, ttl=None)
    assert end() is None


def test_namespaces_are_matched_by_prefix_suffix_and_depth(plain):
    for namespace in (("a", "b", "c"), ("a", "b", "d", "e"), ("a", "x", "c"), ("ab", "c")):
        plain.put(namespace, "k", {"v": 1})
    assert plain.list_namespaces(prefix=("a",)) == [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "x", "c")]
    assert plain.list_namespaces(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
    assert plain.list_namespaces(suffix=("c",), max_depth=2) == [("a", "b"), ("a", "x"), ("ab", "c")]
    assert plain.list_namespaces(limit=1, offset=3) == [("ab", "c")]


def test_it_works_inside_a_running_loop(plain):
    async def use():
        await asyncio.gather(*(plain.aput(("a",), str(n), {"n": n}) for n in range(20)))
        await plain.adelete(("a",), "7")
        return (
            len(await plain.asearch(("a",), limit=100)),
            (await plain.aget(("a",), "3")).value,
            plain.get(("a",), "7"),
        )

    assert asyncio.run(use()) == (19, {"n": 3}, None)
