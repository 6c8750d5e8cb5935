"""Tables: the queries of the engine to a DuckDB memory file. Only this module and the schema contain its SQL.

One connection writes (merging, trimming), and every reading thread has its own cursor, because connections refuse
to be used in parallel. All methods may be called from any thread.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nbtools.errors import MemoryDamaged
from nbtools.ground.lazy import duckdb
from nbtools.memory.duckdb.journal import JournalEntry
from nbtools.memory.duckdb.schema import MEMORY_LIMIT, connect
from nbtools.memory.records import Scope
from nbtools.memory.repository import CallQuery
from nbtools.memory.rules.erasure import Erasure
from nbtools.memory.rules.record_table import FIELDS, UNNESTED, live_rows, parquet_of
from nbtools.memory.rules.rows import Row
from nbtools.memory.rules.transitions import WriteRequest
from nbtools.texts.sql_quotes import quote_identifier, quote_text

_TYPES = FIELDS | {"vector": "FLOAT[]"}
_FIELDS = ", ".join(_TYPES)
# What is merged, without the rows that something newer stands for, and that.
_LIVE = f"""
SELECT {", ".join(FIELDS)} FROM items WHERE value IS NOT NULL AND (expires IS NULL OR expires > ?)
AND starts_with(id, ?) AND id NOT IN (SELECT unnest(?::VARCHAR[])) UNION ALL SELECT {UNNESTED}
"""
# As `nbtools.memory.rules.text_search.cosine`: of several vectors one after the other, the nearest counts.
_NEAR = """
SELECT id, CASE WHEN len(vector) = $2 THEN list_cosine_similarity(vector, $1::FLOAT[])
           ELSE list_max(list_transform(range(0, len(vector), $2),
               lambda start: list_cosine_similarity(vector[start + 1:start + $2], $1::FLOAT[]))) END AS near
FROM items WHERE len(vector) % $2 = 0 AND value IS NOT NULL AND starts_with(id, $3)
AND id NOT IN (SELECT unnest($4::VARCHAR[])) ORDER BY near DESC LIMIT $5
"""
_LOG = "seq, request, place, id, op, value, tags, created, updated, expires, version"
# Rows are handed over as one list for each column: measured on 1,000 rows, `executemany` takes fifty times as long.
_MERGE = f"""
MERGE INTO items USING (SELECT {UNNESTED}, unnest(?::FLOAT[][]) AS vector) AS fresh ON items.id = fresh.id
WHEN MATCHED THEN UPDATE SET {", ".join(f"{name} = fresh.{name}" for name in _TYPES if name != "id")}
WHEN NOT MATCHED THEN INSERT ({_FIELDS}) VALUES ({", ".join(f"fresh.{name}" for name in _TYPES)})
"""
_UNNEST_LOG = ", ".join(f"unnest(?::{_TYPES.get(name, 'VARCHAR')}[])" for name in _LOG.split(", "))
_INSERT_LOG = f"INSERT INTO log ({_LOG}) SELECT {_UNNEST_LOG}"
_ROW_OF_LOG = "seq, id, op, value, tags, created, updated, expires, version"


class Tables:
    """An open memory file, `None` for one in memory, which DuckDB makes with the first row that is merged.

    DuckDB compares the checksum of every block that it reads. Whatever meets a damaged one raises `MemoryDamaged`.

    Attributes
    ----------
    is_read
        Whether every block was read since the file was opened.
    damage
        What was found damaged, `None` for nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.is_read = path is None
        self.damage: str | None = None
        # Most memories without a file never get a row: what is not merged yet is in the engine.
        self._opened = None if path is None else connect(path)
        self._write = threading.Lock()
        self._local = threading.local()
        self._cursors: list[Any] = []
        self._gate = threading.Condition()
        self._reading = 0

    @property
    def _connection(self) -> Any:
        with self._gate:
            if self._opened is None:
                self._opened = connect(None)
            return self._opened

    def applied(self) -> int:
        """Return the sequence number up to which the journal is merged."""
        return self._number("SELECT value FROM nbtools_meta WHERE name = 'applied'")

    def newest(self) -> int:
        """Return the time of the newest row, 0 without any."""
        return self._number("SELECT coalesce(max(updated), 0) FROM items")

    # -- reading

    def fetch(self, ids: Sequence[str]) -> list[Row]:
        """Return the newest rows of these ids, in no order."""
        if not ids:
            return []
        if len(ids) == 1:
            # The only form that DuckDB answers from its index.
            rows = self._all(f"SELECT {_FIELDS} FROM items WHERE id = ?", [ids[0]])
        else:
            rows = self._all(f"SELECT {_FIELDS} FROM items WHERE id IN (SELECT unnest(?::VARCHAR[]))", [list(ids)])
        return [_row(fields) for fields in rows]

    def count(self) -> int:
        """Return how many ids were ever written."""
        return self._number("SELECT count(*) FROM items")

    def count_log(self) -> int:
        """Return how many versions are kept."""
        return self._number("SELECT count(*) FROM log")

    def all_ids(self) -> Iterator[str]:
        """Yield every id ever written."""
        if self._opened is None:
            return
        with self._own_cursor() as cursor:
            cursor.execute("SELECT id FROM items")
            # In parts, because a large memory has millions of ids, and all of them at once would double what the keeper
            # needs.
            while some := cursor.fetchmany(5_000):
                for (record_id,) in some:
                    yield record_id

    def scan(self, after: int) -> Iterator[list[Row]]:
        """Yield the newest rows with later sequence numbers in slices, the oldest first, without their vectors.

        With 0 only the live ones, else deletions too.
        """
        if self._opened is None:
            return
        with self._own_cursor() as cursor:
            cursor.execute(
                f"SELECT {_FIELDS.removesuffix('vector')}NULL FROM items "
                "WHERE seq > ? AND (? OR value IS NOT NULL) ORDER BY seq",
                [after, after > 0],
            )
            while some := cursor.fetchmany(2_000):
                yield [_row(fields) for fields in some]

    def totals(self, skip: Sequence[str]) -> tuple[int, int]:
        """Return how many live records there are, and the sum of their sequence numbers, without those of some ids."""
        sql = "SELECT count(*), coalesce(sum(seq), 0)::BIGINT FROM items WHERE value IS NOT NULL"
        ((count, total),) = self._all(f"{sql} AND id NOT IN (SELECT unnest(?::VARCHAR[]))", [list(skip)])
        return count, total

    def due(self, now: int, limit: int) -> list[str]:
        """Return ids of records that have expired."""
        sql = "SELECT id FROM items WHERE value IS NOT NULL AND expires <= ? LIMIT ?"
        return [record_id for (record_id,) in self._all(sql, [now, limit])]

    def near(self, vector: Sequence[float], prefix: str, skip: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Return the ids that start with `prefix`, but for `skip`, and the cosines of their vectors, nearest first."""
        rows = self._all(_NEAR, [list(vector), len(vector), prefix, list(skip), limit])
        return [(record_id, score) for record_id, score in rows if score is not None]

    def table(self, prefix: str, fresh: Sequence[Row], now: int) -> bytes:
        """Return all live records whose ids start so as a Parquet file; `fresh` are the rows that are not merged."""
        with self._own_cursor() as cursor:
            return parquet_of(cursor, _LIVE, _live_values(prefix, fresh, now))

    def tags(self, prefix: str, fresh: Sequence[Row], now: int) -> dict[str, int]:
        """Return how many of those records have each tag."""
        sql = f"SELECT tag, count(*) FROM (SELECT unnest(tags) AS tag FROM ({_LIVE})) GROUP BY tag"
        with self._own_cursor() as cursor:
            return dict(cursor.execute(sql, _live_values(prefix, fresh, now)).fetchall())

    def history(self, scope: Scope, key: str) -> list[Row]:
        """Return the merged versions of a key, oldest first."""
        rows = self._all(f"SELECT {_ROW_OF_LOG} FROM log WHERE id = ? ORDER BY version", [scope.record_id(key)])
        return [_row_of_log(fields, scope, key) for fields in rows]

    def rows_of_request(self, request: WriteRequest) -> list[tuple[int, Row]]:
        """Return the rows that a request stored, in order, with the places of their changes."""
        sql = f"SELECT place, {_ROW_OF_LOG} FROM log WHERE request = ? ORDER BY seq"
        changed = [(request.changes[index], index, row) for index, *row in self._all(sql, [request.request_id])]
        return [(index, _row_of_log(row, one.scope or Scope(agent_id=""), one.key)) for one, index, row in changed]

    def calls(self, query: CallQuery) -> list[tuple[str, str]]:
        """Return call id and record of the newest calls that match, oldest of them first."""
        sql = "SELECT call_id, record FROM calls WHERE true"
        values: list[Any] = [*query.conditions.values()]
        sql += "".join(f" AND {name} = ?" for name in query.conditions) + " ORDER BY seq DESC"
        if query.limit is not None:
            sql += " LIMIT ?"
            values.append(query.limit)
        return [(call_id, record) for call_id, record in reversed(self._all(sql, values))]

    # -- writing

    def merge(self, entries: Iterable[JournalEntry], applied: int) -> None:
        """Write entries of the journal to the tables in one transaction, and note the last sequence number."""
        logged: list[tuple[str, int, Row]] = []
        calls: dict[str, Row] = {}
        newest: dict[str, Row] = {}
        forgotten: dict[str, tuple[Row, list[str]]] = {}
        for entry in entries:
            for index, row in entry.rows:
                if row.op == "call":
                    calls[row.key] = row
                elif row.op == "forget":
                    # A forget counts from its place on: what the log has of the id before it goes, and what comes after
                    # it stays.
                    forgotten.setdefault(row.id, (row, []))[1].extend(_values(logged, row.id))
                    logged.append((entry.request, index, row))
                    logged = [(request, n, _blank(one) if one.id == row.id else one) for request, n, one in logged]
                    newest.pop(row.id, None)
                else:
                    logged.append((entry.request, index, row))
                    newest[row.id] = row
        with self._write, self._transaction() as connection:
            for record_id, (row, values) in forgotten.items():
                erasure = Erasure(row.key, [*values, *_old_values(connection, record_id)])
                _forget(connection, record_id, erasure, keep=record_id in newest)
                calls = {name: row._replace(value=erasure.clean(row.value or "{}")) for name, row in calls.items()}
            # Only the newest row of each id goes to `items`, so that a counter that was added to a thousand times is
            # one update.
            if logged:
                connection.execute(_INSERT_LOG, _columns(_log_fields(*one) for one in logged))
            if newest:
                connection.execute(_MERGE, _columns(newest.values()))
            if calls:
                connection.execute(
                    "INSERT OR REPLACE INTO calls SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), "
                    "unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
                    _columns(map(_call_fields, calls.values())),
                )
            connection.execute("UPDATE nbtools_meta SET value = ? WHERE name = 'applied'", [applied])

    def must_erase(self) -> bool:
        """Return whether something forgotten may still be in the file, where no query finds it."""
        return bool(self._all("SELECT value FROM nbtools_meta WHERE name = 'forgetting'", []))

    def mark_erased(self) -> None:
        """Remove the mark that says that a forgotten value may still be in a file."""
        with self._write:
            self._connection.execute("DELETE FROM nbtools_meta WHERE name = 'forgetting'")

    def replace_by(self, draft: Path) -> None:
        """Replace the file by a copy of it: the free blocks of the old one still contain what was deleted."""
        assert self.path is not None, "a memory without a file has none to replace"
        with self._write, self._gate:
            while self._reading:
                self._gate.wait()
            self._connection.execute("CHECKPOINT")
            for cursor in self._cursors:
                cursor.close()
            self._connection.close()
            # All of it is in the file, and beside another file it would be wrong.
            self.path.with_name(self.path.name + ".wal").unlink(missing_ok=True)
            shutil.rmtree(self.path.with_name(self.path.name + ".tmp"), ignore_errors=True)
            try:
                draft.replace(self.path)
            finally:
                self._local, self._cursors = threading.local(), []
                self._opened = connect(self.path)

    def trim(self, keep: int, before: int, calls: int) -> None:
        """Delete versions beyond the newest `keep` of each id, old deletions, and records of calls beyond a number.

        Parameters
        ----------
        keep
            How many versions of each id stay.
        before
            Rows newer than this time stay, because a request might still be repeated.
        calls
            How many records of tool calls are kept.
        """
        # Deletions stay for a month, so that a key can be restored and its versions go on counting.
        month = before - 30 * 86_400_000_000
        with self._write, self._transaction() as connection:
            connection.execute(
                "DELETE FROM log WHERE updated < ? AND version <= (SELECT i.version FROM items i WHERE i.id = log.id) "
                "- ?",
                [before, keep],
            )
            connection.execute("DELETE FROM items WHERE value IS NULL AND updated < ?", [month])
            connection.execute("DELETE FROM log WHERE updated < ? AND id NOT IN (SELECT id FROM items)", [month])
            connection.execute(
                "DELETE FROM calls WHERE seq <= (SELECT seq FROM calls ORDER BY seq DESC LIMIT 1 OFFSET ?)", [calls]
            )

    def release_memory(self) -> bool:
        """Return memory to the system: DuckDB keeps what it has taken until its limit is set lower.

        Nothing is done, and `False` returned, during a read, which would run out of room.
        """
        with self._write, self._gate:
            if self._reading:
                return False
            with suppress(duckdb.Error):  # It may need more at the moment.
                self._connection.execute("SET memory_limit = '16MB'")
            self._connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        return True

    def set_applied(self, seq: int) -> None:
        """Skip sequence numbers whose changes are lost."""
        with self._write:
            self._connection.execute("UPDATE nbtools_meta SET value = ? WHERE name = 'applied'", [seq])

    def read_all(self) -> None:
        """Read every block of the file once.

        Raises
        ------
        MemoryDamaged
            Some block does not have the checksum that was written with it.
        """
        try:
            # A hash over whole rows reads every column of every block; a count would read only the table's statistics.
            for table in ("items", "log", "calls", "nbtools_meta"):
                self._all(f"SELECT bit_xor(hash({table})) FROM {table}", [])
        except (duckdb.Error, RuntimeError) as exc:
            raise MemoryDamaged(str(exc)) from exc
        self.is_read = True

    def copy_to(self, target: Path) -> None:
        """Write a copy of the whole file, as of one moment."""
        with self._write, self._detect_damage():
            # Only a cursor's own transaction would see the attached copy, so the writing connection makes it.
            self._connection.execute(f"ATTACH {quote_text(str(target))} AS snapshot (STORAGE_VERSION 'v1.5.0')")
            try:
                (here,) = self._connection.execute("SELECT current_database()").fetchone()
                self._connection.execute(f"COPY FROM DATABASE {quote_identifier(here)} TO snapshot")
                self._connection.execute("CHECKPOINT snapshot")
            finally:
                self._connection.execute("DETACH snapshot")

    def close(self) -> None:
        """Close the file; what is in its write-ahead log is moved into it."""
        with self._write:
            for cursor in self._cursors:
                cursor.close()
            if self._opened is not None:
                self._opened.close()

    # -- inside

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._detect_damage():
            # An explicit transaction, because a slice is several statements: a crash must not leave items without their
            # log.
            self._connection.begin()
            try:
                yield self._connection
                self._connection.commit()
            except BaseException:
                # After an error everything fails until the rollback, and after damage even that.
                with suppress(Exception):
                    self._connection.rollback()
                raise

    @contextmanager
    def _detect_damage(self) -> Iterator[None]:
        """Turn DuckDB's errors about damaged blocks into `MemoryDamaged`, and store the first one in `damage`."""
        try:
            yield
        except (duckdb.Error, RuntimeError) as exc:
            text = str(exc)
            if "Corrupt" in text or "checksum" in text or isinstance(exc, duckdb.SerializationException):
                self.damage = self.damage or text
            elif not isinstance(exc, (duckdb.FatalException, duckdb.InternalException)):
                raise
            raise MemoryDamaged(
                f"{self.path} cannot be read: {text.splitlines()[0]}",
                hint="ask again: it is opened again, and what is damaged is recovered from snapshot and journal",
                retryable=True,
            ) from exc

    def _cursor(self) -> Any:
        # One cursor for each thread: a connection, and each cursor, answers one question at a time.
        cursor = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._connection.cursor()
            self._cursors.append(cursor)
        return cursor

    @contextmanager
    def _count_reader(self) -> Iterator[None]:
        """Count this thread among the readers of the file, for which `replace_by` waits."""
        with self._gate:
            self._reading += 1
        try:
            with self._detect_damage():
                yield
        finally:
            with self._gate:
                self._reading -= 1
                self._gate.notify_all()

    @contextmanager
    def _own_cursor(self) -> Iterator[Any]:
        with self._count_reader():
            # The thread's cursor serves queries that arrive while these rows are still being fetched.
            cursor = self._connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()

    def _all(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds, none if nothing was merged yet."""
        if self._opened is None:
            return []
        with self._count_reader():
            rows: list[tuple[Any, ...]] = self._cursor().execute(sql, values).fetchall()
        return rows

    def _number(self, sql: str) -> int:
        rows = self._all(sql, [])
        return int(rows[0][0]) if rows else 0


def _live_values(prefix: str, fresh: Sequence[Row], now: int) -> list[Any]:
    """Return what `_LIVE` takes."""
    return [now, prefix, [row.id for row in fresh], *live_rows(fresh, prefix, now)]


def _values(logged: Iterable[tuple[str, int, Row]], record_id: str) -> list[str]:
    return [row.value for _, _, row in logged if row.id == record_id and row.value is not None]


def _blank(row: Row) -> Row:
    """Return a forgotten row without its content; its place in the log shows that its request was applied."""
    return row._replace(id="", value=None, tags=())


def _old_values(connection: Any, record_id: str) -> list[str]:
    sql = "SELECT value FROM log WHERE id = $1 UNION SELECT value FROM items WHERE id = $1"
    return [value for (value,) in connection.execute(sql, [record_id]).fetchall() if value is not None]


def _forget(connection: Any, record_id: str, erasure: Erasure, *, keep: bool) -> None:
    """Erase an id from the tables; with `keep`, its newest row stays, because the same merge replaces it."""
    if not keep:
        connection.execute("DELETE FROM items WHERE id = ?", [record_id])
    connection.execute("UPDATE log SET id = '', value = NULL, tags = [] WHERE id = ?", [record_id])
    where, values = erasure.where("record", "?")
    for call_id, record in connection.execute(f"SELECT call_id, record FROM calls WHERE {where}", values).fetchall():
        cleaned = erasure.clean(record)
        if cleaned != record:
            connection.execute("UPDATE calls SET record = ? WHERE call_id = ?", [cleaned, call_id])
    connection.execute("INSERT OR REPLACE INTO nbtools_meta VALUES ('forgetting', 1)")


def _row(fields: Sequence[Any]) -> Row:
    vector = fields[13]
    return Row._make((*fields[:8], tuple(fields[8]), *fields[9:13], tuple(vector) if vector else None))


def _row_of_log(fields: Sequence[Any], scope: Scope, key: str) -> Row:
    seq, record_id, op, value, tags, created, updated, expires, version = fields
    return Row(seq, record_id, *scope.parts, key, op, value, tuple(tags), created, updated, expires, version)


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return rows as columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def _log_fields(request: str, index: int, row: Row) -> tuple[Any, ...]:
    """Return the fields of `_LOG`."""
    times = (row.created, row.updated, row.expires, row.version)
    return (row.seq, request, index, row.id, row.op, row.value, list(row.tags), *times)


def _call_fields(row: Row) -> tuple[Any, ...]:
    record = json.loads(row.value or "{}")
    return (row.key, row.seq, record.get("run_id"), record.get("tool"), row.value)
