"""DuckDB, locked down: the engine for frames, files and DuckDB databases.

The second wall, whoever built the first:

- No network, no extensions, no secrets, no Python variables; files only below the allowed roots; memory, threads and
  spill capped; the configuration locked after that.
- A database file is attached read-only to an instance of its own, never opened beside the user's own connection.
- The statement object that was judged is bound first, and run only if it returns a query's rows and changes nothing:
  this also catches what hides inside a SELECT, such as COPY in a common table expression.
- It runs on a cursor of its own, inside a READ ONLY transaction that is rolled back, with exactly the frames that it
  names registered.

Rows leave as Arrow batches where pyarrow is installed, else as Python tuples; the reader stops at the caps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import re
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, FileMissing, LimitExceeded, NbtoolsError, SqlNotAllowed
from nbtools.lazy import has
from nbtools.sql.engines import Control, Fetched, Request, Table, tables_of
from nbtools.sql.faults import from_duckdb
from nbtools.sql.reading import Cut, read_arrow, read_tuples
from nbtools.sql.rows import ArrowRows, PythonRows

__all__ = ["DuckDBEngine", "Limits", "ParquetFrame", "StreamedFrame", "quoted"]

# One vector of DuckDB. Small batches keep the reader close to the caps; a large request reads in larger ones.
_BATCH = 2_048
_LARGE_BATCH = 65_536
_LARGE_FRAME = 2_000_000
# Arrow has no form for these, or one that nobody reads; their Python values are fine.
_NO_ARROW = re.compile(r"\b(BIT|BIGNUM|VARINT|UNION|VARIANT|TIME WITH TIME ZONE|UHUGEINT|GEOMETRY)\b")
_ZONED = re.compile(r"\bTIMESTAMP WITH TIME ZONE\b")
_RUNS = frozenset({"SELECT", "EXPLAIN", "MULTI", "RELATION"})
_EXPLAIN = re.compile(r"\A\s*EXPLAIN\s+(?:ANALYZE\b|\([^)]*\))?\s*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What an engine instance may use.

    Attributes
    ----------
    memory_bytes
        Of the engine's own buffers; single values can exceed it, which only the worker process contains.
    spill_bytes
        Of temporary files.
    threads
        `None` takes one for each processor.
    """

    memory_bytes: int = 1_000_000_000
    spill_bytes: int = 1_000_000_000
    threads: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetFrame:
    """A frame that came as a Parquet file, where pyarrow is not there to share memory."""

    path: Path


class StreamedFrame:
    """An Arrow table as a stream alone; for a pyarrow Table itself DuckDB loads pyarrow.dataset, which takes long.

    Parameters
    ----------
    table
        A pyarrow Table or RecordBatch.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand out the rows, each time anew."""
        return self._table.__arrow_c_stream__(requested_schema)


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class DuckDBEngine:
    """DuckDB in this process.

    Parameters
    ----------
    database
        A database file, attached read-only; `None` for frames and files alone.
    roots
        Folders whose files may be read.
    limits
        Memory, spill, threads.
    schemas
        Names of schemas that frames with dotted names live in.
    spill
        Folder for temporary files; `None` makes one and removes it.
    """

    dialect = "duckdb"
    takes_frames = True

    def __init__(
        self,
        database: Path | None = None,
        *,
        roots: Iterable[Path] = (),
        limits: Limits | None = None,
        schemas: Iterable[str] = (),
        spill: Path | None = None,
    ) -> None:
        import duckdb

        self.name = f"DuckDB {duckdb.__version__}"
        self._database = database
        self._roots = tuple(roots)
        self._limits = limits or Limits()
        self._schemas = frozenset(schemas)
        self._spill = spill
        self._lock = threading.Lock()
        self._snapshots = threading.Lock()
        self._instance: Any = None
        self._own: frozenset[str] = frozenset()
        self._finalizer: weakref.finalize[..., Any] | None = None

    # -- the instance ------------------------------------------------------------------------------------------------

    def _connection(self) -> Any:
        with self._lock:
            if self._instance is None:
                self._instance = self._opened()
            return self._instance

    def _opened(self) -> Any:
        import duckdb

        if self._spill is None:
            self._spill = Path(tempfile.mkdtemp(prefix="nbtools-sql-"))
            self._finalizer = weakref.finalize(self, shutil.rmtree, self._spill, ignore_errors=True)
        connection = duckdb.connect(":memory:")
        try:
            if self._database is not None:
                self._attach(connection, self._database)
            for schema in sorted(self._schemas):
                connection.execute(f"ATTACH ':memory:' AS {quoted(schema)}")
            for name, value in self._settings(self._spill):
                connection.execute(f"SET {name} = {value}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _settings(self, spill: Path) -> Iterator[tuple[str, str]]:
        """Yield the settings in the order they must be made: what is locked can no longer be changed."""
        yield "python_enable_replacements", "false"
        yield "autoinstall_known_extensions", "false"
        yield "autoload_known_extensions", "false"
        yield "allow_community_extensions", "false"
        yield "allow_unsigned_extensions", "false"
        yield "allow_persistent_secrets", "false"
        yield "allow_unredacted_secrets", "false"
        yield "memory_limit", _literal(f"{self._limits.memory_bytes // 1_000}KB")
        yield "threads", str(self._limits.threads or os.cpu_count() or 1)
        yield "temp_directory", _literal(str(spill / "spill"))
        yield "max_temp_directory_size", _literal(f"{self._limits.spill_bytes // 1_000}KB")
        # The slash matters: without it /data would also allow /database.
        folders = ", ".join(_literal(os.path.join(root, "")) for root in self._roots)  # noqa: PTH118 - see above
        yield "allowed_directories", f"[{folders}]"
        yield "enable_external_access", "false"
        # Set for a single statement when somebody looks; nothing else can be changed once the rest is locked.
        yield "allowed_configs", "['enable_progress_bar', 'enable_progress_bar_print']"
        yield "lock_configuration", "true"

    def _attach(self, connection: Any, database: Path) -> None:
        import duckdb

        if not database.is_file():
            raise FileMissing(f"{str(database)!r} does not exist.", tried="opening a DuckDB database")
        try:
            connection.execute(f"ATTACH {_literal(str(database))} AS {quoted(self._catalog_name)} (READ_ONLY)")
        except duckdb.Error as exc:
            raise ConfigInvalid(
                f"{str(database)!r} cannot be opened: {' '.join(str(exc).split())[:300]}",
                hint="It must be a DuckDB file that no other process is writing, nor this notebook.",
                tried="opening a DuckDB database",
            ) from exc

    @property
    def _catalog_name(self) -> str:
        assert self._database is not None
        return self._database.stem or "db"

    @contextlib.contextmanager
    def _cursor(self, control: Control) -> Iterator[Any]:
        """Yield a cursor that `control` interrupts, with the database in its search path; close it afterwards."""
        cursor = self._connection().cursor()
        try:
            if self._database is not None:
                cursor.execute(f"USE {quoted(self._catalog_name)}")
            with control.attached(cursor.interrupt, lambda: cursor.query_progress() / 100.0):
                yield cursor
        finally:
            cursor.close()

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, request: Request, control: Control) -> Fetched:
        """Run one judged statement and read its rows up to the caps."""
        with self._translated(request.sql, control), self._cursor(control) as cursor:
            statement = _single(cursor, request.sql)
            self._register(cursor, request.frames)
            if request.progress:
                cursor.execute("SET enable_progress_bar = true")
                cursor.execute("SET enable_progress_bar_print = false")
            control.check()
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            try:
                return _read(cursor, statement, request, control)
            finally:
                _roll_back(cursor)

    def explain(self, request: Request, control: Control) -> str:
        """Return the plan as the tree that DuckDB draws."""
        text = request.sql if _EXPLAIN.match(request.sql) else f"EXPLAIN {request.sql}"
        found = self.run(dataclasses.replace(request, sql=text, max_rows=10), control)
        return "\n".join(str(row[-1]).rstrip() for row in found.rows.to_lists())

    @contextlib.contextmanager
    def _translated(self, sql: str, control: Control) -> Iterator[None]:
        """Turn what DuckDB, or an interrupted Arrow reader, raises into the errors of nbtools."""
        import duckdb

        try:
            yield
        except NbtoolsError:
            raise
        except (duckdb.Error, OSError, OverflowError, MemoryError, ValueError) as exc:
            control.check()
            if isinstance(exc, MemoryError):
                raise LimitExceeded("the query needs more memory than there is.", tried="running SQL") from exc
            raise from_duckdb(exc, sql) from exc

    def _register(self, cursor: Any, frames: Mapping[str, Any]) -> None:
        for name, frame in frames.items():
            schema, dot, table = name.rpartition(".")
            if dot and schema in self._schemas:
                self._snapshot(cursor, schema, table, frame)
            elif self._database is None or name.casefold() not in self._own_names(cursor):
                # On a database's connection its own tables win; frames fill the gaps.
                _offer(cursor, name, frame)

    def _snapshot(self, cursor: Any, schema: str, table: str, frame: Any) -> None:
        """Copy a record into its schema. All cursors share it, and any copy is as good as another."""
        with self._snapshots:
            _offer(cursor, "__nbtools_snapshot", frame)
            cursor.execute(f"CREATE OR REPLACE TABLE {quoted(schema)}.main.{quoted(table)} AS FROM __nbtools_snapshot")
            cursor.execute("DROP VIEW __nbtools_snapshot")

    def _own_names(self, cursor: Any) -> frozenset[str]:
        if not self._own:
            cursor.execute(
                "SELECT lower(table_name) FROM information_schema.tables WHERE table_catalog = ?", [self._catalog_name]
            )
            self._own = frozenset(row[0] for row in cursor.fetchall())
        return self._own

    # -- what there is -----------------------------------------------------------------------------------------------

    def catalog(self) -> list[Table]:
        """Return the tables and views of the database with their columns."""
        if self._database is None:
            return []
        with self._cursor(Control()) as cursor:
            cursor.execute(
                "SELECT c.table_schema, c.table_name, t.table_type, c.column_name, c.data_type "
                "FROM information_schema.columns c JOIN information_schema.tables t "
                "USING (table_catalog, table_schema, table_name) "
                "WHERE c.table_catalog = ? ORDER BY 1, 2, c.ordinal_position",
                [self._catalog_name],
            )
            return tables_of(cursor.fetchall(), default_schema="main")

    def can_write(self) -> str | None:
        """Return `None`: memory is private and a database is attached read-only."""
        return None

    def warm(self) -> None:
        """Open the instance, so that the first query need not."""
        self._connection()

    def discard(self, control: Control) -> None:
        """Leave the instance to whatever is stuck in it and take a new one next time."""
        with self._lock:
            self._instance = None

    def close(self) -> None:
        """Close the instance and remove its temporary files."""
        with self._lock:
            instance, self._instance = self._instance, None
        if instance is not None:
            instance.close()
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = self._spill = None


def _offer(cursor: Any, name: str, frame: Any) -> None:
    """Make a frame readable under a name, for this cursor alone."""
    if isinstance(frame, ParquetFrame):
        cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS FROM read_parquet({_literal(str(frame.path))})")
        return
    if type(frame).__module__.startswith("pyarrow.") and "pyarrow.dataset" not in sys.modules:
        # A large table is worth the wait: then it is read in parallel.
        frame = StreamedFrame(frame) if frame.num_rows < _LARGE_FRAME else frame
    cursor.register(name, frame)


def _single(cursor: Any, sql: str) -> Any:
    """Return the one statement of the text, if it is of a kind that can be a query."""
    statements = cursor.extract_statements(sql)
    if len(statements) != 1:
        raise SqlNotAllowed(f"the text holds {len(statements)} statements; one is run at a time.", tried="running SQL")
    statement = statements[0]
    try:
        kind = statement.type.name
    except ValueError:
        kind = "of an unknown kind"
    if kind not in _RUNS:
        raise SqlNotAllowed(f"the statement is {kind}; nbtools SQL is read-only.", tried="running SQL")
    return statement


def _read(cursor: Any, statement: Any, request: Request, control: Control) -> Fetched:
    values = request.parameters
    names, types = _bound(cursor, statement, values)
    control.check()
    joined = " ".join(types)
    arrow = has("pyarrow") and (not _NO_ARROW.search(joined) or bool(_ZONED.search(joined)))
    if not arrow:
        rows, cut = _python_rows(cursor, statement, request, control, zoned=bool(_ZONED.search(joined)))
        if "UNKNOWN" in types:
            names, types = zip(*((str(column[0]), str(column[1])) for column in cursor.description), strict=True)
        return Fetched(columns=names, types=types, rows=PythonRows(names, rows), cut_by=cut)
    batch = _BATCH if request.max_rows <= _LARGE_BATCH else _LARGE_BATCH
    reader = cursor._submit(statement.query, values, "stream", batch).arrow_reader()  # noqa: SLF001 - see _bound
    try:
        table, cut = read_arrow(reader, request.max_rows, request.max_bytes, control)
    finally:
        with contextlib.suppress(Exception):
            reader.close()
    if "UNKNOWN" in types:
        # A dynamic PIVOT knows its columns only once it has run.
        names, types = tuple(table.schema.names), tuple(str(kind).upper() for kind in table.schema.types)
    return Fetched(columns=names, types=types, rows=ArrowRows(table), cut_by=cut)


def _bound(cursor: Any, statement: Any, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Bind the statement without running it; refuse it if it would change anything or write a file.

    The package's public `sql` does the same two steps (bind, submit) but runs a statement that writes at once.
    """
    import duckdb

    try:
        bound = _harmless(cursor, statement, values)
        if statement.type.name == "EXPLAIN":
            # EXPLAIN ANALYZE runs what it explains.
            inner = _single(cursor, _EXPLAIN.sub("", statement.query))
            if inner.type.name == "EXPLAIN":
                raise SqlNotAllowed("what is explained could not be told.", tried="running SQL")
            _harmless(cursor, inner, values)
    except duckdb.Error as exc:
        # The binder alone does not say where; explaining does. A line goes before the text, to count from its start.
        try:
            cursor.execute(f"EXPLAIN\n{statement.query}", values)
        except duckdb.Error as located:
            raise from_duckdb(located, statement.query, skip_lines=1) from exc
        raise
    return bound


def _harmless(cursor: Any, statement: Any, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    told = cursor._bind(statement, with_writes=True, values=values)  # noqa: SLF001 - see `_bound`
    names, types, _, returns, _, writes = told
    if returns != "query_result" or writes:
        raise SqlNotAllowed(
            "the statement writes; nbtools SQL is read-only.", hint="Send a SELECT.", tried="running SQL"
        )
    return tuple(names), tuple(str(kind).strip('"') for kind in types)


def _python_rows(cursor: Any, statement: Any, request: Request, control: Control, *, zoned: bool) -> tuple[Any, Cut]:
    """Fetch tuples through DuckDB's own conversion."""
    cursor.execute(statement, request.parameters)
    fetch = _frame_tuples if zoned else _plain_tuples
    return read_tuples(lambda: fetch(cursor), request.max_rows, request.max_bytes, control)


def _plain_tuples(cursor: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = cursor.fetchmany(_BATCH)
    return rows


def _frame_tuples(cursor: Any) -> list[tuple[Any, ...]]:
    """Fetch a chunk by way of pandas: zoned times need pytz otherwise, which pandas itself no longer does."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = cursor.fetch_df_chunk(1)
    columns = [_plain_values(frame.iloc[:, index]) for index in range(frame.shape[1])]
    return list(zip(*columns, strict=True))


def _plain_values(column: Any) -> list[Any]:
    """Return a column's values as Python has them, zoned times with a fixed offset."""
    values = [None if gone else value for value, gone in zip(column.tolist(), column.isna(), strict=True)]
    if column.dtype.kind != "M":
        return values
    times = [None if value is None else value.to_pydatetime(warn=False) for value in values]
    return [
        value if value is None or value.tzinfo is None else value.replace(tzinfo=dt.timezone(value.utcoffset()))
        for value in times
    ]


def _roll_back(cursor: Any) -> None:
    # An open result owns the connection, and an interrupt may have ended the transaction already.
    for step in (cursor.abort, lambda: cursor.execute("ROLLBACK")):
        with contextlib.suppress(Exception):
            step()
