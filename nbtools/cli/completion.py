"""``nbtools completion SHELL`` prints the script with which a shell completes commands, options, tools and files."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from nbtools.assembly.workbench import Workbench

_ABOUT = "print the script that completes commands, options, tools and files in a shell"
_HOW = """\
bash: eval "$(nbtools completion bash)" in ~/.bashrc;
zsh: the same in ~/.zshrc, behind compinit;
fish: nbtools completion fish > ~/.config/fish/completions/nbtools.fish"""


def add_commands(commands: Any) -> None:
    """Add ``completion`` to the parser's commands."""
    parser = commands.add_parser(
        "completion", help=_ABOUT, epilog=_HOW, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    parser.set_defaults(perform=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    shtab = importlib.import_module("shtab")
    with Workbench() as wb:
        tools = wb.registry.names
    # The parser reads nothing any more: what completion offers may be set on it.
    for action in _actions(arguments.whole_parser):
        if action.metavar == "TOOL":
            action.choices = tools
        elif action.metavar in {"FILE", "FILE.yaml", "DIR"}:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]  # shtab's
    print(shtab.complete(arguments.whole_parser, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield action
        for inner in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _actions(inner)
