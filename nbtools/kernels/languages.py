"""The languages that nbtools can run: ``languages.toml``, which kernels, tools, workflows, magics and the gateway read.

A language has one name, other spellings that people and models write, the programs that run it, and what it makes of
``${…}`` in its own code. Installed Jupyter kernels are beside the table, as ``kernel:NAME``.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nbtools.errors import LanguageUnavailable, nearest

Family: TypeAlias = Literal["shell", "node", "powershell"]
"""How a program gets its code: languages of one family share a driver."""

KERNEL = "kernel:"
"""What stands before the name of an installed Jupyter kernel."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Language:
    """A language.

    Attributes
    ----------
    name
        Its one name.
    aliases
        Other spellings of the name.
    family
        How a script is handed to its program; `None` for Python, which has its own kernels.
    programs
        The programs that run it, the best first.
    title
        What a person calls it.
    remedy
        How to get it; empty where nothing can be said.
    kernels
        What kernelspecs call it, beside its name.
    braces
        What ``${name.field}`` is in its code: ``"text"``, which may stand in quotes alone; ``"error"``, which it
        refuses; ``"syntax"``, which it reads by itself.
    """

    name: str
    aliases: tuple[str, ...] = ()
    family: Family | None = None
    programs: tuple[str, ...] = ()
    title: str
    remedy: str = ""
    kernels: tuple[str, ...] = ()
    braces: Literal["text", "error", "syntax"] = "syntax"


_TABLE = tomllib.loads(Path(__file__).with_name("languages.toml").read_text(encoding="ascii"))


def _of_entry(name: str, entry: dict[str, Any]) -> Language:
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return Language(name=name, **(entry | lists))


LANGUAGES: dict[str, Language] = {name: _of_entry(name, entry) for name, entry in _TABLE.items()}
"""Each language by its name."""

_BY_SPELLING = {word: one for one in LANGUAGES.values() for word in (one.name, *one.aliases)}
_CHOICES = f"Use {', '.join(LANGUAGES)}, or {KERNEL}NAME for an installed Jupyter kernel."


def spellings() -> tuple[str, ...]:
    """Return every word that names a language of the table."""
    return tuple(_BY_SPELLING)


def language_of(name: str) -> str:
    """Return the one name of a language that may have several (``"python3"``, ``" Python"``).

    A word that is not in the table stays as it is, in small letters.

    Raises
    ------
    LanguageUnavailable
        It is blank.
    """
    if not name.strip():
        raise LanguageUnavailable(f"{name!r} is not a language.", hint=_CHOICES)
    name = name.strip()
    if name.startswith(KERNEL):
        return name
    language = _BY_SPELLING.get(name.lower())
    return name.lower() if language is None else language.name


def language_named(name: str) -> Language | None:
    """Return the language that a word names; `None` for an installed Jupyter kernel.

    Raises
    ------
    LanguageUnavailable
        There is no such language.
    """
    name = language_of(name)
    if name.startswith(KERNEL) and name != KERNEL:
        return None
    if name not in LANGUAGES:
        close = nearest(name, spellings())
        raise LanguageUnavailable(
            f"{name!r} is not a language that nbtools can run.",
            hint=f"Did you mean {close}? {_CHOICES}" if close else _CHOICES,
        )
    return LANGUAGES[name]
