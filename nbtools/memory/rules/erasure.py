"""Erasure: find and remove a forgotten value in what nbtools keeps of calls, runs and files.

Calls of the memory tools that name the key lose everything else they were given. In all other calls, each text and each
number that the value was made of is taken out wherever it stands. What is short stands everywhere by chance: less than
six characters count as a whole argument only, less than four not at all.

In all else that may hold the value (transcripts of agents, logs and results of workflows, what undo keeps) it is
overwritten where it stands, by as many bytes: whoever writes at the end of such a file need not know of it, and what
can be read stays readable. Which records these are is told by their scope (`Scope.is_own`), which files by whoever
made their folder (`nbtools.memory.AgentMemory`).
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
# Records keep the beginning of a long text only, so that is looked for as well.
_BEGINNING = 1_000
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
        runs = {max(_PLAIN.findall(text[:_BEGINNING]), key=len, default="") for text in (self.key, *self._whole)}
        if "" in runs or len(runs) > _MOST_RUNS:
            return "TRUE", []
        return " OR ".join([f"strpos({column}, {mark}) > 0"] * len(runs)), sorted(runs)

    def clean(self, record: str) -> str:
        """Return the record of a call, a JSON text, without what must not be found in it."""
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

    def _places(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """Yield where the value stands; a note of many texts is looked for text by text, which is quick."""
        forms = [re.escape(form) for form in self._forms if form in data]
        if forms:
            pattern = re.compile(_WORDS + b"|(" + b"|".join(forms) + b")")
            yield from (match for match in pattern.finditer(data) if match.lastindex)

    def blot(self, data: bytes) -> bytes:
        """Return the data with as many other bytes in place of the value; a number stays one."""
        blotted = bytearray(data)
        for match in self._places(data):
            blotted[match.start() : match.end()] = _blotted(match)
        return bytes(blotted)

    def blot_text(self, text: str) -> str:
        """Return a text that is as long, in UTF-8, without the value."""
        return self.blot(text.encode()).decode()

    def blot_files(self, folder: Path) -> None:
        """Overwrite the value in each file below a folder, where it stands.

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

    def _blot_file(self, path: Path) -> None:
        if spans := list(self._places(path.read_bytes())):
            with path.open("r+b") as file:
                for match in spans:
                    file.seek(match.start())
                    file.write(_blotted(match))
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
        return FORGOTTEN if one in self._whole else one


def _blotted(match: re.Match[bytes]) -> bytes:
    return (b"1" if _NUMBER.fullmatch(match[0]) else b"*") * len(match[0])


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

    def clean(self, record: str, *, is_call: bool = True) -> str:
        """Return the record of a call, or another one of nbtools' own, without what was forgotten lately."""
        for _, erasure in self._recent if self else ():
            record = erasure.clean(record) if is_call else erasure.blot_text(record)
        return record


def _texts(value: Any) -> Iterator[str]:
    """Yield every text and number of a value, but not the names of its fields."""
    match = (one for _, one in find_nested(value, lambda one: isinstance(one, str) or _is_number(one)))
    return (one if isinstance(one, str) else json.dumps(one) for one in match)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _forms(text: str) -> set[str]:
    """Return the ways in which a text is written inside of others: plain, as JSON, as Python."""
    forms = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return forms | {form[:_BEGINNING] for form in forms}
