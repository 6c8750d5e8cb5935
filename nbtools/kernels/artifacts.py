"""What becomes of the files that a script wrote in its working folder.

Files in one of the kernel's own folders are taken out of the script's reach before anyone looks at them: a process that
still runs could put a link, a pipe or a device in their place. They are moved (or copied, if a session still uses them)
to a folder of the owner; anything that arrives there and is not a regular file is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.ground.folder import Folder
from nbtools.ground.folder_state import MOST_ENTRIES, MOST_FILES, FolderState, files_below
from nbtools.ground.paths import Roots
from nbtools.kernels.interface import CHANGED_MEANWHILE, Execution, RunContext
from nbtools.processes.runtime_dir import remove_tree

_MOST_COPIED = 256 * 2**20
_BLOCK = 1 << 20
_NAMED = 20


def keep(paths: Iterable[Path], folder: Path, store: Path, *, move: bool) -> tuple[dict[Path, Path], tuple[str, ...]]:
    """Take files out of a folder that a script may still change.

    Parameters
    ----------
    paths
        What was written there, as reported by `nbtools.ground.folder_state.FolderState.changed_files`.
    folder
        The script's folder.
    store
        The owner's folder, where a file replaces one of the same name; the newest 1,000 files stay there.
    move
        Whether the files are moved; otherwise they are copied, up to 256 MiB in all.

    Returns
    -------
    tuple
        A mapping from each file that was kept to where it is now, and sentences about the others.
    """
    moved: dict[Path, Path] = {}
    lost: list[str] = []
    room = _MOST_COPIED
    store.mkdir(mode=0o700, exist_ok=True)
    for path in paths:
        target = store / path.relative_to(folder)
        try:
            with (
                Roots([folder]).folder(path.parent) as source,
                Roots([store]).folder(store) as hall,
                Roots([store]).folder(target.parent, make=True, mode=0o700) as shelf,
            ):
                room -= _take(source, hall, shelf, path.name, None if move else room)
            moved[path] = target
        except (NbtoolsError, OSError):
            lost.append(path.name)
    _make_room(store)
    if not lost:
        return moved, ()
    names = ", ".join(lost[:5]) + (", …" if len(lost) > 5 else "")
    why = "they are not readable regular files" + (
        "" if move else f", or there are more than {_MOST_COPIED:,} bytes in all"
    )
    return moved, (f"{len(lost)} of the files that the script left could not be kept ({names}): {why}",)


def without_others(execution: Execution, watched: Collection[Path], shared: Iterable[Path]) -> Execution:
    """Return an execution without the files that others wrote or another script may have written; its notes name them.

    Files that a process started by the script may have written stay, and are named too; so does everything if the
    system cannot tell who writes, as with shells and Node.js.

    Parameters
    ----------
    execution
        The execution, with all files that changed while it ran.
    watched
        The folders in which the kernel watched who writes.
    shared
        Files that changed while another script ran in the same folder.
    """
    others, shared = execution.others, set(shared) - {execution.figure}
    foreign, unsure, untold = set[Path](), set[Path](), set[Path]()
    if others is None:
        untold = set(execution.artifacts) - shared - {execution.figure}
    else:
        foreign = {path for path in execution.artifacts if path.parent in watched and path.name in others}
        shared = {path for path in shared if path.parent not in watched or (execution.has_children and path in foreign)}
    if execution.has_children:
        foreign, unsure = set(), foreign - shared
    doubts = {
        "another program": foreign,
        "this script or by another one that ran in the same folder": shared,
        "a process that this script started or by another program": unsure,
        "this script or by another program": untold,
    }
    notes = tuple(f"{CHANGED_MEANWHILE}, by {who}: {_names(paths)}" for who, paths in doubts.items() if paths)
    own = tuple(path for path in execution.artifacts if path not in foreign | shared)
    return dataclasses.replace(execution, artifacts=own, notes=(*execution.notes, *notes))


def _names(paths: Iterable[Path]) -> str:
    names = sorted(path.name for path in paths)
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _take(source: Folder, hall: Folder, shelf: Folder, name: str, room: int | None) -> int:
    """Bring a file to the shelf, by way of a name in the hall that no script knows; return the bytes copied."""
    # First under a name that no script can guess, then to its place in one step: a reader sees a whole file or none.
    draft = f".{secrets.token_hex(8)}"
    copied = 0
    try:
        if room is None:
            source.move(name, hall, draft, overwrite=True)
            # Opening refuses what is not a regular file, such as a pipe that the script put in place of its file.
            os.close(hall.open_file(draft))
        else:
            copied = _copy(source, hall, name, draft, room)
        hall.move(draft, shelf, name, overwrite=True)
    except BaseException:
        draft_path = hall.path / draft
        if draft_path.is_dir() and not draft_path.is_symlink():
            remove_tree(draft_path)
        else:
            draft_path.unlink(missing_ok=True)
        raise
    return copied


def _copy(source: Folder, hall: Folder, name: str, draft: str, room: int) -> int:
    with (
        os.fdopen(source.open_file(name), "rb") as read,
        os.fdopen(hall.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as write,
    ):
        left = size = os.fstat(read.fileno()).st_size
        if size > room:
            raise OSError(f"{name} does not fit")
        # The size counts as of the start, so that a file that still grows does not copy for ever.
        while left > 0 and (block := read.read(min(left, _BLOCK))):
            write.write(block)
            left -= len(block)
    return size - left


def _make_room(folder: Path) -> None:
    """Remove the oldest files when there are too many."""
    files = [Path(entry.path) for entry in files_below(folder, MOST_ENTRIES)[0]]
    if len(files) > MOST_FILES:
        aged = sorted(files, key=lambda path: path.lstat().st_ctime_ns)
        for path in aged[: len(files) - MOST_FILES]:
            with contextlib.suppress(OSError):
                path.unlink()


def collect(
    execution: Execution, context: RunContext, before: FolderState, *, find: Callable[[], Path | None], move: bool
) -> Execution:
    """Return the execution with the files that it left behind.

    Parameters
    ----------
    execution
        The execution of the run.
    context
        The surroundings of the run.
    before
        The state of the run's folder before the run.
    find
        Called if any of the files are in the folder; returns where to take them, or `None` to leave them there.
    move
        Whether they are moved there; otherwise they are copied.
    """
    folder, figure = context.cwd, context.figure_path
    assert folder is not None, "every run has a folder"
    files = execution.artifacts or before.changed_files()
    if len(files) >= MOST_FILES:
        note = f"the first {MOST_FILES:,} files that the script wrote are listed; there may be more"
        execution = dataclasses.replace(execution, notes=(*execution.notes, note))
    if figure is not None and not before.has_changed(figure):
        figure = None
    if figure is not None and figure not in files:
        files = (*files, figure)
    inside = [path for path in files if folder in path.parents]
    if not inside or (into := find()) is None:
        return dataclasses.replace(execution, artifacts=files, figure=figure) if files else execution
    moved, notes = keep(inside, folder, into, move=move)
    return dataclasses.replace(
        execution,
        value=_moved_table(execution.value, moved),
        artifacts=(*moved.values(), *(path for path in files if path not in inside)),
        folder=into,
        figure=moved.get(figure) if figure in inside else figure,
        notes=(*execution.notes, *notes),
    )


def _moved_table(value: Any, moved: Mapping[Path, Path]) -> Any:
    """Return the value of an execution, a table with the place to which its file was taken."""
    if not isinstance(value, dict) or "parquet" not in value:
        return value
    new = next((new for old, new in moved.items() if str(old) == value["parquet"]), None)
    return value if new is None else {**value, "parquet": str(new)}
