"""Expressions in texts: ``${nodes.profile.data.rows | len}``.

An expression is a path and filters, and nothing is ever evaluated::

    expression = "${" path { "|" filter } "}"
    path       = name { "." name | "[" number "]" | "[" text "]" }
    filter     = name [ "(" literal { "," literal } ")" ]

Names are letters, digits, ``_`` and ``-``; literals are JSON, texts in single quotes too. ``$${`` stands for ``${``
itself. A text that is one expression and nothing else has the value of the expression; in any other text the values
are written out, texts as they are and all else as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nbtools.contract.wire.json_values import find_nested, replace_nested
from nbtools.errors import InvalidArguments
from nbtools.workflow.document import Place

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", re.DOTALL)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "[]": [], "{}": {}}
_MISSING: Any = object()
ESCAPE = "Write $${ for a literal ${."
"""What every finding about ``${`` says at its end."""
OURS = re.compile(r"(?<!\$)\$\{\s*(?:(?:inputs|nodes|env)\s*(?:\.\s*\w|\[)[^}\n]*\}?|item\s*(?:[.\[|][^}\n]*)?\})")
"""What is meant as an expression where none is filled in; any other ``${`` there belongs to someone else."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterCall:
    """A filter with its arguments, and where its name stands in the text."""

    name: str
    args: tuple[Any, ...] = ()
    start: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """A path with filters.

    Attributes
    ----------
    root
        The first name: ``inputs``, ``nodes``, ``item`` or ``env``.
    steps
        The names and indices behind it.
    filters
        What is done with the value, in this order.
    start
        Where the expression begins in the text, at ``${``.
    end
        Where it ends in the text, behind ``}``.
    places
        Where the root and each step begin in the text.
    """

    root: str
    steps: tuple[str | int, ...] = ()
    filters: tuple[FilterCall, ...] = ()
    start: int = 0
    end: int = 0
    places: tuple[int, ...] = ()

    @property
    def node(self) -> str | None:
        """Id of the node whose result is read; `None` where it is none."""
        return str(self.steps[0]) if self.root == "nodes" and self.steps else None

    @property
    def has_default(self) -> bool:
        """Whether there is a value where the path leads nowhere."""
        return any(call.name == "default" for call in self.filters)

    @property
    def path(self) -> str:
        """The path as it is written: ``nodes.profile.data[0]``."""
        return self.root + "".join(
            f".{step}" if isinstance(step, str) and _NAME.fullmatch(step) else f"[{json.dumps(step)}]"
            for step in self.steps
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpressionError:
    """What is wrong with an expression, and where in the text."""

    message: str
    start: int
    width: int = 1
    hint: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Template:
    """A text with its expressions, and what is wrong with those that are none."""

    parts: tuple[str | Expression, ...] = ()
    errors: tuple[ExpressionError, ...] = ()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions in their order."""
        return tuple(part for part in self.parts if isinstance(part, Expression))

    @property
    def single(self) -> Expression | None:
        """The expression that is the whole text; `None` where there is more, or none."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], Expression) else None


class _Broken(Exception):
    """Carries what is wrong up to the loop over the expressions of a text."""

    def __init__(self, message: str, start: int, width: int = 1, hint: str = "") -> None:
        super().__init__(message)
        self.error = ExpressionError(message=message, start=start, width=width, hint=hint)


@functools.lru_cache(maxsize=4_096)
def parse(text: str) -> Template:
    """Return a text with its expressions; mistakes are listed, and the others are read nevertheless.

    Examples
    --------
    >>> [part.path for part in parse("${nodes.a.data[0]} and ${inputs.b}").expressions]
    ['nodes.a.data[0]', 'inputs.b']
    """
    parts: list[str | Expression] = []
    errors: list[ExpressionError] = []
    at, literal = 0, ""
    while (start := text.find("${", at)) >= 0:
        if start and text[start - 1] == "$":
            literal, at = literal + text[at : start - 1] + "${", start + 2
            continue
        literal += text[at:start]
        try:
            expression = _Reader(text, start).expression()
            parts += [literal, expression] if literal else [expression]
            literal, at = "", expression.end
        # One mistake must not hide the next: a file is checked in one pass, and people mend it in one.
        except _Broken as exc:
            errors.append(exc.error)
            # Behind the sign alone, since what follows may hold the next expression, or the end of this one.
            at = start + 2
    literal += text[at:]
    return Template(parts=(*parts, literal) if literal or not parts else tuple(parts), errors=tuple(errors))


class _Reader:
    """Reads one expression of a text, from its ``${`` on."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._at = start + 2

    def expression(self) -> Expression:
        self._skip()
        if self._text.startswith("}", self._at):
            raise _Broken("The expression is empty.", self._start, self._at + 1 - self._start)
        places = [self._at]
        root, steps = self._name("a name"), []
        while True:
            self._skip()
            if self._take("."):
                self._skip()
                places.append(self._at)
                steps.append(self._step())
            elif self._take("["):
                self._skip()
                places.append(self._at)
                steps.append(self._index())
            else:
                break
        filters = []
        while self._take("|"):
            filters.append(self._filter())
        self._close()
        return Expression(
            root=root,
            steps=tuple(steps),
            filters=tuple(filters),
            start=self._start,
            end=self._at,
            places=tuple(places),
        )

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _take(self, char: str) -> bool:
        is_there = self._text.startswith(char, self._at)
        self._at += len(char) * is_there
        return is_there

    def _close(self) -> None:
        self._skip()
        if self._take("}"):
            return
        rest = self._text[self._at : self._at + 1]
        if not rest:
            raise _Broken("The expression has no end.", self._start, 2, f"Close it with }}; {ESCAPE}")
        hint = "An expression is a path and filters, as in ${nodes.a.data.rows | len}; it computes nothing."
        # People who try to compute are told so, rather than which character was expected.
        if rest == "-" or _NAME.match(rest) or rest in "+*/=<>!&?(:":
            raise _Broken(f"{rest!r} has no meaning here.", self._at, 1, hint)
        raise _Broken(f"Here }} or | is expected, not {rest!r}.", self._at, 1, hint)

    def _name(self, what: str) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at : self._at + 1]
            hint = "Close the expression with }." if not rest else "Paths look like nodes.ID.data.rows or inputs.NAME."
            raise _Broken(f"Here {what} is expected, not {rest or 'the end'!r}.", self._at, 1, hint)
        self._at = match.end()
        return match[0]

    def _step(self) -> str | int:
        digits = re.compile(r"\d+").match(self._text, self._at)
        if digits is None:
            return self._name("a name")
        raise _Broken("Put an index in brackets.", self._at, len(digits[0]), f"Write [{digits[0]}].")

    def _index(self) -> str | int:
        start = self._at
        value = self._literal()
        self._skip()
        if not self._take("]"):
            raise _Broken("The bracket is not closed.", self._at, 1, "Write [0] or ['name'].")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise _Broken("An index is a whole number or a text.", start, self._at - 1 - start)
        return value

    def _filter(self) -> FilterCall:
        self._skip()
        start = self._at
        name = self._name("a filter")
        args: list[Any] = []
        self._skip()
        if self._take("("):
            self._skip()
            while not self._take(")"):
                if args and not self._take(","):
                    raise _Broken("Here , or ) is expected.", self._at)
                self._skip()
                args.append(self._literal())
                self._skip()
        self._skip()
        return FilterCall(name=name, args=tuple(args), start=start)

    def _literal(self) -> Any:
        text = self._text
        if match := _TEXT.match(text, self._at):
            self._at = match.end()
            inner = match[0][1:-1]
            if match[0][0] == "'":
                inner = inner.replace("\\'", "'").replace('"', '\\"')
            try:
                # Not strict, since a text may go over several lines of YAML.
                return json.loads(f'"{inner}"', strict=False)
            except ValueError:
                raise _Broken("The text is not a JSON text.", match.start(), len(match[0])) from None
        if match := _NUMBER.match(text, self._at):
            self._at = match.end()
            return json.loads(match[0]) if len(match[0]) < 400 and not re.match(r"-?0\d", match[0]) else match[0]
        for word, value in _WORDS.items():
            if self._take(word):
                return value
        hint = "Texts have quotes: default('none'); else numbers, true, false, null, [] and {}."
        raise _Broken("Here a literal is expected.", self._at, 1, hint)


def walk(value: Any) -> Iterator[tuple[Place, str]]:
    """Yield every text in a value that holds ``${``, with the keys and indices that lead to it."""
    return find_nested(value, _has_expression)


def _has_expression(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def fill(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return a value with the expressions in its texts replaced.

    Parameters
    ----------
    value
        Texts, and lists and mappings of them; all else stays as it is.
    scope
        What the first names of paths stand for: ``inputs``, ``nodes``, ``env`` and, for each item, ``item``.

    Raises
    ------
    InvalidArguments
        A path leads nowhere and the expression has no default, a filter does not fit its value, or rows are meant of
        which only the first are here.

    Examples
    --------
    >>> fill({"n": "${inputs.rows | len}", "text": "of ${inputs.name}"}, {"inputs": {"rows": [1, 2], "name": "x"}})
    {'n': 2, 'text': 'of x'}
    """
    return replace_nested(value, lambda one: _filled(parse(one), scope) if _has_expression(one) else one)


def truth(value: Any, scope: Mapping[str, Any]) -> bool:
    """Return whether the value of ``when`` lets a node run: not false, null, 0, or empty.

    Raises
    ------
    InvalidArguments
        As `fill` does.
    """
    return value is None or value == "always" or bool(fill(value, scope))


def _filled(template: Template, scope: Mapping[str, Any]) -> Any:
    if template.errors:
        raise InvalidArguments(template.errors[0].message, hint=template.errors[0].hint)
    if template.single is not None:
        return _value(template.single, scope)
    return "".join(part if isinstance(part, str) else _text(_value(part, scope)) for part in template.parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(expression: Expression, scope: Mapping[str, Any]) -> Any:
    value: Any
    value = scope.get(expression.root, _MISSING)
    for at, step in enumerate(expression.steps):
        # A result in the log has the first rows of a large table. To count or to loop over these would be silently
        # wrong.
        if step == "rows":
            _refuse_cut(value, expression, expression.steps[at + 1 :])
        value = _inner(value, step)
    for call in expression.filters:
        # Before the others and not in their table: it is the only one that may see that there is no value.
        if call.name == "default":
            value = call.args[0] if value is _MISSING or value is None else value
            continue
        if value is _MISSING:
            break
        try:
            value = FILTERS[call.name](value, *call.args)
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidArguments(f"The filter {call.name} does not fit {expression.path}: {exc}.") from None
    if value is _MISSING:
        hint = "Check the path, or give a value for this case: | default('…')."
        raise InvalidArguments(f"{expression.path} leads nowhere.", hint=hint)
    return value


def _refuse_cut(table: Any, expression: Expression, further: Sequence[str | int]) -> None:
    """Refuse the rows of a table of which only the first are here, unless one of these is meant."""
    if not (isinstance(table, Mapping) and "parquet" in table and table.get("row_count", 0) > len(table["rows"])):
        return
    here, count = len(table["rows"]), table["row_count"]
    if not (further and isinstance(further[0], int) and 0 <= further[0] < here):
        raise InvalidArguments(
            f"{expression.path} has the first {here:,} of {count:,} rows.",
            hint="Code gets the table as a DataFrame with all rows, and sql_query reads its file, which is in parquet.",
        )


def _inner(value: Any, step: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(step, _MISSING)
    # A text is not a list of characters here: an index into one is always a mistake.
    if isinstance(step, int) and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value[step] if -len(value) <= step < len(value) else _MISSING
    return _MISSING


def _join(value: Any, separator: str = ", ") -> str:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not a list")
    return separator.join(map(_text, value))


FILTERS: Mapping[str, Callable[..., Any]] = {
    "json": lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent),
    "default": lambda value, other: other if value is None else value,
    "len": len,
    "join": _join,
}
"""The filters: ``json(indent)``, ``default(value)``, ``len``, ``join(separator)``."""
