"""What a command is called in the face that names it: where an error is made nobody knows who will read it.

A hint names a command as a command line or as a magic, whichever; the face that shows it says its own.
"""

from __future__ import annotations

import re

# The words of a command line, and those of a magic.
_COMMANDS = (
    ("nbtools run --resume", "%workflow resume"),
    *((f"nbtools runs {verb}", f"%workflow {verb}") for verb in ("answer", "cancel", "export", "report", "show")),
    *((f"nbtools {verb}", f"%nbtools {verb}") for verb in ("doctor", "trust")),
    ("nbtools agent", "%agent"),
)
_TO_MAGICS, _TO_COMMANDS = dict(_COMMANDS), {magic: command for command, magic in _COMMANDS}
_EACH_COMMAND, _EACH_MAGIC = (
    re.compile(rf"(?<![\w%])(?:{'|'.join(map(re.escape, names))})(?![\w-])") for names in (_TO_MAGICS, _TO_COMMANDS)
)


def in_magics(text: str) -> str:
    """Return a text that names commands, for a notebook.

    Examples
    --------
    >>> in_magics("It goes on: nbtools run --resume tour-1. See `nbtools doctor`, and nbtools explain WF001.")
    'It goes on: %workflow resume tour-1. See `%nbtools doctor`, and nbtools explain WF001.'
    """
    return _EACH_COMMAND.sub(lambda match: _TO_MAGICS[match[0]], text)


def in_commands(text: str) -> str:
    """Return a text that names magics, for a terminal.

    Examples
    --------
    >>> in_commands("Raise it: %agent resume 1 --max-time N; a cell has %%agent --new")
    'Raise it: nbtools agent resume 1 --max-time N; a cell has %%agent --new'
    """
    return _EACH_MAGIC.sub(lambda match: _TO_COMMANDS[match[0]], text)
