"""Frames on their way to the worker: as Arrow in shared memory, or as Parquet files where there is no pyarrow."""

from __future__ import annotations

import collections
import contextlib
import os
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbtools.ground.lazy import duckdb, pa
from nbtools.sql.engines.duckdb.frames import RegisteredFrame
from nbtools.sql.engines.duckdb.known_types import as_arrow
from nbtools.texts.sql_quotes import quote_text

# Of all frames together that are remembered.
_SHIPPED_BYTES = 128_000_000


def _write_shared(table: Any) -> int:
    """Write a table to shared memory; return its descriptor."""
    descriptor = _memory()
    try:
        with os.fdopen(os.dup(descriptor), "wb", buffering=0) as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class SharedFrames:
    """Frames in shared memory that the next query can use again: small ones that nobody has changed.

    The memory is sealed, so that no worker can change what the next one reads. It is released with the frame.

    Parameters
    ----------
    folder
        Where frames go as Parquet files instead, when there is no pyarrow; `None` for shared memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._copies: list[tuple[RegisteredFrame, int, int]] = []
        self._gone: collections.deque[Any] = collections.deque()

    def share(self, frame: Any, shared: contextlib.ExitStack, descriptors: list[int]) -> tuple[str, Any]:
        """Put a frame where the worker can read it, for as long as `shared` is open; return how and where.

        `descriptors` gets the descriptor of its memory; the place that is returned is the index there.
        """
        if self._folder is not None:
            return "parquet", str(_as_parquet(frame, shared, self._folder))
        descriptor = self.descriptor_of(frame)
        if descriptor is None:
            descriptor = _write_shared(as_arrow(frame))
            self.keep(frame, descriptor)
        shared.callback(os.close, descriptor)
        descriptors.append(descriptor)
        return "arrow", len(descriptors) - 1

    def descriptor_of(self, frame: Any) -> int | None:
        """Return a descriptor of a frame's memory, which the caller closes, or `None`."""
        with self._lock:
            self._forget(lambda seen: seen.frame() is None) if self._gone else None
            shared = next((descriptor for seen, descriptor, _ in self._copies if seen.is_still(frame)), None)
            return None if shared is None else os.dup(shared)

    def keep(self, frame: Any, descriptor: int) -> None:
        """Remember the memory of a frame, if the unchanged frame can be recognised."""
        seen = RegisteredFrame.remember(frame, self._gone)
        if seen is None or not _seal(descriptor):
            return
        size = os.fstat(descriptor).st_size
        with self._lock:
            self._forget(lambda old: old.frame() is None or old.frame() is frame)
            self._copies.append((seen, os.dup(descriptor), size))
            while len(self._copies) > 1 and sum(size for _, _, size in self._copies) > _SHIPPED_BYTES:
                os.close(self._copies.pop(0)[1])

    def _forget(self, is_stale: Callable[[RegisteredFrame], bool]) -> None:
        self._gone.clear()
        for stale in [stale for stale in self._copies if is_stale(stale[0])]:
            self._copies.remove(stale)
            os.close(stale[1])

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._forget(lambda _: True)


def _seal(descriptor: int) -> bool:
    """Seal memory against all changes; return whether the system can do that."""
    try:
        import fcntl  # absent on Windows
    except ImportError:
        return False
    if not hasattr(fcntl, "F_ADD_SEALS"):
        return False
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    try:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        return False
    return True


def _memory() -> int:
    """Return the descriptor of an unnamed file in memory, or of a deleted one where the system has no such thing."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("nbtools-frame", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _as_parquet(frame: Any, shared: contextlib.ExitStack, folder: Path) -> Path:
    """Write a frame with DuckDB, which needs no pyarrow for that."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    shared.callback(path.unlink, missing_ok=True)
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        connection.execute(f"COPY (FROM frame) TO {quote_text(str(path))} (FORMAT parquet, COMPRESSION uncompressed)")
    return path
