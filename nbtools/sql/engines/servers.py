"""Databases that are reached by a URL other than a file's: PostgreSQL, Spark, Flight SQL, what SQLAlchemy speaks to."""

from __future__ import annotations

from nbtools.sql.engines.arrow_servers.flight_sql import ArrowServerEngine, is_arrow_server
from nbtools.sql.engines.protocol import SqlEngine

_POSTGRES = frozenset({"postgresql", "postgres", "postgresql+psycopg"})


def open_server(url: str) -> SqlEngine:
    """Return the engine for the URL of a server; nothing is connected yet.

    Raises
    ------
    ConfigInvalid
        The URL names no known kind of database.
    MissingExtra
        Its driver is not installed.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "sc":
        from nbtools.sql.engines.arrow_servers.spark import SparkEngine

        return SparkEngine(url)
    if is_arrow_server(scheme):
        return ArrowServerEngine(url)
    if scheme not in _POSTGRES:
        from nbtools.sql.engines.sqlalchemy import AlchemyEngine

        return AlchemyEngine(url)
    from nbtools.sql.engines.postgres import PostgresEngine

    return PostgresEngine(url)
