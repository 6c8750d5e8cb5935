"""Running a script for a tool: confinement by caller, output as it appears, and statuses turned into errors."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.aio import in_thread
from nbtools.aio import run as run_blocking
from nbtools.errors import (
    CallTimeout,
    Cancelled,
    ExecutionFailed,
    KernelDied,
    LimitExceeded,
    NbtoolsError,
)
from nbtools.kernels.interface import Execution
from nbtools.kernels.interface import OutputPiece as Piece
from nbtools.kernels.runs.ending import to_the_end
from nbtools.paths import ARTIFACTS
from nbtools.result import Artifact
from nbtools.telemetry import fresh_id
from nbtools.tool import Context
from nbtools.toolbox.memory_tools import ACTS, effects_of_save
from nbtools.toolbox.policies import Acts, Confinements, Level

__all__ = ["failure_of", "is_confined", "is_loose", "kept", "level_of", "run", "story_of"]

_MOST_HASHED = 256 * 2**20  # bytes of all files that one run left
_QUOTED = 80  # characters of the line that raised
_SHOWN = frozenset({"stdout", "stderr", "display", "progress"})
_HINTS = {
    "memory_limit": "Read less at once: fewer columns, chunks, or SQL over the file.",
    "output_limit": "Print less: a summary, or the first rows.",
    "process_limit": "Start fewer processes.",
}


# What a script may do with the memory, and under which name that is judged.
_JUDGED: Mapping[str, str] = {
    **dict.fromkeys(("read", "find", "__getitem__", "__contains__"), "memory_retrieve"),
    **dict.fromkeys(("list", "__len__", "__iter__"), "memory_list"),
    **dict.fromkeys(("write", "incr"), "memory_save"),
    **{name: f"memory_{name}" for name in ("search", "history", "restore", "delete", "clear")},
}


class _ScriptMemory:
    """The memory in a script, opened when it is first used; what a model's script does there goes through the door."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        def use(*args: Any, **kwargs: Any) -> Any:
            from nbtools.memory import AgentMemory

            memory = self._ctx.use(AgentMemory)
            work = functools.partial(getattr(memory, name), *args, **kwargs)
            if not self._ctx.by_model or Acts not in self._ctx.services:
                return work()
            given = inspect.signature(getattr(memory, name)).bind(*args, **kwargs).arguments
            return self._judged(_JUDGED[name], given, work)

        return use

    def _judged(self, name: str, given: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        how = dict(ACTS[name])
        if name == "memory_save":
            how["effects"] = effects_of_save(given)
        own: dict[str, Any] = {"call_id": fresh_id(), "parent_id": self._ctx.call_id, "timeout": None}
        call = self._ctx.call.but(tool=name, arguments=dict(given), on_output=None, **own)
        return run_blocking(self._ctx.use(Acts).perform(call, work, **how))[0]


def is_confined(ctx: Context) -> bool:
    """Tell whether what the caller runs is kept to its own folder: then user files are not its working folder."""
    found = ctx.use(Confinements)
    return (found.model if ctx.by_model else found.person) == "strict"


async def level_of(ctx: Context) -> Level | None:
    """Return the confinement that the caller is held to; `None` leaves it to the kernels."""
    policy = ctx.use(Confinements)
    if not ctx.by_model:
        return policy.person
    if policy.model_required:
        return policy.model
    from nbtools import confine

    # What is only a default is enforced as far as this host can, and the result says how far that was.
    host = await in_thread(confine.capabilities)
    return host.settle(policy.model, explicit=False)


async def is_loose(ctx: Context) -> bool:
    """Tell whether what a model runs could change more than a folder of its own: this host, or none, confines it."""
    from nbtools.kernels import Kernels

    return ctx.by_model and (ctx.use(Kernels).is_elsewhere or await level_of(ctx) != "strict")


async def run(
    ctx: Context,
    code: str,
    *,
    language: str = "python",
    session: str | None,
    timeout: float,
    variables: Mapping[str, Any],
    inputs: Sequence[Path] = (),
    cwd: Path | None = None,
    figure: Path | None = None,
) -> tuple[Execution, tuple[Artifact, ...]]:
    """Run code in a managed kernel, under the confinement that the caller is held to, and show its output live.

    Parameters
    ----------
    inputs
        What a strictly confined script may read besides.
    figure
        Where the open figure is saved when the script did not write that file.

    Returns
    -------
    tuple
        What became of it, and the files that it left.
    """
    from nbtools.kernels import Kernels

    def show(piece: Piece) -> None:
        if piece.kind in _SHOWN:
            ctx.emit(piece.kind, piece.text, piece.data)

    execution = await ctx.use(Kernels).arun(
        code,
        language=language,
        session=session,
        timeout=timeout,
        sandbox=await level_of(ctx),
        cwd=cwd,
        variables=variables,
        inputs_paths=inputs,
        figure_path=figure,
        on_output=show,
        memory=_ScriptMemory(ctx),
    )
    if not execution.artifacts:
        return execution, ()
    return await to_the_end(in_thread(_described, execution))


def _described(execution: Execution) -> tuple[Execution, tuple[Artifact, ...]]:
    """Describe the files that a script left, each opened once; it says how many are too large to be hashed."""
    found: list[Artifact] = []
    room = _MOST_HASHED
    for path in execution.artifacts:
        with contextlib.suppress(NbtoolsError, OSError):
            artifact = Artifact.from_path(path, plain=True, hashed=room)
            room -= artifact.size if artifact.sha256 else 0
            found.append(artifact)
    large = sum(artifact.sha256 is None for artifact in found)
    if large:
        note = f"{large} of the files have no SHA-256: together they have more than {_MOST_HASHED:,} bytes"
        execution = dataclasses.replace(execution, notes=(*execution.notes, note))
    return execution, tuple(found)


def kept(execution: Execution) -> dict[str, Any]:
    """Return what is worth keeping of a run, whether it succeeded or not."""
    return {
        "stdout": execution.stdout,
        "stderr": execution.stderr,
        "artifacts": [_named(path, execution.kept) for path in execution.artifacts],
        "duration": round(execution.duration_s, 6),
        "confinement": execution.confinement,
        **({"session": execution.session} if execution.session else {}),
        **({"truncated": True} if execution.truncated else {}),
        **({"notes": list(execution.notes)} if execution.notes else {}),
    }


def _named(path: Path, kept: Path | None) -> str:
    """Return the name under which a file that a script left is read by the next call."""
    return (
        f"{ARTIFACTS}/{path.relative_to(kept).as_posix()}" if kept is not None and kept in path.parents else str(path)
    )


def failure_of(
    execution: Execution,
    *,
    timeout: float,
    artifacts: tuple[Artifact, ...] = (),
    hint: str | None = None,
    script: str = "",
) -> NbtoolsError | None:
    """Return the error that a status stands for, with the output so far as its data; `None` when all went well.

    Parameters
    ----------
    artifacts
        The files that the script left.
    hint
        What to say when the script itself raised; `None` says nothing.
    script
        The script's text, of which the line that raised is quoted.
    """
    data: dict[str, Any] = {**kept(execution), "artifacts": artifacts}
    status = execution.status
    if status == "ok":
        return None
    if status == "error":
        data |= _place(execution)
        return ExecutionFailed(story_of(execution, script), hint=hint, data=data)
    if status == "timeout":
        more = "Allow more with timeout (seconds), or do less at once."
        return CallTimeout(f"timed out after {timeout:g} s", hint=more, data=data)
    if status == "stopped":
        return Cancelled("the script was stopped.", data=data)
    if status == "died":
        return _death(execution, data)
    limit = status.removesuffix("_limit")
    return LimitExceeded(f"the script reached its {limit} limit and was ended.", hint=_HINTS.get(status), data=data)


def story_of(execution: Execution, script: str = "") -> str:
    """Return the script's own line and message.

    Parameters
    ----------
    script
        The script's text, of which the line that raised is quoted.
    """
    if execution.error is not None:
        line = execution.error.line or 0
        quoted = next((text.strip() for number, text in enumerate(script.split("\n"), 1) if number == line), "")
        shown = quoted if len(quoted) <= _QUOTED else f"{quoted[: _QUOTED - 1]}…"
        return f"{execution.error} (in: {shown})" if shown else str(execution.error)
    last = execution.stderr.strip().splitlines()[-1:]
    ended = f"the script ended with exit code {execution.exit_code}"
    return f"{ended}: {last[0]}" if last else f"{ended}."


def _place(execution: Execution) -> dict[str, Any]:
    error = execution.error
    if error is None:
        return {"exit_code": execution.exit_code}
    return {"error_name": error.name, "line": error.line, "traceback": error.traceback}


def _death(execution: Execution, data: dict[str, Any]) -> KernelDied:
    if execution.exit_code is not None:
        message = f"the script ended its process, with exit code {execution.exit_code}."
        return KernelDied(message, hint="Let the script run to its end.", data=data, retryable=False)
    how = f"by {execution.signal}" if execution.signal else "for no known reason"
    hint = "Something outside killed it (too little memory?), or a library crashed."
    return KernelDied(f"the kernel died, {how}.", hint=hint, data=data)
