"""Words: which records have the words of a question, ranked by BM25.

For each word there are *postings*: the numbers of the records that have it, and how often, as ``number << 8 | count``.
They lie in SQLite, sealed in segments that never change, so that nothing is read at a start; the texts of the newest
records wait there unsplit, and are split when the first question comes. A record that changes gets a new number, which
makes its old words orphans.

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
CREATE TABLE postings (word TEXT, segment INTEGER, postings BLOB, PRIMARY KEY (word, segment)) WITHOUT ROWID;
CREATE TABLE segments (segment INTEGER PRIMARY KEY, numbers BLOB, lengths BLOB);
"""
_K1 = 1.2
_B = 0.75
_SEAL_AT = 4_000
_SEAL_AT_BUILD = 10_000
_STEP = 500
_CACHED = 600_000
# A word that more than one of so many records has is added for all of them: that needs no places.
_DENSE = 5
# Up to so many postings are added up by sorting them, more of them in an array with a place for every record.
_FEW = 4_000
_BLOCK = 256
# The average length may drift by so much before kept arrays are made anew.
_DRIFT = 0.02


class _Postings(NamedTuple):
    """What a word of weight 1 adds to the scores of the records that have it; `everywhere` has a place for each."""

    numbers: NDArray[np.int64]
    gains: NDArray[np.float32]
    average: float
    everywhere: NDArray[np.float32] | None


class _Part(NamedTuple):
    postings: _Postings
    weight: float


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
        self._fresh: dict[str, array[int]] = {}
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

    def tidy(self) -> bool:
        """Seal the newest records if they have become many, a step at a time; return whether there was one to do."""
        waiting = self._waiting()
        if waiting < _SEAL_AT:
            return False
        self.load()
        # In larger steps when they come faster.
        step = max(_STEP, waiting // 4)
        if self._absorb(step) < step or len(self._fresh_numbers) > 2 * _SEAL_AT:
            self._seal()
        return True

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
        found = [part for word in words for part in self._parts(word)]
        if not found:
            return []
        if sum(len(part.postings.numbers) for part in found) <= _FEW:
            numbers, scores = self._add_few(found)
        else:
            every = self._add_many(found)
            least = self._least(every, scope, most) if among is None else None
            if least is None:
                every *= self._may_be(None, scope, among)
                least = self._least(every, None, most, is_masked=True) or 0.0
            numbers = self._np.flatnonzero(every >= least if least else every)
            scores = every[numbers]
        can = self._np.flatnonzero(self._may_be(numbers, scope, among))
        numbers, scores = numbers[can], scores[can]
        order = self._np.lexsort((-numbers, -scores))[:most]
        return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))

    def _parts(self, word: str) -> list[_Part]:
        """Return the postings of a word, sealed and fresh, with its weight."""
        average = self._length / max(self._count, 1) or 1.0
        postings = [self._sealed(word, average)]
        fresh = self._fresh.get(word)
        if fresh is not None:
            # A copy: the array cannot grow while numpy looks at it.
            postings.append(self._unpack(fresh.tobytes(), average))
        having = sum(len(some.numbers) for some in postings)
        weight = max(math.log((self._count - having + 0.5) / (having + 0.5)), 1e-6) if having else 0.0
        return [_Part(some, weight) for some in postings if len(some.numbers)]

    def _sealed(self, word: str, average: float) -> _Postings:
        kept = self._cache.get(word)
        if kept is not None and abs(kept.average / average - 1) < _DRIFT:
            self._cache.move_to_end(word)
            return kept
        rows = self._database.execute("SELECT postings FROM postings WHERE word = ? ORDER BY segment", (word,))
        made = self._unpack(b"".join([row[0] for row in rows]), average)
        self._cached += len(made.numbers) - (len(kept.numbers) if kept is not None else 0)
        self._cache[word] = made
        self._cache.move_to_end(word)
        while self._cached > _CACHED or len(self._cache) > _SEAL_AT:
            _, old = self._cache.popitem(last=False)
            self._cached -= len(old.numbers)
        return made

    def _unpack(self, postings: bytes, average: float) -> _Postings:
        np = self._np
        packed = np.frombuffer(postings, np.uint64)
        numbers, counts = (packed >> 8).astype(np.int64), (packed & 255).astype(np.float32)
        length = self._lengths[numbers]
        length *= _K1 * _B / average
        length += _K1 * (1 - _B)
        length += counts
        gains = counts * (_K1 + 1) / length
        everywhere = None
        if len(numbers) * _DENSE > len(self._lengths):
            everywhere = np.zeros(int(numbers[-1]) + 1, np.float32)
            everywhere[numbers] = gains
        return _Postings(numbers, gains, average, everywhere)

    def _add_few(self, found: Sequence[_Part]) -> tuple[Any, Any]:
        np = self._np
        together = np.concatenate([part.postings.numbers for part in found])
        numbers, places = np.unique(together, return_inverse=True)
        scores = np.bincount(places, np.concatenate([part.postings.gains * part.weight for part in found]))
        return numbers, scores

    def _add_many(self, found: Sequence[_Part]) -> Any:
        scores = self._np.zeros(len(self._owner), self._np.float32)
        for (numbers, gains, _, everywhere), weight in found:
            if everywhere is None:
                scores[numbers] += gains * self._np.float32(weight)
            else:
                scores[: len(everywhere)] += everywhere * self._np.float32(weight)
        return scores

    def _may_be(self, numbers: Any, scope: int | None, among: Sequence[int] | None) -> Any:
        owner = self._owner if numbers is None else self._owner[numbers]
        mask = owner != 0 if scope is None else owner == scope
        if among is not None:
            chosen = self._np.zeros(len(self._owner), bool)
            chosen[self._np.array(among, self._np.int64)] = True
            mask &= chosen if numbers is None else chosen[numbers]
        return mask

    def _least(self, scores: Any, scope: int | None, most: int, *, is_masked: bool = False) -> float | None:
        """Return the score of the last of the best, `None` when it cannot be told without a look at all.

        The best lie in the blocks whose own best are the best. What may not be returned takes places of theirs, so
        more blocks are looked into, and the result holds if no other block has anything as good.
        """
        np = self._np
        blocks = scores.reshape(-1, _BLOCK)
        count = most if is_masked else 2 * most + 8
        rest = len(blocks) - count
        if rest < 1:
            return float(np.partition(scores, -most)[-most]) if is_masked and most <= len(scores) else None
        highest = blocks.max(axis=1)
        places = np.argpartition(highest, rest - 1)
        chosen = places[rest:]
        some = blocks[chosen].ravel()
        if not is_masked:
            numbers = (chosen[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
            some = some[self._may_be(numbers, scope, None)]
        if len(some) < most:
            return None
        least = float(np.partition(some, -most)[-most])
        return least if is_masked or (least > 0 and least >= highest[places[rest - 1]]) else None

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

    def _absorb(self, most: int = -1) -> int:
        """Split the texts that wait for it, and return how many these were."""
        sql = "SELECT n, text FROM fresh WHERE n > ? ORDER BY n LIMIT ?"
        rows = self._database.execute(sql, (self._split_upto, most)).fetchall()
        for number, text in rows:
            self._split(number, text)
        return len(rows)

    def _split(self, number: int, text: str) -> None:
        words = split_words(text)
        self._reserve(number)
        self._split_upto = number
        self._fresh_numbers.append(number)
        self._lengths[number] = len(words)
        self._count += 1
        self._length += len(words)
        packed, fresh = number << 8, self._fresh
        for word, count in Counter(words).items():
            postings = fresh.get(word)
            if postings is None:
                fresh[word] = array("Q", (packed | min(count, 255),))
            else:
                postings.append(packed | min(count, 255))

    def _seal(self) -> None:
        """Move the postings of the newest records to a segment, without those of records that are gone already."""
        np = self._np
        segment = self._fresh_numbers[0]
        numbers = np.array(self._fresh_numbers, "<u4")
        lengths = self._lengths[numbers].astype("<u4")
        is_live = self._owner[numbers] != 0
        self._count -= int((~is_live).sum())
        self._length -= int(lengths[~is_live].sum())
        if is_live.any():
            values = (segment, numbers[is_live].tobytes(), lengths[is_live].tobytes())
            self._database.execute("INSERT INTO segments VALUES (?, ?, ?)", values)
            rows = self._segment(segment, all_live=bool(is_live.all()))
            self._database.executemany("INSERT INTO postings VALUES (?, ?, ?)", rows)
        self._database.execute("DELETE FROM fresh WHERE n <= ?", (self._fresh_numbers[-1],))
        self._fresh.clear()
        self._fresh_numbers.clear()
        self._cache.clear()
        self._cached = 0

    def _segment(self, segment: int, *, all_live: bool) -> Iterable[tuple[str, int, bytes]]:
        for word in sorted(self._fresh):
            postings = self._fresh[word].tobytes()
            if not all_live:
                packed = self._np.frombuffer(postings, self._np.uint64)
                postings = packed[self._owner[packed >> 8] != 0].tobytes()
            if postings:
                yield word, segment, postings
