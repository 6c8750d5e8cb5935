"""Where a run is kept: a folder with what is known of it, a log of what happened, and a lock for its driver.

::

    RUN_ID/
      run.json       the facts: what was asked for, and how the run stands
      log.jsonl      a thing that happened in each line, appended
      lease          locked by the one driver; says who it is

A line of the log is on the disk before anything is done that relies on it: `DrivenRun.sync` waits for that, and who
waits at the same time shares one write. The last line may be half written when a machine was switched off; it is left
out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, FileMissing, PermissionDenied
from nbtools.ground.aio import in_thread
from nbtools.ground.folder import draft_in
from nbtools.ground.home import facts_in, make_private

_FORMAT = 2
# Seconds for which a driver tries to get the lease: a reader that looks whether a run is driven holds it for a moment.
LOOKED_AT_S = 0.1


class RunFolder:
    """A run's folder, as a reader of the run sees it.

    Parameters
    ----------
    folder
        The run's folder.

    Attributes
    ----------
    facts
        What ``run.json`` says.

    Raises
    ------
    FileMissing
        There is no such run.
    ConfigInvalid
        A newer version has made it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read_facts()

    def _read_facts(self) -> None:
        folder = self.folder
        try:
            self.facts: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            is_newer = self.facts["format"] > _FORMAT
        except (OSError, ValueError, TypeError, KeyError):
            raise _no_run(folder.name) from None
        if folder.is_symlink():  # what lies behind it is not ours to write to, or to remove
            raise _no_run(folder.name)
        if is_newer:
            raise ConfigInvalid(
                f"the run {folder.name!r} was made by a newer nbtools (its folder has format {self.facts['format']}).",
                hint="Use that version, or start a new run.",
            )

    @staticmethod
    def lay_down(folder: Path, *inside: str) -> None:
        """Make the folder of a new run, only for its owner, with empty folders inside; it must not be there."""
        make_private(folder.parent)
        folder.mkdir(mode=0o700)
        for name in inside:
            (folder / name).mkdir(mode=0o700)
        (folder / "lease").touch(mode=0o600)

    @staticmethod
    def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
        """Put the facts of a run in place, whole or not at all."""
        text = json.dumps({"format": _FORMAT, **facts}, indent=2, ensure_ascii=False, default=str)
        write_file(folder / "run.json", text.encode("utf-8", "replace"))

    @property
    def has_ended(self) -> bool:
        """Whether it came to an end after which nothing happens any more."""
        raise NotImplementedError

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the log, oldest first; one that is half written is left out."""
        try:
            lines = (self.folder / "log.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def holder(self) -> dict[str, Any] | None:
        """Return who drives the run now: machine, process, and since when; `None` when nobody does."""
        # Only the lock itself says it: who is named in the file may have ended, and its number may be another process
        # by now.
        lease = _DriverLock(self.folder / "lease")
        return lease.facts() if lease.is_taken() else None

    def _take_lease(self) -> _DriverLock:
        """Take the lease and read the facts again, which another driver may have changed until now.

        Raises
        ------
        PermissionDenied
            Another driver holds it; the message says which.
        FileMissing
            The run was removed meanwhile.
        """
        lease = _DriverLock(self.folder / "lease")
        if not lease.take():
            raise self._driven_by(lease.facts())
        try:
            self._read_facts()
        except BaseException:
            lease.release()
            raise
        return lease

    def withdraw(self, *, only_ended: bool = False) -> bool:
        """Prevent that the run is taken up again, so that its folder can be removed; return whether that succeeded.

        Parameters
        ----------
        only_ended
            Whether it stays a run unless it has ended.

        Raises
        ------
        PermissionDenied
            Someone drives it; the message says who.
        FileMissing
            Someone else has withdrawn it meanwhile.
        OSError
            Its facts cannot be removed.
        """
        lease = self._take_lease()
        try:
            if only_ended and not self.has_ended:
                return False
            # From here on it is not a run, for those who wait for the lease as well.
            (self.folder / "run.json").unlink()
            return True
        finally:
            lease.release()

    def _driven_by(self, driver: Mapping[str, Any]) -> PermissionDenied:
        message = f"the run {self.folder.name} still runs, in process {driver.get('pid')} on {driver.get('host')}."
        return PermissionDenied(message, hint="Wait for it, or cancel it or end that process.")


class DrivenRun(RunFolder):
    """A run's folder for its one driver, who holds the lease and writes the log.

    Parameters
    ----------
    folder
        The run's folder.

    Raises
    ------
    PermissionDenied
        Another driver holds the lease; the message says which.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lease = self._take_lease()
        try:
            descriptor = os.open(folder / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except BaseException:
            self._lease.release()
            raise
        # Without a buffer: what a killed process has written is there, and only a machine that stops needs a sync.
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._is_cut = bool(self._file.tell()) and not _ends_in_newline(folder / "log.jsonl")
        self._appended = self._synced = 0
        self._syncing: asyncio.Future[None] | None = None

    def append_line(self, line: str) -> None:
        """Write a line of JSON; it is on the disk after the next `sync`."""
        # What follows a half-written line must not be lost with it.
        data, self._is_cut = b"\n" * self._is_cut + line.encode("utf-8", "replace") + b"\n", True
        write_whole(self._file, data)
        self._is_cut = False
        self._appended += 1

    async def sync(self) -> None:
        """Wait until every line so far is on the disk."""
        target = self._appended
        while self._synced < target:
            if self._syncing is None:
                self._syncing = asyncio.ensure_future(self._sync(self._appended))
            await asyncio.shield(self._syncing)

    async def _sync(self, upto: int) -> None:
        try:
            await in_thread(os.fsync, self._file.fileno())
            self._synced = max(self._synced, upto)
        finally:
            self._syncing = None

    def close(self) -> None:
        """Write what is left and give the lease back; harmless when repeated."""
        try:
            if not self._file.closed:
                os.fsync(self._file.fileno())
        finally:
            self._file.close()
            self._lease.release()


class _DriverLock:
    """A file that one process locks; the lock goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def is_taken(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _lock(descriptor, is_shared=True)
        finally:
            os.close(descriptor)

    def take(self) -> bool:
        try:
            # Never made here: it would stand in the way of a process that removes the run at this moment.
            descriptor = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            raise _no_run(self._path.parent.name) from None
        deadline = time.monotonic() + LOOKED_AT_S
        while not _lock(descriptor, is_shared=False):
            if time.monotonic() > deadline:
                os.close(descriptor)
                return False
            time.sleep(0.002)
        self._descriptor = descriptor
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        # Written behind the lock, so that a reader finds who holds it now, or who held it before.
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(facts).encode(), 0)
        return True

    def facts(self) -> dict[str, Any]:
        return facts_in(self._path)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _no_run(name: str) -> FileMissing:
    return FileMissing(f"there is no run {name!r}.")


def _lock(descriptor: int, *, is_shared: bool) -> bool:
    """Lock a file, and return whether nobody stood in the way; who only looks shares the lock with others who look."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]  # there on Windows alone
        else:
            import fcntl

            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"


def write_whole(file: FileIO, data: bytes) -> None:
    """Write all of it: a disk that is full takes a part, and says so only when it is to take more."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def link_file(path: Path, to: Path) -> None:
    """Let a file have a second name; a copy where the file system has no links."""
    make_private(to.parent)
    # A step that is tried again finds the link of the time before.
    with contextlib.suppress(FileExistsError):
        try:
            os.link(path, to)
        except FileExistsError:
            raise
        except OSError:
            # Whole or not at all: a copy that was cut would be taken for the link of the time before.
            with draft_in(to.parent) as draft:
                shutil.copyfile(path, draft)
                draft.replace(to)


def write_file(path: Path, content: bytes, *, is_kept: bool = True) -> None:
    """Put a file in place once it is whole, and on the disk unless it can be made again."""
    with draft_in(path.parent) as draft:
        with draft.open("wb") as handle:
            handle.write(content)
            if is_kept:
                handle.flush()
                os.fsync(handle.fileno())
        draft.replace(path)
