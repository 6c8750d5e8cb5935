"""The gate decides whether a call may run.

`decide` is pure: rules, tool, arguments and caller give ``allow``, ``ask`` or ``deny`` with the reason. Where the
answer is ``ask``, an `Approver` asks; with nobody to ask the call is denied. `Grants` remembers "always this session",
for a tool or for this exact content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TextIO, cast

from nbtools.aio import in_thread
from nbtools.errors import ConfigInvalid, nearest
from nbtools.tool import Caller, Tool, ToolCall

__all__ = [
    "DEFAULT_RULES",
    "Action",
    "Answer",
    "ApprovalRequest",
    "Approver",
    "AskFunction",
    "AskTerminal",
    "Decision",
    "Grants",
    "Nobody",
    "Rule",
    "check_names",
    "decide",
    "rules_from_config",
]

Action = Literal["allow", "ask", "deny"]
Answer = Literal["once", "tool", "content", "no"]
_ACTIONS: tuple[str, ...] = ("allow", "ask", "deny")
_EFFECTS: tuple[str, ...] = ("read_only", "destructive", "idempotent", "open_world")
_SHOWN = 600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One line of the policy; it applies when everything it names fits.

    Attributes
    ----------
    action
        ``"allow"``, ``"ask"`` or ``"deny"``.
    tool
        Pattern of tool names (``"file_*"``).
    effects
        Effects that must all hold.
    callers
        Faces it is for; empty for all.
    arguments
        Argument name to a pattern of its text (``{"path": "/tmp/*"}``); all must fit.
    """

    action: Action
    tool: str = "*"
    effects: tuple[str, ...] = ()
    callers: tuple[Caller, ...] = ()
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def fits(self, tool: Tool, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Tell whether the rule applies to a call."""
        return (
            fnmatch.fnmatchcase(tool.name, self.tool)
            and (not self.callers or caller in self.callers)
            and all(getattr(tool.effects, effect) for effect in self.effects)
            and all(
                name in arguments and fnmatch.fnmatchcase(str(arguments[name]), pattern)
                for name, pattern in self.arguments.items()
            )
        )

    def __str__(self) -> str:
        parts = [self.tool if self.tool != "*" else "", *self.effects, *(f"by {caller}" for caller in self.callers)]
        parts += [f"{name}={pattern}" for name, pattern in self.arguments.items()]
        return f"{self.action} {' '.join(part for part in parts if part) or 'everything'}"


# Read-only calls run; what is destructive runs when a person asked for it and waits for a yes when a model did.
DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(action="allow", effects=("read_only",)),
    Rule(action="ask", effects=("destructive",), callers=("model", "mcp")),
    Rule(action="allow"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What the rules say of a call, and which of them said it."""

    action: Action
    reason: str


def decide(rules: Iterable[Rule], tool: Tool, arguments: Mapping[str, Any], caller: Caller) -> Decision:
    """Return the decision of the first rule that fits, after the defaults if none does.

    The effects of a tool that is not trusted are claims, so such a tool is asked for whatever they say, unless a rule
    names it.
    """
    for rule in rules:
        if rule.fits(tool, arguments, caller):
            return Decision(action=rule.action, reason=f"the policy says: {rule}")
    if not tool.trusted:
        return Decision(action="ask", reason="the tool comes from a server that is not trusted")
    for rule in DEFAULT_RULES:
        if rule.fits(tool, arguments, caller):
            return Decision(action=rule.action, reason=f"by default: {rule}")
    raise AssertionError("the last default fits every call")


def rules_from_config(policy: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules of a configuration, the most particular first.

    Parameters
    ----------
    policy
        Tool name, pattern or effect to an action (``{"shell": "deny", "file_*": "ask", "open_world": "ask"}``), or to
        a mapping with ``action`` and any of ``arguments``, ``callers``, ``effects``; or to a list of such mappings.

    Raises
    ------
    ConfigInvalid
        An action, a key or an effect is unknown.
    """
    rules: list[Rule] = []
    for key, value in policy.items():
        items = value if isinstance(value, list) else [value]
        rules += [_rule(key, item) for item in items]
    # Arguments beat names, names beat patterns, patterns beat effects.
    return tuple(sorted(rules, key=lambda r: (not r.arguments, r.tool == "*", "*" in r.tool, not r.callers)))


def check_names(rules: Iterable[Rule], known: Iterable[str]) -> None:
    """See to it that every rule that names one tool names one that exists: a slip would leave the tool unguarded.

    Parameters
    ----------
    rules
        The rules of a configuration.
    known
        Names of the tools of this process. Those of outside servers, ``server__tool``, may come later.

    Raises
    ------
    ConfigInvalid
        A rule names a tool that does not exist.
    """
    names = tuple(known)
    for rule in rules:
        is_pattern = any(character in rule.tool for character in "*?[")
        if is_pattern or rule.tool in names or "__" in rule.tool:
            continue
        close = nearest(rule.tool, names)
        raise ConfigInvalid(
            f"The policy is to {rule.action} {rule.tool!r}, and there is no such tool.",
            hint=f"Did you mean {close!r}?" if close else f"A pattern, {rule.tool + '*'!r}, may fit tools to come.",
            tried="reading the policy",
        )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _rule(key: str, value: Any) -> Rule:
    given: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"action": value}
    names = tuple(f.name for f in dataclasses.fields(Rule) if f.name != "tool")
    for name in given:
        if name not in names:
            close = nearest(str(name), names)
            raise ConfigInvalid(
                f"policy {key!r}: {name!r} is unknown.",
                hint=f"Did you mean {close!r}?" if close else f"Use {', '.join(names)}.",
            )
    if given.get("action") not in _ACTIONS:
        raise ConfigInvalid(f"policy {key!r}: {given.get('action')!r} is no action.", hint="Use allow, ask or deny.")
    wanted = _as_tuple(given.get("effects", ()))
    if key in _EFFECTS:
        wanted = (*wanted, key)
    if unknown := [effect for effect in wanted if effect not in _EFFECTS]:
        raise ConfigInvalid(f"policy {key!r}: no effect is called {unknown[0]!r}.", hint=f"Use {', '.join(_EFFECTS)}.")
    return Rule(
        action=given["action"],
        tool="*" if key in _EFFECTS else key,
        effects=wanted,
        callers=_as_tuple(given.get("callers", ())),
        arguments={name: str(pattern) for name, pattern in dict(given.get("arguments", {})).items()},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """A call that waits for a yes.

    Attributes
    ----------
    tool, call
        What is to run, with validated arguments in ``call.arguments``.
    reason
        Why it is asked.
    """

    tool: Tool
    call: ToolCall
    reason: str

    @property
    def consequence(self) -> str:
        """What a yes would do, in a few words."""
        effects = self.tool.effects
        said = [
            "may overwrite, delete or run things" if effects.destructive else "",
            "reaches beyond this machine" if effects.open_world else "",
            "" if effects.destructive or effects.read_only else "changes something",
        ]
        return ", ".join(part for part in said if part) or "only reads"

    def text(self) -> str:
        """Return the request as a person reads it: the tool, its arguments and the consequence."""
        lines = [f"{self.tool.name} ({self.consequence}) wants to run, asked for by a {self.call.caller}:"]
        for name, value in self.call.arguments.items():
            shown = value if isinstance(value, str) else repr(value)
            cut = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}… ({len(shown):,} characters)"
            lines.append(f"  {name}: {cut}".replace("\n", "\n    "))
        return "\n".join([*lines, f"  ({self.reason})"])


class Approver(Protocol):
    """Whoever answers when the gate asks."""

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Return ``"once"``, ``"no"``, or what holds all session: ``"tool"``, or ``"content"`` (this exact call)."""


class Nobody:
    """No one is there to ask: every request is denied."""

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Say no."""
        return "no"


class AskFunction:
    """Ask through a function, sync or async, that takes the request and returns an answer or a boolean."""

    def __init__(self, function: Callable[[ApprovalRequest], Answer | bool | Awaitable[Answer | bool]]) -> None:
        self._function = function

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Ask the function; anything but a clear yes is a no."""
        import inspect

        is_async = inspect.iscoroutinefunction(self._function)
        answer: Any = self._function(request) if is_async else await in_thread(self._function, request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is True:
            return "once"
        return cast("Answer", answer) if answer in {"once", "tool", "content"} else "no"


class AskTerminal:
    """Ask a person at a terminal, or in a blocked notebook cell, by ``input()``.

    Parameters
    ----------
    reader
        Reads one line after showing a prompt.
    out
        Where the request is written; `None` takes standard error, which leaves standard output to the result.
    """

    _ANSWERS: Mapping[str, Answer] = {"y": "once", "yes": "once", "t": "tool", "a": "content", "n": "no", "no": "no"}

    def __init__(self, reader: Callable[[str], str] = input, out: TextIO | None = None) -> None:
        self._reader = reader
        self._out = out

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Show the request and read an answer; end of input is a no."""
        return await in_thread(self._ask, request)

    def _ask(self, request: ApprovalRequest) -> Answer:
        out = self._out or sys.stderr
        print(request.text(), file=out, flush=True)
        with contextlib.suppress(EOFError):
            for _ in range(3):
                said = self._reader("Allow? [y]es once, [t] this tool all session, [a] this exact call, [n]o: ")
                if said.strip().lower() in self._ANSWERS:
                    return self._ANSWERS[said.strip().lower()]
        return "no"


class Grants:
    """What was allowed for the rest of the session."""

    def __init__(self) -> None:
        self._tools: set[str] = set()
        self._contents: set[str] = set()

    @staticmethod
    def _content(call: ToolCall) -> str:
        told = json.dumps([call.tool, dict(call.arguments)], sort_keys=True, default=repr)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()

    def covers(self, call: ToolCall) -> bool:
        """Tell whether an earlier answer allows the call."""
        return call.tool in self._tools or (bool(self._contents) and self._content(call) in self._contents)

    def remember(self, call: ToolCall, answer: Answer) -> None:
        """Keep an answer that holds for the session."""
        if answer == "tool":
            self._tools.add(call.tool)
        elif answer == "content":
            self._contents.add(self._content(call))
