"""Kernels for tests, and a look at what they leave behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbtools.ground import aio
from nbtools.kernels import FakeKernels, Kernels
from tests.conftest import wait_until


@pytest.fixture(scope="module")
def real(processes: None) -> Iterator[Kernels]:
    """Yield a service with the backend of this platform; its zygote is shared by the tests of a module."""
    with Kernels(spares=1, preloads=("pandas", "numpy", "matplotlib", "duckdb")) as opened:
        yield opened


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeKernels]:
    """Yield a service that runs scripts in this process."""
    with FakeKernels() as opened:
        yield opened


@pytest.fixture(scope="module")
def kernels(real: Kernels) -> Kernels:
    """Return the service that a module shares."""
    return real


@pytest.fixture
def below() -> Callable[[int], list[int]]:
    """Return a function that lists the living processes below another one."""

    def find(pid: int) -> list[int]:
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(") ")[2].split()
                except OSError:
                    continue
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
        todo, found = list(parents.get(pid, ())), []
        while todo:
            one = todo.pop()
            found.append(one)
            todo += parents.get(one, ())
        return found

    return find


@pytest.fixture
def no_leak(below: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that a test leaves no process, thread, descriptor or folder behind."""
    place = Path(tempfile.mkdtemp(prefix="nbt"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    aio.loop()
    before = (set(below(os.getpid())), _descriptors(), _threads())
    yield
    wait_until(lambda: set(below(os.getpid())) <= before[0]), "processes were left behind"
    wait_until(lambda: _descriptors() <= before[1]), "descriptors were left open"
    wait_until(lambda: _threads() <= before[2]), "threads were left running"
    wait_until(lambda: not list(place.glob("nbk-*"))), "folders were left behind"
    shutil.rmtree(place)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _threads() -> int:
    # Workers of `aio.in_thread` wait a while for the next piece of work.
    return sum(thread.name != "nbtools-work" for thread in threading.enumerate())
