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


def test_what_cannot_be_shown_or_is_too_much_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\xff" * 9)
    first = next(named_files(["a\0b", "./tool"], tmp_path, "the command"))
    assert first.title == "tool, named in the command (9 bytes, too large to show or not text)"
    names = [f"{number}.sh" for number in range(40)]
    for name in names:
        (tmp_path / name).write_text("true\n")
    *shown, more, _ = named_files(["sh", *names], tmp_path, "the command")
    assert [part.files[0].name for part in shown] == names[: len(shown)]
    assert more.title == f"more than {len(shown)} files are named: the others are not examined"
