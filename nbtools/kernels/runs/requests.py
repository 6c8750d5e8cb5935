"""Check a request to run code: what the kernel is to do, and the surroundings of the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools import confine
from nbtools.confine import Level
from nbtools.ground import aio
from nbtools.kernels import validation
from nbtools.kernels.interface import KernelOptions, OnOutput, RunContext


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run, checked."""

    code: str
    options: KernelOptions
    context: RunContext
    timeout: float | None
    grace: float
    on_output: OnOutput | None
    session: str | None
    target: Path | None = None
    is_guarded: bool = False
    notes: tuple[str, ...] = ()
    frames: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    value_names: tuple[str, ...] | None = None


async def settled_level(request: RunRequest, *, explicit: bool, is_elsewhere: bool) -> RunRequest:
    """Return a request for a strict kernel at the level that this host can enforce, or refuse.

    Parameters
    ----------
    request
        The request.
    explicit
        Whether the caller named the level; if so, no lower one is used.
    is_elsewhere
        Whether a gateway runs the kernels.

    Raises
    ------
    SandboxUnavailable
        The level was named, and cannot be enforced here.
    """
    level = request.options.sandbox
    # Whatever the host can enforce, the caller does not know the code.
    request = dataclasses.replace(request, is_guarded=True)
    if not explicit and is_elsewhere:
        return lower(request, "off", "the gateway runs the kernel, and confines it or not")
    if not explicit and request.options.language.startswith("kernel:"):
        return lower(request, "limits", "such a kernel opens its sockets by itself")
    # Asking the host loads libraries and makes system calls, which would hold up the loop.
    host = await aio.in_thread(confine.capabilities)
    best = host.settle(level, explicit=explicit)
    return request if best == level else lower(request, best, "; ".join(host.missing))


def lower(request: RunRequest, level: Level, why: str) -> RunRequest:
    """Return the request with another level of confinement, and a note that says so."""
    note = f"sandbox={request.options.sandbox!r} is not in force here: {why}"
    options = dataclasses.replace(request.options, sandbox=level)
    return dataclasses.replace(request, options=options, notes=(*request.notes, note))


def within(request: RunRequest, options: KernelOptions) -> RunRequest:
    """Return the request for a session with these options: if they are stricter, with only their rights."""
    if options.sandbox == request.options.sandbox:
        return request
    where = "its own folder" if options.cwd is None else str(options.cwd)
    note = f"session {request.session!r} is strict: this ran with its rights, in {where} and without the memory"
    context = dataclasses.replace(request.context, cwd=options.cwd, memory=None)
    notes = (*request.notes, note)
    return dataclasses.replace(request, options=options, context=context, is_guarded=True, notes=notes)


def noted(request: RunRequest, variables: Mapping[str, Any]) -> RunRequest:
    """Return the request with a note for each of the variables that JSON has changed."""
    return dataclasses.replace(request, notes=validation.changed_variables(variables, request.context.variables))


def context_of(
    folder: Path | None,
    variables: Mapping[str, Any],
    inputs_paths: Sequence[str | Path],
    figure_path: str | Path | None,
    memory: Any,
    wants_value: bool,
) -> RunContext:
    """Return the surroundings of the code.

    Parameters
    ----------
    folder
        The working folder; `None` takes one of the kernel's own, with links to the input files.
    variables
        Values by name.
    inputs_paths
        Files that the code reads.
    figure_path
        Where the open figure is saved; `None` saves none.
    memory
        What ``memory`` is in the code; `None` grants none.
    wants_value
        Whether the value of the last expression is wanted as JSON.
    """
    paths = [Path(path).expanduser() for path in inputs_paths]
    # By its name, and where a relative path leads: a script may use either.
    inner = {str(path): path.absolute() for path in paths if not path.is_absolute() and ".." not in path.parts}
    return RunContext(
        cwd=folder,
        variables=validation.check_variables(variables),
        files=tuple(path.absolute() for path in paths),
        links={path.name: path.absolute() for path in paths} | inner,
        figure_path=None if figure_path is None else Path(figure_path).expanduser(),
        memory=memory,
        wants_value=wants_value,
    )
