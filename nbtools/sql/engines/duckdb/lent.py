"""A DuckDB connection of the notebook, asked by cursors of it: it is neither closed, nor written, nor held open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.ground.lazy import duckdb
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.protocol import EngineAnswer, QueryControl, QueryRequest, catalog_query
from nbtools.texts.sql_quotes import quote_identifier, quote_text


class LentDuckDB(DuckDBEngine):
    """A connection that someone else owns.

    Parameters
    ----------
    connection
        Of DuckDB, whatever its owner does with it.
    variable
        What its owner calls it.
    """

    has_catalog = True

    def __init__(self, connection: Any, variable: str) -> None:
        super().__init__()
        self._lent, self._variable = connection, variable
        self._counted, self._changes = -1, 0

    def _connection(self) -> Any:
        try:
            with contextlib.closing(self._lent.cursor()) as cursor:
                self._begin, self._end = cursor.extract_statements("BEGIN TRANSACTION READ ONLY; ROLLBACK")
        except duckdb.ConnectionException as exc:
            raise InvalidArguments(
                f"the connection {self._variable} is closed.",
                hint="Open it again with duckdb.connect, or use another: %sql duckdb:// reads frames and files.",
            ) from exc
        return self._lent

    def fresh_cursor(self) -> Any:
        """Return a cursor that sees no variables of Python; the caller closes it."""
        cursor = self._connection().cursor()
        # Cursors do not share what USE says.
        (path,) = [*self._ask_itself("SELECT current_setting('search_path')"), ("",)][0]
        orders = [f"SET search_path = {quote_text(path)}"] if path else []
        for order in ("SET python_enable_replacements = false", *orders):
            cursor.execute(order)
        return cursor

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        try:
            return super().run(request, control)
        finally:
            # A cursor that idles would keep the file open after its owner has closed the connection.
            self._cursors.close(0)

    @property
    def stamp(self) -> object:
        """What changes with the catalog: what is known of it holds for as long as this is the same."""
        if (count := self._count()) != self._counted:
            self._counted = count
            self._changes += 1
        return self._changes

    def _count(self) -> int:
        """Return how many statements were run that can change what a name means; beginning a transaction is one."""
        return int(self._connection()._catalog_version())  # noqa: SLF001 - there is no public name

    @contextlib.contextmanager
    def _attached(self) -> Iterator[None]:
        # Our own statements are counted too, and change nothing.
        before = self.stamp
        try:
            yield
        finally:
            if before == self._changes:
                self._counted = self._count()

    def _copy_foreign(self, name: str, frame: Any) -> None:
        """Copy nothing: the notebook's connection stays as it is."""

    @property
    def note(self) -> str | None:
        """What is to be told of every answer; `None` for nothing."""
        numbers = [self._ask_itself("SELECT txid_current()") for _ in range(2)]
        if not all(numbers):
            return f"{self._variable} is in use: its temporary tables and registered frames are not visible"
        # Outside of a transaction each statement has its own number.
        is_open = numbers[0] == numbers[1]
        return f"{self._variable} is in a transaction: uncommitted changes are not visible" if is_open else None

    def lookup(self, name: str) -> Any:
        """Return what only the connection itself sees under a name, as a relation; `None` for all others."""
        return self._lent.table(quote_identifier(name)) if name.casefold() in self._temporary_names() else None

    def _temporary_names(self) -> frozenset[str]:
        return frozenset(str(row[0]).casefold() for row in self._ask_itself(catalog_query("duckdb", "temporary")))

    def _ask_itself(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the connection itself; nothing where it is in use, or its transaction has failed."""
        try:
            # As a relation: execute() would drop what is left of the result that its owner is reading.
            rows: list[tuple[Any, ...]] = self._lent.sql(sql).fetchall()
        except duckdb.Error:
            return []
        return rows

    @property
    def _catalog_name(self) -> str:
        with contextlib.closing(self.fresh_cursor()) as cursor:
            return str(cursor.execute("SELECT current_database()").fetchone()[0])

    def _own_names(self) -> frozenset[str]:
        return super()._own_names() - self._temporary_names()
