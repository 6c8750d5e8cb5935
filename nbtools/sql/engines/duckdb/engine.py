"""DuckDB, locked down: the engine for frames, files and DuckDB databases.

The second wall, no matter who built the first:

- No network, no extensions, no secrets, no Python variables; files only below the allowed roots; memory, threads and
  spill capped; the configuration locked after that.
- A database file is attached read-only to a separate instance, never opened beside the user's own connection, and
  released as soon as no statement runs: the next writer need not wait for us.
- The statement object that was judged is bound first, and run only if it returns a query's rows and changes nothing:
  this also catches what hides inside a SELECT, such as COPY in a common table expression.
- It runs on a separate cursor, inside a READ ONLY transaction that is rolled back, with exactly the frames that it
  names registered.
- Our own questions about a database are asked on cursors that do not use it, and name the schema of each function: its
  file may bring a macro of any name.

Rows leave as Arrow batches where pyarrow is installed, else as Python tuples; the reader stops at the caps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbtools.confine.processors import count_processors
from nbtools.errors import ConfigInvalid, FileMissing, LimitExceeded, NbtoolsError
from nbtools.ground.lazy import duckdb
from nbtools.ground.paths import ARTIFACTS, stamp_of
from nbtools.sql.engines.duckdb.frames import CursorPool, register_frame
from nbtools.sql.engines.duckdb.statement import parse_single, read, roll_back
from nbtools.sql.engines.errors import from_duckdb
from nbtools.sql.engines.protocol import (
    GRACE_S,
    CatalogTable,
    EngineAnswer,
    EngineOptions,
    QueryControl,
    QueryRequest,
    catalog_query,
    tables_of,
)
from nbtools.sql.engines.temp_dirs import make_temp_dir, remove_temp_dir
from nbtools.sql.results.engine_copy import FileCopy
from nbtools.sql.verdict import guards
from nbtools.sql.verdict.duckdb.macros import read_definitions
from nbtools.sql.verdict.duckdb.parser import stopped_by_person
from nbtools.texts.sql_quotes import quote_identifier, quote_text

_OPENING = threading.Lock()  # who finds an instance finds it locked down
if hasattr(os, "register_at_fork"):  # no child begins in the middle of it, where nobody would let go of the lock
    os.register_at_fork(before=_OPENING.acquire, after_in_parent=_OPENING.release, after_in_child=_OPENING.release)


class DuckDBEngine:
    """DuckDB in this process.

    Parameters
    ----------
    database
        A database file, attached read-only; `None` if there are only frames and files.
    options
        Folders and limits.
    spill
        Folder for temporary files; `None` makes one and removes it. Engines with the same one, and the same options,
        are connections of one instance: to open another takes DuckDB twenty milliseconds, threads and megabytes.
    """

    dialect = "duckdb"
    takes_frames = True

    def __init__(
        self, database: Path | None = None, options: EngineOptions | None = None, *, spill: Path | None = None
    ) -> None:
        self.name = f"DuckDB {duckdb.__version__}"
        self._database = database
        self._options = options or EngineOptions()
        self._spill = spill
        self._lock = threading.Lock()
        self._instance: Any = None
        self._users = _Users()
        self._own: tuple[object, frozenset[str]] = (None, frozenset())
        self._cursors = CursorPool(self.fresh_cursor)
        self._finalizer: weakref.finalize[..., Any] | None = None

    @property
    def has_catalog(self) -> bool:
        """Whether there are tables beside frames and files."""
        return self._database is not None

    @property
    def is_open(self) -> bool:
        """Whether it has threads and memory now; a query opens it."""
        return self._instance is not None

    def another(self, *, threads: int) -> DuckDBEngine:
        """Return an engine for the same data and with the same rules, on a separate instance with its own threads."""
        spill = None if self._finalizer else self._spill
        return DuckDBEngine(self._database, dataclasses.replace(self._options, threads=threads), spill=spill)

    # -- the instance ------------------------------------------------------------------------------------------------

    def _connection(self) -> Any:
        with self._lock:
            if self._instance is None:
                self._instance, self._users = self._open(), _Users()
            return self._instance

    def _open(self) -> Any:
        if self._spill is None:
            self._spill = make_temp_dir()
            self._finalizer = weakref.finalize(self, remove_temp_dir, self._spill)
        name = hashlib.sha256(repr((self._database, self._options, self._spill)).encode()).hexdigest()
        with _OPENING:
            return self._open_locked(name, self._spill / f"spill-{name[:8]}")

    def _open_locked(self, name: str, spill: Path) -> Any:
        # A cursor forgets what SET says about replacements; what the instance was opened with, it keeps.
        connection = duckdb.connect(f":memory:{name}", config={"python_enable_replacements": False})
        try:
            # Parsed once, since every statement needs both; and here, since DuckDB's own default takes 20 ms to open.
            self._begin, self._end = connection.extract_statements("BEGIN TRANSACTION READ ONLY; ROLLBACK")
            if connection.execute("SELECT current_setting('lock_configuration')").fetchall() == [(False,)]:
                for setting, value in self._settings(spill):
                    connection.execute(f"SET {setting} = {value}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _settings(self, spill: Path) -> Iterator[tuple[str, str]]:
        """Yield the settings in the order they must be made: what is locked can no longer be changed."""
        yield "autoinstall_known_extensions", "false"
        yield "autoload_known_extensions", "false"
        yield "allow_community_extensions", "false"
        yield "allow_unsigned_extensions", "false"
        yield "allow_persistent_secrets", "false"
        yield "allow_unredacted_secrets", "false"
        # DuckDB does not count a single value: at a limit of 512 MB a process was seen with 15.7 GB.
        yield "memory_limit", quote_text(f"{self._options.memory_bytes // 1_000}KB")
        yield "threads", str(self._options.threads or count_processors())
        yield "temp_directory", quote_text(str(spill))
        yield "max_temp_directory_size", quote_text(f"{self._options.spill_bytes // 1_000}KB")
        # The slash matters: without it /data would also allow /database.
        folders = ", ".join(quote_text(os.path.join(root, "")) for root in self._options.roots)  # noqa: PTH118 - see above
        yield "allowed_directories", f"[{folders}]"
        if self._database is not None:
            # It is attached again and again, which is a file to open; texts that name it are refused by the verdict.
            files = ", ".join(quote_text(str(path)) for path in (self._database, _log_of(self._database)))
            yield "allowed_paths", f"[{files}]"
        # What scripts left is named artifacts/…, wherever that folder is.
        above = [str(root.parent) for root in self._options.roots if root.name == ARTIFACTS]
        # A pattern is looked for in these folders alone, a single file in the working folder too.
        yield "GLOBAL file_search_path", quote_text(",".join([".", *above] if above else []))
        # It hands TRY_CAST of a column on to the reader of a CSV file as a CAST: one word among numbers ends the query.
        yield "disabled_optimizers", "'type_pushdown'"
        yield "enable_external_access", "false"
        # Set on a cursor, for who looks or pages and for frames with a time zone; nothing else can be changed later.
        later = ("enable_progress_bar", "enable_progress_bar_print", "parquet_metadata_cache", "TimeZone")
        yield "allowed_configs", f"[{', '.join(map(quote_text, later))}]"
        yield "lock_configuration", "true"

    @contextlib.contextmanager
    def _attached(self) -> Iterator[None]:
        """Keep the database attached while the block runs; the last block that ends lets go of it, and of copies."""
        instance, users = self._connection(), self._users
        with users.lock:
            if self._database is not None and self._catalog_name not in users.attached:
                self._attach(instance, self._database)
                users.attached.add(self._catalog_name)
            users.count += 1
        try:
            yield
        finally:
            with users.lock:
                users.count -= 1
                if users.attached and not users.count:
                    self._detach(instance, users.attached)

    def _attach(self, instance: Any, database: Path) -> None:
        if not database.is_file():
            raise FileMissing(f"{str(database)!r} does not exist.")
        try:
            with contextlib.closing(instance.cursor()) as cursor:
                cursor.execute(f"ATTACH {quote_text(str(database))} AS {self._quoted_catalog} (READ_ONLY)")
        except duckdb.Error as exc:
            raise ConfigInvalid(
                f"{str(database)!r} cannot be opened: {' '.join(str(exc).split())[:300]}",
                hint="It must be a DuckDB file that no other process is writing. Where a connection of this notebook "
                "has it open, ask that one: %sql NAME select …, NAME being its variable.",
            ) from exc

    def _detach(self, instance: Any, names: set[str]) -> None:
        # An instance that was closed meanwhile, or that a stuck statement keeps, has nothing to let go.
        with contextlib.suppress(duckdb.Error), contextlib.closing(instance.cursor()) as cursor:
            while names:
                cursor.execute(f"DETACH {quote_identifier(names.pop())}")

    @property
    def stamp(self) -> object:
        """What changes with the catalog: what is known of it holds for as long as this is the same."""
        return () if self._database is None else tuple(map(stamp_of, (self._database, _log_of(self._database))))

    @property
    def _catalog_name(self) -> str:
        assert self._database is not None
        return self._database.stem or "db"

    @property
    def _quoted_catalog(self) -> str:
        return quote_identifier(self._catalog_name)

    @stopped_by_person()
    def fresh_cursor(self) -> Any:
        """Return a new cursor on the locked instance; the caller closes it."""
        cursor = self._connection().cursor()
        if self._database is not None:
            cursor.execute(f"USE {self._quoted_catalog}")
        _set_zone(cursor, self._options.zone)
        return cursor

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""
        with (
            self._map_errors(request.sql, control),
            self._attached() if self._database is not None or request.catalogs else contextlib.nullcontext(),
            # A cursor does not see what is registered on the instance, so each query brings its frames along.
            self._cursors.borrow(self._offered(request)) as cursor,
            control.attach(cursor.interrupt, lambda: cursor.query_progress() / 100.0),
        ):
            statement = parse_single(cursor, request.sql)
            copy = request.copy
            if copy is not None and copy.path is not None and not self._may_write(copy.path):
                request = dataclasses.replace(request, copy=FileCopy(None, copy.form))
            if request.progress:
                cursor.execute("SET enable_progress_bar = true")
                cursor.execute("SET enable_progress_bar_print = false")
            _set_zone(cursor, request.zone)
            try:
                self._begin_with_copies(cursor, request)
                return read(cursor, statement, request, control)
            finally:
                roll_back(cursor, self._end)
                if request.zone is not None:
                    cursor.execute("RESET TimeZone")

    def ask(self, sql: str, control: QueryControl) -> list[tuple[Any, ...]]:
        """Return the rows of a query of our own about judged files, without what only a text of a person needs.

        To bind it apart, in a transaction, and to go by Arrow takes longer than to look at a small file.
        """
        with (
            self._map_errors(sql, control),
            self._attached() if self._database is not None else contextlib.nullcontext(),
            self._cursors.borrow({}) as cursor,
            control.attach(cursor.interrupt),
        ):
            rows: list[tuple[Any, ...]] = cursor.execute(parse_single(cursor, sql)).fetchall()
            return rows

    def _may_write(self, path: Path) -> bool:
        """Tell whether the engine itself lets a file be written: it does only below the roots."""
        return any(root in path.parents for root in self._options.roots)

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return the plan as the tree that DuckDB draws."""
        is_explain = guards.find_explained(guards.scan(request.sql)) is not None
        text = request.sql if is_explain else f"EXPLAIN {request.sql}"
        plan = self.run(dataclasses.replace(request, sql=text), control)
        return "\n".join(str(row[-1]).rstrip() for row in plan.rows.to_lists())

    @contextlib.contextmanager
    def _map_errors(self, sql: str, control: QueryControl) -> Iterator[None]:
        """Turn what DuckDB, or an interrupted Arrow reader, raises into the errors of nbtools."""
        try:
            with stopped_by_person():
                yield
        except NbtoolsError:
            raise
        except (duckdb.Error, OSError, OverflowError, MemoryError, ValueError) as exc:
            control.check()
            if isinstance(exc, MemoryError):
                raise LimitExceeded("the query needs more memory than is available.") from exc
            raise from_duckdb(exc, sql) from exc

    def _offered(self, request: QueryRequest) -> dict[str, Any]:
        """Return the frames that a cursor itself registers; on a database's connection its own tables win."""
        names = [name for name in request.frames if not _is_copied(name, request)]
        own = self._own_names() if names and self.has_catalog else frozenset()
        return {name: request.frames[name] for name in names if name.casefold() not in own}

    def _begin_with_copies(self, cursor: Any, request: QueryRequest) -> None:
        """Begin a transaction, which sees what this request has under the names of catalogs.

        Others bring tables of the same names with them, such as the calls of another run: what is touched before
        they can copy theirs stays as it is for the transaction.
        """
        frames = {name: frame for name, frame in request.frames.items() if _is_copied(name, request)}
        with self._users.lock if frames else contextlib.nullcontext():
            tables = [self._copy_foreign(name, frame) for name, frame in frames.items()]
            cursor.execute(self._begin)
            for table in filter(None, tables):
                cursor.execute(f"FROM {table} LIMIT 0")

    def _copy_foreign(self, name: str, frame: Any) -> str | None:
        """Copy a record, or a table of another connection, into the catalog of its name, until no statement runs."""
        if self._database is not None and name.partition(".")[0].casefold() == self._catalog_name.casefold():
            return None  # its own tables win
        catalog, *schema, table = (quote_identifier(part) for part in name.split("."))
        attached, target = self._users.attached, ".".join((catalog, *(schema or ["main"])))
        with contextlib.closing(self._connection().cursor()) as cursor:
            if name.partition(".")[0] not in attached:
                cursor.execute(f"ATTACH ':memory:' AS {catalog}")
                attached.add(name.partition(".")[0])
            register_frame(cursor, "snapshot", frame)
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {target}")
            cursor.execute(f"CREATE OR REPLACE TABLE {target}.{table} AS FROM temp.snapshot")
        return f"{target}.{table}"

    def _select(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query of our own about the catalog; its functions must be named with their schema."""
        with self._attached(), contextlib.closing(self._connection().cursor()) as cursor:
            cursor.execute(self._begin)
            rows: list[tuple[Any, ...]] = cursor.execute(sql, values).fetchall()
            cursor.execute(self._end)
        return rows

    def _columns(self) -> list[tuple[Any, ...]]:
        return self._select(catalog_query("duckdb", "columns"), [self._catalog_name])

    def _own_names(self) -> frozenset[str]:
        stamp = self.stamp
        if self._own[0] != stamp:
            names = frozenset(row[1].casefold() for row in self._columns())
            self._own = (stamp, names)
        return self._own[1]

    # -- what there is -----------------------------------------------------------------------------------------------

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views of the database with their columns."""
        if not self.has_catalog:
            return []
        return tables_of(self._columns(), default_schema="main")

    def definitions(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the macros and the views of the database, name to definitions, for the verdict."""
        return read_definitions(self._select) if self.has_catalog else ({}, {})

    def can_write(self) -> str | None:
        """Return `None`: memory is private and a database is attached read-only."""
        return None

    def warm(self) -> None:
        """Open the instance, so that the first query need not."""
        self._connection()

    def discard(self, control: QueryControl) -> None:
        """Abandon the instance to the statement that does not end, and open a new one for the next query."""
        with self._lock:
            self._instance = None
            self._cursors = CursorPool(self.fresh_cursor)

    def close(self) -> None:
        """Close the instance once what runs on it has ended, and remove its temporary files; a query opens it again."""
        with self._lock:
            instance, self._instance = self._instance, None
            cursors, self._cursors = self._cursors, CursorPool(self.fresh_cursor)
            finalizer, self._finalizer, self._spill = self._finalizer, None, None
        cursors.close(GRACE_S)
        if instance is not None:
            # DuckDB refuses while a statement is stuck in it, which keeps the instance until it ends.
            with contextlib.suppress(duckdb.Error):
                instance.close()
        if finalizer is not None:
            finalizer()


@dataclasses.dataclass(eq=False)
class _Users:
    """How many blocks need what an instance has attached at this moment."""

    count: int = 0
    attached: set[str] = dataclasses.field(default_factory=set)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


def _is_copied(name: str, request: QueryRequest) -> bool:
    return name.partition(".")[0] in request.catalogs


def _set_zone(cursor: Any, zone: str | None) -> None:
    """Let moments be shown in a time zone, where there is one that DuckDB knows."""
    if zone is not None:
        with contextlib.suppress(duckdb.NotImplementedException):
            cursor.execute(f"SET TimeZone = {quote_text(zone)}")


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.wal")
