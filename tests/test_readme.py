"""The README keeps its promises: short, its code runs, its command for the tests is the one that CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_readme_is_short_and_shows_python_early() -> None:
    lines = TEXT.splitlines()
    assert len(lines) < 120
    assert any(line.startswith("from nbtools import") for line in lines[:30])


def test_every_picture_and_file_it_names_exists() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_ci_finds_the_command_that_the_readme_promises() -> None:
    commands = [line for line in TEXT.splitlines() if "pip install -e '.[test]'" in line]
    assert len(commands) == 1
    assert commands[0].endswith(".venv/bin/pytest -q -n 3 -m 'not slow'")


@pytest.mark.slow
@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_its_python_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "NBTOOLS_HOME": str(tmp_path / "home"), "ALLOWED_PATHS": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "describe" in code:
        assert "Gentoo" in done.stdout
        assert "data_analyze" in done.stdout
