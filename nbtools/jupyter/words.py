"""The line of a magic: its words, what ``{name}`` stands for, where its result goes.

A line is split like a shell's, with three differences that notebooks need: a word that opens with ``{`` or ``[`` and is
JSON stays whole, a backslash is only special before a space, a quote or another special sign (so that Windows paths
survive), and ``{name}`` is filled from the user's namespace *after* splitting, so that a value with spaces stays one
word. Nothing is evaluated: names, attributes and indexes are looked up, no more.
"""

from __future__ import annotations

import json
import keyword
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any, Self

from nbtools.errors import InvalidArguments, nearest

__all__ = ["Word", "check_name", "fill", "iter_words", "split", "take_target"]

_TARGET = re.compile(r"\s*([^\W\d]\w*)\s*<<(?:\s+|$)")
_FIELD = re.compile(
    r"\{\{(?P<literal>[^{}]*)\}\}"
    r"|\{(?P<field>[^\W\d]\w*(?:\.\w+|\[[^\[\]{}]*\])*)(?P<format>(?:![rsa])?(?::[^{}]*)?)\}"
)
_QUOTES = "'\""


class Word(str):
    """One word of a line.

    Attributes
    ----------
    start
        Where it begins in the line.
    quoted
        Whether the whole word stood in quotes: then it is text, whatever it looks like.
    raw
        Whether it is a piece of JSON that was taken as it stood.
    value
        The object that a word of nothing but ``{name}`` stands for; the word itself when it was not filled.
    """

    __slots__ = ("quoted", "raw", "start", "value")
    start: int
    quoted: bool
    raw: bool
    value: Any

    def __new__(cls, text: str, *, start: int = 0, quoted: bool = False, raw: bool = False, value: Any = ...) -> Self:
        """Make a word; `value` not given is the text."""
        made = super().__new__(cls, text)
        made.start, made.quoted, made.raw = start, quoted, raw
        made.value = text if value is ... else value
        return made


def split(line: str) -> list[Word]:
    """Return the words of a line.

    Raises
    ------
    InvalidArguments
        A quote is never closed.

    Examples
    --------
    >>> split('save goal {"kpi": "churn"} --tags "to do" plan')
    ['save', 'goal', '{"kpi": "churn"}', '--tags', 'to do', 'plan']
    """
    return list(iter_words(line))


def iter_words(line: str, start: int = 0) -> Iterator[Word]:
    """Yield the words one by one, so that a caller may stop where free text begins."""
    place = start
    while True:
        while place < len(line) and line[place].isspace():
            place += 1
        if place >= len(line):
            return
        word, place = _json_word(line, place) or _plain_word(line, place)
        yield word


def _json_word(line: str, start: int) -> tuple[Word, int] | None:
    """Return the JSON object or list that begins here, and where it ends."""
    if line[start] not in "{[":
        return None
    try:
        _, end = json.JSONDecoder().raw_decode(line, start)
    except ValueError:
        return None
    if end < len(line) and not line[end].isspace():
        return None
    return Word(line[start:end], start=start, raw=True), end


def _plain_word(line: str, start: int) -> tuple[Word, int]:
    parts: list[str] = []
    place = start
    quotes = 0
    while place < len(line) and not line[place].isspace():
        sign = line[place]
        if sign in _QUOTES:
            part, place = _quoted(line, place)
            quotes += 1
        elif sign == "{" and (field := _FIELD.match(line, place)):
            part, place = field[0], field.end()  # a format such as {day:%d %b} may hold a space
        elif sign == "\\" and place + 1 < len(line) and (line[place + 1] in _QUOTES or line[place + 1].isspace()):
            part, place = line[place + 1], place + 2
        else:
            part, place = sign, place + 1
        parts.append(part)
    whole = quotes == 1 and len(parts) == 1
    return Word("".join(parts), start=start, quoted=whole), place


def _quoted(line: str, start: int) -> tuple[str, int]:
    """Return the text between two quotes, and the place behind the second."""
    quote, place = line[start], start + 1
    parts: list[str] = []
    while place < len(line):
        sign = line[place]
        if sign == quote:
            return "".join(parts), place + 1
        if quote == '"' and sign == "\\" and line[place + 1 : place + 2] in ('"', "\\"):
            sign, place = line[place + 1], place + 1
        parts.append(sign)
        place += 1
    raise InvalidArguments(
        f"the quote {quote} that opens at column {start + 1} is never closed.",
        hint=f"Close it, or write \\{quote} for the sign itself.",
        tried=f"reading {line.strip()[:60]!r}",
    )


def fill(word: Word, namespace: Mapping[str, Any]) -> Word:
    """Return a word with each ``{name}`` replaced by the user's value; ``{{name}}`` stands for itself.

    Raises
    ------
    InvalidArguments
        There is no such variable, attribute or index.

    Examples
    --------
    >>> fill(Word("data/{year}.csv"), {"year": 2024})
    'data/2024.csv'
    """
    if word.raw or "{" not in word:
        return word
    alone = _FIELD.fullmatch(word)
    if alone and alone["field"] and not alone["format"]:
        value = _looked_up(alone["field"], namespace)
        return Word(_as_text(value), start=word.start, quoted=True, value=value)

    def replace(found: re.Match[str]) -> str:
        if found["field"] is None:
            return "{" + found["literal"] + "}"
        value = _looked_up(found["field"], namespace)
        return f"{{{found['format']}}}".format(value) if found["format"] else _as_text(value)

    return Word(_FIELD.sub(replace, word), start=word.start, quoted=word.quoted)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _looked_up(field: str, namespace: Mapping[str, Any]) -> Any:
    try:
        return string.Formatter().get_field(field, (), namespace)[0]
    except (KeyError, IndexError, AttributeError, TypeError, ValueError) as exc:
        name = re.split(r"[.\[]", field, maxsplit=1)[0]
        missing = name not in namespace
        close = nearest(name, (key for key in namespace if not key.startswith("_"))) if missing else None
        found = f"there is no variable {name!r}" if missing else f"{type(exc).__name__}: {exc}"
        hint = f"Did you mean {{{close}}}? " if close else ""
        raise InvalidArguments(
            f"{{{field}}} cannot be filled in: {found}.",
            hint=f"{hint}Write {{{{{field}}}}} for the text itself.",
        ) from None


def take_target(line: str) -> tuple[str | None, str]:
    """Return the name before ``<<`` at the start of a line, `None` when there is none, and what follows.

    Examples
    --------
    >>> take_target("rows << select 1")
    ('rows', 'select 1')
    """
    found = _TARGET.match(line)
    return (found[1], line[found.end() :]) if found else (None, line)


def check_name(name: str) -> str:
    """Return a name that a variable may have.

    Raises
    ------
    InvalidArguments
        No variable can be called that.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidArguments(
            f"{name!r} is no name for a variable.", hint="Use letters, digits and _, not starting with a digit."
        )
    return str(name)
