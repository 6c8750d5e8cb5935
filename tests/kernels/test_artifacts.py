"""What becomes of files that a script wrote: what is taken out of its reach, and what is said of the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nbtools.ground.folder_state import FolderState
from nbtools.kernels import Execution, RunContext, artifacts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "script"
    made.mkdir()
    return made


@pytest.mark.parametrize("move", [True, False])
def test_what_took_the_place_of_a_file_is_not_kept_and_is_named(tmp_path: Path, folder: Path, move: bool) -> None:
    store = tmp_path / "store"
    (folder / "good.txt").write_text("good")
    (folder / "folder").mkdir()
    (folder / "folder" / "inside").touch()
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    names = ["good.txt", "folder", "link", "pipe", "gone"]
    kept, notes = artifacts.keep([folder / name for name in names], folder, store, move=move)
    assert kept == {folder / "good.txt": store / "good.txt"}
    assert [path.name for path in store.rglob("*")] == ["good.txt"]
    assert (folder / "good.txt").exists() is not move
    assert len(notes) == 1
    assert notes[0].startswith("4 of the files that the script left could not be kept (folder, link, pipe, gone): ")


def test_no_more_is_copied_than_there_is_room_for_and_of_many_names_five_are_said(tmp_path: Path, folder: Path) -> None:
    for at in range(7):
        with (folder / f"{at}").open("wb") as file:
            file.truncate((256 << 20) + 1 if at else 5)  # which takes no room on the disk
    kept, notes = artifacts.keep(sorted(folder.iterdir()), folder, tmp_path / "store", move=False)
    assert list(kept) == [folder / "0"]
    (note,) = notes
    assert note.startswith("6 of the files that the script left could not be kept (1, 2, 3, 4, 5, …): ")
    assert note.endswith(", or there are more than 268,435,456 bytes in all")


def test_the_newest_files_stay_in_the_store(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_FILES", 2)
    for name in "abc":
        (folder / name).touch()
        FolderState(folder)  # returns when the file system's clock has gone on
        artifacts.keep([folder / name], folder, tmp_path / "store", move=True)
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["b", "c"]


def test_a_script_that_writes_too_many_files_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_FILES", 2)
    before = FolderState(folder)
    for name in "ab":
        (folder / name).touch()
    done = artifacts.collect(Execution(status="ok"), RunContext(cwd=folder), before, find=lambda: None, move=True)
    assert done.notes == ("the first 2 files that the script wrote are listed; there may be more",)
    assert done.artifacts == (folder / "a", folder / "b")


def test_a_table_and_a_figure_are_found_where_their_files_were_taken(tmp_path: Path, folder: Path) -> None:
    before, store, figure = FolderState(folder), tmp_path / "store", folder / "plot.png"
    for path in (folder / "t.parquet", figure):
        path.touch()

    def collect(value: Any, name: str) -> Execution:
        done = Execution(status="ok", value=value, artifacts=(folder / name,))
        context = RunContext(cwd=folder, figure_path=figure)
        return artifacts.collect(done, context, before, find=lambda: store, move=False)

    done = collect({"parquet": str(folder / "t.parquet"), "row_count": 1}, "t.parquet")
    assert done.value == {"parquet": str(store / "t.parquet"), "row_count": 1}
    assert (done.figure, done.folder) == (store / "plot.png", store)
    assert collect({"parquet": "/elsewhere"}, "t.parquet").value == {"parquet": "/elsewhere"}
    assert collect([1], "t.parquet").value == [1]
