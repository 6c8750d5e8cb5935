"""Engines: what runs a statement that the verdict let through, behind one protocol.

An engine gets a `Request` (text, values, frames, caps) and a `Control`, runs the statement in the calling thread and
returns `Fetched`. It never decides what may run - the verdict did - but it is the second wall all the same: each
engine opens its database read-only and runs every statement in a transaction that cannot write. Caps are kept by
stopping the reader; no LIMIT is pasted into the text, because that can change what the text means.

Whoever waits holds the other end of the `Control`: `stop` names the reason, and `poke` calls whatever the engine
attached. Poking is repeated until the engine is back, because an interrupt that arrives while a statement is being
prepared is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from nbtools.errors import CallTimeout, Cancelled
from nbtools.sql.results.rows import Rows

__all__ = [
    "GRACE_S",
    "Column",
    "Control",
    "Engine",
    "Fetched",
    "OnRows",
    "Opening",
    "Reason",
    "Request",
    "Table",
    "tables_of",
]

# Seconds that an interrupted statement has to come back, before its engine is given up.
GRACE_S = 0.5
OnRows = Callable[[tuple[str, ...], Rows], None]
Reason = Literal["timeout", "stop", "closed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One statement to run, already judged.

    Attributes
    ----------
    sql
        The text exactly as it was judged.
    parameters
        Values to bind, by name or by position; `None` for none.
    frames
        Tables handed in, by the name the text uses; a dotted name is a schema and a table.
    max_rows, max_bytes
        Where the reader stops, `None` for nowhere; one row more than `max_rows` is looked at to tell whether there are
        more.
    whole
        Whether more than `max_bytes` is an error; otherwise the rows that fit are the result.
    on_rows
        Gets the names of the columns and some rows, again and again, in the place of a result that holds them all.
    timeout
        Seconds, for engines that can enforce it themselves; `None` for no limit.
    progress
        Whether somebody wants to know how far it is, which costs a little.
    """

    sql: str
    parameters: Mapping[str, Any] | Sequence[Any] | None = None
    frames: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_rows: int | None = None
    max_bytes: int | None = 64_000_000
    whole: bool = False
    on_rows: OnRows | None = None
    timeout: float | None = 30.0
    progress: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fetched:
    """What came back: names and types of the columns, the rows, and whether a cap cut them (`None`: complete)."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Rows
    cut_by: Literal["rows", "bytes"] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """What engines of a session are opened with."""

    roots: tuple[Path, ...] = ()
    memory_bytes: int = 1_000_000_000
    spill_bytes: int = 1_000_000_000
    schemas: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column in a catalog."""

    name: str
    type: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table, view, frame or record that a query can name."""

    name: str
    kind: Literal["table", "view", "frame", "record", "file"]
    columns: tuple[Column, ...] = ()
    schema: str | None = None
    rows: int | None = None


class Control:
    """The line between a running statement and whoever waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._progress: Callable[[], float] | None = None
        self.reason: Reason | None = None

    @contextlib.contextmanager
    def attached(self, interrupt: Callable[[], None], progress: Callable[[], float] | None = None) -> Iterator[None]:
        """Make `interrupt` what `poke` calls while the block runs; the engine calls this around its work."""
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
    def is_attached(self) -> bool:
        """Whether an engine is at work that can be interrupted."""
        return self._interrupt is not None

    def stop(self, reason: Reason) -> None:
        """Say why the statement must end, and interrupt it. The first reason stays."""
        self.reason = self.reason or reason
        self.poke()

    def poke(self) -> None:
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
        return share if 0.0 <= share <= 1.0 else None

    def check(self) -> None:
        """Raise the error that fits the reason, if there is one; engines call it between steps.

        Raises
        ------
        CallTimeout
            The time ran out.
        Cancelled
            Somebody stopped the query or closed the session.
        """
        if self.reason == "timeout":
            raise CallTimeout(
                "the query outlived its time and was interrupted.",
                hint="Ask for less (fewer rows, a filter, an aggregate), or allow more time.",
                tried="running SQL",
            )
        if self.reason is not None:
            what = "the session was closed" if self.reason == "closed" else "it was stopped"
            raise Cancelled(f"the query did not finish: {what}.", tried="running SQL")


class Engine(Protocol):
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

    def run(self, request: Request, control: Control) -> Fetched:
        """Run one judged statement and read its rows up to the caps."""
        ...

    def explain(self, request: Request, control: Control) -> str:
        """Return the plan of the statement as a readable tree."""
        ...

    def catalog(self) -> list[Table]:
        """Return the tables and views with their columns."""
        ...

    def can_write(self) -> str | None:
        """Say why the connection's role could write, were it not for the walls; `None` when it could not."""
        ...

    def discard(self, control: Control) -> None:
        """Give up the statement that `control` belongs to and does not react; the next one starts afresh."""
        ...

    def close(self) -> None:
        """Release everything; running statements end."""
        ...


def tables_of(rows: Iterable[tuple[Any, ...]], *, default_schema: str) -> list[Table]:
    """Group the rows of a catalog (schema, table, type, column, data type) into tables."""
    found: dict[tuple[str, str, str], list[Column]] = {}
    for schema, table, kind, column, data_type in rows:
        found.setdefault((schema, table, kind), []).append(Column(name=column, type=str(data_type)))
    return [
        Table(
            name=table,
            kind="view" if "VIEW" in kind.upper() else "table",
            columns=tuple(columns),
            schema=None if schema == default_schema else schema,
        )
        for (schema, table, kind), columns in found.items()
    ]
