"""Readings: what runs in place of a judged text that names text files, and the notes on these files."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbtools.errors import FileMissing, NbtoolsError, SqlFailed, SqlInvalid
from nbtools.ground.paths import identity_of
from nbtools.sql.engines.protocol import QueryControl, QueryRequest, SqlEngine
from nbtools.sql.files.calls import PATTERN, FileCall, constant, find_calls, reads_several
from nbtools.sql.files.cell_texts import Ask, CallReading
from nbtools.sql.files.changes import Stamp, TextReading, stamp_in_folder
from nbtools.sql.files.csv import (
    DECIDED,
    MARKS,
    MISSING_WORDS,
    PACKED,
    PADDING,
    SEARCHED_BYTES,
    as_it_is,
    by_first_lines,
    by_sample,
    detected,
    headers,
    oddities,
    read_types,
    unsaid,
    way_to_read,
)
from nbtools.sql.files.encodings import Utf8Copies, likely_encodings, native_name
from nbtools.sql.files.first_bytes import FirstBytes, has_gaps, look_at
from nbtools.sql.files.json import broken_line, read_objects
from nbtools.sql.files.numbers import ways_to_numbers
from nbtools.sql.files.options import OptionsOfFile, sheet_names, values_of
from nbtools.sql.files.parquet import durations_in
from nbtools.sql.files.several import MOST_HEADERS, by_name, footers, left_out, mismatch_hint
from nbtools.sql.results.result import FileNote
from nbtools.sql.verdict.edits import TextEdit, origin, rewrite
from nbtools.sql.verdict.verdict import Verdict, caret_below, line_and_column
from nbtools.texts.sql_quotes import quote_text
from nbtools.texts.visible import brief

WHOLE_BYTES = 100_000_000
"""Text files up to here are looked at whole before the types of their columns are decided."""
_AT_ONCE_BYTES = 4_000_000  # to look at so much takes so little time that the options of a file wait for it
_PACKED = 4  # a packed file is about so many times larger when it is read
_REMEMBERED = 200
# The engine's reader of JSON has no strict form.
_OF_OBJECTS = (
    "types by its first objects (20,480 at most), {}, to which later values are cast: among whole numbers, 1.5 becomes"
    " 2; sample_size = -1 examines all"
)
MOST_WATCHED = 1_000
"""Files of a pattern whose changes are told."""
_SHOWN = 200  # letters of an error in a note
_LINE = re.compile(r"in line (\d+)")
_UNREAD = {"when sniffing file": "csv", "Malformed JSON": "json", "has duplicate key": "json"}
_TEXT_FOR_NUMBER = re.compile(r"\bVARCHAR\b.*\bexplicit (?:type )?cast|Could not convert string")
_WORD = re.compile(r"Could not convert string \"(.*?)\" to")
_WAY = re.compile(r"read_csv\('FILE', (.+?)\)")
_TEXTS = frozenset({"", "text", "gzip", "zstd"})
# What is written out can neither do anything nor name another file.
_QUOTED = r"'(?:[^'\0\ud800-\udfff]|'')*'"
_WRITTEN = rf"(?:{_QUOTED}|\[{_QUOTED}(?:, {_QUOTED})*\]|\{{{_QUOTED}: {_QUOTED}(?:, {_QUOTED}: {_QUOTED})*\}}|-?\w+)"
_CALL = re.compile(rf"(\w+)\(({_QUOTED}|\[{_QUOTED}(?:, ?{_QUOTED})*\])(?:, \w+ = {_WRITTEN})*\)")
_MOST_PLAIN = 20_000  # characters of such a text; of longer ones the verdict knows what is too long


class _File(NamedTuple):
    """A file of a call: its name, where it is, its size, by what it may be remembered, if at all; whether it grows."""

    name: str
    path: Path | None
    size: int
    identity: tuple[int, ...] | None
    grows: bool


class _OpenCall(NamedTuple):
    """A call as its files can be read, their names, where the first of them is, and which are copies of which."""

    call: FileCall
    names: list[str]
    path: Path | None
    copies: tuple[tuple[str, str], ...] = ()

    def content(self, most_bytes: int) -> bytes | None:
        """Return the first bytes of one file that is a plain text; `None` for any others."""
        is_plain = self.call.options.keys() <= MARKS and not any(map(PACKED.search, self.names))
        if len(self.names) != 1 or self.path is None or not is_plain:
            return None
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            return file.read(most_bytes)
        return None


class TextFiles:
    """Decides how files are read, and remembers it for as long as they stay as they are.

    Parameters
    ----------
    words
        What stands for missing values in columns of another type than text; none to take each word as it is.
    locate
        Returns the path of a file that a judged query names, or raises; `None` where no folder is open.
    copies
        Copies texts in other encodings; `None` leaves them to the engine.
    """

    def __init__(
        self,
        words: Sequence[str] = MISSING_WORDS,
        locate: Callable[[str], Path | None] = Path,
        copies: Utf8Copies | None = None,
    ) -> None:
        self.words = tuple(words)
        self._locate = locate
        self._copies = copies
        self._lock = threading.Lock()
        self._readings: dict[tuple[Any, ...], CallReading] = {}
        self._copied: dict[str, str] = {}
        self._located: dict[tuple[str, str], Path] = {}

    def read(
        self,
        verdict: Verdict,
        engine: SqlEngine,
        control: QueryControl,
        *,
        most_bytes: int = WHOLE_BYTES,
        begun: TextReading | None = None,
        isolated: bool = False,
        growing: Collection[Path] = (),
    ) -> TextReading:
        """Return how a judged text is to be run.

        Parameters
        ----------
        verdict
            The verdict that allowed the text.
        engine
            The engine that is to run it.
        control
            Stops the looking at files.
        most_bytes
            Larger files are read as DuckDB reads them, by a sample.
        begun
            What is decided already.
        isolated
            Whether it runs in the confined process.
        growing
            Files that grow all the time, of which the whole lines are copied first.

        Raises
        ------
        SqlInvalid, SqlFailed
            A file is not a text, is not in the encoding that was named, or has no reader.
        """
        edits = [] if begun is None else list(begun.edits)
        notes = [] if begun is None else list(begun.notes)
        calls = [call for call in find_calls(verdict, self.is_named) if call.form != "workbook"]
        paths = {name: path for name in verdict.files if (path := self._judged_path(name)) is not None}
        stamps = {path: stamp_in_folder(path) for path in paths.values()} | dict(begun.stamps if begun else {})
        is_plain = begun is None or not begun.edits
        for name, path in paths.items():
            if name.lower().endswith(".parquet"):
                notes += [FileNote(name, note) for note in durations_in(path)]
        for call in calls:
            reading = self._reading(
                *(call, engine, control, most_bytes, growing), isolated=isolated, paths=paths, stamps=stamps
            )
            if reading.text is not None:
                is_plain = is_plain and _is_written_out(call, reading.text)
                edits.append(TextEdit(call.start, call.end, call.head + reading.text + call.tail))
            notes += [FileNote(call.paths[0], note) for note in reading.notes]
            notes += [FileNote(call.paths[0], str(each), words=each.column) for each in reading.missing]
        sql = rewrite(verdict.sql, edits) if edits else verdict.sql
        names = [name for copy, name in self._copied.items() if growing and copy in sql]
        copied = {path for path in growing if path in map(self._path, names)}
        notes += [FileNote(path.name, "grows while it is read: its whole lines were copied first") for path in copied]
        return TextReading(
            sql=sql,
            edits=tuple(sorted(edits)),
            notes=tuple(dict.fromkeys(notes)),
            stamps={path: stamp for path, stamp in stamps.items() if path not in copied},
            is_plain=is_plain and len(sql) <= _MOST_PLAIN,
        )

    def name(self, text: str) -> str:
        """Return a text, of an error perhaps, with the names of files in place of their copies' paths."""
        for copy, name in self._copied.items():
            text = text.replace(copy, name)
        return text

    def is_single(self, path: str) -> bool:
        """Tell whether a path is that of one file."""
        return not reads_several([path]) or self.is_named(path)

    def is_named(self, path: str) -> bool:
        """Tell whether a path is that of a file though it looks like a pattern."""
        return PATTERN.search(path) is not None and self._path(path) is not None

    def _path(self, name: str, test: Callable[[Path], bool] = os.path.isfile) -> Path | None:
        """Return the path of a file that is there; `None` where it is none, or may not be read."""
        with contextlib.suppress(NbtoolsError, OSError, ValueError):
            path = self._locate(name)
            return path if path is not None and test(path) else None
        return None

    def _judged_path(self, name: str) -> Path | None:
        """Return the path of a file that a query may read, remembered for as long as the name leads to that file."""
        here = ""
        with contextlib.suppress(KeyError, OSError, ValueError):
            here = os.getcwd()  # noqa: PTH109 - a Path takes as long as all the rest
            if os.path.samefile(name, path := self._located[name, here]):  # noqa: PTH121 - same
                return path
        located = self._path(name)
        if located is not None and here:
            if len(self._located) >= _REMEMBERED:
                self._located.clear()
            self._located[name, here] = located
        return located

    def hint(self, verdict: Verdict, engine: SqlEngine, error: NbtoolsError, control: QueryControl) -> str | None:
        """Return what to do about a file that an error is about; `None` where the error itself says it best."""
        calls, ask = find_calls(verdict, self.is_named), _asking(engine, control)
        if isinstance(error, SqlFailed) and len(verdict.files) == 1:
            # With what the query says of the file already.
            csv, hint = next((call for call in calls if call.form == "csv"), None), error.hint or ""
            hint = hint if csv is None else _with_options(csv, hint)
            error.hint = hint.replace("'FILE'", quote_text(verdict.files[0])) or None
        if "the file is not UTF-8" in error.message:
            return self._encoding_hint([*verdict.files, self.name(error.data.get("file", ""))])
        if isinstance(error, FileMissing):
            return self._missing_hint(verdict.files)
        for call in calls:
            with contextlib.suppress(NbtoolsError):
                if way := self._type_hint(call, verdict.sql, error, ask, control):
                    return way
        form = next((form for what, form in _UNREAD.items() if what in error.message), "")
        if form == "json" and len(verdict.files) == 1 and (path := self._path(verdict.files[0])) is not None:
            error.message = _LINE.sub(lambda match: f"in line {broken_line(path, int(match[1])):d}", error.message)
        before = "Correct that line, or read such lines as missing values" if form == "json" else "Read it this way"
        before = "Correct it, or read the first value of each key" if "duplicate key" in error.message else before
        for call in (call for call in calls if call.form == form):
            if form == "csv" and "encoding" not in call.options and (way := self._encoding_hint(verdict.files)):
                return way
            with contextlib.suppress(NbtoolsError):
                literal = self._literal(call)
                files = self._listed(literal, ask)
                options = way_to_read(self._opened(literal, files, control, isolated=False).call, ask)
                if options is not None:
                    return f"{before}: FROM {literal.text(options)}"
        return None

    def _type_hint(self, call: FileCall, sql: str, error: NbtoolsError, ask: Ask, control: QueryControl) -> str | None:
        """Return how files are read whose columns have other types or names than a query takes them for."""
        if call.form == "csv" and _TEXT_FOR_NUMBER.search(error.message):
            word = _WORD.search(error.message)
            if word and word[1] in self.words and "nullstr" not in call.options:
                gaps = f"['', {quote_text(word[1])}]"
                return f"Read it as missing: FROM {call.text({'nullstr': gaps})}"
            literal = self._literal(call)
            opened = self._opened(literal, self._listed(literal, ask), control, isolated=False)
            read, _ = as_it_is(opened.call, opened.names, ask, self.words)
            more = {name: text for name, text in read.options.items() if name not in opened.call.options}
            literal = literal._replace(options={**literal.options, **more})
            return ", or ".join(ways_to_numbers(literal, read, sql, ask, self.words)) or None
        names = [file.name for file in self._listed(call, ask)] if '"' in error.message else []
        heads = _heads(call, names, ask, self.words)
        return mismatch_hint(error, call, heads) or left_out(call, heads, len(names), ask).hint(error, call)

    def _encoding_hint(self, files: Sequence[str]) -> str | None:
        for name in files:
            path = self._path(name)
            likely = () if path is None else likely_encodings(path, look_at(path).form)
            if likely and likely[0] != "utf-8":
                call = f"FROM read_csv({quote_text(name)}, encoding = '{likely[0]}')"
                return f"Name its encoding, perhaps {call}; it may also be {', '.join(map(repr, likely[1:4]))}."
        return None

    def _missing_hint(self, files: Sequence[str]) -> str | None:
        for name in files:
            try:
                self._locate(name)
            except FileMissing as exc:
                return f"Did you mean {quote_text(near)}?" if (near := exc.data.get("near")) else exc.hint
            except NbtoolsError:
                continue
        return None

    def reader_error(self, name: str) -> SqlInvalid | None:
        """Return what is wrong with a name that is not a table, where a file or a folder has it; else `None`."""
        if self._path(name, os.path.isdir) is not None:
            hint = f"Read the files in it: FROM {quote_text(name.rstrip('/') + '/**/*.parquet')}"
            return SqlInvalid(f"{name!r} is a folder.", hint=hint, tried="running SQL")
        path = self._path(name)
        return None if path is None else look_at(path).reader_error(name)

    def _reading(
        self,
        call: FileCall,
        engine: SqlEngine,
        control: QueryControl,
        most_bytes: int,
        growing: Collection[Path] = (),
        *,
        isolated: bool,
        paths: Mapping[str, Path] = {},
        stamps: dict[Path, Stamp] | None = None,
    ) -> CallReading:
        """Return how a call is read, given paths of files that are known.

        What tells its files from others, before they are looked at, goes to `stamps`.
        """
        ask = _asking(engine, control)
        literal = self._literal(call)
        is_parquet = call.form == "other" and not any(map(self.is_named, call.paths))
        if call.form == "other" and not is_parquet:
            return CallReading(literal.text({}))
        try:
            files = self._listed(literal, ask, paths, growing)
        except NbtoolsError:
            control.check()
            return CallReading()  # The query itself says what is wrong with the file, and where it stands in the text.
        if stamps is not None and [file.name for file in files] != [*call.paths]:
            watched = (file.path for file in files[:MOST_WATCHED])
            stamps |= {path: stamp_in_folder(path) for path in watched if path is not None and path not in stamps}
        identity = (call.function, call.files, call.names_files, *call.options.items())
        key = (identity, tuple((file.name, file.identity) for file in files), most_bytes, isolated)
        is_known_again = all(file.identity is not None for file in files)
        with self._lock:
            reading = self._readings.get(key) if is_known_again else None
        if reading is not None:
            return reading
        names = [file.name for file in files]
        opened = (
            _OpenCall(literal, names, None) if is_parquet else self._opened(literal, files, control, isolated=isolated)
        )
        size = sum(file.size * (_PACKED if PACKED.search(file.name) else 1) for file in files)
        is_open = not is_parquet and DECIDED.isdisjoint(call.options)
        try:
            decided = _of_parquet(files, paths) if is_parquet else self._decided(opened, size, most_bytes, ask)
            heads = _heads(opened.call, opened.names, ask, self.words if size <= most_bytes else ())
            phrase = self.name(left_out(opened.call, heads, len(opened.names), ask).phrase)
            decided = decided._replace(notes=(*filter(None, [phrase]), *decided.notes))
        except NbtoolsError as exc:
            control.check()
            why = brief(exc.message.partition("\n")[0], _SHOWN)
            note = f"types by its first lines, because all lines could not be examined: {why}"
            decided = CallReading(notes=(note,) if is_open else ())
        if decided.text is None and opened.call != call and not is_parquet:
            decided = decided._replace(text=opened.call.text({}))
        if decided.text is not None and opened.copies and "filename" in opened.call.options:
            whens = "".join(f" WHEN {quote_text(copy)} THEN {quote_text(name)}" for copy, name in opened.copies)
            column = f"CASE filename{whens} ELSE filename END AS filename"
            decided = decided._replace(text=f"(SELECT * REPLACE ({column}) FROM {decided.text})")
        if is_known_again:
            with self._lock:
                if len(self._readings) >= _REMEMBERED:
                    self._readings.clear()
                self._readings[key] = decided
        return decided

    def _listed(
        self, call: FileCall, ask: Ask, paths: Mapping[str, Path] = {}, growing: Collection[Path] = ()
    ) -> list[_File]:
        """Return the files of a call, given paths that are known; those of patterns as the engine finds them."""
        rows = [(name, paths.get(name) or self._path(name), 0) for name in call.paths]
        if any(path is None for _, path, _ in rows):
            sizes = ask(f"SELECT filename, size FROM read_blob({call.files})")
            rows = [(str(name), self._path(str(name)), int(size)) for name, size in sizes]
        files = []
        for name, path, size in rows:
            identity, is_settled = identity_of(name if path is None else path)
            length = size or sum(identity[2:3])
            files.append(_File(name, path, length, identity if is_settled else None, path in growing))
        return files

    def _literal(self, call: FileCall) -> FileCall:
        """Return a call of which each file that is named is that file."""
        named = [_literal(path) if self.is_named(path) else path for path in call.paths]
        return call if named == [*call.paths] else call.renamed(named)

    def options(
        self, verdict: Verdict, engine: SqlEngine, control: QueryControl, *, most_bytes: int = _AT_ONCE_BYTES
    ) -> tuple[OptionsOfFile, ...]:
        """Return how each file of a judged text is read; for the parameters see `read`.

        Of files of more than `most_bytes`, words that are read as missing are not counted.
        """
        files = []
        places: dict[str, list[FileCall]] = {}
        for call in sorted(find_calls(verdict), key=lambda call: call.start):
            places.setdefault(verdict.sql[call.start : call.end], []).append(call)
        for call, *others in places.values():
            if call.form != "other":
                explicit = values_of(call.options)
                about: dict[str, Any] = {"options": explicit}
                try:
                    about = self._about(call, engine, control, most_bytes)
                except NbtoolsError as exc:
                    control.check()
                    about["problem"] = exc.message
                path = self._path(call.paths[0])
                if path is not None and call.form != "workbook" and not (look := look_at(path)).encoding:
                    about["encodings"] = likely_encodings(path, look.form)
                of = functools.partial(OptionsOfFile, file=call.paths[0], form=call.form, explicit=tuple(explicit))
                files.append(of(**about, calls=(call, *others), sql=verdict.sql))
        return tuple(files)

    def _about(self, call: FileCall, engine: SqlEngine, control: QueryControl, most_bytes: int) -> dict[str, Any]:
        path = self._path(call.paths[0])
        options = values_of(call.options)
        if call.form == "workbook":
            sheets = () if path is None else sheet_names(path)
            usual = {"sheet": sheets[0] if sheets else None, "range": None, "header": True, "nullstr": [*self.words]}
            return {"options": usual | options, "sheets": sheets}
        ask, literal = _asking(engine, control), self._literal(call)
        opened = self._opened(literal, self._listed(literal, ask), control, isolated=False)
        encoding = look_at(path).encoding if path is not None else ""
        base = {"encoding": options.get("encoding", encoding or "utf-8")}
        if call.form == "json":
            return {"options": options | base}
        text, _ = as_it_is(opened.call, opened.names, ask, self.words)
        detected_options = detected(text, opened.names[0], ask, self.words)
        reading = self._reading(call, engine, control, most_bytes, isolated=False)
        about = {
            "options": {**detected_options, **reading.marks, **base},
            "missing": reading.missing,
            "formats": reading.formats,
            "own_forms": reading.own_forms,
        }
        gaps = None if path is None else has_gaps(path, detected_options["skip"])
        types = [] if gaps is None else ask(f"DESCRIBE FROM {reading.text or text.text({})}")
        return {**about, "has_gaps": bool(gaps), "types": dict(types)}

    def _opened(self, call: FileCall, files: Sequence[_File], control: QueryControl, *, isolated: bool) -> _OpenCall:
        """Return a call whose files are unpacked and in UTF-8, by options or by copies of them."""
        looks: dict[str, FirstBytes] = {}
        names, paths = [file.name for file in files], {file.name: file.path for file in files}
        grows = {file.name for file in files if file.grows}
        for name, path in paths.items():
            if len(looks) < MOST_HEADERS and path is not None:
                looks[name] = look_at(path, is_copied=name in grows)
                if looks[name].form not in _TEXTS:
                    raise looks[name].reader_error(name)
        options = {**(PADDING if call.options.get("null_padding", "").lower() == "true" else {}), **call.options}
        packed = {look.form for look in looks.values()}
        if len(packed) == 1 and packed < {"gzip", "zstd"} and not any(map(PACKED.search, names)):
            options.setdefault("compression", quote_text(*packed))
        encoding_named = str(constant(options["encoding"])) if "encoding" in options else ""
        native = native_name(encoding_named) if encoding_named else None
        if call.form == "json":  # its reader knows UTF-8 alone, and no such option
            options.pop("encoding", None)
            native = native if native == "utf-8" else None
        elif native is not None:
            options["encoding"] = quote_text(native)
        encodings = {name: encoding_named or look.encoding for name, look in looks.items() if grows or native is None}
        copied = {name: encoding for name, encoding in encodings.items() if encoding}
        if not copied or self._copies is None:
            changed = call._replace(options=options)
            return _OpenCall(changed, list(map(_literal, names)), files[0].path if files else None)
        copies = {}
        for name, encoding in copied.items():
            if (path := paths[name]) is not None:
                copy = functools.partial(self._copies.copy, path, encoding, looks[name], control)
                copies[name] = str(copy(shared=isolated, growing=name in grows))
        self._copied |= {copy: name for name, copy in copies.items()}
        options = {name: text for name, text in options.items() if name not in {"encoding", "compression"}}
        options |= {"filename": "true"} if call.names_files else {}
        targets = [copies.get(name) or _literal(name) for name in names]
        changed = call.renamed(targets)._replace(options=options, names_files=False)
        first = Path(copies[names[0]]) if names[0] in copies else paths[names[0]]
        return _OpenCall(changed, targets, first, tuple((copy, name) for name, copy in copies.items()))

    def _decided(self, opened: _OpenCall, size: int, most_bytes: int, ask: Ask) -> CallReading:
        call = opened.call
        is_csv = call.form == "csv"
        if is_csv and call.options.get("sample_size") == "-1":  # all lines decide then, by the same rules
            options = {name: text for name, text in call.options.items() if name != "sample_size"}
            call, most_bytes = call._replace(options=options), max(most_bytes, size)
        most_bytes = most_bytes if is_csv else max(most_bytes, SEARCHED_BYTES)  # objects are read at once
        # The first rows alone are wanted, which stay until all lines were looked at.
        is_first = size > most_bytes and most_bytes < WHOLE_BYTES
        is_looked_at = is_first or size <= SEARCHED_BYTES
        content = opened.content(SEARCHED_BYTES) if is_csv and is_looked_at else None
        words, is_whole = self.words if is_first or size <= most_bytes else (), size <= most_bytes
        what = ""
        if is_csv:
            call, what = as_it_is(call, opened.names, ask, words, content, is_whole=is_whole)
            call = by_name(call, _heads(call, opened.names, ask, words), len(opened.names))
        if size > most_bytes:
            share = f"of {size / 1_000_000:,.{0 if size >= 10_000_000 else 1}f} MB"
            by_lines = functools.partial(by_first_lines, words=words, content=content) if is_first else by_sample
            is_open = is_csv and DECIDED.isdisjoint(call.options)
            reading = by_lines(call, opened.names, ask) if is_open else CallReading()
            note = f"types by its first lines (20,480 at most), {share}" if is_csv else _OF_OBJECTS.format(share)
            reading = reading._replace(notes=(note, *reading.notes))
        elif call.form == "json":
            reading = read_objects(call, ask)
        else:
            reading = read_types(call, opened.names, ask, content=content, words=self.words)
        if reading.text is None and call != opened.call:
            reading = reading._replace(text=call.text({}))
        if is_csv:
            phrases = oddities(call, opened.names[:MOST_HEADERS], ask, words, content=content, is_whole=is_whole)
            reading = reading._replace(notes=(*filter(None, [what]), *map(self.name, phrases), *reading.notes))
        return reading


def _of_parquet(files: Sequence[_File], named: Collection[str]) -> CallReading:
    """Return what the first of several files says of the columns; files that are named have their own notes."""
    first = [file.path for file in files[:1] if file.path is not None and file.name not in named]
    return CallReading(notes=durations_in(first[0]) if first else ())


def _heads(call: FileCall, files: Sequence[str], ask: Ask, words: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the names of the columns of each of several files; of no others."""
    if len(files) < 2 or call.form not in {"csv", "other"}:
        return {}
    return footers(files, ask) if call.form == "other" else headers(call, files[:MOST_HEADERS], ask, words)


def _asking(engine: SqlEngine, control: QueryControl) -> Ask:
    @functools.cache
    def ask(sql: str) -> list[list[Any]]:
        if (source := sql.removeprefix("DESCRIBE ")) != sql:
            bound = engine.run(QueryRequest(sql=source, only_types=True, timeout=None), control)
            return [list(pair) for pair in zip(bound.columns, bound.types, strict=True)]
        if own := getattr(engine, "ask", None):
            return [list(row) for row in own(sql, control)]
        return engine.run(QueryRequest(sql=sql, max_bytes=None, timeout=None), control).rows.to_lists()

    return ask


def _with_options(call: FileCall, hint: str) -> str:
    """Return a hint whose calls have the options of a call too."""
    return _WAY.sub(lambda way: call.text(unsaid(call, dict(re.findall(r"(\w+) = ([^,]+)", way[1])))), hint)


def _is_written_out(call: FileCall, text: str) -> bool:
    """Tell whether a text reads the files of a judged call, as it names them, by options that are written out."""
    match = _CALL.fullmatch(text) if len(text) <= _MOST_PLAIN else None
    return match is not None and match.groups() == (call.function, call.files)


def _literal(path: str) -> str:
    """Return the pattern that matches one path alone; most paths are one."""
    return PATTERN.sub(r"[\g<0>]", path)


def point_back(error: NbtoolsError, reading: TextReading | None, sql: str, source: str) -> None:
    """Let an error that points into the text that ran point into the one that was written.

    Parameters
    ----------
    error
        The error, which is changed.
    reading
        How the text that was judged became the one that ran; `None` where that is the same.
    sql
        The text that was judged.
    source
        The same as it was written: it differs by the marks of its parameters alone.
    """
    line, column = error.data.get("line"), error.data.get("column")
    edits = () if reading is None else reading.edits
    if isinstance(line, int) and isinstance(column, int) and (edits or source != sql):
        if reading is not None and edits:
            before = "".join(f"{text}\n" for text in reading.sql.split("\n")[: line - 1])
            line, column = line_and_column(sql, origin(edits, len(before) + column - 1))
        what = error.message.partition("\n")[0].partition(": ")[2]
        error.message = f"line {line}: {what}\n{caret_below(source, line, column)}"
        error.data = {**error.data, "line": line, "column": column}
    if reading is not None:
        reading.explain(error)
