"""The shipped examples run, without a key, and give what they promise."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nbtools import Workbench

pytestmark = pytest.mark.broad

ROOT = Path(__file__).parents[3]


@pytest.fixture
def wb(tmp_path, monkeypatch, kernels):
    # The examples name their data from the root of the project.
    shutil.copytree(ROOT / "notebooks" / "data", tmp_path / "notebooks" / "data")
    shutil.copytree(ROOT / "notebooks" / "workflows", tmp_path / "notebooks" / "workflows")
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:", kernels=kernels) as made:
        yield made


def run(wb, name, **options):
    return wb.workflows.run(f"notebooks/workflows/{name}.yaml", **options)


@pytest.mark.processes
def test_a_report_has_its_charts(wb):
    done = run(wb, "report").raise_for_error()
    assert done.outputs["drawn"] == 342
    assert "Gentoo: 123 penguins" in done.outputs["report"]
    pictures = {Path(found["path"]).name for node in done.progress.nodes.values() for found in node.view()["artifacts"]}
    assert pictures == {"mass.png", "bills.png", "penguins.md"}


def test_a_workflow_runs_for_each_island(wb):
    done = run(wb, "islands").raise_for_error()
    assert done.outputs["penguins"] == 344
    assert [found["island"] for found in done.outputs["reports"]] == ["Biscoe", "Dream", "Torgersen"]


def test_memory_lasts_from_run_to_run_in_its_scopes(wb):
    assert run(wb, "notes").raise_for_error().outputs["runs"] == 1
    again = run(wb, "notes", inputs={"entry": "It snowed."}).raise_for_error()
    assert (again.outputs["runs"], again.outputs["entries_before"]) == (2, 1)
    diary = wb.memory.scoped(agent_id="diarist", scope="agent")
    assert "It snowed." in diary["diary/latest"]
    assert wb.memory.list() == [], "the workbench's own memory is another one"


def test_a_source_that_fails_is_told(wb):
    done = run(wb, "tolerant").raise_for_error()
    assert done.outputs["second_was_read"] is False
    assert "does not exist" in done.outputs["why_not"]


@pytest.mark.parametrize(("says", "written"), [("yes", True), ("no", False)])
def test_a_person_decides_what_is_written(wb, tmp_path, says, written):
    async def ask(step, question):
        return {"form": "semicolon", "agree": says}[step]

    done = run(wb, "question", ask=ask)
    assert done.state == ("ok" if written else "declined")
    assert done.outputs["agreed"] is written
    assert (tmp_path / "driest.csv").exists() is written
    assert not (tmp_path / "scratch.json").exists(), "what is final runs in any case"
    if written:
        assert (tmp_path / "driest.csv").read_text().splitlines()[0] == "weather;days;rain"


def test_a_scripted_model_judges(wb):
    pytest.importorskip("pydantic_ai")
    shown = []
    done = run(wb, "briefing", on_event=shown.append).raise_for_error()
    assert done.outputs == {"verdict": "rainy", "version": 1}
    assert done.progress.tokens > 0
    assert any(getattr(event, "text", "") == "Let me add up the wet days." for event in shown)


def test_a_prompt_is_held_to_the_tools_of_its_node(wb):
    pytest.importorskip("pydantic_ai")
    text = """
version: 1
name: held
nodes:
  - id: a
    prompt: Delete it
    model: scripted
    model_settings:
      script: |
        turns:
          - calls: [{tool: file_delete, arguments: {path: notebooks/data/penguins.csv}}]
          - say: It is gone.
    tools: [calculator]
"""
    wb.workflows.run(text)
    assert Path("notebooks/data/penguins.csv").exists()
    assert not any(call["tool"] == "file_delete" and call["ok"] for call in wb.call_records())
