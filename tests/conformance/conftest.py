"""Every implementation behind a seam, as fixtures that the suites are run over."""

from __future__ import annotations

import contextlib
import uuid
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


@contextlib.contextmanager
def postgresql(url: str) -> Iterator[Repository]:
    """Yield a repository in a database of its own."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield open_repository(url.replace("/postgres?", f"/{name}?"), history=5)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=[*sorted(OPENERS), "postgresql"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    if request.param == "postgresql":
        made = postgresql(request.getfixturevalue("postgres_url"))
    else:
        made = OPENERS[request.param](tmp_path)
    with made as opened:
        try:
            yield opened
        finally:
            opened.close()
