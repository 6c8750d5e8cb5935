"""LiveIndex: where to find live records, derived from them and rebuilt at will.

All live records with their tags and words in an SQLite database, because a row store answers such small questions
twenty times faster than DuckDB. Changes are queued and taken over when the next question is asked, so a counter that is
added to a thousand times costs one update, and a note can be found at once.

Beside a memory file the database is a file too, and a start takes it up where it ended: it tells up to which change it
is complete, what changed since is put into it, and then number and sum of its records must be those of the memory file.
If they are not, or if anything of it cannot be read, it is made anew from the records.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nbtools.memory.records import escape_part
from nbtools.memory.repository import Query
from nbtools.memory.rows import Row, scope_of
from nbtools.memory.search import record_text, split_words
from nbtools.memory.words import WORDS_SCHEMA, Words

__all__ = ["LiveIndex", "Source", "end_of_prefix"]

_VERSION = 1
_MOST_FOUND = 1_000
# A start takes up so many changes; if there are more, everything is made anew, off the path of any request.
_MOST_CHANGES = 5_000
_MANY_QUEUED = 5_000
_PATIENCE = 0.02
# Numbers of records that are gone take room; beyond so many more than there are records, all is made anew.
_GONE = 20_000
_SCHEMA = (
    """
CREATE TABLE live (
    n INTEGER PRIMARY KEY, scope INTEGER, key TEXT, expires INTEGER, tags TEXT, seq INTEGER, op TEXT, created INTEGER,
    updated INTEGER, version INTEGER, value TEXT, UNIQUE (scope, key)
);
CREATE TABLE tagged (scope INTEGER, tag TEXT, key TEXT, PRIMARY KEY (scope, tag, key)) WITHOUT ROWID;
CREATE TABLE scopes (n INTEGER PRIMARY KEY, prefix TEXT);
CREATE TABLE facts (version INTEGER, seq INTEGER, next INTEGER);
"""
    + WORDS_SCHEMA
)
_LIVE = "(live.expires IS NULL OR live.expires > ?)"
_Scanned = Iterable[Sequence[Row]]
_PLACE = "scope = ? AND key = ?"
_T = TypeVar("_T")


class Source(NamedTuple):
    """What the index is made from.

    Attributes
    ----------
    overlay
        Returns a sequence number, and the newest rows that are not in the file yet.
    scan
        Returns slices of the records in the file with later numbers than the one given; with 0 the live ones alone.
    sum_up
        Returns how many live records the file has, and the sum of their sequence numbers, without those of some ids.
    """

    overlay: Callable[[], tuple[int, Sequence[Row]]]
    scan: Callable[[int], _Scanned]
    sum_up: Callable[[Sequence[str]], tuple[int, int]]


class LiveIndex:
    """Keys, tags and words of the live records.

    Parameters
    ----------
    source
        The records. When the index is built, changes that `note` is told meanwhile may be in what it returns, or not.
    path
        The file that keeps the index; `None` for one in memory.
    """

    def __init__(self, source: Source, path: Path | None = None) -> None:
        self._source = source
        self._path = path
        self._lock = threading.RLock()
        self._queue: dict[str, Row] = {}
        self._queue_lock = threading.Lock()
        self._is_noting = False
        self._database: sqlite3.Connection | None = None
        self._begin()
        if path is not None:
            self._resume(path)

    def note(self, rows: Iterable[Row], seq: int) -> None:
        """Queue the newest rows of some ids; `seq` is the last number given out by then."""
        if self._is_noting:
            with self._queue_lock:
                self._queue.update((row.id, row) for row in rows)
                self._queued_upto = seq

    def tidy(self, *, is_quiet: bool) -> None:
        """Take over what is queued, keep it, and prepare for questions; called from time to time.

        Parameters
        ----------
        is_quiet
            Whether nobody asks at the moment, so that there is time for what takes longer.
        """
        if not is_quiet and len(self._queue) < _MANY_QUEUED:
            return
        if self._database is None and not (is_quiet and self._path is not None):
            return
        self._asked(lambda: self._tidy(is_quiet=is_quiet))

    def _tidy(self, *, is_quiet: bool) -> None:
        assert self._database is not None
        if is_quiet:
            self._words.load()
        if not self._words.tidy() and self._seq == self._kept:
            return
        if is_quiet and self._next > _GONE + 4 * self._one("SELECT count(*) FROM live"):
            self._forget()
            self._ready()
        self._keep()

    def close(self) -> None:
        """Keep what was taken over, and close the file."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._database is not None:
                self._take_over()
                self._keep()
                self._database.close()
        self._database, self._is_noting = None, False

    def ids(self, query: Query, now: int) -> list[str]:
        """Return the ids of the live records that match, in the query's order; words and vectors are not looked at."""
        return self._asked(lambda: self._ids(query, now))

    def _ids(self, query: Query, now: int) -> list[str]:
        if query.scope is not None:
            number = self._scopes.get(query.scope.prefix)
            prefix = query.scope.prefix
            return [] if number is None else [prefix + escape_part(k) for k in self._keys(number, query, now)]
        found = [
            prefix + escape_part(key)
            for prefix, number in self._scopes.items()
            for key in self._keys(number, query, now)
        ]
        found.sort()
        if query.after is not None:
            found = [record_id for record_id in found if record_id > (query.after or "")]
        return found if query.limit is None else found[: query.limit]

    def rows(self, ids: Sequence[str]) -> list[Row]:
        """Return the newest rows of those of some ids that are live records, without vectors, in no order.

        None if the index is not there yet or busy with itself: then the file is the better place to look.
        """
        if self._database is None or not self._lock.acquire(timeout=_PATIENCE):
            return []
        try:
            return self._asked(lambda: self._rows(ids))
        finally:
            self._lock.release()

    def _rows(self, ids: Sequence[str]) -> list[Row]:
        asked: dict[str, list[str]] = {}
        for record_id in ids:
            prefix, _, _ = record_id.rpartition(":")
            asked.setdefault(prefix + ":", []).append(record_id)
        found: list[Row] = []
        for prefix, some in asked.items():
            if prefix in self._scopes:
                agent, workflow, node = (None if part == "*" else _plain(part) for part in prefix.split(":")[:3])
                sql = f"SELECT seq, op, value, tags, created, updated, expires, version FROM live WHERE {_PLACE}"
                for record_id in some:
                    key = _plain(record_id[len(prefix) :])
                    for seq, op, value, tags, *rest in self._all(sql, (self._scopes[prefix], key)):
                        names = tuple(tags.split("\n")) if tags else ()
                        found.append(Row(seq, record_id, agent or "", workflow, node, key, op, value, names, *rest))
        return found

    def ids_below(self, prefix: str, now: int) -> list[str]:
        """Return the ids of the live records in all scopes whose own prefix starts so."""
        return self._asked(
            lambda: [
                scope + escape_part(key)
                for scope, number in self._scopes.items()
                if scope.startswith(prefix)
                for key in self._keys(number, Query(), now)
            ]
        )

    def total(self) -> int:
        """Return how many records there are, expired ones that were not swept yet included."""
        return self._asked(lambda: self._one("SELECT count(*) FROM live"))

    def count(self, query: Query, now: int) -> int:
        """Return how many live records match, without limit and place of continuation."""

        def counted() -> int:
            prefixes = list(self._scopes) if query.scope is None else [query.scope.prefix]
            numbers = [self._scopes[prefix] for prefix in prefixes if prefix in self._scopes]
            sources = [_source(number, query, now) for number in numbers]
            return sum(self._one(f"SELECT count(*) {source}", values) for source, values in sources)

        return self._asked(counted)

    def search(self, query: Query, now: int) -> list[tuple[str, float]]:
        """Return ids and scores of the live records that have words of the query's text, best first."""
        words = list(dict.fromkeys(split_words(query.text or "")))
        return self._asked(lambda: self._search(words, query, now)) if words else []

    def _search(self, words: Sequence[str], query: Query, now: int) -> list[tuple[str, float]]:
        scope = None if query.scope is None else self._scopes.get(query.scope.prefix, 0)
        if scope == 0:
            return []
        most = _MOST_FOUND if query.limit is None else query.limit
        among = self._among(scope, query, now) if query.tags or query.prefix else None
        asked = most
        while True:
            best = self._words.best(words, scope, among, asked)
            places = self._places([n for n, _ in best], now)
            # Those that are due are known by their records alone, so more are asked for in their place.
            if len(places) >= most or len(best) < asked:
                break
            asked *= 2
        names = {n: prefix for prefix, n in self._scopes.items()}
        found = [(places[n], score) for n, score in best if n in places][:most]
        return [(names[number] + escape_part(key), score) for (number, key), score in found]

    def _among(self, scope: int | None, query: Query, now: int) -> list[int]:
        numbers: list[int] = []
        for one in self._scopes.values() if scope is None else [scope]:
            source, values = _source(one, query, now)
            numbers += [n for (n,) in self._all(f"SELECT live.n {source}", values)]
        return numbers

    def _places(self, numbers: Sequence[int], now: int) -> dict[int, tuple[int, str]]:
        found: dict[int, tuple[int, str]] = {}
        for some in _slices(numbers, 500):
            marks = ",".join("?" * len(some))
            sql = f"SELECT n, scope, key FROM live WHERE n IN ({marks}) AND {_LIVE}"
            found |= {n: (scope, key) for n, scope, key in self._all(sql, [*some, now])}
        return found

    # -- building

    def _begin(self) -> None:
        self._scopes: dict[str, int] = {}
        # Never given twice: the words of a record that is gone still have its number.
        self._next = 1
        self._seq = self._queued_upto = 0
        self._kept = -1

    def _asked(self, answer: Callable[[], _T]) -> _T:
        """Return an answer as of now; when the database fails, from one in memory that is made anew."""
        with self._lock:
            try:
                self._ready()
                return answer()
            except Exception:  # A damaged file has values of any kind; a fault of our own comes again.
                self._path = None
                self._forget()
                self._ready()
                return answer()

    def _ready(self) -> None:
        if self._database is None:
            self._build()
        self._take_over()

    def _forget(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
        self._database, self._is_noting = None, False
        self._begin()

    def _open(self, path: Path | None) -> sqlite3.Connection:
        database = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        for pragma in (
            # One process has the file, so the log's index need not be shared, which not every disk can do.
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL" if path is not None else "journal_mode = OFF",
            "synchronous = NORMAL",
            "cache_size = -8000",
            "temp_store = MEMORY",
        ):
            database.execute(f"PRAGMA {pragma}")
        return database

    def _build(self) -> None:
        with self._queue_lock:
            self._queue.clear()
            self._is_noting = True
        database = None
        if self._path is not None:
            with contextlib.suppress(sqlite3.Error, OSError):
                _remove(self._path)
                database = self._open(self._path)
        self._database = database or self._open(None)
        # Tables and content come in one transaction: a file that was left half made has neither.
        self._execute("BEGIN")
        for statement in _SCHEMA.split(";"):
            self._execute(statement)
        self._words = Words(self._database)
        # The overlay is copied first: what is merged meanwhile is then in the file, and what comes meanwhile is noted.
        self._seq, overlay = self._source.overlay()
        self._queued_upto = self._seq
        for items in self._source.scan(0):
            texts = [(self._insert(item), _text(item)) for item in items]
            self._words.build(texts)
        self._words.finish()
        self._put(overlay)
        self._keep()

    def _resume(self, path: Path) -> None:
        """Take up the file of an earlier life if it is right, before anything else happens."""
        if not path.exists():
            return
        try:
            self._database = self._open(path)
            self._words = Words(self._database)
            if self._is_right():
                self._is_noting = True
                self._keep()
                return
        except Exception:  # Whatever is wrong with it, a new one takes its place.
            pass
        self._forget()

    def _is_right(self) -> bool:
        facts = self._all("SELECT version, seq, next FROM facts", ())
        if len(facts) != 1 or facts[0][0] != _VERSION:
            return False
        _, self._seq, self._next = facts[0]
        self._scopes = {prefix: n for n, prefix in self._all("SELECT n, prefix FROM scopes", ())}
        upto, overlay = self._source.overlay()
        self._execute("BEGIN")
        changed = 0
        for items in self._source.scan(self._seq):
            changed += len(items)
            if changed > _MOST_CHANGES:
                return False
            self._put(items)
        for row in overlay:
            self._take_away(self._number_of(row), row.key)
        told = self._all("SELECT count(*), coalesce(sum(seq), 0) FROM live", ())[0]
        if told != self._source.sum_up([row.id for row in overlay]):
            return False
        self._put(overlay)
        self._seq = self._queued_upto = upto
        return True

    def _keep(self) -> None:
        """Let what was taken over outlive this process, and go on."""
        self._execute("DELETE FROM facts")
        self._execute("INSERT INTO facts VALUES (?, ?, ?)", (_VERSION, self._seq, self._next))
        self._execute("COMMIT")
        self._execute("BEGIN")
        self._kept = self._seq

    def _take_over(self) -> None:
        with self._queue_lock:
            queue, self._queue = self._queue, {}
            seq = self._queued_upto
        if queue:
            self._put(queue.values())
        self._seq = seq

    def _put(self, rows: Iterable[Row]) -> None:
        """Replace what is known of some ids."""
        for row in rows:
            self._take_away(self._number_of(row), row.key)
            if row.value is not None:
                self._words.add(self._insert(row), _text(row))

    def _take_away(self, scope: int, key: str) -> None:
        old = self._execute(f"SELECT n, tags FROM live WHERE {_PLACE}", (scope, key)).fetchone()
        if old is not None:
            self._execute("DELETE FROM live WHERE n = ?", (old[0],))
            for tag in filter(None, old[1].split("\n")):
                self._execute("DELETE FROM tagged WHERE scope = ? AND tag = ? AND key = ?", (scope, tag, key))
            self._words.own(old[0], 0)

    def _insert(self, row: Row) -> int:
        n, scope = self._next, self._number_of(row)
        self._next += 1
        facts = (row.expires, "\n".join(row.tags), row.seq, row.op, row.created, row.updated, row.version, row.value)
        self._execute("INSERT INTO live VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (n, scope, row.key, *facts))
        for tag in row.tags:
            self._execute("INSERT OR IGNORE INTO tagged VALUES (?, ?, ?)", (scope, tag, row.key))
        self._words.own(n, scope)
        return n

    def _number_of(self, row: Row) -> int:
        prefix = scope_of(row.agent, row.workflow, row.node).prefix
        number = self._scopes.get(prefix)
        if number is None:
            number = self._scopes[prefix] = len(self._scopes) + 1
            self._execute("INSERT INTO scopes VALUES (?, ?)", (number, prefix))
        return number

    # -- asking

    def _keys(self, number: int, query: Query, now: int) -> list[str]:
        source, values = _source(number, query, now)
        sql = f"SELECT live.key {source}"
        if query.scope is not None:
            if query.after is not None:
                sql += " AND live.key > ?"
                values.append(query.after)
            sql += " ORDER BY live.key"
            if query.limit is not None:
                sql += " LIMIT ?"
                values.append(query.limit)
        return [key for (key,) in self._all(sql, values)]

    def _execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        assert self._database is not None
        return self._database.execute(sql, values)

    def _all(self, sql: str, values: Sequence[object]) -> list[Any]:
        return self._execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[object] = ()) -> int:
        return int(self._all(sql, values)[0][0])


def end_of_prefix(prefix: str) -> str | None:
    """Return the smallest text that is greater than every text with this prefix; `None` when there is none."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            # Surrogates are no characters of their own.
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
    values.append(number)
    source += f" AND {_LIVE}"
    values.append(now)
    if query.prefix:
        source += " AND live.key >= ?"
        values.append(query.prefix)
        end = end_of_prefix(query.prefix)
        if end is not None:
            source += " AND live.key < ?"
            values.append(end)
    return source, values


def _slices(items: Sequence[_T], size: int) -> Iterable[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _plain(part: str) -> str:
    """Return a part of a namespaced id as it was before `escape_part`."""
    return part.replace("%3A", ":").replace("%2A", "*").replace("%25", "%") if "%" in part else part


def _text(row: Row) -> str:
    return record_text(row.key, row.tags, row.value or "null")


def _remove(path: Path) -> None:
    for name in (path.name, path.name + "-wal", path.name + "-shm"):
        path.with_name(name).unlink(missing_ok=True)
