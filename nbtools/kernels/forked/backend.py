"""Kernels forked from a zygote that has loaded the libraries: Linux only, and the default there.

A kernel is ready in milliseconds, shares most of its memory with all others, and is a real ipykernel.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nbtools.errors import InvalidArguments, KernelDied, LanguageUnavailable
from nbtools.kernels.forked.warm_client import WarmClient
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS, ZygoteClient
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.jupyter.kernel import ConnectionInfo, JupyterBackend, JupyterKernel
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.runs.local import start_message
from nbtools.processes.client import wait_or_died
from nbtools.processes.runtime_dir import RuntimeDir

_READY_S = 20.0


class ForkingKernel(JupyterKernel):
    """A kernel that a zygote has forked, and that can fork a copy of itself.

    Parameters
    ----------
    memory_rpc
        Our end of its channel.
    enter
        Waits until a copy is ready, which its backend confirms.
    **parts
        Those of `nbtools.kernels.jupyter.kernel.JupyterKernel`.
    """

    def __init__(self, *, memory_rpc: MemoryRpc, enter: Callable[..., Awaitable[Any]], **parts: Any) -> None:
        super().__init__(python="loaded", memory_rpc=memory_rpc, **parts)
        self._channel, self._enter = memory_rpc, enter

    async def copy(self, whose: str) -> ForkingKernel:
        """Return a kernel with all that the session of this one has, in its folder; it waits until it is woken.

        The original continues as soon as it has forked, while the copy is still detaching: see `settle`.

        Parameters
        ----------
        whose
            What this one is called in errors.

        Raises
        ------
        InvalidArguments
            The session has what a copy would lack, or what both would use without knowing of each other.
        KernelDied
            One of the two ended meanwhile.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            folder = self.shared_folder.path / secrets.token_hex(6)
            process = self.process.begin_copy(folder.name, ours.fileno())
            folder.mkdir(mode=0o700)
            copy = ForkingKernel(
                process=process,
                connection=ConnectionInfo(folder),
                zmq_context=self._zmq_context,
                sandbox=self.sandbox,
                memory_rpc=MemoryRpc(),
                enter=self._enter,
                folder=folder,
                on_close=self._on_close,
                shared_folder=self.shared_folder.hold(),
            )
            await self._enter(copy, self._fork(copy, theirs, whose))
        return copy

    async def settle(self) -> None:
        """Wait until a copy is independent.

        Raises
        ------
        KernelDied
            It has ended.
        """
        await wait_or_died(self.process.ready, self.process, timeout=_READY_S, what="was not copied")

    async def wake(self, *, is_heir: bool) -> None:
        """Let a copy that waits become a kernel.

        Parameters
        ----------
        is_heir
            Whether it takes the place of its original, and does what that was to do at its end.

        Raises
        ------
        KernelDied
            It has ended.
        """
        orders = {"id": self.process.id, "connection": self._connection.to_dict(), "is_heir": is_heir}
        with contextlib.suppress(OSError):  # it has ended, as whatever waits for it reports
            self._channel.send(orders)
        await self.connect(timeout=_READY_S)

    async def _fork(self, copy: ForkingKernel, line: socket.socket, whose: str) -> None:
        """Let the kernel leave its loop and fork: it is sent the copy's line to the warden, and its channel."""
        self._channel.hand_over(line.fileno(), copy._channel.theirs.fileno())
        # Their end is heard when no copy is left here.
        line.close()
        copy._channel.theirs.close()
        try:
            await wait_or_died(copy.process.started, copy.process, timeout=_READY_S, what="was not copied")
        except KernelDied as exc:
            if "said" not in exc.data:
                raise KernelDied(f"{whose} was not copied: it did not answer within {_READY_S:g} s.") from exc
            # What prevents a copy is in its last words: the reason, and what to do.
            reason, _, hint = str(exc.data.get("said", "")).partition("\n")
            if not hint:
                why = f": {reason}" if reason else ""
                raise KernelDied(f"{whose}, or its copy, ended while the copy was made{why}.", data=exc.data) from exc
            raise InvalidArguments(f"{whose} cannot be copied: {reason}.", hint=hint) from None
        copy.process.watch(rests=True)


class ForkedBackend(JupyterBackend):
    """Fork kernels from a zygote.

    Parameters
    ----------
    preloads
        Modules loaded before the fork; what is not installed is skipped.
    folder
        Where each kernel gets its own folder; `None` makes one at first use.
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
        """Whether this system supports it."""
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
            raise LanguageUnavailable(f"kernels for {options.language!r} cannot be forked; only Python kernels can.")
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
        kernel = ForkingKernel(
            process=process,
            connection=connection,
            zmq_context=self.zmq_context,
            sandbox=facts["confinement"],
            memory_rpc=memory_rpc,
            enter=self._enter,
            folder=folder,
            on_close=self._forget,
        )
        return await self._enter(kernel, kernel.connect(timeout=_READY_S))

    def _forget(self, kernel: JupyterKernel) -> None:
        self._kernels.discard(kernel)
        # A replaced zygote ends with the last kernel that it forked.
        self.zygotes.tidy()
