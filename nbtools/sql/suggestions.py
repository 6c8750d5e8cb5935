"""Suggestions: the table that was meant by a name that nothing has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbtools.errors import nearest
from nbtools.sql.engines.protocol import CatalogTable
from nbtools.sql.frames import is_frame

__all__ = ["columns_of", "names_behind", "names_of_tables", "suggest"]


def names_behind(lookup: Callable[[str], Any] | None) -> list[str]:
    """Return the names of the frames that a lookup finds.

    Only a mapping's own ``get``, such as that of a notebook's namespace, can tell; others give none.
    """
    known = getattr(lookup, "__self__", None)
    if not isinstance(known, Mapping):
        return []
    # A copy: the notebook may go on while we look.
    found = ((name, value) for name, value in dict(known).items() if isinstance(name, str))
    return [name for name, value in found if not name.startswith("_") and is_frame(value)]


def names_of_tables(tables: Iterable[CatalogTable]) -> list[str]:
    """Return what a query may call the tables of a connection."""
    return [table.name if table.schema is None else f"{table.schema}.{table.name}" for table in tables]


def columns_of(tables: Iterable[CatalogTable], named: Iterable[str]) -> list[str]:
    """Return the columns of those tables that a query names."""
    asked = {name.casefold() for name in named}
    return [column.name for table in tables if table.name.casefold() in asked for column in table.columns]


def suggest(names: Iterable[str], known: Iterable[str]) -> str | None:
    """Return a hint for the first name that is not known and resembles one that is; `None` when there is none.

    Examples
    --------
    >>> suggested(["city", "peple"], ["people", "City"])
    "Did you mean 'people'?"
    """
    whole = list(known)
    folded = {name.casefold() for name in whole}
    # A schema may be left out.
    folded |= {name.rpartition(".")[2] for name in folded}
    for name in names:
        close = None if name.casefold() in folded else nearest(name, whole)
        if close is not None:
            return f"Did you mean {close!r}?"
    return None
