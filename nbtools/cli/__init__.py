"""The command line: ``nbtools demo | tools | call | check-tools | memory | sql | mcp | doctor | kernelspec``.

Every command parses, asks a workbench, and prints. Exit codes: 0 all is well, 1 the tool or query failed, 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from nbtools.errors import ConfigInvalid, NbtoolsError, nearest

__all__ = ["main"]

_OK, _FAILED, _USAGE = 0, 1, 2


class _Parser(argparse.ArgumentParser):
    """A parser that offers the nearest name for a mistake."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {_with_nearest(self, message)}", file=sys.stderr)
        raise SystemExit(_USAGE)


def _with_nearest(parser: argparse.ArgumentParser, message: str) -> str:
    wrong = message.partition("invalid choice: ")[2].partition(" ")[0].strip("'")
    actions = parser._actions  # noqa: SLF001 - argparse has no public list of them
    known = [str(choice) for action in actions for choice in action.choices or ()]
    if message.startswith("unrecognized arguments: "):
        wrong = message.removeprefix("unrecognized arguments: ").split()[0]
        known = list(_options(parser))
    close = nearest(wrong, known) if wrong else None
    return f"{message}\ndid you mean {close!r}?" if close else message


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its commands: the top one complains of what a command did not take."""
    for action in parser._actions:  # noqa: SLF001 - see above
        yield from action.option_strings
        for below in action.choices.values() if isinstance(action.choices, Mapping) else ():
            yield from _options(below)


def _parser() -> argparse.ArgumentParser:
    from nbtools.cli import demo, records, serve, shelf

    parser = _Parser(prog="nbtools", description="A notebook with a memory, clean kernels, safe SQL and tools.")
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for module in (demo, shelf, records, serve):
        module.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.version:
        from importlib.metadata import version

        print(f"nbtools-kit {version('nbtools-kit')}")
        return _OK
    if arguments.command is None:
        parser.print_help()
        return _USAGE
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: Any = arguments.perform(arguments)
    except NbtoolsError as exc:
        verb = getattr(arguments, "verb", None)
        exc.tried = exc.tried or " ".join(filter(None, ("nbtools", arguments.command, verb)))
        print("\n".join(exc.three_lines()), file=sys.stderr)
        return _USAGE if isinstance(exc, ConfigInvalid) else _FAILED
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader left (`nbtools tools | head`): that is no failure, and Python must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _OK
    return int(code or _OK)
