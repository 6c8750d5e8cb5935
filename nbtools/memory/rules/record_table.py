"""Records as one table: all live records of a store as a Parquet file, which DuckDB writes and reads.

A question of SQL looks at every record. Made one by one, 200,000 of them take eight seconds; as columns that nobody in
Python looks at, a fifth of one. Whatever the store, DuckDB makes the file, so that all stores give the same table.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nbtools.ground.lazy import duckdb, has
from nbtools.memory.records import OWN
from nbtools.memory.rules.rows import Row
from nbtools.texts.sql_quotes import quote_text

FIELDS = dict.fromkeys(("seq", "id", "agent_id", "workflow_id", "node_id", "key", "op", "value", "tags"), "VARCHAR")
FIELDS |= {"tags": "VARCHAR[]"} | dict.fromkeys(("seq", "created", "updated", "expires", "version"), "BIGINT")
"""The fields of a row but for its vector, and their types in DuckDB."""
UNNESTED = ", ".join(f"unnest(?::{kind}[]) AS {name}" for name, kind in FIELDS.items())
_MOMENTS = ", ".join(f"make_timestamptz({name}) AS {name}_at" for name in ("created", "updated")) + (
    ", make_timestamptz(expires) AS expires_at"
)
_COLUMNS = f"id, agent_id, workflow_id, node_id, key, value, tags, {_MOMENTS}, version"


def live_rows(rows: Iterable[Row], prefix: str, now: int) -> list[list[Any]]:
    """Return the columns that `UNNESTED` takes of those rows that are live, in the scope with this prefix."""
    live = [row[:13] for row in rows if row.is_live(now) and row.id.startswith(prefix)]
    return [list(column) for column in zip(*live, strict=True)] or [[] for _ in FIELDS]


def empty_database() -> Any:
    """Open a connection to a database that holds nothing: to make one for it alone would take ten milliseconds."""
    return _database(os.getpid()).cursor()


@functools.cache
def _database(_: int) -> Any:  # not of the process that forked this one
    # Other files come under the same path, and what was forgotten stays nowhere.
    connection = duckdb.connect(":memory:", config={"enable_external_file_cache": False})
    if hasattr(os, "register_at_fork"):
        import ctypes

        # In a fork it never ends: its end waits for threads that are not there.
        os.register_at_fork(after_in_child=lambda: ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection)))
    return connection


@contextlib.contextmanager
def nameless_file() -> Iterator[Path]:
    """Give the path of a file that is gone with the block, or with the process: what was forgotten lies nowhere."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("nbtools-memory", os.MFD_CLOEXEC)
        try:
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory(prefix="nbtools-") as folder:
            yield Path(folder, "records")


def parquet_of(connection: Any, source: str, values: Sequence[Any]) -> bytes:
    """Return the Parquet file of the rows that a SELECT gives, which has `FIELDS`, ordered by their ids."""
    with nameless_file() as path:
        # Under its own name from the first byte: a file in memory has no folder where another one could stand.
        target = f"{quote_text(str(path))} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        connection.execute(f"COPY (SELECT {_COLUMNS} FROM ({source}) ORDER BY id) TO {target}", list(values))
        return path.read_bytes()


def parquet_of_rows(rows: Iterable[Row], now: int) -> bytes:
    """Return such a file of the live ones among some rows."""
    with empty_database() as connection:
        return parquet_of(connection, f"SELECT {UNNESTED}", live_rows(rows, "", now))


def first_end(file: bytes) -> int | None:
    """Return when the first of the records in a file expires, in microseconds since 1970; `None` for never."""
    with nameless_file() as path, empty_database() as connection:
        path.write_bytes(file)
        sql = f"SELECT epoch_us(min(expires_at)) FROM read_parquet({quote_text(str(path))})"
        ((end,),) = connection.execute(sql).fetchall()
        return None if end is None else int(end)


def table_of(files: Sequence[bytes], *, is_pandas: bool = False) -> Any:
    """Return the records of some files as a table of Arrow, or of pandas where that is wanted or there is no Arrow."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(empty_database())
        paths = [stack.enter_context(nameless_file()) for _ in files]
        for path, content in zip(paths, files, strict=True):
            path.write_bytes(content)
        connection.execute("SET timezone = 'UTC'").fetchall()
        names = ", ".join(quote_text(str(path)) for path in paths)
        # What nbtools itself knows of notes and files lies in the same store, and is nobody's note.
        others = f"NOT starts_with(coalesce(workflow_id, ''), {quote_text(OWN)})"
        relation = connection.sql(f"FROM read_parquet([{names}]) WHERE {others}")
        if not is_pandas and has("pyarrow"):
            return relation.to_arrow_table()
        frame = relation.df()
        frame["tags"] = [list(tags) for tags in frame["tags"]]
        return frame
