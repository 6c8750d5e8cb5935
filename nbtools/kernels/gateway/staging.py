"""Files that travel to a remote kernel and back, planned without touching the wire.

A remote machine has its own disks. What the context of a run names here (working folder, input files, the figure) gets
a place in a folder of the remote kernel, and the variables that name it are rewritten. Afterwards the files that were
made there are written below the working folder here, never anywhere else: the remote side is not trusted.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from nbtools.contract.wire.json_values import replace_nested
from nbtools.errors import FileMissing, LimitExceeded, NbtoolsError
from nbtools.ground.paths import Roots
from nbtools.kernels.interface import RunContext

PIECE_BYTES = 1 << 20
"""How much of a file goes in one message; servers refuse messages of more than some ten megabytes."""
MOST_BYTES = 512 << 20
"""How much may travel in one direction for one run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagingPlan:
    """What goes where for one run.

    Attributes
    ----------
    context
        The context as the remote kernel shall see it.
    files
        Local file to its place below the remote folder.
    figure
        Place of the figure below the remote folder; `None` when none is wanted.
    """

    context: RunContext
    files: Mapping[Path, str]
    figure: str | None

    @classmethod
    def for_run(cls, context: RunContext, folder: str, *, limit: int = MOST_BYTES) -> StagingPlan:
        """Plan a run.

        Parameters
        ----------
        context
            The context as its owner sees it.
        folder
            The remote kernel's folder.
        limit
            How many bytes the input files may have.

        Raises
        ------
        FileMissing
            An input file does not exist.
        LimitExceeded
            The input files are too large to be sent.
        """
        files = _remote_places(context.files, limit)
        moves = {str(top): f"{folder}/in/{slot}/{top.name}" for slot, top in enumerate(context.files)}
        figure = None
        if context.figure_path is not None:
            figure = f"out/{context.figure_path.name}"
            moves[str(context.figure_path)] = f"{folder}/{figure}"
        if context.cwd is not None:
            moves[str(context.cwd)] = f"{folder}/work"
        remote = RunContext(
            cwd=Path(f"{folder}/work"),
            variables={name: _replace_paths(value, moves) for name, value in context.variables.items()},
            links={name: Path(moves[str(path)]) for name, path in context.links.items() if str(path) in moves},
            figure_path=Path(f"{folder}/{figure}") if figure else None,
            wants_value=context.wants_value,
            value_names=context.value_names,
            ends=context.ends,
        )
        return cls(context=remote, files=files, figure=figure)


def _remote_places(paths: tuple[Path, ...], limit: int) -> dict[Path, str]:
    remotes: dict[Path, str] = {}
    # A folder for each, because two inputs may have one name.
    for slot, top in enumerate(paths):
        for path in _files(top):
            remotes[path] = f"in/{slot}/{path.relative_to(top.parent).as_posix()}"
    total = sum(path.stat().st_size for path in remotes)
    if total > limit:
        raise LimitExceeded(
            f"The input files have {total:,} bytes, more than the {limit:,} that travel to a remote kernel.",
            hint="Put them where the remote machine can read them, and hand over that path as a plain variable.",
        )
    return remotes


def _files(top: Path) -> Iterator[Path]:
    if not top.exists():
        raise FileMissing(f"{str(top)!r} does not exist.")
    if top.is_file():
        yield top
    else:
        yield from (path for path in top.rglob("*") if path.is_file())


def _replace_paths(value: Any, moves: Mapping[str, str]) -> Any:
    """Return a JSON value with every local path in it replaced by where it went."""

    def moved(one: Any) -> Any:
        if not isinstance(one, str):
            return one
        # A path as a whole comes first, because one input may lie inside of another.
        if one in moves:
            return moves[one]
        # An input may lie below the working folder: what names more of the path is meant.
        above = max((local for local in moves if one.startswith(local + os.sep)), key=len, default=None)
        return one if above is None else moves[above] + one[len(above) :].replace(os.sep, "/")

    return replace_nested(value, moved)


def upload_calls(path: Path, remote: str, size: int = PIECE_BYTES) -> Iterator[str]:
    """Yield the calls of `nbtools.kernels.inside.file_transfer` that write a file to a remote place."""
    with path.open("rb") as file:
        data = file.read(size)
        append = False
        # An empty file takes one call as well, or it would not exist over there.
        while data or not append:
            text = base64.b64encode(data).decode()
            yield f"put({json.dumps(remote)}, {text!r}, append={append})"
            data = file.read(size)
            append = True


def local_path(remote: str, plan: StagingPlan, context: RunContext) -> Path | None:
    """Return the local path for a file that the remote kernel made; `None` when it was not asked for.

    A place that would lead out of the working folder is not wanted either.
    """
    # The figure was asked for by its own path, which may lie anywhere.
    if remote == plan.figure:
        return context.figure_path
    parts = PurePosixPath(remote).parts
    if context.cwd is None or len(parts) < 2 or parts[0] != "work" or ".." in parts:
        return None
    try:
        return Roots([context.cwd]).resolve(Path(context.cwd, *parts[1:]), must_exist=False, for_writing=True)
    except NbtoolsError:
        return None
