"""Databases that speak Arrow: Flight SQL, and any other with an ADBC driver.

::

    flightsql://host:31337/?dialect=duckdb                          Flight SQL; flightsql+tls:// with TLS
    flightsql+tls://host/?dialect=trino&token=${TOKEN}              with a token; or me:${PASSWORD}@host
    adbc+snowflake://me@account/db?dialect=snowflake                the driver of the package adbc_driver_snowflake

The protocol does not say which SQL a server understands, so the URL does: the verdict, which is the wall here, needs to
know. Other parts of the query that begin with ``adbc.`` are options of the driver. Rows come as Arrow batches, and Stop
cancels the statement on the server.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from nbtools.errors import (
    ConfigInvalid,
    InvalidArguments,
    NbtoolsError,
    NetworkError,
    PermissionDenied,
    SqlFailed,
    SqlInvalid,
)
from nbtools.ground.lazy import has, need
from nbtools.sql.engines.fetch import read_arrow
from nbtools.sql.engines.protocol import (
    CatalogTable,
    EngineAnswer,
    QueriesAlone,
    QueryControl,
    QueryRequest,
    catalog_query,
    tables_of,
)
from nbtools.sql.engines.urls import mask_url, resolve_url
from nbtools.sql.parameters import bind
from nbtools.sql.results.rows import ArrowRows
from nbtools.sql.verdict.policy import DIALECTS

_SCHEMES = {"flightsql": "grpc", "flightsql+tls": "grpc+tls"}
# Where a value stands as $1 in a text; how other dialects number theirs differs by driver.
_NUMBERED = frozenset({"duckdb", "postgres"})
_DEFAULT_SCHEMAS = {"duckdb": "main", "postgres": "public"}
# Codes of ADBC: of the call, of the account, and of the way there.
_MISTAKES = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "NOT_IMPLEMENTED"})
_REFUSED = frozenset({"UNAUTHENTICATED", "UNAUTHORIZED"})


def is_arrow_server(scheme: str) -> bool:
    """Tell whether a scheme, in lower case, is one of this module's."""
    return scheme in _SCHEMES or scheme.startswith("adbc+")


class ArrowServerEngine(QueriesAlone):
    """A database behind an ADBC driver.

    Parameters
    ----------
    url
        As at the top of this module; ``${NAME}`` stands for an environment variable.

    Raises
    ------
    ConfigInvalid
        It does not name the SQL dialect of the server.
    MissingExtra
        The driver is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        scheme = url.partition("://")[0].lower()
        self._driver = "flightsql" if scheme in _SCHEMES else scheme.partition("+")[2]
        dialect_name = dict(parse_qsl(urlsplit(url).query)).get("dialect", "")
        if dialect_name not in DIALECTS or not self._driver.isidentifier():
            raise ConfigInvalid(
                f"{mask_url(url)!r} does not name the SQL dialect of the server."
                if dialect_name not in DIALECTS
                else f"{mask_url(url)!r} does not name a driver.",
                hint=f"Add ?dialect= and one of {', '.join(DIALECTS)}.",
            )
        self.dialect = dialect_name
        self.name = f"{'Flight SQL' if self._driver == 'flightsql' else self._driver} (ADBC, {dialect_name})"
        self._module = f"adbc_driver_{self._driver}"
        if not has(self._module):
            need(self._module, extra="flightsql", why=f"Connecting to {scheme}://")
        self._idle: collections.deque[Any] = collections.deque()

    def _connect(self) -> Any:
        dbapi = need(f"{self._module}.dbapi", extra="flightsql", why="Connecting by ADBC")
        parts = urlsplit(resolve_url(self._url))
        pairs = [(name, value) for name, value in parse_qsl(parts.query) if name != "dialect"]
        options = {name: value for name, value in pairs if name.startswith("adbc.")}
        rest = [pair for pair in pairs if pair[0] not in options]
        if self._driver == "flightsql":
            if token := dict(rest).get("token"):
                options["adbc.flight.sql.authorization_header"] = f"Bearer {token}"
            if parts.username is not None:
                options |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
            uri = f"{_SCHEMES[parts.scheme]}://{parts.netloc.rpartition('@')[2]}"
        else:
            uri = urlunsplit(parts._replace(scheme=self._driver, query=urlencode(rest)))
        if self._driver in {"flightsql", "snowflake"}:
            return dbapi.connect(uri, db_kwargs=options, autocommit=True)
        return dbapi.connect(uri, autocommit=True)

    @contextlib.contextmanager
    def _cursor(self, control: QueryControl) -> Iterator[Any]:
        """Lend a cursor on a connection of its own, which is kept for reuse if nothing failed."""
        manager = need("adbc_driver_manager", extra="flightsql", why="Connecting by ADBC")
        connection = None
        try:
            with contextlib.suppress(IndexError):
                connection = self._idle.pop()
            if connection is None:
                connection = self._connect()
            cursor = connection.cursor()
            try:
                with control.attach(cursor.adbc_cancel):
                    yield cursor
            finally:
                with contextlib.suppress(manager.Error):
                    cursor.close()
            self._idle.append(connection)
            connection = None
        except (manager.Error, OSError) as exc:
            control.check()
            raise _error_of(exc, self._url) from exc
        finally:
            if connection is not None:
                with contextlib.suppress(manager.Error):
                    connection.close()

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        text, values = request.sql, request.parameters
        if values and self.dialect not in _NUMBERED:
            raise InvalidArguments(
                f"the driver for {self.dialect} cannot bind values.", hint="Write the values into the query."
            )
        if isinstance(values, dict):
            text, values = bind(text, values, "numbered")
        with self._cursor(control) as cursor:
            cursor.execute(text, values or None)
            reader = cursor.fetch_record_batch()
            rows, cut = read_arrow(reader, request, control)
            if cut is not None:
                # The remaining rows are not waited for.
                cursor.adbc_cancel()
        types = tuple(str(field.type) for field in reader.schema)
        return EngineAnswer(columns=tuple(reader.schema.names), types=types, rows=ArrowRows(rows), cut_by=cut)

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views of the database's information schema, with their columns."""
        result = self.run(QueryRequest(sql=catalog_query("flight_sql", "columns"), max_bytes=None), QueryControl())
        return tables_of(
            (tuple(row) for row in result.rows.to_lists()), default_schema=_DEFAULT_SCHEMAS.get(self.dialect, "")
        )

    def close(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


def _error_of(exc: Any, url: str) -> NbtoolsError:
    """Return the error that fits one of ADBC's."""
    code = getattr(getattr(exc, "status_code", None), "name", "")
    text = " ".join(str(exc).split()).partition(" Detail: ")[0][:400]
    if code in _REFUSED:
        return PermissionDenied(
            f"{mask_url(url)} refuses the user: {text}",
            hint="A token may have expired: set a new one, and ask again.",
        )
    if "connection refused" in text or "(Unavailable" in str(exc):
        return NetworkError(
            f"{mask_url(url)} cannot be reached.", hint="Check that the server is running, then ask again."
        )
    kind = SqlInvalid if code in _MISTAKES else SqlFailed
    return kind(text)
