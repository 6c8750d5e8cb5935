"""Completion inside our magics: subcommands, options, and what an argument may be.

What can be offered is read off the same parsers that read the line. No heavy module is imported to complete: sessions
are offered once kernels run, tables of a database once it was asked, and a source that does not answer within its
time is left out.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.jupyter.completion.filenames import matching_files, quote
from nbtools.jupyter.completion.sql_completion import collect_within, complete_query
from nbtools.jupyter.dispatch import Dispatcher
from nbtools.jupyter.display.tables import frames_in
from nbtools.jupyter.line.arguments import MagicParser
from nbtools.jupyter.line.line_parser import iter_words
from nbtools.jupyter.session import NotebookSession
from nbtools.kernels.languages import spellings

# Names of tools take importing our own shelf, once: a known amount of work, unlike a database that may be locked. A
# first Tab that offered nothing would let IPython offer all of its magics instead.
_TIMEOUTS_S: Mapping[str, float] = {"tool": 3.0}
_MOST = 200
_NO_QUOTES = str.maketrans("", "", "\"'`")


def complete(dispatcher: Dispatcher, stubs: Mapping[tuple[str, str], Any], context: Any) -> dict[str, Any]:
    """Return what IPython's completer wants from a matcher: a new value each time, because IPython writes into it.

    Parameters
    ----------
    dispatcher
        What reads the magics.
    stubs
        Our magics by kind and name.
    context
        IPython's `CompletionContext`.
    """
    cursor = _magic_at_cursor(stubs, context)
    if cursor is None:
        return {"completions": []}
    try:
        dispatcher.session.column_meanings.clear()
        fragment, offered = _complete_at(dispatcher, context, *cursor)
        return _as_completions(fragment, offered, dispatcher.session.column_meanings)
    except NbtoolsError:  # a tool that is not there, a setting that does not fit: running the line will say so
        return {"completions": []}


def _complete_at(
    dispatcher: Dispatcher, context: Any, stub: Any, is_cell: bool, line: str | None
) -> tuple[str, Iterable[str]]:
    """Return the word that is being written, and what it may become."""
    session = dispatcher.session
    if line is None:  # in the body of a cell magic
        if stub.entry.name != "sql":
            return "", ()
        body = _query_before_cursor(context)
        head, _, whole = context.full_text.partition("\n")
        return complete_query(session, body, whole, _connection_in(session, head))
    parser = dispatcher.parser(stub.entry, stub.__name__, cell=is_cell)
    if stub.entry.name == "sql":
        free_from = dispatcher.magic(stub.entry).free_from
        start = free_from(session, parser, line) if free_from else len(line)
        if start < len(line) and line[start:] != _fragment(line):
            connection = _connection_in(session, line[:start])
            return complete_query(session, line[start:], context.line_with_cursor, connection)
    return _fragment(line), _values_for(dispatcher, stub, parser, line)


def _magic_at_cursor(stubs: Mapping[tuple[str, str], Any], context: Any) -> tuple[Any, bool, str | None] | None:
    """Return our magic at the cursor, whether it is over a cell, and its line so far, `None` in the body."""
    before = context.text_until_cursor
    first = context.full_text.split("\n", 1)[0].lstrip()
    if first.startswith("%%"):
        name, _, _ = first[2:].partition(" ")
        stub = stubs.get(("cell", name.strip()))
        if stub is None:
            return None
        if context.cursor_line > 0:
            return stub, True, None
        head, gap, line = before.lstrip().partition(" ")
        return (stub, True, line) if gap and head == f"%%{stub.__name__}" else None
    _, mark, rest = before.partition("%")
    name, gap, line = rest.partition(" ")
    stub = stubs.get(("line", name)) if mark and gap else None
    return (stub, False, line) if stub is not None else None


def _connection_in(session: NotebookSession, line: str) -> str | None:
    """Return the connection that a line names, else the current one; `None` for DataFrames and files."""
    urls = session.connections.urls
    target = next((word for word in line.split() if "://" in word or word in urls), session.connections.current)
    return None if target is None or target.lower() == "duckdb://" else target


def _query_before_cursor(context: Any) -> str:
    lines = context.full_text.split("\n")[1 : context.cursor_line + 1]
    lines[-1] = lines[-1][: context.cursor_position]
    return "\n".join(lines)


def _fragment(line: str) -> str:
    """Return the word that is being written."""
    return "" if not line or line[-1].isspace() else line.rsplit(maxsplit=1)[-1]


def _as_completions(fragment: str, offered: Iterable[str], meanings: Mapping[str, str]) -> dict[str, Any]:
    from IPython.core.completer import SimpleCompletion

    # A name that needs quotes is found without them, too.
    begun = fragment.translate(_NO_QUOTES).casefold()
    texts = (text for text in dict.fromkeys(offered) if text.translate(_NO_QUOTES).casefold().startswith(begun))
    first = list(itertools.islice(texts, _MOST))
    # What a column means stands where an editor shows the type.
    kinds = (meanings.get(text.rpartition(".")[2].translate(_NO_QUOTES)) or "magic" for text in first)
    completions = [SimpleCompletion(text=text, type=kind) for text, kind in zip(first, kinds, strict=True)]
    # Python names make no sense in these lines; files are offered by us where they do.
    return {"completions": completions, "matched_fragment": fragment, "suppress": bool(first), "ordered": True}


def _values_for(dispatcher: Dispatcher, stub: Any, parser: MagicParser, line: str) -> Iterable[str]:
    fragment = _fragment(line)
    # Without the word that is being written: it is not an argument yet, and may end in the middle of a quote.
    words = _split_words(line[: len(line) - len(fragment)])
    if parser.leaves:
        if not words:
            return [*parser.leaves, *_options(parser)] if not fragment.startswith("-") else _options(parser)
        parser = parser.leaves.get(words[0], parser)
        words = words[1:]
    refine = dispatcher.magic(stub.entry).refine
    if refine is not None and words and not words[0].startswith("-"):
        parser = refine(dispatcher.session, parser.prog, words, True).finish()
    if fragment.startswith("-"):
        return _options(parser)
    action = parser.action_after(words)
    return [] if action is None else _values_of(dispatcher.session, fragment, parser, action)


def _split_words(line: str) -> list[Any]:
    try:
        return list(iter_words(line))
    except ValueError:  # an open quote
        return []


def _options(parser: MagicParser) -> list[str]:
    return sorted(parser.option_names())


def _values_of(session: NotebookSession, fragment: str, parser: MagicParser, action: argparse.Action) -> list[str]:
    """Return what an argument may be."""
    if action.choices:
        return [str(choice) for choice in action.choices]
    if values := parser.values.get(action.dest):
        return [quote(str(value)) for value in values]
    kind = parser.kinds.get(action.dest, "")
    if (source := _SOURCES.get(kind)) is None:
        return []
    return collect_within(_TIMEOUTS_S.get(kind, session.completion_timeout), lambda: source(session, fragment))


def _keys(session: NotebookSession, fragment: str) -> Iterable[str]:
    memory = session.memory_at_hand()
    return [] if memory is None else [quote(record.key) for record in memory.list(fragment, limit=_MOST)]


def _tags(session: NotebookSession, _: str) -> Iterable[str]:
    memory = session.memory_at_hand()
    return [] if memory is None else [quote(tag) for tag in memory.tags()]


def _sessions(session: NotebookSession, _: str) -> Iterable[str]:
    kernels = session.opened("kernels")
    return [] if kernels is None else [kernel["name"] for kernel in kernels.list()]


def _models(session: NotebookSession, _: str) -> Iterable[str]:
    from nbtools.agent.models.choice import PROVIDERS

    return [*session.workbench.config.models, *(name for each in PROVIDERS.values() for name in each.models)]


def _files(_: NotebookSession, fragment: str) -> Iterable[str]:
    return map(quote, matching_files(fragment.lstrip('"')))


# Where completions of an argument come from, by its kind.
_SOURCES: Mapping[str, Callable[[NotebookSession, str], Iterable[str]]] = {
    "connection": lambda session, _: sorted(session.connections.urls),
    "file": _files,
    "key": _keys,
    "language": lambda *_: sorted(spellings()),
    "model": _models,
    "run": lambda session, _: [run["run_id"][:8] for run in session.workbench.agent.runs()],
    "saved": lambda session, _: [query.name for query in session.saved_queries],
    "session": _sessions,
    "setting": lambda session, _: [row["setting"] for row in session.workbench.config.rows()],
    "source": lambda session, fragment: [*frames_in(session.shell.user_ns), *_files(session, fragment)],
    "table": lambda session, _: [*frames_in(session.shell.user_ns), "nbtools.memory", "nbtools.calls"],
    "tag": _tags,
    "tool": lambda session, _: session.tool_names(),
    "variable": lambda session, _: [name for name in list(session.shell.user_ns) if not name.startswith("_")],
}
