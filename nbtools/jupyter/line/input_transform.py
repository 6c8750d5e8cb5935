"""Rewriting: ``name << %magic …``, ``%tool NAME?`` and ``%%magic --help``, which Python and IPython read otherwise.

The target moves behind the magic's name, ``%magic name << …``, where every magic of ours understands it. A cell that
is Python as it stands is left alone: there such a line is inside a string.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from nbtools.texts.python_tree import parse_python

_TARGET = re.compile(r"(?P<indent>\s*)(?P<name>[^\W\d]\w*)\s*<<\s*(?P<marks>%%?)(?P<magic>\w+)(?P<rest>.*)", re.DOTALL)
_HELP = re.compile(r"\s*%%(?P<magic>\w+)\s+(?:.*\s)?(?:--help|-h)\s*")
_QUESTION = re.compile(r"(?P<start>\s*%{1,2}(?P<magic>\w+)\s+[\w.-]+)\s*\?{1,2}\s*")


def rewrite(lines: list[str], magics: Collection[str]) -> list[str]:
    r"""Return the lines of a cell with our forms put into IPython's.

    Parameters
    ----------
    lines
        The cell, each line with its end.
    magics
        Names of our magics; the lines of others stay as they are.

    Examples
    --------
    >>> rewrite(["goal << %memory get goal\n"], {"memory"})
    ['%memory goal << get goal\n']
    """
    if lines and lines[0].lstrip().startswith("%%"):
        match = _HELP.fullmatch(lines[0])
        if match and match["magic"] in magics and not "".join(lines[1:]):
            return [lines[0], "\n"]  # IPython refuses a cell magic without a body before it asks the magic
        return [_rewritten(lines[0], magics), *lines[1:]]  # the body belongs to the cell magic
    changed = [_rewritten(line, magics) for line in lines]
    first = _TARGET.match(lines[0]) if lines else None
    if first and first["marks"] == "%%":
        return [changed[0], *lines[1:]]
    return lines if changed == lines or _is_python("".join(lines)) else changed


def _rewritten(line: str, magics: Collection[str]) -> str:
    match = _TARGET.fullmatch(line)
    if match and match["magic"] in magics:
        return f"{match['indent']}{match['marks']}{match['magic']} {match['name']} <<{match['rest']}"
    question_mark = _QUESTION.fullmatch(line)
    if question_mark and question_mark["magic"] in magics:
        return f"{question_mark['start']} --help\n"
    return line


def _is_python(text: str) -> bool:
    try:
        parse_python(text)
    except (SyntaxError, ValueError):
        return False
    return True
