from __future__ import annotations

import json
import sqlite3

import pytest

from nbtools.memory import open_memory
from nbtools.memory.index import LiveIndex, end_of_prefix
from nbtools.memory.repository import Query
from nbtools.memory.rows import Row
from nbtools.memory.search import cosine, fuse, rank, record_text, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, WORLD!", ["hello", "world"]),
        ("snake_case-and.dots", ["snake", "case", "and", "dots"]),
        ("Café Crème", ["cafe", "creme"]),
        ("长期记忆", ["长", "期", "记", "忆"]),
        ("Straße", ["strasse"]),
        ("", []),
        ("…!?", []),
    ],
)
def test_words_are_folded(text, words):
    assert split_words(text) == words


def test_the_text_of_a_record_has_names_scalars_and_no_escapes():
    text = record_text("my_key", ["t-1"], json.dumps({"a": ["x\ny", 5, None, True], "b": {"c": "é"}}))
    assert split_words(text) == ["my", "key", "t", "1", "a", "x", "y", "5", "true", "b", "c", "e"]
    assert split_words(record_text("k", [], "12.5")) == ["k", "12", "5"]


def test_rank_prefers_rare_words_and_short_texts():
    texts = dict.fromkeys(range(20), "common filler") | {"rare": "common gem", "long": "gem " + "word " * 50}
    ranked = [name for name, _ in rank("common gem", texts)]
    assert ranked[:2] == ["rare", "long"]
    assert rank("nothing", texts) == []
    assert rank("", texts) == []
    assert rank("x", {}) == []


def test_cosine_and_fusion():
    assert cosine((1, 0), (2, 0)) == pytest.approx(1)
    assert cosine((1, 0), (0, 1)) == 0
    assert cosine((1, 0), (1, 0, 0)) == 0
    assert cosine((0, 0), (1, 1)) == 0
    assert [name for name, _ in fuse(["a", "b", "c"], ["b", "d"])] == ["b", "a", "d", "c"]


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("a", "b"), ("aZ", "a["), ("\ud7ff", "\ue000"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("", None)],
)
def test_the_end_of_a_prefix_is_the_next_text(prefix, end):
    assert end_of_prefix(prefix) == end


def made(number, key, value, *, agent="a", tags=(), op="write"):
    text = None if value is None else json.dumps(value)
    return Row(number, f"{agent}:*:*:{key}", agent, None, None, key, op, text, tags, 1, 1, None, 1)


def filled(rows):
    index = LiveIndex(lambda _values: (list(rows), []))
    index.count(Query(), 10)
    return index


def searched(index, text, limit=10, **conditions):
    return [record_id for record_id, _ in index.search(Query(text=text, limit=limit, **conditions), 10)]


def test_a_common_word_is_ranked_among_the_newest():
    rows = [made(n, f"k{n}", f"word filler{n % 7} {'deep ' * (n % 3)}") for n in range(2_000)]
    index = filled([*rows, made(5_000, "both", "word gem")])
    assert searched(index, "word gem")[0] == "a:*:*:both"
    found = searched(index, "word", limit=5)
    assert len(found) == 5
    assert all(int(record_id.rpartition("k")[2]) >= 1_000 for record_id in found if "both" not in record_id)
    assert len(searched(index, "word", limit=None)) <= 1_000
    assert searched(index, "word", limit=3, prefix="k77") != []


def test_a_word_that_is_everywhere_gives_the_newest_with_all_words():
    rows = [made(n, f"k{n}", "word") for n in range(5_500)]
    index = filled([*rows, made(9_000, "gem", "word gem")])
    assert searched(index, "word", limit=2) == ["a:*:*:gem", "a:*:*:k5499"]
    assert searched(index, "word gem", limit=1) == ["a:*:*:gem"]


def test_old_words_of_a_changed_record_are_gone():
    index = filled([made(1, "k", "alpha")])
    assert searched(index, "alpha") == ["a:*:*:k"]
    for number in range(50):
        index.note([made(2 + number, "k", f"beta{number}")])
        index.flush()
    assert searched(index, "alpha") == []
    assert searched(index, "beta48") == []
    assert searched(index, "beta49") == ["a:*:*:k"]
    index.note([made(99, "k", None, op="delete")])
    assert searched(index, "beta49") == []
    assert index.total() == 0


def test_scopes_have_their_own_words():
    index = filled([made(1, "x", "same", agent="a"), made(2, "x", "same", agent="b")])
    scope = made(1, "x", 1, agent="b").scope
    assert searched(index, "same", scope=scope) == ["b:*:*:x"]
    assert sorted(searched(index, "same")) == ["a:*:*:x", "b:*:*:x"]


def test_without_fts5_the_ranking_is_the_same(monkeypatch):
    rows = [
        made(1, "weak", "churn " + "word " * 20),
        made(2, "strong", "churn churn"),
        made(3, "none", "x", tags=("t",)),
    ]
    rows += [made(10 + n, f"f{n}", "filler") for n in range(5)]
    with_it = searched(filled(rows), "churn")
    monkeypatch.setattr("nbtools.memory.index._FTS", "CREATE VIRTUAL TABLE words USING no_such_module(text)")
    index = filled(rows)
    assert searched(index, "churn") == with_it == ["a:*:*:strong", "a:*:*:weak"]
    index.note([made(20, "strong", "quiet")])
    assert searched(index, "churn") == ["a:*:*:weak"]
    assert searched(index, "t", tags=("t",)) == ["a:*:*:none"]


def test_fts5_is_there_where_the_tests_run():
    names = {name for (name,) in sqlite3.connect(":memory:").execute("PRAGMA module_list")}
    if "fts5" not in names:
        pytest.skip("this Python's SQLite ranks in Python")


def test_a_note_is_found_at_once_after_its_write():
    with open_memory(":memory:") as memory:
        for number in range(30):
            memory.write(f"k{number}", f"note unheard{number}")
            assert [r.key for r in memory.search(f"unheard{number}")] == [f"k{number}"]
