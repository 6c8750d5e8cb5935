from __future__ import annotations

import datetime as dt
import enum

import pytest

from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.memory.records import (
    KEEP,
    Limits,
    MemoryRecord,
    Scope,
    check_key,
    check_tags,
    check_ttl,
    encode_value,
    make_scope,
)

LIMITS = Limits()


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("a", None, None), "a:*:*:k"),
        (("a", "w", None), "a:w:*:k"),
        (("a", "w", "n"), "a:w:n:k"),
        (("a:b", "*", "50%"), "a%3Ab:%2A:50%25:k"),
    ],
)
def test_ids_name_all_parts_and_escape_them(parts, expected):
    agent, workflow, node = parts
    assert Scope(agent_id=agent, workflow_id=workflow, node_id=node).record_id("k") == expected


def test_a_scope_is_made_of_the_ids_its_level_needs():
    assert make_scope("a", "w", "n") == Scope(agent_id="a")
    assert make_scope("a", "w", "n", scope="workflow") == Scope(agent_id="a", workflow_id="w")
    assert make_scope("a", "w", "n", scope="node").name == "node"
    assert make_scope("a", None, "n", scope="node").prefix == "a:*:n:"
    assert make_scope("a", "w", scope="workflow").name == "workflow"


@pytest.mark.parametrize(
    ("ids", "scope"),
    [
        (("a",), "workflow"),
        (("a", "w"), "node"),
        (("a",), "galaxy"),
        (("",), "agent"),
        (("a", ""), "workflow"),
        ((7,), "agent"),
        (("a\n",), "agent"),
    ],
)
def test_a_scope_that_cannot_be_is_refused(ids, scope):
    with pytest.raises(InvalidArguments):
        make_scope(*ids, scope=scope)


@pytest.mark.parametrize("key", ["k", "a:b", "x y", "é", "记忆", "x" * 1024, "é" * 512, "🎈"])
def test_proper_keys_pass_unchanged(key):
    assert check_key(key, LIMITS) is key


@pytest.mark.parametrize(
    "key", ["", "a\x00b", "a\nb", "\x7f", "a\u2028b", "e\u0301", "\ud800", 7, None, b"k", ("k",)], ids=repr
)
def test_keys_that_cannot_be_stored_are_refused(key):
    with pytest.raises(InvalidArguments):
        check_key(key, LIMITS)


@pytest.mark.parametrize("key", ["x" * 1025, "é" * 513])
def test_a_key_is_measured_in_bytes(key):
    with pytest.raises(LimitExceeded):
        check_key(key, LIMITS)


def test_the_hint_for_a_decomposed_key_is_its_composed_form():
    with pytest.raises(InvalidArguments) as caught:
        check_key("cafe\u0301", LIMITS)
    assert "caf\u00e9" in caught.value.hint


def test_tags_lose_repetitions_and_keep_their_order():
    assert check_tags(["b", "a", "b"], LIMITS) == ("b", "a")
    assert check_tags(iter(("x",)), LIMITS) == ("x",)
    assert check_tags([], LIMITS) == ()
    assert check_tags(None, LIMITS) is None


@pytest.mark.parametrize("tags", ["plan", b"plan", 7, [7], [""], ["a\tb"], {"t": "\x00"}.values()], ids=repr)
def test_tags_that_are_no_names_are_refused(tags):
    with pytest.raises(InvalidArguments):
        check_tags(tags, LIMITS)


def test_too_many_tags_are_refused():
    assert len(check_tags([f"t{n}" for n in range(64)], LIMITS)) == 64
    with pytest.raises(LimitExceeded):
        check_tags([f"t{n}" for n in range(65)], LIMITS)


@pytest.mark.parametrize("ttl", [0, -1, -0.5, float("nan"), float("inf"), True, "60", 1e12], ids=repr)
def test_a_ttl_that_is_no_time_is_refused(ttl):
    with pytest.raises(InvalidArguments):
        check_ttl(ttl)


def test_a_ttl_is_seconds_or_for_ever_or_kept():
    assert [check_ttl(ttl) for ttl in (60, None, KEEP)] == [60.0, 0.0, None]


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "value is nan"),
        ([1, float("inf")], "value[1] is inf"),
        ({"a": {"b": {1, 2}}}, "value.a.b is a set"),
        ({"rows": [{"when": dt.date(2026, 1, 1)}]}, "value.rows[0].when is a date"),
        ({1: 2}, "a key of value is 1"),
        ({"x": b"y"}, "value.x is a bytes"),
        (Colour.RED, "value is a Colour"),
        ("\ud800", "value has a lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        (object(), "value is a object"),
    ],
    ids=range(10),  # an object's own text holds its address, which differs between workers
)
def test_a_value_that_is_not_json_says_which_part(value, place):
    with pytest.raises(InvalidArguments) as caught:
        encode_value(value, LIMITS)
    assert place in caught.value.message


def test_a_value_that_contains_itself_or_is_bottomless_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(InvalidArguments, match="contains itself"):
        encode_value(loop, LIMITS)
    deep: list = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidArguments, match="nested"):
        encode_value(deep, LIMITS)
    with pytest.raises(InvalidArguments):
        encode_value(10**5000, LIMITS)


def test_the_same_part_twice_is_no_loop():
    part = [1]
    assert encode_value({"a": part, "b": part}, LIMITS) == '{"a":[1],"b":[1]}'


def test_a_value_is_measured_in_bytes_of_json():
    small = Limits(value_bytes=10)
    assert encode_value("12345678", small) == '"12345678"'
    with pytest.raises(LimitExceeded):
        encode_value("123456789", small)
    with pytest.raises(LimitExceeded):
        encode_value("ééééé", small)


def test_a_record_survives_its_dict():
    now = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    record = MemoryRecord(
        agent_id="a",
        workflow_id="w",
        key="k",
        value={"x": [1]},
        tags=("t",),
        created_at=now,
        updated_at=now,
        expires_at=now + dt.timedelta(days=1),
        version=3,
    )
    assert record.id == "a:w:*:k"
    assert MemoryRecord.from_dict(record.to_dict()) == record
    assert record.to_dict()["id"] == "a:w:*:k"


def test_a_scope_reads_as_people_say_it():
    assert str(Scope(agent_id="a")) == "agent 'a'"
    assert str(Scope(agent_id="a", workflow_id="w", node_id="n")) == "node 'n' of workflow 'w' of agent 'a'"


def test_the_forms_of_a_record_are_short_and_escaped() -> None:
    now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    record = MemoryRecord(
        agent_id="a", key="<k>", value="<b>" + "x" * 100_000, created_at=now, updated_at=now, version=3, tags=("t",)
    )
    assert repr(record).startswith("MemoryRecord('<k>', value='<b>xxx")
    assert repr(record).endswith("…, version=3, tags=('t',))")
    assert len(repr(record)) < 300
    page = record._repr_html_()
    assert len(page) < 11_000
    assert "&lt;b&gt;xxx" in page
    assert "&lt;k&gt; · version 3 · t · 2026-01-02 00:00:00 UTC" in page
    assert "90,003 more characters" in page


@pytest.mark.parametrize(
    ("value", "text"),
    [("int64(5)", "5"), ("bool_(True)", "true"), ("array([[1, 2]])", "[[1,2]]"), ("float32(0.5)", "0.5")],
)
def test_numbers_of_numpy_are_the_numbers_that_they_are(value: str, text: str) -> None:
    numpy = pytest.importorskip("numpy")
    made = eval(f"numpy.{value}", {"numpy": numpy})
    assert encode_value({"a": made}, Limits()) == f'{{"a":{text}}}'


def test_what_json_lacks_is_refused_with_the_way_on() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    for value, way in (
        ({"when": dt.date(2024, 1, 1)}, r"value\.when is a date: \.isoformat\(\) turns it into text"),
        (pandas.DataFrame({"a": [1]}), r"a DataFrame: %memory save KEY {name} keeps a table"),
        ([numpy.array([1.0, numpy.nan])], "nan"),
    ):
        with pytest.raises(InvalidArguments, match=way):
            encode_value(value, Limits())
