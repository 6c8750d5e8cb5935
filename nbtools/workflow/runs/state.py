"""The state of a run: what its events have led to.

`RunState.apply` takes one event after the other and touches nothing else, so that a log read from the disk, a picture
in a notebook and the driver itself all see the same.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from nbtools.contract.label import UNLABELLED, Label, join
from nbtools.workflow.runs import events

State = Literal["pending", "waiting", "running", "ok", "failed", "skipped", "cancelled", "declined", "unknown"]
ENDED: frozenset[State] = frozenset({"ok", "failed", "skipped", "cancelled", "declined"})
"""States after which nothing happens to a node any more."""

NEVER_AGAIN = frozenset({"APPROVAL_DENIED", "CANCELLED", "INVALID_ARGUMENTS", "TOOL_NOT_FOUND", "TOOL_NOT_ENABLED"})
"""Codes of failures that another attempt cannot mend."""


@dataclasses.dataclass(kw_only=True)
class StepState:
    """One run of a node, or of one of its items.

    Attributes
    ----------
    state
        See `State`.
    attempt
        Number of the last attempt, from 1; 0 before the first.
    fence
        Number of the driver that made it; 0 before the first.
    why
        Why it runs, was reused, or was skipped.
    parts
        What it depended on when it started last, by hash.
    result
        The fields of a result, once it has ended.
    started_at
        Seconds since 1970; `None` before its start.
    ended_at
        Seconds since 1970; `None` before its end.
    question
        What a person is asked, as data; `None` where nobody is.
    deadline
        When the question ends unanswered, in seconds since 1970; `None` is never.
    answer
        What was answered; `None` until then.
    answered_by
        Who answered; empty until then.
    retry_at
        When the next attempt is due, in seconds since 1970; `None` unless one failed.
    retry_wait_s
        Seconds between the failed attempt and the next.
    effect
        Of the last attempt: ``"started"`` from when it may change something, ``"ok"`` or ``"failed"`` once that came
        back; empty where it never began, or only read.
    inside
        Of a workflow node: the name of the folder of its run.
    """

    state: State = "pending"
    attempt: int = 0
    fence: int = 0
    why: str = ""
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    question: Mapping[str, Any] | None = None
    deadline: float | None = None
    answer: Any = None
    answered_by: str = ""
    retry_at: float | None = None
    retry_wait_s: float = 0.0
    effect: str = ""
    inside: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing happens to it any more."""
        return self.state in ENDED

    def view(self) -> dict[str, Any]:
        """Return what expressions read of it: the fields of a result, with null where there is none."""
        result = self.result or {}
        return {
            "ok": self.state == "ok",
            "state": self.state,
            "text": result.get("text", ""),
            "data": result.get("data"),
            "error": result.get("error"),
            "artifacts": result.get("artifacts", []),
            "duration_s": result.get("duration_s", 0.0),
        }


@dataclasses.dataclass(kw_only=True)
class NodeState(StepState):
    """A node: its own run, or all runs of its items.

    Attributes
    ----------
    items
        The values of ``for_each``; `None` for a node without, and before they are known.
    steps
        The runs of the items, in their order.
    counts
        How many items are in each state.
    pending
        The items that wait for their start, in the order in which they get it: a plan that counted ten thousand items
        after each event would be slower than they are.
    """

    items: list[Any] | None = None
    steps: list[StepState] = dataclasses.field(default_factory=list)
    counts: Counter[str] = dataclasses.field(default_factory=Counter, repr=False)
    pending: dict[int, None] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def ended_items(self) -> int:
        """How many items have ended."""
        return sum(self.counts[state] for state in ENDED)

    def label(self) -> Label:
        """Return what its results may hold; where one does not say it, values of the person's."""
        results = (one.result for one in (self, *self.steps) if one.result is not None)
        # Thousands of items have few labels, and are asked for by each item that needs them.
        return join(map(Label.of, {tuple(result.get("label", ["private"])) for result in results}))


@dataclasses.dataclass(kw_only=True)
class RunState:
    """A run.

    Attributes
    ----------
    run_id
        Id of the run.
    workflow
        Name of its workflow.
    inputs
        The values of the inputs, with defaults filled in.
    inputs_label
        What the inputs may hold, as a label.
    nodes
        The state of each node, in the order of the file.
    state
        ``"running"``, or how it ended.
    fence
        Number of the driver that acts, or acted last.
    driver
        Who that is.
    seconds
        Seconds that the run has taken so far, over all resumes.
    tokens
        Tokens that models have used so far, over all resumes.
    usd
        US dollars that models have cost so far, over all resumes.
    outputs
        What the run returned; `None` until then.
    error
        Why the run failed; `None` where it did not.
    started_at
        Seconds since 1970; `None` before its start.
    ended_at
        Seconds since 1970; `None` before its end.
    left
        The nodes that have not ended, in the order of the file.
    retrying
        The steps whose next attempt has a time.
    """

    run_id: str = ""
    workflow: str = ""
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    inputs_label: Label = UNLABELLED
    nodes: dict[str, NodeState] = dataclasses.field(default_factory=dict)
    state: str = "pending"
    fence: int = 0
    driver: str = ""
    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    outputs: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    left: dict[str, None] = dataclasses.field(default_factory=dict, repr=False)
    retrying: set[tuple[str, int | None]] = dataclasses.field(default_factory=set, repr=False)
    _open: set[tuple[str, int | None]] = dataclasses.field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.left = dict.fromkeys(self.nodes)

    @classmethod
    def of(cls, nodes: Iterable[str], *, inputs: Mapping[str, Any], events: Iterable[events.RunEvent] = ()) -> RunState:
        """Return the state that events lead to.

        Parameters
        ----------
        nodes
            Ids of the workflow's nodes, in their order.
        inputs
            Values of the inputs.
        events
            What happened, oldest first.
        """
        state = cls(inputs=inputs, nodes={name: NodeState() for name in nodes})
        for event in events:
            state.apply(event)
        return state

    def step(self, node: str, item: int | None = None) -> StepState:
        """Return the state of a node, or of one of its items."""
        state = self.nodes[node]
        return state if item is None else state.steps[item]

    def steps(self) -> Iterator[tuple[str, int | None, StepState]]:
        """Yield every step that runs, or may run: items in place of the node that has them."""
        for name, node in self.nodes.items():
            if node.items is None:
                yield name, None, node
            else:
                yield from ((name, i, step) for i, step in enumerate(node.steps))

    def lose(self, at: float) -> None:
        """Let what was running be unknown: nobody drives it, and after this moment nothing is known of it."""
        for node in self.nodes.values():
            for step in (node, *node.steps):
                if step.state == "running":
                    step.state, step.ended_at = "unknown", at
            node.counts = Counter(step.state for step in node.steps)

    def open_questions(self) -> list[tuple[str, int | None, StepState]]:
        """Return the steps that wait for a person, those of unknown outcome among them."""
        order = {name: i for i, name in enumerate(self.nodes)} if len(self._open) > 1 else {}
        waiting = sorted(self._open, key=lambda key: (order.get(key[0], 0), key[1] or 0))
        return [(name, item, self.step(name, item)) for name, item in waiting]

    def label(self) -> Label:
        """Return what its results may hold."""
        return join((self.inputs_label, *(node.label() for node in self.nodes.values())))

    def scope(self, *, item: Any = None, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return what the first names of expressions stand for; ``env`` is the driver's to add.

        `names` are the nodes that are looked at, `None` is all.
        """
        considered = self.nodes if names is None else names
        views = {name: node.view() for name in considered if (node := self.nodes[name]).has_ended}
        return {"inputs": self.inputs, "nodes": views, "item": item}

    def apply(self, event: events.RunEvent) -> bool:
        """Take an event; return whether it changed anything.

        The late end of an attempt that is not the current one changes nothing, nor do events of sub-workflows.
        """
        match event:
            case events.RunStarted():
                self.run_id, self.workflow, self.fence = event.run_id, event.workflow, event.fence
                self.driver, self.state, self.ended_at = event.driver, "running", None
                self.started_at = self.started_at or event.at
                # Added and never replaced: results of earlier drivers were made from what the inputs held then.
                self.inputs_label |= Label.of(event.label)
                if event.nodes is not None:
                    self._begin_again(event.nodes)
                return True
            case events.BudgetUsed():
                self.seconds += event.seconds
                self.tokens += event.tokens
                self.usd += event.usd
                return True
            case events.RunEnded():
                self.state, self.outputs, self.error, self.ended_at = event.state, event.outputs, event.error, event.at
                return True
        name = getattr(event, "node", None)
        node = self.nodes.get(name) if name is not None else None
        if node is None:
            return False
        if isinstance(event, events.ItemsFound):
            node.items, node.steps = event.items, [StepState() for _ in event.items]
            node.counts, node.pending = Counter(pending=len(event.items)), dict.fromkeys(range(len(event.items)))
            node.state, node.started_at = "running", event.at
            return True
        item = getattr(event, "item", None)
        if item is not None and item >= len(node.steps):
            return False
        step = node if item is None else node.steps[item]
        was = step.state
        if not _apply(step, event):
            return False
        self._sort_in(str(name), node, item, step, was)
        return True

    def _begin_again(self, names: Iterable[str]) -> None:
        """Let every node wait for its start, as in a new run."""
        self.nodes = {name: NodeState() for name in names}
        self.left, self.retrying, self._open = dict.fromkeys(self.nodes), set(), set()
        self.outputs = self.error = None

    def _sort_in(self, name: str, node: NodeState, item: int | None, step: StepState, was: State) -> None:
        """Keep what is asked after each event in step with a change of state."""
        key = (name, item)
        (self._open.add if step.state in {"waiting", "unknown"} else self._open.discard)(key)
        (self.retrying.add if step.state == "pending" and step.retry_at else self.retrying.discard)(key)
        if item is None:
            if step.has_ended:
                self.left.pop(name, None)
            return
        node.counts[was] -= 1
        node.counts[step.state] += 1
        if step.state == "pending":
            node.pending[item] = None
        else:
            node.pending.pop(item, None)


def _apply(step: StepState, event: events.RunEvent) -> bool:
    """Let an event change a step."""
    of = (step.attempt, step.fence)
    # A step that was taken from a lost driver may still end there. What that says of an older attempt must change
    # nothing.
    is_late = (
        isinstance(event, events.NodeEnded | events.CallState)
        and event.attempt != 0
        and (event.attempt, event.fence) != of
    )
    match event:
        case events.NodeStarted():
            step.state, step.attempt, step.fence = "running", event.attempt, event.fence
            step.why, step.parts, step.retry_at = event.why, event.parts, None
            step.started_at = event.at if step.attempt == 1 or step.started_at is None else step.started_at
            step.ended_at, step.result = None, None
            step.effect, step.inside = "", event.inside or step.inside
        case events.CallState() if not is_late:
            step.effect = event.state
        case events.RetryPlanned():
            step.state, step.retry_at, step.retry_wait_s = "pending", event.at + event.wait_s, event.wait_s
        case events.NodeSkipped():
            step.state, step.why, step.ended_at = "skipped", event.why, event.at
        case events.QuestionAsked():
            step.state, step.question, step.deadline = "waiting", event.question, event.deadline
            step.answer = None
            step.started_at = step.started_at or event.at
        case events.QuestionAnswered():
            step.answer, step.answered_by = event.answer, event.by
            is_approved = (
                step.state == "waiting" and event.answer is True and {"digest", "again"} & {*(step.question or {})}
            )
            if is_approved or (step.state == "unknown" and event.answer == "retry"):
                step.state = "pending"
        case events.NodeEnded() if not is_late and not step.has_ended:
            step.state, step.result, step.ended_at = event.state, event.result, event.at
            step.why = event.why or step.why
            step.question = event.result.get("question", step.question) if event.state == "unknown" else step.question
        case _:
            return False
    return True


def is_taken_over(why: str) -> bool:
    """Tell by the reason of a step that is ok whether its result was there before; its state does not say so."""
    return why.startswith(("reused from ", "kept"))


def step_label(node: str, item: int | None) -> str:
    """Return what a step is called: its node, with the number of the item."""
    return node if item is None else f"{node}[{item}]"


def failure_result(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    """Return the result of a step that failed before, or instead of, doing its work."""
    error = {"code": code, "message": message, "hint": hint}
    return {"ok": False, "text": message, "data": None, "error": error, "artifacts": [], "duration_s": 0.0}
