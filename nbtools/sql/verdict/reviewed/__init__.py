"""Names that were reviewed, as data: one file for each dialect, for DuckDB's syntax tree and for sqlglot's.

A value is a text of names with blanks between; where several groups share a table, a group's key says why its names
are there.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["names", "read", "reasons"]


@functools.cache
def read(name: str) -> dict[str, Any]:
    """Return the tables of a file, by its name without the ending; all callers share them and change nothing."""
    # importlib.resources costs ten times what reading the file does.
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def names(*groups: str) -> frozenset[str]:
    """Return the names of all groups.

    Examples
    --------
    >>> sorted(names("a b", "c"))
    ['a', 'b', 'c']
    """
    return frozenset(name for group in groups for name in group.split())


def reasons(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the reason for each name, where the groups have their reason for a key.

    Examples
    --------
    >>> reasons({"writes a file": "copy export"})
    {'copy': 'writes a file', 'export': 'writes a file'}
    """
    return {name: reason for reason, group in groups.items() for name in group.split()}
