"""All runs of one kind: finds them by the beginning of their ids, lists them, forgets them, and removes old ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from nbtools.conduct.run_folder import RunFolder
from nbtools.errors import FileMissing, InvalidArguments, NbtoolsError, PermissionDenied, did_you_mean
from nbtools.ground.trimming import trim

Run = TypeVar("Run", bound=RunFolder)


class RunFolders(Generic[Run]):
    """The folders of runs.

    Parameters
    ----------
    folder
        Where they are.
    read
        Reads one of them.
    seconds
        Seconds after which a run that has ended is removed.
    most_bytes
        Total bytes of all runs; beyond that, the oldest are removed.
    listed_by
        The command that lists them, for hints.
    """

    def __init__(
        self, folder: Path, read: Callable[[Path], Run], *, seconds: float, most_bytes: int, listed_by: str
    ) -> None:
        self.folder = folder
        self._read = read
        self._bounds = seconds, most_bytes
        self._listed_by = listed_by
        self._is_pruned = False

    def find(self, run_id: str) -> Run:
        """Return a run, by its id or the beginning of it.

        Raises
        ------
        FileMissing
            There is none.
        InvalidArguments
            Several ids begin with it, or it cannot be the name of a run.
        """
        if not run_id or "/" in run_id or run_id.startswith("."):
            raise InvalidArguments(f"{run_id!r} cannot be the name of a run.", hint=f"{self._listed_by} lists them.")
        if os.path.exists(self.folder / run_id / "run.json"):  # noqa: PTH110 - which bears names that are too long
            return self._read(self.folder / run_id)
        names = [run.name for run in list_runs(self.folder)]
        # People type the first characters, as a list shows them.
        close = [name for name in names if name.startswith(run_id)]
        if len(close) > 1:
            candidates = ", ".join(close[:5]) + (f" and {len(close) - 5} more" if len(close) > 5 else "")
            raise InvalidArguments(f"{run_id!r} could be {candidates}.", hint="Give more of the name.")
        if not close:
            hint = f"{self._listed_by} lists them." if names else "There are no runs yet."
            raise FileMissing(f"there is no run {run_id!r}.", hint=did_you_mean(run_id, names, hint))
        return self._read(self.folder / close[0])

    def newest(self, limit: int | None) -> Iterator[Run]:
        """Yield the runs that can be read, the most recently updated first."""
        for path in list_runs(self.folder)[:limit]:
            # One that was removed meanwhile, or that a newer version has made, must not hide the others.
            with contextlib.suppress(NbtoolsError, OSError):
                yield self._read(path)

    def forget(self, run_id: str) -> str:
        """Remove a run that nobody is driving, with everything that is kept of it, and return its id.

        Raises
        ------
        FileMissing
            There is no such run.
        PermissionDenied
            Someone is driving it, or part of it cannot be removed.
        """
        run = self.find(run_id)
        try:
            run.withdraw()
            shutil.rmtree(run.folder)
        except OSError as exc:
            message = f"{exc.filename} cannot be removed: {exc.strerror}."
            raise PermissionDenied(message, hint="Check its permissions.") from exc
        return run.folder.name

    def prune(self, *, seconds: float | None = None, most_bytes: int | None = None) -> tuple[int, int]:
        """Remove old runs that have ended, and return how many were removed and their total bytes; the newest 20 stay.

        Parameters
        ----------
        seconds
            Runs that have not been used for longer than this are removed; `None` uses the setting.
        most_bytes
            Beyond this many bytes in all, the least recently used runs are removed; `None` uses the setting.
        """

        def may_go(folder: Path) -> bool:
            try:
                run = self._read(folder)
                # The lease tells when it was driven, and is written by who takes it: not for one that stays.
                return run.has_ended and run.withdraw(only_ended=True)
            except FileMissing:  # its maker, or who removed it, was ended in the middle
                return True
            except (NbtoolsError, OSError):
                return False

        age, size = self._bounds
        age, size = age if seconds is None else seconds, size if most_bytes is None else most_bytes
        return trim(self.folder, seconds=age, most_bytes=size, may_go=may_go)

    def prune_once(self) -> None:
        """Remove old runs the first time this is called."""
        if not self._is_pruned:
            self._is_pruned = True
            self.prune()


def list_runs(folder: Path) -> list[Path]:
    """Return the folders of all runs, the most recently updated first."""
    runs = []
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            # One may be removed while the others are looked at.
            with contextlib.suppress(OSError):
                runs.append(((entry / "run.json").stat().st_mtime, entry))
    return [entry for _, entry in sorted(runs, reverse=True)]
