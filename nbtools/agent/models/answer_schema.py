"""Answers in the form of a schema, as models take it and as they are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_ai import DeferredToolRequests
from pydantic_ai.exceptions import ModelRetry

from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.errors import InvalidArguments


def object_schema(schema: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """Return a schema as one of an object, and whether the answer is its ``value``: models send only objects."""
    if schema is None:
        return None, False
    if schema.get("type") == "object" or "properties" in schema:
        return {"type": "object", **schema}, False
    return {"type": "object", "properties": {"value": dict(schema)}, "required": ["value"]}, True


def validator(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return what holds an answer to its schema: one that does not fit goes back to the model."""
    parameters = SchemaParameters(schema)

    def check(output: Any) -> Any:
        if isinstance(output, DeferredToolRequests):
            return output
        try:
            return parameters.validate(output)
        except InvalidArguments as exc:
            raise ModelRetry(str(exc)) from None

    return check
