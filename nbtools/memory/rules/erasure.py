"""Erasure: find and remove a forgotten value in what nbtools keeps of calls, runs and files.

Calls of the memory tools that name the key lose everything else they were given. In all other calls, each text and each
number that the value was made of is taken out wherever it stands. What is short stands everywhere by chance: less than
six characters count as a whole argument only, less than four not at all. Of a longer text each excerpt of 31 bytes or
more is taken out too, such as what a search shows or a cut result keeps; of its first 256 KiB, if it is longer still.

In all else that may hold the value (runs of agents and of workflows, with what was in files before) it is overwritten
where it stands, by as many bytes: a writer at the end of such a file need not know of it, and what can be read
stays readable. Which files these are is said by the maker of their folder (`nbtools.memory.AgentMemory`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.wire.json_values import find_nested, replace_nested

FORGOTTEN = "[forgotten]"
_PART = 6
_WHOLE = 4
# Each excerpt of twice as many bytes, less one, has as many at a multiple of this number.
_STRIDE = 16
_EXCERPT = 2 * _STRIDE - 1
_MOST_BYTES, _PIECE = 1 << 18, 1 << 24
_QUOTE = re.compile(rb'(?<!\\)"')
# A part of an escape, or of a character, would leave what nobody can read.
_BEGUN_ESCAPE = re.compile(rb"\\+u?[0-9a-fA-F]{0,3}\Z")
_REST_OF_ESCAPE = re.compile(rb"\\*.?[0-9a-fA-F]{0,4}", re.DOTALL)
_ON_THEIR_WAY = 600.0
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_MOST_RUNS = 100
# What a memory tool is told beside the value.
# Of records: what stands there are words of nbtools and of the protocols, whose loss would leave nothing readable.
_WORDS = rb'"(?:kind|part_kind|state|status|tool|tool_name|caller|code|role|type)": ?"[^"\\]*"'
_NUMBER = re.compile(rb"-?[\d.]+(?:[eE][+-]?\d+)?")
_KEPT_ARGUMENTS = ("command", "scope", "match", "limit", "ttl", "version")


class Erasure:
    """The texts and numbers to remove from the records of calls when one key is forgotten.

    Parameters
    ----------
    key
        The key.
    values
        Its values, JSON texts.
    """

    def __init__(self, key: str, values: Iterable[str]) -> None:
        self.key = key
        # Shorter texts are in every record by chance, and taking them out would destroy what has nothing to do with the
        # value.
        texts = {text for value in values for text in _texts(json.loads(value)) if len(text) >= _WHOLE}
        self._whole = texts
        self._parts = sorted({form for text in texts if len(text) >= _PART for form in _forms(text)}, key=len)[::-1]

    def where(self, column: str, mark: str) -> tuple[str, list[str]]:
        """Return a condition in SQL, and its values, that holds for every text which `cleaned` may change.

        A run of plain letters and digits stands in a text however the text around it is escaped.
        """
        if self._grams or not self._runs:
            return "TRUE", []
        return " OR ".join([f"strpos({column}, {mark}) > 0"] * len(self._runs)), sorted(self._runs)

    def clean(self, record: str) -> str:
        """Return the record of a call, a JSON text, without what must not be found in it."""
        if (
            self._runs
            and not any(run in record for run in self._runs)
            and not self._excerpts(record.encode(), self._json_grams)
        ):
            return record
        call = json.loads(record)
        if not isinstance(call, dict):
            return record
        cleaned = {name: replace_nested(value, self._cleaned, names=True) for name, value in call.items()}
        arguments = cleaned.get("arguments")
        if str(cleaned.get("tool")).startswith("memory") and isinstance(arguments, dict) and self._is_named(arguments):
            cleaned["arguments"] = {name: self._clean_argument(name, value) for name, value in arguments.items()}
            cleaned["message"] = FORGOTTEN if cleaned.get("message") else None
        return record if cleaned == call else json.dumps(cleaned, ensure_ascii=True, separators=(",", ":"))

    @functools.cached_property
    def _forms(self) -> list[bytes]:
        return [part.encode() for part in self._parts]

    @functools.cached_property
    def _runs(self) -> frozenset[str]:
        """A run of letters and digits of each text; empty where one has none, or they are too many."""
        runs = {max(_PLAIN.findall(text), key=len, default="") for text in (self.key, *self._whole)}
        return frozenset() if "" in runs or len(runs) > _MOST_RUNS else frozenset(runs)

    @functools.cached_property
    def _grams(self) -> frozenset[bytes]:
        """All runs of 16 bytes of long texts."""
        return _grams_of(form[:_MOST_BYTES] for form in self._forms)

    @functools.cached_property
    def _json_grams(self) -> frozenset[bytes]:
        """The same without a quote that would end a text of JSON."""
        return _grams_of(piece for form in self._forms for piece in _QUOTE.split(form[:_MOST_BYTES]))

    def _excerpts(self, data: bytes, grams: frozenset[bytes]) -> list[tuple[int, int]]:
        """Return where at least 31 bytes stand that are a part of the value, without parts of characters."""
        spans, end = list[tuple[int, int]](), 0
        for at in range(0, len(data) - _STRIDE + 1 if grams else 0, _STRIDE):
            if at < end or data[at : at + _STRIDE] not in grams:
                continue
            start, end = at, at + _STRIDE
            while start and data[start - 1 : start - 1 + _STRIDE] in grams:
                start -= 1
            while end < len(data) and data[end - _STRIDE + 1 : end + 1] in grams:
                end += 1
            if end - start >= _EXCERPT:
                spans.append(_whole_characters(data, start, end))
        return spans

    def _places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where the value stands; a note of many texts is looked for text by text, which is quick."""
        forms, spans = [re.escape(form) for form in self._forms if form in data], self._excerpts(data, self._json_grams)
        if not (forms or spans):
            return
        pattern = re.compile(b"|".join([_WORDS, *(b"(" + form + b")" for form in forms)]))
        words = list[tuple[int, int]]()
        for match in pattern.finditer(data):
            if match.lastindex:
                yield match.span()
            else:
                words.append(match.span())
        for start, end in spans:
            if not any(first < end and start < last for first, last in words):
                yield start, end

    def blot_files(self, folder: Path) -> None:
        """Overwrite the value in each file below a folder, where it stands, with as many bytes; a number stays one.

        Raises
        ------
        OSError
            A file that holds it cannot be written.
        """
        for parent, _, names in os.walk(folder):
            for path in (Path(parent, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file() and not path.is_symlink():
                        self._blot_file(path)

    def is_in(self, path: Path) -> bool:
        """Tell whether the value stands in a file; one that cannot be read has none."""
        with contextlib.suppress(OSError):
            if not path.is_file() or path.is_symlink():
                return False
            with path.open("rb") as file:
                data = file.read(_PIECE)
                if any(self._places(data)):
                    return True
                # Further on whole texts alone: to look for parts of them takes a second for each 60 MB.
                while piece := file.read(_PIECE):
                    data = data[-len(max(self._forms, key=len, default=b"-")) :] + piece
                    if any(form in data for form in self._forms):
                        return True
        return False

    def _blot_file(self, path: Path) -> None:
        data = path.read_bytes()
        if spans := list(self._places(data)):
            with path.open("r+b") as file:
                for start, end in spans:
                    file.seek(start)
                    file.write(_blotted(data[start:end]))
                file.flush()
                os.fsync(file.fileno())

    def _is_named(self, arguments: Mapping[str, Any]) -> bool:
        return any(value == self.key for value in arguments.values())

    def _clean_argument(self, name: str, value: Any) -> Any:
        return value if value is None or value == self.key or name in _KEPT_ARGUMENTS else FORGOTTEN

    def _cleaned(self, one: Any) -> Any:
        if not isinstance(one, str):
            return FORGOTTEN if _is_number(one) and json.dumps(one) in self._whole else one
        for part in self._parts:
            one = one.replace(part, FORGOTTEN)
        raw = one.encode("utf-8", "surrogatepass")
        for start, end in reversed(self._excerpts(raw, self._grams)):
            raw = raw[:start] + FORGOTTEN.encode() + raw[end:]
        one = raw.decode("utf-8", "surrogatepass")
        return FORGOTTEN if one in self._whole else one


def _blotted(part: bytes) -> bytes:
    return (b"1" if _NUMBER.fullmatch(part) else b"*") * len(part)


def _whole_characters(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return a span without the parts of escapes and of characters at its ends."""
    if _BEGUN_ESCAPE.search(data[max(0, start - 64) : start]) and (rest := _REST_OF_ESCAPE.match(data, start, end)):
        start = rest.end()
    while start < end and 0x80 <= data[start] < 0xC0:
        start += 1
    while end < len(data) and end > start and 0x80 <= data[end] < 0xC0:
        end -= 1
    begun = _BEGUN_ESCAPE.search(data[start:end])
    return start, end - (len(begun[0]) if begun else 0)


class Erasures:
    """The erasures of the last minutes: records of calls arrive some time after their calls, and are cleaned then."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Erasure]] = deque()

    def add(self, erasure: Erasure) -> None:
        """Clean the records of calls that arrive in the next ten minutes by this erasure too."""
        self._recent.append((time.monotonic() + _ON_THEIR_WAY, erasure))

    def __bool__(self) -> bool:
        while self._recent and self._recent[0][0] < time.monotonic():
            self._recent.popleft()
        return bool(self._recent)

    def clean(self, record: str) -> str:
        """Return the record of a call without what was forgotten lately."""
        for _, erasure in self._recent if self else ():
            record = erasure.clean(record)
        return record


def _texts(value: Any) -> Iterator[str]:
    """Yield every text and number of a value, but not the names of its fields."""
    match = (one for _, one in find_nested(value, lambda one: isinstance(one, str) or _is_number(one)))
    return (one if isinstance(one, str) else json.dumps(one) for one in match)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _forms(text: str) -> set[str]:
    """Return the ways in which a text is written inside of others: plain, as JSON, as Python."""
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {text, repr(text)[1:-1], *escaped, *(json.dumps(one, ensure_ascii=False)[1:-1] for one in escaped)}


def _grams_of(pieces: Iterable[bytes]) -> frozenset[bytes]:
    long = (piece for piece in pieces if len(piece) >= _EXCERPT)
    return frozenset(piece[at : at + _STRIDE] for piece in long for at in range(len(piece) - _STRIDE + 1))
