"""Tools for sessions: copies of them, which go their own way, and the way back to before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from nbtools.contract.consequence import Consequence
from nbtools.contract.result import Output
from nbtools.contract.tool import Context, Effects, tool
from nbtools.errors import PermissionDenied
from nbtools.toolbox.result_types import SessionCopied, SessionStates, SessionUndone
from nbtools.toolbox.scripts.execution import level_of

if TYPE_CHECKING:
    from nbtools.kernels import Kernels


async def _kernels_with(ctx: Context, session: str) -> Kernels:
    """Return the kernels, where the caller could run code in this session too."""
    from nbtools.kernels import Kernels

    kernels = ctx.use(Kernels)
    # A copy of what a person has loaded would have a person's rights.
    is_there = ctx.by_model and kernels.state_of(session) != "not started"
    if is_there and not kernels.gives_rights_of(session, await level_of(ctx)):
        raise PermissionDenied(
            f"session {session!r} was started with rights other than yours.",
            hint="Use a session that you have started yourself; a file or a note takes values from one to the other.",
        )
    return kernels


def _stays_within(values: Mapping[str, Any], ctx: Context) -> Effects:
    """Return what each call does: what it makes stays in processes that are confined as the session is."""
    return Effects(idempotent="states" in values)


@tool(title="Copy a session", effects_of=_stays_within, examples=({"session": "loaded", "copy": "attempt"},))
async def session_fork(session: str, copy: str, *, ctx: Context) -> Output[SessionCopied]:
    """Copy a session with all its variables, open data and fitted models to a new, independent one.

    It takes a moment, however long the loading took: load once, then try each idea in a copy. Both work in one folder.

    Parameters
    ----------
    session
        Name of the session, which must be idle.
    copy
        Name of the new session.

    Raises
    ------
    InvalidArguments
        There is no such session, or one of the new name; or it has what a copy would lack or what two processes cannot
        share, such as a thread, a child process or a connection, which the message names.
    PermissionDenied
        The session is not the caller's.
    """
    await (await _kernels_with(ctx, session)).afork(session, copy)
    return Output(data={"session": session, "copy": copy}, text=f"Session '{copy}' is a copy of '{session}'.")


@tool(title="Keep states of a session", idempotent=True, effects_of=_stays_within, examples=({"session": "loaded"},))
async def session_keep(session: str, states: Annotated[int, Ge(0)] = 5, *, ctx: Context) -> Output[SessionStates]:
    """Keep the state of a session before each of its next runs, for session_undo. Each run takes a moment longer.

    Parameters
    ----------
    session
        Name of the session.
    states
        For how many of the last runs; 0 keeps none.

    Raises
    ------
    InvalidArguments
        There is no such session, or it cannot be copied.
    PermissionDenied
        The session is not the caller's.
    """
    await (await _kernels_with(ctx, session)).akeep(session, states)
    what = f"its state before each of its last {_runs(states)}, for undo" if states else "no state"
    return Output(data={"session": session, "states": states}, text=f"Session '{session}' keeps {what}.")


def _lost(values: Mapping[str, Any], ctx: Context) -> tuple[Consequence, ...]:
    return (
        Consequence(f"session {values['session']} loses what its last {_runs(values['runs'])} did to its variables"),
    )


def _runs(count: int) -> str:
    return "run" if count == 1 else f"{count:,} runs"


@tool(title="Undo runs of a session", destructive=True, consequences_of=_lost, examples=({"session": "loaded"},))
async def session_undo(session: str, runs: Annotated[int, Gt(0)] = 1, *, ctx: Context) -> Output[SessionUndone]:
    """Take a session back to its state before its last runs. Files that they wrote, and calls, stay.

    The state must have been kept: call session_keep before the run.

    Parameters
    ----------
    session
        Name of the session, which must be idle.
    runs
        How many runs to go back.

    Raises
    ------
    InvalidArguments
        There is no such session, or that state was not kept; the hint says how far it can go back.
    KernelDied
        The state has ended meanwhile.
    PermissionDenied
        The session is not the caller's.
    """
    files = list(await (await _kernels_with(ctx, session)).aundo(session, runs))
    wrote = f" Files that were written remain: {', '.join(files)}." if files else ""
    text = f"Session '{session}' is as it was before its last {_runs(runs)}.{wrote}"
    return Output(data={"session": session, "runs": runs, "files": files}, text=text)


TOOLS = (session_fork, session_keep, session_undo)
"""The tools of this module."""
