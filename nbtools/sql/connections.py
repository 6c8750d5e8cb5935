"""Connections by URL: which engine.

::

    duckdb:///data/shop.duckdb                a DuckDB file, attached read-only
    sqlite:///data/shop.sqlite                a SQLite file, opened read-only
    postgresql://me@host:5432/shop            PostgreSQL, by psycopg, and by ADBC too where that is installed
    postgresql+psycopg://…                    by psycopg alone
    trino:// spark:// snowflake:// bigquery:// mysql:// …    by SQLAlchemy, when its dialect is installed

Three slashes begin a relative path, four an absolute one. `nbtools.sql.engines.urls` says what else a URL may hold.
"""

from __future__ import annotations

from nbtools.lazy import has
from nbtools.sql.engines.protocol import Engine, EngineOptions
from nbtools.sql.engines.sqlite import SQLiteEngine
from nbtools.sql.engines.urls import file_of
from nbtools.sql.worker.client import IsolatedEngine

__all__ = ["in_memory", "is_local_file", "open_engine"]

_POSTGRES = frozenset({"postgresql", "postgres", "postgresql+psycopg"})


def is_local_file(url: str) -> bool:
    """Tell whether a URL names a database in a file of this machine."""
    return url.partition("://")[0].lower() in {"duckdb", "sqlite"}


def in_memory(url: str) -> bool:
    """Tell whether a URL names an empty database that lies in memory."""
    return url.lower() in {f"{scheme}://{place}" for scheme in ("duckdb", "sqlite") for place in ("", "/:memory:")}


def open_engine(url: str | None, options: EngineOptions, *, isolated: bool) -> Engine:
    """Return the engine for a URL; `None` is DuckDB over frames and files.

    Raises
    ------
    ConfigInvalid
        The URL names no known kind of database.
    MissingExtra
        Its driver is not installed.
    """
    scheme = (url or "duckdb://").partition("://")[0].lower()
    if scheme == "duckdb":
        return _duckdb(url, options, isolated=isolated)
    assert url is not None
    if scheme == "sqlite":
        database = None if in_memory(url) else file_of(url)
        return IsolatedEngine(database, options, kind="sqlite") if isolated else SQLiteEngine(database)
    if scheme in _POSTGRES:
        if has("adbc_driver_postgresql") and has("pyarrow") and not scheme.endswith("+psycopg"):
            from nbtools.sql.engines.adbc import AdbcPostgresEngine

            return AdbcPostgresEngine(url)
        from nbtools.sql.engines.postgres import PostgresEngine

        return PostgresEngine(url)
    from nbtools.sql.engines.sqlalchemy import AlchemyEngine

    return AlchemyEngine(url)


def _duckdb(url: str | None, options: EngineOptions, *, isolated: bool) -> Engine:
    database = None if url is None or in_memory(url) else file_of(url)
    if isolated:
        return IsolatedEngine(database, options)
    from nbtools.sql.engines.duckdb.engine import DuckDBEngine

    return DuckDBEngine(database, options)
