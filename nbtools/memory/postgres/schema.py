"""The schema of a memory on PostgreSQL and its migrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtools.errors import MemoryUnavailable

__all__ = ["SCHEMA_VERSION", "migrate"]

# Keys and ids sort by code point, as everywhere: hence the collation "C".
_VERSION_1 = """
CREATE TABLE nbtools_items (
    id text COLLATE "C" PRIMARY KEY, scope text COLLATE "C" NOT NULL,
    agent_id text NOT NULL, workflow_id text, node_id text, key text COLLATE "C" NOT NULL,
    op text NOT NULL, value text, tags text[] NOT NULL,
    created bigint NOT NULL, updated bigint NOT NULL, expires bigint, version bigint NOT NULL,
    vector float8[], words tsvector NOT NULL
);
CREATE INDEX nbtools_items_key ON nbtools_items (scope, key);
CREATE INDEX nbtools_items_tags ON nbtools_items USING gin (tags);
CREATE INDEX nbtools_items_words ON nbtools_items USING gin (words);
CREATE TABLE nbtools_history (
    id text COLLATE "C" NOT NULL, agent_id text NOT NULL, workflow_id text, node_id text, key text NOT NULL,
    op text NOT NULL, value text, tags text[] NOT NULL,
    created bigint NOT NULL, updated bigint NOT NULL, expires bigint, version bigint NOT NULL,
    PRIMARY KEY (id, version)
);
CREATE TABLE nbtools_requests (id text PRIMARY KEY, answer text NOT NULL, at bigint NOT NULL);
CREATE INDEX nbtools_requests_at ON nbtools_requests (at);
CREATE TABLE nbtools_calls (
    seq bigint GENERATED ALWAYS AS IDENTITY, call_id text PRIMARY KEY, run_id text, tool text, record text NOT NULL
);
CREATE INDEX nbtools_calls_seq ON nbtools_calls (seq);
"""
# For the sweep, which looks for what is due and for deletions that are old enough.
_VERSION_2 = """
CREATE INDEX nbtools_items_due ON nbtools_items (expires) WHERE value IS NOT NULL;
CREATE INDEX nbtools_items_gone ON nbtools_items (updated) WHERE value IS NULL;
"""
# For ranking by the length of records, and for words that are misspelt.
_VERSION_3 = """
ALTER TABLE nbtools_items ADD COLUMN size integer NOT NULL DEFAULT 0;
CREATE INDEX nbtools_items_size ON nbtools_items (scope) INCLUDE (size, expires) WHERE value IS NOT NULL;
CREATE TABLE nbtools_words (word text COLLATE "C" PRIMARY KEY, letters text[] NOT NULL);
CREATE INDEX nbtools_words_letters ON nbtools_words USING gin (letters);
"""
_MIGRATIONS: tuple[str, ...] = (_VERSION_1, _VERSION_2, _VERSION_3)
SCHEMA_VERSION = len(_MIGRATIONS)
_WORDS_SINCE = 3


def migrate(connection: Any, place: str, index_words: Callable[[Any], None]) -> None:
    """Apply the migrations that a database lacks, in one transaction and by one client at a time.

    Parameters
    ----------
    index_words
        Stores the words of all records anew, where an older nbtools stored them in another way.

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
        (found,) = cursor.fetchone()
        if found > SCHEMA_VERSION:
            raise MemoryUnavailable(
                f"The memory at {place} has the schema {found} of a newer nbtools; this one knows {SCHEMA_VERSION}.",
                hint="update nbtools-kit",
            )
        for number in range(found + 1, SCHEMA_VERSION + 1):
            cursor.execute(_MIGRATIONS[number - 1])
            cursor.execute("INSERT INTO nbtools_schema VALUES (%s)", [number])
        if 0 < found < _WORDS_SINCE:
            index_words(connection)
