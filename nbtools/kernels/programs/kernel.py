"""Kernels for languages other than Python: a child process with pipes, under the same limits and caps.

The warden starts the program, confines it and ends it with all it started. Output comes through two pipes and is
handed on as it arrives; requests and answers go through a third and a fourth (see
`nbtools.kernels.programs.languages`). A kernel for one script ends with the script, so that its exit code is the
program's own; one for a session (`KernelOptions.lasting`) goes on until it is closed or the script ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

from nbtools import aio, confine
from nbtools.errors import InvalidArguments
from nbtools.kernels.interface import Execution, KernelOptions, OnOutput, OutputLimits, RunContext, Status
from nbtools.kernels.jupyter.spawned import confinement_of, environment_of, limits_of
from nbtools.kernels.programs import languages
from nbtools.kernels.programs.languages import Interpreter
from nbtools.kernels.runs.ending import supervise
from nbtools.kernels.runs.output import Collector
from nbtools.kernels.warden.client import Exit, WardenClient, WatchedProcess, open_warden, wait_or_died
from nbtools.kernels.warden.runtime_dir import RuntimeDir

__all__ = ["ProcessBackend", "ProcessKernel"]

_START_S = 30.0
_ASK_AGAIN_S = 0.1
_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 20
# A daemon that holds the pipes open keeps them readable; what the script itself wrote is there at its end.
_DRAIN_BYTES = 2 * _PIPE_BYTES
_CAP, _WORLD = OutputLimits(), RunContext()
_OUT_OF_MEMORY = ("heap out of memory", "Cannot allocate memory", "OutOfMemoryException")

_Stream = Literal["stdout", "stderr"]
_STREAMS: tuple[_Stream, ...] = ("stdout", "stderr")


class ProcessBackend:
    """Start programs that run shell scripts, JavaScript and PowerShell.

    Parameters
    ----------
    folder
        Where each kernel gets a folder of its own; `None` makes one at first use.
    """

    name = "process"

    def __init__(self, folder: RuntimeDir | None = None) -> None:
        self._folder = folder
        self._owns_folder = folder is None
        self._warden: WardenClient | None = None
        self._kernels: set[ProcessKernel] = set()
        self._lock = asyncio.Lock()

    async def open(self, profile: KernelOptions) -> ProcessKernel:
        """Start a program; see `nbtools.kernels.interface.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            The language is unknown, or its program is not installed.
        SandboxUnavailable
            The level cannot be enforced on this host.
        KernelDied
            The program ended before it was ready.
        """
        interpreter = languages.find(profile.language)
        if profile.sandbox == "strict":
            (await aio.in_thread(confine.capabilities)).settle("strict", explicit=True)
        warden = await self._ready_warden()
        assert self._folder is not None
        name = secrets.token_hex(6)
        place = self._folder.make(name)
        pipes = _Pipes()
        try:
            on = interpreter.requests_on(lasting=profile.lasting)
            message = {
                "do": "spawn",
                "id": name,
                "argv": interpreter.command(lasting=profile.lasting),
                "env": _environment(profile, place, interpreter),
                "cwd": str(profile.cwd or place),
                "confinement": _confinement(profile, place, interpreter).to_dict(),
                "targets": [on, 1, 2, languages.ANSWERS],
                **limits_of(profile),
            }
            child = warden.begin(message, pipes.theirs)
        except BaseException:
            pipes.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        pipes.close_theirs()
        kernel = ProcessKernel(
            child=child,
            interpreter=interpreter,
            profile=profile,
            pipes=pipes,
            place=place,
            on_close=lambda: self._kernels.discard(kernel),
        )
        self._kernels.add(kernel)
        try:
            await wait_or_died(child.started, child, seconds=_START_S, what="was not started")
            await kernel.greet(_START_S)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def _ready_warden(self) -> WardenClient:
        async with self._lock:
            if self._warden is not None and self._warden.alive:
                return self._warden
            self._folder = self._folder or RuntimeDir()
            self._warden = await open_warden(self._folder, what="starts programs")
            return self._warden

    async def close(self) -> None:
        """End all kernels and the warden."""
        await asyncio.gather(*(kernel.close() for kernel in list(self._kernels)))
        if self._warden is not None:
            await self._warden.close()
            self._warden = None
        if self._folder is not None and self._owns_folder:
            self._folder.close()
            self._folder = None


def _environment(profile: KernelOptions, place: Path, interpreter: Interpreter) -> dict[str, str]:
    env = {**environment_of(profile, place), **interpreter.environment()}
    if profile.sandbox == "strict":
        # Programs look for their settings at home and fail when they may not; this one is empty.
        home = place / "home"
        home.mkdir()
        env["HOME"] = str(home)
    return env


def _confinement(profile: KernelOptions, place: Path, interpreter: Interpreter) -> confine.Confinement:
    made = confinement_of(profile, place)
    return dataclasses.replace(made, sockets=False, read=(*made.read, *interpreter.places()))


class _Pipes:
    """Four pipes: requests to the child; standard output, standard error and answers from it."""

    def __init__(self) -> None:
        self.requests, self.stdout, self.stderr, self.answers = -1, -1, -1, -1
        theirs, self.requests = os.pipe()
        self.theirs = [theirs]
        for name in ("stdout", "stderr", "answers"):
            ours, theirs = os.pipe()
            self.theirs.append(theirs)
            os.set_blocking(ours, False)
            setattr(self, name, ours)
        for descriptor in (self.stdout, self.stderr):
            _widen(descriptor)

    def close_theirs(self) -> None:
        """Close the child's ends, once it has them."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = []

    def close(self) -> None:
        """Close everything."""
        self.close_theirs()
        for name in ("requests", "stdout", "stderr", "answers"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)


def _widen(descriptor: int) -> None:
    """Make room in a pipe, so that a program that prints much waits less often."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


@dataclasses.dataclass(kw_only=True)
class _ProgramRun:
    """One script under way."""

    collector: Collector
    done: asyncio.Future[None]
    runaway: asyncio.Event
    answer: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    last_said: str = ""


class ProcessKernel:
    """A program that waits for a script, or for many.

    Parameters
    ----------
    child
        Its process.
    interpreter
        How it is talked to.
    profile
        What it is to be.
    pipes
        Our ends of its pipes, which belong to the kernel from now on.
    place
        Its private folder.
    on_close
        Called once when everything is released.
    """

    def __init__(
        self,
        *,
        child: WatchedProcess,
        interpreter: Interpreter,
        profile: KernelOptions,
        pipes: _Pipes,
        place: Path,
        on_close: Callable[[], None],
    ) -> None:
        self.child = child
        self._interpreter = interpreter
        self._lasting = profile.lasting
        self._level = profile.sandbox
        self._pipes = pipes
        self._place = place
        self._on_close = on_close
        self._run: _ProgramRun | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count = 0
        self._line = b""
        self._used_up = False
        self._closed = False
        loop = asyncio.get_running_loop()
        loop.add_reader(pipes.stdout, self._read, "stdout")
        loop.add_reader(pipes.stderr, self._read, "stderr")
        loop.add_reader(pipes.answers, self._read_answers)
        child.exited.add_done_callback(lambda _: self._on_exit())

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self.child.pid

    @property
    def alive(self) -> bool:
        """Whether it can run code."""
        return not (self._closed or self._used_up or self.child.exited.done())

    @property
    def confinement(self) -> str:
        """The level of confinement in force."""
        return self._level

    async def greet(self, seconds: float) -> None:
        """Wait until a session can be talked to.

        Raises
        ------
        KernelDied
            The program ended, or did not answer in time.
        """
        if not self._lasting:
            return
        self._send(self._interpreter.greeting())
        await wait_or_died(self._ready, self.child, seconds=seconds, what="did not answer")
        # An interactive shell without a terminal complains once; nobody wants to read that.
        for stream in _STREAMS:
            self._drain(stream)

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = 300.0,
        grace: float = 2.0,
        on_output: OnOutput | None = None,
        cap: OutputLimits = _CAP,
        world: RunContext = _WORLD,
    ) -> Execution:
        """Run code; see `nbtools.kernels.interface.Kernel.run`.

        Raises
        ------
        InvalidArguments
            The code is no text, or holds a NUL character.
        """
        if not _is_text(code):
            raise InvalidArguments("The code is not text, or has a NUL character.", tried="running code")
        run = self._run = _ProgramRun(
            collector=Collector(on_output, cap),
            done=asyncio.get_running_loop().create_future(),
            runaway=asyncio.Event(),
        )
        if not self.alive:
            self._run = None
            return run.collector.execution("died", confinement=self._level)
        self._count += 1
        self._used_up = not self._lasting
        self._send(self._interpreter.request(code, world, self._place, self._count, lasting=self._lasting))
        ending = await supervise(
            run.done, timeout=timeout, grace=grace, interrupt=self.interrupt, kill=self.kill, runaway=run.runaway
        )
        for stream in _STREAMS:
            self._drain(stream)
        self._run = None
        for stream in _STREAMS:
            run.collector.raw(stream, b"", final=True)
        return self._execution(run, ending)

    async def interrupt(self) -> None:
        """Interrupt the running code and all that it started in its group."""
        if self._run is None:
            return  # the signal could come late and strike the next run
        self.child.signal(signal.SIGINT)
        if self._lasting and self._interpreter.forgets:
            asyncio.get_running_loop().call_later(_ASK_AGAIN_S, self._send, self._interpreter.ask(self._count))

    async def kill(self) -> None:
        """End the program and all it started."""
        self._used_up = True
        self.child.signal(signal.SIGKILL)

    async def close(self) -> None:
        """End it and release its pipes and files."""
        if self._closed:
            return
        self._closed = True
        self.child.signal(signal.SIGKILL)
        await asyncio.wait({self.child.exited}, timeout=5.0)
        loop = asyncio.get_running_loop()
        for descriptor in (self._pipes.stdout, self._pipes.stderr, self._pipes.answers):
            loop.remove_reader(descriptor)
        self._pipes.close()
        if not self._ready.done():
            self._ready.cancel()
        shutil.rmtree(self._place, ignore_errors=True)
        self._on_close()

    def _send(self, request: bytes) -> None:
        # A request is shorter than a pipe is wide, so this does not wait; a program that is gone shows by its exit.
        with contextlib.suppress(OSError):
            os.write(self._pipes.requests, request)

    def _read(self, stream: _Stream) -> bool:
        """Take what a pipe holds, a piece at a time; false when there is nothing (more)."""
        descriptor = self._pipes.stdout if stream == "stdout" else self._pipes.stderr
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(descriptor)
            return False
        run = self._run
        if run is not None:
            run.collector.raw(stream, data)
            if stream == "stderr":
                run.last_said = (run.last_said + data[-2000:].decode("utf-8", "replace"))[-2000:]
            if run.collector.runaway:
                run.runaway.set()
        return True

    def _drain(self, stream: _Stream) -> None:
        if self._pipes.stdout < 0:
            return
        for _ in range(_DRAIN_BYTES // _CHUNK):
            if not self._read(stream):
                return

    def _read_answers(self) -> None:
        """Take what the child has answered so far."""
        while self._pipes.answers >= 0:
            try:
                data = os.read(self._pipes.answers, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                asyncio.get_running_loop().remove_reader(self._pipes.answers)
                return
            *lines, rest = (self._line + data).split(b"\n")
            # A script could write here too, and fool only itself: what makes no sense, or no end, is dropped.
            self._line = rest[-_CHUNK:]
            for line in lines:
                with contextlib.suppress(ValueError, AttributeError, TypeError):
                    self._take(_parsed(line))

    def _take(self, answer: dict[str, Any]) -> None:
        if answer.get("ready") and not self._ready.done():
            self._ready.set_result(None)
        run = self._run
        if run is None:
            return
        if isinstance(answer.get("error"), dict):
            run.error = answer["error"]
        if answer.get("done") and self._lasting and answer.get("number", self._count) == self._count:
            run.answer = answer
            if not run.done.done():
                run.done.set_result(None)

    def _on_exit(self) -> None:
        self._read_answers()
        if self._run is not None and not self._run.done.done():
            self._run.done.set_result(None)

    def _execution(self, run: _ProgramRun, ending: str | None) -> Execution:
        facts: dict[str, Any] = {"confinement": self._level}
        if run.answer is not None:
            code = run.answer.get("exit_code")
            how = Exit(code=code if isinstance(code, int) else 1)
        elif self.child.exited.done():
            how = self.child.exited.result()
        else:
            how = Exit()
        status = _status(how, ending, run.last_said)
        if run.answer is None or ending is None:
            facts |= {"exit_code": how.code, "signal": how.signal_name}
        if status == "error":
            self._explain(run, how)
        return run.collector.execution(status, **facts)

    def _explain(self, run: _ProgramRun, how: Exit) -> None:
        error = run.error
        if error is not None:
            line = error.get("line")
            name, value, traceback = (str(error.get(key, "")) for key in ("name", "value", "traceback"))
            run.collector.fail(name, value, traceback, line if isinstance(line, int) else None)
            return
        said = [line.strip() for line in run.last_said.splitlines() if line.strip()]
        run.collector.fail(f"exit code {how.code}", said[-1] if said else "")


def _is_text(code: object) -> bool:
    return isinstance(code, str) and "\0" not in code


def _parsed(line: bytes) -> dict[str, Any]:
    """Return an answer: JSON, or a shell's ``ready`` or ``done CODE NUMBER``."""
    if line.startswith(b"{"):
        made: dict[str, Any] = json.loads(line)
        return made
    word, *numbers = line.decode("ascii").split()
    return {word: True, **dict(zip(("exit_code", "number"), map(int, numbers), strict=False))}


def _status(how: Exit, ending: str | None, said: str) -> Status:
    if how.ended_by is not None:
        return cast("Status", how.ended_by)
    if ending is not None:
        return cast("Status", ending)
    if how.code == 0:
        return "ok"
    if any(words in said for words in _OUT_OF_MEMORY) and (how.signal is not None or how.code in (134, 137)):
        return "memory_limit"
    return "died" if how.code is None else "error"
