"""``nbtools completion SHELL`` prints the script with which a shell completes commands, options, tools and files."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import add_command


def add_commands(commands: Any) -> None:
    """Add ``completion`` to the parser's commands."""
    parser = add_command(commands, __file__, "completion")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
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
