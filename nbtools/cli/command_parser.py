"""The parser of the command line, which offers the nearest name for a mistake."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from nbtools.errors import nearest

_UNKNOWN = "unrecognized arguments: "


class CommandParser(argparse.ArgumentParser):
    """A parser that offers the nearest name for a mistake."""

    color = False  # later versions of argparse write escapes

    def error(self, message: str) -> NoReturn:
        """Print the usage in a line, and what is wrong; leave with code 2."""
        usage = " ".join(self.format_usage().split())
        print(f"{usage}\n{self.prog}: {_with_nearest(self, message)}", file=sys.stderr)
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complain of what is unknown here: left to the top parser, a command's usage and options would be lost."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_UNKNOWN + " ".join(unknown))
        return options, unknown


def _with_nearest(parser: argparse.ArgumentParser, message: str) -> str:
    wrong = message.partition("invalid choice: ")[2].partition(" ")[0].strip("'")
    actions = parser._actions  # noqa: SLF001 - argparse has no public list of them
    candidates = [str(choice) for action in actions for choice in action.choices or ()]
    if message.startswith(_UNKNOWN):
        wrong = message.removeprefix(_UNKNOWN).split()[0]
        candidates = [option for action in actions for option in action.option_strings]
    close = nearest(wrong, candidates) if wrong else None
    return f"{message}\ndid you mean {close!r}?" if close else message
