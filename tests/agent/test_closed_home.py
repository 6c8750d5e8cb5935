"""What is believed lies in the home of nbtools: nothing that a model runs reads or writes there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.confine import places
from nbtools.contract.tool import ToolCall
from nbtools.ground.paths import Roots

pytestmark = pytest.mark.processes


class _Yes:
    async def approve(self, request: Any) -> Any:
        return "once"


@pytest.fixture
def bench(open_bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.chdir(tmp_path)
    made: Workbench = open_bench(approver=_Yes(), allowed_commands=("cp", "cat"))
    (made.config.home / "trusted").mkdir()
    (made.config.home / "note").write_text("own")
    (tmp_path / "out").mkdir()
    (tmp_path / "yes").write_text("yes")
    return made


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("file_write", {"path": "home/nbtools.toml", "content": "yes"}),
        ("file_write", {"path": "home/trusted/a", "content": "yes"}),
        ("file_write", {"path": "home/new/a", "content": "yes"}),
        ("file_move", {"source": "yes", "dest": "home/yes"}),
        ("file_read", {"path": "home/note"}),
        ("file_delete", {"path": "home/note"}),
        ("shell", {"command": "cp yes home/trusted/a"}),
        ("shell", {"command": "cp yes home/note"}),
        ("shell", {"command": "cat home/note"}),
        ("code_execute", {"code": "print(open('{place}/home/note').read())"}),
    ],
)
def test_a_model_gets_nothing_into_the_home_and_nothing_out(
    bench: Workbench, tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    given = {name: value.replace("{place}", str(tmp_path)) for name, value in arguments.items()}
    result = bench.executor.call(ToolCall(tool=tool, arguments=given, caller="model"))
    codes = [(result.data or {}).get(name) for name in ("returncode", "exit_code")]
    assert not result.ok or any(codes), result.text
    assert "own" not in str(result.data)
    assert (bench.config.home / "note").read_text() == "own"
    assert not any((bench.config.home / "trusted").iterdir())


def test_a_command_still_writes_beside_the_home(bench: Workbench, tmp_path: Path) -> None:
    call = ToolCall(tool="shell", arguments={"command": "cp yes out/copy"}, caller="model")
    assert bench.executor.call(call).data["returncode"] == 0
    assert (tmp_path / "out" / "copy").read_text() == "yes"


def test_a_command_that_makes_no_file_beside_the_home_is_told_why(bench: Workbench, tmp_path: Path) -> None:
    told = f"{tmp_path} holds the home of nbtools or credentials"
    for command, is_told in (("cp yes copy", True), ("cp yes out", False)):
        result = bench.executor.call(ToolCall(tool="shell", arguments={"command": command}, caller="model"))
        assert (told in result.text, "ermission denied" in result.text) == (is_told, is_told)
    assert bench.executor.call(ToolCall(tool="shell", arguments={"command": "cp yes copy"})).data["returncode"] == 0


def test_an_allowed_folder_within_a_closed_one_is_open(tmp_path: Path) -> None:
    inner = tmp_path / "home" / "project"
    inner.mkdir(parents=True)
    roots = Roots([tmp_path, inner], closed=[tmp_path / "home"])
    names = ("a", "home", "home/a", "home/project/a")
    assert [roots.allows(tmp_path / name) for name in names] == [True, False, False, True]
    (tmp_path / "link").symlink_to(inner)
    opened, listed = places.without_secrets([str(tmp_path), str(inner)], [str(tmp_path / "home")])
    assert (opened, listed) == ([str(inner)], [str(tmp_path)])
