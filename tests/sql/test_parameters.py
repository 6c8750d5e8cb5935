"""Parameters: what is a placeholder, what only looks like one, and how each engine wants it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.parameters import bind, placeholders

NAMED = [
    ("select :a", "select $a"),
    ("select :a+:a", "select $a+$a"),
    ("select $a", "select $a"),
    ("where x=:a", "where x=$a"),
    ("(:a)", "($a)"),
    ("[:a, 2]", "[$a, 2]"),
    ("{'k': :a}", "{'k': $a}"),
    (":a::int", "$a::int"),
    ("x::a, :a", "x::a, $a"),
    ("':a' || :a", "':a' || $a"),
    ("'it''s :a' || :a", "'it''s :a' || $a"),
    (r"e'\':a' || :a", r"e'\':a' || $a"),
    ('":a" = :a', '":a" = $a'),
    ("-- :a\n:a", "-- :a\n$a"),
    ("/* :a */ :a", "/* :a */ $a"),
    ("$$ :a $$ || :a", "$$ :a $$ || $a"),
    ("$t$ :a $t$ || :a", "$t$ :a $t$ || $a"),
    ("x[1:a] + :a", "x[1:a] + $a"),
    ("x[:a] + :a", "x[:a] + $a"),
    ("f(x)[:a] + :a", "f(x)[:a] + $a"),
    (":é + :a", ":é + $a"),
]


@pytest.mark.parametrize(("sql", "expected"), NAMED)
def test_names_become_placeholders_where_a_value_can_stand(sql: str, expected: str) -> None:
    assert bind(sql, {"a": 1}, "dollar") == (expected, {"a": 1})


def test_each_engine_gets_its_own_form() -> None:
    sql = "select :b, $a, :b"
    values = {"a": 1, "b": 2}
    assert bind(sql, values, "dollar") == ("select $b, $a, $b", values)
    assert bind(sql, values, "numbered") == ("select $1, $2, $1", [2, 1])
    assert bind(sql, values, "colon") == ("select :b, :a, :b", values)


def test_positions_are_counted_in_order() -> None:
    assert bind("? + ? -- ?", [1, 2], "dollar") == ("$1 + $2 -- ?", [1, 2])
    assert bind("$2 - $1", [1, 2], "numbered") == ("$2 - $1", [1, 2])
    assert bind("?2 + ?1 + ?2", [1, 2], "colon") == (":p2 + :p1 + :p2", {"p1": 1, "p2": 2})
    assert bind("? + '?'", [1], "colon") == (":p1 + '?'", {"p1": 1})


def test_without_values_the_text_is_left_alone() -> None:
    assert bind("select :a, ?, $b", None, "dollar") == ("select :a, ?, $b", None)


@pytest.mark.parametrize(
    ("sql", "values", "said"),
    [
        ("select $b", {"a": 1}, r"\$b"),
        ("select 1", {"a": 1}, ":a"),
        ("select ?", [1, 2], "1 placeholder, and was given 2 values"),
        ("select ?, ?", [1], "2 placeholders, and was given 1 value"),
        ("select ?", "text", "neither a dictionary nor a list"),
        ("select ?", 5, "int"),
    ],
)
def test_disagreement_is_said(sql: str, values: Any, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        bind(sql, values, "dollar")


def test_a_close_name_is_offered() -> None:
    with pytest.raises(InvalidArguments) as caught:
        bind("select $ammount, :amount", {"amount": 1}, "dollar")
    assert caught.value.hint == "Did you mean :amount?"


def test_numpy_numbers_become_plain_ones() -> None:
    _, values = bind("select :a", {"a": np.int64(5)}, "dollar")
    assert isinstance(values, dict)
    assert type(values["a"]) is int


def test_placeholders_are_listed_once_each() -> None:
    assert placeholders("select :b, $a, ':c', :b, x::int, y[:d]") == ("b", "a")
