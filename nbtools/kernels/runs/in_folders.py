"""Runs in folders: what code finds in its working folder, and what it leaves there."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from nbtools.ground import aio
from nbtools.ground.folder_state import AtWork, FolderState
from nbtools.kernels import artifacts
from nbtools.kernels.exchange import Exchange
from nbtools.kernels.interface import Execution, Kernel, OutputLimits
from nbtools.kernels.runs.ending import to_the_end
from nbtools.kernels.runs.requests import RunRequest


class FolderRuns:
    """Runs code in the folder of its kernel or in one that the caller names, and collects the files that it leaves.

    Parameters
    ----------
    home
        The folder of nbtools, whose files no run is said to have left; `None` where there is none.
    limits
        How much output a run may make.
    find_target
        Returns where files go that were left in a folder of the kernel's own; `None` leaves them.
    find_shared
        Returns the folder in which tables and arrays are handed over.
    is_elsewhere
        Whether the kernels run on another machine.
    """

    def __init__(
        self,
        home: Path | None,
        limits: OutputLimits,
        find_target: Callable[[], Path | None],
        find_shared: Callable[[], Path],
        *,
        is_elsewhere: bool,
    ) -> None:
        self._home = home
        self._limits = limits
        self._find_target = find_target
        self._find_shared = find_shared
        self._is_elsewhere = is_elsewhere
        self._at_work = AtWork()

    async def run(self, kernel: Kernel, own_folder: Path | None, request: RunRequest) -> Execution:
        """Run the code of a request and return what became of it, with its files.

        Parameters
        ----------
        kernel
            The kernel that runs it.
        own_folder
            The folder of the kernel; `None` where it has none.
        request
            What is run.
        """
        context = request.context
        folder = context.cwd or own_folder
        assert folder is not None, "a kernel has a folder, or was given one"
        is_own = folder == own_folder
        context = dataclasses.replace(
            context,
            cwd=folder,
            figure_path=None if context.figure_path is None else folder / context.figure_path,
            # A folder that the caller gave stays as it is: the script opens the inputs where they are.
            links=context.links if is_own else {},
            ends="" if request.session is not None else "script",
        )
        exchange: Exchange | None = None
        stay = None
        if request.frames or request.value_names is not None:
            exchange = await aio.in_thread(Exchange, self._find_shared(), request.frames, request.value_names)
        try:
            if exchange is not None:
                how = {"writable": kernel.sandbox != "strict", "is_elsewhere": self._is_elsewhere}
                context = await to_the_end(aio.in_thread(functools.partial(exchange.into, context, **how)))
            before = await aio.in_thread(FolderState, folder, context.figure_path, self._home)
            if not is_own:
                stay = self._at_work.enter(folder)
                context = dataclasses.replace(context, watched=before.folders())
            execution = await kernel.run(
                request.code,
                timeout=request.timeout,
                grace=request.grace,
                on_output=request.on_output,
                limits=self._limits,
                context=context,
            )
            find = (lambda: request.target or self._find_target()) if is_own else lambda: None
            collecting = aio.in_thread(
                artifacts.collect, execution, context, before, find=find, move=request.session is None
            )
            # A Stop that comes now must not lose the files: the code has ended, and looking at them takes milliseconds.
            execution = await to_the_end(collecting)
            if exchange is not None:
                execution = await to_the_end(aio.in_thread(exchange.take, execution))
            if stay is not None:
                at_work = self._at_work.shared(stay, execution.artifacts)
                execution = artifacts.without_others(execution, context.watched, at_work)
        finally:
            if stay is not None:
                self._at_work.leave(stay)
            if exchange is not None:
                await to_the_end(aio.in_thread(exchange.close))
        return execution
