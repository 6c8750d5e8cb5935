"""Connections: which engine a URL asks for, and the engines that a session has open.

::

    duckdb:///data/shop.duckdb                a DuckDB file, attached read-only
    sqlite:///data/shop.sqlite                a SQLite file, opened read-only
    postgresql://me@host:5432/shop            PostgreSQL, by psycopg, and by ADBC too where that is installed
    postgresql+psycopg://…                    by psycopg alone
    trino:// spark:// snowflake:// bigquery:// mysql:// …    by SQLAlchemy, when its dialect is installed

Three slashes begin a relative path, four an absolute one. `nbtools.sql.engines.urls` says what else a URL may hold.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping

from nbtools.errors import InvalidArguments, SqlNotAllowed, nearest
from nbtools.lazy import has
from nbtools.paths import Roots
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.protocol import EngineOptions, SqlEngine
from nbtools.sql.engines.sqlite import SQLiteEngine
from nbtools.sql.engines.urls import file_of, mask_url
from nbtools.sql.verdict.duckdb.macros import Definitions
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.worker.client import IsolatedEngine

__all__ = ["SessionEngines", "open_engine"]

# Databases in a file of this machine.
_LOCAL = frozenset({"duckdb", "sqlite"})
_POSTGRES = frozenset({"postgresql", "postgres", "postgresql+psycopg"})


def open_engine(url: str | None, options: EngineOptions, *, isolated: bool) -> SqlEngine:
    """Return the engine for a URL; `None` is DuckDB over frames and files.

    Raises
    ------
    ConfigInvalid
        The URL names no known kind of database.
    MissingExtra
        Its driver is not installed.
    """
    url = url or "duckdb://"
    scheme = url.partition("://")[0].lower()
    if scheme in _LOCAL:
        database = None if _is_in_memory(url) else file_of(url)
        if isolated:
            return IsolatedEngine(database, options, kind="sqlite" if scheme == "sqlite" else "duckdb")
        return SQLiteEngine(database) if scheme == "sqlite" else DuckDBEngine(database, options)
    if scheme not in _POSTGRES:
        from nbtools.sql.engines.sqlalchemy import AlchemyEngine

        return AlchemyEngine(url)
    if has("adbc_driver_postgresql") and has("pyarrow") and not scheme.endswith("+psycopg"):
        from nbtools.sql.engines.adbc import AdbcPostgresEngine

        return AdbcPostgresEngine(url)
    from nbtools.sql.engines.postgres import PostgresEngine

    return PostgresEngine(url)


def _is_in_memory(url: str) -> bool:
    """Tell whether a URL names an empty database in memory."""
    scheme, _, place = url.lower().partition("://")
    return scheme in _LOCAL and place in {"", "/:memory:"}


class SessionEngines:
    """The engines and policies of a session, opened at their first use and closed together.

    Parameters
    ----------
    urls
        URLs by the name of the connection.
    options
        What the engines are opened with.
    roots
        The folders below which an isolated query may open a database file by its URL; `None` for none.
    """

    def __init__(self, urls: Mapping[str, str], options: EngineOptions, roots: Roots | None) -> None:
        self._urls = urls
        self._options = options
        self._roots = roots
        self._lock = threading.Lock()
        self._engines: dict[tuple[str | None, bool], SqlEngine] = {}
        # A DuckDB file has a policy of its own, all other connections share the one of their dialect.
        self._policies: dict[tuple[str, str | None], Policy] = {}
        self._warned: set[str | None] = set()

    def engine(self, connection: str | None, *, isolated: bool) -> SqlEngine:
        """Return the engine of a connection, which may be named or a URL; `None` is DuckDB over frames and files.

        Raises
        ------
        InvalidArguments
            There is no connection of that name.
        SqlNotAllowed
            An isolated query names a URL that it may not open.
        """
        url = None if connection is None else self._url(connection, isolated=isolated)
        with self._lock:
            # Opening is quick: the database itself is opened by the first query.
            if (connection, isolated) not in self._engines:
                self._engines[connection, isolated] = open_engine(url, self._options, isolated=isolated)
            return self._engines[connection, isolated]

    def _url(self, connection: str, *, isolated: bool) -> str:
        if connection in self._urls:
            return self._urls[connection]
        if "://" not in connection:
            close = nearest(connection, self._urls)
            known = ", ".join(sorted(self._urls)) or "none are configured"
            raise InvalidArguments(
                f"there is no connection {connection!r}.",
                hint=f"Did you mean {close!r}?" if close else f"Known connections: {known}.",
                tried="running SQL",
            )
        if isolated and not _is_in_memory(connection):
            self._check_place(connection)
        return connection

    def _check_place(self, url: str) -> None:
        """Refuse the URL of an isolated query, a model's as a rule, unless it leads to a file that may be read."""
        if url.partition("://")[0].lower() not in _LOCAL or self._roots is None:
            raise SqlNotAllowed(
                f"{mask_url(url)!r} is no configured connection, and isolated queries open no others.",
                hint="Name one of the connections of the settings, or a database file below the allowed folders.",
                tried="running SQL",
            )
        if "${" in url:
            raise SqlNotAllowed(
                f"{mask_url(url)!r} names an environment variable, and isolated queries read none.",
                hint="Name one of the connections of the settings, or write the path of the file.",
                tried="running SQL",
            )
        self._roots.resolve(file_of(url))

    def policy(self, dialect: str, connection: str | None = None, engine: SqlEngine | None = None) -> Policy:
        """Return the policy for texts of a dialect; one of a DuckDB file knows the file's macros and views."""
        own = engine if connection is not None and isinstance(engine, DuckDBEngine | IsolatedEngine) else None
        key = (dialect, None if own is None else connection)
        with self._lock:
            found = self._policies.get(key)
        if found is None:
            # Not under the lock: reading the catalog is a query.
            definitions = None if own is None else Definitions(*own.definitions())
            found = Policy(dialect=dialect, allowed_paths=self._options.roots, definitions=definitions)
            with self._lock:
                self._policies[key] = found
        return found

    def warn_once(self, connection: str | None, engine: SqlEngine) -> None:
        """Warn, once for each connection, of a role that could write."""
        with self._lock:
            if connection in self._warned:
                return
            self._warned.add(connection)
        why = engine.can_write()
        if why:
            warnings.warn(
                f"connection {mask_url(connection or '')!r}: {why}; nbtools only reads, but a read-only role is safer.",
                UserWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """Close all engines; the next query opens its own again."""
        with self._lock:
            engines, self._engines = list(self._engines.values()), {}
            self._policies.clear()
        for engine in engines:
            engine.close()
