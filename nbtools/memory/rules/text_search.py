"""Text search: split texts into words, find similar words, and fuse two rankings.

Pure functions that every repository shares, so that the same words find the same records wherever they lie.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from nbtools.texts.parsing import word_lists

# The constant of the paper on reciprocal rank fusion, which most engines have kept.
_RRF = 60
_MOST_TERMS = 32
# Known words that one unknown word is searched as.
_MOST_MEANT = 8
_PICTURES = "\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001faff"
_PICTURE = re.compile(f"[{_PICTURES}]")
_WORD = re.compile(rf"[^\W_]+|[{_PICTURES}]")
# Scripts without spaces between words: each character counts as a word.
_DENSE = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_DENSE_RUN = re.compile(f"({_DENSE.pattern}+)")
_STOP_WORDS = frozenset(word_lists(__file__, "stop.words")["stop"])

# The words of a question that stand side by side: one, or more of a script without spaces.
Term: TypeAlias = tuple[str, ...]

Id = TypeVar("Id", bound=Hashable)


def split_words(text: str) -> list[str]:
    """Return the words of a text: case folded, without accents and underscores; a picture is followed by its name."""
    if not text.isascii():
        named = _PICTURE.sub(
            lambda match: f" {match[0]} {unicodedata.name(match[0], '')} ", _DENSE.sub(r" \g<0> ", text)
        )
        decomposed = unicodedata.normalize("NFKD", named)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _WORD.findall(text.casefold())


def question_terms(text: str) -> list[Term]:
    """Return what a question looks for, each once: single words, and neighbours in scripts without spaces.

    Stop words are left out when others remain. Of a long question the beginning counts, for each word costs time.
    """
    terms: list[Term] = []
    for part in _DENSE_RUN.split(text):
        words = split_words(part)
        if _DENSE_RUN.fullmatch(part) and len(words) > 1:
            terms += itertools.pairwise(words)
        else:
            terms += [(word,) for word in words]
    unique = list(dict.fromkeys(terms))
    return ([term for term in unique if term[0] not in _STOP_WORDS] or unique)[:_MOST_TERMS]


def trigrams(word: str) -> list[str]:
    """Return the groups of three letters of a word with its ends; words that share none are never `closest`."""
    ended = f"^{word}$"
    return [ended[start : start + 3] for start in range(len(ended) - 2)]


def closest(word: str, candidates: Iterable[str]) -> list[str]:
    """Return the known words that an unknown one stands for, all of them equally near; often none.

    Nearest are those that it begins, then those a letter away, those that it is a part of, those two letters away, and
    last those that begin or end it, as in a compound. A word with digits stands for those that it begins alone.
    """
    near: dict[float, list[str]] = {}
    for candidate in candidates:
        cost = _cost(word, candidate)
        if cost is not None:
            near.setdefault(cost, []).append(candidate)
    # The nearest alone: a word two letters away is a mistake when there is one a letter away.
    best = near[min(near)] if near else []
    return sorted(best, key=lambda candidate: (abs(len(candidate) - len(word)), candidate))[:_MOST_MEANT]


def splits(word: str) -> list[Term]:
    """Return the pairs of words that a compound may be made of."""
    return [(word[:cut], word[cut:]) for cut in range(2, len(word) - 1)] if len(word) > 4 else []


def record_text(key: str, tags: Iterable[str], value: str) -> str:
    """Return what a search looks at: key, tags, and every name and scalar of the value.

    Parameters
    ----------
    key
        The key of the record.
    tags
        The tags of the record.
    value
        The value as JSON text.
    """
    # The JSON text itself would do for ASCII, were it not for escapes such as \n that would glue an n to a word.
    parts = [key, *tags]
    if value[:1] in '"[{':
        _collect(json.loads(value), parts)
    else:
        parts.append(value)
    return " ".join(parts)


def relative(ranked: Sequence[tuple[Id, float]]) -> list[tuple[Id, float]]:
    """Return a ranking with each score as a part of the best one, between 0.01 and 1.

    BM25 gives words that most records have next to nothing, so the scores themselves say little.
    """
    best = max((score for _, score in ranked), default=1.0)
    return [(name, max(score / best, 0.01)) for name, score in ranked]


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 when their lengths differ or one is zero.

    `right` may be several vectors one after the other, of which the nearest counts.
    """
    if not left or len(right) % len(left):
        return 0.0
    if len(right) > len(left):
        return max(cosine(left, right[start : start + len(left)]) for start in range(0, len(right), len(left)))
    size = math.sqrt(sum(x * x for x in left)) * math.sqrt(sum(y * y for y in right))
    return sum(x * y for x, y in zip(left, right, strict=True)) / size if size else 0.0


def fuse(*rankings: Sequence[Id]) -> list[tuple[Id, float]]:
    """Fuse rankings by reciprocal rank, best first: what stands high in any of them stands high in the result."""
    scores: dict[Id, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (_RRF + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])


def blended(
    words: Sequence[tuple[Id, float]] | None, nearest: Sequence[tuple[Id, float]] | None, most: int
) -> list[tuple[Id, float]]:
    """Return the best of a ranking by words, of one by vectors, or of both together; `None` for one not asked for."""
    if words is None:
        return list(nearest or ())[:most]
    if nearest is not None:
        words = fuse([name for name, _ in words], [name for name, score in nearest if score > 0])
    return relative(words[:most])


def _cost(word: str, candidate: str) -> float | None:
    """Return how far an unknown word is from a known one, `None` for too far."""
    if candidate.startswith(word):
        return 0.0
    if not word.isalpha():
        return None
    whole, begun = _slips(word, candidate)
    # Few slips are in the first letter. The last letters of what is known may be missing too.
    cost = min(whole, begun + 0.5 if len(word) > 4 else whole) + 0.25 * (word[0] != candidate[0])
    if cost < (0 if len(word) < 4 else 2 if len(word) < 6 else 3):
        return cost
    if len(word) > 3 and word in candidate:
        return 1.5
    is_part = len(candidate) > 3 and (word.startswith(candidate) or word.endswith(candidate))
    return 3.0 if is_part else None


def _slips(word: str, candidate: str) -> tuple[int, int]:
    """Return how many letters are wrong, missing, too many or swapped in a word, and in the beginning of one."""
    # Edit distance with swaps of neighbours, row by row; the least of the last row is that of the best beginning.
    before, last = [0] * (len(candidate) + 1), list(range(len(candidate) + 1))
    for i, a in enumerate(word, 1):
        row = [i]
        for j, b in enumerate(candidate, 1):
            cost = min(row[j - 1] + 1, last[j] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == candidate[j - 2] and word[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1], min(last)


def _collect(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            parts.append(name)
            _collect(item, parts)
    elif isinstance(value, list):
        for item in value:
            _collect(item, parts)
    elif value is not None:
        # What `json.dumps` writes for a number costs a tenth of the time.
        parts.append(value if isinstance(value, str) else repr(value) if type(value) is int else json.dumps(value))
