from __future__ import annotations

import json
import os

import pandas as pd
import pytest

from nbtools.errors import FileAlreadyExists, FileMissing, InvalidArguments, LimitExceeded, ParseError, PathNotAllowed
from nbtools.memory import AgentMemory, CallLog, InMemoryRepository, Limits


@pytest.fixture
def filled(memory):
    memory.write("goal", {"kpi": "churn", "é": [1, None]}, tags=["plan"])
    memory.write("brief", "x", ttl=600)
    memory.scoped(workflow_id="w").write("goal", 2)
    memory.scoped(workflow_id="w", node_id="n").write("goal", 3)
    return memory


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".parquet"])
def test_what_is_exported_is_imported(filled, tmp_path, ending):
    file = tmp_path / f"notes{ending}"
    assert filled.export_to(file) == 2
    other = AgentMemory(InMemoryRepository(), agent_id="other")
    assert other.import_from(file) == 2
    assert dict(other) == dict(filled)
    other.write("brief", "newer")
    other.write("goal", {"é": [1, None], "kpi": "churn"})  # the same in another order
    again = other.import_from(file)
    assert (again, again.replaced) == (2, ("brief",))
    assert [one.value for one in other.history("brief")] == ["x", "newer", "x"]
    assert other.import_from(file).replaced == ()
    assert other.record("goal").tags == ("plan",)
    left = other.record("brief").expires_at - filled.record("brief").expires_at
    assert abs(left.total_seconds()) < 5
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_all_scopes_go_and_come_back_as_they_were(filled, tmp_path, ending):
    file = tmp_path / f"all{ending}"
    assert filled.export_to(file, all_scopes=True) == 4
    other = AgentMemory(InMemoryRepository(), agent_id="other")
    assert other.import_from(file, all_scopes=True) == 4
    assert len(other) == 0
    assert other.scoped(agent_id="a", workflow_id="w", node_id="n")["goal"] == 3


def test_what_has_expired_meanwhile_is_left_out(filled, tmp_path):
    file = tmp_path / "notes.jsonl"
    filled.export_to(file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["expires_at"] = "2001-01-01T00:00:00+00:00"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert AgentMemory(InMemoryRepository()).import_from(file) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"key": 1}', r"line 1 .* it has no 'agent_id'\."),
        ("not json", "line 1"),
        ("[1]", "line 1"),
        ('\n{"key": "k", "value": 1, "agent_id": "a", "version": 1, "created_at": "x", "updated_at": "y"}', "line 2"),
    ],
)
def test_a_line_that_is_no_record_is_named(memory, tmp_path, text, said):
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(ParseError, match=said):
        memory.import_from(file)


def test_what_cannot_be_a_file_of_records_is_refused(memory, tmp_path):
    with pytest.raises(InvalidArguments, match=r"\.jsonl"):
        memory.export_to(tmp_path / "notes.csv")
    with pytest.raises(FileMissing):
        memory.import_from(tmp_path / "none.jsonl")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(ParseError, match=r"bad\.parquet"):
        memory.import_from(tmp_path / "bad.parquet")


def test_limits_hold_on_import_as_well(filled, tmp_path):
    file = tmp_path / "notes.jsonl"
    filled.export_to(file)
    small = AgentMemory(InMemoryRepository(), limits=Limits(value_bytes=5))
    with pytest.raises(LimitExceeded):
        small.import_from(file)


def test_more_than_one_batch_is_written(memory, tmp_path):
    for number in range(1_100):
        memory.write(f"k{number}", number)
    memory.export_to(tmp_path / "many.parquet")
    other = AgentMemory(InMemoryRepository())
    assert other.import_from(tmp_path / "many.parquet") == 1_100
    assert dict(other) == dict(memory)


def test_the_tables_for_sql_have_all_columns_and_plain_cells(memory):
    memory.write("k", {"x": 1}, ttl=60)
    frame = memory.snapshot("memory")
    assert isinstance(frame, pd.DataFrame)
    assert frame["expires_at"].notna().all()
    log = CallLog(memory.repository)
    log.append({"call_id": "1", "tool": "t", "arguments": {"a": [1]}, "ok": True, "extra": 5})
    log.append({"call_id": "2", "tool": "u"})
    calls = memory.snapshot("calls")
    assert calls["arguments"].to_list()[0] == '{"a": [1]}'
    assert calls.columns[-1] == "extra"
    assert calls["tool"].to_list() == ["t", "u"]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_missing_folders_are_made_and_a_place_that_takes_no_file_is_told(filled, tmp_path, ending):
    assert filled.export_to(tmp_path / "new" / "folder" / f"out.{ending}") > 0
    (tmp_path / "file").write_text("")
    with pytest.raises(PathNotAllowed) as caught:
        filled.export_to(tmp_path / "file" / f"out.{ending}")
    assert "cannot be written" in str(caught.value)
    assert str(os.getpid()) not in str(caught.value), "the draft is nobody's business"


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_file_that_is_there_is_replaced_only_where_that_is_said(filled, tmp_path, ending):
    place = tmp_path / f"out.{ending}"
    place.write_text("mine")
    with pytest.raises(FileAlreadyExists) as caught:
        filled.export_to(place)
    assert (place.read_text(), "--overwrite" in caught.value.hint) == ("mine", True)
    assert filled.export_to(place, overwrite=True) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("out", ".nbtools"))] == [place.name]
