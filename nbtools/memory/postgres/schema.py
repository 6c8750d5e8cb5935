"""The schema of a memory on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbtools.errors import MemoryUnavailable

SCHEMA_VERSION = 3
"""Two came before the first release; a memory that has one of them is not read."""


def make_schema(connection: Any, server: str) -> None:
    """Make the tables that a new database lacks, in one transaction and by one client at a time.

    Raises
    ------
    MemoryUnavailable
        The database has the schema of another version.
    """
    with connection.transaction(), connection.cursor() as cursor:
        # CREATE TABLE IF NOT EXISTS fails when two clients run it at once.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('nbtools schema', 0))")
        cursor.execute("CREATE TABLE IF NOT EXISTS nbtools_schema (version integer NOT NULL)")
        cursor.execute("SELECT coalesce(max(version), 0) FROM nbtools_schema")
        (version,) = cursor.fetchone()
        if version not in {0, SCHEMA_VERSION}:
            which = "a newer" if version > SCHEMA_VERSION else "an unreleased"
            raise MemoryUnavailable(
                f"The memory at {server} has the schema {version} of {which} nbtools; this one knows {SCHEMA_VERSION}.",
                hint="update nbtools-kit",
            )
        if version == 0:
            cursor.execute(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8"))
            cursor.execute("INSERT INTO nbtools_schema VALUES (%s)", [SCHEMA_VERSION])
