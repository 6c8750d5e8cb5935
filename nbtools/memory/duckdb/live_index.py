"""LiveIndex: an SQLite index of the live records, which can be rebuilt from them at any time.

The index has all live records with their tags and words. It is a row store, which answers small questions twenty times
faster than DuckDB. Changes are queued and applied when the next question is asked: a counter that was added to a
thousand times costs one update, and a new note is found at once.

Beside a memory file the index is a file too. It stores the number of the last change that it has. A start applies the
changes since then, and compares the number of records and the sum of their sequence numbers with the memory file. If
they differ, or if the index cannot be read, it is built again from the records.

Everything that is read is checked. The file changes only when its write-ahead log, whose pages SQLite checks itself, is
moved into it. Then a checksum of the whole file is written beside it, and the next start compares the two. Each record
has its own checksum, because a block can also be damaged later.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nbtools.memory.records import escape_part
from nbtools.memory.repository import Query
from nbtools.memory.rules.fts5 import WORDS_SCHEMA, WordIndex, check_sqlite
from nbtools.memory.rules.rows import Row, scope_of
from nbtools.memory.rules.text_search import record_text

# What the words of a text are depends on Unicode's tables, and they must be split again as they were.
_VERSION = f"2, Unicode {unicodedata.unidata_version}"
# A start takes up so many changes; if there are more, everything is made again, off the path of any request.
_MOST_CHANGES = 5_000
_MANY_QUEUED = 5_000
_LOCK_TIMEOUT = 0.02
# A write-ahead log of so many bytes is moved into the file when there is time.
_LONG_LOG = 4 << 20
# The number of a record is that of its scope, and behind it that of the record.
_SCOPE_BITS = 40
_SCHEMA = Path(__file__).with_name("index.sql").read_text(encoding="utf-8") + WORDS_SCHEMA
_LIVE = "(live.expires IS NULL OR live.expires > ?)"
_Scanned = Iterable[Sequence[Row]]
# As `nbtools.memory.records.escape_part` writes a key in an id, by which the records of all scopes are ordered.
_ESCAPED = "replace(replace(replace(live.key, '%', '%25'), ':', '%3A'), '*', '%2A')"
_PLACE = "scope = ? AND key = ?"
_FIELDS = "expires, tags, seq, op, created, updated, version, value"
_INSERT = f"""
INSERT INTO live (n, scope, key, {_FIELDS}, checksum) VALUES ({", ".join("?" * 12)}) ON CONFLICT (n) DO UPDATE SET
{", ".join(f"{name} = excluded.{name}" for name in [*_FIELDS.split(", "), "checksum"])}
"""
_T = TypeVar("_T")


class IndexSource(NamedTuple):
    """What the index is made from.

    Attributes
    ----------
    overlay
        Returns a sequence number, and the newest rows that are not in the file yet.
    scan
        Returns slices of the records in the file with later numbers than the one given; with 0 only the live ones.
    totals
        Returns how many live records the file has, and the sum of their sequence numbers, without those of some ids.
    """

    overlay: Callable[[], tuple[int, Sequence[Row]]]
    scan: Callable[[int], _Scanned]
    totals: Callable[[Sequence[str]], tuple[int, int]]


class LiveIndex:
    """Keys, tags and words of the live records.

    Parameters
    ----------
    source
        The records. When the index is built, changes that `note` is told meanwhile may be in what it returns, or not.
    path
        The file that keeps the index; `None` for one in memory.

    Attributes
    ----------
    ahead
        How many changes an earlier life of the file had that the source lacks: they were stored, and are lost.
    """

    def __init__(self, source: IndexSource, path: Path | None = None) -> None:
        check_sqlite()
        self._source = source
        self._path = self._file = path
        self._lock = threading.RLock()
        self._queue: dict[str, Row] = {}
        self._queue_lock = threading.Lock()
        self._is_noting = False
        self._database: sqlite3.Connection | None = None
        self.ahead = 0
        self._reset()
        if path is not None:
            self._resume(path)

    def note(self, rows: Iterable[Row], seq: int) -> None:
        """Queue the newest rows of some ids; `seq` is the last sequence number in use at that moment."""
        if self._is_noting:
            with self._queue_lock:
                self._queue.update((row.id, row) for row in rows)
                self._queued_upto = seq

    def run_upkeep(self, *, is_quiet: bool) -> None:
        """Apply and save the queued changes; the engine calls it from time to time.

        Parameters
        ----------
        is_quiet
            Whether there are no requests now, so that there is time for slower work.
        """
        if not is_quiet and len(self._queue) < _MANY_QUEUED:
            return
        if self._database is None and not (is_quiet and self._path is not None):
            return
        moved = self._answer(lambda: self._do_upkeep(is_quiet=is_quiet))
        if moved is not None:
            with contextlib.suppress(OSError):  # It may be removed meanwhile; another one has another checksum.
                _write_checksum(moved)

    def _do_upkeep(self, *, is_quiet: bool) -> Path | None:
        """Return the file if the log was moved into it: its checksum is had without holding up anybody."""
        if self._seq != self._saved_seq:
            if is_quiet:
                self._words.merge_pages()
            self._save()
        most = _LONG_LOG if is_quiet else 16 * _LONG_LOG
        if self._path is None or _wal_path(self._path).stat().st_size < most:
            return None
        self._checkpoint()
        return self._path

    def close(self) -> None:
        """Save the applied changes and close the file."""
        with self._lock, contextlib.suppress(sqlite3.Error, OSError):
            if self._database is not None:
                self._apply_queue()
                self._save()
                self._checkpoint()
                self._database.close()
                if self._path is not None:
                    _write_checksum(self._path)
        self._database, self._is_noting = None, False

    def erase(self) -> None:
        """Remove the file with everything in it; it is made again from the records when it is needed."""
        with self._lock:
            self._discard()
            if self._file is not None:  # Also one that went wrong and was left for an index in memory.
                _remove_files(self._file)

    def ids(self, query: Query, now: int) -> list[str]:
        """Return the ids of the live records that match, in the query's order; words and vectors are not looked at."""
        return self._answer(lambda: self._ids(query, now))

    def _ids(self, query: Query, now: int) -> list[str]:
        if query.scope is not None:
            number = self._scopes.get(query.scope.prefix)
            prefix = query.scope.prefix
            return [] if number is None else [prefix + escape_part(k) for k in self._keys(number, query, now)]
        matches: list[str] = []
        # No prefix of a scope is the beginning of another one, so the scopes follow each other in the order of the ids.
        for prefix, number in sorted(self._scopes.items()):
            if query.after is None or query.after < (end_of_prefix(prefix) or query.after):
                matches += [prefix + escape_part(key) for key in self._keys(number, query, now, prefix)]
            if query.limit is not None and len(matches) >= query.limit:
                break
        return matches if query.limit is None else matches[: query.limit]

    def rows(self, ids: Sequence[str]) -> list[Row]:
        """Return the newest rows of those of some ids that are live records, without vectors, in no order.

        Empty if the index is not there yet, busy with itself or damaged: then the file is the better place to look.
        """
        if self._database is None or not self._lock.acquire(timeout=_LOCK_TIMEOUT):
            return []
        try:
            queued = [row for record_id in ids if (row := self._queue.get(record_id)) is not None]
            waiting = {row.id for row in queued}
            stored = self._rows([record_id for record_id in ids if record_id not in waiting])
            return [*stored, *(row for row in queued if row.value is not None)]
        except sqlite3.Error:
            self._path = None
            self._discard()
            return []
        finally:
            self._lock.release()

    def _rows(self, ids: Sequence[str]) -> list[Row]:
        by_prefix: dict[str, list[str]] = {}
        for record_id in ids:
            prefix, _, _ = record_id.rpartition(":")
            by_prefix.setdefault(prefix + ":", []).append(record_id)
        rows: list[Row] = []
        for prefix, some in by_prefix.items():
            if prefix in self._scopes:
                agent, workflow, node = (None if part == "*" else _unescape(part) for part in prefix.split(":")[:3])
                for record_id in some:
                    key = _unescape(record_id[len(prefix) :])
                    for _, (expires, tags, seq, op, *times, version, value) in self._read(self._scopes[prefix], key):
                        facts = (value, _split_tags(tags), *times, expires, version)
                        rows.append(Row(seq, record_id, agent or "", workflow, node, key, op, *facts))
        return rows

    def ids_below(self, prefix: str, now: int) -> list[str]:
        """Return the ids of the live records in all scopes whose own prefix starts so."""
        return self._answer(
            lambda: [
                scope + escape_part(key)
                for scope, number in self._scopes.items()
                if scope.startswith(prefix)
                for key in self._keys(number, Query(), now)
            ]
        )

    def total(self) -> int:
        """Return how many records there are, expired ones that were not swept yet included."""
        return self._answer(lambda: self._one("SELECT count(*) FROM live"))

    def count(self, query: Query, now: int) -> int:
        """Return how many live records match, without limit and place of continuation."""

        def counted() -> int:
            prefixes = list(self._scopes) if query.scope is None else [query.scope.prefix]
            numbers = [self._scopes[prefix] for prefix in prefixes if prefix in self._scopes]
            sources = [_source(number, query, now) for number in numbers]
            return sum(self._one(f"SELECT count(*) {source}", values) for source, values in sources)

        return self._answer(counted)

    def search(self, query: Query, now: int) -> list[tuple[str, float]]:
        """Return ids and scores of the live records that fit the query's text, best first."""
        return self._answer(lambda: self._search(query.text or "", query, now))

    def _search(self, text: str, query: Query, now: int) -> list[tuple[str, float]]:
        names = {n: prefix for prefix, n in self._scopes.items()}
        first, last = 0, len(names)
        if query.scope is not None:
            first = last = self._scopes.get(query.scope.prefix, 0)
        within = (first << _SCOPE_BITS, (last + 1 << _SCOPE_BITS) - 1)
        most = query.most_found
        where, more = _where(query, now)
        scores: dict[str, float] = {}
        for source, values in self._words.selects(text, *within, tags=query.tags, match=query.match) if last else ():
            sql = f"SELECT scope, key, score FROM ({source}) AS best JOIN live ON live.n = best.n WHERE {where}"
            rows = self._all(f"{sql} ORDER BY score DESC, seq DESC LIMIT ?", [*values, *more, most])
            least = min(scores.values(), default=math.inf)
            for scope, key, score in rows:
                scores.setdefault(names[scope] + escape_part(key), min(score, least))
            if len(scores) >= most:
                break
        return list(scores.items())[:most]

    # -- building

    def _reset(self) -> None:
        self._scopes: dict[str, int] = {}
        self._last: dict[int, int] = {}
        self._seq = self._queued_upto = 0
        self._saved_seq = -1

    def _answer(self, answer: Callable[[], _T]) -> _T:
        """Return an answer as of now; when the database fails, from one in memory that is made again."""
        with self._lock:
            try:
                self._ready()
                return answer()
            except Exception:  # A damaged file has values of any kind; a fault of our own comes again.
                self._path = None
                self._discard()
                self._ready()
                return answer()

    def _ready(self) -> None:
        if self._database is None:
            self._build()
        self._apply_queue()

    def _discard(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
        self._database, self._is_noting = None, False
        self._reset()

    def _open(self, path: Path | None) -> sqlite3.Connection:
        database = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        for pragma in (
            # One process has the file, so the log's index need not be shared, which not every disk can do.
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL" if path is not None else "journal_mode = OFF",
            "synchronous = NORMAL",
            "wal_autocheckpoint = 0",
            "cache_size = -8000",
            "temp_store = MEMORY",
        ):
            database.execute(f"PRAGMA {pragma}")
        return database

    def _build(self) -> None:
        with self._queue_lock:
            self._queue.clear()
            self._is_noting = True
        if self._path is not None:
            try:
                _remove_files(self._path)
                self._database = self._open(self._path)
            except (sqlite3.Error, OSError):
                self._path = None
        self._database = self._database or self._open(None)
        # Tables and content come in one transaction: a file that was left half made has neither.
        self._execute("BEGIN")
        for statement in _SCHEMA.split(";"):
            self._execute(statement)
        self._words = WordIndex(self._database)
        # The overlay is copied first: what is merged meanwhile is then in the file, and what comes meanwhile is noted.
        self._seq, overlay = self._source.overlay()
        self._queued_upto = self._seq
        for items in self._source.scan(0):
            for item in items:
                self._insert(item)
        self._put(overlay)
        self._save()
        self._checkpoint()
        if self._path is not None:
            _write_checksum(self._path)

    def _resume(self, path: Path) -> None:
        """Open the index file of an earlier process, if it agrees with the records."""
        try:
            if not _is_whole(path):
                return
            self._database = self._open(path)
            self._words = WordIndex(self._database)
            if self._agrees_with_source():
                self._is_noting = True
                return
        except Exception:  # Whatever is wrong with it, a new one takes its place.
            pass
        self._discard()

    def _agrees_with_source(self) -> bool:
        facts = self._all("SELECT version, seq FROM facts", ())
        if len(facts) != 1 or facts[0][0] != _VERSION:
            return False
        self._seq = self._saved_seq = facts[0][1]
        self._scopes = {prefix: n for n, prefix in self._all("SELECT n, prefix FROM scopes", ())}
        upto, overlay = self._source.overlay()
        self.ahead = max(0, self._seq - upto)
        changed: dict[str, Row] = {}
        for items in self._source.scan(self._seq):
            changed |= {row.id: row for row in items}
            if len(changed) > _MOST_CHANGES:
                return False
        changed |= {row.id: row for row in overlay}
        self._execute("BEGIN")
        # What changed is taken over with the first question; the rest must be what it was.
        count, total = self._all("SELECT count(*), coalesce(sum(seq), 0) FROM live", ())[0]
        for row in changed.values():
            for (seq,) in self._all(f"SELECT seq FROM live WHERE {_PLACE}", (self._number_of(row), row.key)):
                count, total = count - 1, total - seq
        self._queue, self._queued_upto = changed, upto
        return not self.ahead and (count, total) == self._source.totals(list(changed))

    def _save(self) -> None:
        """Commit the applied changes with the number of the last one, and begin the next transaction."""
        self._execute("DELETE FROM facts")
        self._execute("INSERT INTO facts VALUES (?, ?)", (_VERSION, self._seq))
        self._execute("COMMIT")
        self._execute("BEGIN")
        self._saved_seq = self._seq

    def _checkpoint(self) -> None:
        """Move the write-ahead log into the file, which changes the file's checksum."""
        self._execute("COMMIT")
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._execute("BEGIN")

    def _apply_queue(self) -> None:
        with self._queue_lock:
            queue, self._queue = self._queue, {}
            seq = self._queued_upto
        if queue:
            self._put(queue.values())
        self._seq = seq

    def _put(self, rows: Collection[Row]) -> None:
        """Replace what is known of some ids."""
        # In the order of the numbers, in which FTS5 collects changes and writes them at once.
        for row in sorted(rows, key=self._number_or_last) if len(rows) > 1 else rows:
            n = self._remove_words(row)
            if row.value is not None:
                self._insert(row, n)
            elif n is not None:
                self._execute("DELETE FROM live WHERE n = ?", (n,))

    def _number_or_last(self, row: Row) -> float:
        numbers = self._all(f"SELECT n FROM live WHERE {_PLACE}", (self._number_of(row), row.key))
        return numbers[0][0] if numbers else math.inf

    def _remove_words(self, row: Row) -> int | None:
        """Remove the words and lost tags of the record that a row replaces; return its number, `None` if it is new."""
        scope = self._number_of(row)
        for n, (_, joined, *_, value) in self._read(scope, row.key):
            tags = _split_tags(joined)
            self._words.remove(n, record_text(row.key, tags, value), tags)
            for tag in set(tags).difference(row.tags if row.value is not None else ()):
                self._execute("DELETE FROM tagged WHERE scope = ? AND tag = ? AND key = ?", (scope, tag, row.key))
            return n
        return None

    def _insert(self, row: Row, n: int | None = None) -> None:
        scope = self._number_of(row)
        n = n or self._next_number(scope)
        value = row.value or "null"
        facts = (row.seq, row.op, row.created, row.updated, row.version)
        record = (scope, row.key, row.expires, "\n".join(row.tags), *facts, value)
        self._execute(_INSERT, (n, *record, _checksum(record)))
        for tag in row.tags:
            self._execute("INSERT OR IGNORE INTO tagged VALUES (?, ?, ?)", (scope, tag, row.key))
        self._words.add(n, record_text(row.key, row.tags, value), row.tags)

    def _next_number(self, scope: int) -> int:
        last = self._last.get(scope)
        if last is None:
            first = scope << _SCOPE_BITS
            sql = "SELECT max(n) FROM live WHERE n BETWEEN ? AND ?"
            last = self._one(sql, (first, first + (1 << _SCOPE_BITS) - 1)) or first
        self._last[scope] = last + 1
        return last + 1

    def _read(self, scope: int, key: str) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield number and fields of the record of a key, if there is one.

        Raises
        ------
        sqlite3.DatabaseError
            It is not what was written.
        """
        for n, checksum, *fields in self._all(f"SELECT n, checksum, {_FIELDS} FROM live WHERE {_PLACE}", (scope, key)):
            if checksum != _checksum((scope, key, *fields)):
                raise sqlite3.DatabaseError("a record has another checksum")
            yield n, fields

    def _number_of(self, row: Row) -> int:
        prefix = scope_of(row.agent, row.workflow, row.node).prefix
        number = self._scopes.get(prefix)
        if number is None:
            number = self._scopes[prefix] = len(self._scopes) + 1
            self._execute("INSERT INTO scopes VALUES (?, ?)", (number, prefix))
        return number

    # -- asking

    def _keys(self, number: int, query: Query, now: int, prefix: str = "") -> list[str]:
        source, values = _source(number, query, now)
        sql = f"SELECT live.key {source}"
        if query.scope is not None:
            if query.after is not None:
                sql += " AND live.key > ?"
                values.append(query.after)
            # The same key, and those of a tag are in order already.
            sql += " ORDER BY some.key" if query.tags else " ORDER BY live.key"
            if query.limit is not None:
                sql += " LIMIT ?"
                values.append(query.limit)
        elif prefix:
            sql += f" AND ? || {_ESCAPED} > ? ORDER BY {_ESCAPED} LIMIT ?"
            values += [prefix, query.after or "", -1 if query.limit is None else query.limit]
        return [key for (key,) in self._all(sql, values)]

    def _execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        assert self._database is not None
        return self._database.execute(sql, values)

    def _all(self, sql: str, values: Sequence[object]) -> list[Any]:
        return self._execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[object] = ()) -> int:
        return int(self._all(sql, values)[0][0] or 0)


def end_of_prefix(prefix: str) -> str | None:
    """Return the smallest text that is greater than every text with this prefix; `None` when there is none."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            # Surrogates are not characters.
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return None


def _source(number: int, query: Query, now: int) -> tuple[str, list[object]]:
    """Return FROM and WHERE for the live records of one scope that match."""
    values: list[object] = []
    source = "FROM live WHERE live.scope = ?"
    if query.tags:
        word = " INTERSECT " if query.match == "all" else " UNION "
        tagged = word.join(["SELECT key FROM tagged WHERE scope = ? AND tag = ?"] * len(query.tags))
        for tag in query.tags:
            values += [number, tag]
        # A cross join keeps the order: from the few tagged keys to their records, never through all records.
        source = f"FROM ({tagged}) AS some CROSS JOIN live ON live.key = some.key WHERE live.scope = ?"
    where, more = _where(query, now)
    return f"{source} AND {where}", [*values, number, *more]


def _where(query: Query, now: int) -> tuple[str, list[object]]:
    """Return what a live record must fulfil whatever its scope and tags."""
    where = _LIVE
    values: list[object] = [now]
    if query.prefix:
        where += " AND live.key >= ?"
        values.append(query.prefix)
        end = end_of_prefix(query.prefix)
        if end is not None:
            where += " AND live.key < ?"
            values.append(end)
    return where, values


def _wal_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _checksum_path(path: Path) -> Path:
    return path.with_name(path.name + ".sum")


def _write_checksum(path: Path) -> None:
    """Write the checksum of the file beside it."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(_checksum_of(path))
    draft.replace(_checksum_path(path))


def _is_whole(path: Path) -> bool:
    """Return whether the file is, byte for byte, what `LiveIndex` left."""
    return path.exists() and _checksum_path(path).exists() and _checksum_path(path).read_text() == _checksum_of(path)


def _checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        total = 0
        while some := file.read(1 << 20):
            total = zlib.crc32(some, total)
        return f"{total:08x} {file.tell()}"


def _checksum(record: Iterable[object]) -> int:
    return zlib.crc32("\0".join(map(str, record)).encode())


def _split_tags(tags: str) -> tuple[str, ...]:
    return tuple(tags.split("\n")) if tags else ()


def _unescape(part: str) -> str:
    """Return a part of a namespaced id as it was before `escape_part`."""
    return part.replace("%3A", ":").replace("%2A", "*").replace("%25", "%") if "%" in part else part


def _remove_files(path: Path) -> None:
    """Remove the file and what belongs to it."""
    for name in (path, _wal_path(path), path.with_name(path.name + "-shm"), _checksum_path(path)):
        name.unlink(missing_ok=True)
