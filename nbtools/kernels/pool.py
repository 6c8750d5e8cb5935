"""Kernels held ready, so that a script need not wait for one.

A spare is an open, unused kernel: made ahead with its options, warmed by one silent run, handed out once.
The place it leaves is filled after the run that took it, which has the processor first. Spares exist for the options
that were asked for last; a spare whose backend or environment has changed since is thrown away.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbtools.ground import aio
from nbtools.ground.telemetry import fresh_id
from nbtools.kernels.interface import Kernel, KernelOptions
from nbtools.processes.runtime_dir import HeldFolder, RuntimeDir

# The kernels of a person and of a model differ in their level: two sets of options cover both.
_KEPT_OPTIONS = 2
_FEWEST = 2  # kernels that were taken before spares are made: many notebooks run one script
_REFILL_DELAY_S = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """A kernel that is someone's alone, and the folder made for it; `None` when it works in a folder that is given."""

    kernel: Kernel
    surroundings: int
    places: tuple[Path, ...] = ()
    """The folders of the kernel, which someone may remove: those for temporary files are cleaned now and then."""
    shared_folder: HeldFolder | None = None
    """The folder, which copies of the kernel work in too."""
    name: str = dataclasses.field(default_factory=fresh_id)
    """Says of state that it is in this kernel, and in no later one of the same session."""

    @property
    def folder(self) -> Path | None:
        """The folder that was made for it, where one was."""
        return None if self.shared_folder is None else self.shared_folder.path

    def mend(self) -> str:
        """Make the folders again that are missing, for a kernel that goes on; return what its user should know."""
        for folder in self.places:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = "files that were in the kernel's own folders were removed by another program, such as a cleaner of /tmp"
        # What it may write was fixed when it started, by the folders themselves and not by their names.
        ends = "; it cannot write to the new folders before it is restarted" if self.kernel.sandbox == "strict" else ""
        return note + ends

    async def close(self, *, delay: float = 0.0) -> None:
        """End the kernel and remove its folder, after `delay` seconds."""
        await asyncio.sleep(delay)
        await self.kernel.close()
        if self.shared_folder is not None:
            await aio.in_thread(self.shared_folder.release)

    def with_copy(self, kernel: Kernel) -> Lease:
        """Return the lease of a copy of the kernel, which works in the same folder."""
        shared_folder = None if self.shared_folder is None else self.shared_folder.hold()
        return dataclasses.replace(self, kernel=kernel, shared_folder=shared_folder, name=fresh_id())


class Pool:
    """The spares of one backend.

    Parameters
    ----------
    open_kernel
        Opens a kernel by its options: the backend's `open`, or what falls back to another backend.
    folder
        Where working folders are made.
    spares
        How many to hold ready with the same options.
    readable
        What every kernel may read, whatever its options say.
    is_stale
        Whether what the backend made so far should not be used any more.
    """

    def __init__(
        self,
        open_kernel: Callable[[KernelOptions], Any],
        folder: RuntimeDir,
        *,
        spares: int,
        readable: tuple[Path, ...] = (),
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        self._open = open_kernel
        self._folder = folder
        self._spares = spares
        self._readable = readable
        self._is_stale = is_stale
        self._ready: collections.OrderedDict[KernelOptions, list[Lease]] = collections.OrderedDict()
        self._filling: dict[KernelOptions, int] = {}
        self._making: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._count = 0

    async def take(self, options: KernelOptions) -> Lease:
        """Return an unused kernel: a spare, or one opened now."""
        self._count += 1
        self._note(options)
        if self._is_stale():
            await self.drain()
            self._note(options)
        ready = self._ready[options]
        while ready:
            lease = ready.pop()
            # A changed variable must reach the next script, as it would in a new process.
            if (
                lease.kernel.alive
                and all(map(Path.is_dir, lease.places))
                and lease.surroundings == _hash_surroundings(options)
            ):
                return lease
            aio.spawn(lease.close(), self._ending)
        return await self.open(options)

    async def open(self, options: KernelOptions) -> Lease:
        """Open a kernel now."""
        own, surroundings = None, _hash_surroundings(options)
        if options.cwd is None:
            own = self._folder.make(f"j{secrets.token_hex(6)}")
            options = dataclasses.replace(options, cwd=own)
        options = dataclasses.replace(options, read_paths=(*options.read_paths, *self._readable))
        try:
            kernel = await self._open(options)
            places = tuple(filter(None, (own, getattr(kernel, "temporary", None))))
            shared_folder = None if own is None else HeldFolder(own)
            return Lease(kernel=kernel, surroundings=surroundings, places=places, shared_folder=shared_folder)
        except BaseException:
            if own is not None:
                shutil.rmtree(own, ignore_errors=True)
            raise

    def refill(self, options: KernelOptions) -> None:
        """Start to make the spares with these options that are missing, once more than one kernel was wanted."""
        if self._closed or options not in self._ready or self._count < _FEWEST:
            return
        missing = self._spares - len(self._ready[options]) - self._filling.get(options, 0)
        for _ in range(missing):
            self._filling[options] = self._filling.get(options, 0) + 1
            aio.spawn(self._fill(options), self._making)

    async def fill(self, options: KernelOptions) -> None:
        """Make the spares with these options now."""
        self._note(options)
        while not self._closed and len(self._ready.get(options, ())) < self._spares:
            self._ready[options].append(await self._prepare(options))

    async def _fill(self, options: KernelOptions) -> None:
        # The script that took the last spare is running now; the fork would take the processor away from it.
        try:
            await asyncio.sleep(_REFILL_DELAY_S)
            lease = await self._prepare(options)
        except Exception:
            return  # the next caller opens one and sees the reason
        finally:
            self._filling[options] -= 1
        if self._closed or options not in self._ready:
            await lease.close()
        else:
            self._ready[options].append(lease)

    async def _prepare(self, options: KernelOptions) -> Lease:
        lease = await self.open(options)
        warm = getattr(lease.kernel, "warm", None)
        if warm is not None:
            await warm()
        return lease

    def _note(self, options: KernelOptions) -> None:
        """Put the options first among those that have spares; the one asked for longest ago loses its own."""
        self._ready.setdefault(options, [])
        # The order is that of the last use.
        self._ready.move_to_end(options)
        while len(self._ready) > _KEPT_OPTIONS:
            _, old = self._ready.popitem(last=False)
            for lease in old:
                aio.spawn(lease.close(), self._ending)

    async def drain(self) -> None:
        """End all spares."""
        leases = [lease for ready in self._ready.values() for lease in ready]
        self._ready.clear()
        await asyncio.gather(*(lease.close() for lease in leases))

    async def close(self) -> None:
        """End all spares, and those in the making; wait for those that are ending."""
        # Before the tasks are cancelled: a fork that comes back now is closed, not kept.
        self._closed = True
        for task in self._making:
            task.cancel()
        with contextlib.suppress(Exception):
            await asyncio.gather(*self._making, *self._ending, return_exceptions=True)
        await self.drain()


def _hash_surroundings(options: KernelOptions) -> int:
    """Return a number that changes when what a kernel was given changes: its environment, or a folder made again.

    What a kernel may use was fixed when it began, by the folders themselves and not by their names.
    """
    folders = []
    for path in filter(None, (options.cwd, *options.read_paths, *options.write_paths)):
        with contextlib.suppress(OSError):
            facts = path.stat()
            folders.append((facts.st_dev, facts.st_ino))
    return hash((frozenset(os.environ.items()), tuple(folders)))
