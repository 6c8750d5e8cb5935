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


def test_a_file_written_at_once_is_never_older_than_the_moment_before(tmp_path: Path) -> None:
    """The clock of file systems lags behind the fine one, by which such a file would be lost."""
    for number in range(300):
        begun = artifacts.moment()
        made = tmp_path / f"{number}.txt"
        made.touch()
        assert made.stat().st_ctime_ns >= begun
