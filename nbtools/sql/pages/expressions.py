"""Expressions: SQL of a column, a comparison or a step of cleaning, in the words of pandas and of polars.

How a language writes each thing stands in ``words.toml``; a kind of node that has no rule here has no words.
"""

from __future__ import annotations

import functools
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from nbtools.ground.lazy import exp
from nbtools.sql.pages.conditions import zone_of
from nbtools.sql.results.texts import kind_of


class _NoWords(Exception):
    """Raised for what a language has no plain words for."""


_SIGNS = {"EQ": "==", "NEQ": "!=", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_NUMBERS = {**dict.fromkeys(("BIGINT", "INT", "INTEGER"), "whole"), **dict.fromkeys(("DOUBLE", "FLOAT"), "real")}
_MOMENTS = {"DATE": "date", "TIMESTAMP": "time"}
_ALIKE = re.compile(r"\w*int\w*|date", re.IGNORECASE)  # what DuckDB, pandas and polars write alike
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d))?)?")


def literal(node: Any) -> Any:
    """Return the value of a literal.

    Raises
    ------
    _NoWords
        It is something else.
    """
    if isinstance(node, exp.Neg):
        return -literal(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.name
        return float(node.name) if re.search(r"[.eE]", node.name) else int(node.name)
    raise _NoWords


class Words(NamedTuple):
    """How a language writes things, as ``words.toml`` has it, and the types of the columns that are known."""

    forms: Mapping[str, Any]
    types: Mapping[str, str] = types.MappingProxyType({})

    def code(self, name: str, *parts: Any) -> str:
        """Return the code of a thing that is made of these parts."""
        text: str = self.forms[name].format(*parts)
        return text

    def moments(self, value: str, forms: Sequence[str], kind: str) -> str:
        """Return a text as a date or a time, by the first form that fits."""
        parsed = (self.code(kind, value, form) for form in forms)
        return functools.reduce(lambda one, other: self.code("or", one, other), parsed)


@functools.cache
def words_of(language: str) -> Words:
    """Return the words of pandas or polars."""
    text = resources.files("nbtools.sql.pages").joinpath("words.toml").read_text(encoding="utf-8")
    return Words(tomllib.loads(text)[language])


def spelled_expression(node: Any, words: Words) -> str:
    """Return the code of an expression of SQL.

    Raises
    ------
    _NoWords
        The language has none for it.
    """
    code = _RULES.get(type(node).__name__)
    if code is None:
        raise _NoWords
    return code(node, words)


def type_of(node: Any, words: Words) -> str:
    """Return the type of an expression; an empty text where it is not known."""
    if isinstance(node, exp.Cast):
        return str(node.to.sql("duckdb"))
    if isinstance(node, exp.Column):
        return words.types.get(node.name, "")
    return type_of(node.this, words) if isinstance(node, exp.Paren | exp.Coalesce) else "VARCHAR"


def _value(node: Any, kind: str, words: Words) -> str:
    """Return the code of a literal that is compared with a value of a type; SQL itself takes one for another."""
    if isinstance(node, exp.Cast) and node.to.sql("duckdb") in _MOMENTS:
        node = node.this
    value = literal(node)
    if kind_of(kind) != "time":
        if kind and isinstance(value, str) != (kind_of(kind) == "text"):
            raise _NoWords
        return repr(value)
    match = _ISO.fullmatch(value) if isinstance(value, str) and zone_of(kind, "UTC") is None else None
    if match is None or (match[4] and kind.lower() == "date"):
        raise _NoWords
    return words.code("moment", value, ", ".join(str(int(part)) for part in match.groups() if part))


def _cast(node: Any, words: Words) -> str:
    kind, inner = node.to.sql("duckdb"), node.this
    is_strict = isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast)
    if kind in _MOMENTS and isinstance(inner, exp.Anonymous) and inner.name.lower() == "try_strptime":
        value, forms = inner.expressions
        listed = [literal(form) for form in forms.expressions]
        if any("%f" in form or "%z" in form for form in listed):  # which each language takes in its own way
            raise _NoWords
        return words.moments(spelled_expression(value, words), listed, _MOMENTS[kind])
    value, before = spelled_expression(inner, words), type_of(inner, words)
    is_alike = kind_of(before) == "text" or _ALIKE.fullmatch(before)
    if kind in {"TEXT", "VARCHAR"} and is_alike:
        return words.code("as_text", value)
    # Each rounds a fraction to a whole number in its own way, and pandas makes one of what is missing.
    name = "" if is_strict else _NUMBERS.get(kind, "")
    if not name or (name == "whole" and not is_alike):
        raise _NoWords
    return words.code(name, value)


def _filled(node: Any, words: Words) -> str:
    if kind_of(type_of(node.this, words)) == "time":  # polars would make texts of all
        raise _NoWords
    return words.code("filled", spelled_expression(node.this, words), literal(*node.expressions))


def _without(node: Any, words: Words) -> str:
    """Return a CASE that makes some words missing, or all texts but those of a form; any other has no words."""
    branch = node.args["ifs"][0]
    chosen, rest = branch.this, node.args.get("default")
    if isinstance(chosen, exp.RegexpFullMatch) and rest is None and chosen.this == branch.args["true"]:
        return words.code("fitting", spelled_expression(chosen.this, words), literal(chosen.expression))
    is_ours = len(node.args["ifs"]) == 1 and isinstance(branch.args["true"], exp.Null) and isinstance(chosen, exp.In)
    if not is_ours or rest is None or chosen.this != rest:
        raise _NoWords
    return words.code("without", spelled_expression(rest, words), [literal(each) for each in chosen.expressions])


def _compared(node: Any, words: Words) -> str:
    left, right = node.this, node.expression
    # A text that is cast to text is itself.
    if isinstance(left, exp.Cast) and left.to.is_type("text", "varchar") and isinstance(right, exp.Literal):
        if not right.is_string:
            raise _NoWords
        left = left.this if kind_of(type_of(left.this, words)) == "text" else left
    sign = _SIGNS[type(node).__name__]
    name = "unequal" if sign == "!=" else "compared"
    return words.code(name, spelled_expression(left, words), sign, _value(right, type_of(left, words), words))


def _opposite(node: Any, words: Words) -> str:
    inner = node.this
    value = spelled_expression(inner.this, words)
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return words.code("there", value)
    if not isinstance(inner, exp.In | exp.Contains | exp.StartsWith):
        raise _NoWords
    return words.code("opposite", value, spelled_expression(inner, words))


def _one_of(node: Any, words: Words) -> str:
    if not node.expressions:
        raise _NoWords
    of = type_of(node.this, words)
    values, code = [_value(each, of, words) for each in node.expressions], spelled_expression(node.this, words)
    if kind_of(of) == "time":
        return f"({' | '.join(words.code('compared', code, '==', value) for value in values)})"
    return words.code("one_of", code, f"[{', '.join(values)}]")


def _missing(node: Any, words: Words) -> str:
    if not isinstance(node.expression, exp.Null):
        raise _NoWords
    return words.code("missing", spelled_expression(node.this, words))


def _joined(sign: str) -> Callable[[Any, Words], str]:
    def code(node: Any, words: Words) -> str:
        return f"({spelled_expression(node.this, words)} {sign} {spelled_expression(node.expression, words)})"

    return code


def _call(name: str, *others: str) -> Callable[[Any, Words], str]:
    """Return the rule of a function of a value and of literals, which the node has under these names alone."""

    def code(node: Any, words: Words) -> str:
        if any(value for key, value in node.args.items() if key not in {"this", *others}):
            raise _NoWords
        return words.code(name, spelled_expression(node.this, words), *(literal(node.args[key]) for key in others))

    return code


_RULES: dict[str, Callable[[Any, Words], str]] = {
    "Column": lambda node, words: words.code("column", node.name),
    "Paren": lambda node, words: spelled_expression(node.this, words),
    "Trim": _call("trim"),
    "Lower": _call("lower"),
    "Upper": _call("upper"),
    "Replace": _call("replace", "expression", "replacement"),
    "Cast": _cast,
    "TryCast": _cast,
    "Case": _without,
    "Nullif": lambda node, words: words.code(
        "without", spelled_expression(node.this, words), [literal(node.expression)]
    ),
    "Coalesce": _filled,
    **dict.fromkeys(_SIGNS, _compared),
    "In": _one_of,
    "Contains": _call("contains", "expression"),
    "StartsWith": _call("starts", "expression"),
    "Not": _opposite,
    "Is": _missing,
    "And": _joined("&"),
    "Or": _joined("|"),
}
