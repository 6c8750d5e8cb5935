"""What was in files before a run changed them: a folder of files by the SHA-256 of their contents, each stored once.

A content is as old as its last use. Where it was trimmed, taking back says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from nbtools.ground.folder import draft_in
from nbtools.ground.home import make_private
from nbtools.ground.trimming import trim


class Images:
    """A folder of contents.

    Parameters
    ----------
    folder
        Where they lie; it is made at first use, for its owner alone.
    seconds, most_bytes
        What may stay there.
    """

    def __init__(self, folder: Path, seconds: float, most_bytes: int) -> None:
        self.folder = folder
        self._bounds = seconds, most_bytes
        self._is_trimmed = False

    @staticmethod
    def name_of(content: bytes) -> str:
        """Return the name of a content: its SHA-256 in hexadecimal."""
        return hashlib.sha256(content).hexdigest()

    def keep(self, content: bytes) -> str:
        """Store a content, unless it is there, and return its SHA-256.

        Raises
        ------
        OSError
            It could not be stored.
        """
        if not self._is_trimmed:
            self._is_trimmed = True
            trim(self.folder, seconds=self._bounds[0], most_bytes=self._bounds[1])
        name = self.name_of(content)
        path = self.folder / name
        try:
            os.utime(path)
        except FileNotFoundError:
            make_private(self.folder)
            with draft_in(self.folder) as draft:
                with draft.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
        return name

    def load(self, name: str) -> bytes | None:
        """Return a content; `None` where it is not there any more, or is not what was stored."""
        with contextlib.suppress(OSError):
            content = (self.folder / name).read_bytes()
            return content if self.name_of(content) == name else None
        return None
