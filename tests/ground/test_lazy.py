"""Optional parts are imported on use, and a missing one says how to get it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from nbtools.contract.execute import LocalExecutor
from nbtools.contract.tool import ToolCall, tool
from nbtools.errors import ConfigMissing, MissingExtra
from nbtools.ground.lazy import ByClassName, _Heavy, has, need

# None of these may be in memory after the package, or the extension, was loaded: each costs more than all of nbtools.
HEAVY = {"anthropic", "distributed", "duckdb", "matplotlib", "mcp", "openai", "pandas", "pydantic_ai", "sqlglot"}


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_present_module_is_returned() -> None:
    assert need("json.decoder", extra="any", why="Reading JSON") is sys.modules["json.decoder"]


def test_threads_wait_for_a_module_that_one_of_them_imports(on_path: Path) -> None:
    (on_path / "slowly_there.py").write_text("import time\ntime.sleep(0.2)\nvalue = 1\n")
    heavy = _Heavy("slowly_there")
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(lambda _: heavy.value, range(4))] == [1] * 4


def test_a_missing_extra_names_the_feature_and_the_install_line() -> None:
    with pytest.raises(MissingExtra) as caught:
        need("surely_absent.client", extra="dask", why="Running on a cluster")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, ConfigMissing)
    assert caught.value.message.startswith("Running on a cluster needs the package 'surely_absent'")
    assert caught.value.hint == "pip install 'nbtools-kit[dask]'"


def test_a_missing_submodule_of_a_present_package_is_a_missing_extra_too() -> None:
    with pytest.raises(MissingExtra):
        need("json.surely_absent", extra="otel", why="Exporting")


def test_a_broken_package_speaks_for_itself(on_path: Path) -> None:
    (on_path / "half_installed.py").write_text("import surely_absent_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="surely_absent_dependency") as caught:
        need("half_installed", extra="x", why="Anything")
    assert not isinstance(caught.value, MissingExtra)


def test_a_dependency_whose_name_begins_alike_is_not_mistaken_for_the_package(on_path: Path) -> None:
    (on_path / "alike_more.py").write_text("import alike\n")
    with pytest.raises(ModuleNotFoundError) as caught:
        need("alike_more", extra="x", why="Anything")
    assert not isinstance(caught.value, MissingExtra)


def test_presence_is_told_without_importing(on_path: Path) -> None:
    (on_path / "loud_package.py").write_text("raise SystemExit\n")
    assert has("loud_package")
    assert not has("surely_absent")
    assert "loud_package" not in sys.modules


@pytest.fixture
def a_facade(on_path: Path) -> Iterator[ModuleType]:
    source = """
    from typing import TYPE_CHECKING
    from nbtools.ground.lazy import facade
    if TYPE_CHECKING:
        from json.decoder import JSONDecoder
        from surely_absent import Gone
        from uuid import uuid4 as fresh
    __getattr__ = facade(__name__)
    """
    (on_path / "a_facade.py").write_text(textwrap.dedent(source))
    yield importlib.import_module("a_facade")
    del sys.modules["a_facade"]


def test_a_facade_imports_a_name_on_first_use_and_leaves_it_there(a_facade: ModuleType) -> None:
    assert "JSONDecoder" not in vars(a_facade)
    assert a_facade.JSONDecoder is sys.modules["json.decoder"].JSONDecoder is vars(a_facade)["JSONDecoder"]
    assert a_facade.fresh is sys.modules["uuid"].uuid4
    with pytest.raises(ModuleNotFoundError):
        _ = a_facade.Gone


def test_a_facade_refuses_unknown_names_as_modules_do(a_facade: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'a_facade' has no attribute 'Other'"):
        _ = a_facade.Other


def _loaded_after(code: str, tmp_path: Path) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after some code."""
    home = {name: str(tmp_path) for name in ("HOME", "NBTOOLS_HOME", "IPYTHONDIR", "USERPROFILE", "XDG_CONFIG_HOME")}
    shown = "import json, sys; print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{shown}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | home,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().count("\n") == 0, f"loading is not silent: {done.stdout}"
    return set(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.mark.processes
def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    assert not HEAVY & _loaded_after("import nbtools", tmp_path)


@pytest.mark.processes
def test_loading_the_extension_is_silent_and_loads_nothing_heavy(tmp_path: Path) -> None:
    load = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbtools")
assert "nbtools" in shell.extension_manager.loaded, "the extension was not loaded"
import sys
assert "nbtools.ground.config" not in sys.modules, "the settings take longer to import than all the rest"
"""
    assert not HEAVY & _loaded_after(load, tmp_path)


def test_a_class_that_is_given_by_its_name_is_found_without_an_import() -> None:
    from fractions import Fraction

    values = ByClassName({"fractions.Fraction": 1, "nowhere.Nothing": 2})
    assert values[Fraction] == 1
    assert int not in values
    with pytest.raises(ModuleNotFoundError):
        list(values)


def test_an_environment_that_was_removed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @tool
    def start() -> str:
        """Start what is gone."""
        raise FileNotFoundError(2, "No such file or directory", f"{sys.prefix}/bin/python")

    gone = LocalExecutor([start])
    assert gone.call(ToolCall(tool="start")).error.code == "INTERNAL"  # type: ignore[union-attr]  # it fails
    monkeypatch.setattr(sys, "prefix", f"{tmp_path}/gone")
    error = gone.call(ToolCall(tool="start")).error
    assert error is not None
    assert (error.code, f"{tmp_path}/gone, which was removed or moved" in error.message) == ("CONFIG_MISSING", True)


@pytest.mark.usefixtures("processes")
def test_processes_beside_a_notebook_load_no_loop_and_no_words_of_others() -> None:
    """The one that starts kernels and the one that keeps the memory are there once for each notebook of a class."""
    code = "import sys, nbtools.processes.__main__, nbtools.memory.keeper.__main__; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"asyncio", "ssl", "logging", "tomllib", "importlib.resources"}.isdisjoint(ran.stdout.split())
