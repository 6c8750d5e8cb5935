"""Fake kernels for tests: the whole service, sessions and output limits included, without a process.

`FakeKernels` is `nbtools.kernels.Kernels` over a `FakeBackend`. A script is answered by what the test gave for it; any
other Python script runs in a thread of this process, with its own names. So a fake confines nothing, and does not
survive what would end this process. Of the output, what `print` writes is kept, and the value of the last line; a
relative path means the working folder only for `open`; no open figure is saved.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import ctypes
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.errors import LanguageUnavailable
from nbtools.kernels.inside import values
from nbtools.kernels.inside.memory import Memory
from nbtools.kernels.interface import Execution, KernelOptions, RunContext, Status
from nbtools.kernels.runs.ending import Ending
from nbtools.kernels.runs.local import OngoingRun, RunningKernel
from nbtools.kernels.runs.output import Collector
from nbtools.kernels.service import Kernels
from nbtools.texts.python_tree import parse_python

Answers = Mapping[str, str | Execution] | Callable[[str, RunContext], str | Execution | None]
_FILE = "<script>"


class FakeKernels(Kernels):
    r"""Managed kernels that start no process, for tests of what uses kernels.

    Parameters
    ----------
    answers
        What becomes of a script: its standard output, or the whole `Execution`. Either by the text of the script, or a
        function of the text and the `RunContext` around it, which returns `None` for a script that is to be run. Not
        given, or `None`, runs all scripts.
    **options
        As for `Kernels`, except for ``backend``.

    Attributes
    ----------
    codes
        The scripts so far, the first one first.

    Examples
    --------
    >>> with FakeKernels({"ls": "a.csv\n"}) as kernels:
    ...     kernels.run("ls", language="bash").stdout, kernels.run("print(6 * 7)").stdout
    ('a.csv\n', '42\n')
    """

    def __init__(self, answers: Answers | None = None, **options: Any) -> None:
        backend = FakeBackend(answers)
        self.codes = backend.codes
        super().__init__(backend, **{"spares": 0, **options})


class FakeBackend:
    """Open fake kernels; see `FakeKernels` for the answers."""

    name = "fake"

    def __init__(self, answers: Answers | None = None) -> None:
        self.codes: list[str] = []
        self._answers = answers

    async def open(self, options: KernelOptions) -> FakeKernel:
        """Return a kernel; see `nbtools.kernels.interface.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            The language is not Python, and no answers were given.
        """
        if options.language != "python" and self._answers is None:
            hint = "Give the answers to its scripts: FakeKernels({code: output})."
            raise LanguageUnavailable(f"A fake kernel cannot run {options.language}.", hint=hint)
        return FakeKernel(options, self)

    async def close(self) -> None:
        """Do nothing: there is nothing to end."""

    def answer(self, code: str, context: RunContext) -> str | Execution | None:
        """Return what was given for a script, `None` when it is to be run."""
        self.codes.append(code)
        answers = self._answers
        if answers is None:
            return None
        return answers(code, context) if callable(answers) else answers.get(code)


class FakeKernel(RunningKernel["_ThreadRun"]):
    """A kernel whose code runs in a thread of this process; see `nbtools.kernels.interface.Kernel`."""

    pid = None
    alive = True

    def __init__(self, options: KernelOptions, backend: FakeBackend) -> None:
        self.sandbox = options.sandbox
        self._language = options.language
        self._backend = backend
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._run: _ThreadRun | None = None

    async def _begin(self, code: str, collector: Collector, context: RunContext) -> _ThreadRun | Execution:
        answer = self._backend.answer(code, context)
        if answer is None and self._language == "python":
            self._run = _ThreadRun(code, self._names, collector, context)
            self._run.start()
            return self._run
        if answer is None:
            collector.add_error("LookupError", "no answer was given for this script")
            return collector.execution("error", sandbox=self.sandbox)
        if isinstance(answer, str):
            collector.stream("stdout", answer)
            return collector.execution("ok", sandbox=self.sandbox)
        collector.stream("stdout", answer.stdout)
        collector.stream("stderr", answer.stderr)
        for bundle in answer.displays:
            collector.display(bundle)
        return answer

    async def _finish(self, run: _ThreadRun, ending: Ending | None) -> Execution:
        self._run = None
        status: Status = ending or (run.status if self.alive else "died")
        notes = (run.report["value_note"],) if "value_note" in run.report else ()
        return run.collector.execution(status, sandbox=self.sandbox, notes=notes, value=run.report.get("data"))

    async def variables(self) -> list[dict[str, Any]]:
        """Return name and type of what the code has defined."""
        own = {name: value for name, value in self._names.items() if not name.startswith("_")}
        return [{"name": name, "type": type(value).__name__, "text": repr(value)[:80]} for name, value in own.items()]

    async def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the code, at its next step in Python; harmless when nothing runs."""
        if self._run is not None:
            self._run.throw(KeyboardInterrupt)

    async def kill(self) -> None:
        """Give the code up: its thread ends at the next step in Python, and what it prints is dropped."""
        self.alive = False
        if self._run is not None:
            self._run.throw(SystemExit)
            self._run.finish()

    async def _close(self) -> None:
        await self.kill()


class _ThreadRun(OngoingRun):
    """One piece of code in its thread."""

    def __init__(self, code: str, names: dict[str, Any], collector: Collector, context: RunContext) -> None:
        super().__init__(collector)
        self._loop = asyncio.get_running_loop()
        self.status: Status = "ok"
        self._code, self._names, self._context = code, names, context
        self._lock = threading.Lock()
        self._ident: int | None = None
        self.report: dict[str, Any] = {}

    def start(self) -> None:
        threading.Thread(target=self._work, name="nbtools-fake-kernel", daemon=True).start()

    def throw(self, kind: type[BaseException]) -> None:
        """Raise in the thread; a call into C sees it when it returns."""
        with self._lock:
            if self._ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), ctypes.py_object(kind))

    def _work(self) -> None:
        # An interrupt may come when the code has just ended.
        with contextlib.suppress(BaseException):
            self._ident = threading.get_ident()
            try:
                self._execute()
            finally:
                with self._lock:
                    self._ident = None
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self.finish)

    def _execute(self) -> None:
        own_values = values.loaded(self._context.variables, tables=self._context.wants_value)
        earlier = {**self._names, **own_values}
        self._names |= {**own_values, "__builtins__": self._builtins()}
        if self._context.memory is not None:
            self._names["memory"] = _DirectMemory(self._context.memory)
        if self._context.figure_path is not None:
            self._names["output_image_path"] = str(self._context.figure_path)
        try:
            tree = parse_python(self._code, filename=_FILE)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, _FILE, "exec"), self._names)  # noqa: S102 - running it is the purpose
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), _FILE, "eval"), self._names)  # noqa: S307 - same
            if self._context.wants_value:
                self._report(value, earlier)
            if value is not None:
                self._on_loop(lambda: self.collector.display({"text/plain": repr(value)}))
        except SystemExit as exc:
            self._exit(exc.code)
        except BaseException as exc:
            self._fail(exc)

    def _report(self, last: Any, earlier: Mapping[str, Any]) -> None:
        context, names = self._context, self._names
        new = [name for name in context.value_names if name in names and names[name] is not earlier.get(name, ...)]
        value, of = (names[new[0]], new[0]) if new else (last, values.LAST)
        if context.value_folder is not None:
            self.report = values.report(value, str(context.value_folder), of)
        else:
            self.report = values.json_report(value, str(context.cwd or ""), of)

    def _exit(self, code: object) -> None:
        self.collector.exit_code = code if isinstance(code, int) else 0 if code is None else 1
        self.status = "error" if self.collector.exit_code else "ok"
        if isinstance(code, str):
            self._write("stderr", f"{code}\n")

    def _fail(self, exc: BaseException) -> None:
        frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == _FILE]
        line = exc.lineno if isinstance(exc, SyntaxError) else frames[-1].lineno if frames else None
        trace = "".join([*traceback.format_list(frames), *traceback.format_exception_only(exc)])
        self.status = "error"
        self._on_loop(lambda: self.collector.add_error(type(exc).__name__, str(exc), trace, line))

    def _builtins(self) -> dict[str, Any]:
        def show(
            *values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
        ) -> None:
            if not any(file is stream for stream in (None, sys.stdout, sys.stderr)):
                print(*values, sep=sep, end=end, file=file, flush=flush)
                return
            text = io.StringIO()
            print(*values, sep=sep, end=end, file=text)
            self._write("stderr" if file is sys.stderr else "stdout", text.getvalue())

        def open_here(file: Any, *args: Any, **options: Any) -> Any:
            is_path = isinstance(file, str | os.PathLike) and self._context.cwd is not None
            return open(Path(self._context.cwd or ".", file) if is_path else file, *args, **options)  # noqa: PTH123 - the code's own

        def refuse_input(prompt: object = "") -> str:
            raise EOFError("no one can be asked here")

        return {**vars(builtins), "print": show, "open": open_here, "input": refuse_input}

    def _write(self, name: Literal["stdout", "stderr"], text: str) -> None:
        def take() -> None:
            self.collector.stream(name, text)
            if self.collector.is_runaway:
                self.runaway.set()

        self._on_loop(take)

    def _on_loop(self, step: Callable[[], None]) -> None:
        """Do a step on the loop and wait for it, so that the code cannot print faster than is read."""

        async def take() -> None:
            if not self.done.done():
                step()

        future = asyncio.run_coroutine_threadsafe(take(), self._loop)
        # Python 3.11 under a tracer (a debugger, say) lets no traced thread go on while an exception waits for
        # another one: what is thrown into this thread has to arrive, also while it waits for the loop.
        while not future.done():
            with contextlib.suppress(TimeoutError):
                future.result(0.05)
        future.result()


class _DirectMemory(Memory):
    """The memory of a script as kernels offer it, answered in this process."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._memory, name)(*args, **kwargs)
