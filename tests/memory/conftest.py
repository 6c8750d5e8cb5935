"""Memories of every kind, and keepers that end with their test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbtools.memory import AgentMemory, InMemoryRepository, open_memory
from nbtools.memory.duckdb.directory import MemoryDirectory
from tests.conftest import is_running, wait_until


def keeper_of(path: Path) -> int:
    """Return the process id of the keeper of a file, 0 when there is none."""
    pid = int(MemoryDirectory(path).holder().get("pid", 0))
    # A lock file may name anything; only a keeper is ever sent a signal.
    try:
        return pid if "nbtools.memory.keeper" in " ".join(psutil.Process(pid).cmdline()) else 0
    except psutil.Error:
        return 0


def end_keeper(path: Path, number: int = signal.SIGTERM) -> None:
    """End the keeper of a file and wait until it is gone."""
    pid = keeper_of(path)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        wait_until(lambda: not is_running(pid))


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    """A memory over the reference repository."""
    with AgentMemory(InMemoryRepository(), agent_id="a", owns_repository=True) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The place of a memory file, whose keeper is ended behind the test."""
    place = tmp_path / "m.duckdb"
    yield place
    end_keeper(place, signal.SIGKILL)
    socket = place.with_name("m.duckdb.keeper") / "socket"
    socket.unlink(missing_ok=True)


@pytest.fixture
def open_shared(path: Path) -> Iterator[Callable[..., AgentMemory]]:
    """Open memories over the keeper of one file, and close them behind the test."""
    with contextlib.ExitStack() as stack:

        def open_one(**options: Any) -> AgentMemory:
            return stack.enter_context(open_memory(f"duckdb://{path}", agent_id="a", **{"idle_exit": 20.0} | options))

        yield open_one
