"""Results of earlier runs: which of them a run may use again, and what a run would do, and why."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.conduct.run_folders import list_runs
from nbtools.errors import NbtoolsError
from nbtools.texts import html_parts
from nbtools.texts.visible import harmless
from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.going_on import GoingOn
from nbtools.workflow.driver.questions import question_of
from nbtools.workflow.driver.step_factory import StepFactory
from nbtools.workflow.runs.events import ItemsFound, NodeEnded, NodeSkipped, NodeStarted
from nbtools.workflow.runs.history import RunHistory
from nbtools.workflow.runs.keys import changes
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.plan import Collect, Expand, Fail, RunPlan, Skip, Start
from nbtools.workflow.runs.state import RunState, step_label
from nbtools.workflow.spec import AskNode, NodeFields

_MOST_RUNS = 50
_NEVER_RAN = "never ran"


class EarlierRuns:
    """What the newest 50 runs of a workflow have left.

    Parameters
    ----------
    folder
        The folder of all runs.
    workflow
        Name of the workflow.
    but
        A run that does not count: the one that asks.
    """

    def __init__(self, folder: Path, workflow: str, *, but: str = "") -> None:
        self._folder = folder
        self._workflow = workflow
        self._but = but

    @functools.cached_property
    def _runs(self) -> list[tuple[str, RunHistory]]:
        runs: list[tuple[str, RunHistory]] = []
        # From the newest: of two results that fit, the later one is the one that people expect.
        for folder in list_runs(self._folder):
            # One run with a damaged log must not keep the others from being used.
            with contextlib.suppress(NbtoolsError, OSError, ValueError):
                run = FrozenRun(folder)
                if run.facts["workflow"] == self._workflow and folder.name != self._but:
                    runs.append((folder.name, RunHistory(run.events(), is_new=True)))
            # Counted are runs of this workflow: those of others must not push its own out.
            if len(runs) == _MOST_RUNS:
                break
        return runs

    def find(self, node: str, parts: Mapping[str, str]) -> tuple[str, Mapping[str, Any]] | None:
        """Return the run and the result of a step with these parts; `None` where its files are gone."""
        steps = ((name, history.same(node, parts)) for name, history in self._runs)
        return next(((name, step.result) for name, step in steps if step is not None), None)

    def why(self, node: str, parts: Mapping[str, str]) -> str:
        """Return why a step has to run, in words."""
        before = next(filter(None, (history.parts_of(node) for _, history in self._runs)), None)
        if before is None:
            return _NEVER_RAN
        # A node with items has run in many ways: the closest one says what the person has just changed.
        nearest = min((changes(one, parts) for one in before), key=len)
        return f"changed: {', '.join(nearest)}" if nearest else "its result is not there"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreviewedNode:
    """What a run would do with a node, or with one of its items.

    Attributes
    ----------
    node, item
        Which.
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
        lines = [f"  {name} has done its work, and is not in the file any more." for name in self.gone]
        if any(node.action == "reuse" for node in self.nodes):
            lines.append("  Results are used again with --cached (cached=True); a plain run does everything again.")
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
    return Preview(workflow=definition.workflow.name, nodes=tuple(_Forecast(definition, inputs, earlier).nodes()))


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

    def __init__(self, definition: RunDefinition, inputs: Mapping[str, Any], earlier: EarlierRuns | RunHistory) -> None:
        self._definition = definition
        self._earlier = earlier
        self._plan = RunPlan(definition.workflow)
        self._state = RunState.of([node.id for node in definition.workflow.nodes], inputs=inputs)
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
                    case Skip():
                        self._state.apply(NodeSkipped(node=action.node, why=action.why))
                        yield PreviewedNode(node=action.node, action="skip", why=action.why)
                        has_moved = True
                    case Expand():
                        self._state.apply(ItemsFound(node=action.node, items=action.items))
                        has_moved = True
                    case Collect():
                        state: Any = action.state
                        self._state.apply(NodeEnded(node=action.node, state=state, result=action.result))
                        has_moved = True
                    case Fail():
                        self._state.apply(NodeEnded(node=action.node, state="failed", result=action.result))
                        yield PreviewedNode(node=action.node, action="fail", why=str(action.result["text"]))
                        has_moved = True
        yield from self._rest(started)

    def _start(self, node: NodeFields, item: int | None) -> PreviewedNode:
        name = node.id
        try:
            step = self._factory.step(node, item, 1)
            if isinstance(node, AskNode):
                return self._question(node, item, question_of(node, step.values))
            parts = self._factory.parts(step)
        except NbtoolsError as exc:
            return PreviewedNode(node=name, item=item, action="fail", why=exc.message)
        if isinstance(self._earlier, RunHistory):
            return self._go_on(node, item, parts, self._earlier)
        earlier = self._earlier.find(name, parts) if self._definition.may_reuse(node) else None
        if earlier is None:
            why = self._earlier.why(name, parts) if self._definition.may_reuse(node) else "it is destructive"
            return PreviewedNode(node=name, item=item, action="run", why=why)
        self._end(name, item, earlier[1])
        return PreviewedNode(node=name, item=item, action="reuse", why=f"of {earlier[0]}")

    def _question(self, node: AskNode, item: int | None, question: Mapping[str, Any]) -> PreviewedNode:
        if isinstance(self._earlier, RunHistory):
            earlier = GoingOn(self._earlier, self._definition, self._state).answered(node.id, item, question)
            if earlier is not None:
                self._state.apply(NodeEnded(node=node.id, item=item, state="ok", result=earlier.result))
                return PreviewedNode(node=node.id, item=item, action="keep", why=earlier.why)
        return PreviewedNode(node=node.id, item=item, action="ask", why="a person answers")

    def _go_on(
        self, node: NodeFields, item: int | None, parts: Mapping[str, str], history: RunHistory
    ) -> PreviewedNode:
        choice = GoingOn(history, self._definition, self._state).choose(node, item, parts)
        if choice.action == "keep" and choice.earlier is not None:
            self._end(node.id, item, choice.earlier.result)
            return PreviewedNode(node=node.id, item=item, action="keep", why="done and unchanged")
        action: Any = "run" if choice.action == "run" else "ask"
        return PreviewedNode(node=node.id, item=item, action=action, why=choice.why)

    def _end(self, name: str, item: int | None, result: Mapping[str, Any]) -> None:
        self._state.apply(NodeStarted(node=name, item=item, attempt=1, fence=0))
        self._state.apply(NodeEnded(node=name, item=item, attempt=1, fence=0, state="ok", result=result))

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
