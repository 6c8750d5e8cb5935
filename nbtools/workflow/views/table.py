"""The nodes of a run as a table: state, attempt, seconds, why, the first words of the result, and what they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nbtools.texts.visible import aligned
from nbtools.workflow.runs.state import RunState, StepState
from nbtools.workflow.spec import NodeFields, Workflow
from nbtools.workflow.views.graph import needs_of
from nbtools.workflow.views.signs import seconds_of, shown_state, stated, what_runs, words_of

COLUMNS = ("node", "state", "attempt", "seconds", "why", "result")
_MOST_ITEMS = 10
_WORDS = 80  # characters of a result or an error
# What has gone as it should is in the line of the node.
_UNTOLD = frozenset({"ok", "reused", "pending"})


def table(
    state: RunState, workflow: Workflow | None = None, *, now: float | None = None, width: int | None = None
) -> str:
    """Return the table for a terminal.

    If a node has items, those that are running, waiting, failed or unknown have their own lines, at most ten.

    Parameters
    ----------
    state
        The run.
    workflow
        The workflow that it runs: the table then says what each node runs and which nodes it needs; `None` leaves that
        out.
    now
        The current time, in seconds since 1970; `None` asks the clock.
    width
        Maximum characters in a line; `None` asks the terminal.
    """
    rows = [COLUMNS, *rows_of(state, now=now)]
    if workflow is not None:
        needs = needs_of(workflow)
        more = {"node": ("runs", "after")} | {n.id: (what_runs(n), _after(n, needs[n.id])) for n in workflow.nodes}
        rows = [(*row[:-1], *more.get(row[0], ("", "")), row[-1]) for row in rows]
    return "\n".join(aligned(rows, width, whole=[COLUMNS.index("state")]))


def _after(node: NodeFields, needs: Sequence[str]) -> str:
    return ", ".join((*needs, "all others") if node.finally_ else needs)


def rows_of(state: RunState, *, now: float | None = None) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table."""
    for name, node in state.nodes.items():
        yield _row(name, node, now)
        items = [(i, step) for i, step in enumerate(node.steps) if shown_state(step) not in _UNTOLD]
        for i, step in items[:_MOST_ITEMS]:
            yield _row(f"{name}[{i}]", step, now)
        if len(items) > _MOST_ITEMS:
            yield (f"… {len(items) - _MOST_ITEMS:,} more", *("",) * (len(COLUMNS) - 1))


def _row(name: str, step: StepState, now: float | None) -> tuple[str, ...]:
    seconds = seconds_of(step, now)
    return (
        name,
        stated(step),
        str(step.attempt or ""),
        "" if seconds is None else f"{seconds:.2f}",
        step.why,
        words_of(step.result, _WORDS),
    )
