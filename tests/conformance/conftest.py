"""Every implementation behind a seam, as fixtures that the suites are run over."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from nbtools.memory import InMemoryRepository, Repository, open_repository
from nbtools.memory.duckdb.directory import MemoryDirectory
from tests.conftest import wait_until

Opener = Callable[[Path], contextlib.AbstractContextManager[Repository]]
OPENERS: dict[str, Opener] = {}


def opener(make: Callable[[Path], Iterator[Repository]]) -> Opener:
    """Add a repository to the suite: a generator that yields an open one and cleans up behind it.

    It may call `pytest.skip` when what it needs is not installed. History must be kept to 5 versions.
    """
    OPENERS[make.__name__] = contextlib.contextmanager(make)
    return OPENERS[make.__name__]


@opener
def reference(tmp_path: Path) -> Iterator[Repository]:
    yield InMemoryRepository(history=5)


@opener
def duckdb_in_memory(tmp_path: Path) -> Iterator[Repository]:
    yield open_repository(":memory:", history=5)


@opener
def duckdb_embedded(tmp_path: Path) -> Iterator[Repository]:
    yield open_repository(tmp_path / "m.duckdb", embedded=True, history=5)


@opener
def keeper(tmp_path: Path) -> Iterator[Repository]:
    repository = open_repository(tmp_path / "m.duckdb", history=5, idle_exit=20.0)
    yield repository
    place = MemoryDirectory(tmp_path / "m.duckdb")
    pid = place.holder().get("pid")
    if pid and "nbtools.memory.keeper" in psutil.Process(pid).cmdline():
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not place.holder())


# What is opened, and the backend that it is.
REPOSITORIES = {
    "reference": "InMemoryRepository",
    "duckdb_in_memory": "DuckDBRepository",
    "duckdb_embedded": "DuckDBRepository",
    "keeper": "KeeperRepository",
    "postgresql": "PostgresRepository",
}
# Each test of the keeper starts a process of its own, which adds up.
_MARKS = {"keeper": pytest.mark.slow, "postgresql": pytest.mark.processes}
PARAMS = [pytest.param(n, marks=_MARKS[n]) if n in _MARKS else n for n in sorted([*OPENERS, "postgresql"])]


@pytest.fixture(params=PARAMS)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    if request.param == "postgresql":
        made = contextlib.nullcontext(open_repository(request.getfixturevalue("postgres_database"), history=5))
    else:
        made = OPENERS[request.param](tmp_path)
    with made as opened:
        assert type(opened).__name__ == REPOSITORIES[request.param]
        try:
            yield opened
        finally:
            opened.close()
