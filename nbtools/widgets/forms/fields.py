"""The fields of a form, made from the schema of a tool's arguments: what a view shows, and what was typed as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.contract.signature.parameters import resolved
from nbtools.errors import InvalidArguments, NbtoolsError

# Texts of these names are written in several lines.
_UNDECLARED: Mapping[str, Any] = {"description": "The tool does not declare this argument, but receives it."}
_LONG = ("content", "code", "script", "query", "command", "text", "body", "value", "json_string", "yaml_string")


def fields_of(schema: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the fields of a form, in the order of the schema; arguments that it does not declare come behind.

    Parameters
    ----------
    schema
        Of an object; see `nbtools.contract.tool.Tool.schema`.
    values
        What the fields show; those without one show their default.

    Returns
    -------
    list
        For each argument ``name``, ``kind`` (``text``, ``lines``, ``number``, ``flag``, ``choice`` or ``json``),
        ``value`` (a boolean for a flag, else the text that stands in the field), ``choices``, ``help``, ``required``
        and ``default``, the text of what holds where nothing is given.
    """
    required = schema.get("required", ())
    values_given, declared = values or {}, schema.get("properties", {})
    undeclared = {name: _UNDECLARED for name in values_given if name not in declared}
    return [
        _field(name, resolved(prop, schema), values_given, is_required=name in required)
        for name, prop in {**declared, **undeclared}.items()
    ]


def _field(name: str, prop: Mapping[str, Any], values: Mapping[str, Any], *, is_required: bool) -> dict[str, Any]:
    kind, choices = _kind(name, prop)
    default = prop.get("default")
    value = values.get(name, default)
    if kind == "text" and isinstance(value, str) and "\n" in value:
        kind = "lines"
    return {
        "name": name,
        "kind": kind,
        "choices": [json.dumps(choice, ensure_ascii=False) for choice in choices],
        "value": bool(value) if kind == "flag" else _text_of(value, kind),
        "default": "" if default is None else _text_of(default, kind),
        "help": str(prop.get("description", "")),
        "required": is_required,
    }


def _kind(name: str, prop: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the kind of a field, and the values that it lists."""
    options = [option for option in prop.get("anyOf", (prop,)) if option.get("type") != "null"]
    if len(options) != 1:
        return "json", []
    (only,) = options
    if "enum" in only:
        return "choice", list(only["enum"])
    match only.get("type"):
        case "boolean":
            return "flag", []
        case "integer" | "number":
            return "number", []
        case "string":
            return "lines" if any(name == word or name.endswith(f"_{word}") for word in _LONG) else "text", []
    return "json", []


def _text_of(value: Any, kind: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) and kind in {"text", "lines"} else json.dumps(value, ensure_ascii=False)


def values_of(
    schema: Mapping[str, Any], typed: Mapping[str, Any], values: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values of what was typed into fields; an empty field of an optional argument gives none.

    Parameters
    ----------
    schema
        That the fields were made from.
    typed
        Names of fields to what stands in them.
    values
        What the fields were made with; see `fields_of`.

    Raises
    ------
    InvalidArguments
        A field holds no number, or no JSON; ``data["problems"]`` tells each.
    """
    read_values: dict[str, Any] = {}
    problems = []
    for field in fields_of(schema, values):
        name, kind = field["name"], field["kind"]
        if name not in typed:
            continue
        value = typed[name]
        if kind == "flag" or (kind in {"text", "lines"} and (value or field["required"])):
            read_values[name] = value
        elif str(value).strip():
            try:
                read_values[name] = json.loads(value)
            except ValueError:
                problems.append(f"{name}: {_WANTED.get(kind, 'expected JSON')}, found {value!r:.60}")
    if problems:
        raise InvalidArguments("; ".join(problems), data={"problems": problems})
    return read_values


_WANTED = {"number": "expected a number", "json": 'expected JSON, such as ["a", "b"] or {"name": 1}'}


def problems_of(exc: NbtoolsError, names: Iterable[str]) -> dict[str, str]:
    """Return what is wrong by the names of fields; what concerns none of them stands under an empty name."""
    problems = (exc.data or {}).get("problems")
    if not problems:
        return {"": f"{exc.message} {exc.hint or ''}".strip()}
    all_names = set(names)
    by_name: dict[str, str] = {}
    for problem in map(str, problems):
        path, _, rest = problem.partition(": ")
        name = path.split(".")[0]
        key, text = (name, rest) if name in all_names else ("", problem)
        by_name[key] = f"{by_name[key]}; {text}" if key in by_name else text
    return by_name
