"""LiveIndex: where to find live records, derived from them and rebuilt at will.

Keys, tags and words of all live records in an in-memory SQLite, because a row store answers such small questions twenty
times faster than DuckDB. Changes are queued and taken over when the next question is asked, so a counter that is added
to a thousand times costs one update, and a note can be found at once.

Words are in an FTS5 table without contents, ranked by its BM25; the first search fills it. Ranking costs a microsecond
or two for each record that has one of the words, and a tenth of that for each record that has it at all, so the work is
bounded: words that more than `_COMMON` records have are left out while there are others; from the rarest on, words are
taken until `_BUDGET` records have one of them, and the others then only decide among these; a word that exceeds the
budget by itself is ranked among the newest records that have it. Below `_BUDGET` records nothing of this happens.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nbtools.memory.records import escape_part
from nbtools.memory.repository import Query
from nbtools.memory.rows import LiveItem, Row, scope_of
from nbtools.memory.search import rank, record_text, split_words

__all__ = ["LiveIndex", "end_of_prefix"]

_BUDGET = 500
_COMMON = 5_000
_MOST_FOUND = 1_000
_SCHEMA = """
CREATE TABLE live (n INTEGER PRIMARY KEY, scope INTEGER, key TEXT, expires INTEGER, tags TEXT, UNIQUE (scope, key));
CREATE TABLE tagged (scope INTEGER, tag TEXT, key TEXT, PRIMARY KEY (scope, tag, key)) WITHOUT ROWID;
"""
_FTS = "CREATE VIRTUAL TABLE words USING fts5(text, scope, content='', tokenize='unicode61 remove_diacritics 0')"
_LIVE = "(live.expires IS NULL OR live.expires > ?)"

_Scan = Callable[[bool], tuple[Sequence[Row], Iterable[Sequence[LiveItem]]]]
_Scores = dict[tuple[int, str], float]


class LiveIndex:
    """Keys, tags and words of the live records.

    Parameters
    ----------
    scan
        Returns rows that are not in the file yet, and slices of the live records in it, with their values or with
        `None`. Called when the index, or its words, are built; changes that `note` is told from that moment on may be
        in either.
    """

    def __init__(self, scan: _Scan) -> None:
        self._scan = scan
        self._lock = threading.RLock()
        self._queue: dict[str, Row] = {}
        self._queue_lock = threading.Lock()
        self._is_noting = False
        self._database: sqlite3.Connection | None = None
        self._words = False
        self._texts: dict[int, str] | None = None
        self._scopes: dict[str, int] = {}
        self._orphans = 0
        # Never given twice: SQLite itself would reuse the number of a deleted row, and with it the words of that row.
        self._numbers = itertools.count(1)

    def note(self, rows: Iterable[Row]) -> None:
        """Queue the newest rows of some ids."""
        if self._is_noting:
            with self._queue_lock:
                self._queue.update((row.id, row) for row in rows)

    def flush(self) -> None:
        """Take over what is queued; called from time to time, so that a question after many writes is quick."""
        if self._database is not None:
            with self._lock:
                self._take_over()

    def ids(self, query: Query, now: int) -> list[str]:
        """Return the ids of the live records that match, in the query's order; words and vectors are not looked at."""
        with self._lock:
            self._ready(words=False)
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

    def ids_below(self, prefix: str, now: int) -> list[str]:
        """Return the ids of the live records in all scopes whose own prefix starts so."""
        with self._lock:
            self._ready(words=False)
            return [
                scope + escape_part(key)
                for scope, number in self._scopes.items()
                if scope.startswith(prefix)
                for key in self._keys(number, Query(), now)
            ]

    def total(self) -> int:
        """Return how many records there are, expired ones that were not swept yet included."""
        with self._lock:
            self._ready(words=False)
            return self._one("SELECT count(*) FROM live")

    def count(self, query: Query, now: int) -> int:
        """Return how many live records match, without limit and place of continuation."""
        with self._lock:
            self._ready(words=False)
            prefixes = list(self._scopes) if query.scope is None else [query.scope.prefix]
            numbers = [self._scopes[prefix] for prefix in prefixes if prefix in self._scopes]
            total = 0
            for number in numbers:
                source, values = _source(number, query, now)
                total += self._all(f"SELECT count(*) {source}", values)[0][0]
        return total

    def search(self, query: Query, now: int) -> list[tuple[str, float]]:
        """Return ids and scores of the live records that have words of the query's text, best first."""
        words = list(dict.fromkeys(split_words(query.text or "")))
        with self._lock:
            self._ready(words=True)
            number = None if query.scope is None else self._scopes.get(query.scope.prefix)
            if not words or (number is None and query.scope is not None):
                return []
            asked = _Asked(query, number, now)
            best = self._rank_plainly(words, asked) if self._texts is not None else self._rank(words, asked)
            names = {n: prefix for prefix, n in self._scopes.items()}
        ranked = sorted(best.items(), key=lambda pair: -pair[1])[: asked.most]
        return [(names[n] + escape_part(key), score) for (n, key), score in ranked]

    # -- building

    def _ready(self, *, words: bool) -> None:
        if self._database is None:
            self._build()
        self._take_over()
        if words and (not self._words or self._orphans > 5_000 + self._one("SELECT count(*) FROM live")):
            self._build_words()

    def _build(self) -> None:
        self._is_noting = True
        database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        database.execute("PRAGMA journal_mode = OFF")
        database.executescript(_SCHEMA)
        self._database = database
        fresh, slices = self._scan(False)
        for items in slices:
            live, tagged = [], []
            for item in items:
                number = self._number_of(item.agent, item.workflow, item.node)
                live.append((next(self._numbers), number, item.key, item.expires, "\n".join(item.tags)))
                tagged += [(number, tag, item.key) for tag in item.tags]
            database.execute("BEGIN")
            database.executemany("INSERT INTO live VALUES (?, ?, ?, ?, ?)", live)
            database.executemany("INSERT OR IGNORE INTO tagged VALUES (?, ?, ?)", tagged)
            database.execute("COMMIT")
        self._put(fresh)

    def _build_words(self) -> None:
        assert self._database is not None
        execute = self._database.execute
        self._words = True
        self._orphans = 0
        try:
            execute("DROP TABLE IF EXISTS words")
            execute(_FTS)
            execute("INSERT INTO words (words, rank) VALUES ('rank', 'bm25(1.0, 0.0)')")
        except sqlite3.OperationalError:
            self._texts = {}  # This SQLite was built without FTS5: ranking is done in Python, slower.
        fresh, slices = self._scan(True)
        for items in slices:
            texts = []
            execute("BEGIN")
            for item in items:
                number = self._number_of(item.agent, item.workflow, item.node)
                found = execute("SELECT n FROM live WHERE scope = ? AND key = ?", (number, item.key)).fetchone()
                if found is not None:
                    texts.append((found[0], _text(item.key, item.tags, item.value), f"s{number}"))
            self._add_words(texts)
            execute("COMMIT")
        self._put(fresh)
        if self._texts is None:
            execute("INSERT INTO words (words) VALUES ('optimize')")

    def _add_words(self, texts: Sequence[tuple[int, str, str]]) -> None:
        assert self._database is not None
        if self._texts is not None:
            self._texts.update((n, text) for n, text, _ in texts)
        else:
            sql = "INSERT INTO words (rowid, text, scope) VALUES (?, ?, ?)"
            self._database.executemany(sql, texts)

    def _take_over(self) -> None:
        with self._queue_lock:
            queue, self._queue = self._queue, {}
        if queue:
            self._put(list(queue.values()))

    def _put(self, rows: Iterable[Row]) -> None:
        """Replace what is known of some ids. A new row gets a new number, which orphans its old words."""
        assert self._database is not None
        execute = self._database.execute
        execute("BEGIN")
        for row in rows:
            if row.op == "call":
                continue
            number = self._number_of(row.agent, row.workflow, row.node)
            old = execute("SELECT n, tags FROM live WHERE scope = ? AND key = ?", (number, row.key)).fetchone()
            if old is not None:
                execute("DELETE FROM live WHERE n = ?", (old[0],))
                for tag in filter(None, old[1].split("\n")):
                    execute("DELETE FROM tagged WHERE scope = ? AND tag = ? AND key = ?", (number, tag, row.key))
                self._forget_words(old[0])
            if row.value is not None:
                self._insert(number, row)
        execute("COMMIT")

    def _insert(self, number: int, row: Row) -> None:
        assert self._database is not None
        n = next(self._numbers)
        self._database.execute(
            "INSERT INTO live VALUES (?, ?, ?, ?, ?)", (n, number, row.key, row.expires, "\n".join(row.tags))
        )
        for tag in row.tags:
            self._database.execute("INSERT OR IGNORE INTO tagged VALUES (?, ?, ?)", (number, tag, row.key))
        if self._words:
            self._add_words([(n, _text(row.key, row.tags, row.value), f"s{number}")])

    def _forget_words(self, n: int) -> None:
        if self._texts is not None:
            self._texts.pop(n, None)
        elif self._words:
            self._orphans += 1

    def _number_of(self, agent: str, workflow: str | None, node: str | None) -> int:
        prefix = scope_of(agent, workflow, node).prefix
        number = self._scopes.get(prefix)
        if number is None:
            number = self._scopes[prefix] = len(self._scopes) + 1
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

    def _rank(self, words: Sequence[str], asked: _Asked) -> _Scores:
        where = f'scope : "s{asked.number}" AND ' if asked.number is not None and len(self._scopes) > 1 else ""
        sizes = sorted((self._has(where + _any([word]), _COMMON + 1), word) for word in words)
        known = [(size, word) for size, word in sizes if size]
        if not known:
            return {}
        telling = known if asked.is_narrow else [pair for pair in known if pair[0] <= _COMMON]
        everything = _any([word for _, word in telling])
        if not telling:
            return self._newest(where, [word for _, word in known], asked)
        if asked.is_narrow or sum(size for size, _ in telling) <= _BUDGET:
            return self._scores(where + everything, 0, asked)
        rare, total = [], 0
        for size, word in telling:
            total += size
            if total > _BUDGET:
                break
            rare.append(word)
        best = self._scores(f"{where}{_any(rare)} AND {everything}", 0, asked) if rare else {}
        if len(best) < asked.most:
            common = where + _any([telling[len(rare)][1]])
            sql = "SELECT min(rowid) FROM (SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?)"
            match = common if len(telling) == 1 else f"{common} AND {everything}"
            best = self._scores(match, self._one(sql, (common, _BUDGET)), asked) | best
        return best

    def _newest(self, where: str, words: Sequence[str], asked: _Asked) -> _Scores:
        """Return the newest records with all of the words, then with any: none of them says much."""
        sql = (
            "SELECT live.scope, live.key FROM words CROSS JOIN live ON live.n = words.rowid "
            f"WHERE words MATCH ? AND {asked.where} ORDER BY words.rowid DESC LIMIT ?"
        )
        found: _Scores = {}
        for match in (" AND ".join(map(_quoted, words)), _any(words)):
            if len(found) < asked.most:
                for place in self._all(sql, (f"{where}({match})", *asked.values, asked.most)):
                    found.setdefault(place, 1e-6 / (1 + len(found)))
        return found

    def _scores(self, match: str, oldest: int, asked: _Asked) -> _Scores:
        # The join leaves out orphans before the best are chosen.
        sql = (
            "SELECT live.scope, live.key, -rank FROM words CROSS JOIN live ON live.n = words.rowid "
            f"WHERE words MATCH ? AND words.rowid >= ? AND {asked.where} ORDER BY rank, words.rowid DESC LIMIT ?"
        )
        rows = self._all(sql, (match, oldest, *asked.values, asked.most))
        return {(scope, key): score for scope, key, score in rows}

    def _rank_plainly(self, words: Sequence[str], asked: _Asked) -> _Scores:
        assert self._texts is not None
        rows = self._all(f"SELECT n, scope, key FROM live WHERE {asked.where}", asked.values)
        places = {n: (scope, key) for n, scope, key in rows}
        texts = {n: self._texts[n] for n in places if n in self._texts}
        return {places[n]: score for n, score in rank(" ".join(words), texts)}

    def _has(self, match: str, most: int) -> int:
        return self._one("SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (match, most))

    def _all(self, sql: str, values: Sequence[object]) -> list[Any]:
        assert self._database is not None
        return self._database.execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[object] = ()) -> int:
        return int(self._all(sql, values)[0][0] or 0)


class _Asked:
    """The conditions of a search other than its words, as SQL over ``live``."""

    def __init__(self, query: Query, number: int | None, now: int) -> None:
        self.number = number
        self.most = _MOST_FOUND if query.limit is None else query.limit
        self.is_narrow = bool(query.tags or query.prefix)
        self.where = _LIVE
        self.values: list[object] = [now]
        if number is not None:
            self._add("live.scope = ?", number)
        if query.prefix:
            self._add("live.key >= ?", query.prefix)
            end = end_of_prefix(query.prefix)
            if end is not None:
                self._add("live.key < ?", end)
        if query.tags:
            one = "live.key IN (SELECT key FROM tagged WHERE scope = live.scope AND tag = ?)"
            word = " AND " if query.match == "all" else " OR "
            self._add(f"({word.join([one] * len(query.tags))})", *query.tags)

    def _add(self, condition: str, *values: object) -> None:
        self.where += f" AND {condition}"
        self.values += values


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


def _any(words: Sequence[str]) -> str:
    return "(" + " OR ".join(map(_quoted, words)) + ")"


def _quoted(word: str) -> str:
    return f'text : "{word}"'


def _text(key: str, tags: Iterable[str], value: str | None) -> str:
    text = record_text(key, tags, value or "null")
    return text if text.isascii() else " ".join(split_words(text))
