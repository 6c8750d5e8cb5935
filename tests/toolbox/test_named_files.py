"""What a yes to a command is given for: the files that its words name, and that more of it cannot be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbtools.toolbox.named_files import named_files


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["make"], []),
        (["npm", "run", "build"], []),
        (["sh", "-c", "cd x && sh 'a.sh'"], ["a.sh", "b.sh"]),
        (["xargs", "sh", "a.sh"], ["a.sh", "b.sh"]),
        (["python", "-m", "pkg"], ["__main__.py", "__init__.py"]),
        (["python", "pkg"], ["__main__.py", "__init__.py"]),
    ],
)
def test_a_command_shows_what_it_names_and_says_that_it_is_not_all(
    tmp_path: Path, words: list[str], files: list[str]
) -> None:
    (tmp_path / "a.sh").write_text(". ./b.sh\n")
    (tmp_path / "b.sh").write_text("echo b\n")
    (tmp_path / "pkg").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "pkg" / name).write_text("1\n")
    *told, last = named_files(words, tmp_path, "the command")
    assert [file.name for part in told for file in part.files] == files
    assert "cannot be known" in last.title


def test_nothing_is_said_of_a_call_that_runs_nothing(tmp_path: Path) -> None:
    assert [*named_files([], tmp_path, "the command")] == []
