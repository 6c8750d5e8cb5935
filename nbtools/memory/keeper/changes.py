"""A count of changes in shared memory, by which clients know without asking that what they have read is still true.

The count lies in a file beside the memory, which the keeper and its clients map. It is odd while changes are made, and
two higher when they are made, before anybody is told of them. Whoever read a record while the count was even, and finds
the same count later, would read the same again. Each keeper names its file anew and removes those of keepers before it,
so a client that looks at the old file finds that it is gone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ChangeCount", "ChangeReader"]

_PREFIX = "changes-"
_SIZE = 8


class ChangeCount:
    """The keeper's end.

    Parameters
    ----------
    folder
        The folder beside the memory.

    Attributes
    ----------
    name
        The name of the file in it, for clients.
    """

    def __init__(self, folder: Path) -> None:
        for old in folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                old.unlink()
        self.name = f"{_PREFIX}{secrets.token_hex(8)}"
        self._file = folder / self.name
        self._count = memoryview(bytearray(_SIZE)).cast("Q")
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # a full disk, perhaps: then clients ask each time
        try:
            # Written, so that the disk has room for it: a mapped page without room would end the process.
            os.write(descriptor, bytes(_SIZE))
            self._count = memoryview(mmap.mmap(descriptor, _SIZE)).cast("Q")
        except (OSError, ValueError):
            self._file.unlink()
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Mark that changes are made; where they fail nobody knows what was made, and the mark stays."""
        self._count[0] += 1
        yield
        self._count[0] += 1

    def close(self) -> None:
        """Say for good that the count tells nothing any more."""
        self._count[0] |= 1
        with contextlib.suppress(OSError):
            self._file.unlink()


class ChangeReader:
    """A client's end.

    Parameters
    ----------
    file
        The file that the keeper named.

    Raises
    ------
    OSError, ValueError
        It is gone, or cannot be mapped.
    """

    def __init__(self, file: Path) -> None:
        self._file = os.fspath(file)
        descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._count = memoryview(mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_READ)).cast("Q")
        finally:
            os.close(descriptor)

    def read(self) -> int | None:
        """Return the count; `None` while changes are made, and when another keeper serves."""
        count = self._count[0]
        if count & 1:
            return None
        try:
            os.stat(self._file)  # noqa: PTH116 - a Path takes three times as long
        except OSError:
            return None
        return count
