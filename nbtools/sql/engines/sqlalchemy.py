"""The long tail of databases, through SQLAlchemy: Trino, Spark, Snowflake, BigQuery, MySQL, SQL Server and others.

The verdict is the wall here. What can be added is added: one statement on a separate connection, in a transaction
that is rolled back, read-only where the dialect has a word for it, rows streamed and the reader stopped at the caps.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from nbtools.errors import ConfigInvalid, MissingExtra, NbtoolsError, NetworkError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.ground.lazy import need
from nbtools.sql.engines.fetch import read_tuples
from nbtools.sql.engines.protocol import (
    CatalogColumn,
    CatalogTable,
    EngineAnswer,
    QueriesAlone,
    QueryControl,
    QueryRequest,
)
from nbtools.sql.engines.urls import mask_url, resolve_url

_CHUNK = 1_000
# The columns of each table are a separate question to the server.
_TABLES = 500
# SQLAlchemy's names where sqlglot, and so the verdict, has another.
_DIALECTS = {
    "postgresql": "postgres",
    "cockroachdb": "postgres",
    "mssql": "tsql",
    "mariadb": "mysql",
    "awsathena": "athena",
    "sparksql": "spark",
}
# What opens a read-only transaction, or keeps a session from writing.
_READ_ONLY = {
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET TRANSACTION READ ONLY",
}
# Modes of MySQL and MariaDB in which a text has other strings, names and comments than the verdict saw.
_OTHER_SYNTAX = frozenset({"NO_BACKSLASH_ESCAPES", "ORACLE", "MSSQL"})
_DRIVERS = {"trino": "trino", "snowflake": "snowflake-sqlalchemy", "bigquery": "sqlalchemy-bigquery", "spark": "pyhive"}


class AlchemyEngine(QueriesAlone):
    """A database that SQLAlchemy speaks to.

    Parameters
    ----------
    url
        As SQLAlchemy takes it; ``${NAME}`` stands for an environment variable.
    engine
        The notebook's own engine of that URL; `None` makes one.
    """

    def __init__(self, url: str, engine: Any = None) -> None:
        self._sqlalchemy = need("sqlalchemy", extra="engines", why="Connecting to other databases")
        self._url, self._is_lent = url, engine is not None
        try:
            pool = self._sqlalchemy.pool.NullPool
            self._engine = engine or self._sqlalchemy.create_engine(resolve_url(url), poolclass=pool)
        except (self._sqlalchemy.exc.NoSuchModuleError, ImportError) as exc:
            scheme = url.partition(":")[0]
            package = _DRIVERS.get(scheme.partition("+")[0], f"the SQLAlchemy dialect for {scheme}")
            raise MissingExtra(
                f"connecting to {mask_url(url)} needs a driver that is not installed.",
                hint=f"pip install {package}" if " " not in package else f"Install {package}.",
            ) from exc
        except (self._sqlalchemy.exc.ArgumentError, ValueError) as exc:
            raise ConfigInvalid(f"{mask_url(url)!r} is not a URL of a database.") from exc
        kind = self._engine.dialect.name
        self.dialect = _DIALECTS.get(kind, kind)
        self.name = f"{kind} (SQLAlchemy)"
        if self.dialect == "sqlite":
            self.explain_word = "EXPLAIN QUERY PLAN"

    @contextlib.contextmanager
    def _connect(self, control: QueryControl) -> Iterator[Any]:
        """Yield a connection in a transaction that cannot write, where the dialect knows such a thing."""
        exc_types = self._sqlalchemy.exc
        try:
            with self._engine.connect() as connection:
                control.check()
                order = _READ_ONLY.get(self._engine.dialect.name)
                if order:
                    connection.exec_driver_sql(order)
                with control.attach(_cancel(connection)):
                    try:
                        yield connection
                    finally:
                        connection.rollback()
        except exc_types.DBAPIError as exc:
            control.check()
            raise _error_of(exc, exc_types, self._url) from exc

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        with self._connect(control) as connection:
            if self.dialect == "mysql":
                _settle_syntax(connection, request.sql)
            streaming = connection.execution_options(stream_results=True, max_row_buffer=_CHUNK)
            if request.parameters:
                answer = streaming.execute(self._sqlalchemy.text(request.sql), request.parameters)
            else:
                # Without values the text goes to the driver as it is: no colon and no percent sign means anything.
                answer = streaming.exec_driver_sql(request.sql)
            if not answer.returns_rows:
                raise SqlNotAllowed("the statement returns no rows; nbtools SQL is read-only.")
            names = tuple(str(name) for name in answer.keys())  # noqa: SIM118 - a result is not a mapping
            types = tuple(_type(column) for column in answer.cursor.description)
            rows, cut = read_tuples(names, lambda: [tuple(row) for row in answer.fetchmany(_CHUNK)], request, control)
            answer.close()
        return EngineAnswer(columns=names, types=types, rows=rows, cut_by=cut)

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views of the default schema with their columns, 500 at the most."""
        inspector = self._sqlalchemy.inspect(self._engine)
        tables = []
        with warnings.catch_warnings():
            # Columns of types that SQLAlchemy does not know are listed all the same.
            warnings.simplefilter("ignore")
            names = [(name, False) for name in inspector.get_table_names()]
            names += [(name, True) for name in inspector.get_view_names()]
            for name, is_view in names[:_TABLES]:
                columns = tuple(
                    CatalogColumn(name=str(column["name"]), type=str(column["type"]))
                    for column in inspector.get_columns(name)
                )
                tables.append(CatalogTable(name=name, kind="view" if is_view else "table", columns=columns))
        return tables

    def can_write(self) -> str | None:
        """Return that the rights are unknown, but of a file, which is opened read-only."""
        return None if self.dialect == "sqlite" else super().can_write()

    def close(self) -> None:
        """Close what SQLAlchemy keeps."""
        if not self._is_lent:
            self._engine.dispose()


def _settle_syntax(connection: Any, sql: str) -> None:
    """See to it that a session of MySQL or MariaDB reads a text as the verdict did."""
    order = mode_order(connection.exec_driver_sql("SELECT @@SESSION.sql_mode").scalar() or "", sql)
    if order is not None:
        connection.exec_driver_sql(order)


def mode_order(modes: str, sql: str) -> str | None:
    """Return the statement that takes the modes away in which a text means something else; `None` for none.

    Parameters
    ----------
    modes
        The modes of the session, as the server tells them.
    sql
        The text that is to be run.

    Raises
    ------
    SqlNotAllowed
        Without the mode the text would mean something else to its author.
    """
    names = modes.upper().split(",")
    if "ANSI_QUOTES" in names and '"' in sql and "\\" in sql:
        raise SqlNotAllowed(
            "the server takes double quotes as those of names (ANSI_QUOTES), where a backslash is part of the name.",
            hint="Write texts in single quotes, or names in backticks.",
        )
    safe = [mode for mode in names if mode and mode not in _OTHER_SYNTAX]
    return None if len(safe) == len(list(filter(None, names))) else f"SET SESSION sql_mode = '{','.join(safe)}'"


def _cancel(connection: Any) -> Callable[[], None]:
    """Return what interrupts the driver's connection, if it has such a thing."""
    raw = connection.connection.driver_connection
    interrupt = getattr(raw, "interrupt", None) or getattr(raw, "cancel", None)

    def call() -> None:
        if callable(interrupt):
            with contextlib.suppress(Exception):
                interrupt()

    return call


def _type(column: Any) -> str:
    code = column[1]
    return code if isinstance(code, str) else getattr(code, "__name__", "") if isinstance(code, type) else ""


def _error_of(exc: Any, kinds: Any, url: str) -> NbtoolsError:
    message = " ".join(str(exc.orig).split())[:400]
    if exc.connection_invalidated:
        return NetworkError(f"the connection to {mask_url(url)} broke: {message}")
    if isinstance(exc, kinds.ProgrammingError):
        return SqlInvalid(message)
    return SqlFailed(message)
