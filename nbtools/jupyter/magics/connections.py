"""``%nbsql``: which connection a query goes to, and what can be queried."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError, SqlInvalid, SqlNotAllowed
from nbtools.jupyter.display.blocks import Listing, Table
from nbtools.jupyter.display.tables import frame_rows, frames_in, tables_table
from nbtools.jupyter.magic import MagicRequest
from nbtools.sql.engines.urls import mask_url
from nbtools.texts.visible import counted
from nbtools.toolbox.sql_tools import ACTS

_MOST_FILES = 100
# Counting reads all of a text file.
_COUNTED_BYTES = 50_000_000
# Seconds for all counts of a listing, once a database is open; what was not counted by then has none.
_COUNT_S = 5.0


def open_named(request: MagicRequest, query: str) -> Listing | None:
    """Open what the line asks for, as ``CONNECTION``, ``--connect NAME URL`` or ``URL --alias NAME``.

    Return `None` if it asks for none. A connection given together with a query is opened by the query.
    """
    args, session = request.args, request.session
    name, target = args.connect or (args.alias, args.connection)
    if target is None or (query and not name):
        return None
    opened, count = session.connections.open(target, name)
    args.connection = opened or "duckdb://"
    if opened is None:
        return Listing(text="back to DataFrames and files")

    url = session.connections.urls[opened]
    if ":***@" in mask_url(url) and "${" not in url:
        request.note("the password is in this cell: write ${NAME} to take it from an environment variable")
    address = "" if opened == mask_url(url) else f" ({mask_url(url)})"
    return Listing(
        text=f"queries now go to {opened}{address}; it has {counted(count, 'table')} (listed by %nbsql --tables)"
    )


_FOOTER = "%nbsql NAME makes one current, --close NAME closes it, duckdb:// goes back to DataFrames and files"
_HOW_TO_OPEN = "open one with %nbsql sqlite:///FILE, or list some under [connections] in nbtools.toml"


def listing(request: MagicRequest) -> Table:
    """List the connections."""
    connections = request.session.connections
    waiting = request.session.workbench.config.waiting("connections")
    return Table(
        columns=("connection", "state", "url"),
        rows=tuple(connections.rows()),
        title="connections",
        footer="; ".join(filter(None, (_FOOTER, waiting))),
        empty=f"no connections: {waiting or _HOW_TO_OPEN}",
    )


def close(request: MagicRequest) -> Listing:
    """Close a connection."""
    was = request.session.connections.current
    name = request.session.connections.close(request.args.close)
    rest = "; back to DataFrames and files" if name == was else ""
    return Listing(text=f"{name} is closed{rest}")


def here(request: MagicRequest) -> str | None:
    """Return the connection that a line names, else the current one; `None` for DataFrames and files."""
    connections = request.session.connections
    target = request.args.connection or connections.current
    return None if target is None else connections.name_of(target)


def chosen(request: MagicRequest, query: str) -> str | None:
    """Return the connection for a query: the one it names, else the current one, unless it reads only local data."""
    connections = request.session.connections
    name = here(request)
    _open_named_in(request, query)
    if name is None or request.args.connection is not None or connections.takes_frames(name):
        return name
    local = _local_sources(request, query)
    if not local:
        return name
    there = {table["name"].casefold() for table in connections.tables(name)}
    both = [source for source in local if source.casefold() in there]
    if not both:
        return None
    request.note(
        f"{both[0]} is both a DataFrame and a table of {name}: this reads the table; duckdb:// reads the DataFrame"
    )
    return name


def named_first(request: MagicRequest, source: str) -> tuple[str | None, str]:
    """Return the connection that a source begins with, as in ``crm.contracts`` and ``crm SELECT …``, and the rest."""
    connections = request.session.connections
    match = re.fullmatch(r"(\w+)(?:\.|\s+)(\S.*)", source, re.DOTALL)
    if match is not None and (match[1] in connections.urls or connections.is_variable(match[1])):
        return connections.name_of(match[1]), match[2]
    _open_named_in(request, source)
    return None, source


def _open_named_in(request: MagicRequest, query: str) -> None:
    """Open the connections whose tables a query names, as in ``from crm.contracts``."""
    connections = request.session.connections
    with contextlib.suppress(SqlInvalid, SqlNotAllowed):
        for table in _names_in(request, query):
            first, dot, _ = table.partition(".")
            if dot and (first in connections.urls or connections.is_variable(first)):
                connections.name_of(first)


def _local_sources(request: MagicRequest, query: str) -> tuple[str, ...]:
    """Return the DataFrames, records and files that a query reads; nothing where it reads anything else."""
    session = request.session
    try:
        whole = session.saved_queries.expand(query, functools.partial(_names_in, request), session.frame_of)
        verdict = session.workbench.sql_session.check(whole, params=bound_values(request, whole))
    except NbtoolsError:
        return ()
    if not verdict.allowed and not verdict.files:
        return ()
    elsewhere = {"nbtools", *session.connections.urls}
    local = (name.partition(".")[0] in elsewhere or session.frame_of(name) is not None for name in verdict.tables)
    return (*verdict.tables, *verdict.files) if all(local) else ()


def tables_of(request: MagicRequest, query: str) -> tuple[str, ...]:
    """Return the tables that a query names."""
    options = {"connection": request.args.connection, "dialect": request.args.dialect}
    return _names_in(request, query, **options)


def _names_in(request: MagicRequest, query: str, **options: Any) -> tuple[str, ...]:
    check = request.session.workbench.sql_session.check
    tables: tuple[str, ...] = check(query, params=bound_values(request, query), **options).tables
    return tables


def bound_values(request: MagicRequest, query: str) -> dict[str, Any] | None:
    """Return the values to bind: those of --param, and the notebook's variables that the text names."""
    from nbtools.sql.parameters import placeholders

    explicit = dict(getattr(request.args, "param", ()))  # %explore takes none
    names = request.session.names
    filled = {name: names[name] for name in placeholders(query) if name in names and name not in explicit}
    return {**filled, **explicit} or None


def tables(request: MagicRequest) -> Table:
    """List what a query can read: tables of the connection, DataFrames, saved queries, files in the folder."""
    session = request.session
    name = here(request)

    def work() -> list[tuple[str, str, int | None, Any]]:
        there = session.connections.tables(name, fresh=True) if name is not None else ()
        counted = functools.partial(_count, session.workbench.sql_session, time.monotonic() + _COUNT_S)
        rows = list(_tables_there(request, name, there, counted)) if name is not None else []
        rows += _tables_elsewhere(request, name)
        rows += frame_rows(frames_in(session.names))
        saved = session.saved_queries
        rows += [(query.name, "saved query", None, f"reads {query.reads}") for query in saved]
        rows += [(record, "record", None, ()) for record in ("nbtools.memory", "nbtools.calls")]
        return rows + list(_files(session.workbench, counted))

    arguments = {"connection": name}
    rows, _ = request.perform("sql_tables", work, arguments=arguments, **ACTS["sql_tables"])
    return tables_table(
        rows, f"tables of {name}, and everything else that can be queried here" if name is not None else "tables"
    )


def _tables_there(
    request: MagicRequest, name: str, there: Sequence[Mapping[str, Any]], counted: Any
) -> Iterator[tuple[str, str, int | None, Any]]:
    from nbtools.sql.profile import quoting, source_of

    session = request.session.workbench.sql_session
    quote = quoting(session.dialect(name))
    for table in there:
        rows = counted(source_of(table["name"], quote), connection=name)
        yield table["name"], table["kind"], rows, table["columns"]


def _tables_elsewhere(request: MagicRequest, current: str | None) -> Iterator[tuple[str, str, int | None, Any]]:
    """Yield the tables of the other connections that are open, by the names that a query of files has for them."""
    connections = request.session.connections
    for other in request.session.workbench.sql_session.connections:
        with contextlib.suppress(NbtoolsError):  # it answers no more, which the next query of it says
            for table in () if other == current else connections.tables(other):
                is_name = other.isidentifier()
                yield (
                    f"{other}.{table['name']}" if is_name else table["name"],
                    table["kind"] if is_name else f"{table['kind']} of {mask_url(other)}",
                    None,
                    table["columns"],
                )


def _files(workbench: Any, counted: Any) -> Iterator[tuple[str, str, int | None, Any]]:
    from nbtools.sql.frames import EXCEL
    from nbtools.texts.sql_quotes import quote_text
    from nbtools.widgets.sources_at_hand import files_at_hand

    for path in map(Path, itertools.islice(files_at_hand(workbench.roots), _MOST_FILES)):
        source = quote_text(str(path))
        is_workbook, is_large = path.suffix.lower() in EXCEL, path.stat().st_size > _COUNTED_BYTES
        columns = () if is_workbook else counted(source, columns=True) or ()
        # A Parquet file tells its rows without being read.
        rows = None if is_workbook or (is_large and path.suffix != ".parquet") else counted(source)
        yield source, "file", rows, columns


def _count(session: Any, end: float, source: str, *, connection: str | None = None, columns: bool = False) -> Any:
    """Return the rows, or the columns, of a source; `None` where it is too slow or cannot be read."""
    seconds_left = end - time.monotonic()
    if seconds_left <= 0:
        return None
    text = f"SELECT * FROM {source} LIMIT 0" if columns else f"SELECT count(*) FROM {source}"
    try:
        result = session.query(text, connection=connection, timeout=seconds_left)
    except NbtoolsError:
        return None
    return list(zip(result.columns, result.types, strict=True)) if columns else result.to_rows()[0][0]
