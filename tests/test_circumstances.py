"""What a limit of the system, or an environment that was removed, does to code is not told as a fault of the code."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from nbtools import Workbench
from nbtools.errors import (
    Cancelled,
    ConfigMissing,
    LimitExceeded,
    MemoryWriteFailed,
    SqlInvalid,
    circumstances,
    of_the_system,
)
from nbtools.ground.aio import start_thread


@pytest.mark.parametrize(
    ("exc", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files", "a.csv"), "no more open files (a.csv). (Close"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no more processes and threads."),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no more memory."),
        (MemoryError(), "no more memory."),
        (ImportError("/lib/x.so: failed to map segment from shared object"), "no more memory."),
        (OSError(errno.EFBIG, "File too large", "big"), "no more bytes in one file (big)."),
        (OSError(errno.ENOSPC, "No space left on device", "out"), "no more room on the disk (out)."),
    ],
)
def test_a_limit_of_the_system_is_named(exc: BaseException, said: str) -> None:
    error = of_the_system(exc)
    assert isinstance(error, LimitExceeded)
    assert said in str(error)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limits")
def test_the_hint_tells_what_is_set_and_how_high_it_is() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_345_678, before[1]))
    try:
        assert "(ulimit -f; here 12,345,678)" in str(of_the_system(OSError(errno.EFBIG, "")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_part_that_cannot_be_imported_for_lack_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", "nbtools/workflow")

    monkeypatch.setattr("nbtools.workflow.driver.host.WorkflowHost", refuse)
    with Workbench(memory_url=":memory:") as bench, pytest.raises(LimitExceeded, match="no more memory"):
        bench.workflows.runs()


@pytest.mark.parametrize(
    "exc",
    [ValueError(), RuntimeError("can't start new thread"), FileNotFoundError(errno.ENOENT, ""), MemoryWriteFailed("")],
)
def test_other_faults_are_the_codes_own(exc: BaseException) -> None:
    assert of_the_system(exc) is None
    with pytest.raises(type(exc)), circumstances():
        raise exc


def test_what_says_that_it_was_stopped_says_so_itself() -> None:
    stopped = Cancelled("you stopped it.")
    stopped.__context__ = KeyboardInterrupt()
    with pytest.raises(Cancelled), circumstances():
        raise stopped


def test_a_thread_that_cannot_be_started_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    # Its name differs between the versions of Python.
    names = [name for name in ("_start_new_thread", "_start_joinable_thread") if hasattr(threading, name)]
    for name in names:
        monkeypatch.setattr(threading, name, refuse)
    with pytest.raises(LimitExceeded, match="no more processes and threads") as told:
        start_thread(os.getpid, name="one too many")
    assert "ulimit -u" in str(told.value)
    with pytest.raises(RuntimeError, match="can't start new thread"), circumstances():
        refuse()


def test_a_stop_while_a_thread_starts_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            self.release()
            raise KeyboardInterrupt

    # What `Thread.start` waits for; the block around it lets its lock go a second time.
    monkeypatch.setattr(threading, "Condition", Stopped)
    with pytest.raises(KeyboardInterrupt):
        start_thread(os.getpid, name="stopped")


def test_what_an_explorer_lacks_of_a_removed_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Workbench(memory_url=":memory:", home=tmp_path, spares=0) as bench:
        monkeypatch.setitem(sys.modules, "nbtools.widgets.explorer", None)
        with pytest.raises(ModuleNotFoundError):
            bench.explore("a.csv")
        monkeypatch.setattr(sys, "prefix", f"{tmp_path}/gone")
        with pytest.raises(ConfigMissing, match=f"{tmp_path}/gone, which was removed or moved"):
            bench.explore("a.csv")
        monkeypatch.undo()
        with pytest.raises(SqlInvalid):
            bench.explore(7)
