"""`QueryResult`: what came back from a query, in every form that people and models ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from nbtools.ground.lazy import duckdb, has
from nbtools.sql.results.compact import compact
from nbtools.sql.results.rows import ArrowRows, ResultRows, fold_name, unique_names
from nbtools.sql.results.texts import as_read, cell_text, kind_of
from nbtools.texts import html_parts
from nbtools.texts.other_words import KnowsOtherWords
from nbtools.texts.visible import counted, harmless

_SHOWN_ROWS = 20


class FileNote(NamedTuple):
    """What people are to know of how a file was read.

    Attributes
    ----------
    file
        Its name, as the query writes it.
    text
        What was done.
    words
        The column of which words were read as missing, which ``nullstr = ''`` turns off; empty for all other notes.
    """

    file: str
    text: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryResult(KnowsOtherWords):
    """The rows of a query and the facts about it.

    Attributes
    ----------
    columns
        Names of the columns, in order. A name may occur twice.
    types
        The engine's own name of the type of each column.
    row_count
        Rows that came back, after any cap.
    truncated
        Whether a cap cut the result.
    cut_by
        Which one: ``"rows"`` or ``"bytes"``; `None` for neither.
    duration_s
        Seconds from the call to the last row.
    engine
        What ran it, such as ``"DuckDB 2.0.0"``.
    sources
        What was read: frames, files, tables, as phrases.
    notes
        What is to be told of how files were read.
    sql
        The text that ran, with placeholders; it differs from what was written when it was transpiled.
    zone
        The time zone that all moments of its frames have; `None` where they have several or none.
    isolated
        Whether it ran in the worker process.
    connection
        The database that was asked, by its name or its URL without a password; `None` for frames and files.

    Examples
    --------
    >>> from nbtools.sql import SqlSession
    >>> with SqlSession() as session:
    ...     session.query("select 6 * 7 as answer").to_rows()
    [[42]]
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    row_count: int
    truncated: bool
    duration_s: float
    engine: str
    sources: tuple[str, ...]
    rows: ResultRows = dataclasses.field(repr=False)
    cut_by: Literal["rows", "bytes"] | None = None
    notes: tuple[FileNote, ...] = ()
    sql: str = dataclasses.field(default="", repr=False)
    zone: str | None = None
    isolated: bool = False
    connection: str | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.row_count

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that were read, or patterns of them."""
        return tuple(source.partition(" ")[2] for source in self.sources if source.startswith("file "))

    def to_pandas(self) -> Any:
        """Copy to a pandas DataFrame, with the types that DuckDB's own ``df()`` gives."""
        return self.rows.to_pandas()

    def to_arrow(self) -> Any:
        """Copy to a pyarrow Table.

        Raises
        ------
        MissingExtra
            pyarrow is not installed.
        """
        return self.rows.to_arrow()

    def to_polars(self) -> Any:
        """Copy to a polars DataFrame.

        Raises
        ------
        MissingExtra
            polars is not installed.
        """
        return self.rows.to_polars()

    def to_relation(self, connection: Any = None) -> Any:
        """Hand the rows to DuckDB as a relation, to go on with: filter, join, aggregate, write.

        The relation is the caller's own: none of the limits of nbtools hold for what is done with it.

        Parameters
        ----------
        connection
            The caller's DuckDB connection that the relation belongs to; `None` for DuckDB's default one.

        Examples
        --------
        >>> from nbtools.sql import SqlSession
        >>> with SqlSession() as session:
        ...     session.query("from range(5) t(n)").to_relation().filter("n > 2").fetchall()
        [(3,), (4,)]
        """
        return as_relation(self.rows, self.columns, connection)

    def to_rows(self) -> list[list[Any]]:
        """Copy to lists of JSON values, one list a row."""
        return self.rows.to_lists()

    def to_dict(self) -> dict[str, Any]:
        """Return columns, types, rows, row count, whether it was cut, and notes if any, as JSON values."""
        notes = {"notes": list(map(str, self.notes))} if self.notes else {}
        return {
            "columns": list(self.columns),
            "types": list(self.types),
            "rows": self.to_rows(),
            "row_count": self.row_count,
            "truncated": self.truncated,
            **notes,
        }

    def text(self, max_chars: int | None = 6_000, max_rows: int | None = 50) -> str:
        """Return a compact table for a model: names with types, rows, count; cut fairly.

        Parameters
        ----------
        max_chars
            Characters to stay below, about four to a token; `None` shows every cell whole.
        max_rows
            Rows to show; when there are more, the last few are kept too. `None` for all.
        """
        return compact(
            self.columns,
            self.types,
            self.row_count,
            self.rows.to_lists,
            more=self.truncated,
            max_chars=max_chars,
            max_rows=max_rows,
        )

    def footer(self) -> str:
        """Return one line for people: rows, time, what was read, whether it was cut."""
        parts = [counted(self.row_count, "row"), f"{self.duration_s * 1_000:,.1f} ms", self.engine]
        if self.isolated:
            parts.append("isolated")
        if self.connection is not None:
            parts.append(self._with_notes(f"on {self.connection}"))
        if self.sources:
            parts.append("read " + ", ".join(map(self._with_notes, self.sources)))
        if self.truncated:
            cap = "the row limit" if self.cut_by == "rows" else "the size limit"
            parts.append(f"cut at {cap}: there are more rows")
        return " · ".join(parts)

    def _with_notes(self, source: str) -> str:
        texts = "; ".join(
            note.text for note in self.notes if source in {f"{word} {note.file}" for word in ("file", "frame", "on")}
        )
        return f"{source} ({texts})" if texts else source

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand the rows to any library that speaks Arrow."""
        return self.rows.to_arrow().__arrow_c_stream__(requested_schema)

    def __str__(self) -> str:
        return harmless(self.text())

    def _repr_html_(self) -> str:
        """Show the first rows as a table with the footer below."""
        rows = self.rows.to_lists(0, _SHOWN_ROWS)
        texts = [[cell_text(value, None) for value in column] for column in zip(*rows, strict=True)]
        read = [as_read(column, kind) for column, kind in zip(texts, self.types, strict=False)]
        cut = "" if len(rows) == self.row_count else f"the first {len(rows)} are shown · "
        numbers = [index for index, kind in enumerate(self.types) if kind_of(kind) == "number"]
        cells = [["null" if cell is None else cell for cell in row] for row in zip(*read, strict=True)]
        return html_parts.table(self.columns, cells, below=f"{cut}{self.footer()}", empty="no rows", right=numbers)


def as_relation(rows: ResultRows, columns: Sequence[str], connection: Any = None) -> Any:
    """Hand rows to DuckDB as a relation of a connection, `None` for the default one; names that repeat get a number."""
    owner = duckdb if connection is None else connection
    names = unique_names(columns, fold_name)
    # Arrow hands the columns over without a copy; pandas would round large whole numbers again.
    if has("pyarrow"):
        table = rows.table if isinstance(rows, ArrowRows) else rows.to_arrow()
        return owner.from_arrow(table.rename_columns(names))
    return owner.from_df(rows.to_pandas().set_axis(names, axis="columns"))
