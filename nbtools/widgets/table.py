"""`TableView`: the grid alone, any number of rows, of which the browser has those in sight."""

from __future__ import annotations

from typing import Any

from nbtools.sql import open_frame
from nbtools.widgets.grid.grid_widget import GridWidget
from nbtools.widgets.live.sources import module_text, style_text


class TableView(GridWidget):
    """A table to look at, sort, filter and copy from; see `GridWidget` for its parameters."""

    _esm = module_text("table")
    _css = style_text("grid")

    @classmethod
    def from_frame(cls, frame: Any, *, title: str = "", note: str = "") -> TableView:
        """Show a DataFrame of pandas or polars, an Arrow table, or a result of a query."""
        return cls(open_frame(frame), title=title, note=note)
