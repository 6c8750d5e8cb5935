"""The tree of a Python text."""

from __future__ import annotations

import ast
from typing import Any

_TRIES = 5


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
