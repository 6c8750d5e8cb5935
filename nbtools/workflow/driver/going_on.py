"""What a run that goes on does with each step: keep its result, run it, or ask a person first.

A step that ended well and is unchanged is kept. A step that has to run again asks first if its work may already be
done: it had an effect that is not repeatable, and either succeeded or ended in an unknown way. Whatever has no effect,
or failed, runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.conduct.run_folders import list_runs
from nbtools.errors import NbtoolsError
from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.steps import StepAttempt
from nbtools.workflow.runs.history import ALONE, EarlierStep, Identity, RunHistory, identities
from nbtools.workflow.runs.keys import MOST_FILES, changes
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.state import RunState, is_taken_over
from nbtools.workflow.spec import NodeFields

_MOST_RUNS = 50
_STOPPED = "It was stopped in the middle, and whether it has done its work is not known."
# What tidied up did so for what was there then.
_TIDIES = "other steps have run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What becomes of a step.

    Attributes
    ----------
    action
        ``"run"``; ``"keep"`` the earlier result; ``"reuse"`` that of another run; ask whether to run it ``"again"``; or
        say what became of it, which is ``"unknown"``.
    why
        A reason in words; for what is asked, the beginning of the question.
    earlier
        The step of a round before that it is about.
    """

    action: Literal["run", "keep", "reuse", "again", "unknown"] = "run"
    why: str = ""
    earlier: EarlierStep | None = None


FRESH = Choice()
"""A step that was not there before."""


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

    def choose(self, node: NodeFields, item: int | None, parts: Mapping[str, str]) -> Choice:
        """Return whether a step with these parts has a result already; one whose files are gone has none."""
        for name, history in self._runs:
            if (step := history.same(node.id, parts)) is not None:
                # Its result alone: that it had an effect, and in which folder, is of the other run.
                earlier = EarlierStep(node=node.id, item=item, identity=ALONE, attempt=1, result=step.result)
                return Choice(action="reuse", why=f"reused from {name}", earlier=earlier)
        before = next(filter(None, (history.parts_of(node.id) for _, history in self._runs)), None)
        if before is None:
            return Choice(why="never ran")
        # A node with items has run in many ways: the closest one says what the person has just changed.
        nearest = min((changes(one, parts) for one in before), key=len)
        return Choice(why=f"changed: {', '.join(nearest)}" if nearest else "its result is not there")


class GoingOn:
    """The choices for one run.

    Parameters
    ----------
    history
        What the rounds before have done.
    definition
        What is run.
    state
        Where the run stands.
    others
        Earlier runs whose results may be used again; `None` for none.
    """

    def __init__(
        self, history: RunHistory, definition: RunDefinition, state: RunState, others: EarlierRuns | None = None
    ) -> None:
        self._history = history
        self._others = others
        self._definition = definition
        self._state = state
        self._identities: dict[str, tuple[Any, list[Identity]]] = {}

    def _steps_of(self, node: str) -> list[Identity] | None:
        """Return the identities of a node's steps; `None` before its items are known."""
        items = self._state.nodes[node].items
        if items is None:
            return [ALONE] if self._definition.by_name[node].for_each is None else None
        # To hash ten thousand items for each of them would be a hundred million hashes.
        entry = self._identities.get(node)
        if entry is None or entry[0] is not items:
            entry = self._identities[node] = items, identities(items)
        return entry[1]

    def _identity(self, node: str, item: int | None) -> Identity:
        steps = None if item is None else self._steps_of(node)
        return ALONE if steps is None or item is None else steps[item]

    def choose(self, step: StepAttempt, parts: Mapping[str, str]) -> Choice:
        """Return what becomes of a step that depends on these parts."""
        node, item = step.node, step.item_index
        choice = self._after_rounds(node, item, parts) if self._history else FRESH
        if choice.action != "run" or self._others is None:
            return choice
        # Equal parts tell nothing of what a step reads besides.
        why = self._definition.why_again(node, step.values, {"inputs": step.inputs, "item": step.item})
        if sum(name.startswith("file ") for name in parts) >= MOST_FILES:
            why = f"it names {MOST_FILES} files or more, and not all are compared"
        if why := _TIDIES if node.finally_ and self._has_run else why:
            return dataclasses.replace(choice, why=why)
        other = self._others.choose(node, item, parts)
        # The folder of a run inside is that of the round before.
        return other if other.earlier is not None else dataclasses.replace(other, earlier=choice.earlier)

    def _after_rounds(self, node: NodeFields, item: int | None, parts: Mapping[str, str]) -> Choice:
        is_safe = self._definition.is_repeatable(node)
        earlier = self._history.find(node.id, self._identity(node.id, item), parts)
        # By its id and parts: nothing in the log says that a node was renamed.
        if earlier is None:
            return Choice(why="it is new") if is_safe else self._new(parts)
        # Before it is compared: what may have been done is asked about even where nothing has changed.
        if earlier.is_unknown and not is_safe:
            message = (earlier.result.get("error") or {}).get("message", "")
            why = _STOPPED if earlier.effect != "ok" else f"Its call has ended well, and then it failed: {message}"
            return Choice(action="unknown", why=why, earlier=earlier)
        if earlier.state == "ok" and node.finally_ and self._has_run:
            return Choice(why=_TIDIES, earlier=earlier)
        changed = self._history.changed(earlier, parts)
        if earlier.state != "ok":
            words = [{"failed": "it failed"}.get(earlier.state, f"it was {earlier.state}")]
            words += [f"changed: {', '.join(changed)}"] * bool(changed)
            return Choice(why="; ".join(words), earlier=earlier)
        if not changed and earlier.is_whole:
            return Choice(action="keep", why="kept", earlier=earlier)
        why = f"changed: {', '.join(changed)}" if changed else "its files are gone"
        if is_safe or not earlier.effect:
            return Choice(why=why, earlier=earlier)
        return Choice(action="again", why=f"It has done its work, and is not the same now ({why}).", earlier=earlier)

    @property
    def _has_run(self) -> bool:
        """Whether a step has run in this round that is not one of the end."""
        steps = (step for name, _, step in self._state.steps() if not self._definition.by_name[name].finally_)
        return any(step.attempt and not is_taken_over(step.why) for step in steps)

    def _new(self, parts: Mapping[str, str]) -> Choice:
        """Return what becomes of a step with effects that was not there: it may be an old one under a new name."""
        steps = {name: self._steps_of(name) for name in self._state.nodes}
        orphans = self._history.orphans(steps, parts)
        if not orphans:
            return Choice(why="it is new")
        # A node that was only renamed has the same parts.
        same = next((one for one in orphans if one.parts == parts), orphans[0])
        done = ", ".join(dict.fromkeys(one.label for one in orphans[:5]))
        deed = "did the same work" if same.parts == parts else "did work of this kind"
        return Choice(action="again", why=f"It is new, and {done}, now gone, {deed} in this run.", earlier=same)

    def answered(self, node: str, item: int | None, question: Mapping[str, Any]) -> EarlierStep | None:
        """Return the step in which a person has answered the same question; `None` where it has to be asked."""
        return self._history.answered(node, self._identity(node, item), question) if self._history else None
