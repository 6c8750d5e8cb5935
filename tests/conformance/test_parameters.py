"""What all kinds of parameters promise: an object schema, all problems at once, nothing of the caller's changed."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from nbtools.contract.signature.parameters import FunctionParameters, Parameters, PartialParameters, SchemaParameters
from nbtools.contract.tool import tool_of
from nbtools.errors import InvalidArguments

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where."},
        "limit": {"type": "integer", "default": 10},
        "deep": {"type": "boolean", "default": False},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def _function(path: str, limit: int = 10, deep: bool = False) -> None:
    """Look for it.

    Parameters
    ----------
    path
        Where.
    """


def _wider(path: str, secret: str, limit: int = 10, deep: bool = False) -> None:
    """Look for it.

    Parameters
    ----------
    path
        Where.
    """


@pytest.fixture(params=["function", "schema", "partial"])
def parameters(request: pytest.FixtureRequest) -> Parameters:
    match request.param:
        case "function":
            made = tool_of(_function).parameters
            assert isinstance(made, FunctionParameters)
            return made
        case "schema":
            return SchemaParameters(SCHEMA)
        case _:
            return PartialParameters(tool_of(_wider).parameters, fixed={"secret": "hidden"})


def test_the_schema_is_valid_and_the_same_for_all_kinds(parameters: Parameters) -> None:
    schema = parameters.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == SCHEMA


def test_changing_a_schema_that_was_handed_out_changes_nothing(parameters: Parameters) -> None:
    parameters.schema()["properties"].clear()
    assert parameters.schema() == SCHEMA


def test_defaults_are_filled_in(parameters: Parameters) -> None:
    found = parameters.validate({"path": "a"})
    assert {name: found[name] for name in ("path", "limit", "deep")} == {"path": "a", "limit": 10, "deep": False}


def test_the_callers_mapping_stays_as_it_is(parameters: Parameters) -> None:
    given = {"path": "a"}
    parameters.validate(given)
    assert given == {"path": "a"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ["path"]),
        ({"path": 3}, ["path"]),
        ({"path": "a", "limit": []}, ["limit"]),
        ({"pth": "a", "limit": {}}, ["path", "pth", "limit"]),
    ],
)
def test_every_problem_is_named_and_only_open_arguments_are_offered(
    parameters: Parameters, given: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parameters.validate(given)
    told = [problem.partition(":")[0] for problem in caught.value.data["problems"]]
    assert set(told) <= set(named)
    assert told
    assert caught.value.hint == "The arguments are path, limit, deep."
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_no_parameter_is_filled_in_by_the_door_here(parameters: Parameters) -> None:
    assert parameters.hidden_name is None
