"""Files that change while they are read: an answer is of one state of them, or it is an error."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from nbtools.errors import NbtoolsError, SqlFailed, SqlInvalid
from nbtools.ground.paths import stamp_of
from nbtools.sql.call import Call
from nbtools.sql.results.result import FileNote
from nbtools.sql.verdict.edits import TextEdit

# A log grows by so much while it is read. A file that is written from its beginning grows by more, or becomes shorter.
_LITTLE, _GROWN = 1.1, "grown"
# Who writes a file pauses for less, most often; a longer pause cannot be told from the end.
_PAUSE_NS = 20_000_000
_WAY = (
    "Ask again when the program that writes it has finished. A program that writes another file and then renames it"
    " (os.replace) disturbs no reader."
)
Stamp = tuple[int, int, int, int]
"""Of a file its number, size and time, and the time of its folder."""
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextReading:
    """What runs in place of a text.

    Attributes
    ----------
    sql
        The text to run.
    edits
        Where it differs from the one that was written.
    notes
        What is to be told of its files.
    stamps
        What told its files from others, before they were looked at.
    is_plain
        Whether it surely may run where the judged text may: it reads the same files by options that are written out.
    """

    sql: str
    edits: tuple[TextEdit, ...] = ()
    notes: tuple[FileNote, ...] = ()
    stamps: Mapping[Path, Stamp] = dataclasses.field(default_factory=dict)
    is_plain: bool = False

    def changes(self) -> tuple[FileNote, ...]:
        """Return what is to be told of the files that are not what they were when they were looked at."""
        return tuple(FileNote(path.name, f"{change} while it was read") for path, change in self._changed().items())

    def _changed(self) -> dict[Path, str]:
        pairs = ((path, stamp, stamp_in_folder(path)) for path, stamp in self.stamps.items())
        return {path: _change(before, now) for path, before, now in pairs if before[:3] != now[:3]}

    def explain(self, error: NbtoolsError) -> None:
        """Let an error say which files changed while they were read."""
        if (changed := self._changed()) and _GROWN not in error.data:
            parts = (f"{path.name} {change} while it was read." for path, change in changed.items())
            error.message, error.retryable = " ".join((*parts, error.message)), True
            error.data = {**error.data, _GROWN: {path for path, change in changed.items() if change == "grew"}}

    def raise_if_changed(self, *, again: bool) -> None:
        """Raise where a file is not what it was when it was looked at: what was read may be of two states of it.

        One that was replaced, by another name, was whole before and is now; when it is read again, that will do.
        """
        last_write = max((stamp[2] for stamp in self.stamps.values()), default=0)
        if 0 < (wait := last_write + _PAUSE_NS - time.time_ns()) <= _PAUSE_NS:
            time.sleep(wait / 1e9)
        if any(not again or change != "was replaced" for change in self._changed().values()):
            error = SqlFailed("Rows may be missing or cut.", hint=_WAY, tried="running SQL")
            self.explain(error)
            raise error


def stamp_in_folder(path: Path) -> Stamp:
    """Return what tells a file from what it was, and the time of its folder, which a renamed file changes."""
    return (*stamp_of(path), stamp_of(path.parent)[2])


def _change(before: Stamp, now: Stamp) -> str:
    """Return what happened to a file that is not what it was."""
    # A number may come again where a file is renamed over another one, which changes the folder.
    if now[0] and (before[0], before[3]) != (now[0], now[3]):
        return "was replaced"
    return "grew" if before[1] < now[1] <= _LITTLE * before[1] else "changed"


def read_steadily(read: Callable[[Call], T], call: Call) -> T:
    """Return what a call reads; once more where a file changed meanwhile, unless rows were handed on already.

    Where a file only grew both times, as a log does, its whole lines are copied and read.
    """
    grown = set[Path]()
    while True:
        try:
            return read(call)
        except (SqlFailed, SqlInvalid) as exc:
            if not exc.retryable or call.growing or getattr(call.request.on_rows, "parts", False):
                raise
            before, grown = grown, exc.data.get(_GROWN, set())
            if call.growing is not None and not before & grown:
                exc.message = f"Read twice: {exc.message}"
                raise
            call = dataclasses.replace(call, growing=frozenset(before & grown))
