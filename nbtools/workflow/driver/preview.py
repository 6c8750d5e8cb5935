"""What a run would do with each node, and why; nothing runs."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from nbtools.errors import NbtoolsError
from nbtools.texts import html_parts
from nbtools.texts.visible import harmless
from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.going_on import EarlierRuns, GoingOn
from nbtools.workflow.driver.questions import question_of
from nbtools.workflow.driver.step_factory import StepFactory
from nbtools.workflow.runs.events import NodeEnded, NodeSkipped, NodeStarted, RunEnded
from nbtools.workflow.runs.history import EarlierStep, RunHistory
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.plan import RunPlan, Start
from nbtools.workflow.runs.state import RunState, step_label
from nbtools.workflow.spec import AskNode, NodeFields


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreviewedNode:
    """What a run would do with a node, or with one of its items.

    Attributes
    ----------
    node
        Id of the node.
    item
        Number of the item, from 0; `None` for the node itself.
    action
        ``"run"``, ``"reuse"``, ``"keep"``, ``"skip"``, ``"ask"``, ``"fail"``, or ``"decide"``: that depends on what
        runs before.
    why
        A reason in words.
    """

    node: str
    item: int | None = None
    action: Literal["run", "reuse", "keep", "skip", "ask", "fail", "decide"]
    why: str = ""

    @property
    def label(self) -> str:
        """The node, with the number of the item."""
        return step_label(self.node, self.item)

    def __str__(self) -> str:
        return f"{self.action:<7} {self.label}" + (f"  ({self.why})" if self.why else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preview:
    """What a run would do, node by node, in the order in which they could start.

    `gone` are nodes of the file before, which did their work and are not in it any more.
    """

    workflow: str
    nodes: tuple[PreviewedNode, ...]
    gone: tuple[str, ...] = ()

    def __str__(self) -> str:
        return harmless("\n".join([f"{self.workflow}:", *(f"  {node}" for node in self.nodes), *self._note()]))

    def _note(self) -> list[str]:
        lines = [f"  {name} has done its work, and is no longer in the file." for name in self.gone]
        if any(node.action == "reuse" for node in self.nodes):
            lines.append("  --cached (cached=True) reuses results; a plain run does everything again.")
        return lines

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the lines at an IPython prompt."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Show the nodes as a table."""
        rows = [(node.label, node.action, node.why) for node in self.nodes]
        return html_parts.table(("node", "action", "why"), rows, title=self.workflow, below=_counts(self.nodes))


def _counts(nodes: tuple[PreviewedNode, ...]) -> str:
    counted = collections.Counter(node.action for node in nodes)
    return " · ".join(f"{count} {action}" for action, count in counted.items())


def preview(definition: RunDefinition, inputs: Mapping[str, Any], earlier: EarlierRuns) -> Preview:
    """Return what a run would do; nothing runs.

    Parameters
    ----------
    definition
        The workflow.
    inputs
        Values of all inputs.
    earlier
        Results that may be used again.
    """
    forecast = _Forecast(definition, inputs, RunHistory((), is_new=True), earlier)
    return Preview(workflow=definition.workflow.name, nodes=tuple(forecast.nodes()))


def preview_of_going_on(definition: RunDefinition, inputs: Mapping[str, Any], run: FrozenRun) -> Preview:
    """Return what a run that has ended would do as it goes on; nothing runs.

    Parameters
    ----------
    definition
        The workflow as it is now.
    inputs
        Values of all inputs.
    run
        The run.
    """
    history = RunHistory(run.events(), is_new=True)
    nodes = tuple(_Forecast(definition, inputs, history).nodes())
    gone = tuple(one.label for one in history.gone(definition.by_name))
    return Preview(workflow=definition.workflow.name, nodes=nodes, gone=gone)


class _Forecast:
    """A run that reuses, or keeps, what it can, and of which nothing else happens."""

    def __init__(
        self,
        definition: RunDefinition,
        inputs: Mapping[str, Any],
        history: RunHistory,
        others: EarlierRuns | None = None,
    ) -> None:
        self._definition = definition
        self._plan = RunPlan(definition.workflow)
        self._state = RunState.of([node.id for node in definition.workflow.nodes], inputs=inputs)
        self._going_on = GoingOn(history, definition, self._state, others)
        self._factory = StepFactory(definition, self._plan, self._state, definition.folder)

    def nodes(self) -> Iterator[PreviewedNode]:
        started: set[tuple[str, int | None]] = set()
        has_moved = True
        while has_moved:
            has_moved = False
            # The plan of real runs, with the environment masked: a preview needs no secrets, and tells none.
            for action in self._plan.next_actions(self._state, env=self._definition.environment):
                match action:
                    case Start() if (action.node, action.item) not in started:
                        started.add((action.node, action.item))
                        node = self._start(self._plan.nodes[action.node], action.item)
                        has_moved |= node.action in {"reuse", "keep"}
                        yield node
                    case NodeSkipped():
                        yield PreviewedNode(node=action.node, action="skip", why=action.why)
                    # One with items has run: its end collects them, and tells nothing new.
                    case NodeEnded() if self._state.nodes[action.node].items is None:
                        yield PreviewedNode(node=action.node, action="fail", why=str(action.result["text"]))
                if not isinstance(action, Start | RunEnded):
                    has_moved |= self._state.apply(action)
        yield from self._rest(started)

    def _start(self, node: NodeFields, item: int | None) -> PreviewedNode:
        try:
            step = self._factory.step(node, item, 1)
            if isinstance(node, AskNode):
                earlier = self._going_on.answered(node.id, item, question_of(node, step.values))
                if earlier is None:
                    return PreviewedNode(node=node.id, item=item, action="ask", why="a person answers")
                return self._keep(earlier, item, earlier.why)
            choice = self._going_on.choose(step, self._factory.parts(step))
        except NbtoolsError as exc:
            return PreviewedNode(node=node.id, item=item, action="fail", why=exc.message)
        if choice.action == "keep" and choice.earlier is not None:
            return self._keep(choice.earlier, item, "done and unchanged")
        if choice.action == "reuse" and choice.earlier is not None:
            taken_over = self._keep(choice.earlier, item, choice.why.replace("reused from", "of"))
            return dataclasses.replace(taken_over, action="reuse")
        return PreviewedNode(node=node.id, item=item, action="run" if choice.action == "run" else "ask", why=choice.why)

    def _keep(self, earlier: EarlierStep, item: int | None, why: str) -> PreviewedNode:
        """Let a step end with the result that it has."""
        of: dict[str, Any] = {"node": earlier.node, "item": item, "attempt": 1, "fence": 0}
        self._state.apply(NodeStarted(**of))
        self._state.apply(NodeEnded(**of, state="ok", result=earlier.result))
        return PreviewedNode(node=earlier.node, item=item, action="keep", why=why)

    def _rest(self, started: set[tuple[str, int | None]]) -> Iterator[PreviewedNode]:
        """Yield the nodes that depend on what runs, and items that could not start because others wait."""
        for name, node in self._plan.nodes.items():
            of = self._state.nodes[name]
            if of.items is not None:
                for i, step in enumerate(of.steps):
                    if not step.has_ended and (name, i) not in started:
                        yield self._start(node, i)
            elif not of.has_ended and (name, None) not in started:
                waits = [needed for needed in self._plan.needs(name) if not self._state.nodes[needed].has_ended]
                is_open = node.when not in {None, True, "always"} or node.for_each is not None
                why = f"needs {', '.join(waits)}" if waits else "runs at the end"
                yield PreviewedNode(node=name, action="decide" if is_open else "run", why=why)
