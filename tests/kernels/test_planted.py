"""What a script may leave where git looks for programs, by the files alone."""

from __future__ import annotations

from pathlib import Path

from nbtools.kernels.planted import ASIDE, PlantedFiles


def test_more_hooks_than_anyone_has_are_taken_away_in_one_step(tmp_path: Path) -> None:
    hooks = tmp_path / ".git/hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("mine")
    planted = PlantedFiles(tmp_path)
    (hooks / "pre-commit").write_text("theirs")
    for number in range(1_100):
        (hooks / f"{number}").touch()
    assert planted.put_back() == (".git/hooks/pre-commit",)
    assert [path.name for path in hooks.iterdir()] == ["pre-commit"]
    assert (hooks / "pre-commit").read_text() == "mine"
    (aside,) = hooks.parent.glob(f"*{ASIDE}")
    assert (aside / "pre-commit").read_text() == "theirs"


def test_a_file_that_cannot_be_restored_is_named_as_such(tmp_path: Path) -> None:
    settings = tmp_path / "nbtools.toml"
    planted = PlantedFiles(tmp_path)
    settings.write_text("theirs")
    (tmp_path / f"nbtools.toml{ASIDE}" / "in the way").mkdir(parents=True)
    assert planted.put_back() == ("nbtools.toml (could not be restored)",)
