"""The schema of a memory on PostgreSQL and its migrations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbtools.errors import MemoryUnavailable

SCHEMA_VERSION = 3
_WORDS_SINCE = 3


def migrate(connection: Any, server: str, index_words: Callable[[Any], None]) -> None:
    """Apply the migrations that a database lacks, in one transaction and by one client at a time.

    Parameters
    ----------
    index_words
        Stores the words of all records again, where an older nbtools stored them in another way.

    Raises
    ------
    MemoryUnavailable
        The database has a newer schema.
    """
    with connection.transaction(), connection.cursor() as cursor:
        # CREATE TABLE IF NOT EXISTS fails when two clients run it at once.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('nbtools schema', 0))")
        cursor.execute("CREATE TABLE IF NOT EXISTS nbtools_schema (version integer NOT NULL)")
        cursor.execute("SELECT coalesce(max(version), 0) FROM nbtools_schema")
        (version,) = cursor.fetchone()
        if version > SCHEMA_VERSION:
            raise MemoryUnavailable(
                f"The memory at {server} has the schema {version} of a newer nbtools; this one knows {SCHEMA_VERSION}.",
                hint="update nbtools-kit",
            )
        for number in range(version + 1, SCHEMA_VERSION + 1):
            cursor.execute(Path(__file__).with_name(f"version_{number}.sql").read_text(encoding="utf-8"))
            cursor.execute("INSERT INTO nbtools_schema VALUES (%s)", [number])
        if 0 < version < _WORDS_SINCE:
            index_words(connection)
