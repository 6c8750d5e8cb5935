"""The rules of the house for JavaScript that need no linter (`.ci/javascript` asks one for the rest), and its tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nbtools.widgets.live.sources import module_text
from tests.widgets.test_sources import WIDGETS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 400
LINE = 120


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted(ROOT.joinpath(folder).rglob(pattern))


def test_no_file_of_javascript_and_no_line_of_it_is_long() -> None:
    problems = []
    for path in (*_files("nbtools", "*.js"), *_files("nbtools", "*.cjs"), *_files("tests", "*.js")):
        lines = path.read_text(encoding="utf-8").splitlines()
        place = path.relative_to(ROOT)
        problems += [f"{place} has {len(lines)} lines, {FILE_LINES} at the most"] if len(lines) > FILE_LINES else []
        problems += [f"{place}:{at} is longer than {LINE}" for at, line in enumerate(lines, 1) if len(line) > LINE]
    assert problems == []


def test_scripts_of_node_say_by_their_names_what_they_are() -> None:
    # A package.json in any folder above may say that .js files are ES modules; this project's own does.
    assert [path.name for path in _files("nbtools/kernels", "*.js")] == []
    assert len(_files("nbtools/kernels", "*.cjs")) == 2


def test_pure_parts_of_the_javascript_do_what_they_say(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        if os.environ.get("CI"):
            pytest.fail("Node.js is missing")
        pytest.skip("Node.js is not installed: the JavaScript was NOT tested")
    for name in WIDGETS:
        (tmp_path / f"{name}.mjs").write_text(module_text(name), encoding="utf-8")
    done = subprocess.run(
        [node, "--test", *map(str, _files("tests", "*.test.js"))],
        env={**os.environ, "JOINED": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
