"""What happens in a run, as frozen records: one stream for programs, terminals, notebooks and the log.

Each event says whose it is (`run_id`), when it was, and, where no model is at work, the label ``scripted (no LLM)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nbtools.conduct.events import Event
from nbtools.contract.result import ToolResult

AgentState = Literal[
    "running", "interrupted", "done", "pending", "budget", "incomplete", "refused", "cancelled", "failed"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentEvent(Event):
    """One thing that happened in a run.

    Attributes
    ----------
    run_id
        The run.
    label
        ``scripted (no LLM)`` where a script plays the model, else empty.
    """

    run_id: str = ""
    label: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentRunStarted(AgentEvent, kind="run_started"):
    """A run began, or goes on; `tools` are the names that the model is offered."""

    conversation_id: str
    model: str
    prompt: str | None
    tools: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextDelta(AgentEvent, kind="text"):
    """The model wrote some more text; `step` counts its answers from 1."""

    text: str
    step: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallProposed(AgentEvent, kind="call_proposed"):
    """The model asked for a call, with the arguments as it wrote them."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallStarted(AgentEvent, kind="call_started"):
    """A call goes to the door."""

    call_id: str
    tool: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallEnded(AgentEvent, kind="call_ended"):
    """A call came back.

    Attributes
    ----------
    call_id
        Id of the call.
    tool
        Name of the tool.
    result
        The whole result, for the person.
    sent
        The text that the model is given, which may be shorter.
    """

    call_id: str
    tool: str
    result: ToolResult
    sent: str

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {**super().to_dict(), "result": self.result.to_dict()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedCall:
    """A call about which someone is asked.

    Attributes
    ----------
    tool
        Name of the tool that would run.
    arguments
        Its arguments: validated, with defaults filled in and paths followed.
    consequence
        What the call would do after a yes.
    reason
        Why someone is asked.
    text
        The request as a person reads it.
    digest
        What an answer is bound to, see `nbtools.contract.approval.approval_request.ApprovalRequest.seal`.
    parts
        What it would change, in parts with a ``title`` and a ``text``.
    """

    tool: str
    arguments: Mapping[str, Any]
    consequence: str
    reason: str
    text: str
    digest: str
    parts: Sequence[Mapping[str, str]] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApprovalAsked(AgentEvent, AskedCall, kind="approval_asked"):
    """Someone is asked whether a call may run, of which `call_id` says which."""

    call_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApprovalAnswered(AgentEvent, kind="approval_answered"):
    """Someone answered; `arguments` are the changed ones, `None` where nothing was changed."""

    call_id: str
    tool: str
    answer: str
    by: str
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsageChanged(AgentEvent, kind="usage"):
    """What the run has used so far; `usd` is `None` where the model has no known price."""

    steps: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    seconds: float
    usd: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetReached(AgentEvent, kind="budget_reached"):
    """A budget is used up: its name, what was allowed and what was found."""

    budget: str
    allowed: float
    used: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class MessageDelivered(AgentEvent, kind="message_delivered"):
    """What a person typed meanwhile is with the model."""

    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentRunEnded(AgentEvent, kind="run_ended"):
    """The run is over, or waits (`pending`); `text` is the last answer, `error` says why it is not done."""

    state: AgentState
    text: str
    error: str | None = None
