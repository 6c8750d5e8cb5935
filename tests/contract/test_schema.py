"""Renderings for each provider: pure, valid, strict where that can be said."""

from __future__ import annotations

import copy
import dataclasses
import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from nbtools.contract.schema import (
    FORMATS,
    admits_null,
    is_strict,
    to_anthropic,
    to_gemini,
    to_json_schema,
    to_mcp,
    to_openai,
)
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Tool, tool, tool_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Corner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: float
    label: str | None = None
    next: Corner | None = None


@tool(destructive=True, open_world=True)
def draw(
    where: Corner,
    path: Path,
    colour: Colour = Colour.RED,
    size: Annotated[int, Field(gt=0, le=10)] = 3,
    kind: Literal["line", "dot"] | None = None,
    corners: list[Corner] = [],  # noqa: B006 - schemas show such defaults
) -> None:
    """Draw a thing.

    Parameters
    ----------
    where
        The place.
    kind
        How it looks.
    """


@tool(read_only=True, idempotent=True, title="Show all")
def show(options: dict[str, Any], anything: Any = None) -> None:
    """Show it."""


def plain() -> None:
    """Do nothing."""


ALL = [tool_of(draw), tool_of(show), tool_of(plain)]


def _parameters(form: str, rendered: dict[str, Any]) -> dict[str, Any]:
    return {
        "json-schema": lambda: rendered,
        "anthropic": lambda: rendered["input_schema"],
        "openai": lambda: rendered["function"]["parameters"],
        "gemini": lambda: rendered["parametersJsonSchema"],
        "mcp": lambda: rendered["inputSchema"],
    }[form]()


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
@pytest.mark.parametrize("form", FORMATS)
def test_every_rendering_is_a_valid_schema_and_changes_nothing(form: str, made: Tool) -> None:
    before = copy.deepcopy(made.schema)
    rendered = FORMATS[form](made)
    jsonschema.Draft202012Validator.check_schema(_parameters(form, rendered))
    _parameters(form, rendered).clear()
    assert made.schema == before


@pytest.mark.parametrize("form", FORMATS)
def test_arguments_that_fit_the_tool_fit_every_rendering(form: str) -> None:
    corner = {"x": 1.5, "label": None, "next": None}
    whole = {"where": corner, "path": "a", "colour": "red", "size": 3, "kind": None, "corners": [corner]}
    rendered = _parameters(form, FORMATS[form](tool_of(draw)))
    jsonschema.Draft202012Validator(rendered).validate(whole)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(rendered).validate({**whole, "unknown": 1})
    tool_of(draw).parameters.validate(whole)


def test_the_document_names_its_dialect() -> None:
    document = to_json_schema(tool_of(draw))
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (document["title"], document["description"]) == ("draw", "Draw a thing.")


def test_anthropic_and_gemini_take_the_schema_as_it_is() -> None:
    schema = tool_of(draw).schema
    assert to_anthropic(tool_of(draw)) == {"name": "draw", "description": "Draw a thing.", "input_schema": schema}
    assert to_gemini(tool_of(draw)) == {
        "name": "draw",
        "description": "Draw a thing.",
        "parametersJsonSchema": schema,
    }


def test_mcp_carries_the_effects_as_annotations() -> None:
    assert to_mcp(tool_of(show))["title"] == "Show all"
    assert to_mcp(tool_of(draw))["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }


def test_mcp_leaves_the_hints_of_undeclared_effects_to_the_protocol() -> None:
    @tool
    def wipe() -> None:
        """Wipe all."""

    assert to_mcp(tool_of(wipe))["annotations"] == {}


def test_mcp_hands_on_no_hint_that_an_outside_server_only_claims() -> None:
    assert to_mcp(dataclasses.replace(tool_of(draw), trusted=False))["annotations"] == {}


def _objects(node: Any) -> list[dict[str, Any]]:
    """Return every object schema within a schema."""
    if isinstance(node, list):
        return [found for item in node for found in _objects(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if node.get("type") == "object" else []
    return own + [found for item in node.values() for found in _objects(item)]


def test_strict_mode_requires_every_property_and_lets_optional_ones_be_null() -> None:
    function = to_openai(tool_of(draw))["function"]
    assert function["strict"] is True
    parameters = function["parameters"]
    for found in _objects(parameters):
        assert found["required"] == list(found["properties"])
        assert found["additionalProperties"] is False
    assert "default" not in str(parameters)
    assert admits_null(parameters["properties"]["size"], parameters)
    assert parameters["properties"]["kind"]["description"] == "How it looks."
    assert not admits_null(parameters["properties"]["path"], parameters)
    assert is_strict(parameters)


def test_strict_mode_leaves_the_keys_of_a_constant_alone() -> None:
    chosen = {"enum": [{"title": "A", "default": 1}]}
    schema = {"type": "object", "properties": {"chosen": chosen}, "required": ["chosen"], "additionalProperties": False}
    pick = dataclasses.replace(tool_of(draw), parameters=SchemaParameters(schema))
    assert to_openai(pick)["function"]["parameters"]["properties"] == {"chosen": chosen}


def test_an_open_dict_is_rendered_plainly() -> None:
    function = to_openai(tool_of(show))["function"]
    assert function["strict"] is False
    assert function["parameters"] == tool_of(show).schema
    assert to_openai(tool_of(draw), strict=False)["function"]["parameters"] == tool_of(draw).schema


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object"}, False),
        ({"type": "object", "properties": {"a": {}}}, False),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, False),
        ({"type": "object", "properties": {"a": {"description": "anything"}}}, False),
        ({"type": "object", "properties": {"default": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "object"}, {"type": "null"}]}}}, False),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}, False),
    ],
)
def test_strictness_is_told_by_the_shape(schema: dict[str, Any], strict: bool) -> None:
    assert is_strict(schema) is strict


@pytest.mark.parametrize(
    ("node", "admitted"),
    [
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, True),
        ({"type": "null"}, True),
        ({"enum": ["a", None]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"$ref": "#/$defs/Maybe"}, True),
        ({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Maybe"}]}, True),
    ],
)
def test_null_is_seen_through_references_and_choices(node: dict[str, Any], admitted: bool) -> None:
    assert admits_null(node, {"$defs": {"Maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}) is admitted
