"""What the tools of the shelf give as data: the types that their output schemas are made of."""

from __future__ import annotations

import sys
from typing import Any, Literal

if sys.version_info >= (3, 12):
    from typing import NotRequired, TypedDict
else:  # pydantic cannot read those of the standard library before
    from typing import NotRequired

    from typing_extensions import TypedDict


class NoteSaved(TypedDict):
    """A note that was saved."""

    key: str
    version: int
    tags: list[str]


class NoteDeleted(TypedDict):
    """A note that was deleted."""

    key: str
    deleted: bool


class NoteFound(TypedDict):
    """A note that fits; a higher score is better."""

    key: str
    value: Any
    tags: list[str]
    score: float


class _Run(TypedDict):
    stdout: str
    stderr: str
    artifacts: list[str]
    duration_s: float
    sandbox: str
    session: NotRequired[str]
    truncated: NotRequired[bool]
    notes: NotRequired[list[str]]


class ScriptRun(_Run):
    """What a script printed and left; `duration` is another name of `duration_s`."""

    duration: float


class SessionCopied(TypedDict):
    """A session that was copied, and its copy."""

    session: str
    copy: str


class SessionStates(TypedDict):
    """Before how many of its last runs a session keeps its state."""

    session: str
    states: int


class SessionUndone(TypedDict):
    """A session that was taken back by some runs, and the files that these wrote, which stay."""

    session: str
    runs: int
    files: list[str]


class Drawing(ScriptRun):
    """What a script printed and left, and the path of its picture."""

    path: str


class CodeRun(_Run):
    """How code went."""

    exit_code: int
    duration_seconds: float
    timed_out: bool
    language: str
    success: bool
    error: NotRequired[str]


class QueryRows(TypedDict):
    """QueryRows of an answer; truncated when there are more."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    notes: NotRequired[list[str]]


class _Hit(TypedDict):
    title: str
    url: str
    snippet: str


class SearchResults(TypedDict):
    """Hits, the best first."""

    results: list[_Hit]


class PageText(TypedDict):
    """A page as text."""

    url: str
    title: str
    content: str
    extracted_text: str
    matches: NotRequired[int]
    truncated: NotRequired[bool]


class HttpAnswer(TypedDict):
    """An answer; error tells a status of 400 or more."""

    status_code: int
    headers: dict[str, str]
    body: str
    error: str | None
    url: str
    body_encoding: NotRequired[str]


class FileContent(TypedDict):
    """A file as text; next_offset when there is more of it."""

    path: str
    content: str
    size: int
    truncated: bool
    next_offset: NotRequired[int]


class FileWritten(TypedDict):
    """A file that was written."""

    path: str
    bytes_written: int


class FileMatches(TypedDict):
    """Paths that fit a pattern."""

    pattern: str
    matches: list[str]
    truncated: bool


class _FolderEntry(TypedDict):
    name: str
    type: Literal["file", "folder", "link", "other"]
    size: int
    modified: str


class FolderEntries(TypedDict):
    """What is in a folder; size in bytes."""

    path: str
    entries: list[_FolderEntry]
    truncated: bool


class FileMoved(TypedDict):
    """A file that was moved."""

    source: str
    dest: str
    success: bool


class FileDeleted(TypedDict):
    """A file that was deleted."""

    path: str
    deleted: bool


class TableWritten(TypedDict):
    """A table that was written."""

    path: str
    rows_written: int
    formulas: int


class ParsedText(TypedDict):
    """The value of a text."""

    parsed: Any


class CommandRun(TypedDict):
    """How a command line went."""

    stdout: str
    stderr: str
    returncode: int


class _ProcessFacts(TypedDict):
    pid: int
    status: Literal["running", "stopped", "exited"]
    returncode: int | None


class ProcessState(_ProcessFacts):
    """A background process; returncode is null while it runs."""

    stdout: str
    stderr: str


class _ProcessRow(_ProcessFacts):
    command: str
    age_s: float


class ProcessList(TypedDict):
    """The background processes; age in seconds."""

    processes: list[_ProcessRow]


class Variables(TypedDict):
    """Environment variables by name."""

    vars: dict[str, str]


class Number(TypedDict):
    """The value of an expression."""

    value: int | float


class Moment(TypedDict):
    """A moment; unix in seconds since 1970."""

    iso: str
    date: str
    time: str
    timezone: str
    unix: int


class Lengths(TypedDict):
    """The lengths of a text."""

    characters: int
    bytes: int
    words: int
