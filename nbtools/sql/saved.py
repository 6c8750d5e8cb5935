"""Saved queries: texts that later queries use by name, like views.

A saved query is never run by itself. A query that names it gets its text as a common table expression, and is judged
and run as that one text: what the saved query reads is judged together with the query that uses it, by the same rules.

They are notes of the memory, so that they outlive the kernel. It is asked when a query names what is not a DataFrame.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

from nbtools.errors import InvalidArguments, NbtoolsError, SqlInvalid, did_you_mean

# What may stand before a statement without being part of it.
_SPACE = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_WITH = re.compile(rf"{_SPACE}WITH\b(?:{_SPACE}RECURSIVE\b)?", re.IGNORECASE | re.DOTALL)
_ABOUT = re.compile(rf"{_SPACE}(?:EXPLAIN(?:{_SPACE}ANALYZE)?|DESCRIBE|DESC|SUMMARIZE)\b", re.IGNORECASE | re.DOTALL)
_NOTES = "queries/"  # before the name, in the keys of the memory
_NAME_ALONE = re.compile(r'\s*("(?:[^"]|"")+"|[^\W\d]\w*)\s*;?\s*', re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedQuery:
    """One saved query.

    Attributes
    ----------
    name
        By which it is used.
    sql
        Its text.
    tables
        The tables that it reads, saved queries among them.
    files
        The files that it reads.
    """

    name: str
    sql: str
    tables: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def reads(self) -> str:
        """What it reads, in words."""
        return ", ".join((*self.tables, *self.files)) or "nothing"


class SavedQueries:
    """The saved queries of a person, as a notebook uses them.

    Parameters
    ----------
    memory
        Returns the memory that keeps them; `None` keeps them only in this process.
    at_hand
        Returns the memory if it is already open, or `None`: looking for a name starts nothing.
    is_theirs
        Says of what a note holds whether strangers may have written it: who names it would run it unread.
    """

    def __init__(
        self,
        memory: Callable[[], Any] = lambda: None,
        at_hand: Callable[[], Any] = lambda: None,
        is_theirs: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        self._memory, self._at_hand, self._is_theirs = memory, at_hand, is_theirs
        self._read: dict[str, SavedQuery] | None = None
        self._new: set[str] = set()  # saved here: another notebook's do not stand before a DataFrame

    @property
    def _saved(self) -> dict[str, SavedQuery]:
        if self._read is None:
            memory = self._at_hand()
            notes = [] if memory is None else [record.value for record in memory.list(_NOTES)]
            read = [_from_note(note) for note in notes if not self._is_theirs(note)]
            self._read = {query.name.casefold(): query for query in read if query is not None}
        return self._read

    def __iter__(self) -> Iterator[SavedQuery]:
        return iter([self._saved[name] for name in sorted(self._saved)])

    def save(self, name: str, sql: str, tables: tuple[str, ...], files: tuple[str, ...] = ()) -> SavedQuery:
        """Keep a query, in place of one of its name.

        Parameters
        ----------
        name
            An identifier; its case does not matter.
        sql
            A statement that was judged as one that reads.
        tables
            The tables that it names.
        files
            The files that it names.

        Raises
        ------
        SqlInvalid
            It uses itself, by itself or by others.
        InvalidArguments
            The name is none, or the text is not a SELECT.
        """
        if not name.isidentifier():
            raise InvalidArguments(f"{name!r} is not a name for a query.", hint="Use letters, digits and _.")
        if _ABOUT.match(sql):
            raise InvalidArguments("only a SELECT can be saved.", hint="Leave out EXPLAIN, DESCRIBE or SUMMARIZE.")
        query = SavedQuery(name=name, sql=sql.strip().rstrip(";").rstrip(), tables=tables, files=files)
        way = self._way_back(query, name.casefold(), (name,))
        if way:
            raise SqlInvalid(f"{name!r} would use itself: {' → '.join(way)}.", hint="Save it under another name.")
        memory = self._memory()
        if memory is not None:
            memory.write(_NOTES + name.casefold(), dataclasses.asdict(query), tags=["query"])
        self._saved[name.casefold()] = query
        self._new.add(name.casefold())
        return query

    def forget(self, name: str) -> None:
        """Drop a query.

        Raises
        ------
        InvalidArguments
            There is none of that name, or another one uses it.
        """
        if name.casefold() not in self._saved:
            hint = did_you_mean(name, [query.name for query in self], "%nbsql --saved lists them.")
            raise InvalidArguments(f"no query {name!r} is saved.", hint=hint)
        users = [query.name for query in self if name.casefold() in map(str.casefold, query.tables)]
        if users:
            hint = f"Forget {users[0]} first, or save it again without {name}."
            raise InvalidArguments(f"{', '.join(users)} uses {name!r}.", hint=hint)
        memory = self._memory()
        if memory is not None:
            memory.delete(_NOTES + name.casefold())
        del self._saved[name.casefold()]

    def _way_back(self, query: SavedQuery, name: str, way: tuple[str, ...]) -> tuple[str, ...]:
        """Return how a query comes back to a name; empty when it does not."""
        for table in query.tables:
            if table.casefold() == name:
                return (*way, table)
            other = self._saved.get(table.casefold())
            if other is not None and other is not query and (cycle := self._way_back(other, name, (*way, table))):
                return cycle
        return ()

    def expand(
        self, sql: str, tables_of: Callable[[str], tuple[str, ...]], lookup: Callable[[str], Any] = lambda _: None
    ) -> str:
        """Return a query with the texts of the saved ones that it uses.

        Parameters
        ----------
        sql
            As it was written.
        tables_of
            Returns the tables that a statement names.
        lookup
            Returns the DataFrame of a name, or `None`.

        Raises
        ------
        InvalidArguments
            A name is a DataFrame and a query that was saved here.
        """
        folded = sql.casefold()
        if self._read is not None and not any(name in folded for name in self._read):
            return sql
        tables = [each for each in tables_of(sql) if each.casefold() in self._new or lookup(each) is None]
        used: dict[str, SavedQuery] = {}
        with contextlib.suppress(NbtoolsError):  # the memory cannot be read: then nothing is saved as far as is known
            for table in tables:
                self._gather(table, used)
        for query in used.values():
            if query.name.casefold() in self._new and lookup(query.name) is not None:
                raise InvalidArguments(
                    f"{query.name!r} is a saved query and a DataFrame.",
                    hint="Save the query under another name, or rename the DataFrame.",
                )
        return _with_texts(sql, list(used.values())) if used else sql

    def _gather(self, table: str, used: dict[str, SavedQuery]) -> None:
        """Add a saved query behind those that it uses; a common table expression sees the ones before it."""
        query = self._saved.get(table.casefold())
        if query is None or query.name in used:
            return
        for other in query.tables:
            self._gather(other, used)
        used[query.name] = query


def _from_note(note: Any) -> SavedQuery | None:
    """Return the query that a note of the memory is; `None` where someone wrote something else there."""
    with contextlib.suppress(TypeError, KeyError):
        tables, files = (tuple(map(str, note[part])) for part in ("tables", "files"))
        return SavedQuery(name=str(note["name"]), sql=str(note["sql"]), tables=tables, files=files)
    return None


def _with_texts(sql: str, used: list[SavedQuery]) -> str:
    # A comment at the end of a text needs its own line.
    texts = ", ".join(f'"{query.name}" AS (\n{query.sql}\n)' for query in used)
    about = _ABOUT.match(sql)
    head, rest = (sql[: about.end()], sql[about.end() :]) if about else ("", sql)
    if about and (alone := _NAME_ALONE.fullmatch(rest)):
        return f"{head} WITH {texts} FROM {alone[1]}"
    begun = _WITH.match(rest)
    if begun:
        return f"{head}{rest[: begun.end()]} {texts},{rest[begun.end() :]}"
    return f"{head} WITH {texts}\n{rest}".lstrip()
