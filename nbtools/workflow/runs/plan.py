"""What comes next in a run: a pure function of the workflow and the state.

`RunPlan.next_actions` is asked after each event, and the driver does what it says. The rules:

- A node can start when all nodes that it needs have ended.
- A node whose ``when`` is false is skipped, with those that need it, unless the reference has a default or the node
  says ``when: always``. A question that a person answers with no is *declined*, with the same consequence.
- A node that failed, or whose call a person has declined, ends the run, unless it says ``on_error: continue``: nothing
  new starts, running nodes finish, and nodes with ``finally: true`` run last in any case.
- A node that waits for a person, or whose outcome is unknown, delays only the nodes that need it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.workflow.expressions import fill, truth
from nbtools.workflow.graph import edges
from nbtools.workflow.runs.events import EndState, ItemsFound, NodeEnded, NodeSkipped, RunEnded, RunEvent
from nbtools.workflow.runs.state import NodeState, RunState, failure_result
from nbtools.workflow.schemas import kind_words, shown_value
from nbtools.workflow.spec import NodeFields, Workflow

MOST_ITEMS = 10_000
"""Items that one ``for_each`` may have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """That a node, or one of its items, is to be run; whatever else comes next is an event that is written down."""

    node: str
    item: int | None = None


Action = Start | RunEvent
"""What comes next."""


class RunPlan:
    """The rules for one workflow.

    Parameters
    ----------
    workflow
        A workflow in which nothing was found to be wrong.
    """

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.nodes: dict[str, NodeFields] = {node.id: node for node in workflow.nodes}
        self._needs: dict[str, dict[str, bool]] = {}
        for name, node in self.nodes.items():
            needed: dict[str, bool] = {}
            for edge in edges(node):
                # Of several references to one node, the strictest decides: one without a default needs it to have run.
                needed[edge.target] = needed.get(edge.target, False) or edge.required
            self._needs[name] = needed
        self._final = {name for name, node in self.nodes.items() if node.finally_}
        self._fatal = [name for name, node in self.nodes.items() if node.on_error == "fail"]

    def needs(self, node: str) -> Mapping[str, bool]:
        """Return the nodes that a node needs, each with whether it is skipped when they are."""
        return self._needs[node]

    def next_actions(self, state: RunState, *, env: Mapping[str, str], stopped: str = "") -> list[Action]:
        """Return what can be done now; nothing when something has to end, or be answered, before.

        Parameters
        ----------
        state
            The state of the run.
        env
            Values of ``${env.NAME}``.
        stopped
            Why nothing new may start (the run was cancelled, a budget is used up); empty where it may.
        """
        why = stopped or self._failed(state)
        actions: list[Action] = []
        left = state.left.keys()
        if not left:
            return [self._end(state, env, stopped)]
        # Only now, so that what tidies up sees all that was done.
        if left <= self._final:
            for name in left:
                actions += self._actions(state, self.nodes[name], state.nodes[name], env, "")
            return actions
        for name in left:
            # Most nodes wait for others; that is found out here, without a call for each of them after each event.
            if name not in self._final and (why or self._needs[name].keys().isdisjoint(left)):
                actions += self._actions(state, self.nodes[name], state.nodes[name], env, why)
        return actions

    def _failed(self, state: RunState) -> str:
        # Nothing has ended, so nothing has failed.
        if len(state.left) == len(state.nodes):
            return ""
        for name in self._fatal:
            of = state.nodes[name]
            if of.state == "failed" or (of.state == "declined" and (of.result or {}).get("error")):
                return f"{name} {of.state}" if of.state == "failed" else f"{name} was declined"
        return ""

    def _actions(
        self, state: RunState, node: NodeFields, of: NodeState, env: Mapping[str, str], stopped: str
    ) -> Iterator[Action]:
        if of.items is not None:
            yield from self._item_actions(node, of, stopped)
        elif of.state != "pending":
            # It runs, or waits for a person; a question that nobody has answered ends with the run.
            if stopped and of.state == "waiting":
                yield NodeSkipped(node=node.id, why=stopped)
        elif stopped:
            yield NodeSkipped(node=node.id, why=stopped)
        else:
            yield from self._ready(state, node, env)

    def _ready(self, state: RunState, node: NodeFields, env: Mapping[str, str]) -> Iterator[Action]:
        """Yield what is to be done with a node that has not begun, once all that it needs has ended."""
        needed = self._needs[node.id]
        # An unknown step has not ended: what needs it waits for a person as well.
        if not all(state.nodes[name].has_ended for name in needed):
            return
        if not node.always:
            for name, required in needed.items():
                if required and state.nodes[name].state in {"skipped", "cancelled", "declined"}:
                    yield NodeSkipped(node=node.id, why=f"needs {name}, which was {state.nodes[name].state}")
                    return
        if node.for_each is None and node.when in {None, "always"}:
            yield Start(node=node.id)
            return
        # Of the needed nodes alone: the scope of all nodes grows with the run, and this is asked for each of them.
        scope = {**state.scope(names=needed), "env": env}
        try:
            if not truth(node.when, scope):
                yield NodeSkipped(node=node.id, why=f"when is false: {node.when}")
            elif node.for_each is None:
                yield Start(node=node.id)
            else:
                yield ItemsFound(node=node.id, items=_items_of(node, scope))
        except NbtoolsError as exc:
            result = failure_result(exc.code, exc.message, exc.hint)
            yield NodeEnded(node=node.id, state="failed", result=result)

    def _item_actions(self, node: NodeFields, of: NodeState, stopped: str) -> Iterator[Action]:
        """Yield the items that can start, or the end of the node when none is left."""
        has_failed = node.on_item_error == "fail" and of.counts["failed"] + of.counts["declined"] > 0
        if stopped or has_failed:
            # Items that run go on to their end: what they have done has to be in the result before the node ends.
            if not of.counts["running"] and not of.counts["unknown"]:
                bad: EndState = "failed" if of.counts["failed"] else "declined"
                yield self._collect(node, of, bad if has_failed else "cancelled")
            return
        if of.ended_items == len(of.steps):
            yield self._collect(node, of, "ok")
            return
        # Counts are kept as events come: to count ten thousand items for each event would be quadratic.
        free = (node.max_parallel or self.workflow.limits.max_parallel) - of.counts["running"]
        yield from (Start(node=node.id, item=i) for i in itertools.islice(of.pending, max(0, free)))

    def _collect(self, node: NodeFields, of: NodeState, state: EndState) -> NodeEnded:
        views = [step.view() for step in of.steps]
        good = sum(view["ok"] for view in views)
        error = next((view["error"] for view in views if view["error"]), None)
        first = next((i for i, view in enumerate(views) if view["error"]), 0)
        if error is not None:
            error = {**error, "message": f"item {first}: {error['message']}"}
        result = {
            "ok": state == "ok",
            "text": f"{good} of {len(views)} items" + (f"; {error['message']}" if error else ""),
            # One for each item, in their order, so that it can be put beside the list that the items came from.
            "data": [view["data"] if view["ok"] else None for view in views],
            "error": None if state == "ok" else error,
            "artifacts": [artifact for view in views for artifact in view["artifacts"]],
            "duration_s": _busy_seconds((step.ended_at, step.view()["duration_s"]) for step in of.steps),
        }
        return NodeEnded(node=node.id, state=state, result=result)

    def _end(self, state: RunState, env: Mapping[str, str], stopped: str) -> RunEnded:
        """Return the end of a run all of whose nodes have ended."""
        for name, of in state.nodes.items():
            if of.state == "failed" and self.nodes[name].on_error == "fail":
                error = dict((of.result or {}).get("error") or {})
                return RunEnded(state="failed", error={**error, "node": name})
        # A step that was cancelled by itself cancels the run, even where no one stopped the run.
        if stopped or any(of.state == "cancelled" for of in state.nodes.values()):
            return RunEnded(
                state="cancelled", error={"code": "CANCELLED", "message": stopped or "cancelled", "hint": None}
            )
        scope = {**state.scope(), "env": env}
        declined = [f"{name}: {_why_declined(of)}" for name, of in state.nodes.items() if of.state == "declined"]
        # After failures: a run that failed is told so, whatever a person declined beside it.
        if declined:
            error = {"code": "APPROVAL_DENIED", "message": "; ".join(declined), "hint": None}
            return RunEnded(state="declined", outputs=self._outputs_there(scope), error=error)
        try:
            return RunEnded(state="ok", outputs=fill(self.workflow.outputs, scope))
        except InvalidArguments as exc:
            return RunEnded(
                state="failed", error={"code": exc.code, "message": f"outputs: {exc.message}", "hint": exc.hint}
            )

    def _outputs_there(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs that do not need what was declined."""
        outputs = {}
        for name, value in self.workflow.outputs.items():
            with contextlib.suppress(InvalidArguments):
                outputs[name] = fill(value, scope)
        return outputs


def _why_declined(of: NodeState) -> str:
    return of.why or str(((of.result or {}).get("error") or {}).get("message") or "a person said no")


def _busy_seconds(ended: Iterable[tuple[float | None, float]]) -> float:
    """Return for how long at least one item ran, given when each ended and how long it took."""
    total, until = 0.0, -math.inf
    for begun, end in sorted((end - took, end) for end, took in ended if end is not None):
        total += max(0.0, end - max(begun, until))
        until = max(until, end)
    return round(total, 6)


def _items_of(node: NodeFields, scope: Mapping[str, Any]) -> list[Any]:
    items = fill(node.for_each, scope)
    if not isinstance(items, list):
        raise InvalidArguments(
            f"for_each is {kind_words(items)}, not a list: {shown_value(items)}.",
            hint="Let it lead to a list, such as ${nodes.ID.data.rows}.",
        )
    if len(items) > MOST_ITEMS:
        raise InvalidArguments(
            f"for_each has {len(items):,} items; {MOST_ITEMS:,} are allowed.", hint="Work on several in one item."
        )
    return items
