"""Words: which records have the words of a question, ranked by BM25.

For each word there are *postings*: the numbers of the records that have it, and how often. They lie in SQLite, sealed
in segments that never change, so that nothing is read at a start; the texts of the newest records wait there unsplit,
and are split when the first question comes. A record that changes gets a new number, which makes its old words orphans.

Ranking is exact and done by numpy: what each posting adds to a score is kept ready for the words asked last, a question
adds up the arrays of its words, and the best are found by blocks, of which only the best few are looked into. A hundred
thousand records with four words of a third of them each take less than a millisecond.
"""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nbtools.memory.search import split_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["WORDS_SCHEMA", "Words"]

WORDS_SCHEMA = """
CREATE TABLE fresh (n INTEGER PRIMARY KEY, text TEXT);
CREATE TABLE postings (
    word TEXT, segment INTEGER, numbers BLOB, counts BLOB, PRIMARY KEY (word, segment)
) WITHOUT ROWID;
CREATE TABLE segments (segment INTEGER PRIMARY KEY, numbers BLOB, lengths BLOB);
"""
_K1 = 1.2
_B = 0.75
_SEAL_AT = 2_000
_SEAL_AT_BUILD = 10_000
_CACHED = 2_000_000
# Up to so many postings are added up by sorting them, more of them in an array with a place for every record.
_FEW = 4_000
_BLOCK = 256
# Of equal scores the newest is best: each number adds so much, which in sum stays below the least score there is.
_NEWER = 1e-15
_LEAST = 5e-8
# The average length may drift by so much before kept arrays are made anew.
_DRIFT = 0.02


class _Postings(NamedTuple):
    numbers: NDArray[np.uint32]
    gains: NDArray[np.float32]
    average: float


class Words:
    """The words of the records of an index.

    Not safe for threads by itself: the index that owns it holds its lock.

    Parameters
    ----------
    database
        Where the tables of `WORDS_SCHEMA` are, and a table ``live`` with the number and the scope of each record.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._is_loaded = False
        self._split_upto = 0
        self._fresh: dict[str, tuple[array[int], array[int]]] = {}
        self._fresh_numbers: list[int] = []
        self._cache: OrderedDict[str, _Postings] = OrderedDict()
        self._cached = 0
        self._count = 0
        self._length = 0

    # -- keeping

    def add(self, number: int, text: str) -> None:
        """Take the text of a new record; it is split later."""
        self._database.execute("INSERT INTO fresh VALUES (?, ?)", (number, text))

    def own(self, number: int, scope: int) -> None:
        """Tell whose record a number is; 0 when it is gone."""
        if self._is_loaded:
            self._reserve(number)
            self._owner[number] = scope
        if not scope:
            self._database.execute("DELETE FROM fresh WHERE n = ?", (number,))

    def build(self, texts: Sequence[tuple[int, str]]) -> None:
        """Take many texts at once; if they are many in sum, they are split and sealed at once."""
        if not self._is_loaded and self._waiting() + len(texts) < _SEAL_AT:
            self._database.executemany("INSERT INTO fresh VALUES (?, ?)", texts)
            return
        self.load()
        for number, text in texts:
            self._split(number, text)
        if len(self._fresh_numbers) >= _SEAL_AT_BUILD:
            self._seal()

    def load(self) -> None:
        """Read what every question needs; does nothing the second time."""
        if self._is_loaded:
            return
        import numpy as np

        self._np = np
        self._is_loaded = True
        self._owner = np.zeros(1024, np.uint32)
        self._lengths = np.zeros(1024, np.float32)
        self._ramp = np.arange(1024) * _NEWER
        (top,) = self._database.execute("SELECT coalesce(max(n), 0) FROM live").fetchone()
        self._reserve(top)
        rows = self._database.execute("SELECT n, scope FROM live")
        while some := rows.fetchmany(5_000):
            pairs = np.array(some, np.int64)
            self._owner[pairs[:, 0]] = pairs[:, 1]
        for some_numbers, some_lengths in self._database.execute("SELECT numbers, lengths FROM segments"):
            numbers, lengths = np.frombuffer(some_numbers, "<u4"), np.frombuffer(some_lengths, "<u4")
            self._reserve(int(numbers[-1]))
            self._lengths[numbers] = lengths
            self._count += len(numbers)
            self._length += int(lengths.sum())
        self._absorb()

    def tidy(self) -> None:
        """Seal the newest records if they have become many."""
        if self._waiting() >= _SEAL_AT:
            self.load()
            self._absorb()
            self._seal()

    def finish(self) -> None:
        """Seal what `build` took last."""
        if self._fresh_numbers:
            self._seal()

    # -- asking

    def best(
        self, words: Sequence[str], scope: int | None, among: Sequence[int] | None, most: int
    ) -> list[tuple[int, float]]:
        """Return numbers and scores of the best records of a scope, `None` for all, best first.

        Parameters
        ----------
        among
            Numbers of the records that may be returned; `None` for any.
        most
            How many are wanted at most.
        """
        self.load()
        self._absorb()
        found = [postings for word in words for postings in self._gains(word)]
        if not found:
            return []
        if sum(len(numbers) for numbers, _ in found) <= _FEW:
            numbers, scores = self._add_few(found)
        else:
            numbers, scores = None, self._add_many(found)
        scores = scores * self._may_be(numbers, scope, among)
        return self._top(numbers, scores, most)

    def _gains(self, word: str) -> list[tuple[NDArray[np.uint32], Any]]:
        """Return the numbers of the records that have a word and what it adds to their scores, sealed and fresh."""
        average = self._length / self._count if self._count else 1.0
        sealed, fresh = self._sealed(word, average), self._fresh.get(word)
        parts = [(sealed.numbers, sealed.gains)] if len(sealed.numbers) else []
        if fresh is not None:
            numbers = self._np.array(fresh[0], self._np.uint32)
            parts.append((numbers, self._gain(numbers, self._np.array(fresh[1], self._np.float32), average)))
        having = sum(len(numbers) for numbers, _ in parts)
        weight = max(math.log((self._count - having + 0.5) / (having + 0.5)), 1e-6) if having else 0.0
        return [(numbers, gains * weight) for numbers, gains in parts]

    def _sealed(self, word: str, average: float) -> _Postings:
        np = self._np
        kept = self._cache.get(word)
        if kept is not None and abs(kept.average / average - 1) < _DRIFT:
            self._cache.move_to_end(word)
            return kept
        rows = self._database.execute("SELECT numbers, counts FROM postings WHERE word = ?", (word,)).fetchall()
        numbers = np.frombuffer(b"".join([row[0] for row in rows]), "<u4")
        counts = np.frombuffer(b"".join([row[1] for row in rows]), np.uint8).astype(np.float32)
        made = _Postings(numbers, self._gain(numbers, counts, average), average)
        self._cached += len(numbers) - (len(kept.numbers) if kept is not None else 0)
        self._cache[word] = made
        self._cache.move_to_end(word)
        while self._cached > _CACHED or len(self._cache) > _SEAL_AT:
            _, old = self._cache.popitem(last=False)
            self._cached -= len(old.numbers)
        return made

    def _gain(self, numbers: Any, counts: Any, average: float) -> Any:
        length = self._lengths[numbers]
        length *= _K1 * _B / average
        length += _K1 * (1 - _B)
        length += counts
        return counts * (_K1 + 1) / length

    def _add_few(self, found: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        np = self._np
        together = np.concatenate([numbers for numbers, _ in found])
        numbers, places = np.unique(together, return_inverse=True)
        scores = np.bincount(places, weights=np.concatenate([gains for _, gains in found]))
        return numbers, scores + self._ramp[numbers]

    def _add_many(self, found: Sequence[tuple[Any, Any]]) -> Any:
        scores = self._ramp.copy()
        for numbers, gains in found:
            scores[numbers] += gains
        return scores

    def _may_be(self, numbers: Any, scope: int | None, among: Sequence[int] | None) -> Any:
        owner = self._owner if numbers is None else self._owner[numbers]
        mask = owner != 0 if scope is None else owner == scope
        if among is not None:
            chosen = self._np.zeros(len(self._owner), bool)
            chosen[self._np.array(among, self._np.int64)] = True
            mask &= chosen if numbers is None else chosen[numbers]
        return mask

    def _top(self, numbers: Any, scores: Any, most: int) -> list[tuple[int, float]]:
        np = self._np
        if numbers is None:
            # The best lie in the blocks whose own best are the best.
            blocks = scores.reshape(-1, _BLOCK)
            highest = blocks.max(axis=1)
            if most < len(highest):
                chosen = np.argpartition(highest, -most)[-most:]
                numbers = (chosen[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
                scores = blocks[chosen].ravel()
            else:
                numbers = np.arange(len(scores))
        some = np.flatnonzero(scores > _LEAST)
        if most < len(some):
            some = some[np.argpartition(scores[some], -most)[-most:]]
        some = some[np.argsort(-scores[some], kind="stable")]
        return list(zip(numbers[some].tolist(), scores[some].tolist(), strict=True))

    # -- inside

    def _waiting(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM fresh").fetchone()
        return int(count)

    def _reserve(self, number: int) -> None:
        """Make the arrays large enough for a number."""
        np, size = self._np, len(self._owner)
        if number < size:
            return
        more = max(number + 1, size + size // 4)
        more += -more % _BLOCK
        self._owner = np.concatenate([self._owner, np.zeros(more - size, np.uint32)])
        self._lengths = np.concatenate([self._lengths, np.zeros(more - size, np.float32)])
        self._ramp = np.arange(more) * _NEWER

    def _absorb(self) -> None:
        rows = self._database.execute("SELECT n, text FROM fresh WHERE n > ? ORDER BY n", (self._split_upto,))
        for number, text in rows.fetchall():
            self._split(number, text)

    def _split(self, number: int, text: str) -> None:
        words = split_words(text)
        self._reserve(number)
        self._split_upto = number
        self._fresh_numbers.append(number)
        self._lengths[number] = len(words)
        self._count += 1
        self._length += len(words)
        for word, count in Counter(words).items():
            entry = self._fresh.get(word)
            if entry is None:
                entry = self._fresh[word] = (array("I"), array("B"))
            entry[0].append(number)
            entry[1].append(min(count, 255))

    def _seal(self) -> None:
        """Move the postings of the newest records to a segment, without those of records that are gone already."""
        np = self._np
        segment = self._fresh_numbers[0]
        numbers = np.array(self._fresh_numbers, "<u4")
        lengths = self._lengths[numbers].astype("<u4")
        is_live = self._owner[numbers] != 0
        self._count -= int((~is_live).sum())
        self._length -= int(lengths[~is_live].sum())
        execute = self._database.execute
        if is_live.any():
            execute(
                "INSERT INTO segments VALUES (?, ?, ?)",
                (segment, numbers[is_live].tobytes(), lengths[is_live].tobytes()),
            )
            rows = self._segment(segment, all_live=bool(is_live.all()))
            self._database.executemany("INSERT INTO postings VALUES (?, ?, ?, ?)", rows)
        execute("DELETE FROM fresh WHERE n <= ?", (self._fresh_numbers[-1],))
        self._fresh.clear()
        self._fresh_numbers.clear()
        self._cache.clear()
        self._cached = 0

    def _segment(self, segment: int, *, all_live: bool) -> Iterable[tuple[str, int, bytes, bytes]]:
        np = self._np
        for word in sorted(self._fresh):
            some, counts = self._fresh[word]
            numbers = np.array(some, "<u4")
            if all_live:
                yield word, segment, numbers.tobytes(), counts.tobytes()
                continue
            is_live = self._owner[numbers] != 0
            if is_live.any():
                yield word, segment, numbers[is_live].tobytes(), np.array(counts, np.uint8)[is_live].tobytes()
