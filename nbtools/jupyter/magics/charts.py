"""``%%nbsql --plot``: a chart of a whole result, drawn from few numbers that SQL computes."""

from __future__ import annotations

from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.jupyter.magic import MagicRequest
from nbtools.jupyter.magics.connections import bound_values
from nbtools.sql.chart import ResultChart
from nbtools.sql.plots import KINDS, columns_of, grouped_query, measure_of, plot_query
from nbtools.sql.profile import quoting

MOST_DRAWN = 2  # columns of a chart
_HEAD = 100  # rows that tell the types, where an engine tells none


def plot_result(request: MagicRequest, query: str) -> Any:
    """Draw a result of any size by queries that compute what is drawn.

    Raises
    ------
    InvalidArguments
        There is no such chart, or no column that fits.
    """
    args = request.args
    kind, columns = args.plot[0], args.plot[1:]
    form, _ = measure_of(kind)
    if len(columns) > MOST_DRAWN:
        hint = f"Write --plot {'|'.join(KINDS)} X Y."
        raise InvalidArguments(f"--plot {' '.join(args.plot)} cannot be drawn.", hint=hint)
    text = query.strip().rstrip(";")
    options: dict[str, Any] = {name: getattr(args, name) for name in ("connection", "isolated", "dialect")}
    options["params"] = bound_values(request, query)
    is_elsewhere = args.connection is not None and not request.session.connections.takes_frames(args.connection)
    if is_elsewhere:
        # Its first rows, as DuckDB sees them: engines name types in their own words, or not at all.
        head = request.ask("FROM head LIMIT 0", frames={"head": request.ask(text, limit=_HEAD, **options)})
    else:
        head = request.ask(f"FROM (\n{text}\n) AS result LIMIT 0", **options)
    x, y = columns_of(kind, columns, head.columns, head.types)
    x_type = head.types[head.columns.index(x)]
    if not is_elsewhere:
        return ResultChart(kind, x, y, request.ask(plot_query(kind, text, x, y, x_type), **options).to_pandas())
    # It gives the columns that are drawn, or their groups, and DuckDB the rest.
    quote = quoting(request.session.workbench.sql_session.dialect(args.connection))
    pulled = request.ask(grouped_query(kind, text, x, y, quote), **options)
    points = plot_query(form, "FROM pulled", x, pulled.columns[-1] if form == "bar" else y, x_type)
    return ResultChart(kind, x, y, request.ask(points, frames={"pulled": pulled}).to_pandas())
