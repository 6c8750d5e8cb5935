"""Sessions of forked kernels that the tests of a module share, each test beginning with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nbtools.kernels import Kernels


@pytest.fixture(scope="module")
def shared_kernels() -> Iterator[Kernels]:
    with Kernels("forked", spares=0, preloads=("numpy", "duckdb")) as opened:
        yield opened


@pytest.fixture
def kernels(shared_kernels: Kernels) -> Iterator[Kernels]:
    yield shared_kernels
    for shown in shared_kernels.list():
        shared_kernels.stop(shown["name"])


@pytest.fixture
def pid_of(kernels: Kernels) -> Callable[[str], int]:
    """Return a function that gives the process of a session."""
    return lambda name: next(int(shown["pid"]) for shown in kernels.list() if shown["name"] == name)
