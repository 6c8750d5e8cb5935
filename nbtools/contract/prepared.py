"""The prepared call: what is matched by rules, shown, approved, recorded and run, all one object.

`prepare` validates the arguments, fills in defaults and fixed values, and follows paths to where they lead. After that,
the caller's spelling no longer matters: ``1`` and ``"yes"`` are true, a link is the file behind it, and what
was left out has its default.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbtools.contract.schema import admits_null
from nbtools.contract.tool import CALLERS, Context, Effects, Reading, Services, Tool, ToolCall
from nbtools.errors import InvalidArguments
from nbtools.ground.paths import Place, Roots, real_path

_PLAIN = (str, int, float, bool, type(None))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PreparedCall:
    """A call with its values as the tool gets them.

    Attributes
    ----------
    tool
        What is called.
    call
        The call; its arguments are `values` as JSON, paths absolute and with every link followed.
    values
        The function's arguments by name: validated, defaults and fixed values among them.
    effects
        What this very call does to the world.
    readings
        What rules read of some arguments besides their text.
    """

    tool: Tool
    call: ToolCall
    values: Mapping[str, Any]
    effects: Effects
    readings: Mapping[str, Reading]

    def path_of(self, name: str) -> Path | None:
        """Return where a path leads; `None` where the argument is not a path."""
        return _place_of(self.values.get(name))

    def with_arguments(self, arguments: Mapping[str, Any]) -> PreparedCall:
        """Return the call with some arguments replaced by others that are validated already."""
        call = self.call.but(arguments={**self.call.arguments, **arguments})
        # What was read of the arguments before says nothing of these.
        readings = {name: reading for name, reading in self.readings.items() if name not in arguments}
        return dataclasses.replace(self, call=call, values={**self.values, **arguments}, readings=readings)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the tool as it is described now and of the arguments: what an approval is for."""
        text = json.dumps([self.tool.fingerprint, dict(self.call.arguments)], sort_keys=True, default=repr)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


async def prepare(
    tool: Tool,
    call: ToolCall,
    services: Services = MappingProxyType({}),
    *,
    reads: bool = True,
) -> PreparedCall:
    """Return a call as it is judged and run.

    Parameters
    ----------
    tool
        The tool that is called.
    call
        The call as its caller put it.
    services
        What the tool may use; `Roots` tell where relative paths start and how far they may lead.
    reads
        Whether some rule looks at arguments, and so at what they mean; what is asked by a label does, where hosts are
        named.

    Raises
    ------
    InvalidArguments
        The arguments do not fit.
    PathNotAllowed, FileMissing
        A path leads outside the allowed folders, or cannot be followed.
    """
    if call.caller not in CALLERS:
        raise InvalidArguments(f"{call.caller!r} is not a caller.", hint=f"Use {', '.join(CALLERS)}.")
    try:
        roots_of = services[Roots]
    except KeyError:
        roots_of = None
    sent = call.arguments
    if call.by_model and None in sent.values():
        sent = _without_nulls(tool, sent)
    values = tool.parameters.validate(sent, roots_of() if roots_of is not None else None)
    values |= {name: real_path(value) for name, value in values.items() if isinstance(value, Path)}
    effects: Any = tool.effects
    if tool.effects_of is not None:
        effects = tool.effects_of(values, Context(call=call, services=services))
        if inspect.isawaitable(effects):
            effects = await effects
    arguments = MappingProxyType({name: _as_json(value) for name, value in values.items()})
    readings: Mapping[str, Reading] = MappingProxyType({})
    # Named hosts matter only to calls that would otherwise ask because of their label.
    by_hosts = bool(call.hosts and call.label) and effects.may_reach_out
    if (reads or by_hosts) and tool.readings_of is not None:
        readings = await tool.readings_of(values, Context(call=call, services=services))
    return PreparedCall(
        tool=tool,
        call=call.but(arguments=arguments),
        values=MappingProxyType(values),  # who approves sees them, and changes them by a `Reply` alone
        effects=effects,
        readings=readings,
    )


def as_text(value: Any) -> str:
    """Return an argument, or what a rule says of one, as the text in which the two are compared.

    Examples
    --------
    >>> as_text("a"), as_text(True), as_text(5.0), as_text(None), as_text(["a"])
    ('a', 'true', '5', 'null', '["a"]')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=repr)


def _place_of(value: Any) -> Path | None:
    return value.real if isinstance(value, Place) else value if isinstance(value, Path) else None


def _as_json(value: Any) -> Any:
    """Return a value as JSON; a path as text."""
    if type(value) in _PLAIN:
        return value
    path = _place_of(value)
    if path is not None:
        return str(path)
    from pydantic_core import to_jsonable_python

    try:
        return to_jsonable_python(value, fallback=repr)
    except Exception:  # a value in it that only looks like one of JSON's, such as a missing date of pandas
        try:
            return repr(value)
        except RecursionError:
            raise InvalidArguments("an argument is nested too deeply.", hint="Send a flatter value.") from None


def _without_nulls(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a model gave; where it says null for an optional argument that has no null, nothing was given."""
    properties, required = tool.schema["properties"], tool.schema.get("required", ())
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or name not in properties or admits_null(properties[name], tool.schema)
    }
