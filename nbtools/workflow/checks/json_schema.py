"""Mistakes in the JSON Schemas that people write: words that do not exist, types, bounds, references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nbtools.errors import nearest
from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.document import Place
from nbtools.workflow.schemas import ANY, SchemaType
from nbtools.workflow.spec import AskNode, Fill, PromptNode

__all__ = ["check_schemas"]

_DEPTH = 60
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMAS = {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
_SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SCHEMA_TABLES = {"properties", "$defs", "patternProperties", "dependentSchemas"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains"}
_TEXTS = {"title", "description", "format", "pattern", "$ref", "$comment", "$id", "$schema", "$anchor"}
_OTHERS = {"type", "enum", "const", "required", "default", "examples", "uniqueItems", "deprecated", "readOnly"}
_MORE = {"writeOnly", "contentMediaType", "contentEncoding", "dependentRequired", "unevaluatedProperties"}
_KEYWORDS = _SCHEMAS | _SCHEMA_LISTS | _SCHEMA_TABLES | _NUMBERS | _COUNTS | _TEXTS | _OTHERS | _MORE
_PAIRS = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))


def check_schemas(subject: Subject) -> None:
    """Tell what is wrong with the schemas of inputs, results and forms, and of defaults that do not fit them."""
    for name, schema in subject.workflow.inputs.items():
        place: Place = ("inputs", name)
        if not _check(subject, schema, place) and "default" in schema:
            _check_default(subject, schema, place)
    for _, node in subject.nodes.values():
        if node.output is not None:
            _check(subject, node.output, subject.place(node, "output"))
        if isinstance(node, PromptNode) and node.output_schema is not None:
            _check(subject, node.output_schema, subject.place(node, "output_schema"))
            if node.output is not None:
                message = "output and output_schema say the same."
                subject.tell("WF020", subject.place(node, "output_schema"), message, "Keep one of them.", key=True)
        if isinstance(node, AskNode) and isinstance(node.ask, Fill):
            place = subject.place(node, "ask", "fill")
            if not _check(subject, node.ask.fill, place) and node.ask.fill.get("type") != "object":
                message = "A form is a schema of type object."
                subject.tell("WF053", place, message, "Write {type: object, properties: {…}}.", key=True)


def _check_default(subject: Subject, schema: dict[str, Any], place: Place) -> None:
    for misfit in SchemaType(schema).misfits(schema["default"], lambda _: ANY):
        message = misfit.message
        if misfit.what in {"missing", "unknown"}:
            message = f"It has {'no' if misfit.what == 'missing' else 'a surplus'} {message!r}."
        where = (*place, "default", *misfit.place)
        subject.tell("WF054", where, f"The default does not fit: {message}", misfit.hint)


def _check(subject: Subject, schema: Any, place: Place) -> bool:
    """Tell what is wrong with a schema; return whether anything is."""
    found = list(_mistakes_in(schema))
    for inner, message, hint in found:
        is_word = inner and isinstance(inner[-1], str) and message.startswith("JSON Schema has no keyword")
        subject.tell("WF053", (*place, *inner), message, hint, key=bool(is_word))
    return bool(found)


def _mistakes_in(schema: Any, root: Any = None, place: Place = ()) -> Iterator[tuple[Place, str, str]]:
    """Yield what is wrong with a schema that a person wrote: the place in it, what was found, and a hint."""
    whole = schema if root is None else root
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or len(place) > _DEPTH:
        yield place, f"{schema!r:.60} is no JSON Schema.", "Write a mapping such as {type: string}."
        return
    for word, value in schema.items():
        here = (*place, word)
        if word not in _KEYWORDS and not word.startswith("x-"):
            close = nearest(word, _KEYWORDS)
            hint = f"Did you mean {close!r}?" if close else "Own words begin with x-."
            yield here, f"JSON Schema has no keyword {word!r}.", hint
        elif word in _SCHEMAS:
            yield from _mistakes_in(value, whole, here)
        elif word in _SCHEMA_LISTS or word in _SCHEMA_TABLES:
            yield from _inner_mistakes(word, value, whole, here)
        elif problem := _keyword_problem(word, value, whole):
            yield here, *problem
    yield from _contradictions(schema, place)


def _inner_mistakes(word: str, value: Any, root: Any, here: Place) -> Iterator[tuple[Place, str, str]]:
    if word in _SCHEMA_LISTS and isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from _mistakes_in(inner, root, (*here, i))
    elif word in _SCHEMA_TABLES and isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _mistakes_in(inner, root, (*here, name))
    else:
        yield (
            here,
            f"{word} is {value!r:.60}.",
            "It holds schemas by name." if word in _SCHEMA_TABLES else "It is a list.",
        )


def _keyword_problem(word: str, value: Any, root: Any) -> tuple[str, str] | None:
    if word in {"type", "pattern", "$ref"} and isinstance(value, str | list):
        return {"type": _type_problem, "pattern": _pattern_problem, "$ref": _ref_problem}[word](value, root)
    if word in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"{word} is {value!r:.60}.", "It is a number."
    if word in _COUNTS and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        return f"{word} is {value!r:.60}.", "It is a whole number, 0 or more."
    if (word in _TEXTS or word == "type") and not isinstance(value, str):
        return f"{word} is {value!r:.60}.", "It is text."
    if word == "enum" and not (isinstance(value, list) and value):
        return f"enum is {value!r:.60}.", "It is a list of the values."
    if word == "required" and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        return f"required is {value!r:.60}.", "It is a list of names; an input without a default is required anyhow."
    return None


def _pattern_problem(value: Any, root: Any) -> tuple[str, str] | None:
    try:
        re.compile(value)
    except (re.error, TypeError) as exc:
        return f"The pattern is no regular expression: {exc}.", ""
    return None


def _ref_problem(value: Any, root: Any) -> tuple[str, str] | None:
    known = {"#", *(f"#/$defs/{name}" for name in root.get("$defs", ()))}
    if value in known or not str(value).startswith("#"):
        return None
    close = nearest(str(value), known)
    return f"{value!r} leads nowhere.", f"Did you mean {close!r}?" if close else ""


def _type_problem(value: Any, root: Any) -> tuple[str, str] | None:
    for name in value if isinstance(value, list) else [value]:
        if name not in _TYPES:
            other = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}
            other |= {"dict": "object", "text": "string", "none": "null", "None": "null"}
            close = other.get(str(name)) or nearest(str(name), _TYPES)
            hint = f"Did you mean {close!r}?" if close else f"Types are {', '.join(sorted(_TYPES))}."
            return f"No type is called {name!r:.60}.", hint
    return None


def _contradictions(schema: Mapping[str, Any], place: Place) -> Iterator[tuple[Place, str, str]]:
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping) and isinstance(required, list):
        for i, name in enumerate(required):
            if isinstance(name, str) and name not in properties:
                close = nearest(name, properties)
                hint = f"Did you mean {close!r}?" if close else "Add it to properties."
                yield (*place, "required", i), f"{name!r} is required, but not among the properties.", hint
    for low, high in _PAIRS:
        bounds = [schema.get(low), schema.get(high)]
        if all(isinstance(bound, int | float) for bound in bounds) and schema[low] > schema[high]:
            yield (*place, low), f"{low} {schema[low]} is more than {high} {schema[high]}.", ""
