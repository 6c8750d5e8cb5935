"""Full-text search with SQLite's FTS5: which records match a question, ranked by BM25.

FTS5 gets texts that are split and folded already. It stems them by Porter's rules and keeps no copy of them: code that
removes a text must pass the same text again. Beside it is a vocabulary: the words as they were written, with an index
of their groups of three letters. A word of a question that no record has is looked up there, and the most similar words
that some record has take its place.

A question is fast even if its words are common: records with a rare word are ranked first, and of the others only the
newest few thousand. Each question looks at one range of numbers, which belongs to one scope.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbtools.errors import ConfigMissing
from nbtools.memory.rules.text_search import Term, closest, question_terms, split_words, splits, trigrams

WORDS_SCHEMA = Path(__file__).with_name("words.sql").read_text(encoding="utf-8")
# So many records are ranked at most.
MOST_RANKED = 2_000
# A word that so many records have stands for itself alone.
_COMMON = 300
# Beyond so many records it does not matter how common a word is.
_COUNTED = 20_000
# The beginning of more words than these is not a beginning that anybody means.
_MANY_WORDS = 64
_CANDIDATES = 100
_LONGEST_WORD = 32
# So many words of a question are taken for slips at most: mending takes milliseconds each.
_MOST_MENDED = 6
_KEPT_WORDS = 50_000
# More new words than these in one text are not words that anybody looks for.
MOST_LEARNED = 1_000
_MERGED_PAGES = 50


class TermGroup(NamedTuple):
    """The FTS5 expression for one term of a question, and how many records match it."""

    expression: str
    records: int


class QueryExpansion(abc.ABC):
    """Query expansion: find the stored words that the words of a question match.

    `within` says in every method which records are looked at, in the store's own way.
    """

    def groups(self, question: str, within: tuple[Any, ...]) -> list[TermGroup]:
        """Return what stands for the words of a question; nothing, if nothing fits."""
        terms = question_terms(question)
        groups, unknown = [], []
        for term in terms:
            group = self._match_exactly(term, within)
            if group is None:
                unknown.append(term)
            else:
                groups.append(group)
        groups += [group for term in unknown[:_MOST_MENDED] if (group := self._match_similar(term, within))]
        if not groups:
            # Of neighbours that nobody has put together, each may be somewhere.
            single = dict.fromkeys((word,) for term in terms if len(term) > 1 for word in term)
            groups = [group for term in single if (group := self._match_exactly(term, within))]
        return groups

    @abc.abstractmethod
    def count(self, query: str, within: tuple[Any, ...]) -> int:
        """Return how many records have what FTS5 would match; it need not count on where that is very many."""

    @abc.abstractmethod
    def beginnings(self, word: str, most: int) -> int:
        """Return how many words of the vocabulary begin so, at most so many."""

    @abc.abstractmethod
    def candidates(self, word: str, most: int) -> list[str]:
        """Return the words of the vocabulary that share most of a word's `trigrams`."""

    def _match_exactly(self, term: Term, within: tuple[Any, ...]) -> TermGroup | None:
        """Return what is found as it stands in the question, `None` if nothing is."""
        phrase = _quote(term)
        count = self.count(phrase, within)
        if len(term) == 1 and count <= _COMMON and len(term[0]) > 2:
            begun = f"{phrase} *"
            means_it = self.beginnings(term[0], _MANY_WORDS + 1) <= _MANY_WORDS
            if means_it and (having := self.count(begun, within)):
                # What has the word itself counts twice.
                return TermGroup(f"{phrase} OR {begun}" if count else begun, max(count, having))
        return TermGroup(phrase, count) if count else None

    def _match_similar(self, term: Term, within: tuple[Any, ...]) -> TermGroup | None:
        """Return what stands for a word that no record has, `None` for nothing."""
        if len(term) > 1 or len(term[0]) > _LONGEST_WORD:
            return None
        pairs = [pair for pair in map(_quote, splits(term[0])) if self.count(pair, within)]
        pairs = pairs or [_quote((word,)) for word in self._closest(term[0], within)]
        return TermGroup(" OR ".join(pairs), sum(self.count(word, within) for word in pairs)) if pairs else None

    def _closest(self, word: str, within: tuple[Any, ...]) -> list[str]:
        candidates = set(self.candidates(word, _CANDIDATES))
        while nearest := closest(word, candidates):
            # The vocabulary keeps words that no record has any more, and has those of all scopes.
            if present := [present for present in nearest if self.count(_quote((present,)), within)]:
                return present
            candidates.difference_update(nearest)
        return []


class WordIndex(QueryExpansion):
    """The words of the records of an index.

    Not safe for threads by itself: the index that owns it holds its lock.

    Parameters
    ----------
    database
        Where the tables of `WORDS_SCHEMA` are.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        # Of what the tables have, so that most words need no look there.
        self._entered: set[str] = set()
        self._tags: dict[str, str] = {}

    def add(self, number: int, text: str, tags: Iterable[str]) -> None:
        """Add the text and the tags of a record."""
        words = split_words(text)
        self._learn(words)
        self._database.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, self._join(words, tags)))

    def remove(self, number: int, text: str, tags: Iterable[str]) -> None:
        """Remove a record; text and tags must be exactly those that were added, because FTS5 keeps no copy of them."""
        values = (number, self._join(split_words(text), tags))
        self._database.execute("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", values)

    def merge_pages(self) -> None:
        """Merge some pages of the full-text table, which makes later queries faster."""
        self._database.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (_MERGED_PAGES,))

    def selects(
        self, question: str, first: int, last: int, *, tags: Sequence[str] = (), match: str = "all"
    ) -> list[tuple[str, list[object]]]:
        """Return SELECTs of number and score of the records that fit a question, in no order, the best first.

        Each returns the newest few thousand that fit: the first those with a word that few records have, the second,
        which may be missing, those with any. None fits if there is no SELECT.

        Parameters
        ----------
        question
            The words that are searched for.
        first
            The lowest number of a record that is looked at.
        last
            The highest number of a record that is looked at.
        tags
            Tags that a record has; empty sets no condition.
        match
            Whether it has to have ``all`` of the tags, or ``any``.
        """
        within = (first, last)
        groups = self.groups(question, within)
        chosen = f" {'AND' if match == 'all' else 'OR'} ".join(f'"{self._tag_word(tag)}"' for tag in tags)
        sql = "SELECT rowid AS n, -bm25(words) AS score FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"
        return [
            (f"{sql} ORDER BY n DESC LIMIT {MOST_RANKED}", [f"({query}) AND ({chosen})" if tags else query, *within])
            for query in tiers(groups)
        ]

    def count(self, query: str, within: tuple[int, int]) -> int:
        """Return how many records have what FTS5 matches, as far as that matters."""
        sql = f"SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT {_COUNTED}"
        return int(self._database.execute(f"SELECT count(*) FROM ({sql})", (query, *within)).fetchone()[0])

    def beginnings(self, word: str, most: int) -> int:
        """Return how many words of the vocabulary begin so, at most so many."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM vocabulary WHERE word >= ? AND word < ? LIMIT ?)"
        return int(self._database.execute(sql, (word, word + "\U0010ffff", most)).fetchone()[0])

    def candidates(self, word: str, most: int) -> list[str]:
        """Return the words of the vocabulary that share most of a word's `trigrams`."""
        query = " OR ".join(f'"{part}"' for part in trigrams(word))
        if not query:
            return []
        sql = "SELECT v.word FROM parts JOIN vocabulary AS v ON v.n = parts.rowid WHERE parts MATCH ? ORDER BY rank"
        return [candidate for (candidate,) in self._database.execute(f"{sql} LIMIT ?", (query, most))]

    # -- inside: keeping

    def _learn(self, words: Iterable[str]) -> None:
        new = list(filter(is_learned, set(words) - self._entered))[:MOST_LEARNED]
        for word in new:
            cursor = self._database.execute("INSERT OR IGNORE INTO vocabulary (word) VALUES (?)", (word,))
            if cursor.rowcount:
                parts = " ".join(trigrams(word))
                self._database.execute("INSERT INTO parts (rowid, letters) VALUES (?, ?)", (cursor.lastrowid, parts))
        if len(self._entered) > _KEPT_WORDS:
            self._entered.clear()
        self._entered.update(new)

    def _join(self, words: Iterable[str], tags: Iterable[str]) -> str:
        return " ".join([*words, *map(self._tag_word, tags)])

    def _tag_word(self, tag: str) -> str:
        """Return the word that stands for a tag: a number, which no stemming touches, marked by what no word has."""
        word = self._tags.get(tag)
        if word is None:
            self._database.execute("INSERT OR IGNORE INTO tag_numbers (tag) VALUES (?)", (tag,))
            (number,) = self._database.execute("SELECT n FROM tag_numbers WHERE tag = ?", (tag,)).fetchone()
            if len(self._tags) > _KEPT_WORDS:
                self._tags.clear()
            word = self._tags[tag] = f"_{number}"
        return word


class Stemmer:
    """Stem words exactly as FTS5 does, for a store that has its own full-text index."""

    def __init__(self) -> None:
        check_sqlite()
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.executescript(f"{WORDS_SCHEMA}CREATE VIRTUAL TABLE places USING fts5vocab(words, instance);")

    def stems(self, words: Sequence[str]) -> list[str]:
        """Return the stem of each word."""
        with self._lock:
            self._database.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", (" ".join(words),))
            try:
                return [stem for (stem,) in self._database.execute("SELECT term FROM places ORDER BY offset")]
            finally:
                self._database.execute("INSERT INTO words (words) VALUES ('delete-all')")


def check_sqlite() -> None:
    """Raise `ConfigMissing` if the SQLite of this Python has no FTS5."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        except sqlite3.OperationalError:
            raise ConfigMissing(
                f"the memory needs FTS5, which SQLite {sqlite3.sqlite_version} of this Python was built without.",
                hint="Use a Python from python.org, conda or your system, or build SQLite with SQLITE_ENABLE_FTS5.",
            ) from None


def is_learned(word: str) -> bool:
    """Return whether a word belongs into a vocabulary that others are mended by."""
    return 2 < len(word) <= _LONGEST_WORD and word.isalpha()


def rank_texts(question: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Return places and scores of the texts that fit a question, best first, of equal ones the last."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(WORDS_SCHEMA)
        words = WordIndex(database)
        for index, text in enumerate(texts):
            words.add(index, text, ())
        ranked: dict[int, float] = {}
        for sql, values in words.selects(question, 0, len(texts)):
            for index, score in database.execute(f"SELECT * FROM ({sql}) ORDER BY 2 DESC, 1 DESC", values):
                ranked.setdefault(index, score)
        return list(ranked.items())


def tiers(groups: Sequence[TermGroup]) -> list[str]:
    """Return what to match: the rare groups first if all are too many records to rank, then any."""
    every = " OR ".join(group.expression for group in groups)
    rarest = sorted(groups, key=lambda group: group.records)
    upto = list(itertools.accumulate(group.records for group in rarest))
    rare = [group.expression for group, total in zip(rarest, upto, strict=True) if total <= MOST_RANKED]
    rare = rare or [group.expression for group in rarest[:1]]
    if len(rare) == len(groups):
        return [every] if groups else []
    return [f"({' OR '.join(rare)}) AND ({every})", every]


def _quote(term: Term) -> str:
    return f'"{" ".join(term)}"'
