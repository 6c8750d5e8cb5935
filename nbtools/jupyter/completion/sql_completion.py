"""Completion inside SQL: tables, columns, files, keywords, and the functions people use most."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from nbtools.errors import NbtoolsError
from nbtools.jupyter.completion.filenames import matching_files
from nbtools.jupyter.display.tables import frames_in
from nbtools.jupyter.session import NotebookSession
from nbtools.texts.parsing import word_lists
from nbtools.texts.sql_quotes import quote_identifier

T = TypeVar("T")

_NAME = r'(?:"(?:[^"]|"")+"|`[^`]+`|\w+)'
_FRAGMENT = re.compile(rf'(?P<before>(?:{_NAME}\.)*)(?P<last>"[^"\n]*|`[^`\n]*|\w*)\Z')
_OPEN_QUOTE = re.compile(r"'([^'\n]*)\Z")
_AFTER_TABLE = re.compile(r"\b(from|join|describe|summarize|table)\s+\Z", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<![\w:])[:$]([A-Za-z_]\w*)?\Z")
_PLAIN = re.compile(r"[^\W\d]\w*")
_RECORDS: dict[str, list[str]] = {"nbtools.memory": [], "nbtools.calls": []}
_LISTS = word_lists(__file__, "sql_completion.words")
_RESERVED = frozenset(_LISTS["reserved"])
# A table or file after FROM, JOIN or a comma, and its alias. What follows another comma is not a name of a table.
_SOURCES = re.compile(
    r"(?:\b(?:from|join)\b|,)\s*"
    rf"(?:(?:read_\w+\s*\(\s*)?'(?P<file>[^'\n]+)'(?:[^()'\n]*\))?|(?P<table>{_NAME}(?:\.{_NAME})*))"
    rf"(?:\s+(?:as\s+)?(?!(?:{'|'.join(sorted(_RESERVED))})\b)(?P<alias>{_NAME}))?",
    re.IGNORECASE,
)
_KEYWORDS = _LISTS["keywords"]
_FUNCTIONS = [f"{name}(" for name in _LISTS["functions"]]


def collect_within(timeout: float, source: Callable[[], Iterable[T]]) -> list[T]:
    """Return what a source returns within its seconds; nothing when it is slower or fails.

    A source that is late goes on in its thread, so the next question finds it warm.
    """
    values: list[T] = []

    def ask() -> None:
        # An editor must never show an error for a completion.
        with contextlib.suppress(Exception):
            values.extend(source())

    thread = threading.Thread(target=ask, name="nbtools-completion", daemon=True)
    thread.start()
    thread.join(timeout)
    return list(values)


def complete_query(
    session: NotebookSession, text: str, whole: str, connection: str | None = None
) -> tuple[str, list[str]]:
    """Return the fragment at the end of a query and what it may become.

    Parameters
    ----------
    session
        The session of the magics.
    text
        The SQL up to the cursor.
    whole
        All of it: tables are often named behind the columns.
    connection
        The database that is asked; `None` for frames and files.
    """
    open_quote = _OPEN_QUOTE.search(text)
    # With an even number all quotes are closed, and what stands behind the last one is outside of a text.
    if open_quote and text.count("'") % 2:
        return open_quote[1], matching_files(open_quote[1])
    namespace = session.shell.user_ns
    if parameter := _PARAMETER.search(text):
        return parameter[1] or "", sorted(name for name in namespace if not name.startswith("_"))
    match = _FRAGMENT.search(text)
    before, fragment = (match["before"], match[0]) if match else ("", "")
    quote = _identifier_writer(session, connection)
    columns = _columns_of_tables(session, connection) if connection is not None else {}
    named_elsewhere = connection not in {None, session.connections.current}
    if not named_elsewhere:
        # DataFrames and saved queries are read whatever connection is current.
        columns = {**_columns_of_frames(session), **_columns_of_saved(session, whole, connection), **columns}
    tables = [".".join(map(quote, name.split("."))) for name in columns]
    if _AFTER_TABLE.search(text[: len(text) - len(fragment)]):
        return fragment, tables
    named = _columns_by_name(
        session, whole, columns if named_elsewhere else {**columns, **_columns_of_files(session, whole)}
    )
    if before:
        return fragment, [f"{before}{quote(name)}" for name in named.get(_unquote(before[:-1]).casefold(), ())] + tables
    names = sorted({name for some_columns in named.values() for name in some_columns})
    return fragment, [*map(quote, names), *tables, *_match_case(_KEYWORDS, fragment), *_FUNCTIONS]


def _columns_of_frames(session: NotebookSession) -> dict[str, list[str]]:
    """Return the columns of the notebook's frames, and the records of the toolkit."""
    frames = frames_in(session.shell.user_ns)
    if not frames:
        return dict(_RECORDS)
    from nbtools.sql.frames import frame_columns

    return {name: [column for column, _ in frame_columns(frame)] for name, frame in frames.items()} | _RECORDS


def _columns_of_tables(session: NotebookSession, connection: str) -> dict[str, list[str]]:
    """Return the tables of a database that was asked before; the first question is not put by a completion."""
    sql = session.opened("sql_session")
    ask, timeout = session.connections.tables, session.completion_timeout
    tables = [] if sql is None else collect_within(timeout, lambda: ask(connection))
    return {table["name"]: [name for name, _ in table["columns"]] for table in tables}


def _columns_of_saved(session: NotebookSession, query: str, connection: str | None) -> dict[str, list[str]]:
    """Return the saved queries, and the columns of those that a query names."""
    saved, folded = session.saved_queries, query.casefold()
    by_query: dict[str, list[str]] = {}
    for saved_query in saved:

        def columns(text: str = saved_query.sql) -> tuple[str, ...]:
            sql = session.workbench.sql_session
            text = saved.expand(text, lambda part: sql.check(part, connection=connection).tables)
            names: tuple[str, ...] = sql.query(text, connection=connection, limit=0).columns
            return names

        named = saved_query.name.casefold() in folded
        by_query[saved_query.name] = collect_within(session.completion_timeout, columns) if named else []
    return by_query


def _columns_of_files(session: NotebookSession, query: str) -> dict[str, list[str]]:
    """Return the columns of the files that a query names, those that may be read."""
    files = {match["file"] for match in _SOURCES.finditer(query) if match["file"]}

    from nbtools.sql.files.dictionary import meanings_of

    def columns(file: str) -> tuple[str, ...]:
        path, cache = Path(file).absolute(), session.file_columns
        status = path.stat() if path.is_file() else None  # a pattern names several files
        mark = (str(path), status.st_mtime_ns, status.st_size) if status is not None else None
        # A large file outlasts the wait; what was found too late is there for the next question.
        if mark is None or mark not in cache:
            names = session.workbench.sql_session.query(f"select * from '{file}' limit 0").columns
            if mark is None:
                return names
            cache[mark] = names
        with contextlib.suppress(NbtoolsError):  # exploring the file says what is wrong with its dictionary
            session.column_meanings |= meanings_of(path) if session.workbench.roots.allows(path) else {}
        return cache[mark]

    return {file: collect_within(session.completion_timeout, lambda file=file: columns(file)) for file in files}  # type: ignore[misc]  # mypy infers no lambda with a default


def _columns_by_name(session: NotebookSession, query: str, by_table: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the columns of what the query names, under its name and its alias in lower case."""
    folded = {name.casefold(): columns for name, columns in by_table.items()}
    named: dict[str, list[str]] = {}
    for match in _SOURCES.finditer(query):
        name = match["file"] or _unquote(match["table"])
        columns = folded.get(name.casefold())
        if columns is None:
            continue
        # A file is called by its name without the suffix.
        named[Path(name).stem.casefold() if match["file"] else name.casefold()] = columns
        if match["alias"]:
            named[_unquote(match["alias"]).casefold()] = columns
    return named


def _unquote(name: str) -> str:
    """Return a name as the database has it, without quotes."""
    return ".".join(part[1:-1].replace('""', '"') if part[0] in '"`' else part for part in re.findall(_NAME, name))


def _identifier_writer(session: NotebookSession, connection: str | None) -> Callable[[str], str]:
    """Return what writes a name for a connection, in quotes where it needs them."""
    url = session.connections.urls.get(connection, connection) if connection else "duckdb:"
    kind = str(url).partition(":")[0].partition("+")[0].lower()

    def write(name: str) -> str:
        # PostgreSQL folds what stands without quotes to lower case.
        is_bare = _PLAIN.fullmatch(name) and not (kind in {"postgresql", "postgres"} and name != name.lower())
        return name if is_bare and name.casefold() not in _RESERVED else quote_identifier(name, kind)

    return write


def _match_case(words: Iterable[str], fragment: str) -> list[str]:
    """Return the words in the case that is being written."""
    return [word.lower() if fragment[:1].islower() else word for word in words]
