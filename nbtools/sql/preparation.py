"""Preparation: from a query as it was asked for to what may run, and on which engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments, LimitExceeded, NbtoolsError
from nbtools.paths import Roots
from nbtools.sql.call import Call
from nbtools.sql.connections import SessionEngines
from nbtools.sql.engines.protocol import QueryControl, QueryRequest, SqlEngine
from nbtools.sql.files.reading import WHOLE_BYTES, TextFiles, TextReading
from nbtools.sql.files.remote import RemoteFiles
from nbtools.sql.frames import EXCEL, NOTES, find_frames, read_excel
from nbtools.sql.parameters import Style, bind, placeholders
from nbtools.sql.profile import quoting, source_of
from nbtools.sql.suggestions import suggest, way_out
from nbtools.sql.verdict.inquiries import spelled_out
from nbtools.sql.verdict.repair import find_repair
from nbtools.sql.verdict.verdict import Verdict
from nbtools.sql.worker.client import IsolatedEngine

__all__ = ["Preparation", "Prepared"]

# How the placeholders of a dialect look; all others write :name.
_STYLES: dict[str, Style] = {"duckdb": "dollar", "postgres": "numbered"}
# Of a table that another connection has: it is copied for the query.
_COPIED_BYTES = 500_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """One query that may run.

    Attributes
    ----------
    engine, request
        What runs what.
    sources
        Phrases for what it reads.
    verdict
        On the text as it was written.
    reading
        How its text files are read; `None` where it names none.
    """

    engine: SqlEngine
    request: QueryRequest
    sources: tuple[str, ...]
    verdict: Verdict
    reading: TextReading | None

    def told_sources(self) -> tuple[str, ...]:
        """Return the phrases, with what is to be told of text files."""
        if self.reading is None or not self.reading.notes:
            return self.sources
        notes: dict[str, list[str]] = {}
        for name, note in self.reading.notes:
            notes.setdefault(f"file {name}", []).append(note)
        told = {source: f"{source} ({'; '.join(found)})" for source, found in notes.items()}
        return tuple(told.get(source, source) for source in self.sources)


class Preparation:
    """Binds, judges and completes the queries of a session.

    Parameters
    ----------
    engines
        What runs them.
    roots
        Returns the folders whose files may be read now; `None` for none.
    tables, lookup
        The records and the frames that queries may name; see `find_frames`.
    remote
        Fetches the files of URLs; `None` where they are refused.

    Attributes
    ----------
    texts
        How text files are read.
    """

    def __init__(
        self,
        engines: SessionEngines,
        roots: Callable[[], Roots | None],
        *,
        tables: Mapping[str, Callable[[], Any]],
        lookup: Callable[[str], Any] | None,
        remote: RemoteFiles | None,
    ) -> None:
        self._engines = engines
        self._roots = roots
        self._tables = tables
        self._frames = lookup
        self._remote = remote
        self.texts = TextFiles()

    def prepare(self, call: Call, control: QueryControl, *, most_bytes: int = WHOLE_BYTES) -> Prepared:
        """Return what is to run; text files of more bytes are read by a sample."""
        engine, text, values, verdict = self.verdict(call, control)
        # The caret points into what was written, where binding has not moved anything.
        unbound = placeholders(text) if verdict.code == "SQL_INVALID" and not call.params else ()
        hint = f"If :{unbound[0]} is a parameter, give it a value." if unbound else way_out(verdict, self._roots())
        if hint is None and not verdict.allowed and not call.params:
            hint = find_repair(
                text,
                engine.dialect,
                lambda sql: self._judge(sql, call, engine, control).allowed,
                lambda sql, dialect: self._translate(sql, dialect, engine, control),
            )
        verdict.raise_if_refused(
            call.request.sql if len(call.request.sql) == len(text) and call.dialect is None else None, hint=hint
        )
        self._engines.warn_once(call.connection, engine)
        frames, sources = self._find_sources(call, engine, verdict, control)
        reading = self.texts.read(verdict, engine, control, most_bytes=most_bytes) if verdict.readers else None
        if reading is not None and not (reading.edits and self._judge(reading.sql, call, engine, control).allowed):
            reading = dataclasses.replace(reading, sql=text, edits=())
        if reading is not None and self._remote is not None:
            reading = dataclasses.replace(
                reading, notes=tuple((self._remote.name(name), note) for name, note in reading.notes)
            )
        request = dataclasses.replace(
            call.request,
            sql=text if reading is None else reading.sql,
            parameters=values,
            frames=frames,
            catalogs=tuple({name.partition(".")[0] for name in frames if f"table {name}" in sources}),
        )
        return Prepared(engine=engine, request=request, sources=sources, verdict=verdict, reading=reading)

    def verdict(
        self, call: Call, control: QueryControl, *, fetch: bool = True
    ) -> tuple[SqlEngine, str, dict[str, Any] | list[Any] | None, Verdict]:
        """Return the engine, its text and the values to bind, and the verdict on that text."""
        sql = call.request.sql
        if not isinstance(sql, str):
            raise InvalidArguments(f"the query is {type(sql).__name__}, not text.")
        engine = self._engines.engine(call.connection, isolated=call.isolated)
        translated = call.dialect not in {None, engine.dialect}
        text = self._transpile(call, engine, control) if translated else spelled_out(sql, engine.dialect)
        text, values = bind(text, call.params, _STYLES.get(engine.dialect, "colon"))
        if self._remote is not None and engine.takes_frames:
            seconds = call.request.timeout
            text = self._remote.localize(text, control, isolated=call.isolated, seconds=seconds, fetch=fetch)
        return engine, text, values, self._judge(text, call, engine, control)

    def _judge(self, text: str, call: Call, engine: SqlEngine, control: QueryControl) -> Verdict:
        if isinstance(engine, IsolatedEngine):
            return engine.check(text, control)
        return self._engines.policy(engine.dialect, call.connection, engine).check(text)

    def _find_sources(
        self, call: Call, engine: SqlEngine, verdict: Verdict, control: QueryControl
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        files = tuple(f"file {name if self._remote is None else self._remote.name(name)}" for name in verdict.files)
        files += tuple(f"({note})" for note in [getattr(engine, "note", None)] if note)
        if not engine.takes_frames:
            return {}, (*(f"table {name}" for name in verdict.tables), *files)
        # What only a connection of the notebook itself sees comes first, as it does there.
        lookups = [look for look in (getattr(engine, "lookup", None), self._frames) if look is not None]
        frames, found = find_frames(verdict.tables, given=call.frames, tables=self._tables, lookups=lookups)
        for name, rows in self._read_elsewhere(
            call, engine, [name for name in verdict.tables if name not in frames], control
        ):
            frames[name], found = rows, (*found, f"table {name}")
        for name in (*verdict.tables, *verdict.files):
            if name.lower().endswith(EXCEL) and name not in frames and (path := self.readable(name)) is not None:
                frames[name] = self._engines.read_workbook(path, control) if call.isolated else read_excel(path)
                told = "; ".join(_notes_of(frames[name]))
                files = tuple(f"{file} ({told})" if told and file == f"file {name}" else file for file in files)
        rest = (f"table {name}" for name in verdict.tables if name not in frames and call.connection is not None)
        return frames, (*found, *rest, *files)

    def _read_elsewhere(
        self, call: Call, engine: SqlEngine, names: Iterable[str], control: QueryControl
    ) -> Iterator[tuple[str, Any]]:
        """Yield the tables of other connections that a query names, ``crm.contracts``; each is asked by its own rules.

        The engine gets copies: the databases of other engines are no catalogs of its own.
        """
        there: set[str] | None = None
        for name in names:
            other = self._engines.name_in(name)
            if other is None or other == call.connection or getattr(engine, "lookup", None) is not None:
                continue
            if there is None:
                there = {table.full_name.casefold() for table in engine.catalog()}
            if name.casefold() in there:
                continue
            quote = quoting(self._engines.engine(other, isolated=call.isolated).dialect)
            asked = QueryRequest(
                sql=f"SELECT * FROM {source_of(name.partition('.')[2], quote)}",
                max_bytes=_COPIED_BYTES,
                whole=True,
                timeout=call.request.timeout,
            )
            ready = self.prepare(Call(request=asked, connection=other, isolated=call.isolated), control)
            try:
                yield name, ready.engine.run(ready.request, control).rows.to_arrow()
            except NbtoolsError as exc:
                exc.message = f"{other}: {exc.message}"
                exc.hint = exc.hint or suggest(ready.verdict.tables, (), ready.engine, exc.data.get("unknown_column"))
                if isinstance(exc, LimitExceeded):
                    exc.hint = f"Ask {other} itself for less of it: %sql {other} select …, and name what it returns."
                raise

    def readable(self, name: str) -> Path | None:
        """Return the path of a file that a judged query names; `None` where no folder is open."""
        if self._remote is not None and self._remote.holds(name):
            return Path(name)
        roots = self._roots()
        return None if roots is None else roots.resolve(name)

    def _transpile(self, call: Call, engine: SqlEngine, control: QueryControl) -> str:
        """Return the text in the engine's dialect; its placeholders are made readable for the parser first."""
        assert call.dialect is not None
        text, _ = bind(call.request.sql, call.params, "dollar")
        return self._translate(text, call.dialect, engine, control)

    @staticmethod
    def _translate(text: str, dialect: str, engine: SqlEngine, control: QueryControl) -> str:
        from nbtools.sql.verdict.transpile import transpile

        if isinstance(engine, IsolatedEngine):
            return engine.transpile(text, dialect, control)
        return transpile(text, read=dialect, write=engine.dialect)


def _notes_of(frame: Any) -> list[str]:
    """Return what is to be told of a workbook that was read, here or in a process of its own."""
    if hasattr(frame, "attrs"):
        return list(frame.attrs.get(NOTES, ()))
    metadata = frame.schema.metadata or {}
    return list(json.loads(metadata.get(NOTES.encode(), b"[]")))
