from __future__ import annotations

import json
import random

import pytest

from nbtools.memory import open_memory
from nbtools.memory.index import LiveIndex, Source, end_of_prefix
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


def made(number, key, value, *, agent="a", tags=(), op="write", expires=None):
    text = None if value is None else json.dumps(value)
    return Row(number, f"{agent}:*:*:{key}", agent, None, None, key, op, text, tags, 1, 1, expires, 1)


def source(rows, merged=()):
    """Rows that are not in the file yet, and those that are."""
    rows, merged = list(rows), list(merged)

    def scan(after):
        yield [row for row in merged if row.seq > after]

    def sum_up(skip):
        kept = [row.seq for row in merged if row.id not in skip and row.value is not None]
        return len(kept), sum(kept)

    return Source(lambda: (max((row.seq for row in [*rows, *merged]), default=0), rows), scan, sum_up)


def filled(rows, path=None):
    index = LiveIndex(source([], rows), path)
    index.count(Query(), 10)
    return index


def searched(index, text, limit=10, **conditions):
    return [record_id for record_id, _ in index.search(Query(text=text, limit=limit, **conditions), 10)]


def test_the_ranking_is_that_of_the_plain_formula():
    """Also for common words, in segments and out of them, with as many as are wanted."""
    chosen = random.Random(1)
    words = [f"w{n}" for n in range(60)]
    weights = [1 / (n + 1) for n in range(60)]
    texts = {f"k{n}": " ".join(chosen.choices(words, weights, k=chosen.randint(3, 30))) for n in range(6_000)}
    index = filled(made(n, key, text) for n, (key, text) in enumerate(texts.items(), 1))
    late = {f"late{n}": " ".join(chosen.choices(words, weights, k=10)) for n in range(300)}
    index.note([made(7_000 + n, key, text) for n, (key, text) in enumerate(late.items())], 8_000)
    everything = {f"a:*:*:{key}": f"{key} {text}" for key, text in (texts | late).items()}
    for query in ("w2", "w50", "w1 w2 w3", "w40 w41", "w3 w59", "w1 nothing"):
        expected = dict(rank(query, everything))
        found = index.search(Query(text=query, limit=20), 10)
        assert [score for _, score in found] == pytest.approx(sorted(expected.values(), reverse=True)[:20], rel=1e-5)
        assert all(score == pytest.approx(expected[record_id], rel=1e-5) for record_id, score in found)
        assert len(index.search(Query(text=query, limit=None), 10)) == min(len(expected), 1_000)


def test_the_few_best_are_the_first_of_the_many_best():
    """Whatever lies between them: records of another scope, and the old words of many that are gone."""
    chosen = random.Random(2)
    words = [f"w{n}" for n in range(20)]
    rows = [
        made(
            n,
            f"k{n % 7_000}",
            " ".join(chosen.choices(words, range(1, 21), k=chosen.randint(1, 9))),
            agent="ab"[n % 3 > 0],
        )
        for n in range(1, 14_000)
    ]
    index = filled(rows[:7_000])
    index.note(rows[7_000:], 14_000)
    index.note([made(20_000 + n, f"k{n}", None, agent="ab"[n % 3 > 0], op="delete") for n in range(1, 2_000)], 22_000)
    for query in ("w19", "w3 w17", "w1 w2 w3 w4 w18"):
        for scope in (None, rows[0].scope, rows[2].scope):
            many = searched(index, query, limit=900, scope=scope)
            assert len(many) == len(set(many)) == 900
            assert searched(index, query, limit=10, scope=scope) == many[:10]
            assert searched(index, query, limit=200, scope=scope) == many[:200]
            assert searched(index, query, limit=10, scope=scope, prefix="k") == many[:10]


def test_a_word_that_is_everywhere_gives_the_newest_with_all_words():
    rows = [made(n, f"k{n}", "word") for n in range(1, 5_500)]
    index = filled([*rows, made(9_000, "gem", "word gem")])
    assert searched(index, "word", limit=3) == ["a:*:*:k5499", "a:*:*:k5498", "a:*:*:k5497"]
    assert searched(index, "word gem", limit=1) == ["a:*:*:gem"]
    assert searched(index, "word", limit=3, prefix="k77") == ["a:*:*:k779", "a:*:*:k778", "a:*:*:k777"]


def test_what_is_due_makes_room_for_what_is_not():
    rows = [made(n, f"k{n}", "word " * (n % 5 + 1), expires=5 if n % 2 else None) for n in range(1, 200)]
    found = searched(filled(rows), "word", limit=50)
    assert len(found) == 50
    assert all(int(record_id.rpartition("k")[2]) % 2 == 0 for record_id in found)


def test_old_words_of_a_changed_record_are_gone():
    index = filled([made(1, "k", "alpha")])
    assert searched(index, "alpha") == ["a:*:*:k"]
    for number in range(50):
        index.note([made(2 + number, "k", f"beta{number}")], 2 + number)
        assert index.total() == 1
    assert searched(index, "alpha") == []
    assert searched(index, "beta48") == []
    assert searched(index, "beta49") == ["a:*:*:k"]
    index.note([made(99, "k", None, op="delete")], 99)
    assert searched(index, "beta49") == []
    assert index.total() == 0


def test_scopes_have_their_own_words():
    index = filled([made(1, "x", "same", agent="a"), made(2, "x", "same", agent="b")])
    scope = made(1, "x", 1, agent="b").scope
    assert searched(index, "same", scope=scope) == ["b:*:*:x"]
    assert sorted(searched(index, "same")) == ["a:*:*:x", "b:*:*:x"]


def test_records_without_any_word_are_no_obstacle():
    index = filled([made(1, "!", ""), made(2, "…", [])])
    assert searched(index, "word") == []
    index.note([made(3, "k", "word")], 3)
    assert searched(index, "word") == ["a:*:*:k"]


# -- the file


def kept(path, rows):
    index = filled(rows, path)
    index.close()
    return path


def test_an_index_is_taken_up_where_it_ended(tmp_path):
    rows = [made(n, f"k{n}", f"word{n}", tags=("t",)) for n in range(1, 50)]
    path = kept(tmp_path / "index", rows)
    rows[3] = made(60, "k4", "changed")
    rows[4] = made(61, "k5", None, op="delete")
    scanned = []
    ready = source([made(70, "k6", "unmerged"), made(71, "k7", None, op="delete")], rows)
    index = LiveIndex(ready._replace(scan=lambda after: scanned.append(after) or ready.scan(after)), path)
    assert scanned == [49]
    assert index.total() == 47
    assert searched(index, "changed") == ["a:*:*:k4"]
    assert searched(index, "unmerged") == ["a:*:*:k6"]
    assert searched(index, "word4 word5 word6 word7") == []
    assert searched(index, "word8") == ["a:*:*:k8"]
    index.note([made(80, "k8", "late")], 80)
    assert searched(index, "word8") == []
    assert len(index.ids(Query(tags=("t",)), 10)) == 44
    assert scanned == [49]


def test_an_index_of_other_records_is_made_anew(tmp_path):
    path = kept(tmp_path / "index", [made(n, f"k{n}", "mine") for n in range(1, 9)])
    index = LiveIndex(source([], [made(n, f"k{n}", "yours") for n in (1, 2, 4, 8)]), path)
    assert index.total() == 4
    assert searched(index, "mine") == []
    assert len(searched(index, "yours")) == 4


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(5_000)])
def test_an_index_that_cannot_be_read_is_made_anew(tmp_path, damage):
    rows = [made(n, f"k{n}", "word") for n in range(1, 9)]
    path = kept(tmp_path / "index", rows)
    path.write_bytes(damage)
    assert len(searched(LiveIndex(source([], rows), path), "word")) == 8


def test_an_index_damaged_while_it_is_open_goes_on_in_memory(tmp_path):
    rows = [made(n, f"k{n}", "word") for n in range(1, 9)]
    index = filled(rows, tmp_path / "index")
    index._execute("DROP TABLE postings")
    assert len(searched(index, "word")) == 8
    index.note([made(10, "k10", "word")], 10)
    assert len(searched(index, "word")) == 9


def test_many_changes_do_not_let_the_index_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("nbtools.memory.index._GONE", 50)
    latest = [made(1, "k", "word1")]
    ready = source([], [])
    index = LiveIndex(ready._replace(overlay=lambda: (latest[0].seq, latest)), tmp_path / "index")
    for n in range(2, 100):
        latest[0] = made(n, "k", f"word{n}")
        index.note(latest, n)
        index.tidy(is_quiet=True)
    assert index._next < 60
    assert searched(index, "word99") == ["a:*:*:k"]
    assert searched(index, "word98") == []


def test_a_note_is_found_at_once_after_its_write():
    with open_memory(":memory:") as memory:
        for number in range(30):
            memory.write(f"k{number}", f"note unheard{number}")
            assert [r.key for r in memory.search(f"unheard{number}")] == [f"k{number}"]
