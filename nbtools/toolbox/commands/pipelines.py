"""Running a judged command line: pipelines of processes, joined by pipes that are made here."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nbtools.contract.tool import Reading
from nbtools.ground.aio import in_thread
from nbtools.kernels.runs.ending import Ending, supervise
from nbtools.toolbox.commands.allow_list import Programs, names_of
from nbtools.toolbox.commands.command_line import Command
from nbtools.toolbox.commands.processes import ChildSettings, Processes, Stream, exit_code

if TYPE_CHECKING:
    from nbtools.processes.client import WatchedProcess

_GRACE_S = 1.0


def read(pipelines: Sequence[Sequence[Command]], programs: Programs) -> Reading:
    """Return what rules read of a command line: each command in words without quotes.

    Raises
    ------
    PermissionDenied, FileMissing, LimitExceeded
        The line may not run, whatever the rules say.
    """
    commands = [command for pipeline in pipelines for command in pipeline]
    for command in commands:
        programs.check(command.words, command.column)
    # Each command by itself: a rule for `rm *` must see it behind a pipe as well.
    parts = dict.fromkeys(" ".join(command.words) for command in commands)
    others = dict.fromkeys(name for command in commands for name in names_of(command.words))
    return Reading(parts=tuple(parts), others=tuple(others))


class Line:
    """One command line while it runs.

    Parameters
    ----------
    processes
        Who starts and keeps them.
    around
        What they find around them.
    most
        Bytes to keep of each stream; a line that writes more is ended.
    show
        Gets the name of a stream, and text of it as it comes.

    Attributes
    ----------
    stdout
        What they wrote to standard output.
    stderr
        What they wrote to standard error.
    """

    def __init__(self, processes: Processes, around: ChildSettings, most: int, show: Callable[..., None]) -> None:
        self._processes = processes
        self._around = around
        self._full = asyncio.Event()
        self.stdout, self.stderr = (
            Stream(most, self._full, functools.partial(show, name)) for name in ("stdout", "stderr")
        )
        self._children: list[WatchedProcess] = []
        self._over = False
        self.returncode: int | None = None

    async def run(self, pipelines: Sequence[Sequence[Command]], *, timeout: float) -> Ending | None:
        """Run the pipelines, and return what ended them when they did not end by themselves."""
        work = asyncio.ensure_future(self._all(pipelines))
        try:
            ending = await supervise(
                work, timeout=timeout, grace=_GRACE_S, interrupt=self._ask, kill=self._kill, runaway=self._full
            )
            if not work.done():
                work.cancel()
            elif not work.cancelled():
                self.returncode = work.result()
            return ending
        finally:
            await self._kill()
            self.stdout.close()
            self.stderr.close()

    async def _ask(self) -> None:
        self._over = True
        self._signal(signal.SIGTERM)

    async def _kill(self) -> None:
        self._over = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for child in self._children:
            child.signal(number)

    async def _all(self, pipelines: Sequence[Sequence[Command]]) -> int:
        code = 0
        for pipeline in pipelines:
            # `a && b`: what follows runs only after success.
            if code == 0 and not self._over:
                code = await self._pipeline(pipeline)
        return code

    async def _pipeline(self, commands: Sequence[Command]) -> int:
        self._children = []
        # Asked once more: a command before this one may have changed what a name stands for.
        check = self._around.programs.check
        starts = [await in_thread(check, command.words, command.column) for command in commands]
        with contextlib.ExitStack() as ours:
            before = _close_later(ours, os.open(os.devnull, os.O_RDONLY))
            for at, (program, command) in enumerate(zip(starts, commands, strict=True)):
                after, out = -1, self.stdout.write_end
                if at < len(commands) - 1:
                    after, out = (_close_later(ours, descriptor) for descriptor in os.pipe())
                argv, descriptors = [program, *command.words[1:]], [before, out, self.stderr.write_end]
                child = await self._processes.start(argv, self._around, descriptors)
                self._children.append(child)
                before = after
        # Our copies of the pipes are closed by now: a reader sees the end as soon as its writer has ended.
        if self._over:
            self._signal(signal.SIGKILL)
        for child in self._children:
            await asyncio.wait({child.exited})
        # The last one's, as shells have it.
        return exit_code(self._children[-1].exited.result())


def _close_later(ours: contextlib.ExitStack, descriptor: int) -> int:
    ours.callback(os.close, descriptor)
    return descriptor
