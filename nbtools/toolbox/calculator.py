"""Arithmetic over a parsed tree: exact where it can be, bounded everywhere, never `eval`.

The text is parsed by `ast`, and only numbers, the operators ``+ - * / // % **``, and the named constants and functions
below are understood. Literals are read from the text itself as fractions, so ``0.1 + 0.2`` is three tenths; a value
becomes a float only where it has to (roots, logarithms, trigonometry). The size of every power, factorial and product
is estimated before it is computed: ``9**9**9`` is refused at once.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from nbtools.errors import InvalidArguments, LimitExceeded, NbtoolsError, ParseError, did_you_mean
from nbtools.texts.python_tree import parse_python

_Number = int | Fraction | float

# Ten thousand bits are three thousand digits: more than anybody reads, and multiplied in microseconds.
_MAX_BITS = 10_000
_MAX_LENGTH = 1_000
_MAX_DEPTH = 100
# Signs that people type and Python does not know: for times (two), divided by, minus.
_SIGNS = str.maketrans({"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "π": "pi", "τ": "tau"})


def evaluate(expression: str) -> int | float:
    """Return the value of an arithmetic expression.

    Raises
    ------
    ParseError
        The text is not an expression, or uses what is not arithmetic; ``data`` holds the column.
    InvalidArguments
        The expression has no value: a division by zero, a root of a negative number, a wrong number of arguments.
    LimitExceeded
        It is too long, too deep, or its value too large.

    Examples
    --------
    >>> evaluate("0.1 + 0.2"), evaluate("1/3 * 3"), evaluate("2**100")
    (0.3, 1, 1267650600228229401496703205376)
    """
    text = expression.translate(_SIGNS).strip()
    if len(text) > _MAX_LENGTH:
        raise LimitExceeded(f"the expression has {len(text):,} characters; {_MAX_LENGTH:,} are allowed.")
    try:
        tree = parse_python(text, mode="eval")
    except SyntaxError as exc:
        raise _not_arithmetic(f"{exc.msg}", text, (exc.offset or 1) - 1) from None
    except (MemoryError, RecursionError):
        raise _too_deep() from None
    except ValueError as exc:
        raise ParseError(f"this is not an expression: {exc}.") from None
    try:
        return _as_json_number(_Evaluation(text).value(tree.body, 0))
    except ZeroDivisionError:
        raise InvalidArguments("a division by zero has no value.") from None
    except OverflowError:
        raise _too_large() from None
    except NbtoolsError:
        raise
    except (ValueError, TypeError) as exc:
        raise InvalidArguments(f"the expression has no value: {exc}.") from None


class _Evaluation:
    """One walk over a tree; it keeps the text, because the tree has lost the digits of its literals."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr, depth: int) -> _Number:
        if depth > _MAX_DEPTH:
            raise _too_deep()
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.Name():
                return self._constant(node)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand, depth + 1)
            case ast.UnaryOp(op=ast.UAdd()):
                return self.value(node.operand, depth + 1)
            case ast.BinOp():
                return self._binary(node, depth)
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(name, node, depth)
        raise self._strange(node)

    def _binary(self, node: ast.BinOp, depth: int) -> _Number:
        # A sum of many terms leans to the left; walking down that side in a loop is not nesting.
        steps: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            steps.append(left)
            left = left.left
        value = self.value(left, depth + 1)
        for step in reversed(steps):
            function = _OPERATORS.get(type(step.op))
            if function is None:
                raise self._strange(step)
            value = _check_number(function(value, self.value(step.right, depth + 1)))
        return value

    def _literal(self, node: ast.Constant) -> _Number:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self._strange(node)
        if isinstance(node.value, int):
            return _check_number(node.value)
        digits = (ast.get_source_segment(self._text, node) or repr(node.value)).replace("_", "")
        exponent = digits.lower().partition("e")[2]
        if exponent and abs(int(exponent)) > _MAX_BITS // 4:
            raise _too_large()
        return _simplify(_check_number(Fraction(digits)))

    def _constant(self, node: ast.Name) -> _Number:
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        raise self._unknown(node.id, node)

    def _call(self, name: str, node: ast.Call, depth: int) -> _Number:
        if name not in FUNCTIONS:
            raise self._unknown(name, node)
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._strange(node)
        arguments = [self.value(argument, depth + 1) for argument in node.args]
        least, most, function = FUNCTIONS[name]
        if not least <= len(arguments) <= (most or len(arguments)):
            arity = (
                f"exactly {least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            )
            raise InvalidArguments(f"{name} takes {arity} numbers, found {len(arguments)}.")
        return _check_number(function(*arguments))

    def _unknown(self, name: str, node: ast.expr) -> ParseError:
        names = f"Known are {', '.join([*CONSTANTS, *FUNCTIONS])}."
        hint = did_you_mean(name, [*CONSTANTS, *FUNCTIONS], names)
        return _not_arithmetic(f"{name!r} is not known", self._text, node.col_offset, hint)

    def _strange(self, node: ast.expr) -> ParseError:
        hint = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            hint = "A power is written **, as in 2**10."
        source = (ast.get_source_segment(self._text, node) or type(node).__name__)[:60]
        return _not_arithmetic(f"{source!r} is not arithmetic", self._text, node.col_offset, hint)


def _not_arithmetic(problem: str, text: str, offset: int, hint: str | None = None) -> ParseError:
    where = {"line": text.count("\n", 0, offset) + 1, "column": offset + 1}
    return ParseError(
        f"column {where['column']}: {problem}.",
        hint=hint or "Use numbers, + - * / // % **, brackets, and functions such as sqrt(2) or factorial(5).",
        data=where,
    )


def _too_large() -> LimitExceeded:
    return LimitExceeded(
        f"the value is too large: at most {_MAX_BITS:,} bits ({int(_MAX_BITS * math.log10(2)):,} digits) are computed.",
        hint="Use smaller numbers, or logarithms: log(9) * 9 instead of log(9**9).",
    )


def _too_deep() -> LimitExceeded:
    return LimitExceeded(
        f"the expression is nested more than {_MAX_DEPTH} levels deep.", hint="Split it into smaller ones."
    )


def _bits(value: _Number) -> int:
    if isinstance(value, float):
        return 64
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _check_number(value: Any) -> _Number:
    """Return a number that is real, finite and not too large."""
    if isinstance(value, complex):
        raise InvalidArguments("the expression has no real value: it is a root of a negative number.")
    if isinstance(value, float) and not math.isfinite(value):
        raise _too_large()
    if _bits(value) > _MAX_BITS:
        raise _too_large()
    number: _Number = value
    return number


def _simplify(value: _Number) -> _Number:
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def _as_json_number(value: _Number) -> int | float:
    """Return a number that JSON can hold; a fraction becomes the nearest float."""
    value = _simplify(value)
    return float(value) if isinstance(value, Fraction) else value


def _exact(function: Callable[[Any, Any], Any]) -> Callable[[_Number, _Number], _Number]:
    """Make an operator work on fractions wherever both sides are exact."""

    def apply(left: _Number, right: _Number) -> _Number:
        if isinstance(left, float) or isinstance(right, float):
            return _check_number(function(float(left), float(right)))
        return _simplify(function(Fraction(left), Fraction(right)))

    return apply


def _power(left: _Number, right: _Number) -> _Number:
    whole = _simplify(right)
    if isinstance(left, float) or not isinstance(whole, int):
        if left == 0 and right < 0:
            raise ZeroDivisionError
        # Real, not complex: a negative number has no real root.
        return _check_number(pow(float(left), float(right)))
    if abs(whole) * max(1, _bits(left) - 1) > _MAX_BITS and left not in {0, 1, -1}:
        raise _too_large()
    if left in {1, -1}:
        return int(left) if whole % 2 else 1
    return _simplify(Fraction(left) ** whole)


def _root(value: _Number) -> _Number:
    """Return the square root, exactly where it is rational."""
    if value < 0:
        raise InvalidArguments(f"sqrt of {_as_json_number(value)} has no real value.")
    if isinstance(value, float):
        return math.sqrt(value)
    top, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and below * below == value.denominator:
        return _simplify(Fraction(top, below))
    return math.sqrt(value)


def _logarithm(value: _Number, base: _Number = math.e) -> float:
    if value <= 0 or base <= 0 or base == 1:
        raise InvalidArguments("a logarithm needs a positive number, and a positive base other than 1.")
    if base in _LOGARITHMS:
        return _log(value, _LOGARITHMS[base])
    return _log(value, math.log) / _log(base, math.log)


def _log(value: _Number, function: Callable[[float], float]) -> float:
    if isinstance(value, float):
        return function(value)
    # The functions of `math` take whole numbers of any size; a fraction is split, so that it cannot overflow.
    return function(value.numerator) - (function(value.denominator) if value.denominator != 1 else 0.0)


def _whole(name: str, value: _Number, most: int | None = None) -> int:
    number = _simplify(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        raise InvalidArguments(f"{name} needs whole numbers, found {_as_json_number(value)}.")
    if most is not None and abs(number) > most:
        raise LimitExceeded(f"{name} takes numbers up to {most:,}, found {float(number):.3g}.")
    return number


def _of_whole(name: str, function: Callable[..., int]) -> Callable[..., int]:
    def apply(*values: _Number) -> int:
        return function(*(_whole(name, value) for value in values))

    return apply


def _bounded_count(name: str, function: Callable[..., int]) -> Callable[..., int]:
    """Bound a function that counts selections by the size of its result."""

    def apply(total: _Number, *chosen: _Number) -> int:
        n, k = _whole(name, total, 10**6), _whole(name, chosen[0] if chosen else total, 10**6)
        if 0 <= k <= n:
            size = math.lgamma(n + 1) - math.lgamma(n - k + 1) - (math.lgamma(k + 1) if name == "comb" else 0)
            if size / math.log(2) > _MAX_BITS:
                raise _too_large()
        return function(n, k)

    return apply


def _round(value: _Number, digits: _Number = 0) -> _Number:
    places = _whole("round", digits, 1_000)
    if isinstance(value, float):
        return round(value) if places == 0 else round(value, places)
    return _simplify(round(Fraction(value), places)) if places else round(Fraction(value))


def _total(*values: _Number) -> _Number:
    return functools.reduce(_add, values)


def _float_function(function: Callable[..., float]) -> Callable[..., float]:
    def apply(*values: _Number) -> float:
        return function(*map(float, values))

    return apply


_LOGARITHMS: Mapping[_Number, Callable[[float], float]] = {math.e: math.log, 2: math.log2, 10: math.log10}
_add = _exact(operator.add)
_divide = _exact(operator.truediv)
_OPERATORS: Mapping[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: _add,
    ast.Sub: _exact(operator.sub),
    ast.Mult: _exact(operator.mul),
    ast.Div: _divide,
    ast.FloorDiv: _exact(operator.floordiv),
    ast.Mod: _exact(operator.mod),
    ast.Pow: _power,
}

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}
"""Names that stand for numbers."""

_FLOATS = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("exp", "degrees", "radians", "cbrt", "gamma"),
)

FUNCTIONS: Mapping[str, tuple[int, int | None, Callable[..., Any]]] = {
    "abs": (1, 1, abs),
    "min": (1, None, lambda *values: min(values)),
    "max": (1, None, lambda *values: max(values)),
    "sum": (1, None, _total),
    "mean": (1, None, lambda *values: _divide(_total(*values), len(values))),
    "round": (1, 2, _round),
    "floor": (1, 1, math.floor),
    "ceil": (1, 1, math.ceil),
    "trunc": (1, 1, math.trunc),
    "sqrt": (1, 1, _root),
    "pow": (2, 2, _power),
    "log": (1, 2, _logarithm),
    "ln": (1, 1, _logarithm),
    "log2": (1, 1, lambda value: _logarithm(value, 2)),
    "log10": (1, 1, lambda value: _logarithm(value, 10)),
    "factorial": (1, 1, _bounded_count("factorial", lambda n, _: math.factorial(n))),
    "comb": (2, 2, _bounded_count("comb", math.comb)),
    "perm": (2, 2, _bounded_count("perm", math.perm)),
    "gcd": (1, None, _of_whole("gcd", math.gcd)),
    "lcm": (1, None, _of_whole("lcm", math.lcm)),
    "isqrt": (1, 1, _of_whole("isqrt", math.isqrt)),
    "hypot": (1, None, _float_function(math.hypot)),
    "atan2": (2, 2, _float_function(math.atan2)),
    **{name: (1, 1, _float_function(getattr(math, name))) for name in _FLOATS},
}
"""Names that can be called: the least and most arguments (`None` for any number) and what is computed."""
