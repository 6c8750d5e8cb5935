"""Connections to one PostgreSQL database, for any number of threads.

A connection is made in the thread that needs one and kept for the next. Work that loses its connection is done again
on a new one until its time is over, so a restart of the server costs its clients no more than the restart.

psycopg_pool would replace some thirty lines, but starts four threads in each process that opens a memory, and a kernel
that has threads cannot be copied.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nbtools.errors import ConfigInvalid, MemoryUnavailable, MemoryWriteFailed, NbtoolsError, first_line
from nbtools.ground.lazy import need
from nbtools.memory.repository import memory_closed, outcome_unknown

_MOST = 8
# What a firewall may have dropped without a word is not used again.
_LONGEST_IDLE_S = 300.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.3
# Lost connections, a server that stops or starts, and transactions that gave way to others.
_PASSING = ("08", "40", "57P")
T = TypeVar("T")


class Connections:
    """Lend connections to a database.

    Parameters
    ----------
    url
        ``postgresql://…`` as libpq takes it; its parameters go before those chosen here.
    timeout
        Seconds that one piece of work may take, a restart of the server included.
    prepare
        Is given the first connection before anything else.

    Raises
    ------
    ConfigInvalid
        The URL is not one of PostgreSQL.
    MissingExtra
        The extra ``postgres`` is not installed.
    """

    def __init__(self, url: str, timeout: float, prepare: Callable[[Any], None]) -> None:
        self.psycopg = need("psycopg", extra="postgres", why="Keeping the memory in PostgreSQL")
        parts = urlsplit(url)
        self.server = f"{parts.hostname or 'local socket'}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._timeout = timeout
        self._prepare = prepare
        try:
            options = self.psycopg.conninfo.conninfo_to_dict(url)
        except self.psycopg.ProgrammingError as exc:
            raise ConfigInvalid(f"The memory URL is not one of PostgreSQL: {first_line(exc)}") from None
        # Without the last three, a client of a server whose machine is gone waits for as long as its system does.
        mine = {"application_name": "nbtools", "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
        self._parameters = mine | {"tcp_user_timeout": int(timeout * 1000)} | options
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._places = threading.BoundedSemaphore(_MOST)
        self._preparing = threading.Lock()
        self._is_prepared = False
        # With the time since when each is idle; used from the end, so that what is seldom needed grows old.
        self._idle: list[tuple[float, Any]] = []
        self._closing = threading.Event()

    def run(self, work: Callable[[Any], T], *, request: str | None = None, timeout: float | None = None) -> T:
        """Do work in a transaction, and repeat it on a new connection if the connection is lost; it must be repeatable.

        Parameters
        ----------
        work
            Is given a connection; what it did is committed when it returns. A reader sees one moment of the database.
        request
            The name by which work that writes is known; `None` for work that only reads.
        timeout
            Seconds that it may take; `None` takes those of all.

        Raises
        ------
        MemoryUnavailable
            There is no connection, or the time is over; a request may have been applied only if the error says so.
        MemoryWriteFailed
            The server refuses a request.
        """
        if self._process != os.getpid():
            self._begin()  # What a forked child inherits is its parent's.
        isolation = "REPEATABLE READ READ ONLY" if request is None else "READ COMMITTED"
        end, pause = time.monotonic() + (timeout or self._timeout), _FIRST_PAUSE_S
        was_sent = False
        while True:
            was_prepared = self._is_prepared
            try:
                with self._borrow(end, isolation) as connection:
                    done = work(connection)
                    # From here on the server may apply it, whatever becomes of the connection.
                    was_sent = request is not None
                    connection.commit()
                    return done
            except self.psycopg.Error as exc:
                # At the first contact a wrong URL is more likely than a restart.
                if not was_prepared or not self._is_passing(exc) or time.monotonic() + pause > end:
                    raise self._as_memory_error(exc, request, was_sent=was_sent) from None
            except MemoryUnavailable as exc:
                raise outcome_unknown(exc.message, request or "") if was_sent else exc from None
            self._drop_idle()
            self._closing.wait(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close the idle connections; one that is in use is closed when its work ends."""
        self._closing.set()
        if self._process == os.getpid():
            self._drop_idle()

    @contextmanager
    def _borrow(self, end: float, isolation: str) -> Iterator[Any]:
        if not self._places.acquire(timeout=max(0.0, end - time.monotonic())):
            raise MemoryUnavailable(
                f"All {_MOST} connections to PostgreSQL at {self.server} were in use for {self._timeout:g} s.",
                hint="try again",
                retryable=True,
            )
        connection = None
        try:
            connection = self._take(end)
            remaining = max(1, int((end - time.monotonic()) * 1000))
            connection.execute(f"BEGIN ISOLATION LEVEL {isolation}; SET LOCAL statement_timeout = {remaining}")
            try:
                yield connection
            except NbtoolsError:
                connection.rollback()
                raise
            finally:
                if connection.info.transaction_status == self.psycopg.pq.TransactionStatus.IDLE:
                    self._idle.append((time.monotonic(), connection))
                    connection = None
        finally:
            if connection is not None:
                connection.close()
            self._places.release()
            if self._closing.is_set():
                self._drop_idle()

    def _take(self, end: float) -> Any:
        if self._closing.is_set():
            raise memory_closed()
        with suppress(IndexError):  # None is idle.
            while True:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _LONGEST_IDLE_S:
                    return connection
                connection.close()
        # libpq waits for two seconds at least.
        seconds = max(2, int(end - time.monotonic()))
        connection = self.psycopg.connect(**{"connect_timeout": seconds} | self._parameters, autocommit=True)
        try:
            with self._preparing:
                if not self._is_prepared:
                    self._prepare(connection)
                    self._is_prepared = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # Another thread may have taken the last one.
            while True:
                self._idle.pop()[1].close()

    def _is_passing(self, exc: Any) -> bool:
        lost = (self.psycopg.OperationalError, self.psycopg.InterfaceError)
        return isinstance(exc, lost) and (exc.sqlstate or "08").startswith(_PASSING)

    def _as_memory_error(self, exc: Any, request: str | None, *, was_sent: bool) -> NbtoolsError:
        away = f"PostgreSQL at {self.server} cannot be used: {first_line(exc)}"
        if was_sent:
            return outcome_unknown(f"{away}.", request or "")
        if isinstance(exc, (self.psycopg.OperationalError, self.psycopg.InterfaceError)):
            hint = "check that the server runs and that NBTOOLS_MEMORY_URL is right"
            return MemoryUnavailable(away, hint=hint, retryable=True)
        kind = MemoryUnavailable if request is None else MemoryWriteFailed
        return kind(f"PostgreSQL refused: {first_line(exc)}", hint=f"look at the log of {self.server}")
