"""``%nbsql`` and ``%%nbsql``: read-only SQL over the notebook's frames, files and databases."""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments, SqlInvalid
from nbtools.jupyter.display.blocks import Listing
from nbtools.jupyter.line.arguments import MagicParser, count, json_value
from nbtools.jupyter.line.line_parser import check_name, iter_words, take_target
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.lazy import need
from nbtools.toolbox.sql_tools import ACTS

if TYPE_CHECKING:
    from nbtools.sql import QueryResult

__all__ = ["MAGIC"]

_BRACES = re.compile(r"\{([^\W\d]\w*)\}")


def _usage(prog: str, cell: bool) -> MagicParser:
    about = "Run a read-only SQL query FROM a DataFrame of the notebook, 'a file.csv', nbtools.memory or nbtools.calls."
    form = "[CONNECTION]" if cell else "[CONNECTION] SELECT ..."
    parser = MagicParser(prog, description=about, usage=f"{prog} [options] {form}".replace("%", "%%"))
    parser.take(
        "connection",
        nargs="?",
        metavar="CONNECTION",
        help="its name in the settings, or a URL (DuckDB)",
        kind="connection",
    )
    parser.take(
        "--limit", type=_limit, default=argparse.SUPPRESS, metavar="N", help="the most rows to return; none for all"
    )
    parser.take("--file", metavar="FILE", help="write all rows to a .csv, .json or .parquet file", kind="file")
    parser.take(
        "--param", action="append", default=[], type=_pair, metavar="NAME=VALUE", help="a value for :NAME or $NAME"
    )
    parser.take("--as", dest="form", choices=tuple(_FORMS), default="pandas", help="type of the result (pandas)")
    parser.take("--dialect", metavar="NAME", help="dialect of the query; it is translated for the connection")
    parser.take("--isolated", action="store_true", help="run the query in a separate process without rights")
    parser.take("--explain", action="store_true", help="show the plan; do not run the query")
    parser.take("--tables", action="store_true", help="list the tables that a query can read")
    parser.take(
        "--profile", metavar="TABLE", help="count rows, nulls and distinct values; least and greatest", kind="table"
    )
    parser.epilog = (
        ":name or $name in the query takes the value of the notebook's variable name.\n"
        "%nbsql takes a query on its line, %%nbsql in its cell. %sql and %%sql are short names of the two;\n"
        "where another extension, such as JupySQL, has these names already, they stay its own."
    )
    return parser


def _pair(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VALUE")
    return name, json_value(value)


def _limit(word: str) -> int | None:
    return None if word == "none" else count(word)


def _free_from(session: Any, parser: MagicParser, line: str) -> int:
    """Return where the SQL begins: behind the options and the connection."""
    skip = 0
    connected = False
    for word in iter_words(line):
        if skip:
            skip -= 1
        elif word.startswith("-") and word != "--":
            skip = parser.values_of(word)
        elif not connected and _is_connection(session, word, line):
            connected = True
        else:
            return word.start
    return len(line)


def _is_connection(session: Any, word: str, line: str) -> bool:
    if "://" in word or word in session.workbench.config.connections:
        return True
    # Alone on the line, it is an unknown connection over a cell, or the query that is being written.
    return line.rstrip().endswith(word) and word.lower() not in {"select", "with", "from"}


def _run(request: MagicRequest) -> Any:
    args = request.args
    if args.tables or args.profile:
        return _catalog(request)
    # ``CONNECTION name <<`` is meant as ``name << CONNECTION``, and no SQL begins so.
    target, request.text = take_target(request.text)
    request.out = check_name(target) if target else request.out
    query = f"{request.text}\n{request.cell or ''}".strip()
    if not query:
        raise InvalidArguments("there is no SQL.", hint="Write a SELECT, on this line or below.", tried="running SQL")
    return (_explain if args.explain else _ask)(request, query)


def _ask(request: MagicRequest, query: str) -> Any:
    options = {
        "params": _params(request, query),
        "connection": request.args.connection,
        "limit": getattr(request.args, "limit", request.session.options.limit),
        "isolated": request.args.isolated,
        "dialect": request.args.dialect,
    }
    if request.args.file:
        if request.out is not None:
            raise InvalidArguments("rows go to a file or to a variable.", hint="Leave out --file or the name.")
        rows = request.export(query, request.args.file, **options)
        return Listing(text=f"{rows:,} {'row' if rows == 1 else 'rows'} written to {request.args.file}")
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
    """Say what {name} means in SQL, in the hint of an error or below the cell; and that a connection is no variable."""
    known = request.session.shell.user_ns
    name = next((name for name in _BRACES.findall(query) if name in known), None)
    advice = f"{{{name}}} is not filled in inside of SQL: write :{name}, without quotes, for the value of the variable."
    first = query.partition(" ")[0]
    try:
        yield
    except SqlInvalid as exc:
        exc.hint = advice if name else exc.hint
        if any(hasattr(known.get(first), method) for method in ("connect", "cursor")):
            kind = type(known[first]).__name__
            given = (
                "a connection is given by its URL, such as sqlite:///sales.db, or by a name of the setting connections"
            )
            exc.hint = f"{first} is a variable ({kind}), and {given}."
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


def _params(request: MagicRequest, query: str) -> dict[str, Any] | None:
    """Return the values to bind: those of --param, and the notebook's variables that the text names."""
    from nbtools.sql.parameters import placeholders

    given = dict(request.args.param)
    known = request.session.shell.user_ns
    found = {name: known[name] for name in placeholders(query) if name in known and name not in given}
    return {**found, **given} or None


def _explain(request: MagicRequest, query: str) -> Listing:
    session = request.session.workbench.sql_session
    args = request.args
    options = {"connection": args.connection, "isolated": args.isolated, "dialect": args.dialect}
    params = _params(request, query)
    plan, _ = request.perform(
        "sql_query",
        lambda: session.explain(query, params=params, **options),
        arguments={"query": query, "explain": True},
        **ACTS["sql_query"],
    )
    return Listing(text=plan)


def _catalog(request: MagicRequest) -> Any:
    from nbtools.jupyter.display.tables import tables_table

    session: Any = request.session.workbench.sql_session
    args = request.args
    given = {"table": args.profile, "connection": args.connection}
    if args.profile:
        work = functools.partial(session.profile, args.profile, connection=args.connection)
        return request.perform("sql_profile", work, arguments=given, **ACTS["sql_profile"])[0]
    work = functools.partial(session.catalog, args.connection)
    found, _ = request.perform("sql_tables", work, arguments=given, **ACTS["sql_tables"])
    return tables_table(found, request.session.shell.user_ns if args.connection is None else {})


MAGIC = Magic(usage=_usage, run=_run, free_from=_free_from)
