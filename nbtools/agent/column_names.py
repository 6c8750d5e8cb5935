"""Which names of columns of a query's result are no values.

A query can make names of values, by PIVOT for one, and so can a script that writes a file whose first line it chose. So
names are shared where the query makes none, and what it reads is as it was before the conversation began: frames,
tables, files that were not written since. Of other results those of the sources.

The first line of a text file or a sheet counts as names only where types tell it apart: some column holds no texts, and
nothing in the line reads as a number or a time. Else it may be a row; a frame or a table that a person makes of it has
names that the person chose.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from nbtools.errors import NbtoolsError
from nbtools.paths import Roots

if TYPE_CHECKING:
    from nbtools.sql import QueryResult, SqlSession
    from nbtools.sql.verdict.verdict import Verdict

__all__ = ["ColumnNames"]

# What may turn values into names of columns; comments too, which could come between the parts of it.
_MAKES_NAMES = re.compile(
    r"pivot|header|skip|read_|names|columns\s*\(|struct|map|json|unnest|query\w*\s*\(|\.\s*\*|--|/\*", re.IGNORECASE
)
_MOST_FILES = 1_000
# Files that hold no names of their own: which line of them is the header is a guess.
_GUESSED = re.compile(r"\.(csv|tsv|tab|psv|txt|dat|xls[xm]?)(\.\w+)?\Z", re.IGNORECASE)
_IS_VALUE = re.compile(r"[\s\d.,:;+/%€$£()-]*\d[\s\d.,:;+/%€$£()TZe-]*")
_TEXTS = frozenset({"VARCHAR", "NULL", "BLOB"})


class ColumnNames:
    """Tells which names may be shared.

    Parameters
    ----------
    services
        Where `SqlSession` and `Roots` of a model are had.
    since
        Returns the seconds since the epoch at which the conversation began.
    """

    def __init__(self, services: Mapping[type, Callable[[], Any]], since: Callable[[], float]) -> None:
        self._services = services
        self._since = since

    async def shared(self, arguments: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
        """Return the names of a result's columns, ``column N`` in place of each that may be a value."""
        heads = _Heads(self._session, arguments.get("connection"))
        sources = [name if name is None or await _has_names(name, heads) else None for name in self._sources(arguments)]
        if None not in sources and not _MAKES_NAMES.search(str(arguments.get("query"))):
            return list(columns)
        known = await _columns(filter(None, sources), heads)
        return [name if name in known else f"column {number}" for number, name in enumerate(columns, 1)]

    def _sources(self, arguments: Mapping[str, Any]) -> list[str | None]:
        """Return what a query reads, `None` for each file, or database in a file, that was written since."""
        from nbtools.sql.engines.urls import file_of

        connection = arguments.get("connection")
        try:
            verdict = self._checked(arguments)
            if connection is not None and "://" in connection and not self._is_older(str(file_of(connection))):
                return [None]
        except NbtoolsError:
            return [None]
        names = dict.fromkeys((*verdict.tables, *verdict.files))
        return [name if self._is_older(name) else None for name in names]

    def refusal(self, arguments: Mapping[str, Any]) -> str | None:
        """Return why a text may not run, made of the text alone; `None` where that is not the reason."""
        try:
            error = self._checked(arguments).error()
        except NbtoolsError:
            return None
        return None if error is None else f"{error.code}: {error.message}"

    def _checked(self, arguments: Mapping[str, Any]) -> Verdict:
        given = {name: arguments.get(name) for name in ("connection", "params")}
        return self._session().check(str(arguments.get("query")), isolated=True, **given)

    def _session(self) -> SqlSession:
        from nbtools.sql import SqlSession

        return cast("SqlSession", self._services[SqlSession]())

    def _is_older(self, name: str) -> bool:
        """Tell whether no file of that name, or that fits it, was written since the conversation began."""
        place = os.path.join(self._services[Roots]().start(), name)  # noqa: PTH118 - it may be a pattern
        for number, path in enumerate(glob.iglob(place, recursive=True)):  # noqa: PTH207 - it may be absolute
            try:
                found = os.stat(path)  # noqa: PTH116 - a text
            except OSError:
                return False
            # The time of a change cannot be set back, unlike that of the content.
            if number >= _MOST_FILES or max(found.st_ctime, found.st_mtime) >= self._since():
                return False
        return True


class _Heads:
    """Sources of a query without their rows, each asked for once."""

    def __init__(self, session: Callable[[], SqlSession], connection: str | None) -> None:
        self._session = session
        self._connection = connection
        self._known: dict[str, QueryResult] = {}

    async def get(self, name: str) -> QueryResult:
        """Return the columns of a source."""
        from nbtools.sql.profile import quoting, source_of

        if name not in self._known:
            ask = f"SELECT * FROM {source_of(name, quoting('duckdb'))}"
            self._known[name] = await self._session().aquery(ask, connection=self._connection, limit=0, isolated=True)
        return self._known[name]


async def _columns(sources: Iterable[str], heads: _Heads) -> set[str]:
    """Return the names of the columns of what is read, but of JSON, whose keys may be values."""
    found: set[str] = set()
    for name in sources:
        if ".json" not in name and ".ndjson" not in name:
            with contextlib.suppress(NbtoolsError):
                found.update((await heads.get(name)).columns)
    return found


async def _has_names(name: str, heads: _Heads) -> bool:
    """Tell whether the names of what is read are no row of it."""
    if not _GUESSED.search(name):
        return True
    try:
        found = await heads.get(name)
    except NbtoolsError:
        return False
    return not _TEXTS.issuperset(found.types) and not any(map(_IS_VALUE.fullmatch, found.columns))
