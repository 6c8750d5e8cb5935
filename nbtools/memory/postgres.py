"""Memory on PostgreSQL: the same rules as everywhere, kept by the server for any number of machines.

A batch is one transaction. It locks the ids it touches (advisory locks, in one order, so that no two batches wait for
each other), reads what is there, and writes rows, history and the answer under the request's id: a batch that is sent
again after a lost connection finds its answer and is not applied twice. Words are split here, so that the same words
find the same records as in the other stores; the server finds them by a GIN index over ``tsvector``.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nbtools.errors import ConfigInvalid, MemoryUnavailable, MemoryWriteFailed
from nbtools.lazy import need
from nbtools.memory.postgres_schema import migrate
from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import (
    Applied,
    CallQuery,
    Change,
    Found,
    Query,
    add_numbers,
    check_version,
    no_such_version,
)
from nbtools.memory.rows import Row, later, row_from_list, row_to_list, row_to_record
from nbtools.memory.search import cosine, fuse, rank, record_text, split_words

__all__ = ["PostgresRepository"]

_VERSION = "agent_id, workflow_id, node_id, key, op, value, tags, created, updated, expires, version"
# As `row_from_list` takes them; sequence numbers belong to other stores.
_COLUMNS = f"0, {_VERSION}, vector"
_PAST = f"0, {_VERSION}, NULL"
_CHANGING = ("op", "value", "tags", "created", "updated", "expires", "version", "vector", "words")
_UPSERT = (
    f"INSERT INTO nbtools_items (id, scope, {_VERSION}, vector, words) "
    f"VALUES ({', '.join(['%s'] * 14)}, array_to_tsvector(%s::text[])) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in _CHANGING)
)
_REMEMBER = f"INSERT INTO nbtools_history (id, {_VERSION}) VALUES ({', '.join(['%s'] * 12)})"
_MOST_FOUND = 1_000
_MOST_WORDS = 20_000
_LONGEST_WORD = 500
_KEPT_ANSWERS_US = 3_600_000_000
T = TypeVar("T")


class PostgresRepository:
    """Keep records in a PostgreSQL database.

    Parameters
    ----------
    url
        ``postgresql://user:password@host/database``, with the parameters of libpq.
    history
        How many versions of a key are kept.
    timeout
        Seconds to wait for a connection, and for one statement.

    Raises
    ------
    MissingExtra
        The extra ``postgres`` is not installed.
    """

    def __init__(self, url: str, *, history: int = 100, timeout: float = 30.0) -> None:
        why = "Keeping the memory in PostgreSQL"
        self._psycopg = need("psycopg", extra="postgres", why=why)
        self._pools = need("psycopg_pool", extra="postgres", why=why)
        self._url = url.replace("postgres://", "postgresql://", 1)
        self._keep = history
        self._timeout = timeout
        self._lock = threading.Lock()
        self._pool: Any = None
        self._latest = 0
        self._closed = False

    # -- Repository

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[Applied]:
        """Apply a batch in one transaction, once per request id."""
        request = request_id or uuid.uuid4().hex
        return self._tried(lambda cursor: self._batch(cursor, changes, request), writes=True)

    def query(self, query: Query) -> Found:
        """Return the live records that match."""
        return self._tried(lambda cursor: self._found(cursor, query))

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        record_id = scope.record_id(key)

        def read(cursor: Any) -> list[MemoryRecord]:
            text = f"SELECT {_PAST} FROM nbtools_history WHERE id = %s"
            cursor.execute(text + " ORDER BY version DESC LIMIT %s", [record_id, limit])
            return [row_to_record(row) for row in reversed(_rows(cursor))]

        return self._tried(read)

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        wanted = {"call_id": query.call_id, "run_id": query.run_id, "tool": query.tool}
        given = {name: value for name, value in wanted.items() if value is not None}

        def read(cursor: Any) -> list[dict[str, Any]]:
            where = " AND ".join(f"{name} = %s" for name in given) or "TRUE"
            text = f"SELECT record FROM nbtools_calls WHERE {where} ORDER BY seq DESC LIMIT %s"
            cursor.execute(text, [*given.values(), query.limit])
            return [json.loads(record) for (record,) in reversed(cursor.fetchall())]

        return self._tried(read)

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""

        def read(cursor: Any) -> int:
            cursor.execute("SELECT count(*) FROM nbtools_items WHERE value IS NOT NULL")
            (count,) = cursor.fetchone()
            return int(count)

        count = self._tried(read)
        return {"backend": "postgresql", "place": _place(self._url), "records": count, "vectors": True, "notices": []}

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    # -- connections

    def _opened(self) -> Any:
        with self._lock:
            if self._closed:
                raise MemoryUnavailable("This memory was closed.", hint="open it again with open_memory")
            if self._pool is None:
                # What the pool would print while the server is away is said by the error of whoever asks.
                logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
                pool = self._pools.ConnectionPool(
                    self._url,
                    min_size=0,
                    max_size=8,
                    timeout=self._timeout,
                    open=False,
                    reconnect_timeout=self._timeout,
                    kwargs={"connect_timeout": max(2, int(self._timeout)), "application_name": "nbtools"},
                )
                self._prepare(pool)
                self._pool = pool
            return self._pool

    def _prepare(self, pool: Any) -> None:
        """Connect once by hand, which says why it fails, and bring the schema up to date."""
        try:
            with self._psycopg.connect(self._url, connect_timeout=max(2, int(self._timeout))) as connection:
                migrate(connection, _place(self._url))
        except self._psycopg.ProgrammingError as exc:
            raise ConfigInvalid(f"The memory URL is not one of PostgreSQL: {_first_line(exc)}") from None
        except self._psycopg.Error as exc:
            raise self._unavailable(exc) from None
        pool.open()

    def _unavailable(self, exc: Exception) -> MemoryUnavailable:
        return MemoryUnavailable(
            f"PostgreSQL at {_place(self._url)} cannot be used: {_first_line(exc)}",
            hint="check that the server runs and that NBTOOLS_MEMORY_URL is right",
            retryable=True,
        )

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with self._opened().connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {int(self._timeout * 1000)}")
            yield cursor

    def _tried(self, work: Callable[[Any], T], *, writes: bool = False) -> T:
        """Run `work` in a transaction, a second time when the connection was lost: requests are applied only once."""
        lost = (self._psycopg.OperationalError, self._psycopg.InterfaceError, self._pools.PoolTimeout)
        for attempt in (1, 2, 3):
            try:
                with self._cursor() as cursor:
                    return work(cursor)
            except lost as exc:
                if attempt == 3 or isinstance(exc, self._pools.PoolTimeout):
                    raise self._unavailable(exc) from None
                self._pool.check()  # drop what the server closed, so that the next try gets a live connection
            except self._psycopg.Error as exc:
                kind = MemoryWriteFailed if writes else MemoryUnavailable
                raise kind(
                    f"PostgreSQL refused: {_first_line(exc)}", hint=f"look at the log of {_place(self._url)}"
                ) from None
        raise AssertionError("the last attempt returns or raises")

    # -- writing

    def _batch(self, cursor: Any, changes: Sequence[Change], request: str) -> list[Applied]:
        # The request is the first lock of every batch, its ids follow in order.
        ids = sorted({change.scope.record_id(change.key) for change in changes if change.scope and change.key})
        for name in (f"request:{request}", *ids):
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        cursor.execute("SELECT answer FROM nbtools_requests WHERE id = %s", [request])
        answered = cursor.fetchone()
        if answered:
            return [_applied(item) for item in json.loads(answered[0])]
        now = self._now(cursor)
        done = [self._change(cursor, change, now) for change in changes]
        answer = json.dumps([[row_to_list(row) if row else None, count] for row, count in done])
        cursor.execute("INSERT INTO nbtools_requests VALUES (%s, %s, %s)", [request, answer, now])
        cursor.execute("DELETE FROM nbtools_requests WHERE at < %s", [now - _KEPT_ANSWERS_US])
        return [Applied(record=row_to_record(row) if row else None, count=count) for row, count in done]

    def _now(self, cursor: Any) -> int:
        """Return the server's time in microseconds, without its small steps back."""
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        (now,) = cursor.fetchone()
        self._latest = later(self._latest, int(now))
        return self._latest

    def _change(self, cursor: Any, change: Change, now: int) -> tuple[Row | None, int]:
        if change.kind == "call":
            self._call(cursor, change)
            return None, 1
        assert change.scope is not None, "only calls have no scope"
        if change.kind == "clear":
            return None, self._clear(cursor, change, change.scope, now)
        newest = self._newest(cursor, change.scope.record_id(change.key))
        live = newest if newest is not None and newest.is_live(now) else None
        check_version(change.key, change.if_version, live.version if live else 0)
        if change.kind == "delete":
            if live is None:
                return None, 0
            self._append(cursor, live._replace(op="delete", value=None, expires=None, vector=None), live, now)
            return None, 1
        return self._put(cursor, change, change.scope, (newest, live), now), 1

    def _put(self, cursor: Any, change: Change, scope: Scope, found: tuple[Row | None, Row | None], now: int) -> Row:
        newest, live = found
        record_id = scope.record_id(change.key)
        start = live or Row(
            0,
            record_id,
            scope.agent_id,
            scope.workflow_id,
            scope.node_id,
            change.key,
            "write",
            "0",
            (),
            now,
            now,
            None,
            0,
        )
        if change.kind == "write":
            tags = start.tags if change.tags is None else change.tags
            expires = start.expires
            if change.ttl is not None:
                expires = now + int(change.ttl * 1e6) if change.ttl else None
            row = start._replace(op="write", value=change.value, tags=tags, expires=expires)
        elif change.kind == "incr":
            total = add_numbers(change.key, json.loads(start.value or "0"), change.by)
            row = start._replace(op="incr", value=json.dumps(total))
        else:
            old = self._version(cursor, record_id, change)
            row = start._replace(op="restore", value=old.value, tags=old.tags, expires=None)
        return self._append(cursor, row._replace(vector=change.vector), newest, now)

    def _newest(self, cursor: Any, record_id: str) -> Row | None:
        cursor.execute(f"SELECT {_COLUMNS} FROM nbtools_items WHERE id = %s", [record_id])
        rows = _rows(cursor)
        return rows[0] if rows else None

    def _version(self, cursor: Any, record_id: str, change: Change) -> Row:
        text = f"SELECT {_PAST} FROM nbtools_history WHERE id = %s AND value IS NOT NULL"
        cursor.execute(text + " ORDER BY version", [record_id])
        known = {row.version: row for row in _rows(cursor)}
        if change.version not in known:
            raise no_such_version(change.key, change.version or 0, list(known))
        return known[change.version]

    def _append(self, cursor: Any, row: Row, newest: Row | None, now: int) -> Row:
        """Make a row the newest version of its id."""
        number = newest.version + 1 if newest else 1
        row = row._replace(version=number, created=min(row.created, now), updated=now)
        version = [
            *(row.agent, row.workflow, row.node, row.key, row.op, row.value, list(row.tags)),
            *(row.created, row.updated, row.expires, row.version),
        ]
        vector = list(row.vector) if row.vector else None
        cursor.execute(_UPSERT, [row.id, row.scope.prefix, *version, vector, _words(row)])
        cursor.execute(_REMEMBER, [row.id, *version])
        cursor.execute(
            "DELETE FROM nbtools_history WHERE id = %s AND version <= %s", [row.id, row.version - self._keep]
        )
        return row

    def _clear(self, cursor: Any, change: Change, scope: Scope, now: int) -> int:
        where, values = "scope = %s", [scope.prefix]
        if change.nodes:
            where, values = "agent_id = %s AND workflow_id = %s", [scope.agent_id, str(scope.workflow_id)]
        cursor.execute(
            f"SELECT {_COLUMNS} FROM nbtools_items WHERE {where} AND value IS NOT NULL ORDER BY id FOR UPDATE", values
        )
        gone = [row for row in _rows(cursor) if row.is_live(now)]
        for row in gone:
            self._append(cursor, row._replace(op="delete", value=None, expires=None, vector=None), row, now)
        return len(gone)

    def _call(self, cursor: Any, change: Change) -> None:
        record = json.loads(change.value or "{}")
        cursor.execute("DELETE FROM nbtools_calls WHERE call_id = %s", [change.key])
        cursor.execute(
            "INSERT INTO nbtools_calls (call_id, run_id, tool, record) VALUES (%s, %s, %s, %s)",
            [change.key, record.get("run_id"), record.get("tool"), change.value or "{}"],
        )

    # -- reading

    def _found(self, cursor: Any, query: Query) -> Found:
        now = self._now(cursor)
        where, values = _conditions(query, now)
        if query.text is not None or query.vector is not None:
            return self._ranked(cursor, query, where, values)
        if query.count:
            cursor.execute(f"SELECT count(*) FROM nbtools_items WHERE {where}", values)
            return Found(total=int(cursor.fetchone()[0]))
        order = "id" if query.scope is None else "key"
        if query.after is not None and query.keys is None:
            where, values = f"{where} AND {order} > %s", [*values, query.after]
        columns = _COLUMNS if query.values else _COLUMNS.replace(" value,", " '0',")
        text = f"SELECT {columns} FROM nbtools_items WHERE {where} ORDER BY {order} LIMIT %s"
        cursor.execute(text, [*values, query.limit if query.keys is None else None])
        rows = _rows(cursor)
        if query.keys is not None:
            by_key = {row.key: row for row in rows}
            rows = [by_key[key] for key in query.keys if key in by_key]
        records = tuple(row_to_record(row, values=query.values) for row in rows)
        return Found(records=records, total=len(records))

    def _ranked(self, cursor: Any, query: Query, where: str, values: list[Any]) -> Found:
        cursor.execute(f"SELECT count(*) FROM nbtools_items WHERE {where}", values)
        (total,) = cursor.fetchone()
        words = _lexemes(split_words(query.text or ""))
        wanted = "words @@ %s::tsquery" if words else "FALSE"
        near = "vector IS NOT NULL" if query.vector is not None else "FALSE"
        asked = " | ".join(_quoted(word) for word in words)
        cursor.execute(
            f"SELECT {_COLUMNS} FROM nbtools_items WHERE {where} AND ({wanted} OR {near})",
            [*values, *([asked] if words else [])],
        )
        rows = {row.id: row for row in _rows(cursor)}
        texts = {name: record_text(row.key, row.tags, row.value or "null") for name, row in rows.items()}
        ranked = rank(query.text, texts, total=int(total)) if query.text is not None else []
        if query.vector is not None:
            nearness = {name: cosine(query.vector, row.vector) for name, row in rows.items() if row.vector}
            nearest = sorted((name for name in nearness if nearness[name] > 0), key=lambda name: -nearness[name])
            ranked = fuse([name for name, _ in ranked], nearest)
        if query.count:
            return Found(total=len(ranked))
        most = ranked[: _MOST_FOUND if query.limit is None else query.limit]
        records = tuple(row_to_record(rows[name], values=query.values, score=score) for name, score in most)
        return Found(records=records, total=len(records))


def _conditions(query: Query, now: int) -> tuple[str, list[Any]]:
    """Return the WHERE of a query, without its search."""
    parts, values = ["value IS NOT NULL", "(expires IS NULL OR expires > %s)"], [now]
    found: list[Any] = list(values)
    if query.scope is not None:
        parts.append("scope = %s")
        found.append(query.scope.prefix)
    if query.keys is not None:
        assert query.scope is not None, "keys need a scope"
        parts.append("id = ANY(%s)")
        found.append([query.scope.record_id(key) for key in query.keys])
    if query.prefix:
        parts.append("starts_with(key, %s)")
        found.append(query.prefix)
    if query.tags:
        parts.append("tags @> %s::text[]" if query.match == "all" else "tags && %s::text[]")
        found.append(list(query.tags))
    return " AND ".join(parts), found


def _rows(cursor: Any) -> list[Row]:
    return [row_from_list(fields) for fields in cursor.fetchall()]


def _applied(item: Any) -> Applied:
    fields, count = item
    return Applied(record=row_to_record(row_from_list(fields)) if fields else None, count=count)


def _words(row: Row) -> list[str]:
    """Return the words a row is found by; none for a deletion."""
    return [] if row.value is None else _lexemes(split_words(record_text(row.key, row.tags, row.value)))


def _lexemes(words: Iterable[str]) -> list[str]:
    # What PostgreSQL can hold in one tsvector: a megabyte, and 2 kB a word.
    return [word for word in dict.fromkeys(words) if len(word) <= _LONGEST_WORD][:_MOST_WORDS]


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _place(url: str) -> str:
    """Return where the database is, without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'local socket'}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n", maxsplit=1)[0][:300]
