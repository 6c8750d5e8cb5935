"""JSON Schemas as types: paths into them, conflicts between them, and values that do not fit."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbtools.workflow.schemas import ANY, SchemaType

HIT = {"type": "object", "properties": {"title": {"type": "string"}, "n": {"type": ["integer", "null"]}}}
RESULT = {
    "type": "object",
    "properties": {"hits": {"type": "array", "items": {"$ref": "#/$defs/Hit"}}, "any": {}, "open": {"type": "object"}},
    "additionalProperties": False,
    "$defs": {"Hit": HIT},
}


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        (("hits",), {"array"}),
        (("hits", 0, "title"), {"string"}),
        (("hits", 0, "n"), {"integer", "null"}),
        (("open", "x", "y"), None),
        (("any", 3, "y"), None),
        (("hits", "title"), "nowhere"),
        (("hits", 0, "tite"), "nowhere"),
        (("hits", 0, "title", "x"), "nowhere"),
        (("other",), "nowhere"),
    ],
)
def test_a_path_leads_to_a_type_or_nowhere(steps: tuple[str | int, ...], kinds: Any) -> None:
    found: SchemaType | None = SchemaType(RESULT)
    for step in steps:
        assert found is not None
        found = found.at(step)
    if kinds == "nowhere":
        assert found is None
    else:
        assert found is not None
        assert found.kinds() == (ANY.kinds() if kinds is None else kinds)


CONFLICTS: list[tuple[Any, Any, bool]] = [
    ({"type": "integer"}, {"type": "number"}, False),
    ({"type": "number"}, {"type": "integer"}, False),
    ({"type": "string"}, {"type": "integer"}, True),
    ({"type": "string"}, {}, False),
    ({}, {"type": "string"}, False),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}, False),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "null"}, True),
    ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, False),
    ({"enum": ["a"]}, {"enum": ["b", "c"]}, True),
    ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}, True),
    ({"type": "array"}, {"type": "array", "items": {"type": "integer"}}, False),
    (HIT, {"type": "object", "required": ["url"]}, True),
    (HIT, {"type": "object", "properties": {"title": {"type": "boolean"}}}, True),
    (HIT, {"type": "object", "additionalProperties": True}, False),
]


@pytest.mark.parametrize(("given_schema", "wanted", "conflict"), CONFLICTS)
def test_types_conflict_only_when_no_value_fits_both(given_schema: Any, wanted: Any, conflict: bool) -> None:
    assert (SchemaType(given_schema).conflict(SchemaType(wanted)) is not None) is conflict


_SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {},
            {"type": "string", "minLength": 1},
            {"type": "integer", "minimum": 0},
            {"type": "number", "maximum": 2},
            {"type": ["boolean", "null"]},
            {"enum": ["a", 1, None]},
            {"const": "a"},
            {"type": "string", "pattern": "^a"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 2}, inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda a, b: {
                "type": "object",
                "properties": {"a": a, "b": b},
                "required": ["a"],
                "additionalProperties": False,
            },
            inner,
            inner,
        ),
    ),
    max_leaves=6,
)
_VALUES = st.recursive(
    st.sampled_from(["", "a", "b", 0, 1, -1, 1.5, 3, True, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@given(_SCHEMAS, _VALUES)
def test_a_value_fits_when_the_reference_validator_says_so(schema: dict[str, Any], value: Any) -> None:
    ours = not list(SchemaType(schema).misfits(value, lambda _: ANY))
    assert ours is jsonschema.Draft202012Validator(schema).is_valid(value)
