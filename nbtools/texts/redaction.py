"""Secrets: the one definition of what is secret, and how texts and environments lose it.

What is secret is told by three things, and every other part of the package asks here:

- a **name** (of a variable, a field, a header, an option): `nbtools.texts.secret_values.secrecy` reads its words;
- a **value** of the environment under such a name, plain, in a URL, in JSON or in base64: `redact` masks it wherever
  it appears, so it must be sure. Short, numeric and dictionary-like values are not secrets: masking ``customer_id``
  because someone called a variable ``SORT_KEY`` would spoil data;
- a **form**: keys with a vendor's prefix, tokens, private keys, passwords in URLs, ``name=value`` with a secret name.
  `conceal` masks these too. It is for what is told of a call (records, errors, spans), not for the call's own data.

All this is against accident. Against intent stands that scripts are given no secrets.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.texts import secret_values

# Told apart first: asking whether something is a mapping takes longer than all else.
_ATOMS = (int, float, type(None))
_SHORT = 64


def is_secret_name(name: str) -> bool:
    """Tell whether the value of a field or setting of that name is surely a secret."""
    return secret_values.secrecy(name) == 2


def redact(value: Any) -> Any:
    """Return `value` with every secret of the environment replaced by ``***``, in each form that texts write it.

    Dicts, lists and tuples are copied; anything that is not text, a container or a number is returned as it is.
    """
    forms = secret_values.known_forms()
    return _without_secrets(value, forms, by_form=False) if forms else value


def _without_secrets(value: Any, forms: tuple[str, ...], *, by_form: bool) -> Any:
    if isinstance(value, str):
        # Most short texts of what is told are names that come with every call.
        mask = _mask_short if by_form and len(value) <= _SHORT else _mask
        return mask(value, forms, by_form)
    if isinstance(value, _ATOMS):
        return value
    again = functools.partial(_without_secrets, forms=forms, by_form=by_form)
    if isinstance(value, Mapping):
        return {
            again(key): secret_values.MASK
            if by_form and item and isinstance(key, str) and secret_values.secrecy(key) == 2
            else again(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [again(item) for item in value]
    return tuple(again(item) for item in value) if isinstance(value, tuple) else value


def _mask(text: str, forms: tuple[str, ...], by_form: bool) -> str:
    for form in forms:
        if form in text:
            text = text.replace(form, secret_values.MASK)
    return _mask_forms(text) if by_form else text


_mask_short = functools.lru_cache(maxsize=4_096)(_mask)


class RedactedOutput:
    """Hands on the output of a running call without the environment's secrets.

    A stream comes in pieces, and a piece may end inside a secret: what may be the beginning of one is held back until
    the next piece of the same stream, or until `end`.

    Parameters
    ----------
    show
        Takes ``(kind, text, data)``, see `nbtools.contract.tool.Context.emit`.
    """

    def __init__(self, show: Callable[[str, str, Any], None]) -> None:
        self._show = show
        self._pending: dict[str, str] = {}
        self._lock = threading.Lock()

    def __call__(self, kind: str, text: str = "", data: Any = None) -> None:
        """Take a piece of output, from any thread."""
        if kind not in {"stdout", "stderr"}:
            # The text of a bundle is one of its texts, and to search a long one twice holds up other calls.
            bundle, is_in_it = redact(data), isinstance(data, Mapping) and data.get("text/plain") is text
            self._show(kind, bundle["text/plain"] if is_in_it else redact(text), bundle)
            return
        with self._lock:
            whole, forms = self._pending.pop(kind, "") + text, secret_values.known_forms()
            whole = _mask(whole, forms, by_form=False)
            cut = len(whole) - secret_values.open_end(whole, forms)
            if whole[cut:]:
                self._pending[kind] = whole[cut:]
            if whole[:cut]:
                self._show(kind, redact(whole[:cut]), data)

    def end(self) -> None:
        """Hand on what was held back."""
        with self._lock:
            for kind, text in self._pending.items():
                self._show(kind, redact(text), None)
            self._pending.clear()


# -- by form

# A secret that a cut goes through is not recognised: so much is searched beyond what is kept.
_MARGIN = 512
_IN_URL = re.compile(rf"(://[^\s/?#@:'\"]*:){secret_values.REAL}[^\s/'\"]+(?=@)")


def conceal(value: Any) -> Any:
    """Return `value` as `redact` does, and without credentials as people and programs write them down.

    These are passwords in URLs, keys of known shapes, private keys, and the values of secret names: ``name=value``,
    ``--name value``, ``"name": "value"``, ``?sig=…``, and the entries of a mapping. It is for what is told of a call,
    not for what the call works with: what looks like a credential may be none.
    """
    return _without_secrets(value, secret_values.known_forms(), by_form=True)


def conceal_start(text: str, most: int, forms: tuple[str, ...] | None = None) -> str:
    """Return what `conceal` makes of a text, cut where it has more than `most` characters; then it says how many.

    Searching a text of megabytes for forms takes seconds, so it is cut first. A caller with many texts passes what
    `known_forms` returned.
    """
    forms = secret_values.known_forms() if forms is None else forms
    concealed: str = _without_secrets(text[: most + _MARGIN], forms, by_form=True)
    if len(text) <= most:
        return concealed
    # Where the margin was cut too, a secret may begin in it whose end was not seen.
    whole = len(concealed) - (_MARGIN if len(text) > most + _MARGIN else 0)
    return f"{concealed[: min(most, whole)]}… ({len(text):,} characters)"


def _mask_forms(text: str) -> str:
    if any(sign in text for sign in secret_values.SHAPE_SIGNS):
        text = secret_values.SHAPE.sub(secret_values.MASK, text)
    if "://" in text:
        text = _IN_URL.sub(rf"\g<1>{secret_values.MASK}", text)
    # The pattern is slow, and most lines of a script name no secret.
    return "".join(map(_mask_named, text.splitlines(keepends=True))) if _may_name(text) else text


def _may_name(text: str) -> bool:
    lowered = text.lower()
    return any(sign in lowered for sign in secret_values.NAME_SIGNS)


def _mask_named(line: str) -> str:
    output, saved = [], 0
    for start, end in secret_values.named_secrets(line) if _may_name(line) else ():
        output += [line[saved:start], secret_values.MASK]
        saved = end
    return "".join([*output, line[saved:]])


# -- environments


def scrub_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without secrets, and without the doors to services that hold some.

    Dropped are names that are secret or may be, values that look like a key or hold a password in a URL, and the
    addresses of agents (ssh, gpg, D-Bus, Docker, display).

    Parameters
    ----------
    environment
        The variables to look through; the mapping is not changed.

    Examples
    --------
    >>> scrub_environment({"PATH": "/bin", "OPENAI_API_KEY": "sk-1", "DATABASE_URL": "postgres://me:pw@host/db"})
    {'PATH': '/bin'}
    """
    return {name: value for name, value in environment.items() if not _is_secret(name, value)}


@functools.lru_cache(maxsize=1_024)  # each kernel is given the same variables
def _is_secret(name: str, value: str) -> bool:
    return (
        name.upper() in secret_values.DOORS
        or secret_values.secrecy(name) > 0
        or any(secret_values.secrets_of(name, value))
    )
