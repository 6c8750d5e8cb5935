"""Kernels forked from a zygote that has loaded the libraries: Linux only, and the default there.

A kernel is ready in milliseconds, shares most of its memory with all others, and is a real ipykernel.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import LanguageUnavailable
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS, ZygoteClient
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.jupyter.kernel import ConnectionInfo, JupyterKernel
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.jupyter.spawned import confinement_of, environment_of, limits_of
from nbtools.kernels.warden.runtime_dir import RuntimeDir

__all__ = ["ForkedBackend"]

_READY_S = 20.0


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

    def __init__(self, preloads: Sequence[str] = DEFAULT_PRELOADS, folder: RuntimeDir | None = None) -> None:
        self._preloads = preloads
        self._folder = folder
        self._owns_folder = folder is None
        self._zygotes: ZygoteClient | None = None
        self._context: Any = None
        self._kernels: set[JupyterKernel] = set()

    @staticmethod
    def is_supported() -> bool:
        """Whether this system can have it at all."""
        return sys.platform.startswith("linux")

    @property
    def problem(self) -> str | None:
        """Why forks cannot be had; `None` as long as nothing speaks against them."""
        return self._zygotes.problem if self._zygotes is not None else None

    @property
    def zygote_pid(self) -> int | None:
        """The process id of the zygote."""
        return self._zygotes.pid if self._zygotes is not None else None

    def is_outdated(self) -> bool:
        """Whether what was forked so far should not be used for new work."""
        return self._zygotes is not None and self._zygotes.is_outdated()

    async def open(self, profile: KernelOptions) -> JupyterKernel:
        """Fork a kernel; see `nbtools.kernels.interface.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            Only Python can be forked.
        KernelDied
            The zygote did not start, its canary failed, or the kernel ended before it was ready.
        """
        if profile.language != "python":
            raise LanguageUnavailable(f"{profile.language!r} cannot be forked; only Python can.")
        zygotes = self._ready()
        assert self._folder is not None
        name = secrets.token_hex(6)
        place = self._folder.make(name)
        connection = ConnectionInfo(place, secrets.token_hex(16))
        channel = MemoryRpc()
        message = {
            "id": name,
            "env": environment_of(profile, place),
            "cwd": str(profile.cwd or place),
            "confinement": confinement_of(profile, place).to_dict(),
            "connection": connection.to_dict(),
            **limits_of(profile),
        }
        try:
            child, facts = await zygotes.fork(message, [channel.theirs.fileno()])
        except BaseException:
            channel.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        channel.theirs.close()
        kernel = JupyterKernel(
            child=child,
            connection=connection,
            context=self._context,
            confinement=facts["confinement"],
            missing=tuple(facts["missing"]),
            python="loaded",
            channel=channel,
            on_close=lambda: self._forget(kernel, place),
        )
        self._kernels.add(kernel)
        try:
            await kernel.connect(seconds=_READY_S)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    def _ready(self) -> ZygoteClient:
        if self._zygotes is None:
            import zmq

            self._folder = self._folder or RuntimeDir()
            self._context = zmq.Context()
            self._zygotes = ZygoteClient(self._preloads, self._folder)
        return self._zygotes

    def _forget(self, kernel: JupyterKernel, place: Path) -> None:
        self._kernels.discard(kernel)
        shutil.rmtree(place, ignore_errors=True)
        if self._zygotes is not None:
            self._zygotes.tidy()

    async def close(self) -> None:
        """End all kernels and the zygote."""
        await asyncio.gather(*(kernel.close() for kernel in list(self._kernels)))
        if self._zygotes is not None:
            await self._zygotes.close()
            self._zygotes = None
            self._context.term()
        if self._folder is not None and self._owns_folder:
            self._folder.close()
            self._folder = None
