"""What can be explored: what a person named, as a query, and what there is to choose from."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nbtools.errors import InvalidArguments, NbtoolsError, SqlInvalid
from nbtools.ground.paths import Roots
from nbtools.sql.engines.errors import from_position
from nbtools.sql.engines.urls import mask_url
from nbtools.sql.frames import FILES, frame_columns, is_frame
from nbtools.sql.pages.comparing import ComparedTable, comparison, labels_of
from nbtools.sql.pages.shape import Shape
from nbtools.sql.results.texts import type_name
from nbtools.sql.suggestions import is_word_of_sql
from nbtools.sql.verdict.verdict import line_and_column
from nbtools.texts.sql_quotes import quote_identifier

_QUERY = re.compile(r"\s*(?:(?:select|from|with|pivot|unpivot|values|describe|summarize)[\s('\"*]|\()", re.IGNORECASE)
_CALL = re.compile(r"\s*\w+\s*\(.*\)\s*", re.DOTALL)
_UNKNOWN = re.compile(r"(?:Referenced column \"|there is no column ')([^\"']+)")
_MOST = 200
_TOLD = 8  # tables of a database
_NOT_DATA = (".", "__", "node_modules")


def shape_of(
    source: Any, lookup: Callable[[str], Any] | None, dialect: str | None = None
) -> tuple[Shape, Mapping[str, Any] | None]:
    """Return the query for what a person named, and the frame that it names, where they gave one.

    Parameters
    ----------
    source
        A file, a function that reads one, the name of a frame, a SELECT, or a frame; on a connection a table or a
        SELECT.
    lookup
        Returns the notebook's variable of a name.
    dialect
        Of the connection; `None` where there is none.
    """
    if not isinstance(source, str | os.PathLike):
        name = _name_of(source)
        return Shape(source=quote_identifier(name)), {name: source}
    text = os.fspath(source)
    # What is named is that file, whatever else its name could mean.
    if dialect is None and os.path.isfile(text):  # noqa: PTH113 - may be no path
        return Shape.of_file(text), None
    if dialect is not None:
        query = text if _QUERY.match(text) else f"SELECT * FROM {text}"
        return Shape.from_text(query, dialect, lambda _: False), None
    if is_written(source):
        return Shape.from_text(text), None
    if isinstance(source, str) and _CALL.fullmatch(text):
        return Shape.from_text(f"FROM {text}"), None
    if isinstance(source, str) and lookup is not None and is_frame(lookup(text)):
        return Shape(source=quote_identifier(text)), None
    return Shape.of_file(text), None


def query_of(
    source: Any,
    lookup: Callable[[str], Any] | None,
    session: Any,
    connection: str | None,
    other: Any = None,
    key: str | Sequence[str] = (),
) -> tuple[Shape, Mapping[str, Any] | None]:
    """Return the query for what a person wants to see, and the frames that it names, where they gave some.

    Parameters
    ----------
    source
        A file, a function that reads one, the name of a frame, a SELECT, or a frame; on a connection a table or a
        SELECT.
    lookup
        Returns the notebook's variable of a name; `None` where there is no notebook.
    session
        Knows the dialect of the connection, and is asked about the tables that are compared.
    connection
        A name or a URL; `None` for files and frames.
    other
        A second source, which the first is compared with; `None` compares nothing.
    key
        Names of the columns that match the rows of both; empty where nothing is compared.

    Raises
    ------
    InvalidArguments
        The URL has a password, or the sources cannot be compared.
    """
    if connection is not None:
        check_connection(connection)
    dialect = None if connection is None else session.dialect(connection)
    if other is None:
        return shape_of(source, lookup, dialect)
    try:
        return compared(source, other, (key,) if isinstance(key, str) else tuple(key), lookup, session.query, dialect)
    except SqlInvalid as exc:
        place_in(exc, session, source)
        raise


def place_in(error: NbtoolsError, session: Any, source: Any) -> None:
    """Let an error point into the text that a person wrote, or into none; of a database file, say what explores it."""
    if is_written(source):
        # Its conditions are asked for apart from the rest, so the engine knows no place.
        name = _UNKNOWN.search(error.message) if isinstance(error, SqlInvalid) and "line" not in error.data else None
        match = name and re.search(rf"(?<!\w){re.escape(name[1])}(?!\w)", source, re.IGNORECASE)
        if match:
            line, column = line_and_column(source, match.start())
            there = from_position(SqlInvalid, error.message, source, line, column, len(match[0]))
            error.message, error.data = there.message, {**error.data, **there.data}
        return
    error.message = re.sub(r"^line \d+: ", "", error.message.partition("\n    ")[0])
    url = f"{'duckdb' if str(source).lower().endswith('duckdb') else 'sqlite'}:///{source}"
    if "is a database file" in error.message:
        error.message = f"{str(source)!r} is a database file."
        tables: list[str] = []
        with contextlib.suppress(NbtoolsError):
            tables = [str(one["name"]) for one in session.catalog(url)]
        more = f"; its tables: {', '.join(tables[:_TOLD])}{', …' if len(tables) > _TOLD else ''}." if tables else ""
        table = tables[0] if tables else "TABLE"
        # A word of SQL's own is quoted too.
        table = table if table.isidentifier() and not is_word_of_sql(table) else shlex.quote(quote_identifier(table))
        error.hint = f"%explore --connection {shlex.quote(url)} {table}{more}"


def is_written(source: Any) -> bool:
    """Tell whether a person wrote a query, and did not name what is to be seen."""
    return isinstance(source, str) and _QUERY.match(source) is not None


def compared(
    source: Any,
    other: Any,
    keys: Sequence[str],
    lookup: Callable[[str], Any] | None,
    query: Callable[..., Any],
    dialect: str | None = None,
) -> tuple[Shape, Mapping[str, Any] | None]:
    """Return the query of the rows in which two sources differ, and the frames that it names, where they are given.

    Parameters
    ----------
    source
        The one source, as for `shape_of`.
    other
        The source that it is compared with, as for `shape_of`.
    keys
        The columns that match their rows.
    lookup
        Returns the notebook's variable of a name.
    query
        Asks a query, given its text and ``frames``.
    dialect
        Of a connection, whose tables are not compared.

    Raises
    ------
    InvalidArguments
        A key is not there or has types that do not match, or they are tables of another database.
    """
    if dialect is not None:
        hint = "Fetch their rows first: %nbsql CONNECTION -o name SELECT …"
        raise InvalidArguments("tables of another database cannot be compared here.", hint=hint)
    shapes = [shape_of(each, lookup) for each in (source, other)]
    own = [frames for _, frames in shapes if frames is not None]
    if len(own) == 2 and own[0].keys() == own[1].keys():
        shapes = [(Shape(source='"a"'), {"a": source}), (Shape(source='"b"'), {"b": other})]
        own = [frames for _, frames in shapes if frames is not None]
    frames = {name: frame for each in own for name, frame in each.items()} or None
    tables = []
    labels = labels_of(shapes[0][0], shapes[1][0])
    for (shape, _), label in zip(shapes, labels, strict=True):
        relation = f"({shape.to_text()})" if shape.conditions or shape.columns else shape.relation
        head = query(f"SELECT * FROM {relation} LIMIT 0", frames=frames)
        types = dict(zip(head.columns, head.types, strict=True))
        tables.append(ComparedTable(label=label, relation=relation, types=types))
    text = comparison(tables[0], tables[1], keys)
    for key in keys:
        either = ", ".join(f"CAST(NULL AS {table.types[key]})" for table in tables)
        try:
            query(f"SELECT coalesce({either})")
        except SqlInvalid:
            where = " and ".join(f"{type_name(table.types[key])} in {table.label}" for table in tables)
            raise InvalidArguments(f"{key} is {where}.", hint="Cast one of them.") from None
    return Shape(source=f"({text})", alias="compared"), frames


def check_connection(connection: str) -> None:
    """Refuse a URL with a password: what is explored is kept in the notebook.

    Raises
    ------
    InvalidArguments
        It has one.
    """
    if mask_url(connection) != connection:
        raise InvalidArguments(
            f"the URL {mask_url(connection)!r} has a password, which the notebook would keep.",
            hint='Give it a name in nbtools.toml, connections = { shop = "postgresql://me:${PGPASSWORD}@host/db" }.',
        )


def _name_of(frame: Any) -> str:
    """Return the notebook's name of a frame, so that its SQL can be run there."""
    names = (name for name, value in _variables().items() if value is frame and not name.startswith("_"))
    return next(names, "frame")


def _variables() -> dict[str, Any]:
    # Nothing is imported to look: without IPython there is no notebook.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return {} if shell is None else dict(shell.user_ns)


def sources_at_hand(roots: Roots, frames: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return frames of the notebook and files below the allowed folders.

    Returns
    -------
    list
        ``name``, as SQL writes it, and ``columns``, names with types; `None` for a file, which is not opened.
    """
    named = {name: value for name, value in _variables().items() if not name.startswith("_") and is_frame(value)}
    named |= frames or {}
    sources = [
        {
            "name": quote_identifier(name),
            "columns": [(str(each), type_name(kind)) for each, kind in frame_columns(frame)],
        }
        for name, frame in sorted(named.items())
    ]
    files = itertools.islice(files_at_hand(roots), max(0, _MOST - len(sources)))
    return [*sources, *({"name": Shape.of_file(path).source, "columns": None} for path in files)]


def files_at_hand(roots: Roots) -> Iterator[str]:
    """Yield the files of the allowed folders that people query and two levels of folders below, by relative paths."""
    start = roots.start()
    places = [start] if roots.allows(start) else roots.roots
    for folder, folders, names in itertools.chain.from_iterable(map(os.walk, places)):
        below = os.path.relpath(folder, start)
        is_deep = below.count(os.sep) > 0
        folders[:] = [] if is_deep else sorted(each for each in folders if not each.startswith(_NOT_DATA))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), start)  # noqa: PTH118 - a walk has texts
            if name.lower().endswith(FILES) and roots.allows(path):
                yield path
