"""Steps as they would be started now: filled in from the state of a run, with the hashes of what they depend on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.steps import StepAttempt
from nbtools.workflow.expressions import fill
from nbtools.workflow.runs.keys import parts_of
from nbtools.workflow.runs.plan import RunPlan
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import NodeFields

__all__ = ["StepFactory"]


class StepFactory:
    """Makes the steps of one run.

    Parameters
    ----------
    definition, plan, state
        What is run, its rules, and where the run stands.
    folder
        The folder of the run.
    """

    def __init__(self, definition: RunDefinition, plan: RunPlan, state: RunState, folder: Path) -> None:
        self._definition = definition
        self._plan = plan
        self._state = state
        self._folder = folder

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
        views = state.scope(item=value, names=needed)
        read = {name: view["data"] for name, view in views["nodes"].items() if view["state"] != "skipped"}
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
            nodes=read,
            item=value,
            source=definition.source(node),
            memory=node.memory or definition.workflow.memory,
            place=self._folder / "artifacts" / f"{node.id}{'' if item is None else f'.{item}'}",
            folder=definition.folder,
            settings=definition.settings(node),
            offered=definition.offered(node),
        )

    def parts(self, step: StepAttempt) -> Mapping[str, str]:
        """Return what a step depends on, each part by its hash."""
        definition = self._definition
        views: dict[str, Any] = self._state.scope(item=step.item, names=self._plan.needs(step.node.id))
        values = step.values
        if definition.uses_environment:
            values = fill(definition.texts(step.node), {**views, "env": definition.environment})
        described = definition.describe(step.node)
        return parts_of(step.node, values, views, described=described, source=step.source, folder=step.folder)
