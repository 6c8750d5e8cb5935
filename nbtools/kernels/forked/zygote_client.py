"""The zygote as its owner has it: started at first use, renewed when packages change, refused when forks do not work.

A zygote that is replaced is left to the kernels it has forked and leaves with the last of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import KernelDied
from nbtools.ground import aio
from nbtools.kernels.forked.packages import LEAVES_THREADS, Fingerprint, fingerprint
from nbtools.kernels.forked.warm_client import WarmClient
from nbtools.processes.client import WardenClient, WatchedProcess, start_with_retry, wait_or_died
from nbtools.processes.runtime_dir import RuntimeDir
from nbtools.texts.redaction import scrub_environment

DEFAULT_PRELOADS = ("pandas", "numpy", "matplotlib", "duckdb")
_START_S = 45.0
_READY_S = 20.0
_INLINE = "module://matplotlib_inline.backend_inline"


class ZygoteClient:
    """Fork kernels from a zygote.

    Parameters
    ----------
    preloads
        Modules loaded before the fork; what is not installed is skipped.
    folder
        Where the zygote gets its own folder.
    warm
        The way to a process that has loaded the libraries already; `None` starts a zygote that loads them.

    Attributes
    ----------
    problem
        Why forks are unavailable; `None` as long as nothing speaks against them.
    left_out
        Preloads that are not loaded, because they leave threads running.
    """

    def __init__(self, preloads: Sequence[str], folder: RuntimeDir, warm: WarmClient | None = None) -> None:
        self._preloads = tuple(preloads)
        self._folder = folder
        self._warm = warm
        self._zygote: WardenClient | None = None
        self._retired: list[WardenClient] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._fingerprint: Fingerprint = ()
        self._path: list[str] = []
        self._lock = asyncio.Lock()
        # Whether the zygote has no libraries, for a script that may be the only one.
        self._is_for_one = False
        self.problem: str | None = None
        self.left_out: tuple[str, ...] = ()

    def is_outdated(self) -> bool:
        """Whether the zygote is gone, or another one would be better: packages have changed, or are loaded by now."""
        if self._zygote is None:
            return False
        if self._is_for_one:
            return True
        if self._zygote.hello.result().get("is_light") and self._warm is not None and self._warm.is_loaded:
            return True
        return self._zygote.gone.done() or self._fingerprint != fingerprint(self._path)

    @property
    def pid(self) -> int | None:
        """The zygote's process id."""
        return self._zygote.pid if self._zygote is not None else None

    @property
    def warm_pid(self) -> int | None:
        """The process id of the warm process that has forked the zygote; `None` when it was started here."""
        hello = self._zygote.hello.result() if self._zygote is not None else {}
        return hello.get("warm")

    async def fork(
        self, message: Mapping[str, Any], descriptors: Sequence[int] = ()
    ) -> tuple[WatchedProcess, dict[str, Any]]:
        """Fork a kernel; return its process, and the message by which it says that it is ready.

        Raises
        ------
        KernelDied
            The zygote did not start, its canary failed, or the kernel ended before it was ready.
        """
        zygote = await self._ready()
        child = zygote.begin({"do": "fork", **message}, descriptors)
        # Its owner needs it next, and its first import takes no longer than the fork.
        importlib.import_module("zmq")
        return child, await wait_or_died(child.ready, child, timeout=_READY_S, what="was not ready")

    async def _ready(self) -> WardenClient:
        async with self._lock:
            if self._zygote is not None and not self.is_outdated():
                return self._zygote
            if self._zygote is not None:
                # Kernels of the old one run on; only new ones come from the new one.
                self._retired.append(self._zygote)
                self._zygote = None
                self.tidy()
            self._zygote = await self._start()
            return self._zygote

    async def _start(self) -> WardenClient:
        try:
            joined, warm = None, self._warm
            self._is_for_one = warm is not None and not await aio.in_thread(warm.is_wanted)
            if warm is not None and not self._is_for_one:
                joined = await warm.join(self._make_folder())
            zygote = joined or await start_with_retry(self._spawn, timeout=_START_S, what="forks kernels")
        except KernelDied:
            self.problem = "the process that forks them did not start"
            raise
        hello = zygote.hello.result()
        self.problem = hello["problem"]
        failed: Mapping[str, str] = hello.get("failed", {})
        self.left_out = tuple(name for name, why in failed.items() if why == LEAVES_THREADS)
        if self.problem:
            with contextlib.suppress(Exception):
                await zygote.close()
            raise KernelDied(f"Kernels cannot be forked here: {self.problem}.")
        self._path = hello["path"]
        self._fingerprint = fingerprint(self._path)
        return zygote

    def _make_folder(self) -> Path:
        return self._folder.make(f"z{os.urandom(3).hex()}")

    def _spawn(self) -> WardenClient:
        own = self._make_folder()
        # Forks show this environment in /proc/self/environ, whatever they are given later.
        env = {**scrub_environment(os.environ), "MPLBACKEND": _INLINE, "IPYTHONDIR": str(own / "ipython")}
        return WardenClient.spawn(
            ("-P", "-m", "nbtools.kernels.forked.zygote"),
            folder=own,
            env=env,
            extra=[json.dumps([] if self._is_for_one else list(self._preloads))],
        )

    def tidy(self) -> None:
        """Let replaced zygotes go that have no kernels left."""
        for old in [old for old in self._retired if not old.children]:
            self._retired.remove(old)
            aio.spawn(old.close(), self._leaving)

    async def close(self) -> None:
        """End the zygotes and all kernels they forked."""
        # Taken out first: a caller that asks for a kernel meanwhile must not get one of a zygote that ends.
        zygotes = [*self._retired, *([self._zygote] if self._zygote is not None else [])]
        self._retired, self._zygote = [], None
        await asyncio.gather(*(zygote.close() for zygote in zygotes), *self._leaving, return_exceptions=True)
