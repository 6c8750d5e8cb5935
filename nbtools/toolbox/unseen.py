"""What a text may read besides the files that it names, and what it is handed: nobody can compare that."""

from __future__ import annotations

import re

# In every library, and in SQL, a moment has these names; all that the modules after them give is new each time.
_UNSEEN = {
    "the memory": r"\bmemory\b",
    "an address": r"://",
    "the clock": r"(?i)\b(?:(?:utc)?now|today)\(|\bcurrent_(?:date|time|timestamp)\b|\btime\.(?!sleep)\w+\(",
    "chance": r"(?i)\b(?:random|secrets|uuid)\.\w+\(|\b(?:random|uuid)\(",
}


def unseen_by(text: str) -> str:
    """Return what code, or a query, may read that nobody can compare, in words; empty where there is nothing.

    Examples
    --------
    >>> unseen_by("memory.read('k')"), unseen_by("select now()"), unseen_by("sum(inputs['n'])")
    ('the memory', 'the clock', '')
    """
    return next((words for words, pattern in _UNSEEN.items() if re.search(pattern, text)), "")
