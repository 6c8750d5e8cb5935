"""The folder of any run: who looks disturbs no driver, a full disk loses one line, and copies are whole."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbtools.conduct import run_folder
from nbtools.conduct.run_folder import DrivenRun, RunFolder, link_file
from nbtools.conduct.run_folders import RunFolders
from nbtools.errors import FileMissing, PermissionDenied
from tests.conftest import repeated


def _laid_down(folder: Path) -> Path:
    RunFolder.lay_down(folder)
    RunFolder.write_facts(folder, {"state": "pending"})
    return folder


def test_who_looks_stands_neither_in_the_way_of_a_driver_nor_of_others_who_look(tmp_path: Path) -> None:
    run = RunFolder(_laid_down(tmp_path / "a"))
    DrivenRun(run.folder).close()
    driver_before = (run.folder / "lease").read_bytes()
    seen_drivers = list[Any]()

    def look() -> None:
        seen_drivers.append(run.holder())
        time.sleep(0.0005)

    with repeated(look, look):
        time.sleep(0.2)
        assert (run.folder / "lease").read_bytes() == driver_before
        assert not any(seen_drivers)
        for _ in range(50):
            DrivenRun(run.folder).close()


def test_a_driver_reads_the_facts_behind_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _laid_down(tmp_path / "a")
    take = run_folder._DriverLock.take

    def take_after_another(lock: Any) -> bool:
        RunFolder.write_facts(folder, {"state": "done"})  # its driver wrote this in the last moment
        return take(lock)

    monkeypatch.setattr(run_folder._DriverLock, "take", take_after_another)
    driven = DrivenRun(folder)
    driven.close()
    assert driven.facts["state"] == "done"


def test_a_line_that_a_full_disk_cuts_is_told_and_takes_no_other_with_it(tmp_path: Path) -> None:
    driven = DrivenRun(_laid_down(tmp_path / "a"))
    driven.append_line(json.dumps({"number": 1}))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            driven.append_line(json.dumps({"number": 2, "text": "x" * 40}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    driven.append_line(json.dumps({"number": 3}))
    driven.close()
    assert [line["number"] for line in driven.lines()] == [1, 3]


def test_a_copy_in_place_of_a_link_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "kept" / "target"
    source.write_bytes(b"whole")

    def no_link(*_: Any) -> None:
        raise PermissionError("no links here")

    def cut(_: Path, to: Path) -> None:
        Path(to).write_bytes(b"wh")
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "link", no_link)
    with monkeypatch.context() as full, contextlib.suppress(OSError):
        full.setattr(shutil, "copyfile", cut)
        link_file(source, target)
    assert list(target.parent.iterdir()) == []
    link_file(source, target)
    assert target.read_bytes() == b"whole"


def test_a_name_that_no_folder_can_have_is_the_name_of_no_run(tmp_path: Path) -> None:
    _laid_down(tmp_path / "a")
    runs = RunFolders(tmp_path, RunFolder, seconds=0, most_bytes=0, listed_by="nbtools runs")
    with pytest.raises(FileMissing, match="there is no run"):
        runs.find("x" * 300)


@pytest.mark.parametrize("facts", ["[]", "{}", "1", "{"])
def test_what_only_looks_like_a_run_is_none_and_what_lies_behind_a_link_stays(tmp_path: Path, facts: str) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_text(facts)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(_laid_down(tmp_path / "elsewhere"))
    for folder, name in (("", "odd"), ("runs", "link")):
        runs = RunFolders(tmp_path / folder, RunFolder, seconds=0, most_bytes=0, listed_by="nbtools runs")
        for use in (runs.find, runs.forget):
            with pytest.raises(FileMissing, match="there is no run"):
                use(name)
        assert name not in [run.folder.name for run in runs.newest(None)]
    assert (tmp_path / "elsewhere" / "run.json").exists()


class _EndedRun(RunFolder):
    has_ended = True  # type: ignore[assignment]  # see the property


def test_to_remove_old_runs_leaves_those_that_have_not_ended_as_old_as_they_are(tmp_path: Path) -> None:
    class WaitingRun(RunFolder):
        has_ended = False  # type: ignore[assignment]  # see the property

    runs = RunFolders(tmp_path / "runs", WaitingRun, seconds=0, most_bytes=0, listed_by="nbtools runs")
    (tmp_path / "runs").mkdir()
    leases = [_laid_down(tmp_path / "runs" / f"r{number:03}") / "lease" for number in range(25)]
    for lease in leases:
        os.utime(lease, (1, 1))
    assert runs.prune() == (0, 0)
    assert [(lease.read_bytes(), lease.stat().st_mtime) for lease in leases] == [(b"", 1)] * 25


@pytest.mark.processes
def test_one_lock_decides_between_a_driver_and_who_removes_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "LOOKED_AT_S", 0.005)
    runs = RunFolders(tmp_path / "runs", _EndedRun, seconds=0, most_bytes=0, listed_by="nbtools runs")
    (tmp_path / "runs").mkdir()
    names = [f"r{number:03}" for number in range(200)]
    for name in names:
        _laid_down(tmp_path / "runs" / name)
    command = [sys.executable, "-c", _DRIVES, str(tmp_path / "runs"), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        for number, name in enumerate(names):
            driver.stdout.readline()  # it is ready
            driver.stdin.write("\n")
            is_gone = _remove(runs, name, by_age=number % 2 == 0)
            told = driver.stdout.readline().strip()
            # One of them has the run: whole for the driver, or gone for both.
            assert (is_gone, told) in {(True, "FileMissing"), (False, "drove")}, (name, is_gone, told)
            assert (tmp_path / "runs" / name).exists() is not is_gone
            if not is_gone:
                assert [line["is"] for line in RunFolder(tmp_path / "runs" / name).lines()] == ["here"]
            driver.stdin.write("\n")
    assert driver.returncode == 0


_DRIVES = """
import sys, time
from pathlib import Path
from nbtools.conduct.run_folder import DrivenRun
from nbtools.errors import NbtoolsError
for number, name in enumerate(sys.argv[2:]):
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(number % 4 / 20_000)  # so that each may come first
    try:
        run = DrivenRun(Path(sys.argv[1], name))
    except NbtoolsError as exc:
        print(type(exc).__name__, flush=True)
        sys.stdin.readline()
        continue
    run.append_line('{"is": "here"}')
    print("drove", flush=True)
    sys.stdin.readline()
    run.close()
"""


def _remove(runs: RunFolders[_EndedRun], name: str, *, by_age: bool) -> bool:
    try:
        if by_age:  # as `prune` does
            _EndedRun(runs.folder / name).withdraw(only_ended=True)
            shutil.rmtree(runs.folder / name)
        else:
            runs.forget(name)
    except PermissionDenied:
        return False
    return True


def test_a_run_that_has_not_ended_is_not_removed_for_its_age(tmp_path: Path) -> None:
    run = _EndedRun(_laid_down(tmp_path / "a"))
    run.has_ended = False
    assert run.withdraw(only_ended=True) is False
    DrivenRun(run.folder).close()  # it can be gone on with
    assert run.withdraw() is True
    with pytest.raises(FileMissing):
        DrivenRun(run.folder)
