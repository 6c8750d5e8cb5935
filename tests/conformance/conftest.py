"""Every implementation behind a seam, as fixtures that the suites are run over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbtools.memory import InMemoryRepository, Repository

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


@pytest.fixture(params=sorted(OPENERS))
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    with OPENERS[request.param](tmp_path) as opened:
        try:
            yield opened
        finally:
            opened.close()
