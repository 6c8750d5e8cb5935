"""Which files count as written by a script."""

from __future__ import annotations

import time
from pathlib import Path

from nbtools.kernels import artifacts


def test_files_written_after_the_moment_are_artifacts(tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text("x")
    time.sleep(0.02)
    begun = artifacts.moment()
    time.sleep(0.02)
    for name in ("new.txt", ".hidden", "sub/deep.csv", "__pycache__/m.pyc", "node_modules/a.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("y")
    (tmp_path / "link").symlink_to(tmp_path / "new.txt")
    assert artifacts.written_since(tmp_path, begun) == (tmp_path / "new.txt", tmp_path / "sub/deep.csv")
    assert artifacts.written_since(tmp_path / "absent", begun) == ()


def test_what_is_written_just_before_is_older_and_what_is_written_at_once_is_not(tmp_path: Path) -> None:
    """No clock of Python orders them: file systems have a coarse one, and a finer one for files that were looked at."""
    for number in range(300):
        before, after = tmp_path / f"{number}-before", tmp_path / f"{number}-after"
        before.write_text("x")
        before.stat()
        before.write_text("y")
        begun = artifacts.moment()
        after.touch()
        assert not artifacts.is_written_since(before, begun)
        assert artifacts.is_written_since(after, begun)
