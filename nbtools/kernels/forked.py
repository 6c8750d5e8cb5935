"""Kernels forked from a zygote that has loaded the libraries: Linux only, and the default there.

A kernel is ready in milliseconds, shares most of its memory with all others, and is a real ipykernel. The zygote is
started at first use, started anew when packages or the interpreter have changed or when it died, and refused when its
canary says that a fork would not work with the libraries it has loaded; `problem` then holds the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools import confine
from nbtools.errors import KernelDied, LanguageUnavailable
from nbtools.kernels.channel import MemoryChannel
from nbtools.kernels.client import Connection, JupyterKernel, first
from nbtools.kernels.custody import Custody
from nbtools.kernels.folder import Folder
from nbtools.kernels.kernel import Profile
from nbtools.kernels.spawned import confinement_of, environment_of, limits_of

__all__ = ["DEFAULT_PRELOADS", "ForkedBackend"]

DEFAULT_PRELOADS = ("pandas", "numpy", "matplotlib", "duckdb", "sklearn")
_START_S = 90.0
_READY_S = 20.0
_INLINE = "module://matplotlib_inline.backend_inline"

Fingerprint = tuple[tuple[str, int, int], ...]


class ForkedBackend:
    """Fork kernels from a zygote.

    Parameters
    ----------
    preloads
        Modules loaded before the fork; what is not installed is skipped.
    folder
        Where each kernel gets a folder of its own; `None` makes one at first use.
    """

    name = "forked"

    def __init__(self, preloads: Sequence[str] = DEFAULT_PRELOADS, folder: Folder | None = None) -> None:
        self._preloads = tuple(preloads)
        self._folder = folder
        self._zygote: Custody | None = None
        self._retired: list[Custody] = []
        self._fingerprint: Fingerprint = ()
        self._path: list[str] = []
        self._context: Any = None
        self._kernels: set[JupyterKernel] = set()
        self._lock = asyncio.Lock()
        self.problem: str | None = None
        self.generation = 0

    @staticmethod
    def is_supported() -> bool:
        """Whether this system can have it at all."""
        return sys.platform.startswith("linux")

    def is_outdated(self) -> bool:
        """Whether packages or the interpreter have changed since the zygote was started."""
        return self._zygote is not None and self._fingerprint != _fingerprint(self._path)

    async def open(self, profile: Profile) -> JupyterKernel:
        """Fork a kernel; see `nbtools.kernels.kernel.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            Only Python can be forked.
        KernelDied
            The zygote did not start, its canary failed, or the kernel ended before it was ready.
        """
        if profile.language != "python":
            raise LanguageUnavailable(f"{profile.language!r} cannot be forked; only Python can.")
        zygote = await self._ready_zygote()
        assert self._folder is not None
        name = secrets.token_hex(6)
        place = self._folder.make(name)
        connection = Connection(place, secrets.token_hex(16))
        channel = MemoryChannel()
        message = {
            "do": "fork",
            "id": name,
            "env": environment_of(profile, place),
            "cwd": str(profile.cwd or place),
            "confinement": confinement_of(profile, place).to_dict(),
            "connection": connection.to_dict(),
            **limits_of(profile),
        }
        child = zygote.begin(message, [channel.theirs.fileno()])
        channel.theirs.close()
        try:
            ready = await first(child.ready, child, seconds=_READY_S, what="was not ready")
            kernel = JupyterKernel(
                child=child,
                connection=connection,
                context=self._context,
                confinement=ready["confinement"],
                missing=tuple(ready["missing"]),
                python="loaded",
                channel=channel,
                on_close=lambda: self._forget(kernel, place),
            )
        except BaseException:
            channel.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._kernels.add(kernel)
        try:
            await kernel.connect(seconds=_READY_S)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def _ready_zygote(self) -> Custody:
        async with self._lock:
            if self._zygote is not None and self._zygote.alive and not self.is_outdated():
                return self._zygote
            if self._zygote is not None:
                # Its sessions live on; it leaves with the last of them, or with us.
                self._retired.append(self._zygote)
                self._zygote = None
            self._zygote = await self._start()
            return self._zygote

    async def _start(self) -> Custody:
        import zmq

        self._folder = self._folder or Folder()
        self._context = self._context or zmq.Context()
        own = self._folder.make(f"z{secrets.token_hex(3)}")
        # Forks show this environment in /proc/self/environ, whatever they are given later.
        env = {**confine.scrub_environment(os.environ), "MPLBACKEND": _INLINE, "IPYTHONDIR": str(own / "ipython")}
        zygote = Custody(
            ("-P", "-m", "nbtools.kernels.zygote"), folder=own, env=env, extra=[json.dumps(list(self._preloads))]
        )
        waiters: set[asyncio.Future[Any]] = {zygote.hello, zygote.gone}
        await asyncio.wait(waiters, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        hello = zygote.hello.result() if zygote.hello.done() and not zygote.hello.cancelled() else None
        self.problem = "the zygote did not start" if hello is None else hello["problem"]
        if hello is None or self.problem:
            with contextlib.suppress(Exception):
                await zygote.close()
            raise KernelDied(f"Kernels cannot be forked here: {self.problem}.")
        self._path = hello["path"]
        self._fingerprint = _fingerprint(self._path)
        self.generation += 1
        return zygote

    def _forget(self, kernel: JupyterKernel, place: Path) -> None:
        self._kernels.discard(kernel)
        shutil.rmtree(place, ignore_errors=True)
        for old in [old for old in self._retired if not old.children]:
            self._retired.remove(old)
            self._leaving = asyncio.ensure_future(old.close())

    async def close(self) -> None:
        """End all kernels and the zygote."""
        await asyncio.gather(*(kernel.close() for kernel in list(self._kernels)))
        for custody in [*self._retired, *filter(None, [self._zygote])]:
            await custody.close()
        self._retired, self._zygote = [], None
        if self._context is not None:
            self._context.term()
            self._context = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def _fingerprint(path: Sequence[str]) -> Fingerprint:
    """Return what changes when a package is installed, upgraded or removed, or the interpreter is replaced."""
    found = []
    for entry in (sys.executable, *path):
        with contextlib.suppress(OSError):
            state = Path(entry).stat()
            found.append((entry, state.st_mtime_ns, state.st_ino))
    return tuple(found)
