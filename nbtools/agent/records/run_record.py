"""What is kept of a run: what it was asked, under which options, what it used, how it ended, what it waits for."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Any

from nbtools.agent.records.budgets import Budgets, Ledger
from nbtools.agent.records.events import AgentState
from nbtools.ground.paths import working_folder
from nbtools.ground.telemetry import fresh_id
from nbtools.texts.other_words import knows_other_arguments


@knows_other_arguments
@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run works; kept with it, so that it goes on in the same way.

    Attributes
    ----------
    script
        The text of the script that plays the model, where one does.
    tools
        Names or patterns of the tools that the model is offered. ``*`` alone chooses none: where all tools are much to
        send, it is sent those that fit the prompt, and finds the others.
    read_only
        Whether only tools that change nothing are offered.
    plan
        Whether the run ends with a plan, having changed nothing.
    instructions
        Sentences that the model is told besides those of every run.
    output_schema
        JSON Schema of the answer; `None` is text.
    model_settings
        Settings of the request: ``temperature``, ``max_tokens``, ….
    on_error
        ``"fail"`` ends the run at the first call that fails.
    context_tokens
        Tokens above which old results are shortened in what the model is sent.
    retries
        How often the model may correct an answer that does not fit the schema, or the name of a tool.
    tool_timeout
        Seconds that one call may take; `None` takes the tool's own.
    end_strategy
        What becomes of calls beside an answer by a schema: ``early``, ``graceful`` or ``exhaustive``.
    recorded_as
        The run under which calls are recorded, where it is another one's.
    share
        What the model may see of data: ``schema``, ``sample``, ``sample:N`` or ``values``.
    tries
        Of one of several tries of a prompt: the id that all of them share; empty for a run of its own.
    sessions_end
        Of one of several tries: the suffix of the names of its sessions.
    seen
        What the model has seen, as a label (`nbtools.contract.label`).
    hosts
        The hosts that its person named.
    """

    script: str | None = None
    tools: tuple[str, ...] = ("*",)
    read_only: bool = False
    plan: bool = False
    instructions: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    model_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    on_error: str = "continue"
    context_tokens: int = 120_000
    retries: int = 3
    tool_timeout: float | None = None
    end_strategy: str = "graceful"
    recorded_as: str | None = None
    share: str = "values"
    tries: str = ""
    sessions_end: str = ""
    seen: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def this_place() -> str:
    """Return the notebook of this kernel where Jupyter says it, else the working folder."""
    return os.environ.get("JPY_SESSION_NAME") or str(working_folder())


@dataclasses.dataclass(kw_only=True)
class RunRecord:
    """One run, as it is stored; see the module.

    `asked_as` is the name under which the model was chosen, `tools_sent` that under which the definitions of the tools
    are kept as the model was sent them, `began_with` how many batches of messages the conversation had before it,
    `began_in` the notebook or folder in which it began.
    """

    prompt: str
    options: RunOptions
    model: str
    asked_as: str = ""
    tools_sent: str = ""
    label: str = ""
    run_id: str = dataclasses.field(default_factory=fresh_id)
    conversation_id: str = dataclasses.field(default_factory=fresh_id)
    ledger: Ledger = dataclasses.field(default_factory=lambda: Ledger(budgets=Budgets()))
    state: AgentState = "running"
    text: str = ""
    value: Any = None
    error: Mapping[str, Any] | None = None
    pending: tuple[Mapping[str, Any], ...] = ()
    started_at: float = dataclasses.field(default_factory=time.time)
    ended_at: float | None = None
    began_with: int = 0
    began_in: str = dataclasses.field(default_factory=this_place)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "options": dataclasses.asdict(self.options), "ledger": self.ledger.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunRecord:
        """Return a stored record."""
        values = {name: value for name, value in fields.items() if name != "format"}
        parts = {"options": RunOptions(**fields["options"]), "ledger": Ledger.from_dict(fields["ledger"])}
        return cls(**{**values, **parts, "pending": tuple(fields["pending"])})

    def has_left(self, stored: RunRecord) -> bool:
        """Tell whether someone else has gone on with the run, or ended it, since it was as another record says."""
        return (stored.state, stored.ended_at) != (self.state, self.ended_at)
