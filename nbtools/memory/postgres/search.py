"""Full-text search on PostgreSQL, with results as close as possible to those of the DuckDB memory.

This client splits and stems the texts, with the same functions as the other stores, and stores them on the server as
``tsvector`` with the positions of the stems. A second table has the vocabulary: the words as they were written. The
rules of all stores (`nbtools.memory.rules.fts5.QueryExpansion`) decide which stored words a question matches; the
server only counts. The server returns the positions of the stems in the matching records, and this client ranks the
records by the formula of FTS5, because PostgreSQL's own ranking orders them differently.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from nbtools.memory.rules.fts5 import MOST_LEARNED, MOST_RANKED, QueryExpansion, Stemmer, is_learned, tiers
from nbtools.memory.rules.rows import Row
from nbtools.memory.rules.text_search import record_text, split_words, trigrams

LEARN = """
INSERT INTO nbtools_words
SELECT word, string_to_array(parts, ' ') FROM unnest(%s::text[], %s::text[]) AS new (word, parts) ON CONFLICT DO NOTHING
"""
# With words, and what asks for each: a word that no record has any more goes.
UNLEARN = """
DELETE FROM nbtools_words USING unnest(%s::text[], %s::text[]) AS old (gone, asked)
WHERE word = gone AND NOT EXISTS (SELECT FROM nbtools_items WHERE words @@ asked::tsquery)
"""
# What PostgreSQL can hold in one tsvector: a megabyte, and 2 kB a word. It knows no places beyond.
_MOST_WORDS = 16_383
_LONGEST_WORD = 500
# A phrase as FTS5 writes it, a star behind it for what begins so.
_PHRASE = re.compile(r'"([^"]*)"( \*)?')
# The constants of FTS5's own bm25().
_K1 = 1.2
_B = 0.75


class SearchTexts:
    """Converts texts and questions to ``tsvector`` and ``tsquery``."""

    def __init__(self) -> None:
        self._stemmer = Stemmer()

    def to_tsvector(self, words: Sequence[str]) -> str:
        """Return the text of a ``tsvector`` for the words of a record."""
        places: dict[str, list[int]] = {}
        for position, stem in enumerate(self._stemmer.stems(words), 1):
            places.setdefault(stem, []).append(position)
        return " ".join(f"'{stem}':{','.join(map(str, positions))}" for stem, positions in places.items())

    def phrases(self, query: str) -> list[tuple[list[str], bool]]:
        """Return the stems of each phrase of what FTS5 would match, and whether the last of them only begins so."""
        return [(self._stemmer.stems(text.split()), bool(star)) for text, star in _PHRASE.findall(query)]

    def to_tsquery(self, query: str) -> str:
        """Return the text of a ``tsquery`` for what FTS5 would match."""

        def phrase(match: re.Match[str]) -> str:
            ((stems, is_begun),) = self.phrases(match[0])
            return "(" + " <-> ".join(f"'{stem[:_LONGEST_WORD]}'" for stem in stems) + (":*)" if is_begun else ")")

        return _PHRASE.sub(phrase, query).replace(" OR ", " | ").replace(" AND ", " & ")


class _ScopeWords(QueryExpansion):
    """The words that the live records of one scope, or of all scopes, have."""

    def __init__(self, connection: Any, texts: SearchTexts, within: tuple[str, list[Any]]) -> None:
        self._connection = connection
        self._texts = texts
        self.within = within
        self._counts: dict[str, int] = {}

    def count(self, query: str, within: tuple[Any, ...]) -> int:
        """Return how many records have what FTS5 would match."""
        # Asked several times for one question: as it is written, as a beginning, and for its weight.
        if query not in self._counts:
            where, values = within
            sql = f"SELECT count(*) FROM nbtools_items WHERE {where} AND words @@ %s::tsquery"
            self._counts[query] = self._connection.execute(sql, [*values, self._texts.to_tsquery(query)]).fetchone()[0]
        return self._counts[query]

    def beginnings(self, word: str, most: int) -> int:
        """Return how many words of the vocabulary begin so, at most so many."""
        sql = "SELECT count(*) FROM (SELECT FROM nbtools_words WHERE word >= %s AND word < %s LIMIT %s) AS found"
        return int(self._connection.execute(sql, [word, word + "\U0010ffff", most]).fetchone()[0])

    def candidates(self, word: str, most: int) -> list[str]:
        """Return the words of the vocabulary that share most of a word's `trigrams`."""
        sql = (
            "SELECT word FROM unnest(%s::text[]) AS part JOIN nbtools_words ON letters @> ARRAY[part] GROUP BY word "
            "ORDER BY count(*) / sqrt(cardinality(letters)) DESC, word LIMIT %s"
        )
        return [candidate for (candidate,) in self._connection.execute(sql, [trigrams(word), most])]


def ranked_by_words(
    connection: Any, texts: SearchTexts, question: str, scope: tuple[str, list[Any]], query: tuple[str, list[Any]]
) -> list[tuple[str, float]]:
    """Return ids and scores of the records that fit a question, best first, of equal ones the newest.

    Parameters
    ----------
    connection
        The open connection to PostgreSQL.
    texts
        Converts texts and questions for PostgreSQL's search.
    question
        The words that are searched for.
    scope
        The WHERE and its values of the records by which words are judged, whatever else a query asks for.
    query
        Those of the records that may be returned.
    """
    scope_words = _ScopeWords(connection, texts, scope)
    groups = scope_words.groups(question, scope)
    if not groups:
        return []
    sql = f"SELECT count(*), coalesce(avg(size), 1)::float8 FROM nbtools_items WHERE {scope[0]}"
    total, average = connection.execute(sql, scope[1]).fetchone()
    ranked: dict[str, float] = {}
    # The records with rare words first: a tier is ranked below all of the one before it.
    for tier in tiers(groups):
        phrases = [(match[0], *texts.phrases(match[0])[0]) for match in _PHRASE.finditer(tier)]
        weights = [_weight(total, scope_words.count(text, scope)) for text, _, _ in phrases]
        scores: dict[str, float] = {}
        for name, size, places in _matching_records(connection, texts.to_tsquery(tier), phrases, query):
            length = _K1 * (1 - _B + _B * size / (average or 1.0))
            counts = [_occurrences(places, stems, is_begun=is_begun) for _, stems, is_begun in phrases]
            parts = (w * n * (_K1 + 1) / (n + length) for w, n in zip(weights, counts, strict=True))
            scores[name] = sum(parts)
        for name in sorted(scores, key=lambda name: -scores[name]):
            ranked.setdefault(name, scores[name])
    return list(ranked.items())


def _matching_records(
    connection: Any, question: str, phrases: Sequence[tuple[str, list[str], bool]], query: tuple[str, list[Any]]
) -> Any:
    """Return id, size and the places of the stems that are asked for, of the newest records that fit."""
    stems = [stem for _, some, _ in phrases for stem in some]
    begun = [some[-1] for _, some, is_begun in phrases if is_begun]
    sql = (
        "SELECT id, size, (SELECT coalesce(json_object_agg(lexeme, positions), '{}') FROM unnest(words) "
        "WHERE lexeme = ANY(%s) OR lexeme ^@ ANY(%s)) FROM "
        f"(SELECT id, size, words, updated FROM nbtools_items WHERE {query[0]} AND words @@ %s::tsquery "
        "ORDER BY updated DESC LIMIT %s) AS found ORDER BY updated DESC, id DESC"
    )
    return connection.execute(sql, [stems, begun, *query[1], question, MOST_RANKED]).fetchall()


def _occurrences(places: dict[str, list[int]], stems: Sequence[str], *, is_begun: bool) -> int:
    """Return how often stems stand one behind the other."""
    at = [set(places.get(stem, ())) for stem in stems]
    if is_begun:
        at[-1] = {position for stem, some in places.items() if stem.startswith(stems[-1]) for position in some}
    return sum(all(position + n in one for n, one in enumerate(at)) for position in at[0])


def vocabulary_of(texts: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return what `LEARN` takes of the words of texts: each with its groups of letters, in one order for everybody."""
    some = (itertools.islice(filter(is_learned, dict.fromkeys(words)), MOST_LEARNED) for words in texts)
    new = sorted(set(itertools.chain.from_iterable(some)))
    return [new, [" ".join(trigrams(word)) for word in new]]


def _weight(total: int, having: int) -> float:
    return max(math.log((total - having + 0.5) / (having + 0.5)), 1e-6)


def words_of(row: Row) -> list[str]:
    """Return the words that a row is found by; none for a deletion."""
    if row.value is None:
        return []
    words = split_words(record_text(row.key, row.tags, row.value))
    return [word for word in words if len(word) <= _LONGEST_WORD][:_MOST_WORDS]
