"""``nbtools demo``: what it leaves alone. The tour itself is run by the tests of the notebooks."""

from __future__ import annotations

from pathlib import Path

from nbtools.cli.demo import fresh_home


def test_only_the_demos_own_memory_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work", encoding="utf-8")
    (fresh_home(tmp_path) / "old").mkdir(parents=True)
    assert not fresh_home(tmp_path).exists()
    assert (tmp_path / "home" / "thesis.txt").read_text(encoding="utf-8") == "years of work"
