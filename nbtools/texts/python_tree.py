"""Python as text: its tree, and JSON values as text that Python reads back as the same values."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

_TRIES = 5
_LONGEST_LINE = 90


def parse_python(text: str, *, filename: str = "<unknown>", mode: str = "exec", flags: int = 0) -> Any:
    """Return the tree of a Python text, as ``ast.parse`` does.

    Parameters
    ----------
    text
        The text.
    filename
        What tracebacks call it.
    mode
        ``"exec"`` for a module, ``"eval"`` for an expression.
    flags
        More flags of `compile`.

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError
        The text cannot be read.
    """
    for tries in range(_TRIES):
        try:
            return compile(text, filename, mode, flags=ast.PyCF_ONLY_AST | flags, dont_inherit=True)
        except SystemError:
            # Python 3.11 counts the depth of all parsers together: where another one ran meanwhile, in another thread
            # or in what the garbage collector ended, the count is wrong and the tree is lost. The next one is whole.
            if tries == _TRIES - 1:
                raise
    raise AssertionError


def python_literal(value: Any, depth: int = 0) -> str:
    """Return JSON values as Python: what is long over several lines, texts of several lines as they are.

    Parameters
    ----------
    value
        Mappings and lists of texts, numbers, truth values and `None`. NaN and infinity, which Python shows by names
        that it does not know, are calls.
    depth
        How deep the value is within others, of which each indents it by four blanks.

    Examples
    --------
    >>> python_literal({"a": [1, None]})
    "{'a': [1, None]}"
    >>> python_literal(float("inf"))
    "float('inf')"
    """
    text = repr(value)
    pad = "    " * depth
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if _is_literal(text) and len(text) <= _LONGEST_LINE and "\\n" not in text:
        return text
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping) and value:
        inner = "".join(f"{pad}    {name!r}: {python_literal(one, depth + 1)},\n" for name, one in value.items())
        return f"{{\n{inner}{pad}}}"
    if isinstance(value, list) and value:
        return f"[\n{''.join(f'{pad}    {python_literal(one, depth + 1)},{chr(10)}' for one in value)}{pad}]"
    return text


def _is_literal(text: str) -> bool:
    """Tell whether Python reads a text, which it wrote itself, without knowing any name."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def _text(value: str) -> str:
    """Return a text as Python, over its own lines where it has several."""
    escaped = value.replace("\\", "\\\\")
    literal = '"""' + (escaped.replace('"', '\\"') if '"""' in escaped or escaped.endswith('"') else escaped) + '"""'
    return literal if "\n" in value and _is_literal(literal) and ast.literal_eval(literal) == value else repr(value)
