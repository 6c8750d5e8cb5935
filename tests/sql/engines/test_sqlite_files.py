"""Reading a SQLite file changes nothing and leaves nothing, however the program that wrote it ended."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.errors import SqlFailed
from nbtools.sql import SqlSession
from nbtools.sql.engines import sqlite as engine
from nbtools.sql.engines.protocol import QueryControl, QueryRequest

pytestmark = pytest.mark.processes

# Programs that end in the middle of their work: the log holds what the file does not, or a transaction is half done.
_LOGGED = """
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("pragma journal_mode = wal")
c.execute("create table t as select 1 as i")
c.execute("pragma wal_checkpoint(truncate)")
c.execute("insert into t values (2)")
os._exit(0)
"""
_HALF_DONE = """
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("create table t as select 1 as i union all select 2")
c.execute("pragma cache_size = 1")
c.execute("begin immediate")
c.execute("delete from t")
c.execute("create table filler (b)")
c.executemany("insert into filler values (zeroblob(4000))", [()] * 200)
os._exit(0)
"""


def left_by(program: str, file: Path) -> None:
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, timeout=60)


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def select_all(file: Path) -> list[list[list[int]]]:
    """Return the rows of t as a person and as a model read them."""
    with SqlSession(connections={"w": f"sqlite:///{file}"}) as session:
        return [
            session.query("select i from t order by i", connection="w", isolated=isolated).to_rows()
            for isolated in (False, True)
        ]


def test_reading_a_database_in_wal_mode_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "w.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t as select 1 as i")
    connection.commit()
    connection.close()
    assert [path.name for path in tmp_path.iterdir()] == ["w.sqlite"]
    for isolated in (False, True):
        with SqlSession(connections={"w": f"sqlite:///{file}"}) as session:
            assert session.query("select * from t", connection="w", isolated=isolated).to_rows() == [[1]]
        assert [path.name for path in tmp_path.iterdir()] == ["w.sqlite"]


def test_what_another_program_writes_in_wal_mode_is_read(tmp_path: Path) -> None:
    file = tmp_path / "w.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (i)")
    connection.commit()
    with SqlSession(connections={"w": f"sqlite:///{file}"}) as session:
        assert session.query("select * from t", connection="w").to_rows() == []
        connection.execute("insert into t values (2)")
        connection.commit()
        assert session.query("select * from t", connection="w").to_rows() == [[2]]
    connection.close()


@pytest.mark.parametrize(
    ("program", "lost", "found"),
    [
        (_LOGGED, "", ["w.sqlite", "w.sqlite-shm", "w.sqlite-wal"]),
        (_LOGGED, "w.sqlite-shm", ["w.sqlite", "w.sqlite-wal"]),
        (_HALF_DONE, "", ["w.sqlite", "w.sqlite-journal"]),
    ],
    ids=["a log", "a log without its index", "a transaction to be rolled back"],
)
def test_what_a_killed_program_left_is_read_and_not_touched(
    tmp_path: Path, program: str, lost: str, found: list[str]
) -> None:
    left_by(program, tmp_path / "w.sqlite")
    if lost:
        (tmp_path / lost).unlink()
    before = state_of(tmp_path)
    assert sorted(before) == found
    assert select_all(tmp_path / "w.sqlite") == [[[1], [2]], [[1], [2]]]
    assert state_of(tmp_path) == before


def test_no_copy_is_left_and_one_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    file = tmp_path / "data" / "w.sqlite"
    left_by(_LOGGED, file)
    file.with_name("w.sqlite-shm").unlink()
    reader = engine.SQLiteEngine(file)
    assert reader.run(QueryRequest(sql="select count(*) from t"), QueryControl()).rows.to_lists() == [[2]]
    assert list((tmp_path / "temp").iterdir()) == []
    log = file.with_name("w.sqlite-wal")
    log.unlink()
    log.mkdir()  # in place of what cannot be read
    with pytest.raises(SqlFailed, match="cannot be copied"):
        reader.run(QueryRequest(sql="select count(*) from t"), QueryControl())
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="there a lock belongs to the handle that took it")
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_query_leaves_the_locks_of_the_notebook_s_own_connection(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "w.sqlite"
    mine = sqlite3.connect(file, isolation_level=None)
    mine.execute(f"pragma journal_mode = {mode}")
    mine.execute("create table t as select 1 as i")
    mine.execute("begin immediate")
    mine.execute("insert into t values (2)")
    with SqlSession(connections={"w": f"sqlite:///{file}"}) as session:
        assert session.query("select i from t", connection="w").to_rows() == [[1]]
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"
    done = subprocess.run([sys.executable, "-c", other, str(file)], capture_output=True, text=True, check=False)
    assert "locked" in done.stderr
    mine.execute("commit")
    mine.close()
