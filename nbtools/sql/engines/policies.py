"""The policy for an engine: what its catalog defines decides beside the reviewed lists."""

from __future__ import annotations

import os
from collections.abc import Iterable

from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.protocol import SqlEngine
from nbtools.sql.verdict.duckdb.macros import Definitions
from nbtools.sql.verdict.policy import Policy


def defines_functions(engine: SqlEngine) -> bool:
    """Tell whether the catalog of an engine has a say in verdicts."""
    return isinstance(engine, DuckDBEngine) or hasattr(engine, "row_functions")


def policy_for(engine: SqlEngine, roots: Iterable[str | os.PathLike[str]]) -> Policy:
    """Return the policy for texts that an engine is to run, with files below `roots`; it asks the catalog.

    An engine elsewhere would read files of its machine: its texts may name none.
    """
    roots = roots if engine.takes_frames else ()
    if isinstance(engine, DuckDBEngine):
        return Policy(engine.dialect, roots, definitions=Definitions(*engine.definitions()))
    # Servers that call functions as columns tell which: see `PostgresEngine.row_functions`.
    row_functions = getattr(engine, "row_functions", None)
    return Policy(engine.dialect, roots, row_functions=row_functions() if row_functions else ())
