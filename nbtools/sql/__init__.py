"""SQL that can only read: the verdict, the engines, the worker, and the session that joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.lazy import facade

if TYPE_CHECKING:
    from nbtools.sql.policy import Policy
    from nbtools.sql.result import QueryResult
    from nbtools.sql.session import SqlSession
    from nbtools.sql.verdict import Verdict

__all__ = ["Policy", "QueryResult", "SqlSession", "Verdict"]

__getattr__ = facade(
    __name__,
    {
        "Policy": "nbtools.sql.policy",
        "QueryResult": "nbtools.sql.result",
        "SqlSession": "nbtools.sql.session",
        "Verdict": "nbtools.sql.verdict",
    },
)
