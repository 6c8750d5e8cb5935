"""Arguments as clients send them: the models of some write lists and objects as JSON texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbtools.contract.signature.parameters import kind_of, kinds_of
from nbtools.errors import NbtoolsError
from nbtools.texts.parsing import from_json


def decoded(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments; a text is read as JSON where the schema wants a list or an object and allows no text.

    Parameters
    ----------
    arguments
        As they came; a text that is not JSON, or another kind of value, stays as it is.
    schema
        Of the arguments.
    """
    named = schema.get("properties", {})
    return {
        name: _decoded(value, kinds_of(named.get(name, {}), schema)) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


def _decoded(value: str, allowed: frozenset[str]) -> Any:
    if not allowed & {"array", "object"} or "string" in allowed:
        return value
    try:
        decoded = from_json(value)
    except NbtoolsError:
        return value
    return decoded if kind_of(decoded) in allowed & {"array", "object", "null"} else value
