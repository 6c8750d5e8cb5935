"""How much a script has written: what all files together occupy in the folders that its kernel may write.

The system's own limit holds for one file. This one holds for their sum, and each entry counts as a page at least, so
that empty files count too. A folder that was given may hold much already, so what counts is by how much it has grown
since the kernel was started; files that were deleted and are still open belong to it.

A look takes some milliseconds at a time and goes on at the next one, because the process that takes it watches other
kernels too. What no name leads to cannot be counted: a folder whose script has closed it to its owner, or which lies
too deep for a path. One that stays so from one look to the next is taken for one that hides what is in it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator, Sequence

from nbtools.processes import process_tree

_BLOCK, _LEAST = 512, 4096  # bytes: the unit of st_blocks, and what an entry counts as at least
# Seconds of a look without a pause, and between two looks at least and at most; a pause is so many times a look.
_AT_ONCE_S, _PAUSE_S, _LONGEST_S, _SHARE = 0.01, 0.5, 30.0, 10


class FileCount:
    """The files of one kernel, looked at again and again.

    Parameters
    ----------
    places
        The folders and files that it may write.
    most
        Bytes by which all of them together may grow.
    """

    def __init__(self, places: Sequence[str], most: int) -> None:
        real = sorted({os.path.realpath(path) for path in places})
        self._places = [path for path in real if not any(path.startswith(f"{other}{os.sep}") for other in real)]
        self._most = most
        self._before: int | None = None
        self._was_hidden: set[int] = set()
        self._hidden_before: set[int] = set()
        self._activity = process_tree.Use()
        self._rest_until = self._spent = 0.0
        self._begin()

    def _begin(self) -> None:
        self._bytes, self._hidden, self._linked = 0, set[int](), set[tuple[int, int]]()
        self._steps, self._spent = self._look(), 0.0

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way, the first one among them, by which all others are measured."""
        return self._before is None or bool(self._spent)

    def again(self) -> FileCount:
        """Return a count of the same places, which begins now."""
        return FileCount(self._places, self._most)

    def close(self) -> None:
        """Let go of the folder in which a look has stopped, which nothing else would close."""
        self._steps.close()

    def is_beyond(self, pids: Sequence[int]) -> bool:
        """Look on for a moment; tell whether a look that has come to its end found more than is allowed.

        Parameters
        ----------
        pids
            The processes of the kernel, whose open files are looked at too.
        """
        now = time.monotonic()
        if now < self._rest_until or not (self.is_looking or self._has_moved(pids)):
            return False
        for _ in self._steps:
            if time.monotonic() > now + _AT_ONCE_S:
                self._spent += _AT_ONCE_S
                return False
        self._spent += time.monotonic() - now
        self._rest_until = now + min(_LONGEST_S, max(_PAUSE_S, _SHARE * self._spent))
        self._bytes += process_tree.deleted_bytes(pids)
        if self._before is None:
            self._before, self._hidden_before = self._bytes, self._hidden
        closed, self._was_hidden = self._hidden & self._was_hidden - self._hidden_before, self._hidden
        is_beyond = self._bytes - self._before > self._most or bool(closed)
        self._begin()
        return is_beyond

    def _has_moved(self, pids: Sequence[int]) -> bool:
        """Tell whether a look is due: who has used no processor since the last one has written nothing."""
        last, self._activity = self._activity, process_tree.use(pids)
        return self._activity != last

    def _look(self) -> Generator[None]:
        todo = list(self._places)
        while todo:
            folder = todo.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        self._add(entry, todo)
                        yield
            except FileNotFoundError:
                continue  # gone meanwhile
            except OSError:
                self._add_single(folder)

    def _add(self, entry: os.DirEntry[str], todo: list[str]) -> None:
        try:
            state = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError:
            self._hidden.add(entry.inode())
            return
        if is_folder:
            todo.append(entry.path)
        elif state.st_nlink > 1:
            if (state.st_dev, state.st_ino) in self._linked:
                return
            self._linked.add((state.st_dev, state.st_ino))
        self._bytes += max(_LEAST, state.st_blocks * _BLOCK)

    def _add_single(self, path: str) -> None:
        """Count what cannot be listed: a file that was given, or a folder that is closed."""
        try:
            state = os.lstat(path)
        except OSError:
            return
        if not stat.S_ISDIR(state.st_mode):
            self._bytes += state.st_blocks * _BLOCK
        elif state.st_uid == os.geteuid():
            # What another user has closed is not the script's.
            self._hidden.add(state.st_ino)
