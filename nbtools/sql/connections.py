"""Connections: which engine a URL asks for, and the engines that a session has open.

::

    duckdb:///data/shop.duckdb                a DuckDB file, attached read-only
    sqlite:///data/shop.sqlite                a SQLite file, opened read-only
    postgresql://me@host:5432/shop            PostgreSQL, by psycopg
    postgresql+psycopg://…                    by psycopg alone
    sc://host:15002/;use_ssl=true             Spark, by Spark Connect
    flightsql://host:31337/?dialect=duckdb    Flight SQL; adbc+DRIVER:// for what else ADBC reaches
    trino:// spark:// snowflake:// bigquery:// mysql:// …    by SQLAlchemy, when its dialect is installed

Three slashes begin a relative path, four an absolute one. `nbtools.sql.engines.urls` says what else a URL may hold.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments, SqlNotAllowed, did_you_mean
from nbtools.ground.paths import Roots
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.lent import LentConnection
from nbtools.sql.engines.policies import defines_functions, policy_for
from nbtools.sql.engines.protocol import EngineOptions, QueryControl, QueryRequest, SqlEngine
from nbtools.sql.engines.servers import open_server
from nbtools.sql.engines.sqlite import SQLiteEngine
from nbtools.sql.engines.urls import file_of, mask_url
from nbtools.sql.results.rows import ArrowRows
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.worker.client import IsolatedEngine
from nbtools.sql.worker.sheets import SheetOptions

# Databases in a file of this machine.
_LOCAL = frozenset({"duckdb", "sqlite"})
_DATABASE_FILES = frozenset({".db", ".duckdb", ".sqlite", ".sqlite3"})
# Engines in separate processes that a session keeps, each with a worker or two that wait.
_MOST_ISOLATED = 8


def open_engine(url: str | None, options: EngineOptions, *, isolated: bool) -> SqlEngine:
    """Return the engine for a URL; `None` is DuckDB over frames and files.

    Raises
    ------
    ConfigInvalid
        The URL names no known kind of database.
    MissingExtra
        Its driver is not installed.
    """
    if isinstance(url, LentConnection):
        if isolated:
            raise InvalidArguments(
                f"{url.name} is a connection of this notebook, which no other process can ask.",
                hint="Leave out --isolated, or open the database by its URL.",
            )
        return url.engine
    url = url or "duckdb://"
    scheme = url.partition("://")[0].lower()
    if scheme in _LOCAL:
        database = None if _is_in_memory(url) else file_of(url)
        if isolated:
            return IsolatedEngine(database, options, kind="sqlite" if scheme == "sqlite" else "duckdb")
        return SQLiteEngine(database) if scheme == "sqlite" else DuckDBEngine(database, options)
    return IsolatedEngine(None, options, kind="server", url=url) if isolated else open_server(url)


def _is_in_memory(url: str) -> bool:
    """Tell whether a URL names an empty database in memory."""
    scheme, _, path = url.lower().partition("://")
    return scheme in _LOCAL and path in {"", "/:memory:"}


def _place_of(url: str | None) -> str | None:
    """Return what a URL leads to, the same for every way to write it where that is a file."""
    if url is None:
        return None
    scheme = url.partition("://")[0].lower()
    if scheme not in _LOCAL:
        return url
    return f"{scheme}://{'' if _is_in_memory(url) else file_of(url)}"


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
    hidden
        Folders among those of `options` that isolated queries do not see.
    waiting
        Which connections wait for their settings file to be trusted, in a sentence.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        options: EngineOptions,
        roots: Roots | None,
        hidden: Collection[Path] = (),
        waiting: str = "",
    ) -> None:
        self._hidden = hidden
        self._waiting = waiting
        self._urls = urls
        self._options = options
        self._roots = roots
        self._lock = threading.Lock()
        # By the place that is read, however its URL is written; the one that was used last stands last.
        self._engines: dict[tuple[str | None, bool], SqlEngine] = {}
        self._workbooks: IsolatedEngine | None = None
        # A database has its own policy where its catalog has a say, all others share the one of their dialect.
        self._policies: dict[tuple[str, str | None], tuple[object, Policy]] = {}
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
        key = (connection if connection in self._urls else _place_of(url), isolated)
        with self._lock:
            # Opening is quick: the database itself is opened by the first query.
            own = self._engines.pop(key, None) or open_engine(url, self._seen(isolated=isolated), isolated=isolated)
            self._engines[key] = own
            surplus = self._take_surplus() if isolated else []
        for engine in surplus:
            engine.close()
        return own

    def _seen(self, *, isolated: bool) -> EngineOptions:
        """Return the options of an engine, with the folders that its queries see."""
        if not (isolated and self._hidden):
            return self._options
        roots = tuple(root for root in self._options.roots if root not in self._hidden)
        return dataclasses.replace(self._options, roots=roots)

    def _take_surplus(self) -> list[SqlEngine]:
        """Take out the isolated engines beyond those that may be kept, the longest unused first, none that is busy."""
        isolated_keys = [key for key in self._engines if key[1]]
        idle = (key for key in isolated_keys[:-1] if not getattr(self._engines[key], "is_busy", False))
        return [self._engines.pop(key) for key in list(idle)[: max(0, len(isolated_keys) - _MOST_ISOLATED)]]

    def read_workbook(self, path: Path, options: SheetOptions, control: QueryControl) -> Any:
        """Return a sheet of a workbook, read in a separate process, as an Arrow table or a DataFrame."""
        with self._lock:
            if self._workbooks is None:
                self._workbooks = IsolatedEngine(None, self._options, kind="workbooks")
            reader = self._workbooks
        text = json.dumps({"path": str(path), **dataclasses.asdict(options)})
        rows = reader.run(QueryRequest(sql=text, max_bytes=self._options.memory_bytes), control).rows
        return rows.table if isinstance(rows, ArrowRows) else rows.to_pandas()

    def _url(self, connection: str, *, isolated: bool) -> str:
        if connection in self._urls:
            return self._urls[connection]
        if "://" not in connection:
            names = ", ".join(sorted(self._urls)) or "none yet"
            is_file = Path(connection).suffix in _DATABASE_FILES
            url = f"{'duckdb' if connection.endswith('.duckdb') else 'sqlite'}:///{connection if is_file else 'FILE'}"
            hint = f"Known connections: {names}. A file has a URL, {url}; [connections] of nbtools.toml names it."
            hint = f"{self._waiting}." if self._waiting else hint
            raise InvalidArguments(
                f"there is no connection {connection!r}.", hint=did_you_mean(connection, self._urls, hint)
            )
        if isolated and not _is_in_memory(connection):
            self._check_place(connection)
        return connection

    def _check_place(self, url: str) -> None:
        """Refuse the URL of an isolated query, a model's as a rule, unless it leads to a file that may be read."""
        if url.partition("://")[0].lower() not in _LOCAL or self._roots is None:
            raise SqlNotAllowed(
                f"{mask_url(url)!r} is not a configured connection, and isolated queries open no others.",
                hint="Name one of the connections of the settings, or a database file below the allowed folders.",
            )
        if "${" in url:
            raise SqlNotAllowed(
                f"{mask_url(url)!r} names an environment variable, and isolated queries read none.",
                hint="Name one of the connections of the settings, or write the path of the file.",
            )
        self._roots.resolve(file_of(url))

    def policy(self, dialect: str, connection: str | None = None, engine: SqlEngine | None = None) -> Policy:
        """Return the policy for texts of a dialect; that of a database knows what its catalog defines."""
        is_own = (
            connection is not None and engine is not None and (defines_functions(engine) or not engine.takes_frames)
        )
        own = engine if is_own else None
        key = (dialect, None if own is None else connection)
        # What its catalog defines may be another by now: a file is let go between two queries.
        stamp = getattr(own, "stamp", None)
        with self._lock:
            entry = self._policies.get(key)
        if entry is None or entry[0] != stamp:
            # Not under the lock: reading the catalog is a query.
            roots = self._options.roots
            entry = (stamp, Policy(dialect, roots) if own is None else policy_for(own, roots))
            with self._lock:
                self._policies[key] = entry
        return entry[1]

    def name_in(self, table: str) -> str | None:
        """Return the connection that a table's name begins with, as in ``crm.contracts``; `None` for none."""
        first, dot, _ = table.partition(".")
        names = {name.casefold(): name for name in self._urls}
        return (first if first in self._urls else names.get(first.casefold())) if dot else None

    def files_of(self, connection: str) -> list[Path]:
        """Return the files that a database on this machine lies in; none for a server."""
        url = self._urls.get(connection, connection)
        if url.partition("://")[0].lower() not in _LOCAL or _is_in_memory(url):
            return []
        path = Path(file_of(url))
        return [path, path.with_name(f"{path.name}-wal")]

    def files_asked(self, tables: Iterable[str], connection: str | None) -> list[str]:
        """Return the files of the databases that a statement asks: of its connection, and of those that tables name."""
        names = dict.fromkeys(filter(None, (connection, *map(self.name_in, tables))))
        return [os.path.realpath(path) for name in names for path in self.files_of(name) if path.exists()]

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

    def is_open(self, connection: str) -> bool:
        """Tell whether a named connection, or a URL, has been used."""
        keys = self._keys(connection)
        return any(key in self._engines for key in keys)

    def _keys(self, connection: str) -> list[tuple[str | None, bool]]:
        key = connection if connection in self._urls else _place_of(connection)
        return [(key, isolated) for isolated in (False, True)]

    def release(self, connection: str) -> None:
        """Close the engines of a named connection; the next query opens them again."""
        with self._lock:
            engines = [self._engines.pop(key, None) for key in self._keys(connection)]
            for key in [key for key in self._policies if key[1] == connection]:
                del self._policies[key]
            self._warned.discard(connection)
        for engine in filter(None, engines):
            engine.close()

    def reopen(self, options: EngineOptions, roots: Roots) -> None:
        """Close all engines; the next query opens its own with other options."""
        self._options, self._roots = options, roots
        self.close()

    def close(self) -> None:
        """Close all engines; the next query opens its own again."""
        with self._lock:
            engines, self._engines = list(self._engines.values()), {}
            if self._workbooks is not None:
                engines.append(self._workbooks)
                self._workbooks = None
            self._policies.clear()
        for engine in engines:
            engine.close()
