"""Renderings of a tool's schema for models and for MCP: pure functions, provider quirks live only here."""

from __future__ import annotations

import copy
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nbtools.contract.result import Output, ToolResult
from nbtools.contract.signature.parameters import resolved, rewritten, untitled, with_any_said
from nbtools.contract.tool import Tool

_Schema = dict[str, Any]
# What a tool returns may be nested as deeply as it likes.
_ANY_DATA = {"anyOf": [{"type": name} for name in ("string", "number", "boolean", "null", "object", "array")]}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def to_json_schema(tool: Tool) -> _Schema:
    """Return the arguments as a JSON Schema document (2020-12)."""
    return {"$schema": _DIALECT, "title": tool.name, "description": tool.description, **copy.deepcopy(tool.schema)}


def to_anthropic(tool: Tool) -> _Schema:
    """Return the tool as Anthropic's Messages API takes it."""
    return {"name": tool.name, "description": tool.description, "input_schema": copy.deepcopy(tool.schema)}


def to_openai(tool: Tool, *, strict: bool = True) -> _Schema:
    """Return the tool as OpenAI's chat API takes it.

    Parameters
    ----------
    tool
        The tool.
    strict
        Ask for strict schemas: every property is required, an optional one admits null, and nothing else is admitted.
        A tool whose arguments cannot be said that way (an open dict, for example) is rendered plainly.
    """
    strict = strict and is_strict(tool.schema)
    parameters = _strict(tool.schema) if strict else copy.deepcopy(tool.schema)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": function}


def to_gemini(tool: Tool) -> _Schema:
    """Return the tool as a function declaration of Gemini's API, which takes JSON Schema as it is."""
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": copy.deepcopy(tool.schema)}


def to_mcp(tool: Tool) -> _Schema:
    """Return the tool as MCP lists it, effects as annotations: left out where none are declared, or only claimed."""
    effects = tool.effects
    return {
        "name": tool.name,
        "title": tool.title or tool.name.replace("_", " ").capitalize(),
        "description": tool.description,
        "inputSchema": copy.deepcopy(tool.schema),
        "outputSchema": output_schema(tool),
        "annotations": {}
        if effects.undeclared or not tool.trusted
        else {
            "readOnlyHint": effects.read_only,
            "destructiveHint": effects.destructive,
            "idempotentHint": effects.idempotent,
            "openWorldHint": effects.open_world,
        },
    }


FORMATS: Mapping[str, Callable[[Tool], _Schema]] = {
    "json-schema": to_json_schema,
    "anthropic": to_anthropic,
    "openai": to_openai,
    "gemini": to_gemini,
    "mcp": to_mcp,
}


def data_schema(tool: Tool) -> _Schema:
    """Return the JSON Schema of the data of a tool's result; ``{}`` where its return type says nothing."""
    try:
        declared = tool.returns()
        return copy.deepcopy(dict(declared)) if isinstance(declared, Mapping) else _schema_of(_data_type(declared))
    except Exception:  # of a type that is not there, not finished, or not pydantic's; its own hooks raise anything
        return {}


def output_schema(tool: Tool) -> _Schema:
    """Return the JSON Schema (2020-12) of a tool's structured content over MCP, made of its return type.

    The content is the data itself where that is an object, and ``{"result": data}`` otherwise. A return type that says
    nothing, or that pydantic does not know, gives the schema which every object fits.
    """
    schema = data_schema(tool)
    try:
        if isinstance(tool.returns(), Mapping):
            return schema
        contents = list(_contents(schema, schema))
    except Exception:  # of a type that is not there, not finished, or leads back into itself
        return {"type": "object"}
    if {"type": "object"} in contents:
        return {"type": "object"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    chosen = contents[0] if len(contents) == 1 else {"anyOf": contents}
    return {"type": "object", **chosen, **definitions}


def _data_type(hint: Any) -> Any:
    """Return the type of the data of what a function returns."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[tuple(map(_data_type, inner))]  # noqa: UP007 - of a tuple
    if hint in (Output, ToolResult):
        return Any
    if origin is typing.Annotated and (data := _data_type(inner[0])) is not inner[0]:
        return data
    return inner[0] if origin is Output else hint


def _contents(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[_Schema]:
    """Yield the schemas of the structured content, one for each choice that the schema of the data leaves."""
    inner = resolved(node, root)
    if options := inner.get("anyOf", inner.get("oneOf")):
        for option in options:
            yield from _contents(option, root)
    elif inner.get("type") == "object":
        yield {key: value for key, value in node.items() if key != "$defs"}
    elif inner.keys() & {"type", "enum", "const"}:
        wrapped = {key: value for key, value in node.items() if key != "$defs"}
        yield {"type": "object", "properties": {"result": wrapped}, "required": ["result"]}
    else:
        yield {"type": "object"}


def _schema_of(hint: Any) -> _Schema:
    from pydantic import TypeAdapter

    raw = TypeAdapter(hint).json_schema(by_alias=False, mode="serialization", schema_generator=_generator())
    schema: _Schema = with_any_said(untitled(raw), _ANY_DATA)
    return schema


@functools.cache
def _generator() -> Any:
    """Return pydantic's generator of schemas, changed to values as the door writes them."""
    from pydantic.json_schema import GenerateJsonSchema

    def number(self: Any, schema: Any) -> _Schema:
        return {"anyOf": [{"type": "number"}, {"type": "null"}]}  # NaN and infinity are written as null

    def text(self: Any, schema: Any) -> _Schema:
        return {"type": "string"}  # the format of JSON Schema wants a time zone, ``isoformat`` does not

    own = {"float_schema": number, "decimal_schema": number, "datetime_schema": text, "time_schema": text}
    return type("Written", (GenerateJsonSchema,), own)


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Tell whether a schema can be rendered strictly: every object in it has named properties and no others."""

    def closed(node: Any) -> bool:
        if isinstance(node, list):
            return all(closed(item) for item in node)
        if not isinstance(node, Mapping):
            return True
        types = node.get("type")
        if (types == "object" or "properties" in node) and not _is_closed_object(node):
            return False
        if types == "array" and "items" not in node:
            return False
        if node.keys() <= {"description", "default"} and node:
            return False  # no type at all: any value would do
        children = {key: value for key, value in node.items() if key not in {"default", "examples", "enum", "const"}}
        named = [children.pop(key, {}) for key in ("properties", "$defs")]
        return all(closed(value) for value in children.values()) and all(
            closed(value) and value != {} for table in named for value in table.values()
        )

    return closed(schema)


def _is_closed_object(node: Mapping[str, Any]) -> bool:
    # A nested pydantic model admits other keys unless it forbids them, and that it ignores them is near enough.
    return "properties" in node and not node.get("additionalProperties")


# What the strict mode of OpenAI refuses inside a schema.
_NOT_STRICT = {"default", "format", "minLength", "maxLength", "uniqueItems", "examples", "title", "discriminator"}


def _strict(schema: Mapping[str, Any]) -> _Schema:
    """Return the strict form of a schema."""

    def change(node: _Schema) -> _Schema:
        # A reference stands alone in strict mode, without a description beside it.
        if "$ref" in node:
            return {"$ref": node["$ref"]}
        strict_node = {key: value for key, value in node.items() if key not in _NOT_STRICT}
        if "oneOf" in strict_node:
            strict_node["anyOf"] = strict_node.pop("oneOf")
        if "properties" in strict_node:
            required = node.get("required", ())
            strict_node["properties"] = {
                name: value if name in required else _nullable(value, schema)
                for name, value in strict_node["properties"].items()
            }
            strict_node["required"] = list(strict_node["properties"])
            strict_node["additionalProperties"] = False
        return strict_node

    strict: _Schema = rewritten(schema, change)
    return strict


def _nullable(node: Mapping[str, Any], root: Mapping[str, Any]) -> _Schema:
    """Return a schema that admits null too: that is how strict mode says "not given"."""
    if admits_null(node, root):
        return dict(node)
    described = {"description": node["description"]} if "description" in node else {}
    rest = {key: value for key, value in node.items() if key != "description"}
    if "anyOf" in rest:
        return {**described, "anyOf": [*rest["anyOf"], {"type": "null"}]}
    return {**described, "anyOf": [rest, {"type": "null"}]}


def admits_null(node: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Tell whether a property's schema admits null."""
    node = resolved(node, root)
    types = node.get("type")
    if types == "null" or (isinstance(types, list) and "null" in types):
        return True
    if "enum" in node and None in node["enum"]:
        return True
    return any(admits_null(option, root) for option in node.get("anyOf", ()))
