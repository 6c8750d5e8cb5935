"""What most commands need, imported once by the process in whose forks they run: see `nbtools.cli.forwarding`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from nbtools import cli
from nbtools.texts.parsing import word_lists
from nbtools.toolbox import STANDARD

for _name in word_lists(__file__, "ahead.words")["modules"]:
    importlib.import_module(_name)
# Each set of tools imports its functions when it is looked into.
for _toolset in STANDARD:
    list(_toolset)


def main(arguments: Sequence[str]) -> int:
    """Run a command; see `nbtools.cli.main`."""
    return cli.main(arguments)
