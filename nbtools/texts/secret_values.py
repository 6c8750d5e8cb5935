"""What is secret by its name or as a value of the environment, and how a text loses such a value.

A value is known in the forms in which it gets into texts by accident: plain, in a URL, in JSON and in base64. Whoever
wants to hide one can; that scripts have no secrets to hide is what protects against intent.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import os
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any, Literal
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
"""What stands where a secret was."""

# -- by name

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURE_WORD = re.compile(
    r".*(?:password|passwd|passphrase|passcode|secret|apikey|accesskey|secretkey|privatekey|authkey|credential)s?"
    r"|.*token|.*pwd|.*pw|creds?|authorization|cookies?|bearer|jwt|sas|dsn|connstr|netrc|webhooks?"
    r"|(?!bypass|compass|trespass|overpass|underpass|encompass).*pass"
)
_PERHAPS = frozenset({"key", "keys", "tokens", "auth", "private", "pin", "otp", "salt", "sig", "signature", "askpass"})
# ``sort_key`` and ``key`` name data; these keys open something.
_OPENING = frozenset(
    {
        *("access", "account", "admin", "api", "app", "application", "auth", "client", "deploy", "encryption"),
        *("functions", "license", "master", "private", "secret", "service", "shared", "signing", "ssh", "storage"),
        "subscription",
    }
)
_PAIRS = frozenset(
    {
        *((word, key) for word in _OPENING for key in ("key", "keys")),
        *(("connection", "string"), ("conn", "string"), ("conn", "str")),
    }
)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
# ``COOKIE_DOMAIN`` and ``CREDENTIALS_FILE`` tell of a secret what may be told.
_ABOUT = frozenset(
    {
        *("algorithm", "backend", "class", "column", "dir", "domain", "endpoint", "field", "file", "header", "hasher"),
        *("home", "host", "id", "limit", "max", "min", "mode", "name", "path", "policy", "port", "prefix", "provider"),
        *("region", "scope", "service", "suffix", "type", "user", "username"),
    }
)
# ``conn_str_len`` and ``token_count`` say how much of it there is.
_MEASURES = frozenset(
    {*("age", "bytes", "count", "expiry", "fds", "index", "len", "length", "limit"), "max", "min", "size", "ttl"}
)


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
    if name in _FOLDERS:
        return 0
    words = _words(name)
    sure = any(word != "tokens" and _SURE_WORD.fullmatch(word) for word in words)
    if sure or any(pair in _PAIRS for pair in itertools.pairwise(words)):
        return 1 if words[-1] in _MEASURES else 2
    return 0 if _PERHAPS.isdisjoint(words) else 1


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


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
    line.split("\t")
    for line in resources.files("nbtools.texts").joinpath("secret_forms.tsv").read_text(encoding="utf-8").splitlines()
]
SHAPE = re.compile("|".join(form for _, form in _VENDORS))
SHAPE_SIGNS = tuple(sign for signs, _ in _VENDORS for sign in signs.split())
URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/\s:@]*:([^\s]+)@", re.IGNORECASE)


# Inside of a value: what follows a scheme, a user, or a name of a connection string.
_SCHEME_VALUE = re.compile(r"(?:Bearer|Basic|Token|ApiKey)\s+(\S{8,})", re.IGNORECASE)
_USER_VALUE = re.compile(r"[^\s:/@]+:([^\s:/@]{8,})")
_PAIR_IN_VALUE = re.compile(r"(?:^|[;&,\s])([A-Za-z][\w .-]{0,40}?)\s*=\s*\"?([^;&\s\"]{6,})")
_MAX_VALUE = 10_000


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
    if SHAPE.search(value) or (level == 2 and _words(name)[-1] not in _ABOUT) or (level and is_random(value)):
        yield value
        # What programs take out of it: the token of a header, the password of a user, the lines of a key.
        yield from (match[1] for match in (_SCHEME_VALUE.fullmatch(value), _USER_VALUE.fullmatch(value)) if match)
        yield from (line for line in value.splitlines() if is_random(line))
    if value[:1] == "{":
        with contextlib.suppress(ValueError, RecursionError):
            for key, item in json.loads(value).items():
                if isinstance(item, str):
                    yield from secrets_of(key, item)
    for key, item in _PAIR_IN_VALUE.findall(value[:_MAX_VALUE]):
        if secrecy(key) == 2:
            yield from secrets_of(key, item)


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
