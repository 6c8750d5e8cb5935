"""`Explorer`: a table whose state is one SQL text, which is shown, written, copied and put into cells."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import html
import keyword
import shlex
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar

import traitlets

from nbtools.contract.result import ToolResult
from nbtools.errors import FileMissing, InvalidArguments, NbtoolsError, SqlInvalid, did_you_mean
from nbtools.sql import Pager, open_frame
from nbtools.sql.chart import ResultChart
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.files.reading import WHOLE_BYTES
from nbtools.sql.pages.cleaning import cleaned, completed, effect_of, expression_of, layers, offer, offer_query
from nbtools.sql.pages.comparing import DIFFERENCE, compared_labels, counts_query, summary
from nbtools.sql.pages.grouping import MOST_ACROSS, grouped, groups_of
from nbtools.sql.pages.pager import Arrangement
from nbtools.sql.pages.shape import Shape, file_in, text_of
from nbtools.sql.pages.source import FrameSource
from nbtools.sql.pages.spelling import Language, quoted, spelled
from nbtools.sql.plots import columns_of, measure_of, plot_query
from nbtools.sql.results.result import as_relation
from nbtools.sql.results.rows import ResultRows, fold_name
from nbtools.sql.results.texts import NESTED, kind_of, type_name
from nbtools.texts import html_parts
from nbtools.texts.shown import RunOutputs
from nbtools.texts.sql_quotes import quote_identifier
from nbtools.texts.visible import counted
from nbtools.widgets.forms.results import shown_result
from nbtools.widgets.forms.whole_values import whole_value
from nbtools.widgets.grid.grid_widget import GridWidget, controlled
from nbtools.widgets.live.live_widget import ViewRequest, notebook_shell
from nbtools.widgets.live.sources import module_text, style_text

_LANGUAGES: tuple[Language, ...] = ("sql", "pandas", "polars")
_MOST_BYTES = 512 * 2**20  # of the rows that a script is given
_WHOLE = 1_000_000  # characters of one value
# One file, by options or without.
_TOLD = 12  # columns
_MOST_UNDONE = 50  # steps that can be taken back


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploredPlace:
    """Where an explorer finds rows, as the rules allow. A connection is a name, `None` stands for files and frames.

    Attributes
    ----------
    open_pages
        Opens the pages of what stands behind FROM, given ``connection`` and ``control`` by name.
    check
        Raises where a whole query is not allowed on a connection, or wrong; else does what it is given as third.
    dialect
        Returns the dialect of a connection.
    file_options
        Returns how the files of a query are read, see `nbtools.sql.session.SqlSession.file_options`.
    sources
        Returns the files and frames, or the tables of a connection, that can be chosen, see `sources_at_hand`.
    columns
        Returns names, types and meanings of the columns of one of them, given its name and connection.
    connections
        Returns the names of the connections.
    run_script
        Calls the tool that runs a script, given the code, the SQL of its rows, the rows, and what gets its output.
    """

    open_pages: Callable[..., Pager]
    check: Callable[..., Any]
    dialect: Callable[[str | None], str]
    file_options: Callable[..., Sequence[Any]]
    sources: Callable[[str | None], list[dict[str, Any]]]
    columns: Callable[[str, str | None], list[tuple[str, ...]]]
    connections: Callable[[], list[str]]
    run_script: Callable[[str, str, Any, Callable[..., None]], Coroutine[Any, Any, ToolResult]]


class Explorer(GridWidget):
    """Rows of a file, a frame or a query, to filter, sort and look at, with the SQL that gives them.

    Parameters
    ----------
    shape
        What is shown first.
    pager
        Its pages, see `prepared`.
    place_of_rows
        Where its rows come from.
    connection
        The database it is asked of; empty for files and frames.
    problem
        Why a file cannot be read as it is, where it can by other options; there are no rows then.

    Attributes
    ----------
    sql
        The SQL of what is shown, in the dialect of the connection; another one is shown as if it were typed.
    connection
        Where it is asked; empty for files and frames. `nbtools.Workbench.explore` chooses it.
    pinned
        Charts that stay below the table: ``uri``, ``caption``.
    undo
        What was done last and can be taken back; empty for nothing.
    """

    _esm = module_text("explorer")
    _css = style_text("grid", "explorer")
    lanes: ClassVar[dict[str, str]] = {
        **GridWidget.lanes,
        **dict.fromkeys(("query", "reload", "rewrite", "clean", "columns", "group", "undo"), "order"),
        **dict.fromkeys(("check", "sources", "described", "options"), "aside"),
        **dict.fromkeys(("offer", "effect", "row"), "values"),
        **dict.fromkeys(("chart", "pin", "unpin"), "charts"),
        **dict.fromkeys(("script", "assign"), "scripts"),
    }

    # Not what other files and tables there are, and none of them.
    looks: ClassVar[frozenset[str]] = GridWidget.looks | {"reload", "check", "code", "chart", "row"}
    parts: ClassVar[tuple[str, ...]] = (
        *GridWidget.parts,
        *(
            f"explorer/{name}"
            for name in ("chart", "clean", "columns", "group", "options", "picker", "row", "script", "summary")
        ),
    )

    sql = traitlets.Unicode("").tag(sync=True)
    connection = traitlets.Unicode("").tag(sync=True)
    connections: Any = traitlets.List().tag(sync=True)
    pinned: Any = traitlets.List().tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    undo = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        shape: Shape,
        pager: Pager,
        place_of_rows: ExploredPlace,
        connection: str = "",
        problem: NbtoolsError | None = None,
    ) -> None:
        self._place_of_rows = place_of_rows
        self._shape, self._own_connection = shape, connection
        self._unread = problem
        self._chart: dict[str, str] | None = None
        self._scripts = 0
        self._past: list[tuple[str, Shape, str]] = []  # what was done, and what was shown before
        named: dict[str, Any] = {"connection": connection, "connections": place_of_rows.connections()}
        super().__init__(
            pager,
            title=_title(shape),
            note="" if problem else _note_of(pager, shape),
            sql=shape.to_text(),
            problem=problem.message if problem else "",
            **named,
        )

    @traitlets.validate("sql")
    def _text_from_code(self, proposal: Any) -> str:
        if proposal["value"] != self._shape.to_text():
            self.answer_query(ViewRequest("query", {"text": proposal["value"]}, lambda _: None))
        return self._shape.to_text()

    @traitlets.validate("connection")
    def _connection_from_code(self, proposal: Any) -> str:
        if proposal["value"] != self._own_connection:
            hint = f"Open another one: explore(…, connection={proposal['value']!r})."
            raise InvalidArguments("an explorer stays on the connection that it began with.", hint=hint)
        return self._own_connection

    def _changed(self) -> None:
        now = self._pager.arrangement
        self._shape = self._shape.but(conditions=now.conditions, order=now.order)
        self.title = _title(self._shape)
        self.sql = self._shape.to_text()
        super()._changed()

    def _arrange(self, request: ViewRequest, **changes: Any) -> None:
        self._place_of_rows.check(self._shape.but(**changes).to_text(), self.connection or None)
        before = self._shape, self.connection
        super()._arrange(request, alias=self._shape.alias, **changes)
        self._remember("the sort" if request.name == "sort" else "the filter", *before)

    def _remember(self, done: str, shape: Shape, connection: str) -> None:
        """Keep what was shown before something was done, so that it can be taken back."""
        if (shape, connection) != (self._shape, self.connection):
            self._past = [*self._past[-_MOST_UNDONE:], (done, shape, connection)]
        self.undo = self._past[-1][0] if self._past else ""

    def answer_undo(self, request: ViewRequest) -> str:
        """Take back what was done last, and return what that was."""
        if not self._past:
            raise InvalidArguments("there is nothing to undo.")
        done, shape, connection = self._past[-1]
        self._show(shape, connection, request, afresh=connection != self.connection)
        self._past = self._past[:-1]
        self.undo = self._past[-1][0] if self._past else ""
        return done

    def answer_query(self, request: ViewRequest) -> None:
        """Show what a text asks for; where that fails, what was shown stays. The same text reads its source again."""
        text, connection = str(request.args["text"]), str(request.args.get("connection", self.connection))
        here = connection == self.connection
        dialect = self._place_of_rows.dialect(connection or None)
        shape = Shape.from_text(
            text, dialect, lambda relation: not connection or (here and relation == self._shape.relation)
        )
        self._show(shape, connection, request, afresh=not here or shape.to_text() == self.sql, done="the query")

    def answer_reload(self, request: ViewRequest) -> tuple[str, ...]:
        """Read the source again without what the query says of columns that are gone; return their names."""
        return self._show(self._shape, self.connection, request, afresh=True, fits=True)

    def answer_options(self, request: ViewRequest) -> list[dict[str, Any]]:
        """Return how the files of a query are read, and what else they could be read as."""
        names = ("file", "form", "options", "explicit", "encodings", "sheets", "problem")
        return [{name: getattr(file, name) for name in names} for file in self._options(request)]

    def _options(self, request: ViewRequest, **bounds: int) -> Sequence[Any]:
        text = request.args.get("text") or self.sql
        return () if self.connection else self._place_of_rows.file_options(text, **bounds)

    def answer_rewrite(self, request: ViewRequest) -> None:
        """Read a file of a query, or each, by other options, which the SQL says from now on."""
        files, at = self._options(request), request.args.get("at", 0)
        if not files:
            raise InvalidArguments("no file of this query has options.")
        text = files[at].rewritten(**request.args["changes"])
        self._show(Shape.from_text(text), "", request, afresh=True, done="the file options")

    # -- columns, groups and rows ------------------------------------------------------------------------------------

    def answer_columns(self, request: ViewRequest) -> None:
        """Show these columns, by their names, in this order."""
        names, every = tuple(request.args["names"]), self._pager.source.columns
        if not names or not {*names} <= {*every}:
            raise InvalidArguments("show at least one column, and only columns that exist.")
        before, self._shape = self._shape, self._shape.but(columns=None if names == every else names)
        self._changed()
        self._remember("the columns", before, self.connection)

    def answer_group(self, request: ViewRequest) -> None:
        """Show the groups of the rows by some columns, and what is computed of each."""
        args, values = request.args, tuple[str | None, ...]()
        across = args.get("across") or None
        if across is not None:
            named = quote_identifier(across)
            order = f"GROUP BY {named} ORDER BY {named} NULLS LAST LIMIT {MOST_ACROSS + 1}"
            texts = self._rows_of(request, lambda rows: f"SELECT CAST({named} AS VARCHAR) FROM ({rows}) {order}")
            values = tuple(text for (text,) in texts)
        measures = [(str(function), column or None) for function, column in args["measures"]]
        shape = grouped(self._shape, args["keys"], measures, across, values)
        self._show(shape, self.connection, request, afresh=False, done="the groups")

    def answer_row(self, request: ViewRequest) -> list[dict[str, Any]]:
        """Return one row whole: each value as text, as JSON where it is nested, as a picture where it is one."""
        row, source = request.args["row"], self._pager.source
        self.answer_finish(request)
        visible = self._visible_columns()
        columns = list(range(len(source.columns)) if visible is None else visible)
        texts: list[Any] = self._page(row, row + 1, columns, longest=_WHOLE)[0]
        # What is nested is seen as the JSON that its cell shows; of the rest there may be pictures.
        bare = [at for at in columns if self._pager.kind(at) == "text" and not NESTED.match(source.types[at])]
        values: dict[int, Any] = {}
        with contextlib.suppress(Exception):  # what Python has no value for is seen as text
            values = dict(zip(bare, self._pager.record(row, bare) if bare else (), strict=True))
        return [
            {
                "name": source.columns[index],
                "type": type_name(source.types[index]),
                "means": source.meanings.get(source.columns[index], ""),
                **whole_value(text, values.get(index)),
            }
            for index, text in zip(columns, texts, strict=True)
        ]

    # -- cleaning ----------------------------------------------------------------------------------------------------

    def answer_offer(self, request: ViewRequest) -> dict[str, Any]:
        """Return which forms of numbers, dates and missing words a column of text has."""
        name = self._pager.source.columns[request.args["column"]]
        return offer(self._rows_of(request, lambda rows: offer_query(rows, name))[0])

    def answer_effect(self, request: ViewRequest) -> dict[str, Any]:
        """Return what a step of cleaning does to a column: how many values become missing, which, and its SQL."""
        column, step = request.args["column"], request.args["step"]
        name, kind = self._pager.source.columns[column], self._pager.source.types[column]
        step = completed(step, name, kind, lambda make: self._rows_of(request, make)[0])
        sql = expression_of(quote_identifier(name), kind, step)
        effect = effect_of(step, name, kind, sql, lambda make: self._rows_of(request, make)[0])
        return {**effect, "sql": sql, "step": step}

    def _rows_of(self, request: ViewRequest, make: Callable[[str], str]) -> list[list[Any]]:
        with controlled(request) as control:
            self._finish(request.report, control)
            return self._pager.ask(make, control, most_bytes=_MOST_BYTES).rows.to_lists()

    def answer_clean(self, request: ViewRequest) -> dict[str, Any]:
        """Clean a column, which the SQL says from now on, and return what that did, as `answer_effect` does."""
        column, step = request.args["column"], request.args["step"]
        name, kind = self._pager.source.columns[column], self._pager.source.types[column]
        effect = {} if step["op"] == "rename" else self.answer_effect(request)
        shape = cleaned(self._shape, name, kind, effect.get("step", step))
        self._show(shape, self.connection, request, afresh=False, done=f"{step['op']}: {name}")
        return effect

    def _show(
        self, shape: Shape, connection: str, request: ViewRequest, *, afresh: bool, fits: bool = False, done: str = ""
    ) -> tuple[str, ...]:
        rows_place, named = self._place_of_rows, connection or None
        rows_place.check(shape.to_text(), named)
        before, earlier = self._pager, (self._shape, self.connection)
        same = shape.relation == self._shape.relation and not afresh

        with controlled(request) as control:

            def opened(relation: str) -> Pager:
                return before if same else rows_place.open_pages(relation, connection=named, control=control)

            pager, gone = opened(shape.relation), tuple[str, ...]()
            if fits:
                shape, gone = shape.fitting(pager.source.columns)
            pager = prepared(shape, lambda _: pager, control, request.report, open_pager=before)
        self._shape, self._pager, self._own_connection = shape, pager, connection
        self.connection = connection
        self._unread, self.problem = None, ""
        if pager is not before:
            pager.skip_versions(before.version + 1)
            before.close()
            self._note = _note_of(pager, shape, control)
        self._changed()
        if done:
            self._remember(done, *earlier)
        return gone

    def answer_code(self, request: ViewRequest) -> str:
        """Return a cell that makes the same rows: SQL, pandas or polars; without magics it calls the workbench."""
        language = next(each for each in _LANGUAGES if each == request.args["language"])
        if language == "sql" and not request.args.get("magics", True):
            named = f", connection={self.connection!r}" if self.connection else ""
            return f"nbtools.workbench().sql({quoted(self._shape.to_text())}{named})"
        if not self.connection:
            self.answer_finish(request)  # which tells what its files hold
        groups, file, types = groups_of(self._shape), None, dict[str, str]()
        below = text_of(layers((groups.rows if groups else self._shape).source)[1])
        with contextlib.suppress(NbtoolsError):  # a file that cannot be read any more has no options
            files = () if language == "sql" else self._options(request, most_bytes=WHOLE_BYTES)
            file = files[0] if len(files) == 1 else None
            if file is None and not self.connection:
                types = {name: kind for name, kind, _ in self._place_of_rows.columns(below, None)}
        return spelled(self._shape, language, self.connection or None, file, types)

    def answer_check(self, request: ViewRequest) -> bool:
        """Tell whether the source is another by now."""
        return self._pager.is_changed()

    def answer_sources(self, request: ViewRequest) -> list[dict[str, Any]]:
        """Return what can be chosen, as SQL writes it, with columns where they are known."""
        return self._place_of_rows.sources(request.args.get("connection") or None)

    def answer_described(self, request: ViewRequest) -> list[tuple[str, ...]]:
        """Return names, types and meanings of the columns of one source."""
        return self._place_of_rows.columns(str(request.args["source"]), request.args.get("connection") or None)

    # -- charts and scripts ------------------------------------------------------------------------------------------

    def answer_chart(self, request: ViewRequest) -> dict[str, str]:
        """Draw all rows that there are now, and return the picture and what it shows."""
        args, kind, pager = request.args, request.args["kind"], self._pager
        with controlled(request) as control:
            self._finish(request.report, control)
            x, y = self._axes(args)
            x_type = pager.source.types[pager.source.columns.index(x)]
            points = pager.ask(lambda rows: plot_query(kind, rows, x, y, x_type), control, most_bytes=_MOST_BYTES)
        chart = ResultChart(kind, x, y, points.rows.to_pandas())
        png = base64.b64encode(chart.png(dark=bool(args.get("dark")))).decode()
        parts = (chart.title, counted(pager.row_count, "row"), chart.note, *self._shape.conditions)
        self._chart = {"uri": f"data:image/png;base64,{png}", "caption": " · ".join(filter(None, parts))}
        return self._chart

    def _axes(self, args: Mapping[str, Any]) -> tuple[str, str | None]:
        names, types = self._pager.source.columns, self._pager.source.types
        numbers = [name for name, kind in zip(names, types, strict=True) if kind_of(kind) == "number"]
        chosen = [each for each in (args["x"], args["y"]) if each]
        if measure_of(args["kind"])[0] == "bar":
            if not args["x"]:
                # How often each value is there, of the first column that has no numbers.
                chosen = [next((name for name in names if name not in numbers), names[0]), *chosen]
            groups = None if args["y"] else groups_of(self._shape)
            if groups and groups.keys == chosen:
                # Each group is there once: its height is what was computed of it.
                chosen += [name for name in numbers if name not in chosen][:1]
        try:
            return columns_of(args["kind"], chosen, names, types)
        except InvalidArguments as exc:
            exc.hint = "Choose other columns."
            raise

    def answer_chart_code(self, request: ViewRequest) -> str:
        """Return a cell that draws a chart of the rows that are shown."""
        words = [request.args["kind"], *map(shlex.quote, filter(None, self._axes(request.args)))]
        return f"{' '.join(filter(None, ['%%nbsql', self.connection, '--plot', *words]))}\n{self._shape.to_text()}"

    def answer_pin(self, request: ViewRequest) -> None:
        """Keep the chart that was drawn last below the table, whatever is shown there later."""
        if self._chart is not None:
            self.pinned = [*self.pinned, self._chart]

    def answer_unpin(self, request: ViewRequest) -> None:
        """Take a chart away."""
        self.pinned = [each for index, each in enumerate(self.pinned) if index != request.args["place"]]

    def answer_script(self, request: ViewRequest) -> dict[str, Any]:
        """Run a script in a clean kernel, in which `df` holds the rows that there are now."""
        with controlled(request) as control:
            rows = self._rows(control, request.report)
        self._scripts += 1
        name, outputs = f"script-{self._scripts}", RunOutputs()
        show = self.output_into(name, outputs)
        calling = self._place_of_rows.run_script(request.args["code"], self.sql, rows.to_pandas(), show)
        result_shown = shown_result(self.wait_for_call(request, calling, name))
        images = [what["image/png"] for kind, what in outputs.outputs if kind == "display" and "image/png" in what]
        pictures = [{"name": "figure", "uri": f"data:image/png;base64,{picture}"} for picture in images]
        return {**result_shown, "pictures": [*pictures, *result_shown["pictures"]]}

    def _rows(self, control: QueryControl, report: Callable[[float], None] | None = None) -> ResultRows:
        self._finish(report, control)
        columns = self._shape.columns or ()
        return self._pager.ask(str, control, columns=columns, most_bytes=_MOST_BYTES).rows

    # -- back in Python ----------------------------------------------------------------------------------------------

    def data(self) -> Any:
        """Return the rows that are shown now, filtered, sorted and with their columns, as a DataFrame of pandas.

        Raises
        ------
        LimitExceeded
            They have more than 512 MB.
        """
        return self._rows(QueryControl()).to_pandas()

    def answer_assign(self, request: ViewRequest) -> str:
        """Bind a name of the notebook to the rows that are shown now, as a DataFrame, and say how many they are."""
        name, shell = str(request.args["name"]).strip(), notebook_shell()
        if not name.isidentifier() or keyword.iskeyword(name):
            raise InvalidArguments(f"{name!r} is not the name of a variable.")
        if shell is None:
            raise InvalidArguments("there is no notebook here.", hint="Call data() of the explorer.")
        with controlled(request) as control:
            frame = self._rows(control, request.report).to_pandas()
        shell.user_ns[name] = frame
        return f"{name} is a DataFrame of {counted(len(frame), 'row')} and {counted(len(frame.columns), 'column')}."

    def relation(self, connection: Any = None) -> Any:
        """Return the rows that are shown now as a relation of DuckDB, to go on with.

        Parameters
        ----------
        connection
            Your DuckDB connection that it belongs to; `None` for DuckDB's default one.

        Raises
        ------
        LimitExceeded
            They have more than 512 MB.
        """
        return as_relation(self._rows(QueryControl()), self._shape.columns or self._pager.source.columns, connection)

    # -- plain forms -------------------------------------------------------------------------------------------------

    def _visible_columns(self) -> list[int] | None:
        # Columns keep their places, which pages are asked by; those that the text leaves out are not shown.
        if self._unread is not None:
            return []
        chosen = self._shape.columns
        return None if chosen is None else [self._column_index(name) for name in chosen]

    def _column_index(self, name: str) -> int:
        names = [*map(fold_name, self._pager.source.columns)]
        return names.index(fold_name(name))

    def plain_text(self) -> str:
        """Return the first rows, or why there are none."""
        if self._unread is None:
            return super().plain_text()
        return "\n".join(filter(None, [self.title, *self._unread.three_lines()[1:]]))

    def plain_html(self) -> str:
        """Return the first rows as a table, or why there are none, the SQL, and the charts that are pinned."""
        if self._unread is not None:
            return html_parts.preformatted(self.plain_text())
        images = (f"<div><img src='{each['uri']}' alt='{html.escape(each['caption'])}'></div>" for each in self.pinned)
        return super().plain_html() + html_parts.preformatted(self.sql) + "".join(images)


def prepared(
    shape: Shape,
    open_pages: Callable[[str], Pager],
    control: QueryControl | None = None,
    on_progress: Callable[[float], None] | None = None,
    *,
    open_pager: Pager | None = None,
) -> Pager:
    """Return the pages of a query, sorted and filtered; where that fails they are closed, unless they are `open_pager`.

    Raises
    ------
    SqlInvalid
        It names a column that there is not, or something else in it does not fit.
    """
    pager = open_pages(shape.relation)
    try:
        names = {*map(fold_name, pager.source.columns)}
        unknown = [name for name in shape.columns or () if fold_name(name) not in names]
        if unknown:
            there = f"Columns: {', '.join(pager.source.columns[:_TOLD])}."
            hint = did_you_mean(unknown[0], pager.source.columns, there)
            raise SqlInvalid(f"there is no column {unknown[0]!r}.", hint=hint)
        if shape.conditions or shape.order:
            pager.finish(control, on_progress)
        if (shape.conditions, shape.order) != ((), ()) or pager is open_pager:
            arrangement = Arrangement(conditions=shape.conditions, order=shape.order, alias=shape.alias)
            pager.arrange(arrangement, control, on_progress)
    except BaseException:
        if pager is not open_pager:
            pager.close()
        raise
    return pager


def without_rows(shape: Shape, explored: ExploredPlace, problem: NbtoolsError) -> Pager:
    """Return pages without rows where a file of a query can be read by other options; else raise the problem."""
    files: Sequence[Any] = ()
    with contextlib.suppress(NbtoolsError):  # which is the same problem, of a text that nobody wrote
        files = () if isinstance(problem, FileMissing) else explored.file_options(shape.to_text())
    if not any(each.problem and (each.encodings or each.sheets) for each in files):
        raise problem
    import pandas as pd

    return open_frame(pd.DataFrame({"nothing read": []}))


def _note_of(pager: Pager, shape: Shape, control: QueryControl | None = None) -> str:
    """Return what differs between two sources; when a frame was read, which may change in place and nobody is told."""
    columns = pager.source.columns
    if shape.alias == "compared" and columns[:1] == (DIFFERENCE,) and not shape.conditions:
        make = functools.partial(counts_query, columns=columns)
        counts = pager.ask(make, control or QueryControl(), most_bytes=_MOST_BYTES).rows.to_lists()
        return summary(counts, columns, pager.source.types)
    return f"as of {time.strftime('%H:%M')}" if isinstance(pager.source, FrameSource) else ""


def _title(shape: Shape) -> str:
    # The steps of cleaning are in the SQL; what they clean is what is looked at.
    is_cleaned = shape.dialect == "duckdb" and shape.source.startswith("(SELECT * RE")
    source = text_of(layers(shape.source)[1]) if is_cleaned else shape.source
    if shape.alias == "compared" and (labels := compared_labels(shape.source)):
        return " and ".join(labels)
    if groups := groups_of(shape):
        return f"{_title(groups.rows)} by {', '.join(groups.keys)}"
    ends = source[:1] + source[-1:]
    is_enclosed = ends == "()" or (ends == '""' and source.count('"') == len(ends))
    source = file_in(source) or (source[1:-1] if is_enclosed else source)
    return source if len(source) < 80 else f"{source[:79]}…"
