"""Schemas before judges that are not ours: pydantic-ai's for the same functions, the meta-schema, the providers' types.

Where ours differ from pydantic-ai's on purpose, `AGREED` says how and why; any other difference fails.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import inspect
import json
import math
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from nbtools.contract.execute import LocalExecutor
from nbtools.contract.result import Output, ToolResult
from nbtools.contract.schema import FORMATS, output_schema, to_mcp
from nbtools.contract.signature.schema_mistakes import mistakes_of
from nbtools.contract.tool import Context, ToolCall, tool_of
from nbtools.toolbox import STANDARD

pytestmark = pytest.mark.broad

SHELF = {tool_of(function).name: function for toolset in STANDARD for function in toolset}


class Shade(enum.Enum):
    DARK = "dark"
    LIGHT = "light"


class Place(BaseModel):
    x: float
    label: str | None = None
    near: list[Place] = []


def many_kinds(
    place: Place,
    path: Path,
    when: dt.datetime,
    shade: Shade = Shade.DARK,
    size: Annotated[int, Field(gt=0, le=10)] = 3,
    ratio: Annotated[float, Field(ge=0, lt=1, description="A share of the whole.")] = 0.5,
    kind: Literal["line", "dot"] | None = None,
    places: list[Place] | None = None,
    options: dict[str, int | str] | None = None,
    pair: tuple[int, str] = (1, "a"),
    names: set[str] | None = None,
) -> None:
    """Take arguments of many kinds.

    Parameters
    ----------
    place
        Where it is,
        told over two lines.
    size : int
        Between one and ten.
    """


def anything_at_all(value: Any, table: dict[str, Any], items: list[Any]) -> None:
    """Take whatever comes.

    Parameters
    ----------
    value
        Anything.
    """


def nothing() -> None:
    """Take nothing."""


def without_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the same signature without the parameter that the door fills in."""
    hints = typing.get_type_hints(function, include_extras=True)
    shown = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
        if hints.get(name) is not Context
    ]

    def alike(**arguments: Any) -> None: ...

    alike.__name__, alike.__doc__, alike.__module__ = function.__name__, function.__doc__, function.__module__
    alike.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    alike.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # inspect reads it
    return alike


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema within a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from nodes(item)
    elif isinstance(schema, dict):
        yield schema
        for item in schema.values():
            yield from nodes(item)


def in_one_line(schema: Any) -> None:
    """Ours: a description is a sentence, so the line breaks of the source file do not belong to it."""
    for node in nodes(schema):
        if isinstance(node.get("description"), str):
            node["description"] = " ".join(node["description"].split())


def any_value_unsaid(schema: Any) -> None:
    """Ours: a value of any kind is said to be any JSON value; models, and the inspector, take silence for a mistake."""
    plain = [{"type": name} for name in ("string", "number", "boolean", "null", "object")]
    said = [*plain, {"type": "array", "items": {"anyOf": plain}}]
    for node in reversed(list(nodes(schema))):  # the inner ones first
        if node.get("anyOf") == said:
            del node["anyOf"]
        if node.get("items") == {}:
            del node["items"]
        if node.get("additionalProperties") == {}:
            node["additionalProperties"] = True


def untitled_definitions(schema: Any) -> None:
    """Ours: a definition has no title, which would only repeat its name and cost tokens in each request."""
    for definition in schema.get("$defs", {}).values():
        definition.pop("title", None)


AGREED = (in_one_line, any_value_unsaid, untitled_definitions)


@pytest.mark.parametrize("function", [*SHELF.values(), many_kinds, anything_at_all, nothing], ids=lambda f: f.__name__)
def test_pydantic_ai_sees_the_same_schema(function: Callable[..., Any]) -> None:
    from pydantic_ai.tools import Tool as TheirTool

    theirs = TheirTool(without_context(function), takes_ctx=False, docstring_format="numpy")
    ours = copy.deepcopy(tool_of(function).schema)
    expected = copy.deepcopy(theirs.function_schema.json_schema)
    for agree in AGREED:
        agree(ours)
        agree(expected)
    assert ours == expected
    assert tool_of(function).description == theirs.description


def listed(form: str) -> list[dict[str, Any]]:
    """Return what `nbtools tools --json` prints in a format."""
    command = [sys.executable, "-m", "nbtools.cli", "tools", "--json", "--format", form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(done.stdout)
    assert len(found) == len(SHELF)
    return list(found)


SCHEMA_OF: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "json-schema": lambda found: found,
    "anthropic": lambda found: found["input_schema"],
    "openai": lambda found: found["function"]["parameters"],
    "gemini": lambda found: found["parametersJsonSchema"],
    "mcp": lambda found: found["inputSchema"],
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_schema_of_every_format_passes_the_meta_schema(form: str) -> None:
    for name, function in SHELF.items():
        schema = SCHEMA_OF[form](FORMATS[form](tool_of(function)))
        jsonschema.Draft202012Validator.check_schema(schema)
        # The meta-schema lets unknown words pass; there are none.
        known = set(jsonschema.Draft202012Validator.VALIDATORS) | {
            *("$schema", "$defs", "title", "description", "default", "examples", "discriminator", "format"),
            *("then", "else"),
        }
        for node in schema_nodes(schema):
            assert node.keys() <= known, f"{name}: {node.keys() - known}"


def schema_nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas within a schema, and neither its values nor its tables of names."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, item in schema.items():
        if key in {"properties", "$defs", "patternProperties"}:
            for inner in item.values():
                yield from schema_nodes(inner)
        elif key in {"anyOf", "oneOf", "allOf", "prefixItems"}:
            for inner in item:
                yield from schema_nodes(inner)
        elif key in {"items", "additionalProperties", "not"}:
            yield from schema_nodes(item)


class Tally(TypedDict):
    count: int
    label: NotRequired[str]


class Node(BaseModel):
    size: float = Field(alias="SIZE")
    near: list[Node] = []
    model_config = ConfigDict(extra="forbid")


@dataclasses.dataclass
class Visit:
    when: dt.datetime
    where: Path | None = None


ROOT = Node(SIZE=math.inf, near=[Node(SIZE=1)])


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (float, math.nan, "x"),
        (dict[str, int], {"a": 1}, {"a": "x"}),
        (dict[str, int] | None, None, {"a": "x"}),
        (dict[str, int] | None, {"a": 1}, "x"),
        (dict[Shade, int], {"dark": 1}, {"grey": 1}),
        (Tally, {"count": 1, "label": "x", "more": None}, {}),
        (Output[Tally], Output(data={"count": 1}), Output(data={"label": "x"})),
        (Output[Tally] | str, "x", Output(data=1)),
        (Annotated[Output[list[Tally]], "told"], Output(data=[{"count": 1}]), Output(data=[{}])),
        (Node, ROOT, {}),
        (list[Node] | Node, [ROOT], {}),
        (Visit, Visit(dt.datetime.fromisoformat("2026-01-01")), {"when": 1}),
        (tuple[int, Decimal], (1, Decimal("1.5")), [1, 2, 3]),
        (None, None, 1),
    ],
)
def test_the_return_type_says_what_comes_over_mcp(hint: Any, good: Any, bad: Any) -> None:
    def give(well: bool) -> Any:
        """Give something."""
        return good if well else bad

    give.__annotations__["return"] = hint
    schema = to_mcp(tool_of(give))["outputSchema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert mistakes_of(schema) == []
    executor = LocalExecutor([give])
    for well in (True, False):
        data = executor.call(ToolCall(tool="give", arguments={"well": well})).raise_for_error().data
        content = data if isinstance(data, dict) else {"result": data}
        assert jsonschema.Draft202012Validator(schema).is_valid(content) is well


@pytest.mark.parametrize(
    "hint", [Any, Output, ToolResult, dict[str, int] | Any, object(), "Nowhere", typing.Iterator[int]]
)
def test_a_return_type_that_says_nothing_admits_every_object(hint: Any) -> None:
    def give() -> None:
        """Give something."""

    give.__annotations__["return"] = hint
    assert output_schema(tool_of(give)) == {"type": "object"}


@pytest.mark.processes
def test_openai_takes_what_is_listed() -> None:
    from openai.types.chat import ChatCompletionFunctionToolParam

    adapter = TypeAdapter(ChatCompletionFunctionToolParam)
    strict = 0
    for found in listed("openai"):
        assert adapter.validate_python(found, strict=True) == found
        strict += found["function"]["strict"]
    assert strict >= 20


@pytest.mark.processes
def test_openai_finds_nothing_to_change_in_strict_schemas() -> None:
    """Its SDK makes a schema strict for its users; ours must come out as they went in."""
    from openai.lib._pydantic import _ensure_strict_json_schema

    for found in listed("openai"):
        if found["function"]["strict"]:
            given = found["function"]["parameters"]
            made = _ensure_strict_json_schema(copy.deepcopy(given), path=(), root=copy.deepcopy(given))
            assert made == given, found["function"]["name"]


@pytest.mark.slow
@pytest.mark.processes
def test_anthropic_takes_what_is_listed() -> None:
    from anthropic.types import ToolParam

    adapter = TypeAdapter(ToolParam)
    for found in listed("anthropic"):
        assert adapter.validate_python(found) == found


@pytest.mark.processes
def test_gemini_takes_what_is_listed() -> None:
    from google.genai import types

    declared = [types.FunctionDeclaration.model_validate(found) for found in listed("gemini")]
    sent = types.Tool(function_declarations=declared).model_dump(by_alias=True, exclude_none=True, mode="json")
    assert [found["name"] for found in sent["functionDeclarations"]] == list(SHELF)
    assert all(found["parametersJsonSchema"]["type"] == "object" for found in sent["functionDeclarations"])


@pytest.mark.processes
def test_mcp_takes_what_is_listed() -> None:
    from mcp import types

    for found in listed("mcp"):
        made = types.Tool.model_validate(found)
        assert made.model_dump(by_alias=True, exclude_none=True, mode="json") == found


@pytest.mark.parametrize("form", ["openai", "anthropic", "gemini", "mcp"])
def test_the_judges_refuse_what_is_wrong(form: str) -> None:
    from anthropic.types import ToolParam
    from google.genai import types as gemini
    from mcp import types as mcp
    from openai.types.chat import ChatCompletionFunctionToolParam

    judges: dict[str, Any] = {
        "openai": ChatCompletionFunctionToolParam,
        "anthropic": ToolParam,
        "gemini": gemini.FunctionDeclaration,
        "mcp": mcp.Tool,
    }
    wrong = {"type": 1, "name": ["calculator"], "input_schema": "text", "inputSchema": "text"}
    with pytest.raises(ValueError, match="validation error"):
        TypeAdapter(judges[form]).validate_python(wrong)
