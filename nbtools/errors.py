"""Errors: plain values that say who must act, what was found and what to do next.

::

    NbtoolsError                             who must act   code
    ├── InvalidArguments      ValueError      model         INVALID_ARGUMENTS
    │   └── ConfigInvalid                     user          INVALID_ARGUMENTS
    ├── ToolNotFound          KeyError        model         TOOL_NOT_FOUND
    ├── ToolNotEnabled        KeyError        user          TOOL_NOT_ENABLED
    ├── ApprovalDenied        PermissionError human         APPROVAL_DENIED
    │   └── ApprovalPending                   human         APPROVAL_DENIED
    ├── PermissionDenied      PermissionError user          PERMISSION_DENIED
    │   └── SandboxUnavailable                user          PERMISSION_DENIED
    ├── PathNotAllowed        PermissionError model         PATH_NOT_ALLOWED
    ├── FileMissing           FileNotFoundError model       FILE_NOT_FOUND
    ├── FileAlreadyExists     FileExistsError model         FILE_EXISTS
    ├── MemoryNotFound        KeyError        model         MEMORY_NOT_FOUND
    ├── MemoryWriteFailed     OSError         world         MEMORY_WRITE_FAILED
    │   ├── MemoryUnavailable                 user          MEMORY_WRITE_FAILED
    │   │   ├── MemoryClosed  WorkbenchClosed user          CANCELLED
    │   │   └── MemoryDamaged                 user          MEMORY_WRITE_FAILED
    │   └── VersionConflict                   model         MEMORY_WRITE_FAILED
    ├── SqlInvalid            ValueError      model         SQL_INVALID
    ├── SqlNotAllowed         PermissionError model         SQL_NOT_ALLOWED
    ├── SqlFailed             RuntimeError    model         SQL_FAILED
    ├── ExecutionFailed       RuntimeError    model         EXECUTION_FAILED
    ├── CallTimeout           TimeoutError    world         TIMEOUT
    ├── Cancelled             RuntimeError    user          CANCELLED
    ├── WorkbenchClosed       RuntimeError    user          CANCELLED
    ├── LimitExceeded         RuntimeError    model         LIMIT_EXCEEDED
    ├── KernelDied            RuntimeError    world         KERNEL_DIED
    ├── LanguageUnavailable   LookupError     user          LANGUAGE_UNAVAILABLE
    ├── HttpError             OSError         world         HTTP_ERROR
    ├── NetworkError          ConnectionError world         NETWORK_ERROR
    ├── ConfigMissing         RuntimeError    user          CONFIG_MISSING
    │   └── MissingExtra      ImportError     user          CONFIG_MISSING
    ├── ParseError            ValueError      model         PARSE_ERROR
    └── InternalError         RuntimeError    world         INTERNAL

Every leaf also inherits the builtin that a caller would guess. Errors are picklable, because they cross kernels and
worker processes; `NbtoolsError.to_dict` is what others are told, `error_to_wire` their form between our own processes.
In a notebook an error shows three lines: what was tried, what was found, what to do next.

What stops code from outside, a limit of the system or an environment that was removed, becomes such an error by
`of_the_system`: a reader of the bare one looks for a fault in the code, and there is none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

Who = Literal["user", "model", "human", "world"]

RUN_AGAIN = "Run the cell again when you are ready."


class NbtoolsError(Exception):
    """An expected failure, said so that someone can act on it.

    Parameters
    ----------
    message
        What was found and what was expected, in one sentence or a few.
    hint
        What to do next; `None` when there is nothing sensible to say.
    tried
        What was being done, as a phrase such as ``"calling data_analyze"``; the code that knows best fills it in.
    data
        What is worth keeping of the attempt (partial output, the place of the mistake), as JSON-like values.
    retryable
        Whether the same call can succeed when it is simply tried again; `None` takes the class's own answer.
    """

    code: ClassVar[str] = "INTERNAL"
    who: ClassVar[Who] = "world"
    retryable: bool = False

    def __init_subclass__(
        cls, *, code: str | None = None, who: Who | None = None, retryable: bool | None = None, **more: Any
    ) -> None:
        """Set what a class of errors is, where it is another than its parent's."""
        super().__init_subclass__(**more)
        for name, value in {"code": code, "who": who, "retryable": retryable}.items():
            if value is not None:
                setattr(cls, name, value)

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        tried: str | None = None,
        data: Mapping[str, Any] | None = None,
        retryable: bool | None = None,
    ) -> None:
        # What is quoted at the end of a sentence, such as an error of another library, may have a full stop of its own;
        # the folder above is `..`.
        message = message[:-1] if re.search(r"[^\s./\\]\.\.$", message) else message
        Exception.__init__(self, message)
        self.message = message
        self.hint = hint
        self.tried = tried
        self.method: str | None = None
        self.data: dict[str, Any] = dict(data or {})
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        """Return the message and, when there is one, the hint."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by fields: builtin parents would otherwise call ``__init__`` with positional arguments."""
        fields = {name: getattr(self, name) for name in ("hint", "tried", "data", "retryable")}
        return _rebuild, (type(self), self.message, fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as it travels: code, message, hint, retryable."""
        return {name: getattr(self, name) for name in ("code", "message", "hint", "retryable")}

    def three_lines(self, reworded: Callable[[str], str] = str) -> list[str]:
        """Return what was tried, what was found and what to do next, a line each.

        A message that points at places (what, the line, a caret below it) shows these, and the hint below; any other
        message is brought onto one line.

        Parameters
        ----------
        reworded
            Returns the hint as the face that shows it says it; the message may be the person's own text.
        """
        lines = self.message.split("\n")
        advice = [f"→ {reworded(self.hint)}"] if self.hint else []
        if lines[-1].strip() and not lines[-1].strip(" ^"):
            return [*lines, *advice]
        head = ": ".join(filter(None, (type(self).__name__, self.tried or self.method)))
        return [head, " ".join(line.strip() for line in lines if line.strip()), *advice]

    def _render_traceback_(self) -> list[str]:
        """Show three lines instead of a traceback: IPython calls this when the error reaches the prompt."""
        from nbtools.texts.visible import harmless, in_magics

        # Magics are there once the extension is loaded, and commands behind an exclamation mark else.
        has_magics = "nbtools.jupyter.extension" in sys.modules
        return [*map(harmless, self.three_lines(in_magics if has_magics else str))]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or Stop ended the work; `value` is what it returned on the way out, `None` when nothing."""

    def __init__(self, value: Any = None) -> None:
        super().__init__("stopped by the user")
        self.value = value

    def _render_traceback_(self) -> list[str]:
        """Show three lines: where in nbtools it was concerns nobody."""
        message = "you stopped it; what it did until then stays."
        return Cancelled(message, hint=RUN_AGAIN, tried="running the cell").three_lines()


def _rebuild(cls: type[NbtoolsError], message: str, fields: dict[str, Any]) -> NbtoolsError:
    return cls(message, **fields)


# Of two letters in three, or two words in three, that agree.
_NEAR = 0.62
_LONGEST = 200  # comparing letters takes a time that grows with both names


def first_line(exc: BaseException) -> str:
    """Return the first line of what another library's error says, cut where it is long."""
    return str(exc).strip().split("\n", maxsplit=1)[0][:300]


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that resembles `name` most, in its letters or in its words, or `None`.

    Examples
    --------
    >>> nearest("calculater", ["calculator", "file_read"]), nearest("read_file", ["calculator", "file_read"])
    ('calculator', 'file_read')
    """
    if len(name) > _LONGEST:
        return None
    import difflib

    words = _words(name)
    # The letters as they stand, and in the order of the words: a word may be swapped, and have a slip in it. The dashes
    # that all options begin with make none of them alike.
    matchers = [difflib.SequenceMatcher(b=text) for text in (name.casefold().lstrip("-"), " ".join(words))]
    best, best_name = 0.0, None
    for candidate in sorted(names):
        theirs = _words(candidate)
        likeness = 2 * len({*words} & {*theirs}) / (len(words) + len(theirs) or 1)
        for matcher, text in zip(matchers, (candidate.casefold().lstrip("-"), " ".join(theirs)), strict=True):
            matcher.set_seq1(text)
            if matcher.real_quick_ratio() > likeness and matcher.quick_ratio() > max(likeness, best):
                likeness = max(likeness, matcher.ratio())
        if likeness >= _NEAR and likeness > best:
            best, best_name = likeness, candidate
    return best_name


def did_you_mean(name: str, names: Iterable[str], otherwise: str | None = None, *, form: str = "{!r}") -> str | None:
    """Return the hint that offers the known name which resembles `name` most, or `otherwise` when none does.

    `form` is how the known name is written, as `str.format` takes it.
    """
    close = nearest(name, names)
    return otherwise if close is None else f"Did you mean {form.format(close)}?"


def _words(name: str) -> list[str]:
    return sorted({word.casefold() for word in re.findall(r"[^\W_]+", name)})


class InvalidArguments(NbtoolsError, ValueError, code="INVALID_ARGUMENTS", who="model"):
    """The arguments of a call do not fit: missing, extra, of a wrong type or out of range."""


class ConfigInvalid(InvalidArguments, who="user"):
    """A setting has an unknown name or a value that does not fit."""


class ToolNotFound(NbtoolsError, KeyError, code="TOOL_NOT_FOUND", who="model"):
    """No tool has that name."""


class ToolNotEnabled(NbtoolsError, KeyError, code="TOOL_NOT_ENABLED", who="user"):
    """The tool exists but is not among those this caller may use."""


class ApprovalDenied(NbtoolsError, PermissionError, code="APPROVAL_DENIED", who="human"):
    """The gate asked and the answer was no, or there was no one to ask."""


class ApprovalPending(ApprovalDenied):
    """The gate asked and the answer was "later": the call has not run, and may run when it is answered."""


class PermissionDenied(NbtoolsError, PermissionError, code="PERMISSION_DENIED", who="user"):
    """A policy or the operating system refuses the action."""


class SandboxUnavailable(PermissionDenied):
    """A level of confinement was asked for that this host cannot enforce."""


class PathNotAllowed(NbtoolsError, PermissionError, code="PATH_NOT_ALLOWED", who="model"):
    """A path leads outside the allowed roots."""


class FileMissing(NbtoolsError, FileNotFoundError, code="FILE_NOT_FOUND", who="model"):
    """A file that the call needs does not exist or cannot be read."""


class FileAlreadyExists(NbtoolsError, FileExistsError, code="FILE_EXISTS", who="model"):
    """The destination exists and the call did not allow to replace it."""


class MemoryNotFound(NbtoolsError, KeyError, code="MEMORY_NOT_FOUND", who="model"):
    """No memory item matches."""


class MemoryWriteFailed(NbtoolsError, OSError, code="MEMORY_WRITE_FAILED", who="world"):
    """A memory item was not stored."""


class MemoryUnavailable(MemoryWriteFailed, who="user"):
    """The memory store is unavailable: read-only, locked, damaged or out of reach."""


class MemoryDamaged(MemoryUnavailable):
    """The file of the memory store cannot be read as what it was written."""


class VersionConflict(MemoryWriteFailed, who="model"):
    """A compare-and-set found another version than the caller expected."""


class SqlInvalid(NbtoolsError, ValueError, code="SQL_INVALID", who="model"):
    """The text is not a statement that the engine can parse or bind."""


class SqlNotAllowed(NbtoolsError, PermissionError, code="SQL_NOT_ALLOWED", who="model"):
    """The statement is not read-only, or reads what it may not."""


class SqlFailed(NbtoolsError, RuntimeError, code="SQL_FAILED", who="model"):
    """An allowed statement failed while it ran."""


class ExecutionFailed(NbtoolsError, RuntimeError, code="EXECUTION_FAILED", who="model"):
    """A script raised, or did not do what its tool promises."""


class CallTimeout(NbtoolsError, TimeoutError, code="TIMEOUT", who="world"):
    """The work exceeded its time."""


class Cancelled(NbtoolsError, RuntimeError, code="CANCELLED", who="user"):
    """The user, or the caller's own cancellation, stopped the work."""


class WorkbenchClosed(NbtoolsError, RuntimeError, code="CANCELLED", who="user"):
    """A workbench was used after it was closed."""


class MemoryClosed(MemoryUnavailable, WorkbenchClosed, code="CANCELLED"):
    """A memory was used after it, or its workbench, was closed."""


class LimitExceeded(NbtoolsError, RuntimeError, code="LIMIT_EXCEEDED", who="model"):
    """A cap on size, memory, processes or depth was reached."""


class KernelDied(NbtoolsError, RuntimeError, code="KERNEL_DIED", who="world", retryable=True):
    """A managed kernel ended before it answered."""


class LanguageUnavailable(NbtoolsError, LookupError, code="LANGUAGE_UNAVAILABLE", who="user"):
    """The interpreter of a language is not installed, or the language is unknown."""


class HttpError(NbtoolsError, OSError, code="HTTP_ERROR", who="world"):
    """A server answered with an error status."""


class NetworkError(NbtoolsError, ConnectionError, code="NETWORK_ERROR", who="world", retryable=True):
    """A server could not be reached, or the connection broke."""


class ConfigMissing(NbtoolsError, RuntimeError, code="CONFIG_MISSING", who="user"):
    """A key or a setting that the feature needs is not set."""


class MissingExtra(ConfigMissing, ImportError):
    """An optional package that the feature needs is not installed."""


class ParseError(NbtoolsError, ValueError, code="PARSE_ERROR", who="model"):
    """A text is not of the format that was promised."""


class InternalError(NbtoolsError, RuntimeError, code="INTERNAL", who="world"):
    """A fault of nbtools or of a tool's own code, not of the call."""


CODES = tuple(dict.fromkeys(kind.code for kind in NbtoolsError.__subclasses__()))
"""The codes of all errors, each once."""


def error_to_wire(exc: NbtoolsError) -> dict[str, Any]:
    """Return an error as a JSON object, for another process of nbtools."""
    fields = {name: getattr(exc, name) for name in ("message", "hint", "tried", "data", "retryable")}
    return {"class": type(exc).__name__, **fields}


def error_from_wire(fields: Mapping[str, Any]) -> NbtoolsError:
    """Return the error that an object of `error_to_wire` describes; a class that is unknown here is `InternalError`."""
    kind_named = globals().get(str(fields.get("class")))
    kind = kind_named if isinstance(kind_named, type) and issubclass(kind_named, NbtoolsError) else InternalError
    more = {name: fields.get(name) for name in ("hint", "tried", "data", "retryable")}
    return kind(str(fields.get("message")), **more)


# What there is no more of, the limit of a process, and where it is set.
_LIMITS = {
    errno.EMFILE: ("open files", "RLIMIT_NOFILE", "ulimit -n"),
    errno.ENFILE: ("open files", "", "fs.file-max of the whole machine"),
    errno.EAGAIN: ("processes and threads", "RLIMIT_NPROC", "ulimit -u, or a container's pids limit"),
    errno.ENOMEM: ("memory", "RLIMIT_AS", "ulimit -v, or a container's limit of memory"),
    errno.EFBIG: ("bytes in one file", "RLIMIT_FSIZE", "ulimit -f"),
    errno.ENOSPC: ("room on the disk", "", "the size of the disk"),
    errno.EDQUOT: ("room on the disk", "", "your quota"),
}
_NOT_MAPPED = "failed to map segment from shared object"  # the words of the C library, which hands on no number


def of_the_system(exc: BaseException) -> NbtoolsError | None:
    """Return the error that says what is missing around the code; `None` where the code itself is at fault."""
    if isinstance(exc, NbtoolsError):
        return None  # it speaks for itself
    if isinstance(exc, ImportError | OSError) and not os.path.exists(sys.prefix):  # noqa: PTH110 - nothing else here needs pathlib
        return ConfigMissing(
            f"it needs the Python environment {sys.prefix}, which was removed or moved: {exc}",
            hint="Put it back, or start the kernel of this notebook again with another one.",
        )
    what, limit, where = _LIMITS.get(_number(exc), ("", "", ""))
    if not what:
        return None
    file = f" ({exc.filename})" if isinstance(exc, OSError) and exc.filename else ""
    most = _limit(limit)
    return LimitExceeded(
        f"the system gives this process no more {what}{file}.",
        hint=f"Close or remove what is not needed, or raise the limit ({where}{f'; here {most:,}' if most else ''}).",
    )


@contextlib.contextmanager
def circumstances() -> Iterator[None]:
    """Raise what comes from around the code in the block as the error that says so; a Stop in it stays a Stop."""
    try:
        yield
    except (ImportError, OSError, MemoryError, RuntimeError) as exc:
        # Stopped in the middle, Python lets a lock go or closes a folder once more, which fails.
        if isinstance(exc.__context__, KeyboardInterrupt) and not isinstance(exc, NbtoolsError):
            raise exc.__context__ from None
        if (circumstance := of_the_system(exc)) is None:
            raise
        raise circumstance from exc


def _number(exc: BaseException) -> int:
    if isinstance(exc, MemoryError) or (isinstance(exc, ImportError) and _NOT_MAPPED in str(exc)):
        return errno.ENOMEM
    if isinstance(exc, OSError):
        return exc.errno or 0
    # Python has no separate kind for a thread that cannot be started; only its place tells it.
    import threading
    import traceback

    start = threading.Thread.start.__code__
    is_of_start = any(frame.f_code is start for frame, _ in traceback.walk_tb(exc.__traceback__))
    return errno.EAGAIN if isinstance(exc, RuntimeError) and is_of_start else 0


def _limit(name: str) -> int | None:
    """Return a limit of this process; `None` where it has none."""
    # Windows has no such module, systems lack some limits, and it may be a file too many.
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import resource

        soft, _ = resource.getrlimit(getattr(resource, name))
        return soft if 0 <= soft < 1 << 62 else None
    return None
