"""The tool for SQL that can only read."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from nbtools.result import Output
from nbtools.tool import Context, tool

__all__ = ["TOOLS", "sql_query"]

# A model reads the text, a program the rows: what is larger belongs in a file or in a narrower question.
_MAX_BYTES = 4_000_000


@tool(
    title="Ask by SQL",
    read_only=True,
    idempotent=True,
    examples=(
        {"query": "select 6 * 7 as answer"},
        {"query": "select species, count(*) as n from 'penguins.csv' group by species order by n desc", "limit": 10},
    ),
)
async def sql_query(
    query: str, connection: str | None = None, limit: Annotated[int, Ge(0)] | None = None, *, ctx: Context
) -> Output:
    """Ask a question in SQL; only reading is possible.

    FROM takes DataFrames of the notebook by name, CSV, Parquet, JSON and Excel files below the allowed folders
    ('data/x.csv'), and nbtools.memory and nbtools.calls. Gives columns, types, rows, row_count and truncated. A model
    gets 10,000 rows (or limit) and 4 MB at the most, and truncated says that there are more; a person gets all rows, or
    an error when they are more than 4 MB. It may take 30 s unless the settings say otherwise.

    Parameters
    ----------
    query
        One SELECT (or DESCRIBE, SUMMARIZE, SHOW, EXPLAIN) in DuckDB's dialect, or in that of the connection.
    connection
        Name of a configured database, or its URL; null asks the local engine.
    limit
        Rows at the most; null for a person's all, and a model's 10,000.

    Raises
    ------
    SqlNotAllowed
        The statement would write, or reads what it may not.
    SqlInvalid
        It cannot be understood; the message points at the place.
    SqlFailed, CallTimeout, LimitExceeded
        It failed while it ran.
    """
    from nbtools.sql import SqlSession

    result = await ctx.use(SqlSession).aquery(
        query,
        connection=connection,
        limit=limit,
        isolated=ctx.by_model,
        whole=not ctx.by_model,
        max_bytes=_MAX_BYTES,
        on_progress=lambda share: ctx.emit("progress", f"{share:.0%}", {"share": share}),
    )
    return Output(data=result.to_dict(), text=result.text())


TOOLS = (sql_query,)
"""The tools of this module."""
