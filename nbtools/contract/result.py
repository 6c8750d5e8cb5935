"""What a call gives back: `ToolResult` and its parts.

A tool returns plain JSON data, text, or an `Output` when data is not enough; the door makes the
`ToolResult` from it. Everything here is frozen and picklable, because results cross processes.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import mimetypes
import os
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from nbtools import errors
from nbtools.contract.label import UNLABELLED, Label
from nbtools.errors import NbtoolsError
from nbtools.ground.paths import open_plain
from nbtools.texts import html_parts
from nbtools.texts.other_words import knows_other_arguments
from nbtools.texts.visible import harmless

_SHOWN_TEXT = 20_000
_SHOWN_IMAGE = 8 * 2**20
_MOST_HASHED = 256 * 2**20
_BLOCK = 1 << 20
T_co = TypeVar("T_co", covariant=True)


@knows_other_arguments
@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that a call made.

    Attributes
    ----------
    path
        Absolute path.
    mime
        MIME type, guessed by suffix.
    size
        Bytes.
    sha256
        Of the content, in hexadecimal; `None` when it is too large to be read for that.
    """

    path: str
    mime: str
    size: int
    sha256: str | None = None

    @classmethod
    def from_path(cls, path: str | Path, *, follow_no_links: bool = False, hashed: int = _MOST_HASHED) -> Artifact:
        """Describe an existing file; it is opened once, and read by blocks.

        Parameters
        ----------
        path
            Where it is.
        follow_no_links
            Whether no part of the path may be a link, as for a path that a confined script named.
        hashed
            Size in bytes above which the content is not hashed.

        Raises
        ------
        FileMissing, PathNotAllowed
            It is not there, is not a regular file, or may not be read.
        """
        file = Path(path) if follow_no_links else Path(os.path.realpath(path))
        guessed = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        with os.fdopen(open_plain(file), "rb") as handle:
            size, digest = os.fstat(handle.fileno()).st_size, hashlib.sha256()
            left = size if size <= hashed else 0
            # As much as it had: a file that grows meanwhile has no end.
            while left > 0 and (block := handle.read(min(left, _BLOCK))):
                digest.update(block)
                left -= len(block)
        return cls(path=str(file), mime=guessed, size=size, sha256=digest.hexdigest() if size <= hashed else None)

    def to_dict(self) -> dict[str, Any]:
        """Return path, MIME type and size."""
        return {"path": self.path, "mime": self.mime, "size": self.size}

    def as_base64(self) -> str | None:
        """Return the content in base64; `None` where it cannot be read, because it is gone or was changed."""
        try:
            return base64.b64encode(self.read()).decode()
        except (OSError, NbtoolsError):
            return None

    def read(self) -> bytes:
        """Return the file's content; a link that was put in its place since is not followed.

        Raises
        ------
        FileMissing, PathNotAllowed
            It is gone, or something else is in its place.
        """
        with os.fdopen(open_plain(Path(self.path)), "rb") as handle:
            return handle.read(self.size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorInfo:
    """Why a call failed, as data.

    Attributes
    ----------
    code
        One of `nbtools.errors.CODES`.
    message
        What was found and expected.
    hint
        What to do next.
    retryable
        Whether the same call may succeed when it is tried again.
    """

    code: str
    message: str
    hint: str | None = None
    retryable: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the four fields as a dict."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output(Generic[T_co]):
    """What a tool returns when data is not enough.

    A return annotation tells the type of the data, ``Output[dict[str, int]]``: the output schema is made of it.

    Attributes
    ----------
    data
        Structured result: JSON values.
    text
        What a model or a person reads; `None` renders `data`.
    artifacts
        Files that the call made.
    value
        An object for callers in this process, such as a table; it is not a part of what is recorded or sent.
    """

    data: Any = None
    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    value: Any = None


class CopiesQuickly:
    """What is copied with changes in every call: ``dataclasses.replace`` takes its time."""

    def but(self, **changes: Any) -> Self:
        """Return the same with some of it changed."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolResult(CopiesQuickly):
    """The result of one call.

    Attributes
    ----------
    ok
        Whether the tool did what it promises.
    tool
        Name of the tool as it was called.
    call_id
        Id under which the call is recorded.
    data
        Structured result: dict, list, str, number, bool or `None`. A failed call keeps what it has, such as
        partial output.
    text
        What a model or a person reads.
    error
        `None` on success.
    artifacts
        Files that the call made.
    duration_s
        Seconds from the validation of the arguments to the result.
    said_by_door
        What the door itself says: why the tool did not run, or what the approver of the call changed. The tool had no
        part in it, so no value that it read is in it. It is also in the text, and in no `to_dict`.
    value
        An object for callers in this process, such as the table that a script made; `None` where there is none. It is
        in no `to_dict`.
    label
        What it may hold: text of strangers, values of the person's. It is in no `to_dict`.
    """

    ok: bool
    tool: str
    call_id: str
    data: Any = None
    text: str = ""
    error: ErrorInfo | None = None
    artifacts: tuple[Artifact, ...] = ()
    duration_s: float = 0.0
    said_by_door: str = dataclasses.field(default="", repr=False, compare=False)
    value: Any = dataclasses.field(default=None, repr=False, compare=False)
    label: Label = dataclasses.field(default=UNLABELLED, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr},
            "error": self.error.to_dict() if self.error else None,
            "artifacts": [artifact.to_dict() for artifact in self.artifacts],
            "duration_s": round(self.duration_s, 6),
        }

    def raise_for_error(self) -> ToolResult:
        """Return the result itself, or raise the error it carries.

        Raises
        ------
        NbtoolsError
            The class that belongs to the error's code.
        """
        if self.error is None:
            return self
        raise self.to_error()

    def to_error(self) -> NbtoolsError:
        """Return the failure as an exception; only a failed result has one."""
        assert self.error is not None, "a successful result has no error"
        return _error_class(self.error.code)(
            self.error.message,
            hint=self.error.hint,
            tried=f"calling {self.tool}",
            data=self.data if self.data is None or isinstance(self.data, dict) else {"data": self.data},
            retryable=self.error.retryable,
        )

    def __str__(self) -> str:
        if self.error is None:
            return harmless(self.text)
        lines = [f"{self.tool} failed: {self.error.code}", self.error.message]
        if self.error.hint:
            lines.append(f"→ {self.error.hint}")
        return harmless("\n".join(lines))

    def shown_text(self) -> str:
        """Return the text as a cell shows it: cut where it is long."""
        more = len(self.text) - _SHOWN_TEXT
        return self.text if more <= 0 else f"{self.text[:_SHOWN_TEXT]}\n… {more:,} more characters"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the plain form at an IPython prompt."""
        printer.text(str(self) if self.error else harmless(self.shown_text()))

    def _repr_html_(self) -> str:
        """Render for a notebook: text, pictures, and a footer that tells duration and files."""
        if self.error is None:
            body = html_parts.preformatted(self.shown_text())
        else:
            body = html_parts.error_block(f"{self.tool} failed: {self.error.code}", self.error.message, self.error.hint)
        pictures = "".join(_picture(artifact) for artifact in self.artifacts if artifact.mime.startswith("image/"))
        files = ", ".join(f"{Path(a.path).name} ({a.size:,} B)" for a in self.artifacts)
        facts = (self.tool, f"{self.duration_s * 1000:,.0f} ms", files)
        return f"<div>{body}{pictures}{html_parts.footer(' · '.join(filter(None, facts)))}</div>"


def _error_class(code: str) -> type[NbtoolsError]:
    """Return the class of the error tree that carries a code, the most general one where several do."""
    tree = (kind for kind in NbtoolsError.__subclasses__() if kind.__module__ == errors.__name__)
    return next((kind for kind in tree if kind.code == code), errors.InternalError)


def _picture(artifact: Artifact) -> str:
    if artifact.size > _SHOWN_IMAGE:
        return f"<div>{html.escape(artifact.path)} is too large to show here.</div>"
    content = artifact.as_base64()
    if content is None:
        return f"<div>{html.escape(artifact.path)} is gone.</div>"
    name = html.escape(Path(artifact.path).name)
    return f"<img alt='{name}' style='max-width:100%' src='data:{artifact.mime};base64,{content}'>"
