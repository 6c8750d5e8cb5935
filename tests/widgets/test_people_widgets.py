"""The kernel monitor, the memory browser and the tool form, with a real workbench and a front end without a browser."""

from __future__ import annotations

import datetime as dt
import decimal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbtools import Workbench


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:") as opened:
        yield opened


def test_notes_are_found_by_words_tags_and_scope(workbench: Workbench, front_end: Any) -> None:
    memory = workbench.memory
    memory.write("goal", {"kpi": "churn"}, tags=["plan", "q3"])
    memory.write("note", "customers leave", tags=["plan"])
    memory.scoped(workflow_id="w", scope="workflow").write("step", 1)
    browser = workbench.browse_memory()
    page = front_end(browser)
    own, other = "agent 'default'", "workflow 'w' of agent 'default'"
    assert browser.scopes == [own, other]
    found = page.ask("find", words="", tags=[], scope=own)
    assert [row["key"] for row in found["rows"]] == ["goal", "note"]
    assert (found["total"], found["tags"]) == (2, [("plan", 2), ("q3", 1)])
    assert [row["key"] for row in page.ask("find", words="leav", tags=[], scope=own)["rows"]] == ["note"]
    assert [row["key"] for row in page.ask("find", words="", tags=["q3"], scope=own)["rows"]] == ["goal"]
    assert [row["key"] for row in page.ask("find", words="", tags=[], scope=other)["rows"]] == ["step"]
    assert "step" in browser.plain_text()
    assert "<table" in browser.plain_html()
    memory.write("sales", pd.DataFrame({"city": ["Bern", "Chur"], "n": [1, 2]}))
    values = {row["key"]: row["value"] for row in page.ask("find", words="", tags=[], scope=own)["rows"]}
    assert values["sales"] == "table, 2 \N{MULTIPLICATION SIGN} 2: city, n"
    assert values["goal"] == '{"kpi": "churn"}'
    preview = page.ask("open", key="sales", scope=own)["preview"]
    assert preview["title"] == values["sales"]
    assert (preview["columns"], preview["rows"]) == (["city", "n"], [["Bern", "1"], ["Chur", "2"]])
    assert "preview" not in page.ask("open", key="goal", scope=own)
    values = (dt.date(2024, 1, 31), decimal.Decimal("1.50"), {"when": [dt.time(1, 2)]})
    for value, text in zip(values, ("2024-01-31", "1.50", '{"when": ["01:02:00"]}'), strict=True):
        memory.write("exact", value)
        note = page.ask("open", key="exact", scope=own)
        assert (note["text"], note["preview"]["title"], note["preview"]["rows"]) == (text, text, [])
        assert "nbtools_value" not in str(note)


def test_a_note_is_edited_with_its_conflict_shown_deleted_and_had_back(workbench: Workbench, front_end: Any) -> None:
    workbench.memory.write("goal", {"kpi": "churn"}, tags=["plan"])
    page, own = front_end(workbench.browse_memory()), "agent 'default'"
    note = page.ask("open", key="goal", scope=own)
    assert (note["text"], note["is_json"], note["tags"]) == ('{\n  "kpi": "churn"\n}', True, "plan")
    edit = {"key": "goal", "scope": own, "tags": "plan q4", "is_json": True}
    assert "JSON" in page.ask("save", **edit, text="{", version=1)["problems"]["value"]
    saved = page.ask("save", **edit, text='{"kpi": "growth"}', version=1)
    assert (saved["version"], saved["tags"]) == (2, "plan q4")
    assert '+  "kpi": "growth"' in saved["versions"][0]["difference"]
    workbench.memory.write("goal", "theirs")
    clash = page.ask("save", **edit, text='"mine"', version=2)["conflict"]
    assert (clash["version"], clash["text"], workbench.memory["goal"]) == (3, "theirs", "theirs")
    assert clash["difference"].splitlines()[-2:] == ["-theirs", '+"mine"']
    page.ask("delete", key="goal", scope=own, version=3)
    assert "goal" not in workbench.memory
    assert page.ask("restore", key="goal", scope=own)["text"] == "theirs"
    assert page.ask("restore", key="goal", scope=own, version=1)["text"] == '{\n  "kpi": "churn"\n}'
    told = {(call["tool"], call["caller"]) for call in workbench.call_records()}
    assert {("memory_save", "form"), ("memory_delete", "form"), ("memory_restore", "form")} <= told


def test_a_form_calls_its_tool_with_messages_at_the_field(workbench: Workbench, front_end: Any, tmp_path: Path) -> None:
    form = workbench.form("file_write", path="out.txt")
    page = front_end(form)
    page.receive(t="ready")
    assert [field["value"] for field in form.fields] == ["out.txt", "", "utf-8"]
    assert page.ask("check", typed={"encoding": "utf-8"}) == {"problems": {}}, "what is missing yet is not a mistake"
    assert page.ask("run", typed={"path": "out.txt"})["problems"] == {"content": "required, but not given"}
    told = page.ask("run", typed={"path": "out.txt", "content": "x"})
    assert told["result"]["ok"]
    assert (tmp_path / "out.txt").read_text() == "x"
    code = page.ask("cell", typed={"path": "out.txt", "content": "x"})
    assert code == "import nbtools\n\nnbtools.workbench().call('file_write', {'path': 'out.txt', 'content': 'x'})"
    refused = page.ask("run", typed={"path": "/etc/passwd", "content": "x"})["result"]
    assert (refused["ok"], refused["code"]) == (False, "PATH_NOT_ALLOWED")
    assert "not allowed" in form.plain_text() or "outside" in form.plain_text()


@pytest.mark.processes
def test_output_is_shown_while_a_tool_runs_and_stop_ends_it(workbench: Workbench, front_end: Any) -> None:
    page = front_end(workbench.form("code_execute"))
    page.receive(t="ready")
    code = "print('so far', flush=True)\nimport time\ntime.sleep(600)"
    key = page.start("run", typed={"language": '"python"', "code": code})
    page.wait_for(lambda message: message["t"] == "text" and "so far" in message["text"])
    begun = time.monotonic()
    page.stop(key)
    assert page.reply(key)["error"]["stopped"]
    assert time.monotonic() - begun < 20


@pytest.mark.processes
def test_the_monitor_shows_sessions_and_changes_them(workbench: Workbench, front_end: Any) -> None:
    monitor = workbench.monitor()
    page = front_end(monitor)
    assert page.ask("list") == []
    page.ask("change", verb="start", session="work")
    (row,) = page.ask("list")
    assert (row["name"], row["state"]) == ("work", "idle")
    assert row["memory_bytes"] > 0
    workbench.kernels.run("x = 1", session="work")
    page.ask("change", verb="restart", session="work")
    assert "NameError" in str(workbench.kernels.run("x", session="work").error)
    assert "work" in monitor.plain_text()
    page.ask("change", verb="stop", session="work")
    assert page.ask("list") == []
    assert "no sessions" in monitor.plain_html()
    reply = page.reply(page.start("change", verb="stop", session="work"))
    assert "work" in reply["error"]["message"]
