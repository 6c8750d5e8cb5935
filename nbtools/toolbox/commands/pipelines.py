"""Running a judged command line: pipelines of processes, joined by pipes that are made here."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nbtools.aio import in_thread
from nbtools.errors import FileMissing, LimitExceeded, PathNotAllowed, PermissionDenied
from nbtools.kernels.runs.ending import Ending, supervise
from nbtools.paths import Roots
from nbtools.tool import Reading
from nbtools.toolbox.commands.allow_list import Programs, names_of
from nbtools.toolbox.commands.command_line import Command, Redirect, Step
from nbtools.toolbox.commands.processes import Processes, Stream, exit_code

if TYPE_CHECKING:
    from nbtools.confine import Level
    from nbtools.kernels.warden.client import WatchedProcess

__all__ = ["Line", "Plan", "plan_steps", "read"]

_NULL = Path(os.devnull)
_NOT_FOUND = 127
_GRACE_S = 1.0
_MAX_WORDS_LENGTH = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlannedCommand:
    """A command, where it runs, and where its redirections lead."""

    command: Command
    cwd: Path
    redirects: tuple[tuple[Redirect, Path | None], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A pipeline that may run."""

    operator: Literal[";", "&&", "||"]
    stages: tuple[_PlannedCommand, ...]


def plan_steps(steps: Sequence[Step], programs: Programs, roots: Roots, environment: Mapping[str, str]) -> list[Plan]:
    """Return what will run where: every command and redirection is judged before anything starts.

    Raises
    ------
    PermissionDenied
        A command is not allowed.
    PathNotAllowed
        A folder or a file of a redirection is outside the allowed folders.
    FileMissing
        A folder, or a file to read, is not there.
    """
    cwd = roots.start()
    plans: list[Plan] = []
    for step in steps:
        if _enters(step):
            cwd = _enter_folder(step.commands[0], cwd, roots, environment)
            continue
        for command in step.commands:
            _expand(command, cwd, programs, environment)
        stages = tuple(_stage(command, cwd, roots, environment) for command in step.commands)
        plans.append(Plan(operator=step.operator, stages=stages))
    return plans


def read(steps: Sequence[Step], programs: Programs, roots: Roots, environment: Mapping[str, str]) -> Reading:
    """Return what rules read of a command line: each command in words without quotes, its redirections behind them.

    A command with file patterns is read twice: as it is written, and with the names that fit now.

    Raises
    ------
    PermissionDenied, PathNotAllowed, FileMissing, LimitExceeded
        The line may not run, whatever the rules say.
    """
    parts: list[str] = []
    others: list[str] = []
    stages = [stage for plan in plan_steps(steps, programs, roots, environment) for stage in plan.stages]
    for stage in stages:
        written = [word.written(environment) for word in stage.command.words]
        redirections = [_redirection(redirect, environment) for redirect, _ in stage.redirects]
        for words in (written, _expand(stage.command, stage.cwd, programs, environment)):
            parts.append(" ".join([*words, *redirections]))
            others += names_of([*words, *redirections])
    entered = (step.commands[0] for step in steps if _enters(step))
    parts += (" ".join(word.written(environment) for word in command.words) for command in entered)
    return Reading(parts=tuple(dict.fromkeys(parts)), others=tuple(dict.fromkeys(others)))


def _redirection(redirect: Redirect, environment: Mapping[str, str]) -> str:
    number = "" if redirect.descriptor == (0 if redirect.kind == "<" else 1) else redirect.descriptor
    if redirect.file is None:
        return f"{number}>&{redirect.copied}"
    return f"{number}{redirect.kind} {redirect.file.written(environment)}"


def _enters(step: Step) -> bool:
    return step.commands[0].words[0].literal == "cd" and len(step.commands) == 1


def _expand(command: Command, cwd: Path, programs: Programs, environment: Mapping[str, str]) -> list[str]:
    """Return the words of a command as its program gets them, if it may run with them."""
    words: list[str] = []
    length = 0
    for word in command.words:
        words += (made := word.expand(environment, cwd))
        length += sum(map(len, made)) + len(made)
        if length > _MAX_WORDS_LENGTH:
            raise LimitExceeded(f"a command has more than {_MAX_WORDS_LENGTH:,} characters, its patterns replaced.")
    programs.check(words, command.words[0].column)
    return words


def _enter_folder(command: Command, cwd: Path, roots: Roots, environment: Mapping[str, str]) -> Path:
    folders = [value for word in command.words[1:] for value in word.expand(environment, cwd)]
    if len(folders) != 1 or folders[0].startswith("-"):
        raise PermissionDenied(f"column {command.words[0].column}: cd takes one folder.", hint="cd data && ls")
    real = roots.resolve(cwd / folders[0])
    if not real.is_dir():
        raise FileMissing(f"cd: {folders[0]!r} is no folder.")
    return real


def _stage(command: Command, cwd: Path, roots: Roots, environment: Mapping[str, str]) -> _PlannedCommand:
    redirects = tuple((r, _target(r, cwd, roots, environment)) for r in command.redirects)
    return _PlannedCommand(command=command, cwd=cwd, redirects=redirects)


def _target(redirect: Redirect, cwd: Path, roots: Roots, environment: Mapping[str, str]) -> Path | None:
    if redirect.file is None:
        return None
    names = redirect.file.expand(environment, cwd)
    if len(names) != 1 or not names[0]:
        raise PathNotAllowed("a redirection leads to no file, or to several.", hint="Name one file.")
    if names[0] == os.devnull:
        return _NULL
    writes = redirect.kind != "<"
    return roots.resolve(cwd / names[0], must_exist=not writes, for_writing=writes)


class Line:
    """One command line while it runs.

    Parameters
    ----------
    processes
        Who starts and keeps them.
    programs
        What may run.
    roots
        Where redirections may lead.
    environment
        What the programs inherit.
    level
        Their confinement.
    stdout, stderr
        What they write to.
    """

    def __init__(
        self,
        processes: Processes,
        programs: Programs,
        roots: Roots,
        *,
        environment: Mapping[str, str],
        level: Level,
        stdout: Stream,
        stderr: Stream,
    ) -> None:
        self._processes = processes
        self._programs = programs
        self._roots = roots
        self._environment = environment
        self._level: Level = level
        self._stdout = stdout
        self._stderr = stderr
        self._children: list[WatchedProcess] = []
        self._over = False
        self.returncode: int | None = None

    async def run(self, plans: Sequence[Plan], *, timeout: float) -> Ending | None:
        """Run the pipelines, and return what ended them when they did not end by themselves."""
        work = asyncio.ensure_future(self._steps(plans))
        runaway = asyncio.Event()
        watchers = [asyncio.ensure_future(self._watch(stream, runaway)) for stream in (self._stdout, self._stderr)]
        try:
            ending = await supervise(
                work, timeout=timeout, grace=_GRACE_S, interrupt=self._ask, kill=self._kill, runaway=runaway
            )
            if not work.done():
                work.cancel()
            elif not work.cancelled():
                self.returncode = work.result()
            return ending
        finally:
            for watcher in watchers:
                watcher.cancel()
            await self._kill()

    async def _watch(self, stream: Stream, runaway: asyncio.Event) -> None:
        await stream.full.wait()
        runaway.set()

    async def _ask(self) -> None:
        self._over = True
        self._signal(signal.SIGTERM)

    async def _kill(self) -> None:
        self._over = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for child in self._children:
            child.signal(number)

    async def _steps(self, plans: Sequence[Plan]) -> int:
        code = 0
        # Looked up here, where it holds nobody up.
        await in_thread(self._programs.files, "")
        for plan in plans:
            skipped = (plan.operator == "&&" and code != 0) or (plan.operator == "||" and code == 0)
            if not skipped and not self._over:
                code = await self._pipeline(plan.stages)
        return code

    async def _pipeline(self, stages: Sequence[_PlannedCommand]) -> int:
        # Once more, because the commands before may have changed what the patterns match.
        arguments = [
            await in_thread(_expand, stage.command, stage.cwd, self._programs, self._environment) for stage in stages
        ]
        self._children = []
        last: WatchedProcess | None = None
        with contextlib.ExitStack() as ours:
            before = _close_later(ours, os.open(os.devnull, os.O_RDONLY))
            for at, (stage, argv) in enumerate(zip(stages, arguments, strict=True)):
                after, out = -1, self._stdout.write_end
                if at < len(stages) - 1:
                    after, out = (_close_later(ours, descriptor) for descriptor in os.pipe())
                table = self._redirect(stage, [before, out, self._stderr.write_end], ours)
                last = await self._start(stage, argv, table)
                if last is not None:
                    self._children.append(last)
                before = after
        # Our copies of the pipes are closed by now: a reader sees the end as soon as its writer has ended.
        if self._over:
            self._signal(signal.SIGKILL)
        for child in self._children:
            await asyncio.wait({child.exited})
        return _NOT_FOUND if last is None else exit_code(last.exited.result())

    def _redirect(self, stage: _PlannedCommand, table: list[int], ours: contextlib.ExitStack) -> list[int]:
        for redirect, path in stage.redirects:
            if path is None:
                table[redirect.descriptor] = table[redirect.copied]
                continue
            flags = {"<": os.O_RDONLY, ">": os.O_WRONLY | os.O_CREAT | os.O_TRUNC}.get(
                redirect.kind, os.O_WRONLY | os.O_CREAT | os.O_APPEND
            )
            opened = os.open(path, flags) if path == _NULL else self._roots.open_file(path, flags)
            table[redirect.descriptor] = _close_later(ours, opened)
        return table

    async def _start(self, stage: _PlannedCommand, argv: list[str], table: list[int]) -> WatchedProcess | None:
        """Start a program; one that is not found is told on its standard error, as a shell does."""
        program = self._programs.find(argv[0])
        if program is None:
            _say(table[2], f"{argv[0]}: command not found\n")
            return None
        return await self._processes.start(
            [program, *argv[1:]],
            cwd=stage.cwd,
            environment={**self._environment, "PWD": str(stage.cwd)},
            level=self._level,
            programs=self._programs.files(program),
            descriptors=table,
        )


def _close_later(ours: contextlib.ExitStack, descriptor: int) -> int:
    ours.callback(os.close, descriptor)
    return descriptor


def _say(descriptor: int, text: str) -> None:
    # The pipe may be full, and it is this thread that empties it.
    if select.select([], [descriptor], [], 0)[1]:
        os.write(descriptor, text.encode("utf-8", "replace"))
