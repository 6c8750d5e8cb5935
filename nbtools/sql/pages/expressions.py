"""Expressions: SQL of a column, a comparison or a step of cleaning, in the words of pandas and of polars.

Each language is a table from kinds of nodes to code, with the same rows; what stands in none of them has no words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any


class _NoWords(Exception):
    """Raised for what a language has no plain words for."""


_SIGNS = {"EQ": "==", "NEQ": "!=", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_WHOLE, _REAL = {"BIGINT", "INT", "INTEGER"}, {"DOUBLE", "FLOAT"}
_MOMENT = {"DATE", "TIMESTAMP"}


def literal(node: Any) -> Any:
    """Return the value of a literal.

    Raises
    ------
    _NoWords
        It is something else.
    """
    from sqlglot import exp

    if isinstance(node, exp.Neg):
        return -literal(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.name
        return float(node.name) if re.search(r"[.eE]", node.name) else int(node.name)
    raise _NoWords


class Pandas:
    """The words of pandas.

    Parameters
    ----------
    frame
        The name of the frame.
    """

    def __init__(self, frame: str = "df") -> None:
        self._frame = frame

    def column(self, name: str) -> str:
        """Return a column."""
        return f"{self._frame}[{name!r}]"

    def text(self, value: str, method: str) -> str:
        """Return a text that a method changes: trim, lower or upper."""
        return f"{value}.str.strip(' ')" if method == "trim" else f"{value}.str.{method}()"

    def replaced(self, value: str, old: str, new: str) -> str:
        """Return a text with one piece in place of another."""
        return f"{value}.str.replace({old!r}, {new!r}, regex=False)"

    def number(self, value: str, *, whole: bool) -> str:
        """Return a text as a number, missing where it is not one."""
        nullable = f'pd.to_numeric({value}, errors="coerce", dtype_backend="numpy_nullable")'
        return f'{nullable}.astype("Int64")' if whole else f'pd.to_numeric({value}, errors="coerce").astype("float64")'

    def moments(self, value: str, forms: Sequence[str], *, timed: bool) -> str:
        """Return a text as a date, by the first form that fits."""
        first, *rest = (f'pd.to_datetime({value}, format={form!r}, errors="coerce")' for form in forms or ("ISO8601",))
        parsed = first + "".join(f".fillna({each})" for each in rest)
        return parsed if timed or forms else f"{parsed}.dt.normalize()"

    def as_text(self, value: str) -> str:
        """Return a value as text."""
        return f'{value}.astype("string")'

    def without(self, value: str, words: Sequence[Any]) -> str:
        """Return a value, missing where it is one of some words."""
        return f"{value}.mask({self.one_of(value, words)})"

    def filled(self, value: str, filling: Any) -> str:
        """Return a value with another one where it is missing."""
        return f"{value}.fillna({filling!r})"

    def missing(self, value: str, *, there: bool) -> str:
        """Return whether a value is missing, or there."""
        return f"{value}.{'notna' if there else 'isna'}()"

    def compared(self, value: str, sign: str, other: Any) -> str:
        """Return a comparison; in SQL nothing is unequal to what is missing either."""
        text = f"({value} {sign} {other!r})"
        return f"({text} & {value}.notna())" if sign == "!=" else text

    def one_of(self, value: str, values: Sequence[Any]) -> str:
        """Return whether a value is one of some."""
        return f"{value}.isin({list(values)!r})"

    def within(self, value: str, piece: str, *, begins: bool) -> str:
        """Return whether a text has a piece in it, or begins with it."""
        call = f"startswith({piece!r}" if begins else f"contains({piece!r}, regex=False"
        return f"{value}.str.{call}, na=False)"

    def opposite(self, condition: str, value: str) -> str:
        """Return the opposite of a condition on a value; what is missing fulfils neither."""
        return f"(~{condition} & {value}.notna())"


class Polars:
    """The words of polars; see `Pandas`."""

    def column(self, name: str) -> str:
        """Return a column."""
        return f"pl.col({name!r})"

    def text(self, value: str, method: str) -> str:
        """Return a text that a method changes: trim, lower or upper."""
        return f"{value}.str.strip_chars(' ')" if method == "trim" else f"{value}.str.to_{method}case()"

    def replaced(self, value: str, old: str, new: str) -> str:
        """Return a text with one piece in place of another."""
        return f"{value}.str.replace_all({old!r}, {new!r}, literal=True)"

    def number(self, value: str, *, whole: bool) -> str:
        """Return a text as a number, missing where it is not one."""
        return f"{value}.cast(pl.{'Int64' if whole else 'Float64'}, strict=False)"

    def moments(self, value: str, forms: Sequence[str], *, timed: bool) -> str:
        """Return a text as a date, by the first form that fits."""
        kind = "Datetime" if timed else "Date"
        usual = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d") if timed else ("%Y-%m-%d",)
        each = [f"{value}.str.strptime(pl.{kind}, {form!r}, strict=False)" for form in forms or usual]
        return each[0] if len(each) == 1 else f"pl.coalesce({', '.join(each)})"

    def as_text(self, value: str) -> str:
        """Return a value as text."""
        return f"{value}.cast(pl.String)"

    def without(self, value: str, words: Sequence[Any]) -> str:
        """Return a value, missing where it is one of some words."""
        return f"pl.when(~{self.one_of(value, words)}).then({value})"

    def filled(self, value: str, filling: Any) -> str:
        """Return a value with another one where it is missing."""
        return f"{value}.fill_null(pl.lit({filling!r}))"

    def missing(self, value: str, *, there: bool) -> str:
        """Return whether a value is missing, or there."""
        return f"{value}.{'is_not_null' if there else 'is_null'}()"

    def compared(self, value: str, sign: str, other: Any) -> str:
        """Return a comparison."""
        return f"({value} {sign} {other!r})"

    def one_of(self, value: str, values: Sequence[Any]) -> str:
        """Return whether a value is one of some."""
        return f"{value}.is_in({list(values)!r})"

    def within(self, value: str, piece: str, *, begins: bool) -> str:
        """Return whether a text has a piece in it, or begins with it."""
        call = f"starts_with({piece!r})" if begins else f"contains({piece!r}, literal=True)"
        return f"{value}.str.{call}"

    def opposite(self, condition: str, value: str) -> str:
        """Return the opposite of a condition on a value; what is missing fulfils neither."""
        return f"~{condition}"


Words = Pandas | Polars


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


def _cast(node: Any, words: Words) -> str:
    from sqlglot import exp

    kind, inner = node.to.sql("duckdb"), node.this
    is_strict = isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast)
    if kind in _MOMENT and isinstance(inner, exp.Anonymous) and inner.name.lower() == "try_strptime":
        value, forms = inner.expressions
        listed = [literal(form) for form in forms.expressions]
        return words.moments(spelled_expression(value, words), listed, timed=kind == "TIMESTAMP")
    value = spelled_expression(inner, words)
    if kind in {"TEXT", "VARCHAR"}:
        return words.as_text(value)
    if kind in _MOMENT and not is_strict:
        return words.moments(value, [], timed=kind == "TIMESTAMP")
    if is_strict or kind not in _WHOLE | _REAL:
        raise _NoWords
    return words.number(value, whole=kind in _WHOLE)


def _without(node: Any, words: Words) -> str:
    """Return a CASE that makes some words missing; any other has no words."""
    from sqlglot import exp

    branch = node.args["ifs"][0]
    chosen, rest = branch.this, node.args.get("default")
    is_ours = len(node.args["ifs"]) == 1 and isinstance(branch.args["true"], exp.Null) and isinstance(chosen, exp.In)
    if not is_ours or rest is None or chosen.this != rest:
        raise _NoWords
    return words.without(spelled_expression(rest, words), [literal(each) for each in chosen.expressions])


def _compared(node: Any, words: Words) -> str:
    from sqlglot import exp

    left = node.this
    # A text that is cast to text is itself.
    if isinstance(left, exp.Cast) and left.to.is_type("text", "varchar") and isinstance(node.expression, exp.Literal):
        if not node.expression.is_string:
            raise _NoWords
        left = left.this
    return words.compared(spelled_expression(left, words), _SIGNS[type(node).__name__], literal(node.expression))


def _one_of(node: Any, words: Words) -> str:
    if not node.expressions:
        raise _NoWords
    return words.one_of(spelled_expression(node.this, words), [literal(each) for each in node.expressions])


def _within(node: Any, words: Words) -> str:
    begins = type(node).__name__ == "StartsWith"
    return words.within(spelled_expression(node.this, words), str(literal(node.expression)), begins=begins)


def _opposite(node: Any, words: Words) -> str:
    from sqlglot import exp

    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return words.missing(spelled_expression(inner.this, words), there=True)
    if not isinstance(inner, exp.In | exp.Contains | exp.StartsWith):
        raise _NoWords
    value = spelled_expression(inner.this, words)
    return words.opposite(spelled_expression(inner, words), value)


def _missing(node: Any, words: Words) -> str:
    from sqlglot import exp

    if not isinstance(node.expression, exp.Null):
        raise _NoWords
    return words.missing(spelled_expression(node.this, words), there=False)


def _joined(sign: str) -> Callable[[Any, Words], str]:
    def code(node: Any, words: Words) -> str:
        return f"({spelled_expression(node.this, words)} {sign} {spelled_expression(node.expression, words)})"

    return code


def _text(node: Any, words: Words) -> str:
    if node.args.get("expression") is not None or node.args.get("position"):
        raise _NoWords
    return words.text(spelled_expression(node.this, words), type(node).__name__.lower())


_RULES: dict[str, Callable[[Any, Words], str]] = {
    "Column": lambda node, words: words.column(node.name),
    "Paren": lambda node, words: spelled_expression(node.this, words),
    **dict.fromkeys(("Trim", "Lower", "Upper"), _text),
    "Replace": lambda node, words: words.replaced(
        spelled_expression(node.this, words), literal(node.expression), literal(node.args["replacement"])
    ),
    **dict.fromkeys(("Cast", "TryCast"), _cast),
    "Case": _without,
    "Nullif": lambda node, words: words.without(spelled_expression(node.this, words), [literal(node.expression)]),
    "Coalesce": lambda node, words: words.filled(spelled_expression(node.this, words), literal(*node.expressions)),
    **dict.fromkeys(_SIGNS, _compared),
    "In": _one_of,
    **dict.fromkeys(("Contains", "StartsWith"), _within),
    "Not": _opposite,
    "Is": _missing,
    "And": _joined("&"),
    "Or": _joined("|"),
}
