"""Suites that others wrote, from their repositories: JSON, YAML, CSV, Parquet, stores of LangGraph, clients of kernels,
memory tools of Anthropic's SDK.

``NBTOOLS_SUITES`` names a folder that was filled by hand, with a checkout for each, by these names of GitHub:
nst/JSONTestSuite, yaml/yaml-test-suite, max-mapper/csv-spectrum, apache/parquet-testing, langchain-ai/langgraph,
anthropics/anthropic-sdk-python, jupyter/nbclient (which also wants ``pip install testpath``). What is not there is
skipped. Where we answer otherwise than a suite asks, the case stands here with its reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import NbtoolsError
from nbtools.sql import SqlSession
from nbtools.texts.parsing import from_json, from_yaml

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def suite(name: str) -> Path:
    """Return the checkout of a suite, or skip."""
    folder = os.environ.get("NBTOOLS_SUITES")
    if not folder:
        pytest.skip("NBTOOLS_SUITES does not name the folder with the suites of others")
    if not (path := Path(folder).resolve() / name).is_dir():
        pytest.skip(f"{path} is not there")
    return path


def test_json_is_read_as_its_test_suite_says() -> None:
    wrong = []
    for path in sorted((suite("JSONTestSuite") / "test_parsing").glob("[yn]_*.json")):
        try:
            from_json(path.read_text(encoding="utf-8"))
            is_read = True
        except (NbtoolsError, UnicodeDecodeError):
            is_read = False
        if is_read != path.name.startswith("y"):
            wrong.append(path.name)
    # A key that stands twice is a mistake of whoever wrote it: one of its values would be lost.
    assert wrong == ["y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"]


# What libyaml reads although YAML 1.2 forbids it, and where it reads another value.
LOOSE = {
    "9C9N/0",
    "9JBA/0",
    "CVW2/0",
    "DK95/1",
    "G5U8/0",
    "MUS6/0",
    "QB6E/0",
    "S98Z/0",
    "SU5Z/0",
    "X4QW/0",
    "Y79Y/3",
    "YJV2/0",
}
OTHER_VALUES = {"652Z/0", "HM87/1", "JEF9/2", "L24T/1", "Y2GN/0"}
READ_AT_LEAST = 200


def yaml_cases(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the cases with their names; a case has what it does not say from the one before it."""
    import yaml

    for path in sorted((folder / "src").glob("*.yaml")):
        case: dict[str, Any] = {}
        for number, more in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))):
            case = {**case, "fail": False, **more}
            yield f"{path.stem}/{number}", case


def spelled(text: str) -> str:
    """Return a text of the suite with its signs for blanks, tabs, marks and ends as what they stand for."""
    text = re.sub("—*»", "\t", text.replace("␣", " ").replace("↵", "").replace("∎\n", ""))
    return text.replace("⇔", "\ufeff").replace("←", "\r")


def test_yaml_is_read_as_its_test_suite_says_or_refused() -> None:
    loose, other, same = set(), set(), 0
    for name, case in yaml_cases(suite("yaml-test-suite")):
        try:
            value = from_yaml(spelled(case["yaml"]))
        except NbtoolsError:
            continue
        if case["fail"]:
            loose.add(name)
        elif case.get("json"):
            same += value == json.loads(case["json"])
            other |= {name} if value != json.loads(case["json"]) else set()
    assert (loose, other) == (LOOSE, OTHER_VALUES)
    assert same >= READ_AT_LEAST


@pytest.fixture(scope="module")
def session() -> Iterator[SqlSession]:
    with SqlSession(allowed_paths=[suite("csv-spectrum").parent]) as opened:
        yield opened


def test_csv_is_read_as_csv_spectrum_says(session: SqlSession) -> None:
    folder, other = suite("csv-spectrum"), []
    for path in sorted((folder / "csvs").glob("*.csv")):
        result = session.query(f"select * from '{path}'")
        rows = [
            dict(zip(result.columns, ["" if value is None else str(value) for value in row], strict=True))
            for row in result.to_rows()
        ]
        if rows != json.loads((folder / "json" / f"{path.stem}.json").read_text(encoding="utf-8")):
            other.append(path.stem)
    # Its JSON is no list, and has another number than the file.
    assert set(other) <= {"location_coordinates"}


def test_parquet_files_are_read_as_duckdb_reads_them_or_refused_by_name(session: SqlSession) -> None:
    import duckdb

    folder, read = suite("parquet-testing"), 0
    for path in sorted(folder.rglob("*.parquet")):
        query = f"select * from '{path}'"
        try:
            expected = duckdb.sql(query).to_arrow_table()
        except (duckdb.Error, MemoryError):
            expected = None
        try:
            # In the confined process, whose end would be seen if a file could break it.
            result = session.query(query, isolated=True)
        except NbtoolsError:
            result = None
        # Of a VARIANT, Arrow shows DuckDB's bytes, where it can, and we its value.
        is_variant = path.parent.name == "shredded_variant"
        assert (result is None) == (expected is None) or is_variant, path.name
        if result is None or expected is None:
            continue
        if not is_variant:
            # NaN is not equal to itself, but its text is.
            ours = result.to_arrow()
            assert ours.equals(expected) or repr(ours.to_pylist()) == repr(expected.to_pylist()), path.name
        read += 1
    assert read > 50


STORE = """
import contextlib, sys, types
from nbtools.memory import open_memory
from nbtools.memory.langgraph import NbtoolsStore

class SqliteStore(NbtoolsStore):
    @classmethod
    @contextlib.contextmanager
    def from_conn_string(cls, text, *, index=None, ttl=None):
        with open_memory(":memory:") as memory:
            # The suite says which fields are embedded by the word of its own store.
            yield cls(memory, index=index and {**index, "fields": index.get("text_fields") or ["$"]}, ttl=ttl)

    def setup(self):
        pass

inner = dict.fromkeys(("NS_MATCH_FUNCTION", "BaseSqliteStore", "_escape_glob_literal", "_namespace_match_pattern"))
names = {"langgraph.store.sqlite": {"SqliteStore": SqliteStore}}
names["langgraph.store.sqlite.base"] = inner | {"SqliteIndexConfig": dict}
for name, members in names.items():
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(members)
"""


def run_suite(folder: Path, *names: str, environment: dict[str, str] | None = None) -> set[str]:
    """Run a file of tests apart from ours; return the names of what failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", *names]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True
    )
    assert done.returncode in {0, 1}, done.stdout[-4_000:] + done.stderr[-4_000:]
    assert " passed" in done.stdout, done.stdout[-4_000:]
    return {line.partition("::")[2].split(" - ")[0].split("[")[0] for line in done.stdout.splitlines() if "::" in line}


# They look into SQLite itself; and a key of a filter, whatever it holds, is a name for us and no SQL.
INSIDE = {
    "test_escape_glob_literal",
    "test_namespace_match_pattern",
    "test_list_namespaces_prefix_uses_indexable_condition",
    "test_nonnull_migrations",
    "test_vector_store_initialization",
    "test_sql_injection_vulnerability",
}


def test_our_store_passes_the_tests_of_langgraph_for_its_sqlite_store(tmp_path: Path) -> None:
    shutil.copy(suite("langgraph") / "libs/checkpoint-sqlite/tests/test_store.py", tmp_path)
    (tmp_path / "conftest.py").write_text(STORE)
    assert run_suite(tmp_path, "test_store.py", environment={"NBTOOLS_HOME": str(tmp_path)}) == INSIDE


FILES = """
import asyncio, inspect
from pathlib import Path
import anthropic.lib.tools._beta_builtin_memory_tool as sdk
from nbtools.memory.anthropic import AsyncMemoryTool, MemoryTool
from nbtools.memory.files.tool import MemoryFiles

class OverFolder:
    def __init__(self, base_path="./memory"):
        self.base_path, self.memory_root = Path(base_path), Path(base_path, "memories")
        self.memory_root.mkdir(parents=True, exist_ok=True)
        super().__init__(MemoryFiles(f"file://{self.memory_root.absolute()}"))

sdk.BetaLocalFilesystemMemoryTool = type("Ours", (OverFolder, MemoryTool), {})
sdk.BetaAsyncLocalFilesystemMemoryTool = type("Ours", (OverFolder, AsyncMemoryTool), {})

def pytest_collection_modifyitems(items):
    snapshot = items[0].module.get_directory_snapshot
    # The lock that several processes share is no file of a model.
    notes = lambda folder: {name: text for name, text in snapshot(folder).items() if ".nbtools.lock" not in name}
    items[0].module.get_directory_snapshot = notes

def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = inspect.signature(pyfuncitem.obj).parameters
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""


# They ask for what the SDK's own class has inside, and whose right it is to read the folder that we are given.
OF_THE_CLASS = {
    "TestBetaLocalFilesystemMemoryTool::test_mkdir_parents_not_world_writable_under_permissive_umask",
    "TestBetaAsyncLocalFilesystemMemoryTool::test_mkdir_parents_not_world_writable_under_permissive_umask",
    "TestBetaAsyncLocalFilesystemMemoryTool::test_validate_path_returns_resolved_path_not_symlink_target",
}


def test_our_memory_tools_pass_the_tests_of_anthropics_sdk_for_its_own(tmp_path: Path) -> None:
    shutil.copy(suite("anthropic-sdk-python") / "tests/lib/tools/memory_tools/test_filesystem.py", tmp_path)
    (tmp_path / "conftest.py").write_text(FILES)
    assert run_suite(tmp_path, "test_filesystem.py") == OF_THE_CLASS


def test_forked_kernels_pass_the_tests_of_nbclient(tmp_path: Path) -> None:
    from nbtools.kernels import install_kernelspec

    pytest.importorskip("testpath")
    shutil.copytree(suite("nbclient") / "tests", tmp_path / "tests")
    install_kernelspec("python3", prefix=str(tmp_path))
    environment = {"JUPYTER_PATH": str(tmp_path / "share/jupyter"), "NBTOOLS_HOME": str(tmp_path / "home")}
    assert run_suite(tmp_path, "tests/test_client.py", environment=environment) == set()
