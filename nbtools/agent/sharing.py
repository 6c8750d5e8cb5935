"""What of a person's data a model may see: its shape, a sample, or the values.

The level is held where results and descriptions become text for the model, and nowhere else, so no tool has to know
it. At ``schema`` a result keeps its kind, its sizes and its yes-or-no facts: a number, a text, a name of a file and a
message of an error may all be values. Sizes are rounded up to powers of two. Names and types of columns are those of a
snapshot (`column_names`). What follows only from the model's own arguments, and what a person or the door says to it,
passes.

That keeps values from being handed on, by mistake or because a text asked for them. It does not keep a model from
finding one out bit by bit, by queries that are true or false.

Where nothing is said, a model on this machine (a script, a local server) gets values, any other the schema.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from nbtools.agent.models.choice import SCRIPTED, ModelChoice
from nbtools.contract.result import ToolResult
from nbtools.contract.schema import output_schema
from nbtools.contract.tool import Tool
from nbtools.errors import ConfigInvalid, InvalidArguments
from nbtools.texts.visible import counted

_LEVELS = ("schema", "sample", "values")
_ROWS = 5
_SAMPLE_LINE = 200


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

        Parameters
        ----------
        text
            The level.

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
    def instruction(self) -> str:
        """What a model is told of the level; empty where it sees everything."""
        if self.level == "values":
            return ""
        seen = "the shape" if self.level == "schema" else f"the shape and the first {counted(self.rows, 'item')}"
        return (
            f"Of the person's data you see {seen} of results, not more: the person sees them whole. Work with names "
            "and types of columns; let scripts and queries compute, and say where the person finds the answer."
        )

    def allows(self, result: ToolResult) -> bool:
        """Tell whether a result passes as it is: the person's values are in none of it, or may be seen."""
        return self.level == "values" or not result.label.private

    def text_of(self, tool: Tool, result: ToolResult, columns: Sequence[tuple[str, str]] | None = None) -> str:
        """Return what a model may read of a result.

        Parameters
        ----------
        tool
            The tool that was called.
        result
            What it returned.
        columns
            For a query, names and types of its columns as far as they may be told; empty where nothing may. `None` for
            what is not a query.
        """
        error, by_door = result.error, result.said_by_door
        if self.allows(result):
            return f"{result}{_printed(result)}" if error is not None else result.text
        if error is not None:
            hidden = f"{error.code}: the call failed; its message may hold values and is not shared."
            return by_door if by_door and error.message in by_door else f"{by_door}\n{hidden}".lstrip()
        content = result.data if isinstance(result.data, Mapping | list) else result.text
        # Keys that a tool of ours declares were chosen by us; any other key may be a value.
        properties = output_schema(tool).get("properties", {}) if tool.trusted else {}
        has_own_keys = isinstance(content, Mapping) and content.keys() <= properties.keys()
        shape = self.shape(content) if has_own_keys else self._inner(content)
        if columns is not None and isinstance(content, Mapping):
            # A script that turns values into names can make a number of a value, too.
            shape["columns"] = dict(columns) or f"{self.size(len(content['columns']), 'column')}, which were made since"
            del shape["types"]
        if result.artifacts:
            shape = {"result": shape, "files": self.size(len(result.artifacts), "file")}
        text = json.dumps(shape, ensure_ascii=False, default=lambda value: f"a {type(value).__name__}")
        return f"{by_door}\n[shared: {self.level}] {text}".lstrip()

    def shape(self, value: Any) -> Any:
        """Return a JSON value as this level shows it."""
        is_sample = self.level == "sample"
        # A bit, which a count of rows would tell as well.
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            part = "\n".join(line[:_SAMPLE_LINE] for line in value.splitlines()[: self.rows])
            whole = f"text of {self.size(len(value), 'character')}"
            if not is_sample:
                return whole
            return part if part == value else f"{part}\n[{whole}]"
        if isinstance(value, Mapping):
            shaped = {str(key): self._inner(item) for key, item in value.items()}
            rows, columns = value.get("rows"), value.get("columns")
            if is_sample and isinstance(rows, list) and isinstance(columns, list):
                shaped["rows"] = [
                    *(self._row(row, len(columns)) for row in rows[: self.rows]),
                    self.size(len(rows), "item"),
                ]
            return shaped
        if isinstance(value, Sequence):
            count = self.size(len(value), "item")
            return [*(self._inner(item) for item in value[: self.rows]), count] if is_sample else count
        return value if is_sample else f"a {type(value).__name__}"

    def _row(self, row: Any, columns: int) -> Any:
        """Return a row of a table, of which a sample has all cells."""
        is_row = isinstance(row, list) and len(row) == columns
        return [self.shape(cell) for cell in row] if is_row else self._inner(row)

    def _inner(self, value: Any) -> Any:
        # Keys that the tool does not declare may be values.
        if not isinstance(value, Mapping):
            return self.shape(value)
        rest = f"a mapping with {self.size(len(value), 'key')}"
        if self.level == "schema":
            return rest
        first = self.shape(dict(list(value.items())[: self.rows]))
        return first if len(first) == len(value) else {**first, "…": rest}

    def size(self, number: int, thing: str) -> str:
        """Return a number with its thing as this level tells it: where no value is seen, the next power of two.

        An exact size is a value, chosen by the author of what is printed.
        """
        if self.level != "schema" or number <= 1:
            return counted(number, thing)
        return f"up to {counted(1 << (number - 1).bit_length(), thing)}"


def is_own(tool: Tool) -> bool:
    """Tell whether a tool is one of this package."""
    return str(getattr(tool.function, "__module__", "")).partition(".")[0] == "nbtools"


def default_level(choice: ModelChoice) -> str:
    """Return the level that holds where none is given: values stay on the machine, so a model on it may see them."""
    # By where requests go, and not by who is asked: a provider's name says nothing of a proxy in between.
    host = urlsplit(choice.base_url or "").hostname or ""
    try:
        # Other names may lead here today and elsewhere tomorrow.
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    is_fake = getattr(choice.instance, "system", None) in {"function", "test"}
    return "values" if choice.provider == SCRIPTED or is_here or is_fake else "schema"


def level_after(level_asked: str | None, choice: ModelChoice, before: str | None) -> str:
    """Return the level of a run that goes on in a conversation.

    Parameters
    ----------
    level_asked
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
    level = level_asked or default_level(choice)
    # The new model reads the whole conversation: what was said at a wider level would reach it all the same.
    now = Sharing.of(level)
    if before is not None:
        was = Sharing.of(before)
        if (_LEVELS.index(now.level), now.rows) < (_LEVELS.index(was.level), was.rows if now.level == was.level else 0):
            raise InvalidArguments(
                f"the conversation was held at level {before}, and {choice.name} may see only {level}.",
                hint=f"Start a new conversation, or say share={before!r} if it may see what was said before.",
            )
    return level


def _printed(result: ToolResult) -> str:
    """Return what code printed before it failed, to be put behind its error; often empty."""
    text = result.data.get("stdout") if isinstance(result.data, Mapping) else None
    return f"\nPrinted before that:\n{text}" if text else ""
