"""What is secret by its name or as a value of the environment, and how a text loses such a value.

A value is known in every form in which texts write it. Long ones are looked for by their letters and digits alone, so
that neither quotes, escapes and line ends between them nor a cut hide one.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, AnyStr, Literal, NamedTuple
from urllib.parse import quote, quote_plus, unquote

__all__ = [
    "MASK",
    "SHAPE",
    "URL_PASSWORD",
    "KnownForms",
    "is_plain",
    "is_random",
    "known_forms",
    "mask_known",
    "open_end",
    "secrecy",
    "secrets_of",
]

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

# A shorter value is no secret worth the name, and masking it would blacken every text.
_SHORTEST = 6
_SHORTEST_FORM = 8
_IDENTIFIER = re.compile(r"(?:[a-z]{1,14}|[A-Z]{1,14}|[A-Z][a-z]{1,13})(?:_(?:[a-z]{1,14}|[A-Z]{1,14}))*")
_NUMBER = re.compile(r"[\d.,:+/_ TZ-]+|0x[\da-fA-F]+")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_.~-]{16,}")
_CHANGE = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
SHAPE = re.compile(
    r"""
    \b[spr]k[-_](?:live|test|proj|ant|or|svcacct)[-_][A-Za-z0-9_-]{16,}
    | \b[spr]k[-_](?=[A-Za-z_-]{0,99}\d)[A-Za-z0-9_-]{20,}
    | \bgh[pousr]_[A-Za-z0-9]{20,}
    | \b(?:github_pat_|glpat-|pypi-|xapp-|xox[abeprs]-|nvapi-|figd_|glsa_)[A-Za-z0-9_.-]{16,}
    | \b(?:hf|npm|gsk|ntn|secret|shpat|shpca|shppa|shpss|whsec|dop_v1|lin_api|r8)_[A-Za-z0-9]{20,}
    | \b(?:sq0[a-z]{3}-|tvly-|pat-)(?=[A-Za-z_-]{0,99}\d)[A-Za-z0-9_-]{20,}
    | \bdapi[0-9a-f]{32}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | \bya29\.[A-Za-z0-9_-]{12,}
    | \bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    | \bkey-[0-9a-f]{32}\b
    | \bAC[0-9a-f]{32}\b
    | \beyJ[A-Za-z0-9_-]{5,2000}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*
    | (?<!\d)\d{8,10}:[A-Za-z0-9_-]{35}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY(?:\ BLOCK)?-----[\s\S]*?(?:-----END\ [A-Z ]*PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
    | (?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9/_-]+
    | (?<=/api/webhooks/)\d+/[A-Za-z0-9_-]+
    """,
    re.VERBOSE,
)
URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/\s:@]*:([^\s]+)@", re.IGNORECASE)


# Inside of a value: what follows a scheme, a user, or a name of a connection string.
_SCHEME_VALUE = re.compile(r"(?:Bearer|Basic|Token|ApiKey)\s+(\S{8,})", re.IGNORECASE)
_USER_VALUE = re.compile(r"[^\s:/@]+:([^\s:/@]{8,})")
_PAIR_IN_VALUE = re.compile(r"(?:^|[;&,\s])([A-Za-z][\w .-]{0,40}?)\s*=\s*\"?([^;&\s\"]{6,})")
_MAX_VALUE = 10_000
# So many letters and digits in a row are a secret, and so many its beginning; words alone are a phrase until then.
_SHORTEST_FLAT, _BEGINNING = 10, 16
_CHANCE, _MAX_TAIL = 6, 4_000
_REST = 8
_LOWER = bytes(range(256)).lower()
_NO_LETTER = bytes(code for code in range(256) if not bytes([code]).isalnum())


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
        yield from (found[1] for found in (_SCHEME_VALUE.fullmatch(value), _USER_VALUE.fullmatch(value)) if found)
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
    """Return a secret as texts write it: plain, encoded in URLs, escaped in JSON, HTML and Python, and in base64."""
    once, raw = quote(secret, safe=""), secret.encode("utf-8", "surrogateescape")
    made = {secret, unquote(secret), quote(secret), once, quote(once), quote_plus(secret)}
    made |= {html.escape(secret), html.escape(secret, quote=False), html.escape(secret).replace("&#x27;", "&#39;")}
    made |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    made |= {ascii(secret)[1:-1], repr(raw)[2:-1], raw.hex(), base64.b32encode(raw).decode().rstrip("=")}
    for before, lost in ((0, 0), (1, 2), (2, 3)):
        # In base64 a text has three looks, by what stands before it; the characters at its ends depend on neighbours.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + raw).decode().rstrip("=")
            made.add(text[lost : len(text) - ((before + len(raw)) % 3 != 0)])
    return {form for form in made if len(form) >= (_SHORTEST if form == secret else _SHORTEST_FORM)}


def _flat(text: str) -> bytes:
    """Return the letters and digits of a text alone, in lower case: what is left however it is quoted and wrapped."""
    return text.encode("ascii", "ignore").translate(_LOWER, _NO_LETTER)


def _is_long(letters: bytes) -> bool:
    """Tell whether letters and digits are too many to stand in a row by chance."""
    mixed = not (letters.isalpha() or letters.isdigit())
    return len(letters) >= (_SHORTEST_FLAT if mixed else _BEGINNING) and not letters.isdigit()


class KnownForms(NamedTuple):
    """The forms of the environment's secrets.

    Attributes
    ----------
    whole
        All of them, the longest first.
    short
        Those that are looked for as they are.
    flat, heads
        The letters of the others, and how these begin.
    """

    whole: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    flat: tuple[bytes, ...] = ()
    heads: frozenset[bytes] = frozenset()


# The environment as it was read last, and the forms of its secrets.
_READ: tuple[Any, KnownForms] = ({}, KnownForms())


def known_forms() -> KnownForms:
    """Return all forms of the environment's secrets."""
    global _READ  # noqa: PLW0603 - one pair, so that threads see both or neither
    # The mapping inside compares a hundred times faster than the one outside, which decodes every name and value; and
    # every call comes through here several times.
    now: Any = getattr(os.environ, "_data", None) or dict(os.environ)
    seen, known = _READ
    if seen == now:
        return known
    # Copied before it is read: what changes meanwhile is seen the next time.
    seen = dict(now)
    secrets = {part for name, value in os.environ.items() for part in secrets_of(name, value)}
    found = {form for secret in secrets if not is_plain(secret) for form in _forms(secret)}
    # The longest first, so that a secret that contains another is masked whole.
    whole = tuple(sorted(found, key=len, reverse=True))
    flat = {letters for letters in map(_flat, whole) if _is_long(letters)}
    short = tuple(form for form in whole if _flat(form) not in flat)
    heads = frozenset(letters[:_SHORTEST_FLAT] for letters in flat)
    known = KnownForms(whole, short, tuple(flat), heads)
    _READ = (seen, known)
    return known


def mask_known(text: str, known: KnownForms) -> str:
    """Return a text without the secrets that are known."""
    if known.short and len(text) >= len(known.short[-1]):
        for form in known.short:
            if form in text:
                text = text.replace(form, MASK)
    if known.flat and len(text) >= _SHORTEST_FLAT and _has_any(letters := _flat(text), known.heads):
        text = _mask_flat(text, letters, known.flat)
    return text


def _has_any(letters: bytes, heads: frozenset[bytes]) -> bool:
    """Tell whether one of the beginnings stands in a text."""
    # Each place of a short text is looked up, each beginning is looked for in a long one.
    if len(letters) > 5 * len(heads):
        return any(head in letters for head in heads)
    places = range(len(letters) - _SHORTEST_FLAT + 1)
    return any(letters[at : at + _SHORTEST_FLAT] in heads for at in places)


def _mask_flat(text: str, letters: bytes, known: tuple[bytes, ...]) -> str:
    """Mask secrets by their letters, whatever stands in between; one that is cut as far as it goes."""
    places = [at for at, char in enumerate(text) if char.isalnum() and char.isascii()]
    ends: dict[int, int] = {}  # where what is masked begins, and where it ends
    for form in known:
        begun = form[:_BEGINNING]
        start = letters.find(begun)
        while start >= 0:
            done, at = 0, start
            while at >= 0:
                end = at + 1
                while end < len(letters) and letters[at : end + 1] == form[done : done + end + 1 - at]:
                    end += 1
                ends[places[at]] = max(places[end - 1] + 1, ends.get(places[at], 0))
                done += end - at
                # It may go on behind the number of a line.
                rest = form[done : done + _REST]
                at = letters.find(rest, end, end + 3 * _REST) if len(rest) == _REST else -1
            start = letters.find(begun, start + 1)
    made, kept = [], 0
    for begin in sorted(ends):
        if begin >= kept:
            made += [text[kept:begin], MASK]
        kept = max(kept, ends[begin])
    return "".join([*made, text[kept:]])


def open_end(text: str, known: KnownForms) -> int:
    """Return the length of the longest end of a text that is the beginning of a secret."""
    # Line ends and quotes may stand in between; a few letters are there by chance.
    letters, at = _longest_end(_flat(text[-_MAX_TAIL:]), known.flat, _CHANCE), len(text)
    while letters > 0:
        at -= 1
        letters -= len(_flat(text[at]))
    return max(_longest_end(text, known.whole, 1), len(text) - at)


def _longest_end(text: AnyStr, known: Iterable[AnyStr], least: int) -> int:
    longest = 0
    for form in known:
        for size in range(min(len(form) - 1, len(text)), max(longest, least - 1), -1):
            if text.endswith(form[:size]):
                longest = size
                break
    return longest
