"""Kernels forked from a zygote that has loaded the libraries: Linux only, and the default there.

A kernel is ready in milliseconds, shares most of its memory with all others, and is a real ipykernel.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import shutil
import sys
from collections.abc import Sequence

from nbtools.errors import LanguageUnavailable
from nbtools.kernels.forked.warm_client import WarmClient
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS, ZygoteClient
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.jupyter.kernel import ConnectionInfo, JupyterBackend, JupyterKernel
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.runs.local import start_message
from nbtools.processes.runtime_dir import RuntimeDir

_READY_S = 20.0


class ForkedBackend(JupyterBackend):
    """Fork kernels from a zygote.

    Parameters
    ----------
    preloads
        Modules loaded before the fork; what is not installed is skipped.
    folder
        Where each kernel gets a folder of its own; `None` makes one at first use.
    warm
        See `ZygoteClient`.
    """

    name = "forked"

    def __init__(
        self,
        preloads: Sequence[str] = DEFAULT_PRELOADS,
        folder: RuntimeDir | None = None,
        warm: WarmClient | None = None,
    ) -> None:
        super().__init__(folder)
        self._preloads = preloads
        self._warm = warm

    @staticmethod
    def is_supported() -> bool:
        """Whether this system can have it at all."""
        return sys.platform.startswith("linux")

    @functools.cached_property
    def zygotes(self) -> ZygoteClient:
        """The client of the zygote, which is started with the first kernel."""
        self._starter = ZygoteClient(self._preloads, self.folder, self._warm)
        return self._starter

    async def open(self, options: KernelOptions) -> JupyterKernel:
        """Fork a kernel; see `nbtools.kernels.interface.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            Only Python can be forked.
        KernelDied
            The zygote did not start, its canary failed, or the kernel ended before it was ready.
        """
        if options.language != "python":
            raise LanguageUnavailable(f"{options.language!r} cannot be forked; only Python can.")
        folder = self.folder.make(secrets.token_hex(6))
        connection, memory_rpc = ConnectionInfo(folder), MemoryRpc()
        message = {**start_message(options, folder), "connection": connection.to_dict()}
        # Until the fork stands nobody else knows of the folder and the socket.
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            undo.callback(memory_rpc.close)
            process, facts = await self.zygotes.fork(message, [memory_rpc.theirs.fileno()])
            undo.pop_all()
        # The fork has its own copy. End-of-file reaches us only when no copy is left here.
        memory_rpc.theirs.close()
        kernel = JupyterKernel(
            process=process,
            connection=connection,
            zmq_context=self.zmq_context,
            sandbox=facts["confinement"],
            python="loaded",
            memory_rpc=memory_rpc,
            folder=folder,
            on_close=self._forget,
        )
        return await self._enter(kernel, kernel.connect(timeout=_READY_S))

    def _forget(self, kernel: JupyterKernel) -> None:
        self._kernels.discard(kernel)
        # A replaced zygote ends with the last kernel that it forked.
        self.zygotes.tidy()
