"""``%explore``: a file, a frame or a query to look at, sort and filter."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.jupyter.display.blocks import Listing
from nbtools.jupyter.line.arguments import MagicParser
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.toolbox.sql_tools import ACTS

# Options come first; these two read better behind the source.
_COMPARED = re.compile(r"""(.*?)\s+--compare\s+('[^']*'|"[^"]*"|\S+)\s+--key\s+(.+)""", re.DOTALL)
_BEHIND = re.compile(r"""[^'"]*?(\s(--?[a-z][\w-]*).*)""", re.DOTALL)
_CLAUSE = re.compile(r"[^\s'\"]+\s+(?:where|order by|group by|limit)\s", re.IGNORECASE)
_QUERY = re.compile(r"\(|select\b|from\b|with\b", re.IGNORECASE)


def _usage(prog: str, cell: bool) -> MagicParser:
    about = "Look at all rows of a file, a DataFrame of the notebook, or a SELECT: sort, filter, and see their SQL."
    form = "" if cell else " FILE|FRAME|TABLE|SELECT ..."
    parser = MagicParser(prog, description=about, usage=f"{prog} [options]{form}".replace("%", "%%"))
    parser.take("--connection", metavar="NAME", help="a database of the settings, or its URL", kind="connection")
    parser.take("--compare", metavar="SOURCE", help="another file, frame or SELECT: show the rows that differ")
    parser.take("--key", metavar="COLUMN,...", help="what tells which rows of the two belong together")
    parser.take(
        "--describe", action="store_true", help="draft a data dictionary of the file, datapackage.yaml beside it"
    )
    parser.epilog = (
        "Over a cell, the cell is the SELECT.\n"
        "-o NAME binds the explorer: NAME.data() is a DataFrame of the rows that it shows then, NAME.relation() a "
        "relation of DuckDB, NAME.sql their SQL. "
        "Below SQL, the rows are bound to a name as a DataFrame.\n"
        "A datapackage.yaml beside a file (Frictionless: resources with path and schema.fields, each with description "
        "and unit) says what its columns mean: in the header, in completion, and to an agent. --describe drafts one.\n"
        "%%explore a.csv --compare b.csv --key id shows the rows that are in one of them alone or have changed, cell "
        "beside cell.\n"
        "The menu of a column (the dots in its header, right click, Shift+F10) cleans it: to number or date, words to "
        "missing, trim, fill, cast, rename. The SQL says each step, Undo takes the last one back, and Insert as a "
        "cell writes it as SQL, pandas or polars.\n"
        "The same menu groups by the column, draws it, hides it, and lists all columns to find, show and order; over a "
        "cell it shows the row in full (Space) and copies what is chosen as Markdown. Group counts, adds up and takes "
        "means by up to three columns, and makes a column of each value of a fourth.\n"
    )
    return parser


def _run(request: MagicRequest) -> Any:
    source = f"{request.text}\n{request.cell or ''}".strip()
    if not source:
        raise InvalidArguments("there is nothing to explore.", hint="Name a file, a DataFrame, or write a SELECT.")
    if _CLAUSE.match(source) and not _QUERY.match(source):
        hint = f"A query begins with FROM or SELECT: %explore FROM {source}"
        raise InvalidArguments("this is neither a query nor the name of a file or DataFrame.", hint=hint)
    compared = _COMPARED.match(source)
    behind = None if compared or _QUERY.match(source) or Path(source).exists() else _BEHIND.match(source)
    if behind:
        parser = _usage("%explore", cell=False)
        if behind[2] not in {"-o", "--out", *parser.option_names()}:
            parser.refuse([behind[2]])
        hint = f"Write %explore {behind[1].strip()} {source[: behind.start(1)]}."
        raise InvalidArguments(f"the option {behind[2]} stands behind the source.", hint=hint)
    if source[0] == source[-1] and source[0] in "'\"":  # a name with spaces
        source = source[1:-1]
    args = request.args
    if args.describe:
        return _draft(request, source)
    source, other, keys = compared.groups() if compared else (source, args.compare, args.key or "")
    explorer = request.session.workbench.explore(
        source.strip("'\"") if compared else source,
        connection=args.connection,
        compare=other if other is None else other.strip("'\""),
        key=[key.strip("'\"") for key in re.split(r"[,\s]+", keys) if key],
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
        raise InvalidArguments(f"{target} describes {file.name} already.", hint="Change its words in an editor.")
    if target.exists():
        return Listing(text=f"{target} is there; add to its resources:\n\n{text.partition(chr(10))[2]}")
    work = functools.partial(_write_new, target, text)
    request.perform("file_write", work, arguments={"path": str(target), "content": text}, **ACTS["sql_export new"])
    return Listing(text=f"{target} describes the {len(head.columns)} columns of {file.name}: say there what they mean")


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


MAGIC = Magic(usage=_usage, run=_run, free_from=lambda _, parser, line: parser.free_from(line))
