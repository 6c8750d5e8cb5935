"""What SQL can ask, as a table: DataFrames, files, kept queries, the tables of a connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbtools.jupyter.display.blocks import Table
from nbtools.texts.visible import brief


def frames_in(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables among the variables, those that people named; nothing is imported to look."""
    from nbtools.sql.frames import is_frame

    return {name: value for name, value in list(namespace.items()) if not name.startswith("_") and is_frame(value)}


def frame_rows(frames: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None, list[tuple[str, str]]]]:
    """Return name, kind, number of rows and columns of each frame; a lazy one cannot tell its rows."""
    from nbtools.sql.frames import frame_columns

    for name, value in frames.items():
        lazy = not hasattr(type(value), "__len__") or hasattr(type(value), "to_arrow_reader")
        yield name, "frame", None if lazy else len(value), frame_columns(value)


def tables_table(tables: Iterable[tuple[str, str, int | None, Any]], title: str) -> Table:
    """Return what can be asked: a row each, with name, kind, number of rows, and columns or a text about them."""
    rows = []
    for name, kind, count, columns in tables:
        about = columns if isinstance(columns, str) else _columns(columns)
        rows.append((name, kind, None if count is None else f"{count:,}", about))
    return Table(columns=("table", "kind", "rows", "columns"), rows=tuple(rows), title=title)


def _columns(columns: Iterable[tuple[str, str]]) -> str:
    return brief(", ".join(f"{name} {kind}" for name, kind in columns), 300)
