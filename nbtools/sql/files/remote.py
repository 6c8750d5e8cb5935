"""Files elsewhere: a URL that stands where DuckDB reads a file becomes the file that it was fetched to.

Only constants are replaced, and only where a file can stand: behind FROM, JOIN, DESCRIBE and SUMMARIZE, and as the
first argument of a function that reads files. The text that then names local files is judged and run like any other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from nbtools.errors import NbtoolsError
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.engines.urls import mask_url
from nbtools.sql.verdict.duckdb.functions import FILE_READERS
from nbtools.sql.verdict.edits import TextEdit, rewrite
from nbtools.sql.verdict.guards import Token, scan
from nbtools.texts.sql_quotes import quote_text

_URL = re.compile(r"(?:https?|s3|gs|az)://", re.IGNORECASE)
_BEFORE = frozenset({"from", "join", "describe", "summarize"})
_READERS = FILE_READERS - {"glob"}
# Names of files that are remembered, to say where they came from.
_REMEMBERED = 1_000


class Download(Protocol):
    """What fetches a file: see `nbtools.toolbox.web.downloads.Downloads`."""

    @property
    def folder(self) -> Path:
        """Where files are kept."""

    @property
    def places(self) -> tuple[str, ...] | None:
        """URLs below which files may be fetched; `None` for everywhere."""

    def get(self, url: str, *, seconds: float | None, control: QueryControl) -> Path:
        """Return the file of a URL as it is now."""

    def path_of(self, url: str) -> Path:
        """Return where the file of a URL is, or would be, without fetching it."""


class RemoteFiles:
    """Replaces the URLs of texts by files, and says what the URLs of files were."""

    def __init__(self, download: Download) -> None:
        self._download = download
        self._urls: dict[str, str] = {}

    def localize(
        self, sql: str, control: QueryControl, *, isolated: bool, seconds: float | None, fetch: bool = True
    ) -> str:
        """Return a text whose URLs of files are those of files here, each fetched when it is not here yet.

        An isolated query, a model's as a rule, gets only what lies below given places. Without `fetch` the files need
        not be there.
        """
        if _URL.search(sql) is None or (isolated and self._download.places is None):
            return sql
        edits, own = [], self._download
        for token in _places(sql):
            url = token.text[1:-1].replace("''", "'")
            try:
                got = own.get(url, seconds=seconds, control=control) if fetch else own.path_of(url)
            except NbtoolsError:
                control.check()
                raise
            if len(self._urls) >= _REMEMBERED:
                self._urls.clear()
            self._urls[str(got)] = mask_url(url)
            edits.append(TextEdit(token.start, token.start + len(token.text), quote_text(str(got))))
        return rewrite(sql, edits)

    def holds(self, path: str) -> bool:
        """Tell whether a file was fetched."""
        return path in self._urls

    def name(self, text: str, ran: str = "") -> str:
        """Return a text, of an error of what `ran` perhaps, with the URLs of fetched files in place of their paths."""
        if str(self._download.folder) in text + ran:
            # A line of the query below it is not the one that was written.
            text = text.partition("\n")[0]
            for path, url in self._urls.items():
                text = text.replace(path, url)
        return text


def _places(sql: str) -> list[Token]:
    """Return the constants that are URLs of files."""
    import duckdb

    try:
        tokens = scan(sql)
    except (duckdb.Error, UnicodeError, RuntimeError):
        return []  # the verdict says what is wrong with such a text
    words = [token.text.lower() for token in tokens]
    constants = ((at, token) for at, token in enumerate(tokens) if token.text[:1] == "'")
    return [token for at, token in constants if _URL.match(token.text[1:]) and _is_file(at, words)]


def _is_file(index: int, words: list[str]) -> bool:
    """Tell whether a file may stand at a token: see the head of the module."""
    before = index - 1
    while before >= 0 and words[before][:1] in {",", "[", "'"}:
        before -= 1  # the items of a list
    if before < 0:
        return False
    return words[before] in _BEFORE or (words[before] == "(" and before > 0 and words[before - 1] in _READERS)
