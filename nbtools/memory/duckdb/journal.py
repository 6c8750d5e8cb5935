r"""Journal: an append-only log on disk in which every confirmed change survives a crash.

A change counts as stored when its line is in the journal and the disk has confirmed it; DuckDB gets the rows later, in
slices. (Measured on DuckDB 2.0: one small commit takes 1.7 ms, one confirmed line here 0.2 ms, and a checkpoint of the
database can then never stall a write.) A line is one request::

    1c291ca3 [seq, "request id", [[row], …]]\n

with the CRC-32 of what follows it. Lines go to segments named after their first sequence number; a segment is dropped
when a snapshot of the database holds all of it. The segment in use grows in steps and ends in zeros, because a file
whose size stays the same is confirmed in 65 to 80% of the time. On opening, a torn last line is cut off: a write that
was interrupted, of which nobody was told that it was stored. It is reported, because a disk that lost the end of the
file looks the same. A line that is broken is skipped and reported, and the ones behind it are used. Broken lines at the
very end are set aside in a separate file, because their sequence numbers are given again.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nbtools.ground.home import make_private
from nbtools.memory.rules.rows import Row, row_from_list, row_to_list

_SEGMENT_BYTES = 8 << 20
_STEP_BYTES = 1 << 20
_DRAFT = ".new"
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class JournalEntry(NamedTuple):
    """What one request stored: its id, and for each row the place of its change in the batch."""

    request: str
    rows: tuple[tuple[int, Row], ...]


class Journal:
    """Append entries to segments in a folder, and read them back.

    Parameters
    ----------
    folder
        Where the segments lie; made when it is missing.
    segment_bytes
        Size at which a new segment is begun.
    sync
        Returns when the disk has what was written to a file descriptor; tests of failing disks replace it.

    Attributes
    ----------
    is_broken
        Whether a write failed and could not be taken back: nobody knows how the last segment ends, and nothing more is
        written to it.
    """

    def __init__(
        self, folder: Path, *, segment_bytes: int = _SEGMENT_BYTES, sync: Callable[[int], None] | None = None
    ) -> None:
        if not folder.exists():
            make_private(folder)
            # A folder is only as durable as its entry in the folder above it.
            for above in list(folder.parents)[:2]:
                flush_path(above)
        self.folder = folder
        # What `replay` could not read of the end, in words.
        self.notices: list[str] = []
        self._limit = segment_bytes
        self._sync = sync or _sync
        self._fd = -1
        self._size = self._room = 0
        self._draft: Path | None = None
        self.is_broken = False

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Store entries, all or none, and return when the disk has them.

        Raises
        ------
        OSError
            Nothing was stored (the disk is full, for instance).
        """
        if self.is_broken:
            raise OSError(errno.EIO, "an earlier write could not be taken back")
        data = b"".join(map(_encode, entries))
        if self._fd < 0 or self._size >= self._limit:
            self._begin(entries[0].rows[0][1].seq)
        try:
            if self._size + len(data) > self._room:
                self._room = (self._size + len(data)) // _STEP_BYTES * _STEP_BYTES + _STEP_BYTES
                os.ftruncate(self._fd, self._room)
            done = 0
            while done < len(data):
                done += os.write(self._fd, data[done:])
            self._sync(self._fd)
            self._name_segment()
        except OSError:
            # Half a group must not be found on the next start: some of its requests were told that they failed.
            self._undo()
            raise
        self._size += len(data)

    def is_lost(self) -> bool:
        """Return whether what was appended may not be found again: it was removed, or is broken."""
        if self._fd < 0:
            return self.is_broken or not self.folder.exists()
        return not os.fstat(self._fd).st_nlink

    def replay(self, after: int) -> Iterator[JournalEntry]:
        """Yield the entries with rows behind a sequence number, and leave the journal ready for appending.

        Damaged lines are skipped; a gap in the sequence numbers shows them, and `notices` names those at the end.
        """
        segments = self.segments()
        for index, segment in enumerate(segments):
            is_last = index == len(segments) - 1
            if not is_last and _seq_of(segments[index + 1]) <= after + 1:
                continue
            yield from self._read(segment, after, is_last=is_last)

    def segments(self) -> list[Path]:
        """Return the segments, oldest first."""
        return sorted(self.folder.glob("*.log"))

    def size(self) -> int:
        """Return the bytes of all segments, without the zeros at the end of the one in use."""
        return sum(segment.stat().st_size for segment in self.segments()) - (self._room - self._size)

    def drop(self, upto: int) -> None:
        """Remove the segments whose rows all have sequence numbers of at most `upto`."""
        segments = self.segments()
        for segment, following in itertools.pairwise(segments):
            if _seq_of(following) > upto + 1:
                break
            segment.unlink()

    def erase(self) -> None:
        """Remove every segment and every damaged part that was set aside; call it after a snapshot was taken."""
        self.close()
        for segment in self.folder.glob("*.log*"):
            segment.unlink()
        flush_path(self.folder)

    def close(self) -> None:
        """Close the open segment, and cut off the zeros at its end."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            os.close(self._fd)
            self._fd, self._room = -1, self._size

    def _begin(self, seq: int) -> None:
        self.close()
        path = self.folder / f"{seq:016d}.log"
        # A segment gets its name with its first entries: one that is empty has lost them, and is not a new one.
        self._draft = None if path.exists() else path.with_name(path.name + _DRAFT)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if self._draft else 0)
        self._fd = os.open(self._draft or path, flags, 0o600)
        self._size = self._room = os.lseek(self._fd, 0, os.SEEK_END)
        if self._size and not path.read_bytes().endswith(b"\n"):
            os.write(self._fd, b"\n")  # A torn line of an earlier life stays a separate line.
            self._size += 1

    def _name_segment(self) -> None:
        """Rename a new segment to its final name, because its first entries are on the disk now."""
        if self._draft is not None:
            self._draft.rename(self._draft.with_name(self._draft.name.removesuffix(_DRAFT)))
            self._draft = None
            flush_path(self.folder)

    def _undo(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
            self._room = os.lseek(self._fd, self._size, os.SEEK_SET)
            self._sync(self._fd)
        except OSError:
            self.is_broken = True
            self.close()
            raise

    def _read(self, segment: Path, after: int, *, is_last: bool) -> Iterator[JournalEntry]:
        data = segment.read_bytes()
        if not len(data) % _STEP_BYTES:
            data = data.rstrip(b"\0")  # It was in use when its process ended.
        start = upto = 0
        pending: bytes | None = None
        while start < len(data):
            # A byte that took the place of the last line's end is not a reason to lose the line.
            end = data.find(b"\n", start)
            end = len(data) - 1 if end < 0 else end
            line = data[start:end]
            start = end + 1
            if not _is_whole(line):
                continue
            # Most of a segment is merged already: a line is parsed only when the one behind it begins too late.
            if pending is not None and _first_seq(line) > after + 1:
                yield from _parse(pending, after)
            pending, upto = line, start
        if pending is not None:
            yield from _parse(pending, after)
        if is_last:
            self._trim_end(segment, data, upto, after)

    def _trim_end(self, segment: Path, data: bytes, upto: int, after: int) -> None:
        """Cut off the unreadable end of a segment, and set it aside if it may contain changes that are not merged."""
        *broken, torn = data[upto:].split(b"\n")
        lost = sum(_first_seq(line) > after for line in broken)
        # What a crash cuts off ends; a block that the disk lost goes on with nothing.
        lost += b"\0" in torn and _first_seq(torn) > after
        if lost:
            aside = segment.with_name(segment.name + ".damaged")
            with open(aside, "ab", opener=_open_private) as file:
                file.write(data[upto:])
            loss = f"The last {lost} lines of the journal were damaged and set aside as {aside}"
            self.notices.append(f"{loss}: the changes in them are lost.")
        elif not data and _seq_of(segment) > after:
            segment.unlink()
            self.notices.append(
                f"The journal's newest file {segment.name} was empty: what was stored there last is lost."
            )
            return
        elif torn and _first_seq(torn) > after:
            self.notices.append(
                "The journal ended in half a line, which was removed. Either the program or the machine was stopped "
                "while it stored a change, which then was not confirmed; or the disk lost the end of the file."
            )
        if lost or torn:
            os.truncate(segment, upto if lost else len(data) - len(torn))
        elif data and not data.endswith(b"\n"):
            with segment.open("rb+") as file:
                file.seek(len(data) - 1)
                file.write(b"\n")


def _encode(entry: JournalEntry) -> bytes:
    rows = [(index, row_to_list(row)) for index, row in entry.rows]
    body = _to_json((entry.rows[0][1].seq, entry.request, rows)).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _is_whole(line: bytes) -> bool:
    try:
        return int(line[:8], 16) == zlib.crc32(line[9:])
    except ValueError:
        return False


def _parse(line: bytes, after: int) -> Iterator[JournalEntry]:
    _, request, rows = json.loads(line[9:])
    entry = JournalEntry(request, tuple((index, row_from_list(row)) for index, row in rows))
    if entry.rows[-1][1].seq > after:
        yield entry


def _first_seq(line: bytes) -> int:
    """Return the first sequence number of a line without parsing it; a broken one says that it might be late."""
    digits = line[10 : line.find(b",", 10, 40)]
    return int(digits) if digits.isdigit() else 1 << 62


def _seq_of(segment: Path) -> int:
    return int(segment.stem)


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o600)


def flush_path(path: Path) -> None:
    """Return when the disk has the content of a file, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync(fd: int) -> None:
    # On macOS fsync leaves data in the drive's cache; F_FULLFSYNC does not.
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        import fcntl

        fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - exists on macOS alone
