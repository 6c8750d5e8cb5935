"""The end of a script, in the order in which the interpreter ends a program.

The kernel's own process goes on for a moment, so its end is not the script's. After the last statement, tasks of
asyncio are cancelled as `asyncio.run` does; threads that are not daemons and executors are waited for; functions of
`atexit` run, and child processes of multiprocessing are joined; streams are flushed; then the script's names are
deleted, so that their objects are finalized, and files that are still open are closed. The owner lists files and ends
the kernel after that.

An interrupt ends the waiting, and the rest follows: without time left, what was written stays. What is waited for
is told before, because a kernel that must be killed tells nothing.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import logging
import os
import signal
import stat
import sys
import threading
import traceback
import types
import weakref
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

# A task that was cancelled may take a moment for its own end.
_TASK_S = 1.0
# What serves the kernel itself may have tasks in the same loop.
_SERVING = frozenset({"ipykernel", "tornado", "zmq", "IPython", "jupyter_client"})
_TOOLS = (type, types.FunctionType, types.ModuleType, str, int, float, type(None))
_FILES, _IN_MEMORY = (io.IOBase, zipfile.ZipFile), (io.StringIO, io.BytesIO)


class ExitCommand:
    """`exit` and `quit` as in a script: they end the code, not the kernel."""

    def __call__(self, code: object = None) -> None:
        """End the script."""
        raise SystemExit(code)

    def __repr__(self) -> str:
        return "Use exit() to end the script."


def refuse_to_ask(prompt: object = "", *_: Any, **__: Any) -> str:
    """Stand for `input` and `getpass`: there is nobody to answer.

    Raises
    ------
    EOFError
        Always, as in a program whose input has ended.
    """
    purpose = f" for {str(prompt).strip()!r}" if str(prompt).strip() else ""
    raise EOFError(f"no one can be asked{purpose} while a script runs: give it the value in a variable or a file")


class ProgramEnd:
    """The end of the scripts of one kernel.

    Parameters
    ----------
    shell
        IPython's shell.
    tell
        Sends the owner a report.
    """

    def __init__(self, shell: Any, tell: Callable[[dict[str, Any]], None]) -> None:
        self._shell, self._tell = shell, tell
        # With the first large output pyzmq would register what lets go of it, sent or not.
        with contextlib.suppress(ImportError):
            importlib.import_module("zmq.utils.garbage")
        # The kernel's own functions would end it before its reply is sent; from here on they are the script's.
        atexit._clear()  # noqa: SLF001 - the interpreter's own way
        finalizers: Any = weakref.finalize
        for finalizer in list(finalizers._registry):  # noqa: SLF001 - there is no public way
            finalizer.atexit = False
        # The script's first one registers them all.
        finalizers._registered_with_atexit = False  # noqa: SLF001 - there is no public way
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet(threading.enumerate())
        self._streams = (sys.stdout, sys.stderr)
        self._handlers = _handlers()
        self._pid = os.getpid()
        self._left: tuple[str, ...] = ()
        self._is_copy = False
        self._descriptors: set[int] | None = None
        self.settle_in()

    def move_in(self) -> None:
        """Take the threads of a copy for the kernel's own, in its process; what is open there is the session's."""
        self._pid, self._is_copy = os.getpid(), True
        self._threads.update(threading.enumerate())

    @contextlib.contextmanager
    def owning(self) -> Iterator[None]:
        """Take the descriptors that are opened meanwhile for the kernel's own, and forget those that are not open."""
        before = _writing()
        yield
        if self._descriptors is not None and before is not None:
            self._descriptors = (self._descriptors & before) | ((_writing() or set()) - before)

    def settle_in(self) -> None:
        """Take the descriptors that are open now, and the collector's objects, for the kernel's own."""
        if self._is_copy:
            return
        self._descriptors = _writing()
        self.begin()

    def begin(self) -> None:
        """Begin a script in a kernel that nobody used: what is there is the kernel's own."""
        gc.freeze()

    def rehearse(self) -> None:
        """Take the steps that change nothing: the memory they write is copied before a script waits for it."""
        self._running_threads()
        self._flush()
        self._open_files()
        names = dict(self._shell.user_ns)
        self._clear_names()
        self._shell.user_ns.update(names)

    async def run(self, *, patient: bool) -> None:
        """End the script that has come to its last statement, whatever it left.

        Parameters
        ----------
        patient
            Whether it is waited for what goes on by itself.
        """
        # An interrupt is an exception in whatever runs, and here that may be the loop itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        await self._end_tasks()
        signal.signal(signal.SIGINT, self._interrupt)
        self.finish(patient=patient)
        if not self.is_here:
            os._exit(0)

    def finish(self, *, patient: bool = True) -> None:
        """End everything but tasks; see `run`."""
        if patient:
            self._step(self._end_threads, self._running_threads)
        else:
            self._tell_running(self._running_threads())
        # Where it is loaded it is among them, and it has a separate step, after those of the script.
        children = getattr(sys.modules.get("multiprocessing.util"), "_exit_function", None)
        if children is not None:
            atexit.unregister(children)
        self._step(atexit._run_exitfuncs, _running_functions)  # noqa: SLF001 - the interpreter's own way
        if children is not None:
            self._step(children, _running_children)
        # The kernel's own would flush its streams, which are flushed later.
        self._step(lambda: logging.shutdown([one for one in _handlers() if one not in self._handlers]))
        # Daemons go on until the kernel is ended, without the names that they use.
        threading.excepthook = lambda _: None
        self._flush()
        files = self._open_files()
        self._step(self._clear_names)
        if failures := [failure for file in files if (failure := _close(file))]:
            self._tell({"unwritten": failures})
        if self.is_here:
            sys.stdout, sys.stderr = self._streams
        self._flush()

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the kernel, and not one that the script has forked."""
        return os.getpid() == self._pid

    def leave(self, code: int) -> NoReturn:
        """End the script in a process that it has forked: there it goes on to its last statement, and no further."""
        try:
            self.finish()
        finally:
            os._exit(code)

    def _step(self, step: Callable[[], Any], running: Callable[[], str] | None = None) -> None:
        """Take a step, which an interrupt may end; tell what it waits for, and what is still running after that."""
        left, self._is_interrupted = self._left, False
        what = running() if running else ""
        try:
            self._tell_running(what)
            step()
        except KeyboardInterrupt:
            self._is_interrupted = True
        except Exception:
            # The script may have replaced anything; the steps that follow are still worth taking.
            with contextlib.suppress(Exception):
                traceback.print_exc()
        # What prints an exception and goes on, as atexit does, has swallowed the interrupt.
        self._tell_running(((running and running()) or what) if self._is_interrupted else "", left)

    def _interrupt(self, number: int, frame: Any) -> None:
        self._is_interrupted = True
        signal.default_int_handler(number, frame)

    def _tell_running(self, what: str, left: tuple[str, ...] | None = None) -> None:
        """Tell what is still running: `what`, and `left` of earlier steps."""
        before, self._left = self._left, (*(self._left if left is None else left), *filter(None, (what,)))
        if self._left != before:
            self._tell({"running": list(self._left)})

    def tasks(self, loop: Any = None) -> list[Any]:
        """Return the script's tasks in a loop, the running one where none is named."""
        current = asyncio.current_task(loop)
        return [task for task in asyncio.all_tasks(loop) if task is not current and not _is_serving(task)]

    def flush_files(self) -> None:
        """Write what open files hold back, so that two processes do not both write it."""
        for file in self._open_files():
            with contextlib.suppress(Exception):
                file.flush()

    async def _end_tasks(self) -> None:
        """Cancel the script's tasks, as `asyncio.run` does with what ``main`` has left."""
        tasks = self.tasks()
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_TASK_S)
            what = _counted(len(tasks), "task of asyncio", "tasks of asyncio")
            self._tell({"cancelled": f"{what} not awaited and cancelled at the end of the script"})

    def _script_threads(self) -> list[threading.Thread]:
        return [one for one in threading.enumerate() if not one.daemon and one not in self._threads]

    def _running_threads(self) -> str:
        return _counted(len(self._script_threads()), "thread", "threads")

    def _end_threads(self) -> None:
        # Executors tell their threads first that no more work will come.
        for call in reversed(list(getattr(threading, "_threading_atexits", ()))):
            call()
        while threads := self._script_threads():
            threads[0].join()

    def _open_files(self) -> list[Any]:
        """Return what the script left open that may hold back what was written, in the order in which to close it."""
        if self._descriptors is not None and not (_writing() or set()) - self._descriptors:
            return []
        # Not by isinstance, which asks the object: proxies answer for what they stand for.
        files = (one for one in gc.get_objects() if issubclass(type(one), _FILES))
        return sorted((one for one in files if not issubclass(type(one), _IN_MEMORY)), key=_layer)

    def _clear_names(self) -> None:
        """Let go of all that the script named: objects end, connections close."""
        shell = self._shell
        for error in (getattr(shell.last_execution_result, "error_in_exec", None), getattr(sys, "last_value", None)):
            traceback.clear_frames(getattr(error, "__traceback__", None))
        shell.last_execution_result = None
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            sys.__dict__.pop(name, None)
        names, hidden = shell.user_ns, shell.user_ns_hidden
        for name in ("_oh", "Out"):
            names.get(name, {}).clear()
        own = [name for name in names if name not in hidden or names[name] is not hidden[name]]
        # What has a last word goes first, and may use what is still there; then what the rest may use goes last.
        for rank in range(3):
            for name in [name for name in own if _rank(names.get(name)) == rank]:
                names.pop(name, None)
            gc.collect()

    def _flush(self) -> None:
        """Flush the streams that the script put in place of ours, which are flushed after it, and those of C."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                if stream not in self._streams:
                    stream.flush()
        with contextlib.suppress(Exception):
            ctypes.pythonapi.fflush(None)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {many} were" if count > 1 else f"1 {one} was" if count else ""


def _running_functions() -> str:
    return _counted(atexit._ncallbacks(), "function of atexit", "functions of atexit")  # noqa: SLF001 - no public way


def _running_children() -> str:
    children = sys.modules["multiprocessing"].active_children()
    return _counted(sum(not one.daemon for one in children), "child process", "child processes")


def _handlers() -> list[Any]:
    """Return weak references to the handlers of all logs."""
    log: Any = logging
    return list(log._handlerList)  # noqa: SLF001 - what `logging.shutdown` takes


def _is_serving(task: Any) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is None or frame.f_globals.get("__name__", "").partition(".")[0] in _SERVING


def _writing() -> set[int] | None:
    """Return the descriptors of files and pipes that are open for writing; `None` where nobody can say."""
    try:
        import fcntl

        numbers = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names
    except (ImportError, OSError):
        return None
    writing = set()
    for number in numbers:
        with contextlib.suppress(OSError):
            kind = stat.S_IFMT(os.fstat(number).st_mode)
            is_file = kind in {stat.S_IFREG, stat.S_IFIFO, stat.S_IFCHR}
            if is_file and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                writing.add(number)
    return writing


def _rank(value: Any) -> int:
    """Return when a value goes, of three times."""
    if issubclass(type(value), (*_FILES, *_TOOLS)):
        return 2
    return 0 if hasattr(type(value), "__del__") else 1


def _layer(file: Any) -> int:
    """Return how far down a file is: what it writes to lies deeper, and is closed after it."""
    kind = type(file)
    if issubclass(kind, io.TextIOBase):
        return 0
    if issubclass(kind, zipfile.ZipFile):
        return 2
    if kind.__module__ != "_io":
        return 1
    return 3 if issubclass(kind, io.BufferedIOBase) else 4


def _close(file: Any) -> str | None:
    """Close a file; return what could not be written."""
    try:
        file.close()
    except OSError as exc:
        if exc.errno is not None:
            name = getattr(file, "name", None) or getattr(file, "filename", None)
            return f"{name}: {exc.strerror}" if name else str(exc)
    except Exception:
        return None  # what it stands on was closed by its owner
    return None
