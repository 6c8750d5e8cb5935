"""Which names and types of columns a model may see where it may see no value: those of a snapshot.

The snapshot is what the allowed sources said of their columns when the conversation began: frames, tables, and files
that existed and have not been written since. Where a query reads nothing else, and its columns follow only from theirs
(`Verdict.fixed`), the names and types of its result tell no more than its text and the snapshot do, and are
shared. Of any other query no column is named, and none is counted.

What the snapshot cannot say is not shared: the keys of JSON and of nested values; the first line of a text file or a
sheet whose types do not tell it from a row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nbtools.contract.tool import Services
from nbtools.errors import NbtoolsError
from nbtools.ground.paths import MOST_MATCHES, Roots

if TYPE_CHECKING:
    from nbtools.sql import QueryResult, SqlSession
    from nbtools.sql.verdict.verdict import Verdict

# Files that hold no names themselves: which line of them is the header is a guess.
_GUESSED = re.compile(r"\.(csv|tsv|tab|psv|txt|dat|xls[xm]?)(\.\w+)?\Z", re.IGNORECASE)
_JSON = re.compile(r"json", re.IGNORECASE)
_NESTED = re.compile(r"STRUCT|UNION|VARIANT")


class ColumnNames:
    """Tells which columns may be shared.

    Parameters
    ----------
    services
        Where `SqlSession` and `Roots` of a model are had.
    since
        Returns the seconds since the epoch at which the conversation began.
    """

    def __init__(self, services: Services, since: Callable[[], float]) -> None:
        self._services = services
        self._since = since

    async def shared(
        self, arguments: Mapping[str, Any], columns: Sequence[str], types: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Return names and types of a result's columns, as far as the snapshot says them; empty where it says nothing.

        Parameters
        ----------
        arguments
            The query.
        columns
            Names of the columns of its result.
        types
            The engine's name of the type of each column, in the same order.
        """
        from nbtools.sql.verdict.duckdb.functions import FILE_READERS

        connection = arguments.get("connection")
        try:
            verdict = self._checked(arguments)
            # A database counts as changed with its file: whatever was written there may be a name now.
            if not verdict.fixed or not all(map(self._is_older, self._session().files_read(verdict, connection))):
                return []
            heads = {name: await self._head(name, connection) for name in (*verdict.tables, *verdict.files)}
        except NbtoolsError:
            return []
        # An ENUM names its values, a STRUCT its keys.
        kinds = [re.sub(r"\W.*", "", str(kind), flags=re.DOTALL) for kind in types]
        # All names follow from those of the sources, unless one cannot say them or a nested value is opened.
        is_whole = FILE_READERS.isdisjoint(verdict.functions) and all(
            head is not None and not any(map(_NESTED.search, map(str, head.types))) for head in heads.values()
        )
        # A view has its names of the files behind it.
        named = {path for _, paths, _ in verdict.readers for path in paths}
        is_told = all(heads[file] is not None for file in verdict.files if file not in named)
        heads_named = (head for name, head in heads.items() if head is not None and (is_told or name in named))
        names_read = {name for head in heads_named for name in head.columns}
        names = [name if is_whole or name in names_read else f"column {at}" for at, name in enumerate(columns, 1)]
        return list(zip(names, kinds, strict=True))

    def refusal(self, arguments: Mapping[str, Any]) -> str | None:
        """Return why a text may not run, made only of the text; `None` where that is not the reason."""
        try:
            error = self._checked(arguments).error()
        except NbtoolsError:
            return None
        return None if error is None else f"{error.code}: {error.message}"

    def _checked(self, arguments: Mapping[str, Any]) -> Verdict:
        options = {name: arguments.get(name) for name in ("connection", "params")}
        return self._session().check(str(arguments.get("query")), isolated=True, **options)

    def _session(self) -> SqlSession:
        from nbtools.sql import SqlSession

        return cast("SqlSession", self._services[SqlSession]())

    def _is_older(self, name: str) -> bool:
        """Tell whether a file of that name exists, or fits it, and none of them was written since.

        What a script left says no name however old it is: one that a model wrote may have made names of values.
        """
        roots: Roots = self._services[Roots]()
        paths = list(roots.matching(name))
        is_left = any(roots.is_left(Path(path)) for path in paths)
        return 0 < len(paths) <= MOST_MATCHES and not is_left and all(map(self._is_path_older, paths))

    def _is_path_older(self, path: str) -> bool:
        # A folder named key=value is a column too, and keeps the times of its files when it is renamed.
        folders = [path]
        while "=" in os.path.dirname(folders[-1]):  # noqa: PTH120 - a text
            folders.append(os.path.dirname(folders[-1]))  # noqa: PTH120 - a text
        try:
            statuses = [os.stat(path), *map(os.lstat, folders)]  # noqa: PTH116 - same
        except OSError:
            return False
        # The time of a change cannot be set back, unlike that of the content.
        return all(max(one.st_ctime, one.st_mtime) < self._since() for one in statuses)

    async def _head(self, name: str, connection: str | None) -> QueryResult | None:
        """Return a source without its rows; `None` where it cannot say its names."""
        from nbtools.sql.files.headings import names_columns
        from nbtools.sql.profile import quoting, source_of

        if _JSON.search(os.path.basename(name)):  # noqa: PTH119 - a text
            return None
        dialect = "duckdb" if connection is None else self._session().dialect(connection)
        ask = f"SELECT * FROM {source_of(name, quoting(dialect))}"
        head = await self._session().aquery(ask, connection=connection, limit=0, isolated=True)
        return head if not _GUESSED.search(name) or names_columns(head.columns, head.types) else None
