"""Mistakes in JSON Schemas: words that do not exist, types, bounds, references.

A schema that a person wrote in a workflow is held to the whole vocabulary. One that comes from elsewhere, of the
arguments of a tool, may use what it likes: looked at are the words that every provider reads, because a provider
refuses all tools for one that it cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nbtools.errors import did_you_mean, nearest

_Place = tuple[str | int, ...]

_DEPTH = 60
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMAS = {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
_SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SCHEMA_TABLES = {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains"}
_TEXTS = {"title", "description", "format", "pattern", "$ref", "$comment", "$id", "$schema", "$anchor"}
_OTHERS = {"type", "enum", "const", "required", "default", "examples", "uniqueItems", "deprecated", "readOnly"}
_MORE = {"writeOnly", "contentMediaType", "contentEncoding", "dependentRequired", "unevaluatedProperties"}
_KEYWORDS = _SCHEMAS | _SCHEMA_LISTS | _SCHEMA_TABLES | _NUMBERS | _COUNTS | _TEXTS | _OTHERS | _MORE
_PAIRS = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_SHARED_TABLES = {"properties", "$defs", "definitions"}
_CHOICES = ("anyOf", "oneOf", "allOf")
_READ_BY_ALL = {"type", "required", "$ref", "items", "not", *_CHOICES, "additionalProperties"} | _SHARED_TABLES


def mistakes_of(schema: Any) -> list[str]:
    """Return what is wrong with the schema of a tool's arguments, a line each: one makes providers refuse all tools."""
    if not isinstance(schema, Mapping):
        return [f"the schema is {schema!r:.60}, not an object"]
    problems = [] if schema.get("type", "object") == "object" else [f"type is {schema['type']!r:.60}, not 'object'"]
    for loc, message, _ in mistakes_in(schema, foreign=True):
        problems.append(f"{'/'.join(map(str, loc)) or 'schema'}: {message}")
    definitions = schema.get("$defs", {})
    if not problems and (name := next((name for name in definitions if _is_circular(name, definitions)), None)):
        problems.append(f"$defs/{name} leads back to itself")
    return problems


def _is_circular(name: str, definitions: Mapping[str, Any]) -> bool:
    """Tell whether a definition stands for itself: only by references and choices, without a value in between."""
    seen: set[str] = set()
    waiting: list[Any] = [definitions[name]]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        waiting += [option for word in _CHOICES for option in node.get(word, ())]
        target = str(node.get("$ref", "")).removeprefix("#/$defs/")
        if target == name:
            return True
        if target in definitions and target not in seen:
            seen.add(target)
            waiting.append(definitions[target])
    return False


def mistakes_in(
    schema: Any, root: Any = None, loc: _Place = (), *, foreign: bool = False
) -> Iterator[tuple[_Place, str, str]]:
    """Yield what is wrong with a schema: the place in it, what was found, and a hint.

    Parameters
    ----------
    schema
        A schema, or part of one.
    root
        The whole schema, in which ``$ref`` is looked up; `None` where `schema` is the whole.
    loc
        Where `schema` is in it: keys and indices from the root.
    foreign
        Whether someone else wrote it, for other readers too: only what nobody can read is a mistake then.
    """
    whole = schema if root is None else root
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or len(loc) > _DEPTH:
        yield loc, f"{schema!r:.60} is not a JSON Schema.", "Write a mapping such as {type: string}."
        return
    for word, value in schema.items():
        here = (*loc, word)
        if foreign and word not in _READ_BY_ALL:
            continue
        if word not in _KEYWORDS and not word.startswith("x-"):
            hint = did_you_mean(word, _KEYWORDS) or "Own words begin with x-."
            yield here, f"JSON Schema has no keyword {word!r}.", hint
        elif word in _SCHEMAS:
            yield from mistakes_in(value, whole, here, foreign=foreign)
        elif word in _SCHEMA_LISTS or word in _SCHEMA_TABLES:
            yield from _inner_mistakes(word, value, whole, here, foreign)
        elif problem := _keyword_problem(word, value, whole):
            yield here, *problem
    yield from () if foreign else _contradictions(schema, loc)


def _inner_mistakes(word: str, value: Any, root: Any, here: _Place, foreign: bool) -> Iterator[tuple[_Place, str, str]]:
    if word in _SCHEMA_LISTS and isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from mistakes_in(inner, root, (*here, i), foreign=foreign)
    elif word in _SCHEMA_TABLES and isinstance(value, Mapping):
        for name, inner in value.items():
            yield from mistakes_in(inner, root, (*here, name), foreign=foreign)
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
        return f"The pattern is not a regular expression: {exc}.", ""
    return None


def _ref_problem(value: Any, root: Any) -> tuple[str, str] | None:
    tables = {word: root[word] for word in ("$defs", "definitions") if isinstance(root.get(word), Mapping)}
    targets = {"#", *(f"#/{word}/{name}" for word, table in tables.items() for name in table)}
    if value in targets or not str(value).startswith("#"):
        return None
    return f"{value!r} leads nowhere.", did_you_mean(str(value), targets) or ""


def _type_problem(value: Any, root: Any) -> tuple[str, str] | None:
    for name in value if isinstance(value, list) else [value]:
        if name not in _TYPES:
            other = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}
            other |= {"dict": "object", "text": "string", "none": "null", "None": "null"}
            close = other.get(str(name)) or nearest(str(name), _TYPES)
            hint = f"Did you mean {close!r}?" if close else f"Types are {', '.join(sorted(_TYPES))}."
            return f"No type is called {name!r:.60}.", hint
    return None


def _contradictions(schema: Mapping[str, Any], loc: _Place) -> Iterator[tuple[_Place, str, str]]:
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping) and isinstance(required, list):
        for i, name in enumerate(required):
            if isinstance(name, str) and name not in properties:
                hint = did_you_mean(name, properties) or "Add it to properties."
                yield (*loc, "required", i), f"{name!r} is required, but not among the properties.", hint
    for low, high in _PAIRS:
        bounds = [schema.get(low), schema.get(high)]
        if all(isinstance(bound, int | float) for bound in bounds) and schema[low] > schema[high]:
            yield (*loc, low), f"{low} {schema[low]} is more than {high} {schema[high]}.", ""
