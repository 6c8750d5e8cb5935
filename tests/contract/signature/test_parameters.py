"""Types become schemas and given values become the function's own types."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from nbtools.contract.signature.parameters import FunctionParameters, SchemaParameters
from nbtools.contract.tool import tool_of
from nbtools.errors import InvalidArguments


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place on the page."""

    model_config = ConfigDict(extra="forbid")
    x: float = Field(description="centimetres from the left")
    y: float = 0.0


class Shape(BaseModel):
    name: str
    corners: list[Point] = []
    inside: Shape | None = None


def _parameters(function: Any) -> Any:
    made = tool_of(function).parameters
    assert isinstance(made, FunctionParameters)
    jsonschema.Draft202012Validator.check_schema(made.schema())
    return made


def _one(hint: Any, default: Any = ...) -> Any:
    """Return the parameters of a function with one argument `x` of a type."""
    if default is ...:

        def required(x: hint) -> None: ...

        return _parameters(required)

    def optional(x: hint = default) -> None: ...

    return _parameters(optional)


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (int, 3, 3),
        (int, "3", 3),
        (float, 3, 3.0),
        (bool, "yes", True),
        (str, "", ""),
        (Path, "a/b.csv", Path("a/b.csv")),
        (dt.datetime, "2024-05-01T10:00:00Z", dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)),
        (dt.date, "2024-05-01", dt.date(2024, 5, 1)),
        (dt.timedelta, "PT1M", dt.timedelta(minutes=1)),
        (uuid.UUID, "12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678")),
        (Colour, "red", Colour.RED),
        (Literal["a", 1], 1, 1),
        (Optional[int], None, None),  # noqa: UP045 - the old spelling is what many write
        (int | str, "x", "x"),
        (list[int], ["1", 2], [1, 2]),
        (Sequence[str], ["a"], ["a"]),
        (set[int], [1, 1], {1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (dict[str, Any], {"a": [None]}, {"a": [None]}),
        (dict, {"a": 1}, {"a": 1}),
        (list, [1, "a"], [1, "a"]),
        (Any, [1], [1]),
        (Point, {"x": 1}, Point(x=1)),
        (Shape, {"name": "s", "inside": {"name": "t"}}, Shape(name="s", inside=Shape(name="t"))),
        (Annotated[int, Field(ge=1, le=3)], 3, 3),
        (Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=2)], ["a"], ["a"]),
    ],
    ids=str,
)
def test_values_arrive_in_the_functions_own_types(hint: Any, given: Any, value: Any) -> None:
    found = _one(hint).validate({"x": given})["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("hint", "given"),
    [
        (int, "three"),
        (int, None),
        (int, 3.5),
        (str, 3),
        (Colour, "green"),
        (Literal["a", "b"], "c"),
        (dt.datetime, "yesterday"),
        (Point, {"x": 1, "z": 2}),
        (Point, {}),
        (list[int], "12"),
        (Annotated[int, Field(ge=1)], 0),
        (Annotated[str, Field(pattern="^a+$")], "b"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_refused_with_the_place(hint: Any, given: Any) -> None:
    with pytest.raises(InvalidArguments, match="one problem with the arguments: x") as caught:
        _one(hint).validate({"x": given})
    assert caught.value.hint == "The arguments are x."


def test_the_schema_describes_constraints_enums_and_nested_models() -> None:
    def draw(
        where: Point,
        colour: Colour = Colour.RED,
        size: Annotated[int, Field(gt=0, description="millimetres")] = 3,
        tags: list[str] | None = None,
        kind: Literal["line", "dot"] = "dot",
    ) -> None:
        """Draw.

        Parameters
        ----------
        where
            The place.
        size
            Loses against the type's own words.
        """

    schema = _parameters(draw).schema()
    assert schema["required"] == ["where"]
    properties = schema["properties"]
    assert properties["where"] == {"$ref": "#/$defs/Point", "description": "The place."}
    assert properties["size"] == {"type": "integer", "exclusiveMinimum": 0, "default": 3, "description": "millimetres"}
    assert properties["tags"] == {
        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
        "default": None,
    }
    assert properties["kind"] == {"type": "string", "enum": ["line", "dot"], "default": "dot"}
    assert properties["colour"]["default"] == "red"
    assert schema["$defs"]["Colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["$defs"]["Point"]["properties"]["x"]["description"] == "centimetres from the left"


def test_all_problems_are_named_at_once() -> None:
    def copy(source: str, target: str, limit: int = 1) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        _parameters(copy).validate({"sourc": "a", "limit": "many"})
    assert len(caught.value.data["problems"]) == 4
    message = caught.value.message
    assert message.startswith("4 problems with the arguments: ")
    assert "source: required, but not given" in message
    assert "target: required, but not given" in message
    assert "sourc: unknown argument, did you mean 'source'?" in message
    assert "limit: " in message
    assert "found 'many'" in message
    assert caught.value.hint == "The arguments are source, target, limit."


def test_a_problem_speaks_of_json_not_of_python() -> None:
    def mark(tags: tuple[str, ...], kinds: set[str]) -> None: ...

    with pytest.raises(
        InvalidArguments, match=r"tags: Input should be a valid list.*kinds: Input should be a valid list"
    ):
        _parameters(mark).validate({"tags": "x", "kinds": "y"})


def test_the_outline_lists_the_values_that_a_type_lists() -> None:
    class Side(enum.Enum):
        LEFT = "l"
        RIGHT = "r"

    def put(
        name: str, sides: Annotated[list[Side], Field(min_length=1)], how: Literal["a", "b"] | None = None
    ) -> None: ...

    assert _parameters(put).outline() == {"name": (), "sides": ("l", "r"), "how": ("a", "b")}


def test_a_tool_without_arguments_says_so() -> None:
    def nothing() -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        _parameters(nothing).validate({"x": 1})
    assert caught.value.hint == "The tool takes no arguments."


def test_parameters_may_have_the_names_of_a_models_own_methods() -> None:
    def odd(schema: str, copy: int, model_config: str, json: str = "j", title: str = "t", self_: int = 0) -> None: ...

    made = _parameters(odd)
    assert made.validate({"schema": "s", "copy": 1, "model_config": "m"}) == {
        "schema": "s",
        "copy": 1,
        "model_config": "m",
        "json": "j",
        "title": "t",
        "self_": 0,
    }
    assert made.schema()["properties"]["title"] == {"default": "t", "type": "string"}


def test_defaults_are_values_and_keep_their_titles() -> None:
    def plot(options: dict[str, Any] = {"title": "A plot"}) -> None: ...  # noqa: B006 - schemas show such defaults

    made = _parameters(plot)
    assert made.schema()["properties"]["options"]["default"] == {"title": "A plot"}
    first = made.validate({})["options"]
    first["more"] = 1
    assert made.validate({})["options"] == {"title": "A plot"}, "the default is not shared between calls"


def test_the_callers_arguments_are_not_changed() -> None:
    given = {"x": ["1"]}
    _one(list[int]).validate(given)
    assert given == {"x": ["1"]}


def test_classes_local_to_a_function_are_found_though_annotations_are_postponed() -> None:
    class Local(BaseModel):
        n: int

    def use(x: Local) -> None: ...

    assert _parameters(use).validate({"x": {"n": 1}})["x"] == Local(n=1)


def test_a_type_that_nobody_knows_is_named_when_the_schema_is_read() -> None:
    def use(x: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is the case

    with pytest.raises(NameError, match="Unknown"):
        tool_of(use).schema  # noqa: B018 - reading it is the act


def test_a_type_that_comes_after_the_tool_in_a_module_is_found() -> None:
    namespace: dict[str, Any] = {"__name__": "a_module"}
    exec(  # a module whose function names a class further down
        "from __future__ import annotations\n"
        "from nbtools.contract.tool import tool\n"
        "@tool\n"
        "def use(x: Below) -> int:\n    'Use it.'\n"
        "class Below(int): pass\n"
        "from pydantic import BaseModel\n"
        "class Below(BaseModel):\n    n: int\n",
        namespace,
    )
    assert tool_of(namespace["use"]).parameters.validate({"x": {"n": 2}})["x"].n == 2


@pytest.mark.parametrize(
    ("prop", "value", "fits"),
    [
        (True, {"a": object}, True),
        ({}, 1, True),
        ({"type": "number"}, 1, True),
        ({"type": "integer"}, 1.5, False),
        ({"type": "integer"}, True, False),
        ({"type": ["array", "null"]}, None, True),
        ({"type": "object"}, [], False),
        ({"anyOf": [{"type": "string"}]}, 1, True),
    ],
)
def test_a_schema_from_elsewhere_judges_the_plain_type_of_a_value(prop, value, fits) -> None:
    parameters = SchemaParameters({"properties": {"x": prop}})
    assert parameters.outline() == {"x": ()}
    if fits:
        assert parameters.validate({"x": value}) == {"x": value}
    else:
        with pytest.raises(InvalidArguments, match="x: expected"):
            parameters.validate({"x": value})
