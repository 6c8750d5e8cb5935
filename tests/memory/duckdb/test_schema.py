from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

import duckdb
import pytest

from nbtools.errors import MemoryUnavailable
from nbtools.memory import open_memory
from nbtools.memory.duckdb import schema
from nbtools.memory.duckdb.cache import BloomFilter, RowCache
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.rules.rows import Row


def test_migrations_are_applied_one_by_one_and_once():
    steps = (*schema.MIGRATIONS, "ALTER TABLE items ADD COLUMN colour VARCHAR", "CREATE TABLE extra (x INT)")
    connection = duckdb.connect(":memory:")
    schema.migrate(connection, None, steps[:1])
    connection.execute("INSERT INTO calls VALUES ('c', 1, NULL, NULL, '{}')")
    schema.migrate(connection, None, steps)
    schema.migrate(connection, None, steps)
    assert connection.execute("SELECT value FROM nbtools_meta WHERE name = 'schema'").fetchone() == (3,)
    assert connection.execute("SELECT count(*) FROM calls, (SELECT colour FROM items), extra").fetchone() == (0,)
    with pytest.raises(MemoryUnavailable, match="newer"):
        schema.migrate(connection, None, steps[:2])


def test_a_migration_that_fails_leaves_the_file_as_it_was():
    connection = duckdb.connect(":memory:")
    schema.migrate(connection, None)
    broken = "CREATE TABLE half (x INT); SELECT no_such_thing"
    with pytest.raises(duckdb.Error):
        schema.migrate(connection, None, (*schema.MIGRATIONS, broken))
    assert connection.execute("SELECT value FROM nbtools_meta WHERE name = 'schema'").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'half'").fetchone() == (0,)


def test_analysts_can_read_the_file_once_it_is_closed(tmp_path):
    with open_memory(tmp_path / "m.duckdb", embedded=True, agent_id="a") as memory:
        memory.write("k", {"x": 5}, tags=["t"])
        memory.write("gone", 1)
        memory.delete("gone")
    with duckdb.connect(str(tmp_path / "m.duckdb"), read_only=True) as connection:
        rows = connection.execute("SELECT id, value->>'x', tags, version, year(created_at) FROM memory").fetchall()
    assert [row[:4] for row in rows] == [("a:*:*:k", "5", ["t"], 1)]
    assert rows[0][4] > 2000


def test_a_lock_has_one_holder_and_says_who(tmp_path):
    one, two = MemoryDirectory(tmp_path / "m.duckdb"), MemoryDirectory(tmp_path / "m.duckdb")
    one.make()
    assert one.held_by() == "another process"
    assert one.acquire(0)
    one.announce(address={"unix": "/x"})
    assert not two.acquire(0.02)
    assert two.held_by() == f"the keeper {os.getpid()} of user {os.getuid()}"
    one.announce()
    assert two.holder()["address"] == {"unix": "/x"}
    one.release()
    assert two.holder() == {}
    assert two.acquire(0)
    two.release()


def test_another_machine_is_believed_while_its_heart_beats(tmp_path):
    place = MemoryDirectory(tmp_path / "m.duckdb")
    place.make()
    place.lock.write_text(json.dumps({"pid": 99_999_999, "host": "other", "user": 0}))
    assert place.is_elsewhere()
    assert not place.acquire(0.02)
    assert "on the machine other" in place.held_by()
    os.utime(place.lock, (1, 1))
    assert place.acquire(0)
    place.release()


def test_a_folder_of_somebody_else_is_not_used(tmp_path):
    MemoryDirectory(tmp_path / "m.duckdb").make()
    with pytest.raises(MemoryUnavailable, match="belongs to user"):
        MemoryDirectory(tmp_path / "m.duckdb", user=12345).make()


@pytest.fixture
def short_path():
    """Yield a folder whose path is short enough for a socket's, wherever the tests keep their own folders."""
    with tempfile.TemporaryDirectory(prefix="nb-") as made:
        yield Path(made)


def test_a_shared_temporary_folder_is_used_only_if_it_is_private(short_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    deep = MemoryDirectory(short_path / ("x" * 120) / "m.duckdb")
    folder = deep.socket_path().parent
    assert folder.parent == short_path
    folder.chmod(0o777)
    with pytest.raises(MemoryUnavailable, match="private"):
        deep.socket_path()
    folder.rmdir()
    folder.symlink_to(short_path)
    with pytest.raises(MemoryUnavailable, match="private"):
        deep.socket_path()


def test_a_lock_file_of_garbage_names_nobody(tmp_path):
    place = MemoryDirectory(tmp_path / "m.duckdb")
    place.make()
    for text in ("", "{", "[1]", "\x00"):
        place.lock.write_text(text)
        assert place.holder() == {}
        assert not place.is_elsewhere()
    assert place.acquire(0)
    place.announce(mode="embedded")
    assert place.holder()["host"] == socket.gethostname()
    place.release()


def test_the_cache_forgets_the_oldest_when_it_is_full():
    cache = RowCache(10_000)
    for number in range(100):
        cache.put([Row(number, f"k{number}", "a", None, None, "k", "write", "1", (), 1, 1, None, 1)])
    assert cache.get("k99") is not None
    assert cache.get("k0") is None
    cache.put([Row(1, "big", "a", None, None, "k", "write", "x" * 20_000, (), 1, 1, None, 1)])
    assert cache.get("big") is None
    assert cache.get("k99") is None


def test_the_filter_of_ids_never_denies_what_it_was_told():
    known = BloomFilter(1_000)
    for number in range(1_000):
        known.add(f"k{number}")
    assert all(known.may_have(f"k{number}") for number in range(1_000))
    assert sum(known.may_have(f"other{number}") for number in range(10_000)) < 300
    assert not known.is_full
