"""Search: words of a record, ranking by BM25, and the fusion of two rankings.

Pure functions that every repository shares, so that the same words find the same records wherever they lie. BM25 is the
formula of SQLite's FTS5: k1 = 1.2, b = 0.75, and the weight of a common word is never below a millionth.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

__all__ = ["cosine", "fuse", "rank", "record_text", "split_words"]

_K1 = 1.2
_B = 0.75
_RRF = 60
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words: each character stands as a word of its own.
_DENSE = re.compile("([\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])")

Id = TypeVar("Id", bound=Hashable)


def split_words(text: str) -> list[str]:
    """Return the words of a text: case folded, without accents and underscores."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", _DENSE.sub(r" \1 ", text))
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _WORD.findall(text.casefold())


def record_text(key: str, tags: Iterable[str], value: str) -> str:
    """Return what a search looks at: key, tags, and every name and scalar of the value.

    Parameters
    ----------
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


def rank(query: str, texts: Mapping[Id, str], *, total: int | None = None) -> list[tuple[Id, float]]:
    """Rank texts by BM25 for the words of a query, best first; texts without any of the words are left out.

    Parameters
    ----------
    total
        How many texts there are, when only those with any of the words are given; `None` when all are.
    """
    wanted = list(dict.fromkeys(split_words(query)))
    documents = {name: split_words(text) for name, text in texts.items()}
    if not wanted or not documents:
        return []
    average = sum(map(len, documents.values())) / len(documents) or 1.0
    counts = {name: Counter(words) for name, words in documents.items()}
    weights = {word: _weight(total or len(counts), sum(word in count for count in counts.values())) for word in wanted}
    scored: list[tuple[Id, float]] = []
    for name, count in counts.items():
        length = _K1 * (1 - _B + _B * len(documents[name]) / average)
        score = sum(weights[word] * count[word] * (_K1 + 1) / (count[word] + length) for word in wanted)
        if score > 0:
            scored.append((name, score))
    return sorted(scored, key=lambda pair: -pair[1])


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 when their lengths differ or one is zero."""
    if len(left) != len(right):
        return 0.0
    size = math.sqrt(sum(x * x for x in left)) * math.sqrt(sum(y * y for y in right))
    return sum(x * y for x, y in zip(left, right, strict=True)) / size if size else 0.0


def fuse(*rankings: Sequence[Id]) -> list[tuple[Id, float]]:
    """Fuse rankings by reciprocal rank, best first: what stands high in any of them stands high in the result."""
    scores: dict[Id, float] = {}
    for ranking in rankings:
        for place, name in enumerate(ranking, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (_RRF + place)
    return sorted(scores.items(), key=lambda pair: -pair[1])


def _weight(total: int, having: int) -> float:
    return max(math.log((total - having + 0.5) / (having + 0.5)), 1e-6)


def _collect(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            parts.append(name)
            _collect(item, parts)
    elif isinstance(value, list):
        for item in value:
            _collect(item, parts)
    elif value is not None:
        parts.append(value if isinstance(value, str) else json.dumps(value))
