"""The line of a magic: its words, what ``{expression}`` stands for, where its result goes.

A line is split like a shell's, with three differences that notebooks need: a word that opens with ``{`` or ``[`` and is
JSON, or a list of Python's, stays whole, a backslash is only special before a space, a quote or another special sign
(so that Windows paths survive), and ``{expression}`` is evaluated in the user's namespace, as IPython does, *after*
splitting, so that a value with spaces stays one word.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import keyword
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Self

from nbtools.errors import InvalidArguments, nearest
from nbtools.texts.python_tree import parse_python

_TARGET = re.compile(r"\s*([^\W\d]\w*)\s*<<(?:\s+|$)")
_LITERAL = re.compile(r"\{\{(?P<text>[^{}]*)\}\}")
_ENVIRONMENT = re.compile(r"\$\{[^\W\d]\w*\}")
_SHAPE = re.compile(r"(?:![rsa])?(?::[^{}]*)?\Z")
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
        Whether it is a piece of JSON, or a list, that was taken as it stood.
    value
        The object that a word that is only one expression or list stands for; the word's text for all others.
    """

    __slots__ = ("quoted", "raw", "start", "value")
    start: int
    quoted: bool
    raw: bool
    value: Any

    def __new__(cls, text: str, *, start: int = 0, quoted: bool = False, raw: bool = False, value: Any = ...) -> Self:
        """Make a word; `value` not given is the text."""
        word = super().__new__(cls, text)
        word.start, word.quoted, word.raw = start, quoted, raw
        word.value = text if value is ... else value
        return word


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


def iter_words(line: str) -> Iterator[Word]:
    """Yield the words one by one, so that a caller may stop where free text begins."""
    index = 0
    while True:
        while index < len(line) and line[index].isspace():
            index += 1
        if index >= len(line):
            return
        word, index = _read_json(line, index) or _read_list(line, index) or _read_word(line, index)
        yield word


def _read_json(line: str, start: int) -> tuple[Word, int] | None:
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


def _read_list(line: str, start: int) -> tuple[Word, int] | None:
    """Return the list that begins here as Python writes it, and where it ends."""
    end = start if line[start] == "[" else len(line)
    while end := line.find("]", end) + 1:
        if end == len(line) or line[end].isspace():
            try:
                value = ast.literal_eval(line[start:end])
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            return Word(line[start:end], start=start, raw=True, value=value), end
    return None


def _read_word(line: str, start: int) -> tuple[Word, int]:
    parts: list[str] = []
    index = start
    quotes = 0
    while index < len(line) and not line[index].isspace():
        sign = line[index]
        if sign in _QUOTES:
            part, index = _read_quoted(line, index)
            quotes += 1
        elif sign == "{" and (match := _LITERAL.match(line, index) or _braces_at(line, index)):
            end = match.end if isinstance(match, _Braces) else match.end()
            part, index = line[index:end], end  # {day:%d %b} and {rows[0]} may hold spaces and quotes
        elif sign == "\\" and index + 1 < len(line) and (line[index + 1] in _QUOTES or line[index + 1].isspace()):
            part, index = line[index + 1], index + 2
        else:
            part, index = sign, index + 1
        parts.append(part)
    whole = quotes == 1 and len(parts) == 1
    return Word("".join(parts), start=start, quoted=whole), index


def _read_quoted(line: str, start: int) -> tuple[str, int]:
    """Return the text between two quotes, and the place behind the second."""
    quote, index = line[start], start + 1
    parts: list[str] = []
    while index < len(line):
        sign = line[index]
        if sign == quote:
            return "".join(parts), index + 1
        if quote == '"' and sign == "\\" and line[index + 1 : index + 2] in ('"', "\\"):
            sign, index = line[index + 1], index + 1
        parts.append(sign)
        index += 1
    word, other = line[:start].rsplit(" ", maxsplit=1)[-1] + line[start:].split(" ", maxsplit=1)[0], "\"'".strip(quote)
    raise InvalidArguments(
        f"the quote {quote} that opens at column {start + 1} is never closed.",
        hint=f"Close it, or write the word in other quotes: {other}{word.strip()}{other}",
        tried=f"reading {line.strip()[:60]!r}",
    )


def fill(word: Word, namespace: Mapping[str, Any]) -> Word:
    """Return a word with each ``{expression}`` replaced by its value; ``{{name}}`` stands for itself.

    An expression names one of the user's variables: ``{2,3}`` inside a text, and JSON, stay as they are, and so does
    ``${NAME}`` in a URL, an environment variable. A word that is only one expression, or one dict, keeps the value
    itself.

    Raises
    ------
    InvalidArguments
        The expression cannot be evaluated, or the braces that open the word hold neither an expression nor JSON.

    Examples
    --------
    >>> fill(Word("data/{year + 1}.csv"), {"year": 2024})
    'data/2025.csv'
    """
    if word.raw or "{" not in word:
        return word
    first = _braces_at(word, 0)
    if first and first.end == len(word) and not first.shape and (first.fills or not word.quoted):
        value = _evaluate(first, namespace)
        return Word(_as_text(value), start=word.start, quoted=True, value=value)
    # `{a: 1}` may be meant as a dict, or as the value of `a` in the format " 1".
    is_clear = first is not None and not (first.shape and isinstance(_parse_expression(word), ast.Dict))
    if word.startswith("{") and not (is_clear or word.quoted or _LITERAL.match(word)):
        hint = "Put the keys of a dict in quotes, or all of it if it is text or a value with a format."
        raise InvalidArguments(f"{word:.60} is neither JSON nor an expression in braces.", hint=hint)
    parts, index = [], 0
    while index < len(word):
        literal, braces = _LITERAL.match(word, index), _braces_at(word, index)
        outside = _ENVIRONMENT.match(word, index) if "://" in word else None
        if outside:
            parts.append(outside[0])
            index = outside.end()
        elif literal:
            parts.append("{" + literal["text"] + "}")
            index = literal.end()
        elif braces and braces.fills:
            parts.append(_as_text(_evaluate(braces, namespace)))
            index = braces.end
        else:
            parts.append(word[index])
            index += 1
    return Word("".join(parts), start=word.start, quoted=word.quoted)


@dataclasses.dataclass(frozen=True)
class _Braces:
    """An expression in braces: its text and tree, the conversion and format behind it, and where the braces end."""

    text: str
    tree: ast.expr
    shape: str
    end: int

    @property
    def fills(self) -> bool:
        """Whether it stands for a value inside of a text too."""
        return not isinstance(self.tree, ast.Dict) and bool(_names(self.tree))


def _braces_at(line: str, start: int) -> _Braces | None:
    """Return the expression in braces that begins at a place of a line, `None` when there is none."""
    if line[start] != "{" or _LITERAL.match(line, start):
        return None
    end = start
    while end := line.find("}", end) + 1:
        inner = line[start + 1 : end - 1]
        if (tree := _parse_expression(inner)) is not None:
            return _Braces(inner, tree, "", end)
        tree = _parse_expression(line[start:end])
        if isinstance(tree, ast.Dict) and all(isinstance(key, ast.Constant | None) for key in tree.keys):
            return _Braces(inner, tree, "", end)
        for cut in range(len(inner)):
            shape = _SHAPE.match(inner, cut)
            if shape and shape[0] and (tree := _parse_expression(inner[:cut])) and _names(tree):
                return _Braces(inner[:cut], tree, shape[0], end)
    return None


def _parse_expression(text: str) -> ast.expr | None:
    with warnings.catch_warnings(action="ignore"):
        try:
            return parse_python(text.strip(), mode="eval").body  # type: ignore[no-any-return]  # of an expression
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _names(tree: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _evaluate(braces: _Braces, namespace: Mapping[str, Any]) -> Any:
    """Return the value of an expression, in its format; a lone name is the user's, not a builtin's."""
    try:
        if isinstance(braces.tree, ast.Name):
            value = namespace[braces.tree.id]
        else:
            code = compile(ast.Expression(braces.tree), "<magic>", "eval")
            value = eval(code, dict(namespace))  # noqa: S307 - the user's own line in the user's own kernel
        return f"{{{braces.shape}}}".format(value) if braces.shape else value
    except Exception as exc:
        names = _names(braces.tree)
        name = str(exc.name) if isinstance(exc, NameError) else names[0] if isinstance(exc, KeyError) else ""
        missing = name in names and name not in namespace
        close = nearest(name, (key for key in namespace if not key.startswith("_"))) if missing else None
        what = f"there is no variable {name!r}" if missing else f"{type(exc).__name__}: {exc}"
        hint = f"Did you mean {{{close}}}? " if close else ""
        raise InvalidArguments(
            f"{{{braces.text}{braces.shape}}} cannot be filled in: {what}.",
            hint=f"{hint}Write {{{{{braces.text}{braces.shape}}}}} for the text itself.",
        ) from exc


def take_target(line: str) -> tuple[str | None, str]:
    """Return the name before ``<<`` at the start of a line, `None` when there is none, and what follows.

    Examples
    --------
    >>> take_target("rows << select 1")
    ('rows', 'select 1')
    """
    match = _TARGET.match(line)
    return (match[1], line[match.end() :]) if match else (None, line)


def check_name(name: str) -> str:
    """Return a name that a variable may have.

    Raises
    ------
    InvalidArguments
        No variable can be called that.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidArguments(
            f"{name!r} is not a name for a variable.", hint="Use letters, digits and _, not starting with a digit."
        )
    return str(name)
