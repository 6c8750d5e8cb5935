"""SQL that can only read: the verdict, the engines, the worker, and the session that joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.lazy import facade

if TYPE_CHECKING:
    from nbtools.sql.results.result import QueryResult
    from nbtools.sql.session import SqlSession
    from nbtools.sql.verdict.policy import Policy
    from nbtools.sql.verdict.verdict import Verdict

__all__ = ["Policy", "QueryResult", "SqlSession", "Verdict"]

__getattr__ = facade(
    __name__,
    {
        "Policy": "nbtools.sql.verdict.policy",
        "QueryResult": "nbtools.sql.results.result",
        "SqlSession": "nbtools.sql.session",
        "Verdict": "nbtools.sql.verdict.verdict",
    },
)
