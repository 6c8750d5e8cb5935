"""Memory on PostgreSQL, which any number of machines can share.

A batch is one transaction. It locks what it touches: the ids of its records, and the workflow they belong to, shared
with others that write and alone when it clears. Then it reads what is there, decides as every store does, and writes
rows, history and the answer under the request's id: a batch that is sent again after a lost connection finds its
answer and is not applied twice. Words are split here, so that the same words find the same records as in the other
stores; the server finds them by a GIN index over ``tsvector``.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nbtools.errors import MemoryWriteFailed
from nbtools.memory.calls import CALLS_KEPT
from nbtools.memory.postgres.connections import Connections
from nbtools.memory.postgres.schema import make_schema
from nbtools.memory.postgres.search import LEARN, UNLEARN, SearchTexts, ranked_by_words, vocabulary_of, words_of
from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import AppliedChange, CallQuery, Change, Query, QueryAnswer
from nbtools.memory.rules.erasure import Erasure, Erasures
from nbtools.memory.rules.record_table import FIELDS, empty_database, nameless_file, parquet_of
from nbtools.memory.rules.rows import Row, erased, later, row_from_list, row_to_list, row_to_record
from nbtools.memory.rules.text_search import blended, cosine
from nbtools.memory.rules.transitions import StoreView, WriteBatch

_VERSION = "agent_id, workflow_id, node_id, key, op, value, tags, created, updated, expires, version"
# As `row_from_list` takes them; sequence numbers belong to other stores.
_COLUMNS = f"0, {_VERSION}, vector"
_WITHOUT_VALUES = _COLUMNS.replace(" value,", " '0',")
_PAST = f"0, {_VERSION}, NULL"
_CHANGING = ("op", "value", "tags", "created", "updated", "expires", "version", "vector", "words", "size")
_UPSERT = (
    f"INSERT INTO nbtools_items (id, scope, {_VERSION}, vector, words, size) "
    f"VALUES ({', '.join(['%s'] * 14)}, %s::tsvector, %s) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in _CHANGING)
)
_REMEMBER = f"INSERT INTO nbtools_history (id, {_VERSION}) VALUES ({', '.join(['%s'] * 12)})"
_UPSERT_CALL = (
    "INSERT INTO nbtools_calls (call_id, run_id, tool, record) VALUES (%s, %s, %s, %s) ON CONFLICT (call_id) "
    "DO UPDATE SET seq = DEFAULT, run_id = EXCLUDED.run_id, tool = EXCLUDED.tool, record = EXCLUDED.record"
)
# In one order for all batches, so that no two wait for each other.
_LOCK = """
SELECT CASE WHEN alone THEN pg_advisory_xact_lock(number) ELSE pg_advisory_xact_lock_shared(number) END
FROM (SELECT hashtextextended(name, 0) AS number, bool_or(alone) AS alone
      FROM unnest(%s::text[], %s::boolean[]) AS wanted (name, alone) GROUP BY 1 ORDER BY 1) AS ordered
"""
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_MOST_CSV_LINE = 16_000_000
# The server has room for some thousand locks of all its clients.
_MOST_LOCKS = 200
_SWEEP_EACH_S = 60.0
_SWEEP_S = 2.0
_SWEPT_AT_ONCE = 1_000
_KEPT_ANSWERS_US = 3_600_000_000
_KEPT_DELETIONS_US = 30 * 86_400_000_000


class PostgresRepository:
    """Keep records in a PostgreSQL database.

    Parameters
    ----------
    url
        ``postgresql://user:password@host/database``, with the parameters of libpq.
    history
        How many versions of a key are kept.
    timeout
        Seconds that one request may take, including a restart of the server.
    calls
        How many records of tool calls are kept.

    Raises
    ------
    ConfigInvalid
        The URL is not one of PostgreSQL.
    MissingExtra
        The extra ``postgres`` is not installed.
    """

    def __init__(self, url: str, *, history: int = 100, timeout: float = 30.0, calls: int = CALLS_KEPT) -> None:
        # libpq takes both names, and `urlsplit` in `Connections` reads them alike; one of them is shown in status
        # cards.
        url = url.replace("postgres://", "postgresql://", 1)
        self._connections = Connections(url, timeout, lambda new: make_schema(new, self._connections.server))
        self._texts = SearchTexts()
        self._keep = history
        self._keep_calls = calls
        self._latest = 0
        self._sweep_at = 0.0
        self._sweeping = threading.Lock()
        self._erasures = Erasures()

    # -- Repository

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch in one transaction, once per request id."""
        request = request_id or uuid.uuid4().hex
        done = self._connections.run(lambda connection: self._batch(connection, changes, request), request=request)
        # Behind a write, because no process of ours lives on the server that could do it; the next write does what is
        # left.
        if time.monotonic() >= self._sweep_at:
            self._sweep()
        return [AppliedChange(record=row_to_record(row) if row else None, count=count) for row, count in done]

    def query(self, query: Query) -> QueryAnswer:
        """Return the live records that match."""
        return self._connections.run(lambda connection: self._run_query(connection, query))

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the newest versions of a key, oldest of them first."""
        text = f"SELECT {_PAST} FROM nbtools_history WHERE id = %s ORDER BY version DESC LIMIT %s"
        rows = self._connections.run(lambda connection: _rows(connection.execute(text, [scope.record_id(key), limit])))
        return [row_to_record(row) for row in reversed(rows)]

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of tool calls."""
        conditions = query.conditions
        where = " AND ".join(f"{name} = %s" for name in conditions) or "TRUE"
        text = f"SELECT record FROM nbtools_calls WHERE {where} ORDER BY seq DESC LIMIT %s"
        values = [*conditions.values(), query.limit]
        records = self._connections.run(lambda connection: connection.execute(text, values).fetchall())
        return [json.loads(record) for (record,) in reversed(records)]

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        text = "SELECT count(*) FROM nbtools_items WHERE value IS NOT NULL"
        count = self._connections.run(lambda connection: _one(connection.execute(text)))
        server = self._connections.server
        return {"backend": "postgresql", "place": server, "records": count, "vectors": True, "notices": []}

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # -- writing

    def _batch(self, connection: Any, changes: Sequence[Change], request: str) -> list[tuple[Row | None, int]]:
        _lock(connection, changes, request)
        text = f"SELECT {_NOW}, (SELECT answer FROM nbtools_requests WHERE id = %s)"
        now, answered = connection.execute(text, [request]).fetchone()
        # The request came before, and its answer was lost on the way: applying it again would add to a counter twice.
        if answered:
            return [(row_from_list(fields) if fields else None, count) for fields, count in json.loads(answered)]
        rows = {row.id: row for change in changes for row in _rows_to_clear(connection, change)}
        # Read behind the locks: what was read before could be changed by their holder.
        rows |= _by_id(connection, _ids(changes))
        done, decided = self._stage(connection, rows, now).decide(changes)
        answer = json.dumps([[row_to_list(row) if row else None, count] for row, count in done])
        # Sent in one go: each statement would cost a round trip to the server.
        with connection.pipeline():
            connection.execute("INSERT INTO nbtools_requests VALUES (%s, %s, %s)", [request, answer, now])
            self._store(connection, self._apply_forgets(connection, [row for _, row in decided]))
        return [(row, count) for row, count in done]

    def _stage(self, connection: Any, rows: Mapping[str, Row], now: int) -> WriteBatch:
        """Return a `WriteBatch` over these rows, which are locked."""
        self._latest = later(self._latest, now)

        def versions(scope: Scope, key: str) -> list[Row]:
            text = f"SELECT {_PAST} FROM nbtools_history WHERE id = %s ORDER BY version"
            return _rows(connection.execute(text, [scope.record_id(key)]))

        def ids(prefix: str) -> list[str]:
            return [record_id for record_id in rows if record_id.startswith(prefix)]

        return WriteBatch(StoreView(rows.get, ids, versions), 0, lambda: self._latest)

    def _apply_forgets(self, connection: Any, decided: Sequence[Row]) -> list[Row]:
        """Erase from the tables what a batch forgets, and return the rows that are left to store."""
        rest: list[Row] = []
        for row in decided:
            if row.op == "forget":
                mine = [one for one in rest if one.id == row.id and one.op != "call"]
                rest = [one for one in rest if one not in mine]
                self._forget(connection, row, [one.value for one in mine if one.value is not None])
            else:
                rest.append(row)
        return rest

    def _forget(self, connection: Any, row: Row, values: Sequence[str]) -> None:
        text = "DELETE FROM nbtools_history WHERE id = %s RETURNING value"
        past = [value for (value,) in connection.execute(text, [row.id]).fetchall() if value is not None]
        connection.execute("DELETE FROM nbtools_items WHERE id = %s", [row.id])
        erasure = Erasure(row.key, [*values, *past])
        self._erasures.add(erasure)
        gone, _ = vocabulary_of(words_of(row._replace(value=value)) for value in (*values, *past))
        connection.execute(UNLEARN, [gone, [self._texts.to_tsquery(f'"{word}"') for word in gone]])
        clause = erasure.where("record", "%s")
        _rewrite(connection, ("nbtools_calls", "call_id", "record"), clause, erasure.clean)
        answers = ("nbtools_requests", "id", "answer")
        _rewrite(connection, answers, ("TRUE", []), lambda answer: _without_value(answer, row.id))

    def _store(self, connection: Any, decided: Sequence[Row]) -> None:
        """Store rows as the newest versions of their ids."""
        calls = [row for row in decided if row.op == "call"]
        rows = [row for row in decided if row.op != "call"]
        # Later rows of a batch replace earlier ones; the history gets all of them.
        newest = {row.id: row for row in rows}.values()
        words = {row.id: words_of(row) for row in newest}
        trimmed = [[row.id, row.version - self._keep] for row in newest if row.version > self._keep]
        for text, values in (
            (_REMEMBER, [[row.id, *_version(row)] for row in rows]),
            (_UPSERT, [self._item(row, words[row.id]) for row in newest]),
            (LEARN, [vocabulary_of(words.values())]),
            ("DELETE FROM nbtools_history WHERE id = %s AND version <= %s", trimmed),
            (_UPSERT_CALL, [_call(row.key, self._erasures.clean(row.value or "{}")) for row in calls]),
        ):
            if values:
                connection.cursor().executemany(text, values)

    def _item(self, row: Row, words: Sequence[str]) -> list[Any]:
        """Return what `_UPSERT` takes."""
        vector = list(row.vector) if row.vector else None
        return [row.id, row.scope.prefix, *_version(row), vector, self._texts.to_tsvector(words), len(words)]

    def _sweep(self) -> None:
        """Delete some expired records and old deletions; an error here does not affect the write before it."""
        if self._sweeping.acquire(blocking=False):
            # One thread of this process at a time; other processes are kept away by an advisory lock on the server.
            is_full = False
            try:
                with suppress(MemoryWriteFailed):
                    is_full = self._connections.run(self._sweep_slice, request="sweep", timeout=_SWEEP_S)
            finally:
                self._sweep_at = time.monotonic() + (0 if is_full else _SWEEP_EACH_S)
                self._sweeping.release()

    def _sweep_slice(self, connection: Any) -> bool:
        """Return whether there may be more."""
        if not _one(connection.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('nbtools sweep', 0))")):
            return False
        now = _one(connection.execute(f"SELECT {_NOW}"))
        due = "value IS NOT NULL AND expires <= %s OR value IS NULL AND updated < %s"
        text = f"SELECT {_WITHOUT_VALUES} FROM nbtools_items WHERE {due} LIMIT %s"
        # Found first and locked then, because locks are taken by name; so what is due is looked at again behind the
        # locks.
        swept = _rows(connection.execute(text, [now, now - _KEPT_DELETIONS_US, _SWEPT_AT_ONCE]))
        _lock(connection, [Change(kind="delete", scope=row.scope, key=row.key) for row in swept])
        rows = _by_id(connection, [row.id for row in swept])
        self._store(connection, [row for _, row in self._stage(connection, rows, now).expire(rows)])
        gone = [row.id for row in rows.values() if row.value is None and row.updated < now - _KEPT_DELETIONS_US]
        for table in ("nbtools_items", "nbtools_history"):
            connection.execute(f"DELETE FROM {table} WHERE id = ANY(%s)", [gone])
        connection.execute("DELETE FROM nbtools_requests WHERE at < %s", [now - _KEPT_ANSWERS_US])
        newest = "SELECT seq FROM nbtools_calls ORDER BY seq DESC LIMIT 1 OFFSET %s"
        connection.execute(f"DELETE FROM nbtools_calls WHERE seq <= ({newest})", [self._keep_calls])
        return len(swept) == _SWEPT_AT_ONCE

    # -- reading

    def _run_query(self, connection: Any, query: Query) -> QueryAnswer:
        self._latest = later(self._latest, _one(connection.execute(f"SELECT {_NOW}")))
        where, values = _conditions(query, self._latest)
        if query.give == "count":
            count = connection.execute(f"SELECT count(*) FROM nbtools_items WHERE {where}", values)
            return QueryAnswer(total=_one(count))
        if query.text is not None or query.vector is not None:
            return self._rank(connection, query, where, values)
        if query.give == "tags":
            text = f"SELECT tag, count(*) FROM nbtools_items, unnest(tags) AS tag WHERE {where} GROUP BY tag"
            return QueryAnswer(tags=dict(connection.execute(text, values).fetchall()))
        if query.give == "table":
            return QueryAnswer(table=_table(connection, where, values))
        order = "id" if query.scope is None else "key"
        if query.after is not None and query.keys is None:
            where, values = f"{where} AND {order} > %s", [*values, query.after]
        columns = _COLUMNS if query.values else _WITHOUT_VALUES
        text = f"SELECT {columns} FROM nbtools_items WHERE {where} ORDER BY {order} LIMIT %s"
        rows = _rows(connection.execute(text, [*values, query.limit if query.keys is None else None]))
        if query.keys is not None:
            # The server returns rows in no order of the keys that were asked for.
            by_key = {row.key: row for row in rows}
            rows = [by_key[key] for key in query.keys if key in by_key]
        records = tuple(row_to_record(row, values=query.values) for row in rows)
        return QueryAnswer(records=records, total=len(records))

    def _rank(self, connection: Any, query: Query, where: str, values: list[Any]) -> QueryAnswer:
        words = nearest = None
        if query.text is not None:
            scope = _conditions(Query(scope=query.scope), self._latest)
            words = ranked_by_words(connection, self._texts, query.text, scope, (where, values))
        if query.vector is not None:
            # Every vector is read: the server needs an extension to rank them, and not every server has it.
            text = f"SELECT id, vector FROM nbtools_items WHERE {where} AND vector IS NOT NULL"
            vectors = connection.execute(text, values).fetchall()
            cosines = [(name, cosine(query.vector, vector)) for name, vector in vectors]
            nearest = sorted(cosines, key=lambda pair: -pair[1])
        best = blended(words, nearest, query.most_found)
        rows = _by_id(connection, [name for name, _ in best])
        records = tuple(row_to_record(rows[name], values=query.values, score=score) for name, score in best)
        return QueryAnswer(records=records, total=len(records))


def _conditions(query: Query, now: int) -> tuple[str, list[Any]]:
    """Return the WHERE of a query, without its search."""
    parts = ["value IS NOT NULL", "(expires IS NULL OR expires > %s)"]
    values: list[Any] = [now]
    if query.scope is not None:
        parts.append("scope = %s")
        values.append(query.scope.prefix)
    if query.keys is not None:
        assert query.scope is not None, "keys need a scope"
        parts.append("id = ANY(%s)")
        values.append([query.scope.record_id(key) for key in query.keys])
    if query.prefix:
        parts.append("starts_with(key, %s)")
        values.append(query.prefix)
    if query.tags:
        parts.append("tags @> %s::text[]" if query.match == "all" else "tags && %s::text[]")
        values.append(list(query.tags))
    return " AND ".join(parts), values


def _table(connection: Any, where: str, values: list[Any]) -> bytes:
    """Return a Parquet file of the records that match; as CSV they come in a third of the time that rows take."""
    columns = ", ".join(FIELDS).replace("seq", "0").replace("tags", "to_json(tags)")
    kinds = ", ".join(f"'{name}': '{kind.removesuffix('[]')}'" for name, kind in FIELDS.items())
    with nameless_file() as path, empty_database() as local:
        text = f"COPY (SELECT {columns} FROM nbtools_items WHERE {where}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        with path.open("wb") as file, connection.cursor().copy(text, values) as copy:
            file.writelines(copy)
        source = (
            f"SELECT * REPLACE (from_json(tags, '[\"VARCHAR\"]') AS tags) FROM read_csv('{path}', header = false, "
            f"auto_detect = false, columns = {{{kinds}}}, quote = '\"', escape = '\"', allow_quoted_nulls = false, "
            f"max_line_size = {_MOST_CSV_LINE})"
        )
        return parquet_of(local, source, [])


def _lock(connection: Any, changes: Sequence[Change], request: str | None = None) -> None:
    """Lock the records that a batch changes until its transaction ends."""
    ids = _ids(changes)
    is_many = len(ids) > _MOST_LOCKS
    # A clear shuts out who writes to the workflow, whatever the node: its records are not known before it has them.
    names = {f"request:{request}": True} if request else {}
    for change in changes:
        if change.scope is not None:
            workflow = change.scope.prefix.rsplit(":", 2)[0]
            names[workflow] = names.get(workflow, False) or is_many or change.kind == "clear"
    if not is_many:
        names |= dict.fromkeys(ids, True)
    connection.execute(_LOCK, [list(names), list(names.values())])


def _ids(changes: Sequence[Change]) -> list[str]:
    return list({change.scope.record_id(change.key): None for change in changes if change.scope and change.key})


def _by_id(connection: Any, ids: Sequence[str]) -> dict[str, Row]:
    rows = _rows(connection.execute(f"SELECT {_COLUMNS} FROM nbtools_items WHERE id = ANY(%s)", [ids])) if ids else []
    return {row.id: row for row in rows}


def _rows_to_clear(connection: Any, change: Change) -> list[Row]:
    """Return what a change may clear, without values."""
    if change.kind != "clear" or change.scope is None:
        return []
    where, values = "scope = %s", [change.scope.prefix]
    if change.nodes:
        where, values = "agent_id = %s AND workflow_id = %s", [change.scope.agent_id, str(change.scope.workflow_id)]
    text = f"SELECT {_WITHOUT_VALUES} FROM nbtools_items WHERE {where} AND value IS NOT NULL"
    return _rows(connection.execute(text, values))


def _version(row: Row) -> list[Any]:
    """Return the fields of `_VERSION`."""
    return [
        *(row.agent, row.workflow, row.node, row.key, row.op, row.value, list(row.tags)),
        *(row.created, row.updated, row.expires, row.version),
    ]


def _call(call_id: str, text: str) -> list[Any]:
    record = json.loads(text)
    return [call_id, record.get("run_id"), record.get("tool"), text]


def _rows(cursor: Any) -> list[Row]:
    return [row_from_list(fields) for fields in cursor.fetchall()]


def _one(cursor: Any) -> Any:
    (value,) = cursor.fetchone()
    return value


def _rewrite(
    connection: Any, target: tuple[str, str, str], where: tuple[str, list[str]], change: Callable[[str], str]
) -> None:
    """Replace the texts of a column by what a function returns, in the rows that match a condition."""
    table, name, column = target
    rows = connection.execute(f"SELECT {name}, {column} FROM {table} WHERE {where[0]}", where[1]).fetchall()
    changed = [(new, key) for key, text in rows if (new := change(text)) != text]
    if changed:
        connection.cursor().executemany(f"UPDATE {table} SET {column} = %s WHERE {name} = %s", changed)


def _without_value(answer: str, record_id: str) -> str:
    """Return an answer that is remembered without the value of a forgotten record."""
    items = [(row_from_list(fields) if fields else None, count) for fields, count in json.loads(answer)]
    rest = [(erased(row, record_id) if row else None, count) for row, count in items]
    return answer if rest == items else json.dumps([[row_to_list(row) if row else None, n] for row, n in rest])
