"""`GridWidget`: pages of rows that a view asks for, and what changes which rows there are and their order."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import traitlets

from nbtools.errors import Cancelled, LimitExceeded
from nbtools.sql import Pager
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.pages.conditions import condition_of
from nbtools.sql.pages.pager import Arrangement
from nbtools.sql.pages.source import HEAD
from nbtools.sql.results.texts import SHOWN, Cell, as_read, as_whole, spell, type_name
from nbtools.texts import html_parts
from nbtools.texts.visible import aligned, counted
from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest
from nbtools.widgets.live.sources import part_text

T = TypeVar("T")

_PLAIN_ROWS, _PLAIN_CELL = 10, 60
_PLAIN_COLUMN, _PLAIN_WIDTH = 24, 120  # letters
_FIRST_ROWS, _FIRST_COLUMNS = 30, 20
_COPIED = 500_000  # cells of a rectangle, copied or looked at
_COPY_STEP = 2_000
_WHOLE = 1_000_000  # characters of one value
_QUIET_S = 0.2  # for which nobody must have waited for rows


class GridWidget(LiveWidget):
    """Rows that page from their source, to look at, sort, filter and copy from; a subclass brings its JavaScript.

    Parameters
    ----------
    pager
        The pages; the widget closes them.
    title
        Above the table.
    note
        Behind the count of rows, such as that a result was cut.
    **traits
        More traits of a subclass; all of them go to the front end at once.
    """

    # Pages wait for nothing; what changes the rows, and profiles, go one after the other.
    lanes: ClassVar[dict[str, str]] = {
        "sort": "order",
        "filter": "order",
        "finish": "order",
        "profile": "profiles",
        "values": "values",
    }

    looks: ClassVar[frozenset[str]] = frozenset(
        {"cells", "whole", "copy", "finish", "sort", "filter", "profile", "values", "part"}
    )
    parts: ClassVar[tuple[str, ...]] = ("grid/filter",)  # what is sent when it is first used
    state = traitlets.Dict().tag(sync=True)
    view = traitlets.Dict().tag(sync=True)

    def __init__(self, pager: Pager, *, title: str = "", note: str = "", **traits: Any) -> None:
        self._pager, self._note = pager, note
        super().__init__(title=title, state=self._state(pager.version), **traits)

    def _state(self, rev: int) -> dict[str, Any]:
        pager, source = self._pager, self._pager.source
        columns = [
            {"name": name, "type": type_name(kind), "kind": pager.kind(index), "means": source.meanings.get(name, "")}
            for index, (name, kind) in enumerate(zip(source.columns, source.types, strict=True))
        ]
        arrangement = pager.arrangement
        files = {note.file for note in source.notes}
        return {
            "rows": pager.row_count,
            "of": source.row_count,
            "source": id(source),  # another one, with as many rows, has its own profiles
            "whole": source.is_whole,
            "columns": columns,
            "order": [list(each) for each in arrangement.order],
            "conditions": list(arrangement.conditions),
            "rev": rev,
            "note": self._note,
            "notes": [
                {"text": str(note) if len(files) > 1 else note.text, "words": bool(note.words)} for note in source.notes
            ],
            "shown": self._visible_columns(),
            "first": self._first_page(rev),
        }

    def _visible_columns(self) -> list[int] | None:
        """Return the places of the columns that are shown, `None` for all; a subclass overrides it."""
        return None

    def _first_page(self, rev: int) -> dict[str, Any] | None:
        """Return the first cells, which so are seen without being asked for; `None` where they cannot be read."""
        visible = self._visible_columns()
        columns = list(range(len(self._pager.source.columns)) if visible is None else visible)[:_FIRST_COLUMNS]
        _SAMPLES.make_way()
        # What is wrong with them is told when they are asked for.
        with contextlib.suppress(Exception):
            return {"columns": columns, "rows": self._page(0, _FIRST_ROWS, columns, rev)}
        return None

    def _page(
        self, start: int, stop: int, columns: list[int], rev: int | None = None, longest: int | None = SHOWN
    ) -> list[list[Cell]]:
        """Return cells as people read them, short in a page and otherwise whole."""
        rows = self._pager.cells(start, stop, columns, longest, version=rev)
        form: Callable[[Sequence[str | None], str], Sequence[Cell]] = as_read if longest == SHOWN else as_whole
        kinds = (self._pager.source.types[column] for column in columns)
        read = [form(texts, kind) for texts, kind in zip(zip(*rows, strict=True), kinds, strict=False)]
        return [list(row) for row in zip(*read, strict=True)] if columns else [[] for _ in rows]

    # -- requests ----------------------------------------------------------------------------------------------------

    def answer_cells(self, request: ViewRequest) -> list[list[Cell]]:
        """Return the cells of some rows."""
        args = request.args
        start, stop, columns = _rectangle(args, "looked at")
        _SAMPLES.make_way()
        return self._page(start, stop, columns, args["rev"])

    def answer_whole(self, request: ViewRequest) -> Cell:
        """Return a value whole, up to a million characters."""
        row, rev = request.args["row"], request.args["rev"]
        if not self._pager.source.is_whole:
            rev += 1  # the same rows, as they are then
        self.answer_finish(request)
        return self._page(row, row + 1, [request.args["column"]], rev, _WHOLE)[0][0]

    def answer_copy(self, request: ViewRequest) -> dict[str, Any]:
        """Return a rectangle as TSV, or as a table of Markdown."""
        start, stop, columns = _rectangle(request.args, "copied")
        self.answer_finish(request)
        is_markdown = request.args.get("form") == "markdown"
        line = _markdown if is_markdown else _tsv
        names = [self._pager.source.columns[index] for index in columns]
        lines = [line(names)] if request.args["heads"] or is_markdown else []
        if is_markdown:
            lines.append(line(["---:" if self._pager.kind(index) == "number" else "---" for index in columns]))
        for first in range(start, stop, _COPY_STEP):
            request.check()
            lines += map(line, self._page(first, min(first + _COPY_STEP, stop), columns, longest=None))
        return {"text": "\n".join(lines), "cells": (stop - start) * len(columns)}

    def answer_finish(self, request: ViewRequest) -> None:
        """Read all rows of a source that began with its first ones."""
        with controlled(request) as control:
            self._finish(request.report, control)

    def _finish(self, report: Callable[[float], None] | None, control: QueryControl) -> None:
        """Read all rows, where only the first ones are there; what leaves the page waits for it."""
        if not self._pager.source.is_whole:
            self._pager.finish(control, report)
            self._changed()

    def answer_sort(self, request: ViewRequest) -> None:
        """Sort by columns, each with whether the greatest comes first; none gives the original order."""
        order = tuple((str(name), bool(down)) for name, down in request.args["order"])
        self._arrange(request, conditions=self._pager.arrangement.conditions, order=order)

    def answer_filter(self, request: ViewRequest) -> None:
        """Add a condition, or take one or all away."""
        now, args = self._pager.arrangement, request.args
        conditions = list(now.conditions)
        if "add" in args:
            condition = self._condition(args["add"])
            conditions += [condition] if condition not in conditions else []
        elif "drop" in args:
            del conditions[args["drop"] : args["drop"] + 1]
        else:
            conditions = []
        self._arrange(request, conditions=tuple(conditions), order=now.order)

    def _condition(self, args: dict[str, Any]) -> str:
        source, column = self._pager.source, args["column"]
        return condition_of(source.columns[column], source.types[column], args, self._pager.zone(column))

    def _arrange(self, request: ViewRequest, **changes: Any) -> None:
        with controlled(request) as control:
            self._pager.finish(control, request.report)
            self._pager.arrange(Arrangement(**changes), control, request.report)
        self._changed()

    def _changed(self) -> None:
        self.state = self._state(self._pager.version)
        self.save_again()

    def answer_profile(self, request: ViewRequest) -> dict[str, Any] | None:
        """Return what a column holds; `None` where the rows were arranged again meanwhile."""
        column, exact, rev = request.args["column"], request.args["exact"], request.args["rev"]

        def profile(control: QueryControl) -> dict[str, Any] | None:
            if rev != self._pager.version:
                return None
            return self._pager.profile(column, exact=exact, control=control).to_dict()

        if not exact:
            return _SAMPLES.run(request, profile)
        with controlled(request) as control:
            return profile(control)

    def answer_part(self, request: ViewRequest) -> str:
        """Return the text of a part of the widget that is used now."""
        return part_text(next(each for each in self.parts if each == request.args["name"]))

    def answer_values(self, request: ViewRequest) -> dict[str, Any] | None:
        """Return a column's most frequent values, counts and shown texts; `None` where the rows were arranged again."""
        if request.args["rev"] != self._pager.version:
            return None
        column = request.args["column"]
        with controlled(request) as control:
            self._finish(request.report, control)
            values, note = self._pager.values(column, str(request.args["search"]), control)
        forms = as_whole([value for value, _ in values], self._pager.source.types[column])
        return {"values": [(*each, text) for each, text in zip(values, forms, strict=True)], "note": note}

    def close(self) -> None:
        """Remove the views and close the pages."""
        super().close()
        self.close_pages()

    def close_pages(self) -> None:
        """Give back what the rows took; views stay and say so when they ask for more."""
        if not sys.is_finalizing():  # ipywidgets closes what is left when Python ends, and then nothing can be imported
            self._pager.close()

    # -- plain forms -------------------------------------------------------------------------------------------------

    def _facts(self) -> str:
        rows, columns = self.state["rows"], len(self.state["columns"])
        # Fewer than are read at first are all there are.
        rows_text = counted(rows, "row") if self.state["whole"] or rows < HEAD else f"the first {counted(rows, 'row')}"
        return f"{rows_text} \N{MULTIPLICATION SIGN} {counted(columns, 'column')}"

    def _first(self) -> tuple[list[str], list[list[Any]], str, list[int]]:
        """Return names, the first rows as people read them, what is below, and which columns are numbers."""
        first = self.state["first"] or {"columns": [], "rows": []}
        columns = [self.state["columns"][index] for index in first["columns"]]
        rows = [["null" if cell is None else cell for cell in row] for row in first["rows"][:_PLAIN_ROWS]]
        # As many columns as stand beside each other on a page, exported or of paper.
        texts = ([column["name"], *map(_short, cells)] for column, *cells in zip(columns, *rows, strict=True))
        ends = itertools.accumulate(min(max(map(len, each)), _PLAIN_COLUMN) + 2 for each in texts)
        columns = columns[: max(1, sum(end <= _PLAIN_WIDTH for end in ends))]
        visible = self._visible_columns()
        is_cut = len(columns) < len(self.state["columns"] if visible is None else visible)
        parts = [f"{len(rows)} rows"] * (self.state["rows"] > len(rows)) + [counted(len(columns), "column")] * is_cut
        cut = [f"the first {' and '.join(parts)} are shown"] if parts else []
        notes = (note["text"] for note in self.state["notes"])
        numbers = [index for index, column in enumerate(columns) if column["kind"] == "number"]
        facts = " · ".join(filter(None, [self._facts(), self._note, *cut, *notes]))
        return [column["name"] for column in columns], [row[: len(columns)] for row in rows], facts, numbers

    def plain_text(self) -> str:
        """Return the first rows."""
        names, cells, facts, numbers = self._first()
        rows = [[spell(_short(cell), _PLAIN_CELL) for cell in row] for row in cells]
        return "\n".join([*filter(None, [self.title]), *aligned([names, *rows], _PLAIN_WIDTH, right=numbers), facts])

    def plain_html(self) -> str:
        """Return the first rows as a table."""
        names, rows, facts, numbers = self._first()
        return html_parts.table(names, rows, title=self.title, below=facts, empty="no rows", right=numbers)


def _short(cell: Any) -> str:
    """Return what a cell shows."""
    return str(cell[0] if isinstance(cell, tuple) else cell)


@contextlib.contextmanager
def controlled(request: ViewRequest) -> Iterator[QueryControl]:
    """Yield what ends a statement when its answer is no longer wanted."""
    control = QueryControl()
    with request.interrupted_by(lambda: control.stop("stop")):
        yield control


class _Samples:
    """Profiles of samples, in all tables: they stop where someone waits for rows, and begin again afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[QueryControl] = set()
        self._quiet_from = 0.0

    def make_way(self) -> None:
        """Stop those that run, and begin none for a moment."""
        with self._lock:
            self._quiet_from = time.monotonic() + _QUIET_S
            running = list(self._running)
        for control in running:
            control.stop("stop")

    def run(self, request: ViewRequest, profile: Callable[[QueryControl], T]) -> T:
        """Return what a profile returns, when it could run to its end.

        Raises
        ------
        Cancelled
            It is no longer wanted.
        """
        while True:
            while (left := self._quiet_from - time.monotonic()) > 0:
                request.check()
                time.sleep(min(left, 0.05))
            with controlled(request) as control:
                with self._lock:
                    self._running.add(control)
                try:
                    return profile(control)
                except Cancelled:
                    request.check()
                    if control.reason is None:
                        raise
                finally:
                    with self._lock:
                        self._running.discard(control)


_SAMPLES = _Samples()


def _rectangle(args: Mapping[str, Any], done: str) -> tuple[int, int, list[int]]:
    """Return the rows, from the first to before the last, and the columns, each once, that a page asks for."""
    start, stop, columns = (
        max(args["start"], 0),
        max(args["stop"], 0),
        list(dict.fromkeys(args["columns"])),
    )
    if (cells := (stop - start) * len(columns)) > _COPIED:
        raise LimitExceeded(
            f"the rectangle has {cells:,} cells; {_COPIED:,} can be {done} at once.",
            hint="Choose fewer, or write a file: %%nbsql --out-file rows.csv",
        )
    return start, stop, columns


def _tsv(row: Sequence[Any]) -> str:
    cells = ("" if text is None else text for text in row)
    return "\t".join(
        f'"{cell.replace(chr(34), chr(34) * 2)}"' if any(mark in cell for mark in '\t\n\r"') else cell for cell in cells
    )


def _markdown(row: Sequence[Any]) -> str:
    cells = (re.sub(r"([\\|])", r"\\\1", text or "").replace("\n", "<br>") for text in row)
    return f"| {' | '.join(cells)} |"
