"""The verdict: may this text of SQL run? Pure, cached, and the first of three walls.

For DuckDB the engine's own parser has the first word and sqlglot the second:

1. text guards (`guards`): no NUL, no half surrogates, at most 100 kB, brackets at most 64 deep;
2. exactly one statement, and it is a query: SELECT in all its forms, VALUES, FROM-first, DESCRIBE, SUMMARIZE, SHOW,
   EXPLAIN of one of these, PIVOT;
3. the engine's syntax tree (`duckdb.parser`, `duckdb.checker`), node by node: only reviewed kinds of nodes and
   functions, only constant paths below the allowed folders;
4. sqlglot's tree (`sqlglot_parser`): nothing in it that changes anything.

For every other dialect only sqlglot decides (`dialects`), and unknown functions are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.sql.verdict import guards
from nbtools.sql.verdict.duckdb.checker import CheckRules
from nbtools.sql.verdict.duckdb.files import Files
from nbtools.sql.verdict.duckdb.judge import judge_duckdb
from nbtools.sql.verdict.duckdb.macros import Definitions
from nbtools.sql.verdict.verdict import Verdict, refuse

DIALECTS: tuple[str, ...] = (
    *("duckdb", "postgres", "sqlite", "mysql", "trino", "spark", "snowflake", "bigquery", "clickhouse", "tsql"),
)
_ALIASES = {
    "postgresql": "postgres",
    "mariadb": "mysql",
    "presto": "trino",
    "databricks": "spark",
    "mssql": "tsql",
    "sqlserver": "tsql",
}
# A repeated text costs a look into a dictionary instead of a millisecond. Long texts come from programs, each of them
# once, and would only fill the memory.
_CACHED = 256
_CACHED_LENGTH = 20_000


class Policy:
    """What SQL may do: read, and only what it may.

    Parameters
    ----------
    dialect
        The language of the texts; one of `DIALECTS`.
    allowed_paths
        Folders below which files may be read; none means that no file may. DuckDB only.
    functions
        Further functions that may be called, such as the connection's own harmless ones, by name.
    row_functions
        Functions of the database that take a row, so that ``t.f`` calls them as if they were columns. PostgreSQL only.
    definitions
        The macros and views of the catalog; one that a query uses is judged by what stands behind it. DuckDB only.

    Examples
    --------
    >>> Policy().check("from sales").tables
    ('sales',)
    >>> Policy().check("drop table sales").reasons
    ('line 1: DROP changes the catalog; nbtools SQL is read-only',)
    """

    def __init__(
        self,
        dialect: str = "duckdb",
        allowed_paths: Iterable[str | os.PathLike[str]] = (),
        *,
        functions: Iterable[str] = (),
        row_functions: Iterable[str] = (),
        definitions: Definitions | None = None,
    ) -> None:
        name = _ALIASES.get(dialect.lower(), dialect.lower())
        if name not in DIALECTS:
            raise InvalidArguments(
                f"{dialect!r} is not a dialect that can be judged.",
                hint=did_you_mean(name, DIALECTS, f"Known are {', '.join(DIALECTS)}."),
            )
        self.dialect = name
        self.functions = frozenset(function.lower() for function in functions)
        self._row_functions = frozenset(function.lower() for function in row_functions)
        self._files = Files(allowed_paths)
        self._rules = CheckRules(files=self._files, functions=self.functions, definitions=definitions)
        self._verdicts: dict[str, Verdict] = {}

    def __repr__(self) -> str:
        return f"Policy(dialect={self.dialect!r}, allowed_paths={list(self._files.roots)!r})"

    def check(self, sql: str) -> Verdict:
        """Judge a text.

        Parameters
        ----------
        sql
            One statement, as it will be given to the engine.

        Returns
        -------
        Verdict
            A text that a parser fails on is refused with the reason; no exception is raised.
        """
        if not isinstance(sql, str):
            raise InvalidArguments(f"the query is {type(sql).__name__}, not text.")
        if len(sql) > _CACHED_LENGTH:
            return self._judge(sql)
        verdict = self._verdicts.get(sql)
        # A link may lead elsewhere by now, and the working folder may have changed.
        if verdict is not None:
            return verdict if not verdict.files or self._still(verdict) else self._judge(sql)
        if len(self._verdicts) >= _CACHED:
            self._verdicts.clear()
        return self._verdicts.setdefault(sql, self._judge(sql))

    def _still(self, verdict: Verdict) -> bool:
        return verdict.allowed and all(self._files.refusal(path) is None for path in verdict.files)

    def _judge(self, sql: str) -> Verdict:
        finding = guards.first_bad_character(sql) or guards.size(sql)
        if finding is not None:
            return refuse(sql, [finding])
        if self.dialect == "duckdb":
            return judge_duckdb(sql, self._rules)
        from nbtools.sql.verdict.dialects.judge import judge

        return judge(sql, self.dialect, self.functions, self._row_functions)
