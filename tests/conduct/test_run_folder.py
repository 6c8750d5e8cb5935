"""The folder of any run: who looks disturbs no driver, a full disk loses one line, and copies are whole."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nbtools.conduct import run_folder
from nbtools.conduct.run_folder import DrivenRun, RunFolder, link_file
from nbtools.conduct.run_folders import RunFolders
from nbtools.errors import FileMissing


def _laid_down(folder: Path) -> Path:
    RunFolder.lay_down(folder)
    RunFolder.write_facts(folder, {"state": "pending"})
    return folder


def test_who_looks_stands_neither_in_the_way_of_a_driver_nor_of_others_who_look(tmp_path: Path) -> None:
    run = RunFolder(_laid_down(tmp_path / "a"))
    DrivenRun(run.folder).close()
    driver_before = (run.folder / "lease").read_bytes()
    is_over, seen_drivers = threading.Event(), list[Any]()

    def look() -> None:
        while not is_over.is_set():
            seen_drivers.append(run.holder())
            time.sleep(0.0005)

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    time.sleep(0.2)
    assert (run.folder / "lease").read_bytes() == driver_before
    assert not any(seen_drivers)
    for _ in range(50):
        DrivenRun(run.folder).close()
    is_over.set()
    for watcher in watchers:
        watcher.join()


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
