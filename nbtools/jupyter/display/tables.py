"""What SQL can ask, as tables: the frames of the notebook, the tables of a connection, the profile of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.jupyter.display.blocks import Table
from nbtools.visible import brief

__all__ = ["frames_in", "tables_table"]


def frames_in(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables among the variables, those that people named; nothing is imported to look."""
    from nbtools.sql.frames import is_frame

    return {name: value for name, value in list(namespace.items()) if not name.startswith("_") and is_frame(value)}


def tables_table(catalog: Iterable[Mapping[str, Any]], namespace: Mapping[str, Any]) -> Table:
    """Return what can be asked: a row each, with its columns."""
    from nbtools.sql.frames import frame_columns

    rows = [(name, "frame", _columns(frame_columns(value))) for name, value in frames_in(namespace).items()]
    rows += [(entry["name"], entry["kind"], _columns(entry["columns"])) for entry in catalog]
    return Table(
        columns=("table", "kind", "columns"), rows=tuple(rows), title="tables", empty="nothing can be asked yet"
    )


def _columns(columns: Iterable[tuple[str, str]]) -> str:
    return brief(", ".join(f"{name} {kind}" for name, kind in columns), 300)
