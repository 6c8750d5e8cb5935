from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.errors import ConfigInvalid, InvalidArguments
from nbtools.memory import (
    AgentMemory,
    default_memory_url,
    memory_context,
    open_memory,
    open_repository,
)
from nbtools.memory.duckdb.repository import DuckDBRepository
from nbtools.memory.keeper.client import KeeperRepository


@pytest.mark.parametrize("url", [":memory:", "memory://", "duckdb://:memory:", "duckdb:///:memory:"])
def test_a_memory_without_a_file_ends_with_its_object(url):
    with open_memory(url) as memory:
        memory.write("k", 1)
        assert memory.info()["place"] == ":memory:"
    with open_memory(url) as memory:
        assert "k" not in memory


@pytest.mark.parametrize("form", ["duckdb://{}", "{}", "duckdb:///{}"])
def test_a_file_is_named_by_url_or_path(tmp_path, form):
    repository = open_repository(form.format(tmp_path / "m.duckdb"))
    assert isinstance(repository, KeeperRepository)
    assert repository.path == tmp_path / "m.duckdb"


def test_a_path_object_and_a_home_are_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_repository(Path("~/m.duckdb")).path == tmp_path / "m.duckdb"
    assert open_repository("duckdb:///~/m.duckdb").path == tmp_path / "m.duckdb"


def test_two_names_of_a_file_are_one_memory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    paths = {open_repository(tmp_path / name / "m.duckdb").path for name in ("real", "link")}
    assert len(paths) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("duckbd:///x", "duckdb"),
        ("mysql://x", "duckdb:///path"),
        ("postgress://x", "postgres"),
        ("duckdb://", "does not name a file"),
        ("", "does not name a file"),
        ("duckdb:///folder/", "does not name a file"),
        ("a\0b", "does not name a file"),
    ],
)
def test_a_url_that_names_nothing_is_refused(url, said):
    with pytest.raises(ConfigInvalid) as caught:
        open_memory(url)
    assert said in str(caught.value)


def test_a_scope_that_cannot_be_opens_nothing(tmp_path):
    with pytest.raises(InvalidArguments):
        open_memory(tmp_path / "m.duckdb", scope="node")
    assert list(tmp_path.iterdir()) == []


def test_memory_context_takes_the_narrowest_scope_and_the_configured_place(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
    monkeypatch.setenv("NBTOOLS_AGENT_ID", "me")
    with memory_context() as memory:
        assert memory.scope.prefix == "me:*:*:"
        memory.write("k", 1)
    with memory_context(agent_id="a", workflow_id="w") as memory:
        assert memory.scope.prefix == "a:w:*:"
    with memory_context(":memory:", agent_id="a", workflow_id="w", node_id="n") as memory:
        assert memory.scope.prefix == "a:w:n:"
    with memory_context(":memory:", agent_id="a", workflow_id="w", scope="agent") as memory:
        assert memory.scope.prefix == "a:*:*:"
    monkeypatch.delenv("NBTOOLS_MEMORY_URL")
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home"))
    with memory_context() as memory:
        assert memory.repository.path == tmp_path / "home" / "memory.duckdb"
        assert default_memory_url(tmp_path / "home") == f"duckdb://{memory.repository.path}"


def test_memory_context_closes_what_it_opened(tmp_path):
    with memory_context(tmp_path / "m.duckdb", agent_id="a", embedded=True) as memory:
        memory.write("k", 1)
    with memory_context(tmp_path / "m.duckdb", agent_id="a", embedded=True) as memory:
        assert memory["k"] == 1


def test_a_store_closes_only_what_it_owns():
    repository = open_repository(":memory:")
    with AgentMemory(repository) as memory:
        memory.write("k", 1)
    assert AgentMemory(repository)["k"] == 1
    repository.close()


def test_the_keepers_patience_is_an_argument_or_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTOOLS_KEEPER_IDLE", "90s")
    assert open_repository(tmp_path / "m")._options["idle_exit"] == 90.0
    assert open_repository(tmp_path / "m", idle_exit=5)._options["idle_exit"] == 5
    monkeypatch.delenv("NBTOOLS_KEEPER_IDLE")
    assert open_repository(tmp_path / "m")._options["idle_exit"] == 60.0
    assert isinstance(open_repository(tmp_path / "m", embedded=True), DuckDBRepository)


@pytest.mark.processes
def test_importing_and_opening_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; from nbtools.memory import open_memory, AgentMemory, CallLog\n"
        f"open_memory({str(tmp_path / 'm.duckdb')!r})\n"
        "print([n for n in ('duckdb', 'pandas', 'sqlite3', 'pydantic', 'psycopg', 'numpy') if n in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


BARE_SQLITE = """
import sqlite3
class Bare(sqlite3.Connection):
    def execute(self, sql, *values):
        if "fts5" in sql:
            raise sqlite3.OperationalError("no such module: fts5")
        return super().execute(sql, *values)
connect = sqlite3.connect
sqlite3.connect = lambda *given, **how: connect(*given, factory=Bare, **how)
"""


@pytest.mark.processes
@pytest.mark.parametrize("embedded", [True, False])
def test_an_sqlite_without_fts5_is_named_with_the_way_out(tmp_path, embedded):
    (tmp_path / "sitecustomize.py").write_text(BARE_SQLITE)
    code = (
        "from nbtools.memory import open_memory\n"
        f"with open_memory('m.duckdb', embedded={embedded}) as memory: memory.write('k', 1)"
    )
    how = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(tmp_path)}, "capture_output": True, "text": True}
    said = subprocess.run([sys.executable, "-c", code], check=False, **how).stderr
    assert "the memory needs FTS5, which SQLite" in said.splitlines()[-1]
    assert "Use a Python from python.org" in said.splitlines()[-1]
