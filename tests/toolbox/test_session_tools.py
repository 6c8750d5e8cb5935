"""Sessions by tools: what a model may copy and take back, and that it is a call as any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import AskFunction, Reply
from nbtools.contract.result import ToolResult

pytestmark = [pytest.mark.processes, pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")]


@pytest.fixture(scope="module")
def asked() -> list[str]:
    return []


@pytest.fixture(scope="module")
def wb(asked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    def agree(request: ApprovalRequest) -> Reply:
        asked.append(request.prepared.tool.name)
        return Reply(answer="once")

    with Workbench(home=tmp_path_factory.mktemp("home"), approver=AskFunction(agree)) as opened:
        yield opened


def _by_model(wb: Workbench, tool: str, **arguments: Any) -> ToolResult:
    return wb.call(tool, arguments, caller="model")


def test_a_model_tries_in_a_copy_and_takes_a_run_back(wb: Workbench, asked: list[str]) -> None:
    assert _by_model(wb, "data_analyze", analysis_script="x = 41", session="own").ok
    assert _by_model(wb, "session_fork", session="own", copy="other").ok
    assert _by_model(wb, "session_keep", session="own").data == {"session": "own", "states": 5}
    assert _by_model(wb, "data_analyze", analysis_script="x = 0", session="own").ok
    assert asked == []
    undone = _by_model(wb, "session_undo", session="own")
    assert undone.text == "Session 'own' is as it was before its last run."
    assert asked == ["session_undo"]
    for session in ("own", "other"):
        assert _by_model(wb, "data_analyze", analysis_script="print(x)", session=session).text == "41\n"
    tools = [call["tool"] for call in wb.call_records() if call["tool"].startswith("session")]
    assert sorted(tools) == ["session_fork", "session_keep", "session_undo"]


def test_a_model_can_neither_copy_nor_take_back_what_a_person_has_loaded(wb: Workbench) -> None:
    wb.kernels.session("persons").run("secret = 41")
    own = _by_model(wb, "data_analyze", analysis_script="1", session="b")
    if own.data["sandbox"] == "limits":
        pytest.skip("this host confines nothing")
    for tool, arguments in (("session_fork", {"copy": "mine"}), ("session_keep", {}), ("session_undo", {})):
        refused = _by_model(wb, tool, session="persons", **arguments)
        assert refused.error is not None
        assert refused.error.code == "PERMISSION_DENIED"
    assert _by_model(wb, "session_fork", session="nobody", copy="mine").error.code == "INVALID_ARGUMENTS"  # type: ignore[union-attr]
    assert "mine" not in [shown["name"] for shown in wb.kernels.list()]


@pytest.mark.parametrize("level", ["limits", "strict"])
def test_a_models_sessions_are_a_persons_too_where_they_have_other_folders_and_lend_no_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # too wide to be open to a model
    monkeypatch.delenv("NBTOOLS_ALLOWED_PATHS", raising=False)
    (tmp_path / "own.txt").write_text("mine")
    with Workbench(home=tmp_path / "home", memory_url=":memory:", sandbox=level) as bench:
        assert bench.config.model_paths == ()
        assert _by_model(bench, "data_analyze", analysis_script="x = 41", session="models").ok
        assert bench.call("data_analyze", {"analysis_script": "y = 1", "session": "persons"}).ok
        assert [one["name"] for one in bench.kernels.list()] == ["models", "persons"]
        assert bench.monitor().plain_text().count("python") == 2
        for tool, arguments in (("session_fork", {"copy": "mine"}), ("session_keep", {})):
            refused = _by_model(bench, tool, session="persons", **arguments)
            assert (refused.error and refused.error.code) == "PERMISSION_DENIED"
        assert _by_model(bench, "data_analyze", analysis_script="y", session="persons").error is not None
        assert bench.kernels.variables("models")[0]["text"] == "41"
        bench.kernels.fork("models", "mine")
        bench.kernels.adopt("mine")
        if bench.kernels.list()[0]["sandbox"] != "strict" or level == "strict":
            return  # a person's strict code works in the folder, a model's does not: neither has the other's rights
        models = bench.kernels.session("models")
        seen = models.run("print(x, 'memory' in globals())", memory=bench.memory)
        assert (seen.stdout, seen.sandbox) == ("41 False\n", "strict")
        assert "this ran with its rights" in seen.notes[0]
        stolen = models.run(f"open({str(tmp_path / 'own.txt')!r})", cwd=tmp_path, inputs_paths=[tmp_path / "own.txt"])
        assert "PermissionError" in str(stolen.error)
