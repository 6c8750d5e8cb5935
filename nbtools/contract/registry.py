"""The registry: an immutable mapping of names to tools.

Every change returns a new registry: `Registry.select`, `Registry.without`, `Registry.prefixed`, `Registry.with_tool`,
`Registry.configured`. A name offered twice is an error when the registry is built, never when it is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from nbtools.contract.door import Door
from nbtools.contract.result import ToolResult
from nbtools.contract.schema import FORMATS, is_strict, output_schema
from nbtools.contract.signature.parameters import PartialParameters
from nbtools.contract.signature.schema_mistakes import mistakes_of
from nbtools.contract.tool import Tool, ToolCall, tool_of
from nbtools.errors import (
    InvalidArguments,
    ToolNotEnabled,
    ToolNotFound,
    did_you_mean,
)
from nbtools.ground.lazy import need
from nbtools.texts.other_words import KnowsOtherWords

ENTRY_POINTS = "nbtools.tools"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_CONFIG_KEYS = ("name", "tool", "description", "fixed_config", "exposed_inputs", "on_error", "config")


class Registry(KnowsOtherWords, Mapping[str, Tool]):
    """An immutable mapping of names to tools, in the order in which they were given.

    Parameters
    ----------
    tools
        Tools, or functions that become tools; the same one may be there twice.
    disabled
        Names of tools that are there and may not be called, which the error for such a name says.

    Raises
    ------
    InvalidArguments
        Two tools have one name, or a name is not made of letters, digits, ``_`` and ``-``.

    Examples
    --------
    >>> def greet(name: str) -> str:
    ...     '''Say hello.'''
    ...     return f"Hello, {name}!"
    >>> Registry([greet]).prefixed("my_").names
    ('my_greet',)
    """

    disabled: frozenset[str] = frozenset()

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = (), *, disabled: Iterable[str] = ()) -> None:
        self.disabled = frozenset(disabled)
        self._tools: dict[str, Tool] = {}
        for item in tools:
            tool = tool_of(item)
            if not _NAME.fullmatch(tool.name):
                raise InvalidArguments(
                    f"{tool.name!r} is not a name for a tool.",
                    hint="Use letters, digits, '_' and '-', at most 64 of them, not starting with a digit.",
                )
            # The same tool twice is harmless: packages and settings may both name it.
            if self._tools.get(tool.name, tool) != tool:
                raise InvalidArguments(
                    f"two tools are called {tool.name!r}.",
                    hint="Give one of them another name, or a prefix: registry.prefixed('x_').",
                )
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        """Return the tool of that name.

        Raises
        ------
        ToolNotFound
            There is none; the nearest known name is in the hint.
        ToolNotEnabled
            It is there, and may not be called.
        """
        try:
            return self._tools[name]
        except KeyError:
            if name in self.disabled:
                raise not_enabled(name, self._tools) from None
            raise ToolNotFound(
                f"there is no tool {name!r}.",
                hint=did_you_mean(str(name), self._tools, f"Tools are {', '.join(self._tools) or 'none'}."),
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        # Mapping's own would turn to __getitem__, whose error looks for the nearest name.
        return name in self._tools

    def __repr__(self) -> str:
        return f"Registry({', '.join(self._tools)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A registry travels to workers; what fills itself there must arrive filled.
        return functools.partial(Registry, disabled=self.disabled), (list(self._tools.values()),)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools."""
        return tuple(self._tools)

    def select(self, *names: str) -> Registry:
        """Return the registry with only these tools, in this order; ``"*"`` stands for all others, ``"a*"`` for some.

        ``"!a"`` takes away what stands before it; alone it stands for all but that one.

        Raises
        ------
        ToolNotFound
            A name is unknown, or a pattern fits no tool.
        """
        chosen: dict[str, Tool] = {} if not names or not names[0].startswith("!") else dict(self._tools)
        for name in names:
            if name.startswith("!"):
                gone = self.select(name[1:])
                chosen = {own: tool for own, tool in chosen.items() if own not in gone}
                continue
            fitting = {own: tool for own, tool in self._tools.items() if fnmatch.fnmatchcase(own, name)}
            chosen |= fitting if "*" in name and (fitting or name == "*") else {name: self[name]}
        return Registry(chosen.values())

    def without(self, *names: str) -> Registry:
        """Return the registry without these tools.

        Raises
        ------
        ToolNotFound
            A name is unknown.
        """
        gone = {self[name].name for name in names}
        return Registry(item for name, item in self._tools.items() if name not in gone)

    def prefixed(self, prefix: str) -> Registry:
        """Return the registry with a prefix before each name."""
        return Registry(item.renamed(prefix + item.name) for item in self._tools.values())

    def with_tool(self, *tools: Tool | Callable[..., Any]) -> Registry:
        """Return the registry with more tools.

        Raises
        ------
        InvalidArguments
            A name is taken.
        """
        return Registry([*self._tools.values(), *tools])

    def configured(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        fixed_config: Mapping[str, Any] | None = None,
        exposed_inputs: Iterable[str] | None = None,
        on_error: str | None = None,
    ) -> Tool:
        """Return a tool under a configuration.

        Parameters
        ----------
        name
            A tool of this registry.
        new_name
            Name that callers see; `None` keeps the tool's own.
        description
            Description that callers see; `None` keeps the tool's own.
        fixed_config
            Values that callers can neither see nor change. A mapping for a parameter that is exposed too fixes only
            those keys of it.
        exposed_inputs
            The only parameters left; `None` leaves all that are not fixed.
        on_error
            ``"fail"`` or ``"continue"``.

        Raises
        ------
        ToolNotFound
            There is no such tool.
        InvalidArguments
            A parameter is unknown, or a required one is neither fixed nor exposed.
        """
        item = self[name]
        changes: dict[str, Any] = {}
        if description is not None:
            changes["about"] = description
        if on_error is not None:
            changes["on_error"] = on_error
        if fixed_config or exposed_inputs is not None:
            exposed = None if exposed_inputs is None else list(exposed_inputs)
            changes["parameters"] = PartialParameters(item.parameters, fixed=fixed_config, exposed=exposed)
            # What is fixed is the person's, and may show in what it gives.
            changes["effects"] = dataclasses.replace(item.effects, public=False)
            changes["examples"] = ()
        return dataclasses.replace(item.renamed(new_name or item.name), **changes)

    def create_tool_from_config(self, config: str | Mapping[str, Any], *, name: str | None = None) -> Tool:
        """Return the tool that a configuration describes.

        Parameters
        ----------
        config
            A plain name, or a mapping with ``name`` (or ``tool``), and optionally ``description``, ``fixed_config``
            (``config`` is the same), ``exposed_inputs`` and ``on_error``.
        name
            The name it gets; `None` takes ``name`` of the mapping when ``tool`` is there too, else the tool's own.

        Raises
        ------
        InvalidArguments
            A key of the mapping is unknown or the configuration does not fit the tool.
        ToolNotFound
            There is no such tool.
        """
        if isinstance(config, str):
            return self.configured(config, new_name=name)
        if not isinstance(config, Mapping):
            raise InvalidArguments(f"{config!r} is neither a tool's name nor a mapping.")
        for key in config:
            if key not in _CONFIG_KEYS:
                raise InvalidArguments(
                    f"{key!r} is not a key of a tool's configuration.",
                    hint=did_you_mean(str(key), _CONFIG_KEYS, f"Keys are {', '.join(_CONFIG_KEYS)}."),
                )
        source = config.get("tool", config.get("name"))
        if source is None:
            raise InvalidArguments("the configuration does not name a tool.", hint="Add 'tool: NAME'.")
        fixed = [config.get(key) or {} for key in ("config", "fixed_config")]
        exposed = config.get("exposed_inputs")
        if not all(isinstance(part, Mapping) for part in fixed) or not isinstance(exposed, list | tuple | None):
            raise InvalidArguments(
                f"the configuration of {source!r} does not fit.",
                hint="fixed_config is a mapping of parameters to values, exposed_inputs a list of parameters.",
            )
        return self.configured(
            source,
            new_name=name or (config.get("name") if "tool" in config else None),
            description=config.get("description"),
            fixed_config={**fixed[0], **fixed[1]},
            exposed_inputs=exposed,
            on_error=config.get("on_error"),
        )

    def get_tools_config(self) -> list[dict[str, Any]]:
        """Return the metadata of every tool, its effects and the schemas of its arguments and its result among them."""
        return [
            {
                "name": item.name,
                "title": item.title or item.name.replace("_", " ").capitalize(),
                "description": item.description,
                "effects": list(item.effects.names()),
                "input_schema": item.schema,
                "output_schema": output_schema(item),
                "examples": [dict(example) for example in item.examples],
                "timeout": item.timeout,
                "on_error": item.on_error,
            }
            for item in self._tools.values()
        ]

    def render(self, form: str) -> list[dict[str, Any]]:
        """Return every tool in a provider's form: json-schema, anthropic, openai, gemini or mcp.

        Raises
        ------
        InvalidArguments
            The form is unknown.
        """
        if form not in FORMATS:
            raise InvalidArguments(
                f"{form!r} is not a form of a schema.",
                hint=did_you_mean(form, FORMATS, f"Forms are {', '.join(FORMATS)}."),
            )
        return [FORMATS[form](item) for item in self._tools.values()]

    def check(self) -> list[str]:
        """Return what is wrong with the declarations of the tools, a line each; nothing when all is well.

        Every schema is looked at in each provider's form, every example is validated, and every tool and parameter
        has a description.
        """
        return [f"{name}: {problem}" for name, item in self._tools.items() for problem in _problems(item)]

    def with_entry_points(self, group: str = ENTRY_POINTS) -> tuple[Registry, tuple[str, ...]]:
        """Return the registry with the tools that installed packages offer, and what is wrong with the others.

        Each entry point names a function, a tool, or an iterable of them. What is unavailable is left out and reported,
        because one broken package must not take the shelf away: one that does not load (or ends the process), or
        whose tool has a name that is none or is taken.
        """
        registry, faults = self, []
        for point in entry_points(group=group) if _is_offered(group) else ():
            source = f"{point.dist.name if point.dist else 'a package'} (entry point {point.name} = {point.value})"
            try:
                loaded = point.load()
                for item in [loaded] if callable(loaded) or isinstance(loaded, Tool) else list(loaded):
                    try:
                        registry = registry.with_tool(item)
                    except (TypeError, InvalidArguments) as exc:
                        faults.append(f"{source}: a tool was left out: {exc}")
            except BaseException as exc:
                # Code of a package may raise whatever it likes, also what ends a program.
                if isinstance(exc, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                    raise  # a person's own: Python hands it to this thread alone
                faults.append(f"{source}: its tools were left out: {type(exc).__name__}: {exc}")
        return registry, tuple(faults)

    def to_langchain(self, call: Callable[[ToolCall], Awaitable[ToolResult]] | None = None) -> list[Any]:
        """Return the tools as LangChain's structured tools.

        Parameters
        ----------
        call
            Coroutine function that performs a call, such as an executor's ``acall``; `None` sends calls through a
            separate door, without services.

        Raises
        ------
        MissingExtra
            langchain-core is not installed.
        """
        need("langchain_core.tools", extra="langchain", why="Handing tools to LangChain")
        from nbtools.contract.langchain import structured_tools

        async def perform(call: ToolCall) -> ToolResult:
            return await door.admit(self[call.tool], call)

        door = Door()
        return structured_tools(list(self.values()), call or perform)


def not_enabled(name: str, enabled: Iterable[str]) -> ToolNotEnabled:
    """Return the error for a tool that is there and may not be called."""
    return ToolNotEnabled(
        f"the tool {name!r} is not enabled here.", hint=f"Enabled are {', '.join(enabled) or 'none'}."
    )


def _is_offered(group: str) -> bool:
    """Tell whether an installed package may name a group: parsing the lists of all of them takes five times as long."""
    for entry in map(Path, sys.path):
        if entry.is_file():
            return True  # an archive
        with contextlib.suppress(OSError):
            for name in [name for name in os.listdir(entry) if name.endswith(("-info", "-INFO"))]:  # noqa: PTH208 - as text
                with contextlib.suppress(FileNotFoundError):
                    if group.encode() in (entry / name / "entry_points.txt").read_bytes():
                        return True
    return False


def _problems(item: Tool) -> list[str]:
    """Return what is wrong with one tool's declaration."""
    problems = []
    try:
        properties = item.schema["properties"]
    except Exception as exc:
        return [f"its arguments have no schema: {exc}"]
    problems += mistakes_of(item.schema)
    problems += [f"of what it returns: {problem}" for problem in mistakes_of(output_schema(item))]
    if not item.description.strip():
        problems.append("it has no description")
    problems += [f"parameter {name!r} has no description" for name, p in properties.items() if not p.get("description")]
    for form, render in FORMATS.items():
        try:
            # Rendered for each provider, whichever is used here: the next person may use another.
            rendered = render(item).get("function", {})
            if rendered.get("strict") and not is_strict(rendered["parameters"]):
                problems.append("its strict schema is not strict")
        except Exception as exc:
            problems.append(f"it cannot be rendered for {form}: {exc}")
    for example in item.examples:
        try:
            item.parameters.validate(example)
        except InvalidArguments as exc:
            problems.append(f"the example {dict(example)!r} does not validate: {exc.message}")
    return problems
