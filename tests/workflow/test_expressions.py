"""Expressions: how they are read, what they become, and that nothing is ever evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbtools.errors import InvalidArguments
from nbtools.workflow.expressions import Expression, FilterCall, fill, parse, truth, walk

SCOPE: dict[str, Any] = {
    "inputs": {"name": "Ada", "rows": [1, 2, 3], "empty": None, "a-b": {"c d": True}},
    "nodes": {"n": {"ok": False, "data": {"x": [{"y": 1.5}]}, "text": "t"}},
    "env": {"HOME": "/root"},
    "item": "north",
}
FILLED: list[tuple[str, Any]] = [
    ("plain", "plain"),
    ("${inputs.name}", "Ada"),
    ("  ${inputs.name}", "  Ada"),
    ("${ inputs . name }", "Ada"),
    ("${inputs.rows}", [1, 2, 3]),
    ("${inputs.rows[-1]}", 3),
    ("${nodes.n.data.x[0].y}", 1.5),
    ("${inputs.a-b['c d']}", True),
    ('${inputs["a-b"]["c d"]}', True),
    ("of ${inputs.rows} and ${inputs.empty}", "of [1, 2, 3] and null"),
    ("${inputs.rows | len}", 3),
    ("${inputs.rows | join}", "1, 2, 3"),
    ("${inputs.rows | join(' and ')}", "1 and 2 and 3"),
    ("${nodes.n.data | json}", '{"x": [{"y": 1.5}]}'),
    ("${inputs.empty | default('none')}", "none"),
    ("${nodes.gone.text | default('it\\'s \"gone\"')}", 'it\'s "gone"'),
    ("${nodes.gone.data | default([]) | len}", 0),
    ("${inputs.name | default(1)}", "Ada"),
    ("$${inputs.name}", "${inputs.name}"),
    ("a$${b} ${item}", "a${b} north"),
    ("${env.HOME}/x", "/root/x"),
]


@pytest.mark.parametrize(("text", "value"), FILLED)
def test_a_text_is_filled_in(text: str, value: Any) -> None:
    assert fill(text, SCOPE) == value


def test_values_inside_of_lists_and_mappings_are_filled_in_and_the_rest_is_left() -> None:
    given_value = {"a": ["${item}", 1, None], "${b}": {"c": "${inputs.rows}"}}
    assert fill(given_value, SCOPE) == {"a": ["north", 1, None], "${b}": {"c": [1, 2, 3]}}
    assert given_value["a"][0] == "${item}"


@pytest.mark.parametrize(
    "text",
    [
        "${inputs.x}",
        "${nodes.n.data.z.q}",
        "${inputs.rows[3]}",
        "${inputs.name[0]}",
        "${gone}",
        "${inputs.name | join}",
    ],
)
def test_what_leads_nowhere_is_an_error_that_names_the_path(text: str) -> None:
    with pytest.raises(InvalidArguments, match=text.strip("${}").split(" ")[0].split("[")[0]):
        fill(text, SCOPE)


@pytest.mark.parametrize("text", ["${nodes.t.data.rows}", "${nodes.t.data.rows | len}", "${nodes.t.data.rows[-1]}"])
def test_the_first_rows_of_a_table_do_not_stand_for_all(text: str) -> None:
    table = {"parquet": "t.parquet", "row_count": 3, "rows": [[1], [2]], "truncated": True}
    with pytest.raises(InvalidArguments, match=r"nodes\.t\.data\.rows\S* has the first 2 of 3 rows"):
        fill(text, {"nodes": {"t": {"data": table}}})
    assert fill("${nodes.t.data.rows[1][0]}", {"nodes": {"t": {"data": table}}}) == 2
    assert fill(text, {"nodes": {"t": {"data": table | {"row_count": 2}}}})


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        (None, True),
        ("always", True),
        (True, True),
        (False, False),
        ("${inputs.rows}", True),
        ("${inputs.empty}", False),
        ("${nodes.n.ok}", False),
        ("${inputs.gone | default(false)}", False),
    ],
)
def test_a_condition_is_false_when_its_value_is_false_or_empty(when: Any, runs: bool) -> None:
    assert truth(when, SCOPE) is runs


def test_an_expression_knows_where_its_parts_stand() -> None:
    text = "see ${nodes.a['b c'][2] | default(\"x\") | len}!"
    found = parse(text).expressions[0]
    assert found == Expression(
        root="nodes",
        steps=("a", "b c", 2),
        filters=(FilterCall(name="default", args=("x",), start=26), FilterCall(name="len", start=41)),
        start=4,
        end=45,
        places=(6, 12, 14, 21),
    )
    assert [text[at] for at in found.places] == ["n", "a", "'", "2"]
    assert found.path == 'nodes.a["b c"][2]'
    assert (found.node, found.has_default) == ("a", True)


def test_every_mistake_of_a_text_is_told_and_the_others_are_read() -> None:
    made = parse("${} ${inputs.a} ${1} ${inputs.b +} ${inputs.c}")
    assert [error.start for error in made.errors] == [0, 18, 32]
    assert [expression.path for expression in made.expressions] == ["inputs.a", "inputs.c"]


@pytest.mark.parametrize(
    "text", ["${__import__('os').system('x')}", "${inputs.name.__class__}", "${inputs.rows.append}", "${().a}"]
)
def test_nothing_is_evaluated(text: str) -> None:
    with pytest.raises(InvalidArguments):
        fill(text, SCOPE)


@given(st.text(max_size=60))
def test_a_text_without_an_expression_stays_as_it_is(text: str) -> None:
    made = parse(text)
    if "${" not in text:
        assert made.parts == (text,)
        assert fill(text, {}) == text


@given(st.lists(st.sampled_from(["${", "}", "a", ".", "[", "]", "0", "'", '"', "|", "(", ")", "$", " ", "len", "\\"])))
def test_reading_never_fails(pieces: list[str]) -> None:
    text = "".join(pieces)
    for found in parse(text).expressions:
        assert text.startswith("${", found.start)
        assert text[found.end - 1] == "}"
    for error in parse(text).errors:
        assert 0 <= error.start <= len(text)


_KEYS = st.text(min_size=1, max_size=6)


@given(st.lists(_KEYS | st.integers(0, 3), max_size=4), st.integers() | st.text(max_size=5))
def test_a_path_written_out_leads_to_its_value(steps: list[str | int], value: Any) -> None:
    whole = value
    for step in reversed(steps):
        whole = {step: whole} if isinstance(step, str) else [None] * step + [whole]
    path = Expression(root="inputs", steps=tuple(steps)).path
    assert fill(f"${{{path}}}", {"inputs": whole}) == value


def test_texts_with_expressions_are_found_in_a_value() -> None:
    value = {"a": ["x", "${b}"], "c": {"d": "e ${f}"}, "g": 1}
    assert list(walk(value)) == [(("a", 1), "${b}"), (("c", "d"), "e ${f}")]
