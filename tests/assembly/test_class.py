"""A class: what holds whatever a pupil sets, and a home that is as new behind a reset."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from nbtools import Config, Workbench
from nbtools.assembly.health import class_check
from nbtools.assembly.reset import kept_in, reset, to_lines
from nbtools.contract.registry import Registry
from nbtools.errors import PermissionDenied, ToolNotFound
from nbtools.memory import open_memory


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("in")
    (tmp_path / "b.txt").write_text("out")
    (tmp_path / "nbtools.toml").write_text("class = true\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_class_holds_without_trust_and_against_variables(course: Path) -> None:
    pupils_own = {"NBTOOLS_SANDBOX": "off", "NBTOOLS_ALLOW_MORE": "1", "NBTOOLS_KERNEL_WARM": "600"}
    config = Config.load(environ=pupils_own, start=course, home=course / "home")
    assert (config.sandbox, config.model_sandbox, config.allow_more, config.network) == (
        "strict",
        "strict",
        False,
        False,
    )
    assert (config.spares, config.kernel_warm, config.kernels) == (0, 0.0, "spawned")
    assert config.allowed_paths == (course / "data",)
    assert config.sources["sandbox"] == f"class ({course / 'nbtools.toml'})"
    assert Config.load(environ={}, start=course / "data", home=course / "home").classroom
    plain = Config.load(environ={}, start=course.parent, home=course / "home")
    assert (plain.classroom, plain.sandbox) == (False, "limits")


def test_in_a_class_nothing_runs_commands_and_no_folder_is_opened(course: Path) -> None:
    with Workbench(home=course / "home", memory_url=":memory:") as wb:
        for name in ("shell", "process", "code_execute"):
            result = wb.call(name, {})
            assert result.error is not None
            assert result.error.message == f"the tool {name!r} is not enabled here."
        assert wb.call("file_read", {"path": "data/a.txt"}).ok
        assert wb.call("calculator", {"expression": "1+1"}).ok
        refused = wb.call("file_read", {"path": "b.txt"})
        assert refused.error is not None
        assert refused.error.code == "PATH_NOT_ALLOWED"
        with pytest.raises(PermissionDenied):
            wb.allow(course)


@pytest.mark.usefixtures("processes")
def test_in_a_class_a_memory_that_nobody_asks_is_not_held_open(course: Path) -> None:
    with Workbench(home=course / "home") as wb:
        wb.memory.write("a", 1)
        command = psutil.Process(wb.memory.info()["pid"]).cmdline()
    assert float(command[command.index("--idle") + 1]) <= 1


def test_names_are_taken_away_from_those_that_are_offered() -> None:
    with Workbench(memory_url=":memory:") as wb:
        shelf: Registry = wb.registry
    assert set(shelf.names) - set(shelf.select("*", "!file_*", "!shell").names) == {
        "shell",
        *(name for name in shelf.names if name.startswith("file_")),
    }
    assert shelf.select("!shell").names == tuple(name for name in shelf.names if name != "shell")
    with pytest.raises(ToolNotFound):
        shelf.select("*", "!shel")


@pytest.mark.usefixtures("processes")
def test_a_reset_removes_what_is_kept_while_the_memory_is_open(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "log").write_text("12345")
    (tmp_path / "trusted").mkdir()
    with open_memory(f"duckdb://{tmp_path / 'memory.duckdb'}", idle_exit=20) as memory:
        memory.write("a", 1)
        assert "runs of workflows and agents: 1 file, 5 bytes" in list(to_lines(kept_in(tmp_path)))
        reset(tmp_path)
        assert kept_in(tmp_path) == {}
        assert (tmp_path / "trusted").is_dir()
        assert "a" not in memory
        memory.write("b", 2)
        assert dict(memory) == {"b": 2}


def test_a_machine_is_asked_whether_it_holds_a_class() -> None:
    config = Config.load(environ={}, home=".")
    assert class_check(1, config).ok
    too_many = class_check(100_000, config)
    assert too_many.ok is False
    assert "fit at once" in too_many.remedy
