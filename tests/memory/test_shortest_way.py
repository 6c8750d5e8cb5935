"""What a save through the workbench costs: how many functions it enters, and how often the value lies on the disk."""

from __future__ import annotations

import hashlib
import json

import pytest

from nbtools import Workbench
from tests.functions_entered import functions_entered
from tests.memory.conftest import end_keeper

pytestmark = pytest.mark.processes

# Of the whole way: argument, door with its labels, memory and record. The first number is the share of memory, which
# looks itself whether a note is to be marked, and writes a change field by field, which one function more does.
MOST_IN_MEMORY = 19
MOST_IN_ALL = 85

SAVE = """
with nbtools.Workbench() as bench:
    def save():
        assert bench.call("memory_save", {"key": "k", "value": "again"}).ok
        assert bench.recorder.flush()
    save()
    count(save)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path))
    monkeypatch.setenv("NBTOOLS_MEMORY_URL", "")
    yield tmp_path
    end_keeper(tmp_path / "memory.duckdb")


def test_a_warm_save_enters_few_functions(home):
    entered = functions_entered(SAVE, cwd=home)
    mine = [name for name in entered if name.startswith("memory/")]
    assert "memory/store.py AgentMemory.write" in mine, "the profiler sees the thread of the tool"
    assert len(mine) <= MOST_IN_MEMORY, mine
    assert len(entered) <= MOST_IN_ALL, entered


def test_a_saved_value_lies_on_the_disk_five_times_at_most(home):
    mark = "quartzmarker7q"
    value = f"the {mark} stands here"
    with Workbench() as bench:
        assert bench.call("memory_save", {"key": "note", "value": value}).ok
        (record,) = bench.call_records()
    end_keeper(home / "memory.duckdb")
    found = {path.name: path.read_bytes().count(mark.encode()) for path in home.rglob("*") if path.is_file()}
    # Once in the journal, twice in DuckDB (the record and its history), twice in the index (the value and its word).
    assert 1 <= sum(found.values()) <= 5, found
    text = json.dumps(value).encode()
    assert record["arguments"]["value"] == {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}


def test_a_saved_value_is_encoded_once(home, monkeypatch):
    value, encoded, dumps = {"rows": [1, 2, 3]}, [], json.dumps

    def note(given, **how):
        encoded.append(given)
        return dumps(given, **how)

    with Workbench() as bench:
        assert bench.call("memory_save", {"key": "first", "value": 1}).ok  # opens the memory, which may take long
        # The memory has an encoder of its own, which is the one time.
        monkeypatch.setattr(json, "dumps", note)
        assert bench.call("memory_save", {"key": "note", "value": value}).ok
        (record,) = (one for one in bench.call_records() if one["arguments"]["key"] == "note")
    assert value not in encoded
    text = dumps(value, separators=(",", ":")).encode()
    assert record["arguments"]["value"] == {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
