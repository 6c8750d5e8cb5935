"""Files that were opened are known by whatever name they were; what is not known is said."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nbtools.confine.opened_files import OpenedFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")


def test_what_is_opened_is_known_by_its_place(tmp_path: Path) -> None:
    folder, home = tmp_path / "a", tmp_path / "a/home"
    for path in (folder / "sub/x.txt", folder / "y.txt", home / "z.txt", tmp_path / "outside.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (folder / "link").symlink_to(folder / "sub")
    opened = OpenedFiles([folder, tmp_path / "absent"], home)
    first = opened.moment()
    for path in (folder / "link/x.txt", home / "z.txt", tmp_path / "outside.txt"):
        path.read_text()
    second = opened.moment()
    (folder / "y.txt").read_text()
    assert opened.since(first) == (folder / "sub/x.txt", folder / "y.txt")
    assert opened.since(second) == (folder / "y.txt",)
    assert opened.since(opened.moment()) == ()
    opened.close()
    assert opened.since(first) is None


def test_a_folder_that_came_later_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "old/deep").mkdir(parents=True)
    opened = OpenedFiles([tmp_path])
    (tmp_path / "new/deep").mkdir(parents=True)
    (tmp_path / "new/deep/a.txt").write_text("x")
    (tmp_path / "old").rename(tmp_path / "moved")
    opened.moment()
    later = opened.moment()
    for path in (tmp_path / "new/deep/a.txt", tmp_path / "moved/deep/b.txt"):
        path.write_text("y")
    assert opened.since(later) == (tmp_path / "new/deep/a.txt", tmp_path / "moved/deep/b.txt")
    opened.close()


def test_more_than_can_be_counted_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    names = [str(tmp_path / "a" / name) for name in "xy"]  # of one, the same thing again would be counted once
    opened = OpenedFiles([tmp_path])
    moment = opened.moment()
    for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())):
        os.close(os.open(names[number % 2], os.O_CREAT | os.O_WRONLY))
    assert (opened.since(moment), opened.has_lost) == (None, True)
    opened.close()
    assert OpenedFiles([tmp_path], most_folders=1).since(0) is None
