"""JSON: the types of a file's values, decided by all of its objects, and whole numbers that a float would round."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

from nbtools.sql.files.calls import FileCall
from nbtools.sql.files.cell_texts import Ask, CallReading, described
from nbtools.sql.files.headings import may_be_renamed
from nbtools.texts.sql_quotes import quote_identifier, quote_text

# Options by which a person sets the types, or how much of the files decides them.
_DECIDED = frozenset({"auto_detect", "columns", "sample_size"})
_LONG = r"(?:^|[:\[,])\s*-?\d{16,}\s*(?:$|[,\]}])"


def read_objects(call: FileCall, ask: Ask) -> CallReading:
    """Return how a call of `read_json` is to be read, so that no value is changed.

    Parameters
    ----------
    call
        The call.
    ask
        Runs a query and returns its rows.
    """
    if not _DECIDED.isdisjoint(call.options):
        return CallReading()
    whole = described(call, ask, {"sample_size": "-1"})
    types = _exact(call, whole, ask)
    rounded = (name for name in types if types[name] != whole[name])
    mixed = (name for name, kind in whole.items() if kind == "JSON")
    notes = (
        *(f"{name}: read as {types[name]}, because a float would round its whole numbers" for name in rounded),
        *(f"{name}: as JSON; {quote_identifier(name)}->>'$' gives each value as text" for name in mixed),
        *_unread(call, ask),
    )
    if types == whole and not _is_told_by_types(call, types):
        is_guessed = types == described(call, ask, {})
        return CallReading(text=None if is_guessed else call.text({"sample_size": "-1"}), notes=notes)
    # Once types are given, the file is not scanned again.
    struct = ", ".join(f"{quote_text(name)}: {quote_text(kind)}" for name, kind in types.items())
    return CallReading(text=call.text({"columns": f"{{{struct}}}"}), notes=notes)


def broken_line(path: Path, counted: int) -> int:
    """Return the first line that is not JSON: the one that DuckDB reports or the one before.

    DuckDB has counted the line already when it finds what is wrong in it, and adds one.
    """
    if counted < 2:  # there is none before it
        return counted
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            json.loads(next(itertools.islice(file, counted - 2, None), b""))
        except ValueError:
            return counted - 1
    return counted


def _unread(call: FileCall, ask: Ask) -> tuple[str, ...]:
    """Return how many lines are rows of missing values because they hold no object, when a call ignores errors."""
    if "ignore_errors" not in call.options or "format" in call.options:
        return ()
    source = call.text({"columns": "{'line': 'JSON'}", "records": "false"})
    count = ask(f"SELECT count(*) FILTER (WHERE line IS NULL) FROM {source}")[0][0]
    of = "1 line that holds" if count == 1 else f"{count:,} lines that hold"
    return (f"{of} no object read as missing values",) if count else ()


def _is_told_by_types(call: FileCall, types: Mapping[str, str]) -> bool:
    """Tell whether names and types alone say how files are read: in one form of moments, each under its own name."""
    of_path = "filename" in call.options or any(re.search(r"[*?\[=]", path) for path in call.paths)
    has_form = any(re.search("DATE|TIME", kind) for kind in types.values())
    return not (of_path or has_form or [*types] == ["json"] or may_be_renamed([*types]))


def _exact(call: FileCall, types: dict[str, str], ask: Ask) -> dict[str, str]:
    """Return types without floats for whole numbers that have more digits than one."""
    floats = [name for name, kind in types.items() if "DOUBLE" in kind]
    if not floats:
        return types
    struct = ", ".join(f"{quote_text(name)}: 'JSON'" for name in floats)
    source = f"FROM {call.text({'columns': f'{{{struct}}}'})}"
    texts = [f"CAST({quote_identifier(name)} AS VARCHAR)" for name in floats]
    # Asked of all columns together first: few files give a reason to go on.
    checks = (f"bool_or(length({text}) > 15 AND regexp_matches({text}, '{_LONG}'))" for text in texts)
    types_of = dict(types)
    for name, text, is_long in zip(floats, texts, ask(f"SELECT {', '.join(checks)} {source}")[0], strict=True):
        if is_long:
            is_whole = (
                rf"{text} = 'null' OR regexp_full_match({text}, '-?\d+') AND TRY_CAST({text} AS HUGEINT) IS NOT NULL"
            )
            whole = types[name] == "DOUBLE" and ask(f"SELECT bool_and({is_whole}) {source}")[0][0]
            types_of[name] = "HUGEINT" if whole else "JSON"
    return types_of
