"""Steps as they would be started now: filled in from the state of a run, with the hashes of what they depend on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.label import join
from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.files import named_files
from nbtools.workflow.driver.steps import StepAttempt
from nbtools.workflow.expressions import fill
from nbtools.workflow.runs.keys import file_parts, parts_of
from nbtools.workflow.runs.plan import RunPlan
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.runs.tables import table_files
from nbtools.workflow.spec import NodeFields


class StepFactory:
    """Makes the steps of one run.

    Parameters
    ----------
    definition
        What is run.
    plan
        The rules by which steps become due.
    state
        Where the run stands.
    folder
        The folder of the run.
    extra_files
        Files of the run around this one that its steps may read.
    """

    def __init__(
        self, definition: RunDefinition, plan: RunPlan, state: RunState, folder: Path, extra_files: tuple[str, ...] = ()
    ) -> None:
        self._definition = definition
        self._plan = plan
        self._state = state
        self._folder = folder
        self._extra_files = extra_files
        self._tables: dict[str, tuple[Any, tuple[str, ...]]] = {}

    def step(self, node: NodeFields, item: int | None, attempt: int) -> StepAttempt:
        """Return an attempt of a step with everything filled in.

        Raises
        ------
        InvalidArguments
            An expression leads nowhere.
        """
        state, definition = self._state, self._definition
        value = None if item is None else (state.nodes[node.id].items or [])[item]
        needed = self._plan.needs(node.id)
        of = state.step(node.id, item)
        views = state.scope(item=value, names=needed)
        # Code finds no entry for a node that was skipped, so that a forgotten `get` fails rather than reads null.
        done = {name: view for name, view in views["nodes"].items() if view["state"] != "skipped"}
        return StepAttempt(
            run_id=state.run_id,
            workflow=definition.workflow.name,
            agent=definition.workflow.agent,
            node=node,
            item_index=item,
            attempt=attempt,
            fence=state.fence,
            values=fill(definition.texts(node), {**views, "env": os.environ}),
            inputs=state.inputs,
            label=join((state.inputs_label, *(state.nodes[name].label() for name in done))),
            nodes={name: view["data"] for name, view in done.items()},
            item=value,
            files={name: named_files(view["artifacts"]) for name, view in done.items()},
            tables=tuple(file for name, view in done.items() for file in self._tables_of(name, view["data"])),
            extra_files=self._extra_files,
            source=definition.source(node),
            memory=node.memory or definition.workflow.memory,
            artifacts=self._folder / "artifacts" / f"{node.id}{'' if item is None else f'.{item}'}",
            folder=definition.folder,
            settings=definition.settings(node),
            offered=definition.offered(node),
            is_model=definition.workflow.scripts_of == "model",
            # The digest and not the yes: the door compares it with the call as it is made, and asks again where that
            # differs.
            approved=(of.question or {}).get("digest", "") if of.answer is True else "",
            approved_by=of.answered_by,
            needs_value=definition.reads_value_of(node),
        )

    def _tables_of(self, node: str, data: Any) -> tuple[str, ...]:
        """Return the files of tables in a result. It is looked through once, not for each item that needs it."""
        if node not in self._tables or self._tables[node][0] is not data:
            self._tables[node] = data, tuple(table_files(data))
        return self._tables[node][1]

    def changed_files(self, step: StepAttempt, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return the files among the parts of a step that have changed since it started; empty for one that is gone."""
        values, views = self._seen_by(step)
        now = file_parts(step.node, values, views, source=step.source, folder=step.folder)
        files = {name for name in {**before, **now} if name.startswith("file ") and before.get(name) != now.get(name)}
        return {name: now.get(name, "") for name in sorted(files)}

    def parts(self, step: StepAttempt) -> Mapping[str, str]:
        """Return what a step depends on, each part by its hash."""
        values, views = self._seen_by(step)
        described = self._definition.describe(step.node)
        named: dict[str, Any] = {"described": described, "source": step.source, "files": step.files}
        return parts_of(step.node, values, views, folder=step.folder, **named)

    def _seen_by(self, step: StepAttempt) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return the texts of a step with expressions filled in, and what expressions see."""
        definition = self._definition
        views: dict[str, Any] = self._state.scope(item=step.item, names=self._plan.needs(step.node.id))
        if not definition.uses_environment:
            return step.values, views
        # Filled in a second time, with names in place of secrets: a new key of an account must not run everything
        # again.
        return fill(definition.texts(step.node), {**views, "env": definition.environment}), views
