"""Engines: what runs a judged statement, behind one protocol.

An engine gets a `QueryRequest` (text, values, frames, caps) and a `QueryControl`, runs the statement in the calling
thread and returns `EngineAnswer`. The verdict has decided that the statement may run. The engine is the second wall: it
opens its database read-only and runs each statement in a transaction that cannot write. It stops reading at the caps;
no LIMIT is added to the text, because that can change what the text means.

The caller that waits for the statement holds the same `QueryControl`: `stop` records why the statement must end, and
`interrupt` calls the function that the engine attached. The caller repeats the interrupt until the engine returns,
because engines lose an interrupt that arrives while they prepare a statement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from nbtools.errors import CallTimeout, Cancelled
from nbtools.sql.results.engine_copy import FileCopy
from nbtools.sql.results.rows import ResultRows

# Seconds that an interrupted statement has to come back, before its engine is given up.
GRACE_S = 0.5
OnRows = Callable[[tuple[str, ...], ResultRows], None]
Reason = Literal["timeout", "stop", "closed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """One statement to run, already judged.

    Attributes
    ----------
    sql
        The text exactly as it was judged.
    parameters
        Values to bind, by name or by position; `None` for none.
    frames
        Tables handed in, by the name the text uses; a dotted name is a schema and a table.
    catalogs
        What the names of records, and of tables of other connections, among them begin with.
    max_rows
        Rows after which the reader stops, `None` for no limit; one row more is read to learn whether there are more.
    max_bytes
        Bytes after which the reader stops; `None` for no limit.
    whole
        Whether more than `max_bytes` is an error; otherwise the rows that fit are the result.
    on_rows
        Gets the names of the columns and some rows, again and again, in place of a result that holds them all.
    copy
        The file that the rows are for, where the engine may write it itself; the result has none then.
    timeout
        Seconds, for engines that can enforce it themselves; `None` for no limit.
    progress
        Whether someone wants to know how far it is, which costs a little.
    only_shown
        Whether the rows are wanted only as text, for which no library need be loaded.
    only_types
        Whether only names and types of the columns are wanted; DuckDB tells them without a run.
    zone
        In which DuckDB shows moments; `None` for that of the engine's options.
    """

    sql: str
    parameters: Mapping[str, Any] | Sequence[Any] | None = None
    frames: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    catalogs: tuple[str, ...] = ()
    max_rows: int | None = None
    max_bytes: int | None = 64_000_000
    whole: bool = False
    on_rows: OnRows | None = None
    copy: FileCopy | None = None
    timeout: float | None = 30.0
    progress: bool = False
    only_shown: bool = False
    only_types: bool = False
    zone: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineAnswer:
    """What came back: names and types of the columns, the rows, and whether a cap cut them (`None`: complete)."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: ResultRows
    cut_by: Literal["rows", "bytes"] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The options that all engines of a session are opened with.

    Attributes
    ----------
    roots
        Folders whose files may be read.
    memory_bytes
        Of the engine's own buffers; a single value can exceed it, and only the worker process contains that.
    spill_bytes
        Of temporary files.
    threads
        `None` takes one for each processor that this process may use.
    zone
        In which moments are shown; `None` for that of the machine.
    """

    roots: tuple[Path, ...] = ()
    memory_bytes: int = 1_000_000_000
    spill_bytes: int = 1_000_000_000
    threads: int | None = None
    zone: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CatalogColumn:
    """A column in a catalog."""

    name: str
    type: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CatalogTable:
    """A table, view, frame or record that a query can name."""

    name: str
    kind: Literal["table", "view", "frame", "record", "file"]
    columns: tuple[CatalogColumn, ...] = ()
    schema: str | None = None

    @property
    def full_name(self) -> str:
        """What a query calls it: with the schema, unless that is the default one."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as data; the columns are pairs of name and type."""
        columns = [(column.name, column.type) for column in self.columns]
        return {"name": self.full_name, "kind": self.kind, "schema": self.schema, "columns": columns}


class QueryControl:
    """Connects a running statement with the caller that waits for it: interrupts go in, progress comes out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._progress: Callable[[], float] | None = None
        self.reason: Reason | None = None

    @contextlib.contextmanager
    def attach(self, interrupt: Callable[[], None], progress: Callable[[], float] | None = None) -> Iterator[None]:
        """Let `self.interrupt` call the given function while the block runs; the engine calls this around its work."""
        with self._lock:
            self._interrupt, self._progress = interrupt, progress
        try:
            self.check()
            yield
        finally:
            # Under the lock: an interrupt must not reach the connection once another statement uses it.
            with self._lock:
                self._interrupt = self._progress = None

    @property
    def is_running_statement(self) -> bool:
        """Whether an engine is at work that can be interrupted."""
        return self._interrupt is not None

    def stop(self, reason: Reason) -> None:
        """Say why the statement must end, and interrupt it. The first reason stays."""
        self.reason = self.reason or reason
        self.interrupt()

    def interrupt(self) -> None:
        """Interrupt again; nothing happens when no statement is running."""
        with self._lock:
            if self._interrupt is not None:
                self._interrupt()

    def progress(self) -> float | None:
        """Return the share of the work that is done, 0 to 1, or `None` when the engine cannot tell."""
        with self._lock:
            if self._progress is None:
                return None
            share = self._progress()
        # Engines return -1, or more than 1, as long as they cannot estimate it.
        return share if 0.0 <= share <= 1.0 else None

    def check(self) -> None:
        """Raise the error that fits the reason, if there is one; engines call it between steps.

        Raises
        ------
        CallTimeout
            The time ran out.
        Cancelled
            Someone stopped the query or closed the session.
        """
        if self.reason == "timeout":
            raise CallTimeout(
                "the query exceeded its time and was interrupted.",
                hint="Ask for less (fewer rows, a filter, an aggregate), or allow more time.",
            )
        if self.reason is not None:
            what = "the session was closed" if self.reason == "closed" else "it was stopped"
            raise Cancelled(f"the query did not finish: {what}.")


class SqlEngine(Protocol):
    """What runs statements; all methods block and are called from worker threads, several at once.

    Attributes
    ----------
    name
        For people, such as ``"DuckDB 2.0.0"``.
    dialect
        Of the verdict and of sqlglot, such as ``"postgres"``.
    takes_frames
        Whether frames can be handed in with a request.
    """

    name: str
    dialect: str
    takes_frames: bool

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement and read its rows up to the caps."""

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return the plan of the statement as a readable tree."""

    def catalog(self) -> list[CatalogTable]:
        """Return the tables and views with their columns."""

    def can_write(self) -> str | None:
        """Say why the connection's role could write, were it not for the walls; `None` when it could not."""

    def discard(self, control: QueryControl) -> None:
        """Give up the statement that `control` belongs to and does not react; the next one starts afresh."""

    def close(self) -> None:
        """Release everything; running statements end."""


class QueriesAlone:
    """What engines share that know queries alone: no frames, and a plan that comes as the rows of a query."""

    takes_frames = False
    explain_word = "EXPLAIN"

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Run one judged statement; each engine has its own way."""
        raise NotImplementedError

    def explain(self, request: QueryRequest, control: QueryControl) -> str:
        """Return what the database's EXPLAIN says, a line a row."""
        plan = self.run(dataclasses.replace(request, sql=f"{self.explain_word} {request.sql}"), control)
        return "\n".join(" ".join(map(str, row)) for row in plan.rows.to_lists())

    def can_write(self) -> str | None:
        """Return that the rights are unknown: few servers tell them, and each in another way."""
        return "the rights of its user cannot be determined, so it may be able to write"

    def discard(self, control: QueryControl) -> None:
        """Do nothing: a statement that is stuck keeps its connection for itself."""

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def tables_of(rows: Iterable[tuple[Any, ...]], *, default_schema: str) -> list[CatalogTable]:
    """Group the rows of a catalog (schema, table, type, column, data type) into tables."""
    tables: dict[tuple[str, str, str], list[CatalogColumn]] = {}
    for schema, table, kind, column, data_type in rows:
        tables.setdefault((schema, table, kind), []).append(CatalogColumn(name=column, type=str(data_type)))
    return [
        CatalogTable(
            name=table,
            kind="view" if "VIEW" in kind.upper() else "table",
            columns=tuple(columns),
            schema=None if schema == default_schema else schema,
        )
        for (schema, table, kind), columns in tables.items()
    ]


@functools.cache
def catalog_query(engine: str, what: str) -> str:
    """Return a question to the catalog of a kind of database, as ``catalogs.toml`` has it."""
    tables = tomllib.loads(Path(__file__).with_name("catalogs.toml").read_text(encoding="ascii"))
    return str(tables[engine][what])
