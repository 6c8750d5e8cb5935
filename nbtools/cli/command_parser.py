"""The parser of the command line, which offers the nearest name for a mistake."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from nbtools.errors import nearest
from nbtools.ground.option_values import MISSING, dashed_file, declarations, declare, subcommands
from nbtools.texts.other_words import hint_for

_UNKNOWN = "unrecognized arguments: "


class CommandParser(argparse.ArgumentParser):
    """A parser that offers the nearest name for a mistake."""

    color = False  # later versions of argparse write escapes
    words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Print the usage in a line, and what is wrong; leave with code 2."""
        usage = " ".join(self.format_usage().split())
        print(f"{usage}\n{self.prog}: {_with_nearest(self, message)}", file=sys.stderr)
        raise SystemExit(2)

    def knows(self, word: str) -> bool:
        """Tell whether a word is one of the options, with or without ``=value``."""
        return word.partition("=")[0] in self._option_string_actions

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complain of what is unknown here: left to the top parser, a command's usage and options would be lost."""
        self.words = args or sys.argv[1:]
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_UNKNOWN + " ".join(unknown))
        return options, unknown


def add_command(commands: Any, module: str, name: str, **types: Callable[[str], Any]) -> Any:
    """Add a command, and its verbs, as the file beside the file of a module declares it; return its parser.

    Parameters
    ----------
    commands
        The parser's commands.
    module
        The file of the module, see `nbtools.ground.option_values`.
    name
        The command.
    **types
        Types of the module's own, by their names.
    """
    tables = declarations(module)
    table, shared = tables[name], tables.get("shared", {})
    parser = commands.add_parser(name, help=table["about"], epilog=table.get("epilog"))
    declare(parser, table, shared, types)
    inner = dict(subcommands(table))
    if inner:
        metavar = table.get("verbs", "COMMAND")
        verbs = parser.add_subparsers(dest="verb", metavar=metavar, required=table.get("required", False))
        for verb, entry in inner.items():
            declare(verbs.add_parser(verb, help=entry["about"], description=entry["about"]), entry, shared, types)
    return parser


def add_options(parser: argparse.ArgumentParser, module: str, name: str, **types: Callable[[str], Any]) -> None:
    """Add the options of a command to a parser that reads what stands behind its file or tool; none has a default."""
    declare(parser, {key: entry for key, entry in declarations(module)[name].items() if key[0] == "-"}, {}, types)


def read_values(
    parser: CommandParser, arguments: argparse.Namespace, about: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options, and the values by name, that stand in ``rest`` of the arguments.

    Parameters
    ----------
    parser
        Knows the options that may stand there; a value whose name is that of one has no option.
    arguments
        What was read before it.
    about
        What each value is for, by its name.
    """
    for name, text in about.items():
        flags = [flag for flag in dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}")) if not parser.knows(flag)]
        if flags:
            words = text.replace("%", "%%")
            parser.add_argument(*flags, dest=f"value {name}", default=argparse.SUPPRESS, metavar="VALUE", help=words)
    options = {**vars(arguments), **vars(parser.parse_args(arguments.rest))}
    values = {name: options.pop(f"value {name}") for name in about if f"value {name}" in options}
    return options, values


def _with_nearest(parser: CommandParser, message: str) -> str:
    wrong = message.partition("invalid choice: ")[2].partition(" ")[0].strip("'")
    actions = parser._actions  # noqa: SLF001 - argparse has no public list of them
    candidates = [str(choice) for action in actions for choice in action.choices or ()]
    if message.startswith(_UNKNOWN):
        wrong = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
        candidates = [option for action in actions for option in action.option_strings]
    hints = (hint_for(wrong, owner) for owner in (f"{parser.prog} ", "nbtools ", ""))
    if wrong and (hint := next(filter(None, hints), None)):
        return f"{message.partition(' (choose')[0]}\n→ {hint}"
    close = nearest(wrong, candidates) if wrong else None
    if close:
        return f"{message}\ndid you mean {close!r}?"
    if file := dashed_file(parser.words):
        return f"{message}\n→ {file}"
    # A value that is wrong has said what would be right.
    return f"{message}\n{parser.prog} --help says more" if message.startswith((_UNKNOWN, MISSING)) else message
