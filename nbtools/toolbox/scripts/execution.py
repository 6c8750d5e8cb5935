"""Running a script for a tool: confinement by caller, output as it appears, and statuses turned into errors."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools import confine
from nbtools.contract.result import Artifact
from nbtools.contract.tool import READ_BY_MODELS, Context, ToolCall
from nbtools.errors import NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.ground.aio import run as run_blocking
from nbtools.ground.paths import ARTIFACTS
from nbtools.ground.telemetry import fresh_id
from nbtools.kernels.interface import Execution
from nbtools.kernels.interface import OutputPiece as Piece
from nbtools.kernels.runs.ending import to_the_end
from nbtools.toolbox.memory_tools import ACTS, effects_of_save
from nbtools.toolbox.policies import Acts, SandboxPolicy

_MOST_HASHED = 256 * 2**20  # bytes of all files that one run left
_SHOWN = frozenset({"stdout", "stderr", "display", "update", "clear", "progress"})

# What a script may do with the memory, and under which name that is judged.
_JUDGED: Mapping[str, str] = {
    **dict.fromkeys(("read", "find", "__getitem__", "__contains__"), "memory_retrieve"),
    **dict.fromkeys(("list", "__len__", "__iter__"), "memory_list"),
    **dict.fromkeys(("write", "incr"), "memory_save"),
    **{name: f"memory_{name}" for name in ("search", "history", "restore", "delete", "clear")},
}


class ScriptMemory:
    """The memory in a script, opened when it is first used; what is done there is a call within the script's own.

    Parameters
    ----------
    open_memory
        Opens it.
    call
        That of the script, in whose context this is made.
    perform
        As `nbtools.contract.execute.perform`, the door being known; `None` asks no door.
    """

    def __init__(self, open_memory: Callable[[], Any], call: ToolCall, perform: Callable[..., Any] | None) -> None:
        self._open, self._call, self._perform = open_memory, call, perform
        # It is used by threads of the kernel's, which are not within the call.
        self._context = contextvars.copy_context()

    def __getattr__(self, name: str) -> Any:
        # A copy for each: two threads of a script may use the memory at once, and a context runs in one of them.
        return lambda *args, **kwargs: self._context.copy().run(self._use, name, args, kwargs)

    def _use(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        memory = self._open()
        method = getattr(memory, name)
        # The door looks at what it gives before the script does, and an iterator can be looked at once.
        work = functools.partial(list, memory) if name == "__iter__" else functools.partial(method, *args, **kwargs)
        if self._perform is None:
            return work()
        return self._through_door(_JUDGED[name], inspect.signature(method).bind(*args, **kwargs).arguments, work)

    def _through_door(self, name: str, arguments: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        how = dict(ACTS[name])
        if name == "memory_save":
            how["effects"] = effects_of_save(arguments)
        own: dict[str, Any] = {"call_id": fresh_id(), "parent_id": self._call.call_id, "timeout": None}
        # The journal is that of the script's call, of which this is a part: its end is not the script's.
        call = self._call.but(tool=name, arguments=dict(arguments), on_output=None, journal=None, **own)
        assert self._perform is not None
        return run_blocking(self._perform(call, work, **how))[0]


def _memory_of(ctx: Context) -> ScriptMemory:
    is_judged = ctx.caller in READ_BY_MODELS and Acts in ctx.services

    def open_memory() -> Any:
        from nbtools.memory import AgentMemory

        return ctx.use(AgentMemory)

    return ScriptMemory(open_memory, ctx.call, ctx.use(Acts).perform if is_judged else None)


def is_confined(ctx: Context) -> bool:
    """Tell whether what the caller runs is kept to its own folder: then user files are not its working folder."""
    policy = ctx.use(SandboxPolicy)
    return (policy.model if ctx.by_model else policy.person) == "strict"


async def level_of(ctx: Context) -> confine.Level | None:
    """Return the confinement that the caller is held to; `None` leaves it to the kernels."""
    policy = ctx.use(SandboxPolicy)
    if not ctx.by_model:
        return policy.person
    # Someone has chosen the level: where the host cannot enforce it, the kernels refuse to run.
    if policy.model_required:
        return policy.model
    # What is only a default is enforced as far as this host can, and the result says how far that was.
    host = await in_thread(confine.capabilities)
    return host.settle(policy.model, explicit=False)


async def is_loose(ctx: Context) -> bool:
    """Tell whether what a model runs could change more than its own folder: this host, or none, confines it."""
    from nbtools.kernels import Kernels

    return ctx.by_model and (ctx.use(Kernels).is_elsewhere or await level_of(ctx) != "strict")


async def run(ctx: Context, code: str, **how: Any) -> tuple[Execution, tuple[Artifact, ...]]:
    """Run code in a managed kernel, under the confinement that the caller is held to, and show its output live.

    Parameters
    ----------
    ctx
        The context of the call.
    code
        The script.
    **how
        All that a run is told besides; see `nbtools.kernels.Kernels.arun`.

    Returns
    -------
    tuple
        What became of it, and the files that it left.
    """
    from nbtools.kernels import Kernels

    def show(piece: Piece) -> None:
        if piece.kind in _SHOWN:
            ctx.emit(piece.kind, piece.text, piece.data)

    on_output = None if ctx.call.on_output is None else show
    execution = await ctx.use(Kernels).arun(
        code, sandbox=await level_of(ctx), on_output=on_output, memory=_memory_of(ctx), **how
    )
    if not execution.artifacts:
        return execution, ()
    return await to_the_end(in_thread(_describe_files, execution))


def _describe_files(execution: Execution) -> tuple[Execution, tuple[Artifact, ...]]:
    """Describe the files that a script left, each opened once; it says how many are too large to be hashed."""
    files: list[Artifact] = []
    room = _MOST_HASHED
    for path in execution.artifacts:
        with contextlib.suppress(NbtoolsError, OSError):
            # A script may leave a link to any file, whose content must not come back as its own.
            artifact = Artifact.from_path(path, follow_no_links=True, hashed=room)
            room -= artifact.size if artifact.sha256 else 0
            files.append(artifact)
    large = sum(artifact.sha256 is None for artifact in files)
    if large:
        note = f"{large} of the files have no SHA-256: together they have more than {_MOST_HASHED:,} bytes"
        execution = dataclasses.replace(execution, notes=(*execution.notes, note))
    return execution, tuple(files)


def summary(execution: Execution) -> dict[str, Any]:
    """Return the data of a run, whether it succeeded or not."""
    return {
        "stdout": execution.stdout,
        "stderr": execution.stderr,
        "artifacts": [_artifact_name(path, execution.folder) for path in execution.artifacts],
        "duration_s": round(execution.duration_s, 6),
        "sandbox": execution.sandbox,
        **({"session": execution.session} if execution.session else {}),
        **({"truncated": True} if execution.truncated else {}),
        **({"notes": list(execution.notes)} if execution.notes else {}),
    }


def _artifact_name(path: Path, base: Path | None) -> str:
    """Return the name under which a file that a script left is read by the next call."""
    return (
        f"{ARTIFACTS}/{path.relative_to(base).as_posix()}" if base is not None and base in path.parents else str(path)
    )
