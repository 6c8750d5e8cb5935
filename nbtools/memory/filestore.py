"""Where the files of the memory tool lie: a protocol, and the store of memory records behind it.

A file is written only if it is still what was read (a token), so two clients that edit one file lose nothing. There
are no folders: a folder is there as long as a file below it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from nbtools.errors import VersionConflict
from nbtools.memory.repository import Change, Query
from nbtools.memory.store import AgentMemory

__all__ = ["FILE_TAG", "FileStore", "MemoryFileStore"]

FILE_TAG = "memory-file"


class FileStore(Protocol):
    """A flat store of texts by path."""

    def read(self, path: str) -> tuple[str, str] | None:
        """Return the text of a file and a token for this state of it, `None` when there is no file."""
        ...

    def write(self, path: str, text: str, token: str | None) -> None:
        """Write a file that is still what `token` says; `None` means that there must be none.

        Raises
        ------
        VersionConflict
            It is not what it was.
        """
        ...

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return path to size in bytes for every file below a folder."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that is gone already is no mistake."""
        ...

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Give files other paths, which must be free.

        Raises
        ------
        VersionConflict
            A destination exists, or a source is gone.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


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
        if record is None or not isinstance(record.value, str):
            return None
        return record.value, str(record.version)

    def write(self, path: str, text: str, token: str | None) -> None:
        """Write by compare-and-set on the record's version."""
        self._memory.write(path, text, tags=[FILE_TAG], if_version=int(token) if token else 0)

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes of the texts in UTF-8."""
        found = self._memory.list(f"{folder}/")
        return {r.key: len(r.value.encode()) for r in found if isinstance(r.value, str)}

    def delete(self, paths: Sequence[str]) -> None:
        """Delete the records in one batch."""
        scope = self._memory.scope
        if paths:
            self._memory.repository.apply([Change(kind="delete", scope=scope, key=path) for path in paths])

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Move the records in one batch: all or none."""
        scope = self._memory.scope
        old = tuple(source for source, _ in pairs)
        found = {r.key: r for r in self._memory.repository.query(Query(scope=scope, keys=old)).records}
        changes: list[Change] = []
        for source, target in pairs:
            if source not in found:
                raise VersionConflict(f"{source!r} is gone.", hint="look again")
            record = found[source]
            changes += [
                Change(kind="delete", scope=scope, key=source, if_version=record.version),
                self._memory_write(target, str(record.value)),
            ]
        self._memory.repository.apply(changes)

    def _memory_write(self, path: str, text: str) -> Change:
        import json

        return Change(
            kind="write",
            scope=self._memory.scope,
            key=path,
            value=json.dumps(text, ensure_ascii=False),
            tags=(FILE_TAG,),
            if_version=0,
        )

    def close(self) -> None:
        """Leave the memory open: it belongs to whoever gave it."""
