"""Restores the files through which a script could weaken later runs in its folder.

A script that a model wrote may have the user's own folder as its working folder, and change the files there. What it
writes into an `nbtools.toml` opens nothing, because the person has not approved that content; but it could remove
what that file forbids. Git, too, runs hooks and programs that its configuration names. Both are stored before a script
begins and restored once it has ended; its versions of them are kept beside them. Folders below are not examined: a
script can turn any of them into a repository.

Processes that a script has started outlive its run and could change the files later. All of them are stopped
before the files are restored, until the next run of a session begins or they are ended: `awake`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import AsyncIterator, Container
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.ground import aio
from nbtools.ground.paths import Roots
from nbtools.kernels.runs.ending import to_the_end

ASIDE = ".from-script"
"""What the name of a file that was taken away ends with."""

# A file in place of `.git`, a link in place of the hooks, and `commondir` lead git to another place.
_NAMES = ("nbtools.toml", ".git", ".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks")
_GIT, _HOOKS = ".git", "hooks"
_INERT = (ASIDE, ".sample")
_MOST_HOOKS, _MOST_TOLD = 1_000, 10
_MOST_BYTES = 1 << 20


class PlantedFiles:
    """The current content of the files in a folder that affect later runs.

    Parameters
    ----------
    folder
        The working folder of a script that must not change them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._roots = folder, Roots([folder])
        self._before = self._read()

    def put_back(self) -> tuple[str, ...]:
        """Restore the files, and return the names of those that were changed."""
        with contextlib.suppress(NbtoolsError, OSError):
            if len(self._hooks()) > _MOST_HOOKS:  # all of them in one step: no owner has so many
                with self._roots.folder(self._folder / _GIT) as parent:
                    parent.move(_HOOKS, parent, f"{_HOOKS}.{secrets.token_hex(4)}{ASIDE}")
        now, names = self._read(self._before).items(), list[str]()
        # What only one of the two has, or what has changed; a link comes before what it leads to.
        for path in sorted({path for path, _ in now ^ self._before.items()}):
            names.append(path.relative_to(self._folder).as_posix())
            try:
                self._write(path, self._before.get(path))
            except (NbtoolsError, OSError):
                names[-1] += " (could not be restored)"
        return tuple(names)

    def _read(self, before: Container[Path] | None = None) -> dict[Path, tuple[int, bytes]]:
        """Return mode and content of each file but folders; of one that was not there before, the mode alone."""
        contents = {}
        for path in (*(self._folder / name for name in _NAMES), *self._hooks()):
            with contextlib.suppress(OSError):
                if not stat.S_ISDIR(mode := path.lstat().st_mode):
                    contents[path] = (mode, self._content(path) if before is None or path in before else b"")
        return contents

    def _hooks(self) -> list[Path]:
        """Return what git may run, one more than there may be at the most."""
        with contextlib.suppress(OSError), os.scandir(self._folder / _GIT / _HOOKS) as entries:
            paths = (Path(entry.path) for entry in entries if not entry.name.endswith(_INERT))
            return list(itertools.islice(paths, _MOST_HOOKS + 1))
        return []

    def _content(self, path: Path) -> bytes:
        # Opening refuses links, pipes and devices, which hold nothing that could be put back.
        with contextlib.suppress(NbtoolsError, OSError), os.fdopen(self._roots.open_file(path), "rb") as file:
            return file.read(_MOST_BYTES)
        return b""

    def _write(self, path: Path, entry: tuple[int, bytes] | None) -> None:
        with self._roots.folder(path.parent, make=True) as parent:
            # Beside it, in one step: someone may have meant it, and a script may still write to it.
            with contextlib.suppress(FileNotFoundError):
                parent.move(path.name, parent, path.name + ASIDE, overwrite=True)
            if entry is not None:
                mode, content = entry
                parent.replace(path.name, content, mode=stat.S_IMODE(mode))


@contextlib.asynccontextmanager
async def awake(kernel: Any, folder: Path | None) -> AsyncIterator[list[str]]:
    """Let a kernel run that must not change the files in its folder that affect later runs.

    Parameters
    ----------
    kernel
        The kernel. Outside of the context its processes are stopped.
    folder
        Its working folder; `None` for one that may change them, and is never stopped.

    Yields
    ------
    list
        Sentences about the files, filled in when the context ends.
    """
    notes = list[str]()
    if folder is None:
        yield notes
        return
    planted = await aio.in_thread(PlantedFiles, folder)
    process = getattr(kernel, "process", None)
    if process is not None:
        await process.thaw()
    try:
        yield notes
    finally:
        if process is not None and not await to_the_end(process.freeze()):
            # It must not continue unwatched.
            await to_the_end(kernel.kill())
        changed = await to_the_end(aio.in_thread(planted.put_back))
        if changed:
            names = ", ".join(changed[:_MOST_TOLD]) + (", …" if len(changed) > _MOST_TOLD else "")
            notes.append(f"{names} may not be changed by such a script: restored, with the changed version beside it")
