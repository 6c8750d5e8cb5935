"""The one life of a kernel: what the kernels of all languages and machines do in the same way.

`RunningKernel.run` is every run: check the code, begin it, wait for its end or cause it, return the `Execution`.
`LocalKernel` adds the process that a warden watches, and `LocalBackend` what the backends of this machine hold: a
folder, the process that starts their kernels, and the kernels that are open.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from nbtools import confine
from nbtools.ground import aio
from nbtools.kernels.interface import Execution, KernelOptions, OnOutput, OutputLimits, RunContext
from nbtools.kernels.runs.ending import Ending, supervise
from nbtools.kernels.runs.output import Collector
from nbtools.processes.client import WardenClient, WatchedProcess, open_warden
from nbtools.processes.runtime_dir import HeldFolder, RuntimeDir, remove_tree
from nbtools.texts.redaction import scrub_environment

_INLINE = "module://matplotlib_inline.backend_inline"
# A killed process is gone within milliseconds. One that the system cannot end (a disk that does not answer) is left
# to the warden, so that `close` returns.
_EXIT_S = 5.0
_TEMPORARY = "tmp"  # beside the sockets
_LIMITS, _CONTEXT = OutputLimits(), RunContext()


class OngoingRun:
    """A run that has begun: its output, and what says that it has ended.

    Attributes
    ----------
    done
        Done as soon as the code has ended or its kernel is gone.
    runaway
        Set when the output has grown beyond all limits.
    """

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.runaway = asyncio.Event()

    def finish(self) -> None:
        """End the waiting for this run. Harmless when repeated."""
        if not self.done.done():
            self.done.set_result(None)


R = TypeVar("R", bound=OngoingRun)
K = TypeVar("K", bound="LocalKernel[Any]")


class RunningKernel(abc.ABC, Generic[R]):
    """A kernel that runs one piece of code at a time; see `nbtools.kernels.interface.Kernel`."""

    sandbox: str = "off"
    _is_closed = False

    @property
    @abc.abstractmethod
    def alive(self) -> bool:
        """Whether it can run code."""

    @aio.once
    async def close(self) -> None:
        """End it and release what belongs to it. Harmless when repeated: each caller waits until all is released."""
        self._is_closed = True
        await self._close()

    @abc.abstractmethod
    async def _close(self) -> None:
        """End it and release what belongs to it; called once."""

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = 300.0,
        grace: float = 2.0,
        on_output: OnOutput | None = None,
        limits: OutputLimits = _LIMITS,
        context: RunContext = _CONTEXT,
    ) -> Execution:
        """Run code; see `nbtools.kernels.interface.Kernel.run`."""
        collector = Collector(on_output, limits)
        if not self.alive:
            return collector.execution("died", sandbox=self.sandbox, notes=self._notes(context))
        run = await self._begin(code, collector, context)
        if isinstance(run, Execution):
            return run
        ending = await supervise(
            run.done, timeout=timeout, grace=grace, interrupt=self.interrupt, kill=self.kill, runaway=run.runaway
        )
        return await self._finish(run, ending)

    def _notes(self, context: RunContext) -> tuple[str, ...]:
        """Return what the reader of a run should know about this kernel."""
        return ()

    @abc.abstractmethod
    async def _begin(self, code: str, collector: Collector, context: RunContext) -> R | Execution:
        """Send the code; return the run, or how it ended when it could not begin."""

    @abc.abstractmethod
    async def _finish(self, run: R, ending: Ending | None) -> Execution:
        """Return what became of a run that has ended; `ending` says why, if not by itself."""

    @abc.abstractmethod
    async def interrupt(self) -> None:
        """Interrupt the running code."""

    @abc.abstractmethod
    async def kill(self) -> None:
        """End the kernel and everything it started."""


class LocalKernel(RunningKernel[R]):
    """A kernel whose process a warden on this machine watches.

    Parameters
    ----------
    process
        The process.
    sandbox
        The level of confinement in force.
    folder
        The private folder of the kernel, which goes with `close`.
    on_close
        Called once with the kernel when everything is released.
    shared_folder
        The folder of the kernel that this one is a copy of, in which it lives on; `None` for one that is not a copy.

    Attributes
    ----------
    temporary
        Its folder for temporary files.
    """

    def __init__(
        self,
        process: WatchedProcess,
        *,
        sandbox: str,
        folder: Path,
        on_close: Callable[[Any], None],
        shared_folder: HeldFolder | None = None,
    ) -> None:
        self.process = process
        self.sandbox = sandbox
        self._folder = folder
        self.shared_folder = shared_folder or HeldFolder(folder)
        self.temporary = self.shared_folder.path / _TEMPORARY
        self._on_close = on_close
        self._run: R | None = None
        self._is_used_up = False
        process.exited.add_done_callback(lambda _: self._on_exit())

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it can run code."""
        return not (self._is_closed or self._is_used_up or self.process.exited.done())

    @abc.abstractmethod
    def _on_exit(self) -> None:
        """End the waiting for a run whose process is gone."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Release sockets or pipes; called once, when the process is gone."""

    async def kill(self) -> None:
        """End the process and everything it started."""
        self._is_used_up = True
        self.process.signal(signal.SIGKILL)

    async def _close(self) -> None:
        self.process.signal(signal.SIGKILL)
        # Sockets and pipes are released after the end, so that a run under way keeps what it printed.
        await asyncio.wait({self.process.exited}, timeout=_EXIT_S)
        self._release()
        if self._folder != self.shared_folder.path:
            await aio.in_thread(remove_tree, self._folder)
        await aio.in_thread(self.shared_folder.release)
        self._on_close(self)


class _Starter(Protocol):
    async def close(self) -> None: ...


class LocalBackend(Generic[K]):
    """What the backends of this machine share.

    Parameters
    ----------
    folder
        Where each kernel gets its own folder; `None` makes one at first use, which goes with `close`.
    """

    def __init__(self, folder: RuntimeDir | None = None) -> None:
        self._given_folder = folder
        self._starter: _Starter | None = None
        self._kernels: set[K] = set()
        self._lock = asyncio.Lock()

    @functools.cached_property
    def folder(self) -> RuntimeDir:
        """The folder of the kernels' folders."""
        return self._given_folder or RuntimeDir()

    async def warden(self) -> WardenClient:
        """Return the warden that starts the kernels; one that is gone is replaced."""
        async with self._lock:
            if not isinstance(self._starter, WardenClient) or not self._starter.alive:
                # Under the lock: two first kernels at once must not start two wardens.
                self._starter = await open_warden(self.folder)
            return self._starter

    async def _enter(self, kernel: K, ready: Awaitable[None]) -> K:
        """Wait until a new kernel is ready and return it; one that does not become ready is closed."""
        # Before the waiting, so that a `close` that comes meanwhile ends this one too.
        self._kernels.add(kernel)
        try:
            await ready
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def close(self) -> None:
        """End all kernels and the process that starts them. Harmless when repeated."""
        # Kernels first, so that each run under way ends with what it printed.
        await asyncio.gather(*(kernel.close() for kernel in list(self._kernels)))
        if self._starter is not None:
            await self._starter.close()
            self._starter = None
        if self._given_folder is None and "folder" in self.__dict__:
            self.folder.close()
            del self.folder


def start_message(options: KernelOptions, folder: Path, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a warden or zygote needs to start any kernel: id, environment, working folder, confinement, limits.

    Parameters
    ----------
    options
        What the kernel is to be. Its environment has no secrets, unless the level is ``"off"``.
    folder
        The private folder of the kernel, for sockets and temporary files; its name becomes the id.
    variables
        Further variables of the environment.
    """
    env = dict(os.environ) if options.sandbox == "off" else scrub_environment(os.environ)
    temporary = folder / _TEMPORARY
    # Scripts leave temporary files behind; these go with the kernel's folder.
    temporary.mkdir()
    writable = [folder, *options.write_paths, *([options.cwd] if options.cwd else [])]
    confinement = confine.Confinement(
        level=options.sandbox,
        read=tuple(map(str, options.read_paths)),
        write=tuple(map(str, writable)),
        folder=str(options.cwd) if options.cwd else None,
        closed=tuple(map(str, options.closed)),
        network=options.network,
        memory_bytes=options.memory_bytes,
        cpu_s=options.cpu_s,
        file_bytes=options.file_bytes,
        supervised=options.sandbox == "strict",
        # Measured already, when the level was chosen.
        own_shared_memory=options.sandbox == "strict" and confine.capabilities().shared_memory,
    )
    if options.sandbox == "strict" and not confinement.own_shared_memory:
        # It would take the folder of all programs, where nobody may change a file's mode for it.
        env["JOBLIB_TEMP_FOLDER"] = str(temporary)
    is_limited = options.sandbox != "off"
    return {
        "id": folder.name,
        "env": {**env, **(variables or {}), "MPLBACKEND": _INLINE, "TMPDIR": str(temporary)},
        "cwd": str(options.cwd or folder),
        "confinement": confinement.to_dict(),
        # The warden watches over these for everything that the kernel starts.
        "memory_bytes": options.memory_bytes if is_limited else None,
        "processes": options.processes if is_limited else None,
    }
