"""What happens in a run of a workflow, as one stream of events.

The same events make the durable log, the lines of ``--events``, live pictures, reports, and what programs iterate
over. A `nbtools.workflow.runs.state.RunState` is nothing but the fold of them, so a reader with the events of a run can
show it.

A *step* is one run of a node: of the node itself, or of one item of its ``for_each``. Its attempts are counted over the
whole life of a run, resumes included. A *fence* is the number of the driver that acts, counted from 1: what arrives
from an earlier driver, or of an earlier attempt, is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from nbtools.conduct.events import Event

Effect = Literal["started", "ok", "failed"]
"""What is known of a call that may change something."""

EndState = Literal["ok", "failed", "cancelled", "declined", "unknown"]
"""How a step ends, or a node with all its items."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEvent(Event):
    """Something that happened in a run of a workflow."""

    kinds: ClassVar[dict[str, type[RunEvent]]] = {}

    def __init_subclass__(cls, kind: str = "") -> None:
        """Enter the class under the name that its events have in the log."""
        super().__init_subclass__(kind)
        RunEvent.kinds |= {kind: cls} if kind else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStarted(RunEvent, kind="run_started"):
    """A driver has taken the run; a second one of the same run is a resume.

    Attributes
    ----------
    run_id
        Id of the run.
    workflow
        Name of its workflow.
    fence
        Number of this driver.
    driver
        Who drives it: machine and process.
    nodes
        Of a run that goes on after its end: the ids of the nodes in its files as they are now. Every step is decided
        again, by what the run did before; `None` where the run goes on within one round.
    label
        What the inputs may hold, by the call or the step that gave them.
    """

    run_id: str
    workflow: str
    fence: int
    driver: str = ""
    nodes: list[str] | None = None
    label: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OfStep(RunEvent):
    """An event of a node, or of one of its items, counted from 0.

    In a sub-workflow the name of the node has those before it: ``each[2]/count``.
    """

    node: str
    item: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ItemsFound(RunEvent, kind="items_found"):
    """What ``for_each`` of a node has given."""

    node: str
    items: list[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeStarted(_OfStep, kind="node_started"):
    """A step begins. What may change something is started by a separate `CallState`.

    Attributes
    ----------
    attempt
        Number of the attempt of the step, from 1.
    fence
        Number of the driver that makes it.
    why
        Why it runs: ``never ran``, ``changed: code``, ….
    parts
        What the step depends on, each by its hash: `nbtools.workflow.runs.keys` makes them.
    inside
        Of a workflow node: the name of the folder of its run.
    """

    attempt: int
    fence: int
    why: str = ""
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inside: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallState(_OfStep, kind="call_state"):
    """What the door says of a step's call that may change something, see `nbtools.contract.tool.CallJournal`.

    Attributes
    ----------
    attempt
        Number of the step's attempt, as in the `NodeStarted` before.
    fence
        Number of the driver, as in the `NodeStarted` before.
    state
        ``"started"`` is on the disk before anything is done, and after someone approved it where that is asked;
        ``"ok"`` or ``"failed"`` is how it came back, and its result follows with the end of the step.
    call_id
        The call, as the record of calls has it.
    """

    attempt: int
    fence: int
    state: Effect
    call_id: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeOutput(_OfStep, kind="node_output"):
    """What a step shows while it runs. It is not kept: the result has what counts.

    Attributes
    ----------
    stream
        ``"stdout"``, ``"stderr"``, ``"progress"`` or ``"display"``; ``"waits"`` tells what the step waits for,
        ``"cell"`` which cell of a notebook begins.
    text
        The text, or the plain form of what is displayed.
    """

    stream: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetryPlanned(_OfStep, kind="retry_planned"):
    """An attempt failed and another one follows, after some seconds."""

    attempt: int
    wait_s: float
    error: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeEnded(_OfStep, kind="node_ended"):
    """A step, or a node with all its items, has ended.

    Attributes
    ----------
    attempt
        Number of the attempt that ended; 0 for a node with items, and for what failed before it could start.
    fence
        Number of the driver that made the attempt; 0 as for `attempt`.
    state
        ``"ok"``, ``"failed"``, ``"cancelled"``, ``"declined"``: a person said no, or ``"unknown"``: nobody knows
        whether it has done its work.
    result
        The fields of `nbtools.workflow.spec.RESULT_FIELDS` but the state; ``usage`` beside them for models.
    why
        A sentence where the result did not come from running: from where it was reused, or who said that it was done.
    left
        The files that it names and has changed, each with a hash of what they hold now; the empty text is for one
        that it removed.
    """

    attempt: int = 0
    fence: int = 0
    state: EndState
    result: Mapping[str, Any]
    why: str = ""
    left: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSkipped(RunEvent, kind="node_skipped"):
    """A node does not run, and why."""

    node: str
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAsked(_OfStep, kind="question_asked"):
    """A step waits for a person.

    Attributes
    ----------
    question
        ``{"approve": TEXT}``, ``{"choose": [TEXT, …], "question": TEXT}`` or ``{"fill": SCHEMA, "question": TEXT}``;
        of a call that waits for approval ``{"approve": TEXT, "digest": OF_THE_CALL}``;
        of a step that did its work before it was changed ``{"again": TEXT}``, answered by yes or no;
        of a step whose outcome is unknown ``{"unknown": TEXT}``, answered by ``retry``, ``done``, ``{"done": DATA}`` or
        ``fail``.
    deadline
        When it is too late, in seconds since 1970; `None` is never.
    """

    question: Mapping[str, Any]
    deadline: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnswered(_OfStep, kind="question_answered"):
    """Someone has answered."""

    answer: Any
    by: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetUsed(RunEvent, kind="budget_used"):
    """What a run has used since the last event of this kind: seconds of driving, tokens, US dollars."""

    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEnded(RunEvent, kind="run_ended"):
    """The driver stops.

    Attributes
    ----------
    state
        ``"ok"`` for good; ``"failed"``, ``"cancelled"`` and ``"declined"`` until it is resumed with its files as they
        are then; ``"waiting"`` and ``"unknown"`` until a question is answered and the run resumed.
    outputs
        The workflow's outputs, of a run that is ok.
    error
        Why it failed: code, message, hint.
    """

    state: Literal["ok", "failed", "cancelled", "declined", "waiting", "unknown"]
    outputs: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


def event_from(fields: Mapping[str, Any]) -> RunEvent | None:
    """Return the event that a mapping stands for; `None` for a kind that a newer version has written.

    Examples
    --------
    >>> event_from(NodeSkipped(at=1.0, node="a", why="when is false").to_dict())
    NodeSkipped(at=1.0, node='a', why='when is false')
    """
    kind = RunEvent.kinds.get(str(fields.get("kind")))
    if kind is None:
        return None
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in names})
