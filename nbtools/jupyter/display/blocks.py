"""What people see: tables, cards and records, each in HTML for notebooks and in plain text for everything else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nbtools.texts import html_parts
from nbtools.texts.visible import aligned, counted, harmless, visible


def moment(when: datetime | float | None) -> str:
    """Return a moment in local time to the second; an empty text for `None`."""
    if when is None:
        return ""
    if not isinstance(when, datetime):
        when = datetime.fromtimestamp(when, UTC)
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """Return a duration as people read it."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def size(number: float | None) -> str:
    """Return a size in bytes as people read it."""
    if number is None:
        return ""
    for unit in ("B", "KiB", "MiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Block:
    """Something to show: `to_text` and `to_html` are its two forms."""

    def to_text(self) -> str:
        """Return the plain form."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return the HTML form."""
        raise NotImplementedError

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the plain form at an IPython prompt."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Render for a notebook."""
        return self.to_html()

    def __str__(self) -> str:
        # Here and not in each block, because a block may hold what a model or a file wrote.
        return harmless(self.to_text())

    def __repr__(self) -> str:
        return str(self)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Table(Block):
    """Rows of text under column names.

    Attributes
    ----------
    columns
        Names of the columns.
    rows
        For each row, one value a column.
    title
        Line above the table; empty for none.
    footer
        Line below the table; empty for none.
    empty
        Text shown when there are no rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    footer: str = ""
    empty: str = "nothing here"

    def to_text(self) -> str:
        """Return columns aligned with spaces, empty for `None`; the widest shrinks to fit the terminal."""
        lines = aligned((self.columns, *self.rows))
        body = lines if self.rows else [self.empty]
        return "\n".join(line for line in (self.title, *body, self.footer) if line)

    def to_html(self) -> str:
        """Return a plain table; text too long for a cell is shown when the pointer rests on it."""
        return html_parts.table(self.columns, self.rows, title=self.title, below=self.footer, empty=self.empty)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Card(Block):
    """A title and facts under it.

    Attributes
    ----------
    title
        The heading.
    facts
        Label to value.
    about
        A text between them; empty for none.
    parts
        More blocks below.
    """

    title: str
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    about: str = ""
    parts: tuple[Block, ...] = ()

    def to_text(self) -> str:
        """Return the title, the text and the facts, labels aligned."""
        width = max(map(len, self.facts), default=0)
        facts = [f"  {label.ljust(width)}  {_fact(value)}" for label, value in self.facts.items()]
        return "\n".join(part for part in (self.title, self.about, *facts, *(p.to_text() for p in self.parts)) if part)

    def to_html(self) -> str:
        """Return a card with the facts as a two-column table."""
        facts = {label: _fact(value) for label, value in self.facts.items()}
        return html_parts.card(self.title, self.about, facts, [part.to_html() for part in self.parts])


def _fact(value: Any) -> str:
    return visible(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value), lines=True)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Listing(Block):
    """A text whose spaces and lines matter."""

    text: str

    def to_text(self) -> str:
        """Return the text."""
        return self.text

    def to_html(self) -> str:
        """Return the text in a fixed font."""
        return html_parts.preformatted(self.text)


class Records(list[Any]):
    """Records as a list that shows itself as a table.

    Parameters
    ----------
    items
        The records.
    table
        Makes the table of a number of them.
    most
        The most that the table shows.
    """

    def __init__(self, items: Iterable[Any], table: Callable[[Sequence[Any]], Table], *, most: int = 50) -> None:
        super().__init__(items)
        self._table = table
        self._most = most

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        # A slice is shown in the same way, which a bare list would not be.
        return Records(item, self._table, most=self._most) if isinstance(index, slice) else item

    def to_list(self) -> list[Any]:
        """Copy to a list of dicts, or of the records themselves where they are not classes."""
        return [item.to_dict() if hasattr(item, "to_dict") else item for item in self]

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.to_list())

    def as_table(self) -> Table:
        """Return the table that is shown: the first records and the number of the others."""
        table = self._table(self[: self._most])
        more = len(self) - self._most
        return table if more <= 0 else dataclasses.replace(table, footer=f"{table.footer} · {more:,} more".strip(" ·"))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the plain form at an IPython prompt."""
        printer.text(str(self.as_table()))

    def _repr_html_(self) -> str:
        """Render for a notebook."""
        return self.as_table().to_html()

    def __repr__(self) -> str:
        return f"Records({counted(len(self), 'item')})"


def outline(value: Any) -> str:
    """Return kind and size of a value."""
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    if isinstance(shape, tuple) and len(shape) == 2:
        return f"{kind}, {counted(shape[0], 'row')} x {counted(shape[1], 'column')}"
    return f"{kind}, {counted(len(value), 'item')}" if isinstance(value, list | dict) else kind
