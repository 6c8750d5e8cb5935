"""The one interface of all backends: what opens a kernel, what a kernel can do, and the records that travel.

A `Backend` opens kernels by `KernelOptions`; a `Kernel` runs one piece of code at a time and says what happened in an
`Execution`. Everything above (leases, sessions, tools, magics, the monitor) knows only these names, so a kernel may be
a fork, a separate process, a shell, or a machine far away.

All coroutines run on the nbtools loop (`nbtools.ground.aio`). `run` never raises for what the code does: an exception
in the script, a timeout, a stop, the kernel's death are all statuses. Cancelling `run` is the Stop button: it
interrupts, kills after the grace, and *returns* the execution so far with status ``"stopped"``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from nbtools.errors import CallTimeout, Cancelled, ExecutionFailed, KernelDied, LimitExceeded, NbtoolsError
from nbtools.texts import html_parts
from nbtools.texts.shown import STREAMS, ShownOutput, read_text
from nbtools.texts.visible import brief, counted, visible

if TYPE_CHECKING:
    from nbtools.confine import Level

Status = Literal[
    "ok",
    "error",
    "timeout",
    "stopped",
    "died",
    "output_limit",
    "memory_limit",
    "process_limit",
    "file_limit",
]
Kind = Literal["stdout", "stderr", "display", "update", "clear", "error", "progress"]
DISPLAY_ID = "display_id"
"""Under this, the bundle of a display tells the name by which an ``"update"`` replaces it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputPiece:
    """One piece of output, handed to ``on_output`` as it appears.

    Attributes
    ----------
    kind
        Where it belongs.
    text
        The text of a stream, or the plain form of a display or an error; of a ``"clear"``, whether it comes with what
        takes the place of all before (``"wait"``).
    data
        The MIME bundle of a display or an update, which may have a `DISPLAY_ID`; `None` for anything else.
    """

    kind: Kind
    text: str = ""
    data: dict[str, Any] | None = None


BEGAN_EMPTY = "began empty: "
"""Beginning of a note that is told before the output: the code did not find what an earlier run had left."""
CHANGED_MEANWHILE = "changed meanwhile"
"""Beginning of a note that is told before the output: it names files that may be another script's."""
CANNOT_UNDO = "this run cannot be undone: "
"""Beginning of a note that is told before the output: why the state before the run was not kept."""
STATES_GONE = "the oldest states for an undo were given up"
"""Beginning of a note that is told before the output: what the session lost since its last run."""
STATES_ENDED = "an undo cannot go back to "
"""Beginning of a note that is told before the output: how many of the kept states have ended."""
TOLD_BEFORE = (BEGAN_EMPTY, CHANGED_MEANWHILE, CANNOT_UNDO, STATES_GONE, STATES_ENDED)
"""Beginnings of the notes that a cell has shown when its output comes."""
STILL_RUNNING = " still running"
"""End of a note that names what had not ended when the time was over."""
OnOutput = Callable[[OutputPiece], None]
_SHOWN = 20_000  # characters of an execution's output in a notebook
# Signals by which a process ends itself, or its own fault ends it.
_CRASHES = frozenset({"SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"})
_LIMIT_HINTS = {
    "memory_limit": "Read less at once: fewer columns, chunks, or SQL over the file.",
    "output_limit": "Print less: a summary, or the first rows.",
    "process_limit": "Start fewer processes.",
    "file_limit": "Write less, and delete what is not needed any more: all files together count.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorDetail:
    """An exception that ended the code.

    Attributes
    ----------
    name
        Class name, such as ``"ZeroDivisionError"``.
    value
        Message, such as ``"division by zero"``.
    traceback
        The traceback as text, without colour codes; empty when the language has none.
    line
        The line of the script itself that failed, counted from 1; `None` when it is not known.
    cell
        The cell of a notebook that failed, counted from 1; `None` for any other code.
    """

    name: str
    value: str
    traceback: str = ""
    line: int | None = None
    cell: int | None = None

    def __str__(self) -> str:
        """Return ``line 3: ZeroDivisionError: division by zero``."""
        head = f"{self.name}: {self.value}" if self.value else self.name
        where = [f"{what} {number}" for what, number in (("cell", self.cell), ("line", self.line)) if number]
        return f"{', '.join(where)}: {head}" if where else head


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Execution:
    """What became of one piece of code.

    Attributes
    ----------
    status
        ``"ok"`` and ``"error"`` speak of the code; the others say what ended it. After ``"timeout"``, ``"stopped"``,
        ``"died"`` and the four limits the output is what had arrived.
    outputs
        All that was shown, in the order in which it came, cut at the caps: pairs of ``"stdout"``, ``"stderr"`` or
        ``"display"`` and a text or a MIME bundle. Where none are given they are made of the three that follow.
    stdout
        The text written to standard output.
    stderr
        The text written to standard error.
    displays
        MIME bundles in order of appearance: type to data, as in a notebook cell.
    error
        The exception, when status is ``"error"``.
    duration_s
        Seconds from sending the code to its end.
    exit_code
        Exit code of the process; `None` for a kernel that lives on. A shell or Node.js run always has one.
    signal
        Name of the signal that ended the process, such as ``"SIGKILL"``; `None` where none did.
    truncated
        Whether output was dropped because a cap was reached.
    artifacts
        Files in its working folder that changed while the code ran, where they are now, without those of which it is
        known that others alone wrote them.
    folder
        The folder of the owner to which `artifacts` were taken; `None` when they lie where the code wrote them.
    figure
        Where the picture is now; `None` when none was asked for, or none was written.
    sandbox
        The level really in force: ``"off"``, ``"limits"`` or ``"strict"``.
    language
        The language that was asked for.
    session
        The session that was asked for; `None` for a lease.
    notes
        Sentences for the reader, such as that a session's state was lost.
    value
        The value of the last expression as JSON, where it was asked for; `None` where there is none. A table is a
        mapping: ``parquet`` (a file among the artifacts), ``columns``, ``row_count`` and the first 1,000 ``rows``.
        Where names for it were given, the object itself: a table, an array, a figure, or JSON.
    others
        Names of files in the folders of `RunContext.watched` that the kernel's own process has not changed, and another
        one has; `None` if unknown.
    has_children
        Whether that may be one that the code has started.
    """

    status: Status
    outputs: tuple[ShownOutput, ...] = ()
    stdout: str = ""
    stderr: str = ""
    displays: tuple[dict[str, Any], ...] = ()
    error: ErrorDetail | None = None
    duration_s: float = 0.0
    exit_code: int | None = None
    signal: str | None = None
    truncated: bool = False
    artifacts: tuple[Path, ...] = ()
    folder: Path | None = None
    figure: Path | None = None
    sandbox: str = "off"
    language: str = "python"
    session: str | None = None
    notes: tuple[str, ...] = ()
    value: Any = None
    others: frozenset[str] | None = None
    has_children: bool = False

    def __post_init__(self) -> None:
        parts_shown = (("stdout", self.stdout), ("stderr", self.stderr), *(("display", each) for each in self.displays))
        outputs = self.outputs or tuple((kind, what) for kind, what in parts_shown if what)
        parts = {name: "".join(what for kind, what in outputs if kind == name) for name in STREAMS}
        displays = tuple(what for kind, what in outputs if kind == "display")
        for name, value in {"outputs": outputs, "displays": displays, **parts}.items():
            object.__setattr__(self, name, value)  # frozen, and these are one thing

    def text(self, streams: Sequence[str] = STREAMS) -> str:
        """Return what was shown as a text, in its order, with these streams."""
        return read_text(self.outputs, streams)

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end without an exception."""
        return self.status == "ok"

    def raise_for_error(self) -> Execution:
        """Return the execution itself, or raise the error that its status stands for.

        Raises
        ------
        ExecutionFailed
            The code raised, or ended with another exit code than 0.
        CallTimeout, Cancelled, KernelDied, LimitExceeded
            Something else ended it; ``data`` of the error has the output so far.
        """
        error = self.to_error()
        if error is None:
            return self
        raise error

    def to_error(
        self,
        *,
        timeout: float | None = None,
        hint: str | None = None,
        script: str = "",
        data: Mapping[str, Any] | None = None,
    ) -> NbtoolsError | None:
        """Return the error that the status stands for; `None` when all went well.

        Parameters
        ----------
        timeout
            Seconds that were allowed; `None` names those that it ran.
        hint
            What to do next when the code itself raised.
        script
            The code, of which the line that raised is quoted.
        data
            Data of the error; `None` takes both streams, the status and the seconds.
        """
        data = {**(data if data is not None else self._outline())}
        match self.status:
            case "ok":
                return None
            case "error":
                return ExecutionFailed(self.error_message(script), hint=hint, data=data | self._failure())
            case "timeout":
                more = "Allow more with timeout (seconds), or do less at once."
                message = f"timed out after {timeout or round(self.duration_s, 2):g} s{running_note(self.notes)}"
                return CallTimeout(message, hint=more, data=data)
            case "stopped":
                return Cancelled("the script was stopped.", data=data)
            case "died":
                return self._death(data)
        limit = f"the script reached its {self.status.removesuffix('_limit')} limit and was ended."
        return LimitExceeded(limit, hint=_LIMIT_HINTS.get(self.status), data=data)

    def error_message(self, script: str = "") -> str:
        """Return what the code said of its failure: its exception and line, or its exit code and last words.

        Parameters
        ----------
        script
            The code, of which the line that raised is quoted.
        """
        if self.error is not None:
            line = script.split("\n")[self.error.line - 1 :][:1] if self.error.line else []
            return f"{self.error} (in: {brief(line[0])})" if line and line[0].strip() else str(self.error)
        last = self.stderr.strip().splitlines()[-1:]
        ended = f"the script ended with exit code {self.exit_code}"
        return f"{ended}: {last[0]}" if last else f"{ended}."

    def _outline(self) -> dict[str, Any]:
        outline = {"status": self.status, "stdout": self.stdout, "stderr": self.stderr}
        return {**outline, "duration_s": round(self.duration_s, 6)}

    def _failure(self) -> dict[str, Any]:
        if self.error is None:
            return {"exit_code": self.exit_code}
        return {"error_name": self.error.name, "line": self.error.line, "traceback": self.error.traceback}

    def _death(self, data: dict[str, Any]) -> KernelDied:
        if self.exit_code is not None:
            message = f"the script ended its process, with exit code {self.exit_code}."
            hint = "Leave out what ends the process at once, such as os._exit: sys.exit ends a script with its files."
            return KernelDied(message, hint=hint, data=data, retryable=False)
        if self.signal in _CRASHES:
            hint = "The code, or a library, ended its own process, perhaps for want of memory: try it in smaller steps."
            return KernelDied(f"the script crashed: {self.signal} ended its process.", hint=hint, data=data)
        how = f"by {self.signal}" if self.signal else "for no known reason"
        hint = "The script sent itself that signal, or another program did, or the system was short of memory."
        return KernelDied(f"the kernel died, {how}.", hint=hint, data=data)

    def _summary(self) -> str:
        session = f"session {self.session}" if self.session else ""
        files = counted(len(self.artifacts), "file") if self.artifacts else ""
        facts = (self.status, self.language, session, f"{self.duration_s:.3g} s", files, "cut" * self.truncated)
        return " · ".join(filter(None, facts))

    def __repr__(self) -> str:
        texts = {"stdout": self.stdout, "stderr": self.stderr, "shown": self.text(()), "error": str(self.error or "")}
        details = "".join(f", {name}={brief(text)!r}" for name, text in texts.items() if text)
        return f"Execution({self._summary()}{details})"

    def _repr_html_(self) -> str:
        """Render for a notebook: both streams and the error, cut where they are long, and a line of facts."""
        text = self.text().rstrip("\n")
        more = len(text) - _SHOWN
        text = visible(text[:_SHOWN], lines=True) + (f"\n… {more:,} more characters" if more > 0 else "")
        error = self.to_error()
        failure = html_parts.error_block(type(error).__name__, visible(error.message, lines=True)) if error else ""
        return f"<div>{html_parts.preformatted(text)}{failure}{html_parts.footer(self._summary())}</div>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputLimits:
    """How much output one run may make; what is beyond is dropped and `Execution.truncated` is set.

    Attributes
    ----------
    text_bytes
        Both streams together, in UTF-8.
    display_bytes
        All MIME bundles together.
    """

    text_bytes: int = 4_000_000
    display_bytes: int = 20_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """The options of a kernel. Kernels with equal options are interchangeable, so the pool stores spares by options.

    Attributes
    ----------
    language
        ``"python"``, ``"bash"``, ``"node"``, …, or ``"kernel:NAME"`` for an installed kernelspec.
    sandbox
        The level of confinement the child puts itself under.
    network
        Whether new connections are allowed; enforced in ``strict`` only.
    cwd
        The working folder. It is fixed for a strict kernel, because that is where it may write.
    read_paths
        Folders or files that a strict kernel may read, besides the system, Python and its working folder.
    write_paths
        Folders or files that a strict kernel may write, besides its working folder.
    closed
        Folders that stay closed to it, unless one of those lies within.
    lasting
        Whether it is to run more than one piece of code, for a session. Kernels of Python always can; a shell or
        Node.js that need not last is one process per script, as on a command line.
    memory_bytes
        Bytes of memory of the kernel and everything it starts. This limit and the next three hold in ``limits`` and
        ``strict``; `None` sets none.
    processes
        How many processes the kernel and everything it starts may be.
    cpu_s
        Seconds of processor time.
    file_bytes
        Bytes of any one file, and bytes by which the folders that it may write may grow in all.
    """

    language: str = "python"
    sandbox: Level = "limits"
    network: bool = True
    cwd: Path | None = None
    read_paths: tuple[Path, ...] = ()
    write_paths: tuple[Path, ...] = ()
    closed: tuple[Path, ...] = ()
    lasting: bool = False
    memory_bytes: int | None = None
    processes: int | None = None
    cpu_s: int | None = None
    file_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunContext:
    """What one run finds around it, given afresh each time.

    Attributes
    ----------
    cwd
        The folder to change to and to put on the import path first; `None` stays where the kernel is.
    variables
        Global names to define before the code runs; values are JSON. A shell gets them as environment variables
        (text as it is, anything else as JSON), Node.js as globals.
    files
        Input files, or folders of them, that the variables name. A kernel on another machine gets copies of them.
    links
        Files that a Python kernel finds in its working folder too, as links: relative path there to the file.
    figure_path
        Where to save the open figure when the code did not write that file itself, absolute; `None` saves nothing. A
        Python kernel finds it in ``output_image_path``.
    memory
        The object that serves ``memory`` inside a Python kernel: its methods are called in this process, with what
        the code passed. `None` grants no memory. Kernels of other languages ignore it.
    wants_value
        Whether a Python kernel sends the value of the last expression too. A variable that is a mapping with the one
        key ``__parquet__`` is read from that file then.
    ends
        What ends with the code: the ``"script"`` that it is, in an unused kernel, or a ``"session"``; empty
        when more code follows. Then threads are waited for, functions of `atexit` run, and open files are closed.
    watched
        Folders in which a Python kernel looks whether other programs write there, too.
    """

    cwd: Path | None = None
    variables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    files: tuple[Path, ...] = ()
    links: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    figure_path: Path | None = None
    memory: Any = None
    wants_value: bool = False
    value_names: tuple[str, ...] = ()
    value_folder: Path | None = None
    ends: Literal["", "script", "session"] = ""
    watched: tuple[Path, ...] = ()


@runtime_checkable
class Kernel(Protocol):
    """One place where code runs: a process, or a kernel on another machine.

    `run` is called by the session or lease that owns the kernel, never twice at once. After `kill`, or when `alive`
    has become false, nothing but `close` is called.
    """

    @property
    def pid(self) -> int | None:
        """The process id on this machine; `None` for a remote kernel."""

    @property
    def alive(self) -> bool:
        """Whether it can run code; false as soon as the death of its process is known."""

    @property
    def sandbox(self) -> str:
        """The level of confinement really in force."""

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = 300.0,
        grace: float = 2.0,
        on_output: OnOutput | None = None,
        limits: OutputLimits = OutputLimits(),
        context: RunContext = RunContext(),
    ) -> Execution:
        """Run code and return what became of it.

        Parameters
        ----------
        code
            The text to run, of any length.
        timeout
            Seconds until the code is interrupted; `None` never does.
        grace
            Seconds between the interrupt and the kill, for a timeout and a stop alike.
        on_output
            Called for each piece of output as it arrives, on the nbtools loop or, with a long one, in a thread.
        limits
            How much output is kept.
        context
            Folder, variables and figure of this run.
        """

    async def interrupt(self) -> None:
        """Interrupt the running code, as Ctrl-C does; harmless when nothing runs."""

    async def kill(self) -> None:
        """End the kernel and everything it started, at once; a `run` under way returns."""

    async def close(self) -> None:
        """End it and release all that belongs to it: processes, sockets, files. Harmless when repeated."""


@runtime_checkable
class Backend(Protocol):
    """A way to have kernels."""

    @property
    def name(self) -> str:
        """``"forked"``, ``"spawned"``, ``"process"`` or ``"gateway"``."""

    async def open(self, options: KernelOptions) -> Kernel:
        """Start a kernel and return it when it is ready to run code.

        Raises
        ------
        LanguageUnavailable
            The language is unknown, or its interpreter is not installed; the hint tells how to get it.
        SandboxUnavailable
            The level asked for cannot be enforced on this host.
        KernelDied
            It ended before it was ready.
        """

    async def close(self) -> None:
        """End all kernels of this backend and release what it holds. Harmless when repeated."""


def running_note(notes: Iterable[str]) -> str:
    """Return what had not ended when the time was over, to be put behind a sentence that says so; often empty."""
    return "".join(f"; {note}" for note in notes if note.endswith(STILL_RUNNING))
