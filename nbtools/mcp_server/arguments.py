"""Arguments as clients send them: some write lists and objects as JSON texts, which their models cannot help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nbtools.contract.signature.parameters import resolved
from nbtools.errors import NbtoolsError
from nbtools.texts.parsing import from_json

_KINDS: Mapping[type, str] = {list: "array", dict: "object", type(None): "null"}


def decoded(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with the texts read as JSON where the schema has a list or an object, and no text.

    Parameters
    ----------
    arguments
        As they came; a text that is not JSON, or another kind of value, stays as it is.
    schema
        Of the arguments.
    """
    named = schema.get("properties", {})
    return {name: _decoded(value, set(_types(named.get(name, {}), schema))) for name, value in arguments.items()}


def _decoded(value: Any, allowed: set[str]) -> Any:
    if not isinstance(value, str) or not allowed & {"array", "object"} or allowed & {"string", "any"}:
        return value
    try:
        decoded = from_json(value)
    except NbtoolsError:
        return value
    return decoded if _KINDS.get(type(decoded)) in allowed else value


def _types(schema: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """Yield the types that a schema allows; ``"any"`` where it does not say."""
    node = resolved(schema, root)
    options = node.get("anyOf", node.get("oneOf")) if isinstance(node, Mapping) else None
    for option in options or ():
        yield from _types(option, root)
    if not options:
        types = node.get("type", "any") if isinstance(node, Mapping) else "any"
        yield from [types] if isinstance(types, str) else types
