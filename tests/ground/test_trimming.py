"""Trimming: the least used goes first, the newest stay, and what may not go is left."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nbtools.ground.trimming import size_of, trim

DAY = 86_400.0


def _make(folder: Path, name: str, days: float, size: int = 100) -> Path:
    entry = folder / name
    entry.mkdir()
    (entry / "log").write_bytes(bytes(size))
    moment = time.time() - days * DAY
    for path in (entry / "log", entry):
        os.utime(path, (moment, moment))
    return entry


def test_what_is_old_or_too_much_goes_the_least_used_first(tmp_path: Path) -> None:
    for number in range(6):
        _make(tmp_path, f"run{number}", days=number)
    assert size_of(tmp_path) == 600
    assert trim(tmp_path, seconds=4.5 * DAY, most_bytes=350, least=1) == (3, 300)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run0", "run1", "run2"]
    assert trim(tmp_path, seconds=4.5 * DAY, most_bytes=350, least=1) == (0, 0)


def test_the_newest_stay_whatever_the_clock_says(tmp_path: Path) -> None:
    for number in range(4):
        _make(tmp_path, f"run{number}", days=400 + number)  # a clock that has jumped a year ahead
    _make(tmp_path, "ahead", days=-400)  # and one that has jumped back
    assert trim(tmp_path, seconds=DAY, most_bytes=10**6, least=3) == (2, 200)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ahead", "run0", "run1"]


def test_what_may_not_go_stays_and_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    waits = _make(tmp_path, "waits", days=9)
    _make(tmp_path, "done", days=9)
    assert trim(tmp_path, seconds=DAY, most_bytes=1, least=0, may_go=lambda path: path != waits) == (1, 100)
    assert waits.is_dir()
    assert trim(tmp_path / "none", seconds=1, most_bytes=1) == (0, 0)
