"""What most commands need, imported once by the process in whose forks they run: see `nbtools.cli.forwarding`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from nbtools import cli
from nbtools.toolbox import STANDARD

for _name in (
    *(
        "nbtools.cli.command_parser",
        "nbtools.cli.data",
        "nbtools.cli.tools",
        "nbtools.contract.signature.docstring",
        "nbtools.assembly.health",
    ),
    *(
        "docstring_parser",
        "pydantic.json_schema",
        "pydantic.main",
        "pydantic.plugin._schema_validator",
        "pydantic.types",
    ),
    *("nbtools.kernels.backends", "nbtools.kernels.service", "zmq"),
    *("nbtools.memory.calls", "nbtools.memory.keeper.client", "nbtools.memory.opening", "nbtools.memory.store"),
    *("duckdb", "nbtools.sql.engines.duckdb.engine", "nbtools.sql.session"),
):
    importlib.import_module(_name)
# Each set of tools imports its functions when it is looked into.
for _toolset in STANDARD:
    list(_toolset)


def main(arguments: Sequence[str]) -> int:
    """Run a command; see `nbtools.cli.main`."""
    return cli.main(arguments)
