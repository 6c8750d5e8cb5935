"""Kernels for languages other than Python: a child process with pipes, under the same limits and caps.

The warden starts the program, confines it and ends it with all it started. Output comes through two pipes and is
handed on as it arrives; requests and answers go through a third and a fourth (see
`nbtools.kernels.programs.interpreter`). A kernel for one script ends with the script, so that its exit code is the
program's own; one for a session (`KernelOptions.lasting`) runs until it is closed or the script ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import shutil
from typing import Any, Literal, cast

from nbtools import confine
from nbtools.errors import InvalidArguments, KernelDied
from nbtools.ground import aio
from nbtools.kernels.interface import Execution, KernelOptions, RunContext, Status
from nbtools.kernels.programs.interpreter import ANSWERS, Interpreter, find
from nbtools.kernels.runs.ending import Ending
from nbtools.kernels.runs.local import LocalBackend, LocalKernel, OngoingRun, start_message
from nbtools.kernels.runs.output import Collector, PipeReader
from nbtools.processes.client import Exit, describe_early_end, wait_or_died

# Generous, because a program is loaded from a cold disk at its first start.
_START_S = 30.0
# A shell that was interrupted reads its input again at once.
_ASK_AGAIN_S = 0.1
_MOST_LINE = 1 << 18
# Programs end themselves when they get no memory; only their last words tell it from a crash.
_OUT_OF_MEMORY = ("heap out of memory", "Cannot allocate memory", "OutOfMemoryException")


class ProcessBackend(LocalBackend["ProcessKernel"]):
    """Start programs that run scripts in languages other than Python."""

    name = "process"

    async def open(self, options: KernelOptions) -> ProcessKernel:
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
        interpreter = find(options.language)
        if options.sandbox == "strict":
            (await aio.in_thread(confine.capabilities)).settle("strict", explicit=True)
        warden = await self.warden()
        folder = self.folder.make(secrets.token_hex(6))
        message = {
            "do": "spawn",
            **start_message(options, folder),
            "argv": interpreter.command(lasting=options.lasting),
            "targets": [interpreter.requests_on(lasting=options.lasting), 1, 2, ANSWERS],
        }
        message["env"] |= interpreter.environment()
        if options.sandbox == "strict":
            # Programs look for their settings at home and fail when they may not; this one is empty.
            home = folder / "home"
            home.mkdir()
            message["env"]["HOME"] = str(home)
        readable = (*message["confinement"]["read"], *interpreter.places())
        message["confinement"] |= {"sockets": False, "read": readable}
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            pipes = _Pipes()
            undo.callback(pipes.close)
            process = warden.begin(message, pipes.theirs())
            undo.pop_all()
        pipes.close_theirs()
        kernel = ProcessKernel(
            process=process,
            interpreter=interpreter,
            lasting=options.lasting,
            pipes=pipes,
            sandbox=options.sandbox,
            folder=folder,
            on_close=self._kernels.discard,
        )
        return await self._enter(kernel, kernel.greet(timeout=_START_S))


class _Pipes:
    """Four pipes: requests to the child; standard output, standard error and answers from it."""

    def __init__(self) -> None:
        self._read_end, self._requests = os.pipe()
        self.stdout, self.stderr, self.answers = PipeReader(), PipeReader(), PipeReader()

    def theirs(self) -> list[int]:
        """Return the child's ends, in the order of the four."""
        return [self._read_end, *(pipe.write_end for pipe in (self.stdout, self.stderr, self.answers))]

    def send(self, request: bytes) -> None:
        """Send a request, unless the program is gone, which shows by its exit."""
        # A request is shorter than a pipe is wide, so this does not wait.
        with contextlib.suppress(OSError):
            os.write(self._requests, request)

    def close_theirs(self) -> None:
        """Close the child's ends, once it has them."""
        os.close(self._read_end)
        self._read_end = -1
        for pipe in (self.stdout, self.stderr, self.answers):
            pipe.close_write_end()

    def close_requests(self) -> None:
        """Tell the program that no more will come."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def close(self) -> None:
        """Close everything."""
        if self._read_end >= 0:
            self.close_theirs()
        self.close_requests()
        for pipe in (self.stdout, self.stderr, self.answers):
            pipe.close()


class _ProgramRun(OngoingRun):
    """One script under way: what its program answered, and the end of what it printed as errors."""

    answer: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    last_said: str = ""


class ProcessKernel(LocalKernel[_ProgramRun]):
    """A program that waits for a script, or for many.

    Parameters
    ----------
    interpreter
        How it is talked to.
    lasting
        Whether it runs more than one script.
    pipes
        Our ends of its pipes, which belong to the kernel from now on.
    **rest
        Those of `LocalKernel`.
    """

    def __init__(self, *, interpreter: Interpreter, lasting: bool, pipes: _Pipes, **rest: Any) -> None:
        super().__init__(**rest)
        self._interpreter = interpreter
        self._lasting = lasting
        self._pipes = pipes
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count = 0
        self._line = b""
        pipes.stdout.start(functools.partial(self._take_output, "stdout"))
        pipes.stderr.start(functools.partial(self._take_output, "stderr"))
        pipes.answers.start(self._take_answers)

    async def greet(self, *, timeout: float) -> None:
        """Wait until the program has started, and until a session can be talked to.

        Raises
        ------
        KernelDied
            The program ended, or did not answer in time.
        """
        await wait_or_died(self.process.started, self.process, timeout=timeout, what="was not started")
        if not self._lasting:
            return
        self._pipes.send(self._interpreter.greeting())
        await wait_or_died(self._ready, self.process, timeout=timeout, what="did not answer")
        # An interactive shell without a terminal complains once; nobody wants to read that.
        self._drain()

    async def finish(self, *, timeout: float) -> None:
        """End a session by the end of its input, as a program ends, in so many seconds."""
        self._pipes.close_requests()
        await asyncio.wait({self.process.exited}, timeout=timeout)

    async def _begin(self, code: str, collector: Collector, context: RunContext) -> _ProgramRun:
        if not _is_text(code):
            raise InvalidArguments("The code is not text, or has a NUL character.")
        self.process.watch()
        run = self._run = _ProgramRun(collector)
        self._count += 1
        # A program for one script ends with it, even if it is still there when the answer has come.
        self._is_used_up = not self._lasting
        self._pipes.send(self._interpreter.request(code, context, self._folder, self._count, lasting=self._lasting))
        return run

    async def _finish(self, run: _ProgramRun, ending: Ending | None) -> Execution:
        self._drain()
        run.collector.raw("stdout", b"", final=True)
        run.collector.raw("stderr", b"", final=True)
        self._run = None
        self.process.watch(rests=True)
        facts: dict[str, Any] = {"sandbox": self.sandbox}
        if run.answer is not None:
            code = run.answer.get("exit_code")
            how = Exit(code=code if isinstance(code, int) else 1)
        else:
            how = self.process.exited.result() if self.process.exited.done() else Exit()
        if how.last_words:  # a program that was started writes to the pipes itself
            raise KernelDied(describe_early_end(self.process))
        if run.answer is None or ending is None:
            facts |= {"exit_code": how.code, "signal": how.signal_name}
        status = _status(how, ending, run.last_said)
        if status == "error":
            _add_error(run, how)
        return run.collector.execution(status, **facts)

    async def interrupt(self) -> None:
        """Interrupt the running code and all that it started in its group."""
        if self._run is None:
            return  # what comes late would strike the next run
        await self.process.interrupt()
        if self._lasting and self._interpreter.forgets:
            asyncio.get_running_loop().call_later(_ASK_AGAIN_S, self._pipes.send, self._interpreter.ask(self._count))

    def _release(self) -> None:
        self._pipes.close()
        self._ready.cancel()

    def _drain(self) -> None:
        self._pipes.stdout.drain()
        self._pipes.stderr.drain()

    def _take_output(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        run = self._run
        if run is None:
            return
        run.collector.raw(stream, data)
        if stream == "stderr":
            run.last_said = (run.last_said + data[-2000:].decode("utf-8", "replace"))[-2000:]
        if run.collector.is_runaway:
            run.runaway.set()

    def _take_answers(self, data: bytes) -> None:
        """Take what the child has answered."""
        *lines, rest = (self._line + data).split(b"\n")
        # A script could write here too, and fool only itself: what makes no sense, or no end, is dropped.
        self._line = rest[-_MOST_LINE:]
        for line in lines:
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                self._take(_parse(line))

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
            run.finish()

    def _on_exit(self) -> None:
        self._pipes.answers.drain()
        if self._run is not None:
            self._run.finish()


def _add_error(run: _ProgramRun, how: Exit) -> None:
    """Say what made the script fail: the exception that the driver reports, or the last line of standard error."""
    error = run.error
    if error is not None:
        line = error.get("line")
        name, value, traceback = (str(error.get(key, "")) for key in ("name", "value", "traceback"))
        run.collector.add_error(name, value, traceback, line if isinstance(line, int) else None)
        return
    lines = [line.strip() for line in run.last_said.splitlines() if line.strip()]
    run.collector.add_error(f"exit code {how.code}", lines[-1] if lines else "")


def _is_text(code: object) -> bool:
    return isinstance(code, str) and "\0" not in code


def _parse(line: bytes) -> dict[str, Any]:
    """Return an answer: JSON, or a shell's ``ready`` or ``done CODE NUMBER``."""
    if line.startswith(b"{"):
        answer: dict[str, Any] = json.loads(line)
        return answer
    # Plain shells cannot write JSON without a risk; three words they can.
    word, *numbers = line.decode("ascii").split()
    return {word: True, **dict(zip(("exit_code", "number"), map(int, numbers), strict=False))}


def _status(how: Exit, ending: str | None, last_words: str) -> Status:
    if how.ended_by is not None:
        return cast("Status", how.ended_by)
    if ending is not None:
        return cast("Status", ending)
    if how.code == 0:
        return "ok"
    if any(words in last_words for words in _OUT_OF_MEMORY) and (how.signal is not None or how.code in (134, 137)):
        return "memory_limit"
    return "died" if how.code is None else "error"
