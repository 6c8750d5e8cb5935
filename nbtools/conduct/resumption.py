"""Which run goes on where none is named."""

from __future__ import annotations

from collections.abc import Iterable

from nbtools.errors import InvalidArguments
from nbtools.texts.visible import brief, counted

# What waits for a person comes first: what was interrupted has asked no one.
_FIRST = (("pending", "waiting", "unknown"), ("interrupted", "lost"))
_OVER, _MOST = ("ok", "done", "running"), 5


def run_to_resume(runs: Iterable[tuple[str, str, str]], listing: str, of: str = "") -> str:
    """Return the one run that waits for a person; where none does, the one that was interrupted.

    Parameters
    ----------
    runs
        The newest first: the id of each, its state, and what it is about.
    listing
        The command that lists all runs; the one that goes on with one is beside it.
    of
        Of what the runs are, where that is not all.

    Raises
    ------
    InvalidArguments
        There are several, which are named as those that failed are, or none.
    """
    resumable = [run for run in runs if run[1] not in _OVER]
    candidates = next(filter(None, ([run for run in resumable if run[1] in states] for states in _FIRST)), [])
    if len(candidates) == 1:
        return candidates[0][0]
    rows = [f"{run_id} ({state}) {brief(about)}" for run_id, state, about in candidates or resumable]
    listed = f"; {counted(len(rows), 'run')} can continue: {'; '.join(rows[:_MOST])}" if rows else ""
    problem = f"{'more than one run' if candidates else 'no run'}{of} waits{listed}"
    hint = f"{listing} lists all; {listing.rpartition(' ')[0]} resume RUN continues one."
    raise InvalidArguments(f"{problem}.", hint=hint)
