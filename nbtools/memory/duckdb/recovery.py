"""Recovery: open a memory file; if it is damaged, restore it from its newest snapshot and its journal.

The journal keeps every change since the newest snapshot, so a damaged file loses nothing as long as one of the two
holds. What is damaged is set aside under a name that tells when, never overwritten.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbtools.errors import MemoryDamaged, MemoryUnavailable
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.duckdb.engine import MemoryEngine
from nbtools.memory.duckdb.journal import Journal, flush_path
from nbtools.memory.duckdb.tables import Tables
from nbtools.memory.rules.rows import Clock


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How a memory file is kept; the defaults suit files of up to some hundred megabytes.

    Attributes
    ----------
    read_bytes
        A file up to this size is read through at each start, which takes 0.1 s. A larger one is read after a crash,
        else when there are no requests.
    snapshot_bytes
        Bytes of the journal from which the file is copied, once `snapshot_share` is reached too.
    snapshot_share
        Size of the journal as a share of the file's, from which the file is copied.
    segment_bytes
        Bytes of a segment of the journal, at which the next one is begun.
    sync
        Returns once the disk has what was written to a file descriptor; `None` takes the system's call.
    """

    read_bytes: int = 32 << 20
    snapshot_bytes: int = 16 << 20
    snapshot_share: float = 0.5
    segment_bytes: int = 8 << 20
    sync: Callable[[int], None] | None = None


_DEFAULTS = FileOptions()


def open_engine(
    directory: MemoryDirectory,
    *,
    history: int = 100,
    clock: Clock | None = None,
    options: FileOptions = _DEFAULTS,
) -> MemoryEngine:
    """Open the memory file of a directory whose lock this process holds.

    Raises
    ------
    MemoryUnavailable
        It cannot be opened, or is not a memory file; nothing was changed.
    """
    try:
        return _open(directory, history, clock, options)
    except MemoryUnavailable:
        raise
    except OSError as exc:
        raise directory.refusal(exc) from exc


def _open(directory: MemoryDirectory, history: int, clock: Clock | None, options: FileOptions) -> MemoryEngine:
    journal = Journal(directory.log, segment_bytes=options.segment_bytes, sync=options.sync)
    notices: list[str] = []
    make = functools.partial(_make_engine, journal=journal, history=history, clock=clock, index=directory.index)
    try:
        # What an earlier life met may lie where no table is read, in the index of a key.
        if met := directory.opened.read_text() if directory.opened.exists() else "":
            raise MemoryDamaged(met)
        engine = make(_open_checked(directory, journal, options))
    except MemoryDamaged as exc:
        if not journal.segments() and not directory.snapshot.exists():
            raise MemoryUnavailable(
                f"{directory.path} is not a memory file: {exc.message}.", hint="choose another file for the memory"
            ) from None
        engine = make(_recover(directory, journal, options, exc.message, notices))
    engine.notices[:0] = notices
    directory.opened.unlink(missing_ok=True)
    directory.opened.touch(mode=0o600)
    engine.erase = functools.partial(erase, engine, directory)
    if engine.must_erase():
        with contextlib.suppress(OSError):  # Without room for a copy it stays marked, and is tried again.
            engine.erase()
    return engine


def _make_engine(tables: Tables, **options: Any) -> MemoryEngine:
    try:
        return MemoryEngine(tables, **options)
    except MemoryDamaged:
        tables.close()
        raise


def close_engine(engine: MemoryEngine, directory: MemoryDirectory) -> None:
    """Close the file and remove the mark of an open file; after damage, write the damage into the mark instead."""
    try:
        engine.close()
    except MemoryDamaged:
        pass  # What could not be merged is in the journal.
    else:
        if engine.tables.damage is None and not directory.is_lost():
            directory.opened.unlink(missing_ok=True)
    if engine.tables.damage is not None and not directory.is_lost():
        directory.opened.write_text(engine.tables.damage)


def take_snapshot(engine: MemoryEngine, directory: MemoryDirectory, options: FileOptions = _DEFAULTS) -> bool:
    """Copy the file when the journal has grown long, and shorten the journal; return whether it was done."""
    journal = engine.journal
    assert journal is not None, "what has a directory has a journal"
    if directory.is_lost() or journal.size() < max(
        options.snapshot_bytes, directory.path.stat().st_size * options.snapshot_share
    ):
        return False
    with engine.copy_lock:
        applied = engine.tables.applied()
        _copy(engine, directory)
        journal.drop(applied)
    return True


def erase(engine: MemoryEngine, directory: MemoryDirectory) -> None:
    """Erase forgotten values from every file: each file is written again from the remaining rows.

    At any moment one whole copy without it is there, or it is still marked as to be erased.

    Raises
    ------
    MemoryUnavailable
        The folder is not this process's any more.
    OSError
        There is no room for the copies.
    """
    if directory.is_lost():
        raise MemoryUnavailable(f"{directory.folder} was removed while something was forgotten", retryable=True)
    draft = directory.folder / "rewritten"
    with engine.copy_lock, engine.hold_changes(), _as_os_error():
        _copy(engine, directory)
        _remove(draft)
        shutil.copyfile(directory.snapshot, draft)
        flush_path(draft)
        engine.rewrite(draft)
        flush_path(directory.path.parent)
        for leftover in ("snapshot.draft", "recovered"):
            _remove(directory.folder / leftover)
        with contextlib.suppress(FileNotFoundError):
            os.truncate(directory.messages, 0)
    aside = sorted(map(str, directory.path.parent.glob(f"{directory.path.name}.damaged-*")))
    if aside:
        names = ", ".join(aside)
        engine.notices.append(f"Damaged files that were set aside may hold what was forgotten; remove them: {names}")


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise an `OSError` where DuckDB raises its own error of input and output."""
    import duckdb

    try:
        yield
    except duckdb.IOException as exc:
        raise OSError(str(exc)) from exc


def _copy(engine: MemoryEngine, directory: MemoryDirectory) -> None:
    """Make a new snapshot."""
    draft = directory.folder / "snapshot.draft"
    _remove(draft)
    engine.tables.copy_to(draft)
    flush_path(draft)
    draft.replace(directory.snapshot)
    flush_path(directory.folder)


def _open_checked(directory: MemoryDirectory, journal: Journal, options: FileOptions) -> Tables:
    tables = Tables(directory.path)
    try:
        applied = tables.applied()
        segments = journal.segments()
        # DuckDB drops the end of a damaged write-ahead log without a word; then it is older than the journal's start.
        if segments and int(segments[0].stem) > applied + 1:
            raise MemoryDamaged(f"changes up to {int(segments[0].stem) - 1} were merged, and it knows only {applied}")
        size = directory.path.stat().st_size
        if size <= options.read_bytes or directory.opened.exists():
            tables.read_all()
    except MemoryDamaged:
        tables.close()
        raise
    return tables


def _recover(
    directory: MemoryDirectory, journal: Journal, options: FileOptions, why: str, notices: list[str]
) -> Tables:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = _set_aside(directory.path, stamp)
    _set_aside(_wal(directory.path), stamp)
    notice = f"{directory.path.name} was damaged ({why.rstrip('.')}) and set aside as {aside.name}."
    tables = None
    if directory.snapshot.exists():
        draft = directory.folder / "recovered"
        shutil.copyfile(directory.snapshot, draft)
        flush_path(draft)
        draft.replace(directory.path)
        try:
            tables = _open_checked(directory, journal, options)
        except MemoryDamaged:
            _set_aside(directory.path, stamp + "-snapshot")
            _set_aside(_wal(directory.path), stamp + "-snapshot")
    if tables is None:
        tables = Tables(directory.path)
    segments = journal.segments()
    missing = int(segments[0].stem) - 1 - tables.applied() if segments else 0
    if missing > 0:
        tables.set_applied(tables.applied() + missing)
        notices.append(f"{notice} {missing} older changes are lost; everything newer was recovered from the journal.")
    else:
        notices.append(f"{notice} Everything was recovered from the newest snapshot and the journal.")
    return tables


def _set_aside(path: Path, stamp: str) -> Path:
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(target)
    return target


def _wal(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _wal(path).unlink(missing_ok=True)
