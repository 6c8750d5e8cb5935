"""The gate decides whether a call may run.

`decide` is pure: rules and a prepared call give ``allow``, ``ask`` or ``deny`` with the reason. Where the answer is
``ask``, an `Approver` asks; with nobody to ask the call is denied. `Grants` remembers "always this session", for a
tool as it was described then, or for this exact content, and for the session whose people said so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import glob
import json
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO, cast

from nbtools.contract.approval.approval_request import ApprovalRequest, lines_of
from nbtools.contract.approval.label_rules import reason_to_ask
from nbtools.contract.prepared import PreparedCall, as_text
from nbtools.contract.tool import CALLERS, MODELS, Caller, Reading, Tool
from nbtools.errors import ConfigInvalid, did_you_mean
from nbtools.ground.aio import in_thread
from nbtools.ground.paths import working_folder
from nbtools.texts.visible import counted, visible, wrapped

Action = Literal["allow", "ask", "deny"]
Answer = Literal["once", "tool", "content", "no", "later"]
ACTIONS: tuple[str, ...] = ("allow", "ask", "deny")
"""From the mildest to the strictest."""
_EFFECTS: tuple[str, ...] = ("read_only", "destructive", "idempotent", "open_world", "public", "undeclared")
_YES: tuple[str, ...] = ("once", "tool", "content")
_QUESTION = "Allow? [y]es once, [t] this tool all session, [a] this exact call, [e]dit, [l]ater, [n]o and why: "
_SHOW = "[s]how all of it, "
_PAGE_LINES = 100
_WILD = "*?["
_PLAIN = Reading()
# Systems on which two spellings of a name's case are one file.
_fold: Callable[[str], str] = str.casefold if sys.platform in {"darwin", "win32"} else str


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
        Argument name to a pattern of its value (``{"path": "/tmp/*"}``); all must fit. Values are those that the tool
        gets, defaults among them, as text or JSON (``true``, ``5``). A path is where it leads. Rules that deny or ask
        take no notice of case in what is not a path. A command line is also read command by command, as words without
        quotes and joined by one blank: a rule that denies or asks matches when one of them fits, one that allows when
        all do.
    base
        Folder at which relative paths in `arguments` start; `None` takes the working folder. Links in them are
        followed when the rule is made.
    why
        What people are told where it decides; empty tells the rule itself.
    """

    action: Action
    tool: str = "*"
    effects: tuple[str, ...] = ()
    callers: tuple[Caller, ...] = ()
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    base: Path | None = dataclasses.field(default=None, compare=False)
    why: str = dataclasses.field(default="", compare=False)
    _places: Mapping[str, _PlacePattern] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = self.base or working_folder()
        # To move a folder away takes what is in it along, so a refusal reaches the folder; a permission must not.
        covers = self.action != "allow"
        places = {n: _PlacePattern(pattern, base, covers=covers) for n, pattern in self.arguments.items()}
        object.__setattr__(self, "_places", places)

    def names(self, name: str) -> bool:
        """Tell whether the rule is for tools of that name."""
        return fnmatch.fnmatchcase(name, self.tool)

    def fits(self, prepared: PreparedCall) -> bool:
        """Tell whether the rule applies to a call, whatever the name of its tool."""
        return (
            (not self.callers or prepared.call.caller in self.callers)
            and all(getattr(prepared.effects, effect) for effect in self.effects)
            and all(name in prepared.values and self._matches(name, prepared) for name in self.arguments)
        )

    def _matches(self, name: str, prepared: PreparedCall) -> bool:
        path = prepared.path_of(name)
        if path is not None:
            return self._places[name].matches(path)
        value, pattern = prepared.call.arguments[name], self.arguments[name]
        if isinstance(value, bool):
            pattern = pattern.lower()  # Python writes True where JSON and TOML write true
        elif not _has_wildcards(pattern):
            pattern = prepared.tool.parameters.spelled(name, pattern)
        text, reading = as_text(value), prepared.readings.get(name, _PLAIN)
        if self.action == "allow":
            fits = reading.complete and all(fnmatch.fnmatchcase(part, pattern) for part in reading.parts or (text,))
            return fits or text == pattern
        # Names of headers, tables and hosts mean the same in every case.
        pattern, texts = pattern.casefold(), (text, *reading.parts, *reading.others)
        return not reading.complete or any(fnmatch.fnmatchcase(each.casefold(), pattern) for each in texts)

    def __str__(self) -> str:
        parts = [self.tool if self.tool != "*" else "", *self.effects, *(f"by {caller}" for caller in self.callers)]
        parts += [f"{name}={pattern}" for name, pattern in self.arguments.items()]
        return f"{self.action} {' '.join(part for part in parts if part) or 'everything'}"


def _has_wildcards(pattern: str) -> bool:
    return any(character in pattern for character in _WILD)


class _PlacePattern:
    """A pattern of paths, in which links are followed as far as it names folders."""

    def __init__(self, pattern: str, base: Path, *, covers: bool) -> None:
        self._base = Path(os.path.realpath(base))
        self._floating = pattern if pattern[:1] in tuple(_WILD) else None
        head, tail = _split(pattern)
        full = os.path.join(self._base, os.path.expanduser(head))  # noqa: PTH111, PTH118 - compared as text
        if tail:
            folder = glob.escape(Path(os.path.realpath(full)).as_posix().rstrip("/"))
            self._wholes = [f"{folder}/{tail}"]
            # What may not be touched inside may not be moved away with its folder either.
            self._wholes += [folder] if covers and tail == "*" else []
        else:
            # The entry itself too, for tools that mean a link rather than what it leads to.
            entry = Path(os.path.realpath(os.path.dirname(full)), os.path.basename(full))  # noqa: PTH119, PTH120 - same
            self._wholes = [glob.escape(p.as_posix()) for p in (Path(os.path.realpath(full)), entry)]

    def matches(self, path: Path) -> bool:
        if self._floating is not None:
            inside = path.relative_to(self._base) if path.is_relative_to(self._base) else path
            return fnmatch.fnmatchcase(_fold(inside.as_posix()), _fold(self._floating))
        text = _fold(path.as_posix())
        return any(fnmatch.fnmatchcase(text, _fold(whole)) for whole in self._wholes)


def _split(pattern: str) -> tuple[str, str]:
    """Return the folders that a pattern names, and the rest from its first wildcard's part on, if it has any."""
    wild = min((at for at in map(pattern.find, _WILD) if at >= 0), default=-1)
    if wild < 0:
        return pattern.rstrip("/") or pattern, ""
    head, _, part = pattern[:wild].rpartition("/")
    return head or ("/" if pattern.startswith("/") else ""), part + pattern[wild:]


# Read-only calls run; what is destructive, or may be, runs when a person asked for it and waits for a yes when a model
# did.
DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(action="allow", effects=("read_only",)),
    Rule(
        action="ask",
        effects=("destructive",),
        callers=tuple(sorted(MODELS)),
        why="asks because it can delete or replace something",
    ),
    Rule(
        action="ask",
        effects=("undeclared",),
        callers=tuple(sorted(MODELS)),
        why="the tool declares no effects; @tool(read_only=True) says that it changes nothing",
    ),
    Rule(action="allow"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What the rules say of a call, and which of them said it."""

    action: Action
    reason: str
    by_label: bool = False


# Worded once: most calls end here. The last rule fits every call.
_BY_DEFAULT = tuple(
    (rule, Decision(action=rule.action, reason=rule.why or f"by default: {rule}")) for rule in DEFAULT_RULES
)


def decide(rules: Iterable[Rule], prepared: PreparedCall) -> Decision:
    """Return the decision of the first rule that fits, after the defaults if none does.

    A tool that was configured or prefixed stays under the rules for its original: the stricter of the two holds. The
    effects of a tool that is not trusted are claims, so such a tool is asked for whatever they say, unless a rule
    names it.
    """
    tool = prepared.tool
    fitting = [rule for rule in rules if rule.fits(prepared)]
    own = next((rule for rule in fitting if rule.names(tool.name)), None)
    others = (rule for rule in fitting if not rule.names(tool.name) and any(map(rule.names, tool.origins)))
    rules_that_fit = [rule for rule in (own, next(others, None)) if rule is not None]
    if rules_that_fit:
        strictest = max(rules_that_fit, key=lambda rule: ACTIONS.index(rule.action))
        return Decision(action=strictest.action, reason=strictest.why or f"the policy says: {strictest}")
    if not tool.trusted:
        return Decision(action="ask", reason="the tool comes from a server that is not trusted")
    if prepared.call.by_model and (why := reason_to_ask(prepared)) is not None:
        return Decision(action="ask", reason=why, by_label=True)
    return next(decision for rule, decision in _BY_DEFAULT if rule.fits(prepared))


def rules_from_config(policy: Mapping[str, Any], *, base: Path | None = None) -> tuple[Rule, ...]:
    """Return the rules of a configuration, the most particular first.

    Parameters
    ----------
    policy
        Tool name, pattern or effect to an action (``{"shell": "deny", "file_*": "ask", "open_world": "ask"}``), or to
        a mapping with ``action`` and any of ``arguments``, ``callers``, ``effects``; or to a list of such mappings.
    base
        Folder at which relative paths in ``arguments`` start; `None` takes the working folder.

    Raises
    ------
    ConfigInvalid
        An action, a key, a caller or an effect is unknown.
    """
    rules: list[Rule] = []
    for key, value in policy.items():
        items = value if isinstance(value, list) else [value]
        rules += [_rule(key, item, base) for item in items]
    # Arguments beat names, names beat patterns, patterns beat effects.
    return tuple(sorted(rules, key=lambda r: (not r.arguments, r.tool == "*", "*" in r.tool, not r.callers)))


def check_names(rules: Iterable[Rule], tools_by_name: Mapping[str, Tool]) -> None:
    """See to it that rules name tools and arguments that exist: a slip would leave a tool unguarded.

    Parameters
    ----------
    rules
        The rules of a configuration.
    tools_by_name
        The tools of this process. Those of outside servers, ``server__tool``, may come later.

    Raises
    ------
    ConfigInvalid
        A rule names a tool that does not exist, or an argument that none of its tools has.
    """
    for rule in rules:
        if "__" in rule.tool:
            continue
        tools = [tool for tool in tools_by_name.values() if any(map(rule.names, (tool.name, *tool.origins)))]
        if not tools and not _has_wildcards(rule.tool):
            raise ConfigInvalid(
                f"The policy is to {rule.action} {rule.tool!r}, and there is no such tool.",
                hint=did_you_mean(rule.tool, tools_by_name, f"A pattern, {rule.tool + '*'!r}, may fit tools to come."),
            )
        arguments = {name for tool in tools for name in tool.parameters.outline()} if rule.arguments else set()
        for name in rule.arguments:
            if tools and name not in arguments:
                raise ConfigInvalid(
                    f"The policy is to {rule}, and {rule.tool} has no argument {name!r}.",
                    hint=did_you_mean(name, arguments, f"It has {', '.join(sorted(arguments)) or 'none'}."),
                )


def _rule(key: str, value: Any, base: Path | None) -> Rule:
    fields: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"action": value}
    names = ("action", "effects", "callers", "arguments")
    for name in fields:
        if name not in names:
            raise ConfigInvalid(
                f"policy {key!r}: {name!r} is unknown.", hint=did_you_mean(str(name), names, f"Use {', '.join(names)}.")
            )
    if fields.get("action") not in ACTIONS:
        raise ConfigInvalid(
            f"policy {key!r}: {fields.get('action')!r} is not an action.", hint="Use allow, ask or deny."
        )
    effects = _check_known(key, "effect", fields.get("effects", ()), _EFFECTS)
    arguments = fields.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise ConfigInvalid(
            f"policy {key!r}: arguments is {arguments!r}.", hint='Use {"path": "out/*"}: a name and a pattern.'
        )
    return Rule(
        action=fields["action"],
        tool="*" if key in _EFFECTS else key,
        effects=(*effects, key) if key in _EFFECTS else effects,
        callers=cast("tuple[Caller, ...]", _check_known(key, "caller", fields.get("callers", ()), CALLERS)),
        arguments={str(name): as_text(pattern) for name, pattern in arguments.items()},
        base=base,
    )


def _check_known(key: str, kind: str, values: Any, allowed: Iterable[str]) -> tuple[str, ...]:
    """Return names of a kind that a policy lists, all of which have to exist."""
    names = (values,) if isinstance(values, str) else tuple(values)
    for name in names:
        if name not in allowed:
            hint = did_you_mean(str(name), allowed, f"Use {', '.join(allowed)}.")
            raise ConfigInvalid(f"policy {key!r}: no {kind} is called {name!r}.", hint=hint)
    return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer that says more than yes or no.

    Attributes
    ----------
    answer
        ``"once"``, ``"no"``, what holds all session (``"tool"``, or ``"content"`` for this exact call), or ``"later"``:
        nobody can say yet, and the call waits.
    arguments
        With a yes: the arguments that are to be used instead. They are validated like any others.
    reason
        Why, in the words of who answered; the caller is told.
    by
        Who answered.
    """

    answer: Answer
    arguments: Mapping[str, Any] | None = None
    reason: str = ""
    by: str = ""

    @classmethod
    def of(cls, answer: object) -> Reply:
        """Return what an approver said as a reply; `True` is once, and anything that is not a known answer is a no."""
        reply = (
            answer if isinstance(answer, Reply) else cls(answer=cast("Answer", "once" if answer is True else answer))
        )
        return reply if is_yes(reply.answer) or reply.answer == "later" else dataclasses.replace(reply, answer="no")


class Approver(Protocol):
    """The person or program that answers when the gate asks."""

    async def approve(self, request: ApprovalRequest) -> Answer | Reply:
        """Return an answer, or a `Reply`, which can also change the arguments and give a reason."""


class Nobody:
    """No one is asked: every request is denied.

    Parameters
    ----------
    why
        Why no one is asked.
    """

    def __init__(self, why: str = "no one is at the keyboard to give it") -> None:
        self.why = why

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Say no."""
        return "no"


def is_yes(answer: object) -> bool:
    """Tell whether an answer lets a call run: one of the known ones, and nothing that merely counts as true."""
    return isinstance(answer, str) and answer in _YES


class AskFunction:
    """Ask through a function, sync or async, that takes the request and returns an answer, a reply or a boolean."""

    def __init__(
        self, function: Callable[[ApprovalRequest], Answer | Reply | bool | Awaitable[Answer | Reply | bool]]
    ) -> None:
        self._function = function

    async def approve(self, request: ApprovalRequest) -> Reply:
        """Ask the function; anything but a clear yes is a no."""
        import inspect

        is_async = inspect.iscoroutinefunction(self._function)
        answer: Any = self._function(request) if is_async else await in_thread(self._function, request)
        if inspect.isawaitable(answer):
            answer = await answer
        return Reply.of(answer)


class AskTerminal:
    """Ask a person at a terminal, or in a blocked notebook cell, by ``input()``.

    Parameters
    ----------
    reader
        Reads one line after showing a prompt.
    out
        Where the request is written; `None` takes standard error, which leaves standard output to the result.
    """

    _ANSWERS: Mapping[str, Answer] = {"y": "once", "t": "tool", "a": "content", "n": "no", "l": "later"}

    def __init__(self, reader: Callable[[str], str] = input, out: TextIO | None = None) -> None:
        self._reader = reader
        self._out = out

    async def approve(self, request: ApprovalRequest) -> Answer | Reply:
        """Show the request and read an answer; end of input is a no."""
        return await in_thread(self._ask, request)

    def _ask(self, request: ApprovalRequest) -> Answer | Reply:
        short, whole = request.text(), request.text(whole=True)
        # Below what may stand on the line already.
        print(f"\n{wrapped(short)}", file=self._out or sys.stderr, flush=True)
        question = _QUESTION if short == whole else _QUESTION.replace("[e]", f"{_SHOW}[e]")
        tries = 3
        with contextlib.suppress(EOFError):
            while tries:
                line = self._reader(question).strip()
                word, _, reason = line.partition(" ")
                word = {"yes": "y", "no": "n"}.get(word.lower(), word.lower())
                if word == "s" and short != whole:
                    self._page(wrapped(whole).split("\n"))
                    continue
                tries -= 1
                if word == "e":
                    return Reply(answer="once", arguments=self._changes(request), by="terminal")
                answer = self._ANSWERS.get(word, "no")
                if answer in {"no", "later"} and word in self._ANSWERS:
                    return Reply(answer=answer, reason=reason.strip(), by="terminal") if reason.strip() else answer
                # A yes stands alone: "a bad idea" and "y but elsewhere" are none.
                if answer != "no" and not reason.strip():
                    return answer
        return "no"

    def _page(self, lines: list[str]) -> None:
        """Show all lines, a hundred at a time."""
        for at in range(0, len(lines), _PAGE_LINES):
            print("\n".join(lines[at : at + _PAGE_LINES]), file=self._out or sys.stderr, flush=True)
            left = len(lines) - at - _PAGE_LINES
            if left > 0 and self._reader(f"{counted(left, 'more line')}: Enter continues, q ends: ").strip():
                return

    def _changes(self, request: ApprovalRequest) -> dict[str, Any]:
        """Read the arguments again, each as JSON or as text; an empty line keeps one."""
        arguments = dict(request.call.arguments)
        for name, value in request.call.arguments.items():
            line = self._reader(f"  {visible(name)} [{lines_of(value)[0]}]: ").strip()
            if line:
                with contextlib.suppress(ValueError):
                    arguments[name] = json.loads(line)
                    continue
                arguments[name] = line
        return arguments


class Grants:
    """What was allowed for the rest of a session.

    Parameters
    ----------
    seconds
        How long an answer holds.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._seconds = seconds
        self._granted_at: dict[tuple[str, str, bool], float] = {}

    def covers(self, prepared: PreparedCall, *, by_label: bool = False) -> bool:
        """Tell whether an earlier answer of the same session, which still holds, allows the call.

        Where it is asked because of what the model has seen, only an answer to that counts.
        """
        if not self._granted_at:
            return False
        whats, reasons = (prepared.tool.fingerprint, prepared.digest), (True,) if by_label else (True, False)
        allowed = ((prepared.call.session, what, reason) for what in whats for reason in reasons)
        return time.monotonic() - max(self._granted_at.get(one, -math.inf) for one in allowed) < self._seconds

    def remember(self, prepared: PreparedCall, answer: Answer, *, by_label: bool = False) -> None:
        """Keep an answer that holds for the session."""
        if answer != "once":
            what = prepared.tool.fingerprint if answer == "tool" else prepared.digest
            self._granted_at[prepared.call.session, what, by_label] = time.monotonic()
