"""``nbtools new-tool NAME`` writes a package that offers a tool: its function, entry point, effects and a test."""

from __future__ import annotations

import argparse
import importlib.resources
import keyword
from pathlib import Path
from typing import Any

from nbtools.cli.command_parser import add_command
from nbtools.errors import FileAlreadyExists, InvalidArguments

# Where each file of the package goes, and what it is made of: texts with {name}, {effects} and {expected} in them.
# It lies below src: in the folder where all this is made, Python would take the project for the package.
_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "src/{name}/__init__.py": "module.py.txt",
    "tests/test_{name}.py": "test.py.txt",
}


def add_commands(commands: Any) -> None:
    """Add ``new-tool`` to the parser's commands."""
    add_command(commands, __file__, "new-tool").set_defaults(perform=_new_tool)


def _new_tool(arguments: argparse.Namespace) -> int:
    name, effects = arguments.name, arguments.effect or ["read_only"]
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidArguments(f"{name!r} is not a Python name.", hint="Use letters, digits and _, such as word_count.")
    if "read_only" in effects and "destructive" in effects:
        raise InvalidArguments("a tool that only reads destroys nothing.", hint="Name one of the two effects.")
    folder = Path(name)
    if folder.exists():
        raise FileAlreadyExists(f"{folder.resolve()} already exists.", hint="Choose another name, or another folder.")
    asks = 'result.error.code == "APPROVAL_DENIED"  # no one is here to approve it'
    words = {
        "name": name,
        "effects": ", ".join(f"{effect}=True" for effect in effects),
        "expected": asks if "destructive" in effects else "result.ok",
    }
    texts = importlib.resources.files("nbtools.cli").joinpath("new_tool_files")
    for goal, source in _FILES.items():
        text = texts.joinpath(source).read_text(encoding="utf-8")
        target = folder / goal.format(**words)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.format(**words), encoding="utf-8")
        print(target)
    print(f"Install it with: pip install -e {folder}; then nbtools call {name} --text ab --times 2")
    return 0
