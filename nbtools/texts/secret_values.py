"""What is secret by its name or as a value of the environment, and how a text loses such a value.

A value is known in the forms in which it gets into texts by accident: plain, in a URL, in JSON and in base64. Code that
wants to hide one can; that scripts have no secrets to hide is what protects against intent.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, quote_plus, unquote

from nbtools.texts.parsing import word_lists

MASK = "***"
"""What stands where a secret was."""

# -- by name

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LISTS = word_lists(__file__, "secret.words")
_ANY = {name: "|".join(words).replace("_", " ") for name, words in _LISTS.items()}
_SECRET = re.compile(
    rf"(?<!\S)(?:\S*(?:{_ANY['endings']})s?|(?!(?:{_ANY['harmless']})(?!\S))\S*(?:{_ANY['singular']})|{_ANY['alone']}"
    rf"|(?:{_ANY['opening']}) keys?)(?!\S)"
)
_PERHAPS = re.compile(rf"(?<!\S)(?:{_ANY['perhaps']})(?!\S)")
_ABOUT = re.compile(rf"(?<!\S)(?:{_ANY['about']})\Z")
NAME_SIGNS, DOORS = _LISTS["signs"], frozenset(_LISTS["doors"])
_FOLDERS = frozenset({"PWD", "OLDPWD"})


@functools.lru_cache(maxsize=4_096)
def secrecy(name: str) -> Literal[0, 1, 2]:
    """Return how far a name says that its value is secret: 0 not at all, 1 perhaps (``DEPLOY``, ``KEY``), 2 surely.

    Examples
    --------
    >>> secrecy("aws_secret_access_key"), secrecy("X-Api-Key"), secrecy("dbPassword")
    (2, 2, 2)
    >>> secrecy("SORT_KEY"), secrecy("token_count"), secrecy("TOKENIZERS_PARALLELISM"), secrecy("PWD")
    (1, 1, 0, 0)
    """
    words = "" if name in _FOLDERS else " ".join(_WORD.findall(name)).lower()
    if _SECRET.search(words):
        return 1 if _ABOUT.search(words) else 2
    return 1 if _PERHAPS.search(words) else 0


# -- by value

# A shorter value is not a secret worth the name, and masking it would blacken every text.
_SHORTEST = 6
_SHORTEST_FORM = 8
_IDENTIFIER = re.compile(r"(?:[a-z]{1,14}|[A-Z]{1,14}|[A-Z][a-z]{1,13})(?:_(?:[a-z]{1,14}|[A-Z]{1,14}))*")
_NUMBER = re.compile(r"[\d.,:+/_ TZ-]+|0x[\da-fA-F]+")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_.~-]{16,}")
_CHANGE = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
# A vendor's keys: how each begins, and its whole form.
_VENDORS = [
    line.split("\t") for line in Path(__file__).with_name("secret_forms.tsv").read_text(encoding="utf-8").splitlines()
]
SHAPE = re.compile("|".join(form for _, form in _VENDORS))
SHAPE_SIGNS = tuple(sign for signs, _ in _VENDORS for sign in signs.split())
URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/\s:@]*:([^\s]+)@", re.IGNORECASE)


# ``name=value`` as code, commands, URLs, headers and JSON have it; the name decides. Names and looks ahead have a
# bound: a search that runs to the end of a long text from each place never ends.
_LEAD = r"(?:(--?|\b(?:export|setx|setenv|set|ENV)\s+)|(?<![A-Za-z0-9]))"
_NAME = r"((?:identified\s+by|pragma\s+key)(?=[\s=])|[A-Za-z_][A-Za-z0-9_.-]{0,99}+)"
# ``password: str | None = "…"``; a sign close behind a letter, with no quote behind it, is the end of a base64 value.
_TYPE = r"(?::[ \t]*[A-Za-z][\w.]*(?:\[[\w., |]{0,60}\])?(?:[ \t]*\|[ \t]*\w+){0,4}(?:(?==[\"'])|(?=[ \t]+=[^=])))?"
_SIGN = rf"(?:{_TYPE}\s*(?::=|=>|[!=]=|[:=])|(?<=[\"'])(,)|(?(1)(?:\s+to)?(?=\s)|(?=\s+')))\s*[brfuBRFU]{{0,2}}"
_QUOTE = r"((?:\\*\"){3}|(?:\\*'){3}|\\*[\"'`])"
# A variable that stands for the secret, ``${NAME}``, tells nothing.
REAL = r"(?!\$\{?[A-Za-z_]|\*\*\*)"
# A header holds more than a word.
_BARE = (
    r"(?(1)(?!-)|(?:(?<=[=>:])|(?<=: )|(?=\S*\d)))(?:(?:bearer|basic|digest|token|apikey)\s+)?"
    r"((?<=authorization: )[^\"'\n\\]+|(?<=cookie: )[^\s\"'=]+=[^\"'\n\\]+|\{[^{}]+\}(?=;|$)|[^\s\"'`&;,(){}[\]\\]+)"
)
_NAMED = re.compile(
    rf"{_LEAD}{_NAME}\\*[\"']?\]?{_SIGN}(?:{_QUOTE}{REAL}((?:(?!\4).)+)\4|{REAL}{_BARE})", re.IGNORECASE
)
_MAX_VALUE = 10_000


def named_secrets(line: str) -> Iterator[tuple[int, int]]:
    """Yield where the values of secret names lie in a line; behind another name the search goes on in its value."""
    start = 0
    while match := _NAMED.search(line, start):
        name, value = match[2], match[5] or match[6]
        # Of an option, a header or a part of a URL the name says it all.
        is_certain = "-" in name or line[match.start(2) - 1 : match.start(2)] in {*"?&;"}
        # A comma joins a name with its value in a pair, ("X-Api-Key", "…"), and any two names in a list.
        level = 2 if is_certain and name in _FOLDERS else secrecy(name)
        if level >= (1 if is_certain else 2) and not (match[3] and is_plain(value)):
            yield match.span(5 if match[4] else 6)
            start = match.end()
        else:
            start = match.end(2)


def is_plain(value: str) -> bool:
    """Tell whether a value is too short or too much like data to be masked wherever it appears."""
    return (
        len(value) < _SHORTEST
        or _NUMBER.fullmatch(value) is not None
        or (len(value) <= 40 and _IDENTIFIER.fullmatch(value) is not None)
        or _is_path(value)
    )


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111 - any text
    except (OSError, ValueError):
        return False


def is_random(value: str) -> bool:
    """Tell whether a value looks like a key that a machine made."""
    return _RANDOM.fullmatch(value) is not None and len(_CHANGE.findall(value)) >= 4 and not _is_path(value)


def secrets_of(name: str, value: str) -> Iterator[str]:
    """Yield what of a variable's value is to be masked in texts: itself, or secrets inside of it, or both."""
    url = URL_PASSWORD.match(value)
    if url is not None:
        yield url[1]
        return
    level = secrecy(name)
    if level == 2 or SHAPE.search(value) or (level and is_random(value)):
        yield value
    yield from (value[start:end] for start, end in named_secrets(value[:_MAX_VALUE]))


def _forms(secret: str) -> set[str]:
    """Return a secret as texts write it: plain, encoded in URLs, escaped in JSON, and in base64."""
    raw = secret.encode("utf-8", "surrogateescape")
    forms = {secret, unquote(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    forms |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    for before, lost in ((0, 0), (1, 2), (2, 3)):
        # In base64 a text has three looks, by what stands before it; the characters at its ends depend on neighbours.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + raw).decode().rstrip("=")
            forms.add(text[lost : len(text) - ((before + len(raw)) % 3 != 0)])
    return {form for form in forms if len(form) >= (_SHORTEST if form == secret else _SHORTEST_FORM)}


# The environment as it was read last, and the forms of its secrets.
_READ: tuple[Any, tuple[str, ...]] = ({}, ())


def known_forms() -> tuple[str, ...]:
    """Return all forms of the environment's secrets, the longest first: one that contains another is masked whole."""
    global _READ  # noqa: PLW0603 - one pair, so that threads see both or neither
    # The mapping inside compares a hundred times faster than the one outside, which decodes every name and value; and
    # every call comes through here several times.
    now: Any = getattr(os.environ, "_data", None) or dict(os.environ)
    seen, forms = _READ
    if seen == now:
        return forms
    # Copied before it is read: what changes meanwhile is seen the next time.
    seen = dict(now)
    secrets = {part for name, value in os.environ.items() for part in secrets_of(name, value)}
    all_forms = {form for secret in secrets if not is_plain(secret) for form in _forms(secret)}
    forms = tuple(sorted(all_forms, key=len, reverse=True))
    _READ = (seen, forms)
    return forms


def open_end(text: str, forms: tuple[str, ...]) -> int:
    """Return the length of the longest end of a text that is the beginning of a secret."""
    longest = 0
    for form in forms:
        for size in range(min(len(form) - 1, len(text)), longest, -1):
            if text.endswith(form[:size]):
                longest = size
                break
    return longest
