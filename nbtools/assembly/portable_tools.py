"""Tools on the workers of a cluster: which of them go there, and how the functions of a user do."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nbtools.contract.approval.gate import Rule
from nbtools.contract.tool import Tool, tool_of


def portable_tools(
    tools: Iterable[Tool | Callable[..., Any]],
) -> Iterator[tuple[Callable[..., Any], Mapping[str, Any]]]:
    """Yield the function of each tool that a worker can have, and what `nbtools.contract.tool.tool` was told of it."""
    for item in map(tool_of, tools):
        with contextlib.suppress(Exception):  # a callable that is not a function, types that are nowhere
            yield _portable(item)


def stays_here(item: Tool, rules: Iterable[Rule], *, sql: bool) -> bool:
    """Tell whether calls of a tool are only for this process.

    Parameters
    ----------
    item
        The tool.
    rules
        The policy.
    sql
        Whether SQL reads what only this process has.
    """
    names, effects = (item.name, *item.origins), item.effects
    if sql and any(name.startswith("sql") for name in names):
        return True
    # Nobody can be asked on a worker.
    asking = [rule for rule in rules if rule.action == "ask"]
    return any(
        any(map(rule.names, names))
        and (not rule.callers or "workflow" in rule.callers)
        and all(getattr(effects, effect) for effect in rule.effects)
        for rule in asking
    )


def _portable(item: Tool) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """Return the function of a tool without the tool, and with its types, which a pickle of names would lose."""
    function = item.function
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__doc__, copy.__module__, copy.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = typing.get_type_hints(function, include_extras=True)
    fields = ("name", "effects_of", "readings_of", "title", "examples", "timeout", "on_error")
    declared = dataclasses.asdict(item.effects)
    is_silent = declared.pop("undeclared")  # what nobody has said is not said there either
    return copy, {**{name: getattr(item, name) for name in fields}, **({} if is_silent else declared)}
