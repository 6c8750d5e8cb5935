"""Stores for the files of the memory tool: the protocol, and the two stores that need no network.

A file is written only if it is still what was read (a token), so two clients that edit one file lose nothing. There
are not kept: a folder is there as long as a file below it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from nbtools.errors import FileMissing, MemoryUnavailable, MemoryWriteFailed, PathNotAllowed, VersionConflict
from nbtools.ground.folder import Folder
from nbtools.ground.home import make_private
from nbtools.ground.paths import Roots
from nbtools.memory.files.paths import ROOT, check_path
from nbtools.memory.repository import Change, Query
from nbtools.memory.store import AgentMemory

FILE_TAG = "memory-file"
_TRIES = 50
_LOCK = ".nbtools.lock"
_OURS = ".nbtools"  # the lock, and drafts: nobody names them


class FileStore(Protocol):
    """A flat store of texts by path."""

    def read(self, path: str) -> tuple[str, str] | None:
        """Return the text of a file and a token for this state of it, `None` when there is no file."""

    def write(self, path: str, text: str, token: str | None) -> None:
        """Write a file that is still what `token` says; `None` means that there must be none.

        Raises
        ------
        VersionConflict
            It is not what it was.
        """

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return path to size in bytes for every file below a folder."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; a file that does not exist is ignored."""

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename files; each new path must be free.

        Raises
        ------
        VersionConflict
            A destination exists, or a source is gone.
        """

    def close(self) -> None:
        """Close the store."""


class MemoryFileStore:
    """Files as records of a memory, keyed by their path in the memory's own scope.

    Parameters
    ----------
    memory
        The memory; it stays its owner's to close.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    def read(self, path: str) -> tuple[str, str] | None:
        """Return text and version."""
        record = self._memory.record(path)
        # A note may have a key that looks like a path; what is not text is not a file.
        if record is None or not isinstance(record.value, str):
            return None
        return record.value, str(record.version)

    def write(self, path: str, text: str, token: str | None) -> None:
        """Write by compare-and-set on the record's version."""
        self._memory.write(path, text, tags=[FILE_TAG], if_version=int(token) if token else 0)

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes of the texts in UTF-8."""
        # With the slash, so that a folder does not show the files of another one whose name begins alike.
        records = self._memory.list(f"{folder}/")
        return {r.key: len(r.value.encode()) for r in records if isinstance(r.value, str)}

    def delete(self, paths: Sequence[str]) -> None:
        """Delete the records in one batch."""
        scope = self._memory.scope
        if paths:
            self._memory.repository.apply([Change(kind="delete", scope=scope, key=path) for path in paths])

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Move the records in one batch, all or none, with the contents that they have at that moment."""
        # Tried again at once: an editor without a pause must not be faster each time.
        for _ in range(_TRIES):
            if self._has_moved(pairs):
                return
        raise VersionConflict("The files change too often to be moved.", retryable=True)

    def _has_moved(self, pairs: Sequence[tuple[str, str]]) -> bool:
        scope = self._memory.scope
        keys = tuple(key for pair in pairs for key in pair)
        records = {r.key: r for r in self._memory.repository.query(Query(scope=scope, keys=keys)).records}
        changes: list[Change] = []
        for source, target in pairs:
            if source not in records or target in records:
                raise VersionConflict(f"{source!r} is gone, or {target!r} is there.", hint="look again")
            record = records[source]
            # By version, so that an edit in this moment is not lost: then the batch is refused, and tried with the new
            # text.
            changes += [
                Change(kind="delete", scope=scope, key=source, if_version=record.version),
                self._memory_write(target, str(record.value)),
            ]
        try:
            self._memory.repository.apply(changes)
        except VersionConflict:
            return False
        return True

    def _memory_write(self, path: str, text: str) -> Change:
        return Change(
            kind="write",
            scope=self._memory.scope,
            key=path,
            value=json.dumps(text, ensure_ascii=False),
            tags=(FILE_TAG,),
            if_version=0,
        )

    def close(self) -> None:
        """Do nothing: the opener of the memory closes it."""


class FolderFileStore:
    """Files in a folder of this computer, with permissions for the owner only; links are never followed.

    A file system has no conditional writes, so an advisory lock beside the files stands in for them.

    Parameters
    ----------
    folder
        The folder; made when it is not there.

    Raises
    ------
    MemoryUnavailable
        It cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.realpath(folder))
        try:
            make_private(self._root)
        except OSError as exc:
            raise MemoryUnavailable(
                f"The folder of the memory files cannot be created: {exc.strerror}.",
                hint="Set NBTOOLS_MEMORY_FILES_URL to a folder that can be written.",
            ) from exc
        self._roots = Roots([self._root])

    def read(self, path: str) -> tuple[str, str] | None:
        """Return the text of a file and its check sum."""
        with self._open_parent(path) as (folder, name):
            if folder is None or not _is_file(folder, name, path):
                return None
            try:
                with os.fdopen(folder.open_file(name), "rb") as file:
                    content = file.read()
            except FileMissing:
                return None
        try:
            return content.decode("utf-8"), hashlib.sha256(content).hexdigest()
        except UnicodeDecodeError:
            raise MemoryWriteFailed(f"{path} is not UTF-8 text.", hint="It was not written by this tool.") from None

    def write(self, path: str, text: str, token: str | None) -> None:
        """Replace a file in one step, under the lock of the folder."""
        # Read again under the lock: what the caller read may be replaced by now.
        with self._hold_lock():
            current = self.read(path)
            if (current[1] if current else None) != token:
                raise VersionConflict(f"{path} changed meanwhile.", hint="Read it again.")
            with self._open_parent(path, make=True) as (folder, name):
                assert folder is not None
                folder.replace(name, text.encode("utf-8"), mode=0o600)

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes of the files; links, and what no path can name, are passed over."""
        sizes: dict[str, int] = {}
        waiting = [folder]
        # By opened folders, and not by `os.walk`: a folder that is replaced by a link meanwhile is not followed.
        while waiting:
            path = waiting.pop()
            with contextlib.suppress(FileMissing, PathNotAllowed), self._roots.folder(self._real(path)) as opened:
                for name in opened.names():
                    facts = opened.status(name)
                    if facts is None or not _is_named(f"{path}/{name}"):
                        continue
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(f"{path}/{name}")
                    elif stat.S_ISREG(facts.st_mode):
                        sizes[f"{path}/{name}"] = facts.st_size
        return sizes

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and the folders that become empty."""
        with self._hold_lock():
            for path in paths:
                with self._open_parent(path) as (folder, name):
                    if folder is not None and _is_file(folder, name, path):
                        folder.remove(name)
                self._prune(path)

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename the files one by one; after an error, undo the renames already done."""
        with self._hold_lock():
            for source, target in pairs:
                if self.read(source) is None or self.read(target) is not None:
                    raise VersionConflict(f"{source} is gone, or {target} is there.", hint="Look again.")
            # A file system renames one file at a time, so that half a move must be undone by hand.
            moved: list[tuple[str, str]] = []
            try:
                for source, target in pairs:
                    self._rename(source, target)
                    moved.append((target, source))
            except Exception:
                for target, source in moved:
                    self._rename(target, source)
                raise

    def _rename(self, source: str, target: str) -> None:
        with self._open_parent(source) as (old, name), self._open_parent(target, make=True) as (new, new_name):
            if old is None or new is None:
                raise VersionConflict(f"{source} is gone.", hint="Look again.")
            old.move(name, new, new_name, overwrite=True)
        self._prune(source)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def _real(self, path: str) -> Path:
        return self._root / path.removeprefix(ROOT).lstrip("/")

    def _prune(self, path: str) -> None:
        """Remove the folders above a path that are empty."""
        for parent in self._real(path).parents:
            if parent == self._root:
                return
            try:
                # `remove` refuses a folder that is not empty, so nobody has to look first.
                with self._roots.folder(parent.parent) as folder:
                    folder.remove(parent.name)
            except (FileMissing, PathNotAllowed, OSError):
                return

    @contextlib.contextmanager
    def _open_parent(self, path: str, *, make: bool = False) -> Iterator[tuple[Folder | None, str]]:
        """Open the folder that a path lies in, without following links; `None` when there is none."""
        if not _is_named(path):
            raise PathNotAllowed(f"Path {path} is kept for the store itself.", hint="Use another name.")
        real = self._real(path)
        opened: Folder | None = None
        try:
            with self._hide_real_path(path):
                with contextlib.suppress(FileMissing):
                    opened = self._open_folder(real.parent, path, make=make)
                yield opened, real.name
        finally:
            if opened is not None:
                opened.close()

    @contextlib.contextmanager
    def _hide_real_path(self, what: str) -> Iterator[None]:
        """Raise errors that name the virtual path, never the real one."""
        try:
            yield
        except OSError as exc:
            if str(self._root) not in str(exc):
                raise
            reason = getattr(exc.__cause__ or exc, "strerror", None) or "permission denied"
            raise MemoryUnavailable(
                f"{what} cannot be reached: {reason}.", hint="Check the folder in NBTOOLS_MEMORY_FILES_URL."
            ) from None

    def _open_folder(self, real: Path, path: str, *, make: bool) -> Folder | None:
        try:
            return self._roots.folder(real, make=make, mode=0o700)
        except PathNotAllowed:
            if Path(os.path.realpath(real)) != real:
                raise _link(path) from None
            if any(parent.is_file() for parent in (real, *real.parents)):
                return None
            raise

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the folder's lock against the other threads and processes of this computer."""
        import fcntl

        with self._hide_real_path("The folder of the memory files"), self._roots.folder(self._root) as folder:
            handle = folder.open_file(_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            # The lock goes with its file descriptor, whatever happens to this process.
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _is_file(folder: Folder, name: str, path: str) -> bool:
    facts = folder.status(name)
    if facts is None or stat.S_ISDIR(facts.st_mode):
        return False
    if not stat.S_ISREG(facts.st_mode):
        raise _link(path)
    return True


def _is_named(path: str) -> bool:
    try:
        return not any(part.startswith(_OURS) for part in check_path(path).split("/"))
    except PathNotAllowed:
        return False


def _link(path: str) -> PathNotAllowed:
    return PathNotAllowed(
        f"Path {path} would escape {ROOT} directory: there is a link or device on the way.",
        hint="Links are not followed.",
    )
