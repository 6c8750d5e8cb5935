"""``%explore``: a file, a frame or a query to look at, sort and filter."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.jupyter.display.blocks import Listing
from nbtools.jupyter.line.arguments import declared_usage
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.jupyter.magics.connections import named_first
from nbtools.toolbox.sql_tools import ACTS

_usage = declared_usage(__file__)
_CLAUSE = re.compile(r"[^\s'\"]+\s+(?:where|order by|group by|limit)\s", re.IGNORECASE)
_QUERY = re.compile(r"\(|select\b|from\b|with\b", re.IGNORECASE)


def _run(request: MagicRequest) -> Any:
    text = request.text
    if not os.path.exists(text):  # noqa: PTH110 - of a long query too
        text = request.without_options(_usage("%explore", False).finish(), is_query=_QUERY.match(text) is not None)
    source = f"{text}\n{request.cell or ''}".strip()
    if not source:
        hint = "Name a file, a DataFrame, or write a SELECT."
        if request.args.connection:
            hint = f"Name a table of the connection; %nbsql {request.args.connection} --tables lists them."
        raise InvalidArguments("there is nothing to explore.", hint=hint)
    if _CLAUSE.match(source) and not _QUERY.match(source):
        hint = f"A query begins with FROM or SELECT: %explore FROM {source}"
        raise InvalidArguments("this is neither a query nor the name of a file or DataFrame.", hint=hint)
    args = request.args
    if args.help:
        print(_usage("%explore", False).finish().format_help())  # noqa: T201 - help is for the cell
        return None
    # A name with spaces: of a file, or, in the double quotes of SQL, of a table. Quotes inside are doubled, as in SQL.
    if source[0] == source[-1] and source[0] in ("'" if args.connection else "'\""):
        source = source[1:-1].replace(source[0] * 2, source[0])
    if args.describe:
        return _draft(request, source)
    connection = None if args.connection is None else request.session.connections.name_of(args.connection)
    if connection is None and not os.path.exists(source):  # noqa: PTH110 - same
        connection, source = named_first(request, source)
    explorer = request.session.workbench.explore(
        source,
        connection=connection,
        compare=args.compare,
        key=[key for key in re.split(r"[,\s]+", args.key or "") if key] if args.compare else (),
        caller="magic",
    )
    # With -o too it is seen: what is done to it by hand is what the name's data() has.
    request.bind(explorer)
    request.out = None
    return explorer


def _draft(request: MagicRequest, source: str) -> Listing:
    """Write a data dictionary beside a file; where there is one, show what would be added."""
    from nbtools.sql.files.dictionary import NAME, draft, file_in, key_candidates, meanings_of
    from nbtools.texts.sql_quotes import quote_identifier, quote_text

    ask, file = request.session.workbench.sql, Path(source)
    relation = quote_text(source)
    head = request.session.workbench.sql_session.query(f"SELECT * FROM {relation}", limit=0)
    candidates = key_candidates(head.columns)
    counted = ", ".join(f"count(DISTINCT {quote_identifier(name)}) = count(*)" for name in candidates)
    unique = dict(zip(candidates, ask(f"SELECT {counted} FROM {relation}").iloc[0].tolist(), strict=True))
    text = draft(file, head.columns, head.types, unique)
    target = file_in(file.parent) or file.parent / NAME
    if meanings_of(file):
        raise InvalidArguments(f"{target} describes {file.name} already.", hint="Edit it in a text editor.")
    if target.exists():
        return Listing(text=f"{target} exists; add to its resources:\n\n{text.partition(chr(10))[2]}")
    work = functools.partial(_write_new, target, text)
    request.perform("file_write", work, arguments={"path": str(target), "content": text}, **ACTS["sql_export new"])
    return Listing(text=f"{target} describes the {len(head.columns)} columns of {file.name}: add their meanings there")


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


MAGIC = Magic(usage=_usage, run=_run, free_from=lambda _, parser, line: parser.free_from(line))
