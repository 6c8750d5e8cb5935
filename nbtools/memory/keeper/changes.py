"""Counts of changes in shared memory, by which clients know without asking that what they have read is still true.

The counts lie in a file beside the memory, which the keeper and its clients map: one for changes of any key, many for
single keys, which share them by chance, and one that counts every change of a record. A count is odd while changes are
made, and two higher when they are made, before anyone is told of them. Who read a record while its counts were
even, and finds the same ones later, would read the same again. Each keeper names its file again, removes those of
keepers before it and begins to count at another number, so a client that looks at the old file finds that it is
gone, and takes no count of one keeper for another's.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from nbtools.memory.records import Scope
from nbtools.memory.repository import Change

_PREFIX = "changes-"
# With 4,096, about two of five reads were asked in vain while four processes wrote other keys.
_PLACES = 65_536
_EVERY = 1 + _PLACES
_SIZE = 8 * (2 + _PLACES)

PLACES_OF_ALL = (0, _EVERY)
"""Which counts stand for all records together."""


def places_of_keys(scope: Scope, keys: Sequence[str]) -> list[int]:
    """Return which counts stand for keys: the first one, which is not a key's, and one for each key."""
    return [0, *[1 + zlib.crc32((scope.prefix + key).encode()) % _PLACES for key in keys]]


def _places_of(changes: Sequence[Change]) -> set[int]:
    """Return which counts a batch changes; the record of a call is nothing that is read by a key.

    What is forgotten may have stood under other keys too.
    """
    counted = [change for change in changes if change.kind != "call"]
    wide = ("clear", "forget")
    return {0 if c.kind in wide or c.scope is None else places_of_keys(c.scope, (c.key,))[1] for c in counted}


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
        self._counts = memoryview(bytearray(_SIZE)).cast("Q")
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # a full disk, perhaps: then clients ask each time
        try:
            # Written, so that the disk has room for it: a mapped page without room would end the process.
            os.write(descriptor, bytes(_SIZE))
            self._counts = memoryview(mmap.mmap(descriptor, _SIZE)).cast("Q")
        except (OSError, ValueError):
            self._file.unlink()
        finally:
            os.close(descriptor)
        self._counts[0] = secrets.randbits(48) * 2

    @contextlib.contextmanager
    def changing(self, batches: Sequence[Sequence[Change]]) -> Iterator[list[list[list[int]] | None]]:
        """Mark that changes are made; where they fail nobody knows what was made, and the mark stays.

        Yields
        ------
        list
            Filled once the changes are made: for each batch of one change the counts of its key, as a reader finds
            them while nobody has changed it again, and their places; `None` where that has happened already.
        """
        places = [_places_of(changes) for changes in batches]
        last = {slot: number for number, touched in enumerate(places) for slot in touched}
        moved = [*last, *([_EVERY] if last else ())]
        for slot in moved:
            self._counts[slot] += 1
        reports = list[list[list[int]] | None]()
        yield reports
        for slot in moved:
            self._counts[slot] += 1
        for number, touched in enumerate(places):
            is_newest = len(batches[number]) == 1 and 0 not in last and all(last[slot] == number for slot in touched)
            slots = [0, *touched]
            reports.append([[self._counts[slot] for slot in slots], slots] if is_newest and touched else None)

    def close(self) -> None:
        """Say for good that the counts tell nothing any more."""
        self._counts[0] |= 1
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
            self._counts = memoryview(mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_READ)).cast("Q")
        finally:
            os.close(descriptor)

    def are(self, counts: list[int], places: Sequence[int]) -> bool:
        """Tell whether some of the counts are those that were read before, which were all even."""
        return [self._counts[slot] for slot in places] == counts and self._is_there()

    def read(self, places: Sequence[int]) -> list[int] | None:
        """Return some of the counts; `None` while changes are made, and when another keeper serves."""
        counts = [self._counts[slot] for slot in places]
        return None if any(count & 1 for count in counts) or not self._is_there() else counts

    def _is_there(self) -> bool:
        try:
            os.stat(self._file)  # noqa: PTH116 - a Path takes three times as long
        except OSError:
            return False
        return True
