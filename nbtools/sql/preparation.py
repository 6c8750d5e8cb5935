"""Preparation: from a query as it was asked for to what may run, and on which engine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments, LimitExceeded, NbtoolsError
from nbtools.ground.paths import Roots
from nbtools.sql.call import Call
from nbtools.sql.connections import SessionEngines
from nbtools.sql.engines.duckdb.known_types import columns_as_text
from nbtools.sql.engines.duckdb.zones import common_zone, types_of, zones_of
from nbtools.sql.engines.protocol import EngineAnswer, QueryControl, QueryRequest, SqlEngine
from nbtools.sql.files.calls import constant, find_calls, form_of
from nbtools.sql.files.changes import Stamp, TextReading, stamp_in_folder
from nbtools.sql.files.encodings import Utf8Copies
from nbtools.sql.files.options import MissingWords
from nbtools.sql.files.reading import WHOLE_BYTES, TextFiles
from nbtools.sql.files.remote import RemoteFiles
from nbtools.sql.frames import NOTES, as_query_sees, find_frames
from nbtools.sql.parameters import Style, bind, name_without_value
from nbtools.sql.profile import quoting, source_of
from nbtools.sql.results.result import FileNote
from nbtools.sql.suggestions import nearest_word, suggest, way_out
from nbtools.sql.verdict.edits import TextEdit
from nbtools.sql.verdict.inquiries import spelled_out
from nbtools.sql.verdict.repair import find_repair
from nbtools.sql.verdict.verdict import Verdict
from nbtools.sql.worker.client import IsolatedEngine
from nbtools.sql.worker.sheets import SheetOptions, read_workbook
from nbtools.texts.sql_quotes import quote_identifier

# How the placeholders of a dialect look; all others write :name.
_STYLES: dict[str, Style] = {"duckdb": "dollar", "postgres": "numbered"}
# Of a table that another connection has: it is copied for the query.
_COPIED_BYTES = 500_000_000
_FILE = re.compile(r"(?<=from |join )'(?:[^']|'')*'", re.IGNORECASE)
_NO_FUNCTION = re.compile(r"Function with name (\w+) does not exist")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """One query that may run.

    Attributes
    ----------
    engine
        The engine that runs it.
    request
        What the engine is to run.
    sources
        Phrases for what it reads.
    verdict
        On the text as it was written.
    reading
        How its files are read; `None` where it names none.
    workbooks
        How its workbooks are read; `None` where it names no files.
    notes
        What is to be told of its files.
    renames
        Those of them that tell of new names of columns of frames.
    """

    engine: SqlEngine
    request: QueryRequest
    sources: tuple[str, ...]
    verdict: Verdict
    reading: TextReading | None
    workbooks: TextReading | None
    notes: tuple[FileNote, ...]
    renames: Sequence[FileNote]

    @property
    def begun(self) -> TextReading | None:
        """How its workbooks are read, and what told its files from others when they were first looked at."""
        return None if self.workbooks is None else dataclasses.replace(self.workbooks, stamps=self.stamps)

    @property
    def stamps(self) -> Mapping[Path, Stamp]:
        """What told its text files from others, before they were looked at."""
        return {} if self.reading is None else self.reading.stamps

    def run(self, control: QueryControl, *, again: bool = False) -> EngineAnswer:
        """Return the rows, which are of one state of each file; see `SqlEngine.run`, `TextReading.raise_if_changed`."""
        fetched = self.engine.run(self.request, control)
        if self.reading is not None:
            self.reading.raise_if_changed(again=again)
        return fetched


class Preparation:
    """Binds, judges and completes the queries of a session.

    Parameters
    ----------
    engines
        What runs them.
    roots
        Returns the folders whose files may be read now; `None` for none.
    tables
        The records that queries may name: by name, what returns a snapshot.
    lookup
        Returns the frame of a name, see `find_frames`; `None` where there are no frames.
    remote
        Fetches the files of URLs; `None` where they are refused.
    words
        What stands for missing values in columns of another type than text.
    copies
        Copies texts in other encodings than UTF-8.

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
        words: Sequence[str],
        copies: Utf8Copies,
    ) -> None:
        self._engines = engines
        self._roots = roots
        self._tables = tables
        self._frames = lookup
        self._remote = remote
        self.texts = TextFiles(words, self.readable, copies)

    def name(self, text: str, ran: str = "") -> str:
        """Return a text, of an error of what `ran` perhaps, with URLs in place of the files that stand for them."""
        return text if self._remote is None else self._remote.name(text, ran)

    def check(self, call: Call, control: QueryControl) -> Verdict:
        """Return the verdict, with what to do where it is a refusal; nothing is fetched."""
        engine, text, _, verdict = self.verdict(call, control, fetch=False)
        return dataclasses.replace(verdict, hint=self._hint(call, engine, text, verdict, control))

    def _hint(self, call: Call, engine: Any, text: str, verdict: Verdict, control: QueryControl) -> str | None:
        """Return what to do where a text was refused."""
        unbound = name_without_value(text, call.params) if verdict.code == "SQL_INVALID" else None
        if unbound:
            return f"If :{unbound} is a parameter, give it a value: a variable {unbound} of the notebook, or params=."
        hint = way_out(verdict, self._roots())
        if hint is not None or verdict.allowed or call.params:
            return hint

        def allows(sql: str) -> bool:
            return self._judge(sql, call, engine, control).allowed

        line = verdict.line if verdict.code == "SQL_INVALID" else None
        translate = functools.partial(self._reworded, engine, control)
        return nearest_word(text, line, verdict.column, allows) or find_repair(text, engine.dialect, allows, translate)

    def hint(self, call: Call, ready: PreparedQuery, error: NbtoolsError, control: QueryControl) -> str | None:
        """Return what to do about a file that an error is about, or a function that only other dialects have."""
        way, verdict, engine = self.texts.hint(ready.verdict, ready.engine, error, control), ready.verdict, ready.engine
        missing = _NO_FUNCTION.search(error.message)
        if way or missing is None or call.params:
            return way
        called = re.compile(rf"\b{missing[1]}\s*\(", re.IGNORECASE)

        def allows(sql: str) -> bool:
            # A reading that leaves a value out is another query.
            is_whole = _values_in(verdict.sql) <= _values_in(sql)
            return is_whole and not called.search(sql) and self._judge(sql, call, engine, control).allowed

        translate = functools.partial(self._reworded, engine, control)
        with contextlib.suppress(NbtoolsError):
            if allows(own := translate(verdict.sql, engine.dialect)):
                return f"Write: {own}"
        return find_repair(verdict.sql, engine.dialect, allows, translate)

    def prepare(self, call: Call, control: QueryControl, *, most_bytes: int = WHOLE_BYTES) -> PreparedQuery:
        """Return what is to run; text files of more bytes are read by a sample."""
        engine, text, values, verdict = self.verdict(call, control)
        hint = self._hint(call, engine, text, verdict, control)
        # The caret points into what was written, where binding has not moved anything.
        is_same = len(call.request.sql) == len(text) and call.dialect is None
        if (refusal := verdict.error(call.request.sql if is_same else None, hint=hint)) is not None:
            refusal.message = self.name(refusal.message, "" if is_same else text)
            refusal.hint = refusal.hint and self.name(refusal.hint)
            raise refusal
        self._engines.warn_once(call.connection, engine)
        frames, sources, renames = self._find_sources(call, engine, verdict, control)
        workbooks = reading = None
        if verdict.readers:
            frames, workbooks = self._open_workbooks(verdict, frames, control, isolated=call.isolated)
            reading = self.texts.read(
                verdict,
                engine,
                control,
                most_bytes=most_bytes,
                begun=workbooks,
                isolated=call.isolated,
                growing=call.growing or (),
            )
            is_sure = reading.is_plain or (reading.edits and self._judge(reading.sql, call, engine, control).allowed)
            if not is_sure:
                reading = dataclasses.replace(reading, sql=text, edits=())
        seen = {name: types_of(frame) for name, frame in frames.items()}
        zones = {name: zones_of(types) for name, types in seen.items()}
        zone = common_zone(zones.values())
        request = dataclasses.replace(
            call.request,
            zone=zone,
            sql=text if reading is None else reading.sql,
            parameters=values,
            frames=frames,
            catalogs=tuple(
                {name.partition(".")[0] for name in frames if "." in name and f"frame {name}" not in sources}
            ),
        )
        named = (name for name in frames if f"frame {name}" in sources)
        of_frames = (
            note
            for name in named
            for note in _notes_of_frame(name, frames[name], seen[name], set() if zone else zones[name])
        )
        of_engine = (FileNote(str(call.connection), text) for text in [getattr(engine, "note", None)] if text)
        notes = (*(() if reading is None else reading.notes), *renames, *of_frames, *of_engine)
        return PreparedQuery(
            engine=engine,
            request=request,
            sources=sources,
            verdict=verdict,
            reading=reading,
            workbooks=workbooks,
            notes=tuple(note._replace(file=self.name(note.file)) for note in notes),
            renames=renames,
        )

    def verdict(
        self, call: Call, control: QueryControl, *, fetch: bool = True
    ) -> tuple[SqlEngine, str, dict[str, Any] | list[Any] | None, Verdict]:
        """Return the engine, its text and the values to bind, and the verdict on that text, with all files it reads."""
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
        verdict = self._judge(text, call, engine, control)
        with contextlib.suppress(NbtoolsError):  # what cannot be asked is said when it is read
            for name, other in self._find_elsewhere(call, engine, verdict.tables):
                if self._engines.engine(other, isolated=call.isolated).takes_frames:
                    there = self.verdict(self._whole_table(name, other, call), control, fetch=False)[3]
                    verdict = dataclasses.replace(verdict, files=tuple(dict.fromkeys((*verdict.files, *there.files))))
        return engine, text, values, verdict

    def _judge(self, text: str, call: Call, engine: SqlEngine, control: QueryControl) -> Verdict:
        if isinstance(engine, IsolatedEngine):
            return engine.check(text, control)
        return self._engines.policy(engine.dialect, call.connection, engine).check(text)

    def _find_sources(
        self, call: Call, engine: SqlEngine, verdict: Verdict, control: QueryControl
    ) -> tuple[dict[str, Any], tuple[str, ...], list[FileNote]]:
        files = tuple(f"file {self.name(name)}" for name in verdict.files)
        if not engine.takes_frames:
            return {}, (*(f"table {name}" for name in verdict.tables), *files), []
        # What only a connection of the notebook itself sees comes first, as it does there.
        lookups = [look for look in (getattr(engine, "lookup", None), self._frames) if look is not None]
        names, own = verdict.tables, call.frames
        frames, sources, notes = find_frames(names, named_frames=own, tables=self._tables, lookups=lookups)
        missing = [name for name in names if name not in frames]
        for name, other in self._find_elsewhere(call, engine, missing):
            frames[name], renames = as_query_sees(self._read_elsewhere(name, other, call, control))
            sources, notes = (*sources, f"table {name}"), [*notes, *(FileNote(name, text) for text in renames)]
        rest = (f"table {name}" for name in names if name not in frames and call.connection is not None)
        return frames, (*sources, *rest, *files), notes

    def _find_elsewhere(self, call: Call, engine: SqlEngine, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the tables of other connections that a query names, ``crm.contracts``, and these."""
        there: set[str] | None = None
        for name in names if engine.takes_frames else ():
            other = self._engines.name_in(name)
            if other is None or other == call.connection or getattr(engine, "lookup", None) is not None:
                continue
            if there is None:
                there = {table.full_name.casefold() for table in engine.catalog()}
            if name.casefold() not in there:
                yield name, other

    def _whole_table(self, name: str, other: str, call: Call) -> Call:
        """Return the query for all rows of a table of another connection."""
        quote = quoting(self._engines.engine(other, isolated=call.isolated).dialect)
        request = QueryRequest(
            sql=f"SELECT * FROM {source_of(name.partition('.')[2], quote)}",
            max_bytes=_COPIED_BYTES,
            whole=True,
            timeout=call.request.timeout,
        )
        return Call(request=request, connection=other, isolated=call.isolated)

    def _read_elsewhere(self, name: str, other: str, call: Call, control: QueryControl) -> Any:
        """Return a table of another connection, which is asked by its own rules.

        The engine gets copies: the databases of other engines are not its own catalogs.
        """
        if name in call.copies:
            return call.copies[name]
        ready = self.prepare(self._whole_table(name, other, call), control)
        try:
            return call.copies.setdefault(name, ready.run(control, again=call.growing is not None).rows.to_arrow())
        except NbtoolsError as exc:
            exc.message = f"{other}: {exc.message}"
            exc.hint = exc.hint or suggest(ready.verdict.tables, (), ready.engine, exc.data.get("unknown_column"))
            if isinstance(exc, LimitExceeded):
                exc.hint = f"Ask {other} directly for fewer rows: %sql {other} select …, and name what it returns."
            raise

    def _open_workbooks(
        self, verdict: Verdict, frames: Mapping[str, Any], control: QueryControl, *, isolated: bool
    ) -> tuple[dict[str, Any], TextReading]:
        """Return the frames with those of workbooks, whose names take the place of calls, and what is to be told."""
        frames_read, edits, notes = dict(frames), list[TextEdit](), list[FileNote]()
        stamps: dict[Path, Stamp] = {}
        reader = functools.partial(self._engines.read_workbook, control=control) if isolated else read_workbook
        are_workbooks = (form_of(function, paths) == "workbook" for function, paths, _ in verdict.readers)
        for at, call in enumerate(find_calls(verdict) if any(are_workbooks) else (), 1):
            name, key = call.paths[0], f"workbook {at}"
            path = self.readable(name) if call.form == "workbook" and name not in frames else None
            if path is None:
                continue
            values = {name: constant(text) for name, text in call.options.items()}
            stamps[path] = stamp_in_folder(path)
            frames_read[key] = reader(path, SheetOptions.from_values(values, self.texts.words))
            texts = _notes_of(frames_read[key])
            notes += [FileNote(name, note) for note in texts["told"]]
            notes += [FileNote(name, str(MissingWords(*each)), words=each[0]) for each in texts["missing"]]
            edits.append(TextEdit(call.start, call.end, quote_identifier(key) + call.tail))
        return frames_read, TextReading(sql=verdict.sql, edits=tuple(edits), notes=tuple(notes), stamps=stamps)

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

    def _reworded(self, engine: SqlEngine, control: QueryControl, sql: str, dialect: str) -> str:
        """Return what a text means as one of a dialect; few read the name of a file where a table stands."""
        names = {f"file_{at}_": text for at, text in enumerate(_FILE.findall(sql))}
        sql = functools.reduce(lambda text, name: text.replace(names[name], name), names, sql)
        sql = self._translate(sql, dialect, engine, control)
        return functools.reduce(lambda text, name: text.replace(name, names[name]), names, sql)

    @staticmethod
    def _translate(text: str, dialect: str, engine: SqlEngine, control: QueryControl) -> str:
        from nbtools.sql.verdict.transpile import transpile

        if isinstance(engine, IsolatedEngine):
            return engine.transpile(text, dialect, control)
        return transpile(text, read=dialect, write=engine.dialect)


def _values_in(sql: str) -> set[str]:
    """Return the names and numbers of a text that are not called."""
    return set(re.findall(r"\b\w+\b(?!\s*\()", re.sub(r"'[^']*'", "", sql).lower()))


def _notes_of_frame(name: str, frame: Any, types: Sequence[Any], zones: set[str]) -> Iterator[FileNote]:
    """Give what is to be told of a frame, given the types of its columns and the zones in which none is shown."""
    if columns := columns_as_text(frame, types):
        yield FileNote(name, f"as text: {', '.join(columns)}")
    if zones:
        yield FileNote(name, f"times in the time zone of the session, not in {', '.join(sorted(zones))}")


def _notes_of(frame: Any) -> dict[str, list[Any]]:
    """Return what is to be told of a workbook that was read, here or in a separate process."""
    if hasattr(frame, "attrs"):
        return dict(frame.attrs[NOTES])
    return dict(json.loads(frame.schema.metadata[NOTES.encode()]))
