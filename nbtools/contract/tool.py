"""The contract: one typed, documented function is a tool, and everything else is derived from it.

`tool` returns the function itself with a `Tool` attached as ``__tool__``. The tool knows its name, description,
argument model, JSON Schema and effects. A parameter annotated with `Context` is handed in by the door and is
invisible to callers. Types are read when the function is decorated; the argument model (pydantic) and the docstring
are only looked at on first use, so that importing a shelf of tools costs next to nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import FrameType
from typing import Any, Literal, TypeAlias, TypeVar

from nbtools.contract.consequence import Consequence
from nbtools.contract.label import UNLABELLED, Label, join
from nbtools.contract.result import CopiesQuickly, ToolResult
from nbtools.contract.signature.parameters import FunctionParameters, Parameters
from nbtools.errors import InternalError, InvalidArguments
from nbtools.ground.telemetry import fresh_id
from nbtools.texts.other_words import explains_arguments, knows_other_arguments

Caller = Literal["python", "magic", "form", "cli", "model", "workflow", "mcp"]
OnError = Literal["fail", "continue"]
CALLERS: tuple[Caller, ...] = typing.get_args(Caller)
MODELS: frozenset[Caller] = frozenset({"model", "mcp"})
READ_BY_MODELS: frozenset[Caller] = MODELS | {"workflow"}
"""Whose results a model may read: nodes of a workflow may be models."""
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Services: TypeAlias = Mapping[type, Callable[[], Any]]
"""Types to the function that returns the instance a tool gets from ``ctx.use(type)``."""
_ATTRIBUTE = "__tool__"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effects:
    """What a tool does to the world, in MCP's words.

    Attributes
    ----------
    read_only
        It changes nothing.
    destructive
        It may overwrite, delete or run what cannot be taken back.
    idempotent
        Repeating it with the same arguments has no further effect.
    open_world
        It talks to things outside this machine.
    public
        What it gives holds nothing of the person's: it follows from its arguments, and from what anyone can read.
    undeclared
        Nobody has said what it does: it may do anything. `False` where one of the others is declared, also as false.
    """

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    public: bool = False
    undeclared: bool = False

    @classmethod
    def of(cls, judge: object = None, *declared: bool | None) -> Effects:
        """Return what was declared, in order; undeclared where nothing is, and no `judge` knows each call."""
        is_silent = judge is None and all(value is None for value in declared)
        names = (field.name for field in dataclasses.fields(cls))
        return cls(undeclared=is_silent, **{name: bool(value) for name, value in zip(names, declared, strict=False)})

    @property
    def may_reach_out(self) -> bool:
        """Whether it may talk to things outside this machine."""
        return self.open_world or self.undeclared

    def names(self) -> tuple[str, ...]:
        """Return the names of the effects that hold."""
        return tuple(f.name for f in dataclasses.fields(self) if getattr(self, f.name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallJournal:
    """Where a call that may change something is written down, so that after a crash it is known that it was begun.

    Attributes
    ----------
    started
        Awaited with the call's id when the call may run, and before it does anything: what it stores is on the disk
        when it returns. Where it fails, so does the call, which has done nothing then.
    ended
        Awaited with the id and the result of every call that came back, begun or refused. If a call is cut off, its end
        is unknown and is not reported.
    """

    started: Callable[[str], Awaitable[None]]
    ended: Callable[[str, ToolResult], Awaitable[None]]


@knows_other_arguments
@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolCall(CopiesQuickly):
    """A tool asked for, with arguments.

    Attributes
    ----------
    tool
        Name of the tool.
    arguments
        As the caller gave them, not validated yet.
    call_id
        Id of this call.
    run_id
        Id of the run that it belongs to; `None` outside of runs.
    parent_id
        Id of the call that made it; `None` where no call did.
    caller
        The face that asked; a model is asked for approval where a person is not.
    session
        Whose answers of "always this session" hold for it: a connection's; empty for the workbench's own user.
    timeout
        Seconds; `None` takes the tool's own.
    on_output
        Called with ``(kind, text, data)`` as output appears; see `Context.emit`.
    approval
        How it was approved, where someone was asked: ``answer``, ``by``, ``at``, the arguments that were ``proposed``
        and, where they were changed, the ``changed`` ones.
    label
        What its arguments may be made of: what the model that chose them has seen.
    hosts
        Hosts that the person has named, where a model may ask for things although it has seen values.
    journal
        Where the start of the call, unless it only reads, and its end are recorded; `None` records nothing.
        What the call calls in turn is a part of it.
    witnesses
        Who sees what it changes, and what the calls change that it makes in turn.
    own_sessions
        A coroutine function that returns the call with the names of its own sessions in place of those it was given,
        for this call and those that it makes in turn; `None` leaves the names.
    """

    tool: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    call_id: str = dataclasses.field(default_factory=fresh_id)
    run_id: str | None = None
    parent_id: str | None = None
    caller: Caller = "python"
    session: str = ""
    timeout: float | None = None
    on_output: Callable[[str, str, Any], None] | None = dataclasses.field(default=None, compare=False, repr=False)
    approval: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False)
    label: Label = dataclasses.field(default=UNLABELLED, compare=False)
    hosts: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, repr=False)
    journal: CallJournal | None = dataclasses.field(default=None, compare=False, repr=False)
    witnesses: tuple[Witness, ...] = dataclasses.field(default=(), compare=False, repr=False)
    own_sessions: Callable[..., Any] | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def by_model(self) -> bool:
        """Whether a model, rather than a person or a person's own file, chose the arguments."""
        return self.caller in MODELS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """What a running tool may use: who called, the services, a way to show output, and other tools.

    Annotate a parameter with it to have it handed in. What a tool puts into `recorded` stands in the record of the
    call in place of the argument of that name. What it reads by other ways than its arguments and other calls it adds
    to `seen` as a label.
    """

    call: ToolCall
    services: Services = dataclasses.field(default_factory=dict, repr=False)
    timeout: float | None = None
    perform: Callable[[ToolCall], Awaitable[ToolResult]] | None = dataclasses.field(default=None, repr=False)
    judge: Callable[[Mapping[str, Any]], None] | None = dataclasses.field(default=None, repr=False)
    recorded: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    effects: Effects | None = None
    seen: list[Label] = dataclasses.field(default_factory=list, repr=False)

    @property
    def call_id(self) -> str:
        """Id of the call."""
        return self.call.call_id

    @property
    def caller(self) -> Caller:
        """The face that asked."""
        return self.call.caller

    @property
    def by_model(self) -> bool:
        """Whether a model, rather than a person or a person's own file, chose the arguments."""
        return self.call.by_model

    def use(self, service: type[T]) -> T:
        """Return a service, making it at first use.

        Raises
        ------
        InternalError
            The assembly of the executor did not provide it.
        """
        try:
            make = self.services[service]
        except KeyError:
            raise InternalError(
                f"{self.call.tool} needs {service.__name__}, which this executor does not have.",
                hint="Call the tool through a Workbench, or pass the service to the executor.",
            ) from None
        instance: T = make()
        return instance

    def emit(self, kind: str, text: str = "", data: Any = None) -> None:
        """Show output while the call runs.

        Parameters
        ----------
        kind
            ``"stdout"``, ``"stderr"``, ``"display"`` (`data` is a MIME bundle, which may have a ``display_id``),
            ``"update"`` (of the display of this id), ``"clear"`` (all before it; a `text` of ``"wait"`` says that what
            takes its place follows at once) or ``"progress"``.
        text
            The text of the output; empty for a display.
        data
            The MIME bundle of a display; `None` for texts.
        """
        if self.call.on_output is not None:
            self.call.on_output(kind, text, data)

    def check_rules(self, **arguments: Any) -> None:
        """Return when the rules let this call run with other arguments too, such as where a server redirects to.

        Raises
        ------
        PermissionDenied
            They are stricter with these.
        """
        if self.judge is not None:
            self.judge(arguments)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call another tool as part of this call; it is recorded with this call as its parent."""
        if self.perform is None:
            raise InternalError("this executor cannot call other tools from within a tool")
        own: dict[str, Any] = {"call_id": fresh_id(), "parent_id": self.call_id, "timeout": None, "approval": None}
        own["journal"], own["label"] = None, join((self.call.label, *self.seen))
        return await self.perform(dataclasses.replace(self.call, tool=name, arguments=dict(arguments), **own))


Witness = Callable[
    ["Tool", Mapping[str, Any], Callable[[Context], Awaitable[ToolResult]], Context], Awaitable[ToolResult]
]
"""Sees what calls change: gets what is about to run, its values, what runs it with a context, and the context, and
returns the result. The door asks those of a call where it may change something."""


def _unsaid() -> Any:
    """Return the type of a tool that does not say what it returns."""
    return Any


EffectsOf = Callable[[Mapping[str, Any], Context], Effects | Awaitable[Effects]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """What an argument means whose text says it in many ways, such as a command line: rules match it besides the text.

    Attributes
    ----------
    parts
        What the value consists of, each part in one spelling. A rule that allows has to match every part.
    others
        Other names of the parts. A rule that denies or asks matches one of these, a part, or the text.
    complete
        Whether that is all; where it is not, rules that deny or ask match whatever they say, and none that allows.
    is_address
        Whether the argument is the address that the call goes to. Where a person named its host, a model that has seen
        values need not ask.
    """

    parts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    complete: bool = True
    is_address: bool = False


ReadingsOf = Callable[[Mapping[str, Any], Context], Awaitable[Mapping[str, Reading]]]
ConsequencesOf = Callable[[Mapping[str, Any], Context], Iterable[Consequence]]
Reads = str | Callable[[Mapping[str, Any]], str]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """A tool: what it is called, what it takes, what it does to the world, and how it is run.

    Attributes
    ----------
    name
        Letters, digits, ``_`` and ``-``, at most 64; unique in a registry.
    function
        What runs. It gets the validated arguments by name and may be a coroutine function.
    parameters
        Schema and validation of the arguments.
    effects
        What it does to the world; that is what lists of tools tell.
    effects_of
        Returns what one call does, given its validated values and its context: that is what is judged. It may be a
        coroutine function; `None` where all calls do the same.
    readings_of
        Returns what rules read of some arguments besides their text; the name of an argument to its `Reading`. A tool
        that has it connects only to those of its arguments that it reads as addresses.
    consequences_of
        Returns what one call would change, as people see it before a yes, given its validated values and its context;
        it may block. `None` lists existing files among the arguments that are paths.
    reads
        What its calls read besides their arguments and the files that these name, in words, or what returns that for
        the validated values of one call: nobody can compare it, and so a workflow calls again. Empty for nothing.
    title
        A short name for people; `None` is made from the name.
    examples
        Arguments that are valid; `nbtools check-tools` proves it.
    timeout
        Seconds a call may take unless it asks for a different limit; `None` leaves it to the executor.
    on_error
        ``"fail"`` raises the error in the agent loop, ``"continue"`` hands the error on as a result.
    about
        Description that replaces the docstring's.
    note
        A sentence behind the description: what holds where the tool is offered.
    trusted
        Whether `effects` may be believed; those of an outside server are claims.
    origins
        Names that it had before it was configured or prefixed: rules for these hold for it too.
    returns
        Returns the type of what the function returns, ``Output[T]`` among them, or a JSON Schema of its structured
        content that came from elsewhere; `nbtools.contract.schema.output_schema` makes use of it.
    """

    name: str
    function: Callable[..., Any]
    parameters: Parameters
    effects: Effects = dataclasses.field(default_factory=Effects.of)
    effects_of: EffectsOf | None = None
    readings_of: ReadingsOf | None = None
    consequences_of: ConsequencesOf | None = None
    reads: Reads = ""
    title: str | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    timeout: float | None = None
    on_error: OnError = "continue"
    about: str | None = None
    note: str | None = None
    trusted: bool = True
    origins: tuple[str, ...] = ()
    returns: Callable[[], Any] = dataclasses.field(default=_unsaid, repr=False)

    def __post_init__(self) -> None:
        if self.on_error not in {"fail", "continue"}:
            raise InvalidArguments(f"on_error is {self.on_error!r}.", hint="Use 'fail' or 'continue'.")

    def renamed(self, name: str) -> Tool:
        """Return the tool under another name, which stays under the rules of this one."""
        return self if name == self.name else dataclasses.replace(self, name=name, origins=(*self.origins, self.name))

    @functools.cached_property
    def description(self) -> str:
        """What the tool does: the text above the sections of the docstring, and the note."""
        text = self.about
        if text is None:
            from nbtools.contract.signature.docstring import description

            text = description(self.function)
        return f"{text}\n\n{self.note}" if self.note else text

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments."""
        return self.parameters.schema()

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that a person is told of the tool before a yes."""
        facts = [self.name, self.description, self.schema, self.effects.names(), self.trusted]
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode("utf-8", "replace")).hexdigest()

    @property
    def signature_line(self) -> str:
        """One line that shows how to call it: ``name(path, limit=…)``."""
        required = self.schema.get("required", ())
        names = [name if name in required else f"{name}=…" for name in self.schema["properties"]]
        return f"{self.name}({', '.join(names)})"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        # Most are compared with themselves, where one registry is made of another.
        return self is other or (
            isinstance(other, Tool)
            and all(getattr(self, f.name) == getattr(other, f.name) for f in dataclasses.fields(self))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a tool that a decorator made by its function; others cannot cross processes."""
        if getattr(self.function, _ATTRIBUTE, None) is not self:
            raise TypeError(f"tool {self.name!r} is configured or comes from outside: send its configuration instead")
        return tool_of, (self.function,)

    def invoke(self, arguments: Mapping[str, Any], context: Context) -> Any:
        """Start the function with validated arguments; the door calls this and awaits what is awaitable."""
        name = self.parameters.hidden_name
        return self.function(**arguments, **({name: context} if name else {}))

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function, which runs on the loop rather than in a thread."""
        return inspect.iscoroutinefunction(self.function)


@typing.overload
def tool(function: F, /) -> F: ...
@typing.overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    public: bool | None = None,
    effects_of: EffectsOf | None = None,
    readings_of: ReadingsOf | None = None,
    consequences_of: ConsequencesOf | None = None,
    reads: Reads = "",
    examples: tuple[Mapping[str, Any], ...] = (),
    timeout: float | None = None,
    on_error: OnError = "continue",
) -> Callable[[F], F]: ...


@explains_arguments
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    public: bool | None = None,
    effects_of: EffectsOf | None = None,
    readings_of: ReadingsOf | None = None,
    consequences_of: ConsequencesOf | None = None,
    reads: Reads = "",
    examples: tuple[Mapping[str, Any], ...] = (),
    timeout: float | None = None,
    on_error: OnError = "continue",
) -> F | Callable[[F], F]:
    """Make a tool of a typed, documented function, and return the function itself.

    Parameters
    ----------
    function
        The function. Its parameters need types that exist at run time (before Python 3.12 a TypedDict is that of
        ``typing_extensions``). The docstring describes them, ``Annotated[…]`` bounds them.
    name
        Name of the tool; `None` takes the function's.
    title
        A short name for people; `None` is made from the name.
    read_only
        Whether it changes nothing; `None` declares nothing, here and in the next four.
    destructive
        Whether it may overwrite, delete or run what cannot be taken back.
    idempotent
        Whether repeating it with the same arguments has no further effect.
    open_world
        Whether it talks to things outside this machine.
    public
        Whether its result holds nothing of the person's, see `Effects`.
    effects_of
        Returns what one call does, see `Tool`; `None` where all calls do the same.
    readings_of
        Returns what rules read of arguments besides their text, see `Tool`; `None` where the text is all.
    consequences_of
        Returns what one call would change, see `Tool`; `None` names the existing files among its paths.
    reads
        What nobody can compare, see `Tool`; empty for nothing.
    examples
        Arguments that are valid.
    timeout
        Seconds a call may take unless it asks for a different limit; `None` leaves it to the executor.
    on_error
        ``"fail"`` raises the error in the agent loop, ``"continue"`` hands the error on as a result.

    Raises
    ------
    TypeError
        A parameter is positional-only or starred.

    Examples
    --------
    >>> @tool(read_only=True)
    ... def shout(text: str) -> str:
    ...     return text.upper()
    """
    own: dict[str, Any] = {"title": title, "examples": examples, "timeout": timeout, "on_error": on_error}
    own |= {"effects_of": effects_of, "readings_of": readings_of, "consequences_of": consequences_of, "reads": reads}

    def decorate(decorated: F) -> F:
        hints = _hints_of(decorated, _names_around(decorated))
        described = Tool(
            name=name or decorated.__name__,
            function=decorated,
            parameters=FunctionParameters(decorated, hints, hidden=Context),
            effects=Effects.of(effects_of, read_only, destructive, idempotent, open_world, public),
            **own,
            returns=lambda: hints().get("return", Any),
        )
        setattr(decorated, _ATTRIBUTE, described)
        return decorated

    return decorate if function is None else decorate(function)


def _names_around(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names where a function is made a tool, or registered: its annotations may mean them.

    Callers from the function's own module count, nearest first; a function from elsewhere must not find its types
    among the names of a stranger.
    """
    names: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - only a frame knows local names
    while frame is not None:
        if frame.f_globals is getattr(function, "__globals__", None) and frame.f_locals is not frame.f_globals:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _hints_of(function: Callable[..., Any], local: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Return the types of the parameters and of the result, now if they can be had now, else at first use."""

    def read() -> dict[str, Any]:
        return typing.get_type_hints(function, localns=local, include_extras=True)

    def read_late() -> dict[str, Any]:
        try:
            return read()
        except NameError:
            pass
        # The type of the result may stand under TYPE_CHECKING: then it says nothing of the data.
        named = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
        bare = types.SimpleNamespace(__annotations__=named)
        names = getattr(function, "__globals__", {})
        try:
            return {**typing.get_type_hints(bare, names, local, include_extras=True), "return": Any}
        except NameError as exc:
            raise NameError(
                f"tool {function.__name__!r}: the type {exc.name!r} of a parameter does not exist at run time; "
                "import it outside of `if TYPE_CHECKING:`",
                name=exc.name,
            ) from None

    try:
        hints = read()
    except NameError:
        return functools.cache(read_late)
    return lambda: hints


def tool_of(function: Callable[..., Any] | Tool) -> Tool:
    """Return the tool that is attached to a function; a plain function becomes one with default effects.

    Raises
    ------
    TypeError
        It is not callable.
    """
    if isinstance(function, Tool):
        return function
    attached = getattr(function, _ATTRIBUTE, None)
    if isinstance(attached, Tool):
        return attached
    if not callable(function):
        raise TypeError(f"{function!r} is neither a function nor a tool")
    fresh: Tool = getattr(tool(function), _ATTRIBUTE)
    return fresh
