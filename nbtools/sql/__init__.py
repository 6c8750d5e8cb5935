"""SQL that can only read: the verdict, the engines, the worker, and the session that joins them."""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.sql.pages.opening import open_frame
    from nbtools.sql.pages.pager import Pager
    from nbtools.sql.results.result import QueryResult
    from nbtools.sql.session import SqlSession
    from nbtools.sql.verdict.policy import Policy
    from nbtools.sql.verdict.verdict import Verdict

__all__ = ["Pager", "Policy", "QueryResult", "SqlSession", "Verdict", "open_frame"]

__getattr__ = facade(__name__)
