"""The DataFrame that a query answers with: a plain one that shows, below the rows, where they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from nbtools.ground.lazy import has
from nbtools.texts import html_parts
from nbtools.texts.other_words import hint_for
from nbtools.texts.visible import harmless

if TYPE_CHECKING:
    from nbtools.sql import QueryResult

_EXACT = 2.0**53


class QueryFrame(pd.DataFrame):
    """A DataFrame with a footer; whatever is made from it is a plain DataFrame.

    ``attrs`` has ``footer``, ``truncated``, and the places of columns that are whole numbers in the database.
    """

    @classmethod
    def from_result(cls, result: QueryResult) -> Self:
        """Build from a query's result."""
        frame = cls(result.to_pandas())
        whole = {
            at: name for at, (name, kind) in enumerate(zip(frame, result.types, strict=True)) if "INT" in kind.upper()
        }
        frame.attrs.update(footer=result.footer(), truncated=result.truncated, whole=whole)
        return frame

    def _as_in_the_database(self) -> pd.DataFrame:
        """Return a bare frame, in which whole numbers are such: where one is missing, pandas makes them fractions.

        A slice that a view made of this one would look for its own footer and view.
        """
        frame = pd.DataFrame(self)
        whole, names, types = self.attrs.get("whole", {}), list(frame), list(frame.dtypes)
        # Someone may have changed it; and beyond that size it is not exact.
        for at in (at for at, name in whole.items() if names[at : at + 1] == [name] and types[at].kind == "f"):
            column = frame.iloc[:, at]
            if ((column.abs() < _EXACT) & (column % 1 == 0) | column.isna()).all():
                frame.isetitem(at, column.astype("Int64"))
        return frame

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set columns, which are no longer those of the database."""
        super().__setitem__(key, value)
        names = [key] if isinstance(key, str) else key if isinstance(key, list) else []
        whole = self.attrs.get("whole", {})
        self.attrs["whole"] = {at: name for at, name in whole.items() if name not in names}

    def __getattr__(self, name: str) -> Any:
        """Return a column; say of what others have on a result what it is here."""
        try:
            return super().__getattr__(name)
        except AttributeError as exc:
            if (hint := hint_for(name, "QueryResult.")) is None:
                raise
            raise AttributeError(f"{exc}. {hint}") from None

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def _ipython_display_(self) -> None:
        """Show a table to sort, filter and copy from beside the plain forms, where there are rows and a front end."""
        if self.empty or not has("anywidget"):
            raise NotImplementedError  # IPython goes on with the plain forms
        from nbtools.widgets.live.live_widget import has_kernel
        from nbtools.widgets.open_grids import OpenGrids
        from nbtools.widgets.table import TableView

        if not has_kernel():
            raise NotImplementedError
        facts = str(self.attrs.get("footer", "")).partition(" · ")[2]
        view = TableView.from_frame(self._as_in_the_database(), note=facts)
        OpenGrids().add(view)
        view.show()

    def _repr_html_(self) -> str | None:
        """Render the rows and the footer."""
        rows: str | None = self._as_in_the_database()._repr_html_()
        return rows if rows is None else rows + html_parts.footer(str(self.attrs.get("footer", "")))

    def __repr__(self) -> str:
        return harmless(repr(self._as_in_the_database()))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the rows and the footer at an IPython prompt."""
        printer.text(f"{self}\n{self.attrs.get('footer', '')}".rstrip())
