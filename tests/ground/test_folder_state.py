"""Which files count as written by a script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbtools.ground import folder_state
from nbtools.ground.folder_state import AtWork, FolderState


@pytest.fixture(params=["fine times", "coarse times"])
def times(request, monkeypatch) -> None:
    """Let files get fine times as newer Linux gives them, or the coarse ones that older Linux gives to all."""
    if request.param == "fine times":
        return
    # The same as the file systems of such a kernel do: all times are of the last tick.
    state, tick = folder_state._state, 4_000_000
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: (now := time.time_ns()) - now % tick)

    def coarse(place: os.DirEntry[str] | Path) -> tuple[int, int, int, int] | None:
        found = state(place)
        return None if found is None else (*found[:2], *(when - when % tick for when in found[2:]))

    monkeypatch.setattr(folder_state, "_state", coarse)


def test_files_that_were_made_or_changed_are_artifacts(tmp_path: Path) -> None:
    for name in ("before.txt", "changed.txt", "replaced.txt"):
        (tmp_path / name).write_text("x")
    before = FolderState(tmp_path)
    for name in ("new.txt", ".hidden", "sub/deep.csv", "__pycache__/m.pyc", "node_modules/a.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("y")
    (tmp_path / "link").symlink_to(tmp_path / "new.txt")
    (tmp_path / "changed.txt").write_text("y")
    (tmp_path / "draft").write_text("x")
    (tmp_path / "draft").replace(tmp_path / "replaced.txt")
    made = ("changed.txt", "new.txt", "replaced.txt", "sub/deep.csv")
    assert before.changed_files() == tuple(tmp_path / name for name in made)


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    before = FolderState(tmp_path / "absent")
    assert before.changed_files() == ()
    assert not before.has_changed(tmp_path / "absent" / "a.png")
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent/a.png").touch()
    assert before.changed_files() == (tmp_path / "absent/a.png",)


@pytest.mark.usefixtures("times")
def test_what_is_written_at_once_before_and_after_is_told_apart(tmp_path: Path) -> None:
    """Not by a clock: the one of file systems is behind ours, or ahead of it, by some milliseconds."""
    for number in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        early, late, both = (folder / f"{name}.txt" for name in ("early", "late", "both"))
        early.write_text("1")
        early.stat()  # the next change of what was looked at gets a finer time
        early.write_text("2")
        both.write_text("1")
        before = FolderState(folder)
        late.write_text("2")
        both.write_text("2")
        assert before.changed_files() == (both, late)


@pytest.mark.parametrize("shift_s", [-(10**6), -1, -0.004, -0.001, 0, 0.001, 0.004, 1, 10**6])
def test_times_that_are_set_by_hand_do_not_count(tmp_path: Path, shift_s: float) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    now = time.time_ns() + int(shift_s * 10**9)
    old.write_text("x")
    os.utime(old, ns=(now, now))
    before = FolderState(tmp_path)
    new.write_text("x")
    os.utime(new, ns=(now, now))
    assert before.changed_files() == (new,)


@pytest.mark.parametrize("clock", [lambda: time.time_ns() + 10**15, lambda: time.time_ns() - 10**15])
def test_the_clock_of_another_machine_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], int]
) -> None:
    state, shift = folder_state._state, clock() - time.time_ns()

    def served(place: os.DirEntry[str] | Path) -> tuple[int, int, int, int] | None:
        found = state(place)
        return None if found is None else (*found[:2], *(when + shift for when in found[2:]))

    monkeypatch.setattr(folder_state, "_state", served)
    (tmp_path / "old.txt").write_text("x")
    before = FolderState(tmp_path)
    (tmp_path / "new.txt").write_text("x")
    assert before.changed_files() == (tmp_path / "new.txt",)


def test_a_picture_outside_the_folder_is_looked_at_too(tmp_path: Path) -> None:
    folder, picture = tmp_path / "work", tmp_path / "out.png"
    folder.mkdir()
    picture.write_bytes(b"old")
    before = FolderState(folder, picture)
    assert not before.has_changed(picture)
    picture.write_bytes(b"new")
    assert before.has_changed(picture)
    assert before.changed_files() == ()


def test_in_a_large_folder_what_was_not_listed_goes_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_state, "_MOST_LISTED", 10)
    deep = tmp_path / "a/b"
    deep.mkdir(parents=True)
    for number in range(30):
        (deep / f"{number}.txt").touch()
    # A change time cannot be set, so the start of the script is.
    before = FolderState(tmp_path)
    before._begun += 3 * 10**9
    (tmp_path / "near.txt").touch()
    assert before.changed_files() == ()
    before._begun = time.time_ns()
    assert tmp_path / "near.txt" in before.changed_files()


def test_a_listing_of_many_files_is_cut(tmp_path: Path) -> None:
    first = tmp_path / "first.txt"
    first.touch()
    for number in range(5_000):
        os.link(first, f"{tmp_path}/{number}.txt")
    before = FolderState(tmp_path)
    assert len(before._before) == 5_000


def test_what_nbtools_stores_is_none_of_a_scripts_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = FolderState(tmp_path, None, home)
    for name in (
        "notes.duckdb",
        "notes.duckdb.wal",
        "notes.duckdb.keeper/lock",
        "notes.duckdb.keeper/log/1",
        "nbk-1/owner",
        "nbk-1/k/words",
        "home/a",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "own.keeper").write_text("x")
    (tmp_path / "own").write_text("x")
    assert before.changed_files() == (tmp_path / "own", tmp_path / "own.keeper")


def test_a_file_that_changed_while_two_wrote_is_of_neither_for_certain(tmp_path: Path) -> None:
    at_work = AtWork()
    mine = at_work.enter(tmp_path)
    (alone := tmp_path / "alone").touch()
    time.sleep(0.05)
    below, beside = at_work.enter(tmp_path / "below"), at_work.enter(tmp_path.parent / "beside")
    (both := tmp_path / "both").touch()
    assert at_work.shared(mine, [alone, both]) == (both,)
    assert at_work.shared(beside, [alone, both]) == ()
    at_work.leave(below)
    time.sleep(0.05)
    (after := tmp_path / "after").touch()
    assert at_work.shared(mine, [alone, both, after]) == (both,)
    assert at_work.shared(below, [both]) == (both,)
    at_work.leave(mine)
    at_work.leave(beside)
    assert at_work.shared(at_work.enter(tmp_path), [both]) == ()
