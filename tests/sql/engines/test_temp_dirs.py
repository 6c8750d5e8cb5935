"""Temporary folders of processes that were killed are removed, by one look a minute."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from nbtools.sql.engines import temp_dirs

GONE = 999_999_999  # more processes than Linux numbers


def test_folders_of_killed_processes_are_removed_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [60_000.0]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temp_dirs.time, "monotonic", lambda: now[0])
    left = [tmp_path / f"nbtools-sql-{GONE}-{name}" for name in ("one", "two")]
    others = [tmp_path / f"nbtools-sql-{os.getpid()}-mine", tmp_path / f"nbtools-sql-{GONE}-", tmp_path / "other"]
    for folder in (left[0], *others):
        folder.mkdir()
    made = temp_dirs.make_temp_dir()
    assert {*tmp_path.iterdir()} == {made, *others}
    left[1].mkdir()
    assert (temp_dirs.make_temp_dir().is_dir(), left[1].exists()) == (True, True)
    now[0] += 60
    temp_dirs.make_temp_dir()
    assert not left[1].exists()


def test_a_stop_while_a_folder_is_removed_is_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = os.close

    def close_and_stop(descriptor: int) -> None:
        monkeypatch.undo()
        close(descriptor)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", close_and_stop)
    with pytest.raises(KeyboardInterrupt):
        temp_dirs.remove_temp_dir(tmp_path)
