"""What SQL can query, as a table: DataFrames, files, saved queries, the tables of a connection."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbtools.jupyter.display.blocks import Table
from nbtools.sql.frames import frame_columns, is_frame
from nbtools.texts.visible import brief, counted


def frames_in(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables among the variables that people named, without importing anything."""
    return {name: value for name, value in list(namespace.items()) if not name.startswith("_") and is_frame(value)}


def frame_rows(frames: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None, list[tuple[str, str]]]]:
    """Return name, kind, number of rows and columns of each frame; the number is `None` for a lazy one."""
    for name, value in frames.items():
        # To count the rows of a lazy frame would run its whole query.
        lazy = not hasattr(type(value), "__len__") or hasattr(type(value), "to_arrow_reader")
        yield name, "frame", None if lazy else len(value), frame_columns(value)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TablesThere(Table):
    """What can be queried: a table as text, a tree in HTML.

    Attributes
    ----------
    inside
        For each row, how many rows it has, and the names and types of its columns, or a text about them.
    """

    inside: tuple[tuple[int | None, Any], ...] = ()

    def to_html(self) -> str:
        """Return a tree of locations, their tables and columns."""
        locations: dict[str, list[str]] = {}
        for (name, kind, *_), (count, columns) in zip(self.rows, self.inside, strict=True):
            rows = f" <span style='opacity:.7'>{counted(count, 'row')}</span>" if count is not None else ""
            items = columns if isinstance(columns, str) else [f"{each} {type_of}" for each, type_of in columns]
            text = html.escape(items) if isinstance(items, str) else "<br>".join(map(html.escape, items))
            head = f"<summary>{html.escape(name)}{rows}</summary>"
            leaf = f"<details style='margin-left:1.2em'>{head}<div style='margin-left:1.4em'>{text}</div></details>"
            locations.setdefault(_location(name, kind), []).append(leaf)
        branches = (
            f"<details open><summary><b>{html.escape(where)}</b> ({len(leaves)})</summary>{''.join(leaves)}</details>"
            for where, leaves in locations.items()
        )
        return f"<div><b>{html.escape(self.title)}</b>{''.join(branches)}</div>"


def _location(name: str, kind: str) -> str:
    """Return where something is: a file's folder or a table's connection."""
    if kind == "file":
        folder = os.path.dirname(name.strip("'"))  # noqa: PTH120 - a text of SQL
        return f"files in {folder}" if folder else "files here"
    connection, dot, _ = name.rpartition(".")
    plural = {"frame": "DataFrames", "saved query": "saved queries", "record": "records of nbtools"}
    thing, of, url = kind.partition(" of ")
    return plural.get(kind) or f"{thing}s{of}{url}" + (f" of {connection}" if dot else "")


def tables_table(tables: Iterable[tuple[str, str, int | None, Any]], title: str) -> Table:
    """Return what can be queried, one row each: name, kind, number of rows, and its columns, or a text about them."""
    rows, inside = [], []
    for name, kind, count, columns in tables:
        about = columns if isinstance(columns, str) else _columns(columns)
        rows.append((name, kind, None if count is None else f"{count:,}", about))
        inside.append((count, columns if isinstance(columns, str) else tuple(columns)))
    names = ("table", "kind", "rows", "columns")
    return TablesThere(columns=names, rows=tuple(rows), title=title, inside=tuple(inside))


def _columns(columns: Iterable[tuple[str, str]]) -> str:
    return brief(", ".join(f"{name} {kind}" for name, kind in columns), 300)
