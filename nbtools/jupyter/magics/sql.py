"""``%nbsql`` and ``%%nbsql``: read-only SQL over the notebook's frames, files and databases."""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments, SqlInvalid
from nbtools.ground.lazy import need, pd
from nbtools.jupyter.display.blocks import Listing, Table
from nbtools.jupyter.line.arguments import MagicParser, declared_usage, json_value
from nbtools.jupyter.line.line_parser import check_name, iter_words, take_target
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.jupyter.magics import connections
from nbtools.jupyter.magics.charts import MOST_DRAWN, plot_result
from nbtools.jupyter.magics.connections import bound_values, tables_of
from nbtools.texts.other_words import hint_for
from nbtools.texts.visible import brief
from nbtools.toolbox.sql_tools import ACTS

if TYPE_CHECKING:
    from nbtools.sql import QueryResult

_BRACES = re.compile(r"\{([^\W\d]\w*)\}")


def _pair(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VALUE")
    return name, json_value(value)


_usage = declared_usage(__file__, pair=_pair)


def _free_from(session: Any, parser: MagicParser, line: str) -> int:
    """Return where the SQL begins: behind the options and the connection."""
    skip = plot_words = 0
    connected = False
    for word in iter_words(line):
        # KIND may be followed by two columns.
        if skip and not (skip <= plot_words and (word.startswith("-") or _begins_sql(word))):
            skip -= 1
        elif word.startswith("-") and word != "--":
            plot_words = MOST_DRAWN if word == "--plot" else 0
            skip = parser.values_of(word) + plot_words
        elif not connected and _is_connection(session, word, line):
            connected = True
        else:
            return word.start
    return len(line)


def _is_connection(session: Any, word: str, line: str) -> bool:
    here = session.connections
    if "://" in word or word in here.urls or here.is_variable(word) or word in here.closed:
        return True
    # Alone on the line, it is an unknown connection, unless SQL begins so.
    return line.rstrip().endswith(word) and not _begins_sql(word)


def _begins_sql(word: str) -> bool:
    from nbtools.sql.verdict.duckdb.judge import begins_statement

    return begins_statement(word)


def _run(request: MagicRequest) -> Any:
    args = request.args
    request.text = request.without_options(_usage("%nbsql", request.cell is not None).finish(), is_query=True)
    for applies, answer in (
        (args.connections, connections.listing),
        (args.close, connections.close),
        (args.tables, connections.tables),
        (args.profile, _profile),
        (args.forget, _forget),
    ):
        if applies:
            return answer(request)
    if args.saved:
        rows = tuple((query.name, query.reads, query.sql) for query in request.session.saved_queries)
        return Table(columns=("name", "reads", "query"), rows=rows, title="saved queries", empty="no saved queries")
    # ``CONNECTION name <<`` is meant as ``name << CONNECTION``, and no SQL begins so.
    target, request.text = take_target(request.text)
    request.out = check_name(target) if target else request.out
    query = f"{request.text}\n{request.cell or ''}".strip()
    opened = connections.open_named(request, query)
    if not query and opened is not None:
        return opened
    if not query:
        raise InvalidArguments("there is no SQL.", hint="Write a SELECT, on this line or below.", tried="running SQL")
    connection = args.connection
    args.connection = connections.chosen(request, query)
    try:
        value = (_save if args.save else _answer)(request, query)
    except SqlInvalid as exc:
        exc.hint = hint_for("{{name}}") if "{{" in query else exc.hint
        raise
    if connection is not None:
        request.session.connections.current = args.connection
    return value


def _answer(request: MagicRequest, query: str) -> Any:
    from nbtools.sql.verdict.inquiries import asks_for_tables

    args = request.args
    if args.connection is None and asks_for_tables(query):
        table = connections.tables(request)
        return pd.DataFrame(list(table.rows), columns=list(table.columns))
    expanded = request.session.saved_queries.expand(
        query, functools.partial(tables_of, request), request.session.frame_of
    )
    if args.plot:
        return plot_result(request, expanded)
    return (_explain if args.explain else _ask)(request, expanded)


def _save(request: MagicRequest, query: str) -> Listing:
    args, name = request.args, request.args.save
    options = {"connection": args.connection, "dialect": args.dialect, "params": bound_values(request, query)}
    verdict = request.session.workbench.sql_session.check(query, **options)
    # Now and not at its first use, when no one remembers what the query was.
    verdict.raise_if_refused(query)
    if request.session.frame_of(name) is not None:
        hint = "Save the query under another name."
        raise InvalidArguments(f"{name!r} is a DataFrame already.", hint=hint, tried="saving a query")
    queries = request.session.saved_queries
    before = next((one.sql for one in queries if one.name.casefold() == name.casefold()), None)
    saved = queries.save(name, query, verdict.tables, verdict.files)
    instead = f" and replaces {brief(before)}" if before not in (None, saved.sql) else ""
    return Listing(text=f"{saved.name} is saved{instead}; it reads {saved.reads}")


def _ask(request: MagicRequest, query: str) -> Any:
    options = {
        "params": bound_values(request, query),
        "connection": request.args.connection,
        "limit": getattr(request.args, "limit", request.session.options.limit),
        "isolated": request.args.isolated,
        "dialect": request.args.dialect,
    }
    if request.args.file:
        if request.out is not None:
            raise InvalidArguments("rows go to a file or to a variable.", hint="Leave out --out-file or the name.")
        rows = request.export(query, request.args.file, overwrite=request.args.overwrite, **options)
        return Listing(text=rows.text(request.args.file))
    package, form = _FORMS[request.args.form]
    need(package, extra="engines", why=f"A result as {request.args.form}")
    with _misread_names(request, query):
        result = request.ask(query, **options)
    value = form(result)
    if request.out is not None:
        request.note(f"{request.out}: {result.footer()}")
    return value


@contextlib.contextmanager
def _misread_names(request: MagicRequest, query: str) -> Iterator[None]:
    """Say what {name} means in SQL, in the hint of an error or below the cell."""
    names = request.session.names
    name = next((name for name in _BRACES.findall(query) if name in names), None)
    advice = f"{{{name}}} is not substituted in SQL: write :{name}, without quotes, for the value of the variable."
    try:
        yield
    except SqlInvalid as exc:
        line, column = exc.data.get("line") or 1, exc.data.get("column") or 0
        text = query.split("\n")[line - 1]
        # Braces that stand elsewhere, in a text or a struct, have nothing to do with it.
        is_there = any(match.start() < column <= match.end() for match in _BRACES.finditer(text))
        exc.hint = advice if name and is_there else exc.hint
        raise
    if name:
        request.note(advice)


def _frame(result: QueryResult) -> Any:
    from nbtools.jupyter.display.query_frame import QueryFrame

    return QueryFrame.from_result(result)


# The package that each form needs, and what makes it.
_FORMS: dict[str, tuple[str, Callable[[QueryResult], Any]]] = {
    "pandas": ("pandas", _frame),
    "arrow": ("pyarrow", lambda result: result.to_arrow()),
    "polars": ("polars", lambda result: result.to_polars()),
    "relation": ("duckdb", lambda result: result.to_relation()),
}


def _explain(request: MagicRequest, query: str) -> Listing:
    session = request.session.workbench.sql_session
    args = request.args
    options = {"connection": args.connection, "isolated": args.isolated, "dialect": args.dialect}
    params = bound_values(request, query)
    plan, _ = request.perform(
        "sql_query",
        lambda: session.explain(query, params=params, **options),
        arguments={"query": query, "explain": True},
        **ACTS["sql_query"],
    )
    return Listing(text=plan)


def _profile(request: MagicRequest) -> Any:
    target = {"table": request.args.profile, "connection": connections.here(request)}
    work = functools.partial(request.session.workbench.sql_session.profile, **target)
    return request.perform("sql_profile", work, arguments=target, **ACTS["sql_profile"])[0]


def _forget(request: MagicRequest) -> Listing:
    request.session.saved_queries.forget(request.args.forget)
    return Listing(text=f"{request.args.forget} is forgotten")


MAGIC = Magic(usage=_usage, run=_run, free_from=_free_from, is_sql=True)
