"""The tool for read-only SQL."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from nbtools.contract.approval.label_rules import marks_of
from nbtools.contract.label import Label
from nbtools.contract.result import Output
from nbtools.contract.signature.parameters import AlsoCalled
from nbtools.contract.tool import READ_BY_MODELS, Context, Effects, tool
from nbtools.errors import NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.ground.paths import Roots, real_path
from nbtools.toolbox.result_types import QueryRows
from nbtools.toolbox.unseen import unseen_by

if TYPE_CHECKING:
    from nbtools.sql import SqlSession
    from nbtools.sql.results.result import FileNote, QueryResult

# A model reads the text, a program the rows: what is larger belongs in a file or in a narrower question.
_MAX_BYTES = 4_000_000
_READS = Effects(read_only=True)
ACTS: Mapping[str, Mapping[str, Any]] = {
    "sql_query": {"effects": _READS},
    "sql_tables": {"effects": _READS, "origins": ("sql_query",)},
    "sql_profile": {"effects": _READS, "origins": ("sql_query",)},
    # Rows go to a file that the caller has open, to a new one, or to one that may be replaced.
    "sql_export": {"effects": _READS, "origins": ("sql_query",)},
    "sql_export new": {"effects": Effects(), "origins": ("sql_query",)},
    "sql_export to": {"effects": Effects(destructive=True), "origins": ("sql_query",)},
}
"""What people do with SQL, keyed by the name under which it is judged: its effects, and whose rules apply to it."""


def _effects_of_query(values: Mapping[str, Any], ctx: Context) -> Effects:
    # Files of the web are named by their URLs, which can carry values away.
    return Effects(read_only=True, idempotent=True, open_world="://" in values["query"])


def _read_by_query(values: Mapping[str, Any]) -> str:
    """Return what a query reads besides files."""
    from nbtools.sql.verdict.policy import Policy

    if values["connection"] is not None:
        return "a database"
    # Of all folders: whether it may read a file is not the question.
    verdict = Policy(allowed_paths=[Path("/")]).check(values["query"])
    return unseen_by(values["query"]) or ", ".join(verdict.tables) if verdict.allowed else "what the query names"


@tool(
    title="Query with SQL",
    read_only=True,
    idempotent=True,
    effects_of=_effects_of_query,
    reads=_read_by_query,
    examples=(
        {"query": "select 6 * 7 as answer"},
        {"query": "select species, count(*) as n from 'penguins.csv' group by species order by n desc", "limit": 10},
        {"query": "select * from 'penguins.csv' where island = :island", "params": {"island": "Dream"}},
    ),
)
async def sql_query(
    query: str,
    connection: Annotated[str | None, AlsoCalled("connection_string")] = None,
    limit: Annotated[int, Ge(0)] | None = None,
    params: dict[str, Any] | None = None,
    *,
    ctx: Context,
) -> Output[QueryRows]:
    """Query data with SQL (read-only).

    FROM takes DataFrames of the notebook by name, CSV, Parquet, JSON and Excel files below the allowed folders
    ('data/x.csv'), nbtools.memory and nbtools.calls. Returns columns, types, rows (each a list), row_count, truncated
    and, if there is anything to say about the files, notes; for a model, also what a datapackage.yaml beside them says
    about the columns. A model sees its own memory and calls, and gets at most 10,000 rows (or limit) and 4 MB:
    truncated says that there are more. A person gets all rows, or an error if they exceed 4 MB. It may take up to 30 s
    unless the settings say otherwise.

    Parameters
    ----------
    query
        One SELECT (or DESCRIBE, SUMMARIZE, SHOW, EXPLAIN) in DuckDB's dialect, or in that of the connection.
    connection
        Name of a configured database, or its URL; null asks the local engine.
    limit
        At most this many rows; null is all for a person, 10,000 for a model.
    params
        Values for :name or $name in the query, by name; they are bound, never pasted.

    Raises
    ------
    SqlNotAllowed
        The statement would write, or would read something that it may not.
    SqlInvalid
        It cannot be understood; the message points to the place.
    SqlFailed, CallTimeout, LimitExceeded
        It failed while it ran.
    """
    if "nbtools.sql.session" not in sys.modules:  # a second of imports, which would hold up every other call
        await in_thread(importlib.import_module, "nbtools.sql.session")
    from nbtools.sql import SqlSession

    session = ctx.use(SqlSession)
    how: dict[str, Any] = {"connection": connection, "params": params, "isolated": ctx.by_model}
    if ctx.caller in READ_BY_MODELS:
        # Before it runs: an error, too, may tell what a file holds.
        await in_thread(_see_files, ctx, session, query, how)
    result = await session.aquery(
        query,
        **how,
        limit=limit,
        whole=not ctx.by_model,
        max_bytes=_MAX_BYTES,
        frames=_own_records(ctx) if ctx.by_model else None,
        on_progress=lambda share: ctx.emit("progress", f"{share:.0%}", {"share": share}),
    )
    notes = list(result.notes)
    if ctx.caller in READ_BY_MODELS:
        notes += await in_thread(_notes_of_dictionaries, ctx, result)
    data = dataclasses.replace(result, notes=tuple(notes)).to_dict()
    return Output(data=data, text="\n".join([result.text(), *map(str, notes)]))


def _see_files(ctx: Context, session: SqlSession, query: str, how: Mapping[str, Any]) -> None:
    """Let whatever comes of a query be strangers' where a file is that it names."""
    marks = marks_of(ctx.services)
    if not marks.has_any():
        return
    paths: list[str] = []
    with contextlib.suppress(NbtoolsError):  # what is refused reads nothing
        paths += session.files_read(session.check(query, **how), how["connection"])
    for name in tuple(paths):
        with contextlib.suppress(NbtoolsError):  # databases may lie outside
            paths += ctx.use(Roots).matching(name)
    if any(marks.knows_file(Path(path)) for path in paths):
        ctx.seen.append(Label(strangers=True))


def _notes_of_dictionaries(ctx: Context, result: QueryResult) -> list[FileNote]:
    """Return what dictionaries beside the files that a query read say of its columns, as a model may read them."""
    from nbtools.sql.files.dictionary import file_in, meanings_of
    from nbtools.sql.results.result import FileNote

    marks, roots = marks_of(ctx.services), ctx.use(Roots)
    notes = []
    for file in result.files:
        with contextlib.suppress(NbtoolsError):  # exploring the file says what is wrong with its dictionary
            path = Path(next(iter(roots.matching(file)), file))
            dictionary = file_in(path.parent)
            if dictionary is None or not roots.allows(dictionary) or marks.knows_file(real_path(dictionary)):
                continue
            meanings = meanings_of(path)
            columns = [f"{name} is {meanings[name]!r}" for name in result.columns if name in meanings]
            notes += [FileNote(file, f"according to {dictionary.name}, {', '.join(columns)}")] if columns else []
    return notes


def _own_records(ctx: Context) -> dict[str, Callable[[], Any]]:
    """Return what a model sees of the toolkit's records: its own memory, and the calls of its own run."""
    from nbtools.contract.record import CallRecorder, name_of
    from nbtools.memory import AgentMemory

    def memory() -> Any:
        if marks_of(ctx.services).has_any():  # the query may look at every note
            ctx.seen.append(Label(strangers=True))
        return ctx.use(AgentMemory).table(own=True)

    def calls() -> Any:
        ctx.use(CallRecorder).flush()
        calls = ctx.use(AgentMemory).snapshot("calls", run_id=ctx.call.run_id)
        # A person's calls of the same notebook belong to the same run.
        mine = calls["caller"] == ctx.caller
        if "session" in calls:
            mine &= calls["session"].fillna("") == name_of(ctx.call.session)
        return calls[mine]

    return {"nbtools.memory": memory, "nbtools.calls": calls}


TOOLS = (sql_query,)
"""The tools of this module."""
