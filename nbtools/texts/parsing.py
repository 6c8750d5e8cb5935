"""Texts to JSON values: JSON and YAML, with the place of a mistake, and with bounds that a hostile text cannot pass.

A parser can be bombed: by nesting (its recursion is C code in part) and by numbers with a million digits. So nesting
and size are measured before anything is built. YAML, whose aliases each stand for all that their anchor holds, is read
by `nbtools.texts.yaml_tree`.

The package's own lists of words are read here too: they stand in files beside the modules that use them. So are the
names of encodings that tools take: those whose work grows only with the length of the text.
"""

from __future__ import annotations

import codecs
import functools
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from nbtools.errors import LimitExceeded, NbtoolsError, ParseError

# Python's list of encodings has others than those of documents: of domain names (``punycode`` and ``idna`` take time
# with the square of the length), of source code, of bytes (``zlib``), and what packages add.
_DOCUMENTS = re.compile(
    r"utf-8(-sig)?|utf-(16|32)(-[bl]e)?|ascii|iso8859-\d+|iso2022_\w+|cp\d+|koi8-\w|mac-\w+|gb\w+|big5\w*|hz"
    r"|shift_jis\w*|euc_\w+|johab|tis-620|kz1048|ptcp154|hp-roman8"
)
_MAX_DEPTH = 100
_MAX_JSON, _MAX_YAML = 10_000_000, 1_000_000
_MAX_DIGITS = 4_000
_DEEP = f"nested more than {_MAX_DEPTH} levels deep"
# Strings are skipped whole, so that brackets inside them do not count.
_COLON = re.compile(r"\s*:")
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def from_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ParseError
        It is not JSON; message and ``data`` tell line and column.
    LimitExceeded
        It has more than 10,000,000 characters, 100 levels or 4,000 digits in a number.
    """
    _check_length(text, _MAX_JSON, "JSON")
    text = text.removeprefix("\ufeff")
    depth = 0
    for lexeme in _TOKENS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(lexeme[0], 0)
        if depth > _MAX_DEPTH:
            raise _error_at(text, lexeme.start(), _DEEP, LimitExceeded)

    def constant(token: str) -> NoReturn:
        raise _error_at(text, _outside_strings(text, token), f"{token} is not a JSON value")

    def decimal(token: str) -> float:
        value = float(token)
        if math.isinf(value):
            raise _error_at(text, _outside_strings(text, token), f"the number {token[:40]} is too large")
        return value

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            key, at = _repeated_key(text)
            raise _error_at(text, at, f"the key {key[:60]!r} stands twice")
        return fields

    try:
        fields = json.loads(
            text, parse_constant=constant, parse_float=decimal, parse_int=_parse_int, object_pairs_hook=unique
        )
    except json.JSONDecodeError as exc:
        raise _error_at(text, exc.pos, exc.msg.removesuffix(" at")) from None
    return _check_encodable(fields, text)


def _repeated_key(text: str) -> tuple[str, int]:
    """Return the first key that its object has already, and where it stands; there is one."""
    open_objects: list[set[str]] = []
    for token in _TOKENS.finditer(text):
        part = token[0]
        if part in {"[", "{"}:
            open_objects.append(set())
        elif part in {"]", "}"}:
            open_objects.pop()
        elif _COLON.match(text, token.end()):
            key = json.loads(part)
            if key in open_objects[-1]:
                return key, token.start()
            open_objects[-1].add(key)
    return "", 0


def _parse_int(token: str) -> int:
    if len(token) > _MAX_DIGITS:
        raise LimitExceeded(f"a number has {len(token):,} digits; {_MAX_DIGITS:,} are allowed.")
    return int(token)


def _outside_strings(text: str, token: str) -> int:
    """Return where a token stands, strings passed over."""
    pattern = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<token>' + re.escape(token) + ")", re.DOTALL)
    return next((match.start() for match in pattern.finditer(text) if match["token"]), 0)


def _check_encodable(value: Any, text: str) -> Any:
    """Return a value that can be written as UTF-8: an escape such as ``ud800`` may stand for half a character."""
    match = re.search(r"\\u[dD][89a-fA-F]", text)
    if match is None:
        return value
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _error_at(text, match.start(), "an escape is half a character (a lone surrogate)") from None
    return value


def _error_at(text: str, at: int, problem: str, kind: type[NbtoolsError] = ParseError) -> NbtoolsError:
    """Return an error that tells line and column, from 1, of a place in a text."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return kind(f"line {line}, column {column}: {problem}.", data={"line": line, "column": column})


def _check_length(text: str, most: int, what: str) -> None:
    if len(text) > most:
        raise LimitExceeded(f"the text has {len(text):,} characters; {most:,} are allowed for {what}.")


def from_yaml(text: str) -> Any:
    """Return the value of a YAML text as JSON values: keys are text, and so are infinity and NaN.

    YAML 1.2 core is read, with the merge key ``<<`` of 1.1: dates, ``yes``, ``on``, ``010`` and ``12:30`` are text.

    Raises
    ------
    ParseError
        It is not YAML, has its own tag, or several documents; message and ``data`` tell line and column.
    LimitExceeded
        It has more than 1,000,000 characters, 100 levels or 200,000 values (aliases counted for what they stand for).
    """
    from nbtools.texts.yaml_tree import LinedText, compose, data_of

    _check_length(text, _MAX_YAML, "YAML")
    root = compose(LinedText(text.removeprefix("\ufeff")))
    return None if root is None else data_of(root, finite=True)


def codec_of(name: str) -> codecs.CodecInfo | None:
    """Return the codec of an encoding by any of its names; `None` when it is none that documents have."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return codec if _DOCUMENTS.fullmatch(codec.name) else None


@functools.cache
def word_lists(module: str, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the lists of words of the file `name`, which lies beside the file of a module, by their headings.

    It has a heading ``[name]`` for each list, and below it words with blanks between them; behind ``#`` stands why.
    """
    lists: dict[str, list[str]] = {}
    for line in Path(module).with_name(name).read_text(encoding="ascii").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            lists[text[1:-1]] = []
        elif text:
            lists[[*lists][-1]] += text.split()
    return {name: tuple(words) for name, words in lists.items()}
