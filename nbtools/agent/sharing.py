"""What of a person's data a model may see: its shape, a sample, or the values.

The level is held where results and descriptions become text for the model, and nowhere else, so no tool has to know
it. At ``schema`` a result keeps its kind, its sizes and its yes-or-no facts: a number, a text, a name of a file and a
message of an error may all be values. Names and types of columns are kept where the query cannot have made them of
values. What follows from the model's own arguments alone, and what a person says to it, passes.

Where nothing is said, a model on this machine (a script, a local server) gets values, any other the schema.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from nbtools.agent.models.choice import SCRIPTED, ModelChoice
from nbtools.errors import ConfigInvalid, InvalidArguments
from nbtools.result import ToolResult
from nbtools.schema import output_schema
from nbtools.tool import Tool

__all__ = ["Sharing", "default_level", "level_after"]

_LEVELS = ("schema", "sample", "values")
_ROWS = 5
_SAMPLE_LINE = 200
# Nothing but the model's own arguments, or what a person or the public web says to it.
_PASS = frozenset({"ask_user", "artifact_read", "notebook_look", "calculator", "get_current_datetime", "string_length"})
_PUBLIC = frozenset({"web_search", "web_scrape"})
# Said of the call that the model wrote, not of what the call found.
_OWN_ERRORS = frozenset(
    {
        *("INVALID_ARGUMENTS", "TOOL_NOT_FOUND", "APPROVAL_DENIED", "APPROVAL_PENDING", "PATH_NOT_ALLOWED"),
        *("SQL_NOT_ALLOWED", "LIMIT_EXCEEDED", "TIMEOUT", "CANCELLED", "FILE_MISSING"),
    }
)
# What may turn values into names of columns.
_RENAMES = re.compile(r"pivot|header|skip|read_|names|columns\s*\(|struct|map|json|unnest", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing:
    """A level.

    Attributes
    ----------
    level
        ``"schema"``, ``"sample"`` or ``"values"``.
    rows
        How many rows, items or lines a sample has.
    """

    level: str
    rows: int = _ROWS

    @classmethod
    def of(cls, text: str) -> Sharing:
        """Return the level that a text says: ``schema``, ``sample``, ``sample:N`` or ``values``.

        Raises
        ------
        ConfigInvalid
            It says none of them.
        """
        level, sign, number = text.partition(":")
        fits = level in _LEVELS and (not sign or (level == "sample" and number.isdecimal() and int(number) > 0))
        if not fits:
            raise ConfigInvalid(f"share is {text!r}.", hint="Use schema, sample, sample:N or values.")
        return cls(level=level, rows=int(number) if sign else _ROWS)

    @property
    def told(self) -> str:
        """What a model is told of the level; empty where it sees everything."""
        if self.level == "values":
            return ""
        seen = "the shape" if self.level == "schema" else f"the shape and the first {self.rows} items"
        return (
            f"Of the person's data you see {seen} of results, not more: the person sees them whole. Work with names "
            "and types of columns; let scripts and queries compute, and say where the person finds the answer."
        )

    def allows(self, tool: Tool) -> bool:
        """Tell whether results of a tool pass as they are."""
        return self.level == "values" or (not tool.origins and tool.name in _PASS | _PUBLIC)

    def text_of(self, tool: Tool, result: ToolResult, arguments: Mapping[str, Any]) -> str:
        """Return what a model may read of a result."""
        error = result.error
        if self.allows(tool) or (error is not None and error.code in _OWN_ERRORS):
            return str(result) if error is not None else result.text
        if error is not None:
            return f"{error.code}: the call failed; its message may hold values and is not shared."
        found = result.data if isinstance(result.data, Mapping | list) else result.text
        known = output_schema(tool).get("properties", {})
        has_own_keys = isinstance(found, Mapping) and found.keys() <= known.keys()
        shape = self.shape(found) if has_own_keys else self._inner(found)
        if tool.name == "sql_query" and isinstance(found, Mapping) and not _RENAMES.search(str(arguments.get("query"))):
            types = [str(kind).partition("(")[0] for kind in found["types"]]  # an ENUM names its values
            shape["columns"] = dict(zip(found["columns"], types, strict=False))
            del shape["types"]
        if result.artifacts:
            shape = {"result": shape, "files": len(result.artifacts)}
        told = json.dumps(shape, ensure_ascii=False, default=lambda value: f"a {type(value).__name__}")
        return f"[shared: {self.level}] {told}"

    def shape(self, value: Any) -> Any:
        """Return a JSON value as this level shows it."""
        is_sample = self.level == "sample"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            lines = [line[:_SAMPLE_LINE] for line in value.splitlines()[: self.rows]]
            whole = f"text of {len(value):,} characters"
            return "\n".join([*lines, f"[{whole}]"]) if is_sample else whole
        if isinstance(value, Mapping):
            return {str(key): self._inner(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [*(self._inner(item) for item in value[: self.rows]), _count(value)] if is_sample else _count(value)
        return value if is_sample else f"a {type(value).__name__}"

    def _inner(self, value: Any) -> Any:
        # Keys that the tool does not declare may be values.
        if isinstance(value, Mapping) and self.level == "schema":
            return f"a mapping with {len(value):,} keys"
        return self.shape(value)


def _count(value: Sequence[Any]) -> str:
    return f"{len(value):,} items"


def default_level(choice: ModelChoice) -> str:
    """Return the level that holds where none is given: values stay on the machine, so a model on it may see them."""
    host = urlsplit(choice.base_url or "").hostname or ""
    is_here = host in {"localhost", "::1"} or host.startswith("127.")
    made = getattr(choice.made, "system", None) in {"function", "test"}
    return "values" if choice.provider == SCRIPTED or is_here or made else "schema"


def level_after(given: str | None, choice: ModelChoice, before: str | None) -> str:
    """Return the level of a run that goes on in a conversation.

    Parameters
    ----------
    given
        What the person said; `None` for nothing.
    choice
        The model that is to read the conversation.
    before
        The level that the conversation was led at; `None` for a new one.

    Raises
    ------
    InvalidArguments
        The conversation holds more than the level lets the model see.
    """
    level = given or default_level(choice)
    now = Sharing.of(level)
    if before is not None:
        was = Sharing.of(before)
        if (_LEVELS.index(now.level), now.rows) < (_LEVELS.index(was.level), was.rows if now.level == was.level else 0):
            raise InvalidArguments(
                f"the conversation was led at the level {before}, and {choice.name} is to see {level} alone.",
                hint=f"Start a new conversation, or say share={before!r} if it may see what was said before.",
                tried="going on with a conversation",
            )
    return level
