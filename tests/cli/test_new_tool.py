"""``nbtools new-tool`` writes a package that works as it stands; ``nbtools run`` runs notebooks with parameters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import nbformat
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["read_only", "destructive"])
def test_a_new_tool_is_installed_called_and_tested(
    effect: str, nbtools: Callable[..., Any], tmp_path: Path, environment: dict[str, str]
) -> None:
    assert nbtools("new-tool", "word_count", "--effect", effect).code == 0
    assert "already exists" in nbtools("new-tool", "word_count").err
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", tmp_path / "lib", tmp_path / "word_count"], check=True, timeout=120)
    where = environment | {"PYTHONPATH": str(tmp_path / "lib"), "NBTOOLS_MEMORY_URL": ":memory:"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *words], env=where, capture_output=True, text=True, timeout=120, cwd=tmp_path
        )

    called = run("nbtools", "call", "word_count", "--text", "ab", "--times", "2")
    assert json.loads(called.stdout)["data"] == "abab", called.stderr
    tested = run("pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "word_count"))
    assert tested.returncode == 0, tested.stdout
    assert "warning: word_count" not in run("nbtools", "check-tools").stdout


def test_the_folder_of_a_new_tool_does_not_stand_for_its_package(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    """Installed as it lies there, it is found by the folder that its project names, behind the one of the notebook."""
    assert nbtools("new-tool", "word_count").code == 0
    spec = PathFinder.find_spec("word_count", [str(tmp_path), str(tmp_path / "word_count/src")])
    assert spec is not None
    assert spec.origin == str(tmp_path / "word_count/src/word_count/__init__.py")


@pytest.mark.parametrize("name", ["two words", "class", "3d"])
def test_a_name_that_python_cannot_have_is_refused(name: str, nbtools: Callable[..., Any], tmp_path: Path) -> None:
    assert nbtools("new-tool", name).code == 2
    assert not list(tmp_path.iterdir())


def _notebook(path: Path, *cells: tuple[str, list[str]]) -> Path:
    made = [nbformat.v4.new_code_cell(source, metadata={"tags": tags}) for source, tags in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


@pytest.mark.slow
def test_a_notebook_is_run_with_parameters_and_kept_beside_it(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    _notebook(tmp_path / "a.ipynb", ("n = 1\nwho = 'x'", ["parameters"]), ("print(who * n)", []))
    done = nbtools("run", "a.ipynb", "-p", "n=3", "-p", "who=ab")
    assert done.code == 0, done.err
    assert "executed notebook: a.executed.ipynb\n" in done.err
    ran = nbformat.read(tmp_path / "a.executed.ipynb", as_version=4)
    assert [cell.metadata.get("tags") for cell in ran.cells] == [["parameters"], ["injected-parameters"], []]
    assert ran.cells[2].outputs[0].text == "ababab\n"
    assert not nbformat.read(tmp_path / "a.ipynb", as_version=4).cells[1].outputs


@pytest.mark.slow
def test_a_notebook_that_fails_is_kept_up_to_there(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    _notebook(tmp_path / "a.ipynb", ("print(1)", []), ("1/0", []), ("print(2)", []))
    done = nbtools("run", "a.ipynb", "--out", "b.ipynb")
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert nbformat.read(tmp_path / "b.ipynb", as_version=4).cells[0].outputs


def test_wrong_ways_to_run_a_notebook_are_told(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    _notebook(tmp_path / "a.ipynb", ("n = 1", ["parameters"]))
    assert nbtools("run", "none.ipynb").code == 2
    assert "has no input 'a-b'" in nbtools("run", "a.ipynb", "-p", "a-b=1").err
    assert "would be replaced" in nbtools("run", "a.ipynb", "--out", "a.ipynb").err
