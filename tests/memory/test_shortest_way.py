"""What a save through the workbench costs: how many functions it enters, and how often the value lies on the disk."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from pathlib import Path

import pytest

import nbtools
from nbtools import Workbench
from tests.memory.conftest import end_keeper

PACKAGE = Path(nbtools.__file__).parent
# Of the whole way: argument, door, memory and record. Memory's own share is the first number.
MOST_IN_MEMORY = 17
MOST_IN_ALL = 89


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path))
    monkeypatch.setenv("NBTOOLS_MEMORY_URL", "")
    yield tmp_path
    end_keeper(tmp_path / "memory.duckdb")


def test_a_warm_save_enters_few_functions(home):
    entered, is_counting = set(), False

    def note(frame, event, argument):
        code = frame.f_code
        if is_counting and event == "call" and code.co_filename.startswith(str(PACKAGE)) and code.co_name[0] != "<":
            entered.add((Path(code.co_filename).relative_to(PACKAGE), code.co_qualname))

    # Set before any thread is started: a thread that runs already cannot be watched from outside.
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with Workbench() as bench:
            for value in ("first", "second"):
                assert bench.call("memory_save", {"key": "k", "value": value}).ok
            assert bench.recorder.flush()
            is_counting = True
            assert bench.call("memory_save", {"key": "k", "value": "third"}).ok
            assert bench.recorder.flush()
            is_counting = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    mine = sorted(str(where) + " " + name for where, name in entered if where.parts[0] == "memory")
    assert "memory/store.py AgentMemory.write" in mine, "the profiler sees the thread of the tool"
    assert len(mine) <= MOST_IN_MEMORY, mine
    assert len(entered) <= MOST_IN_ALL, sorted(entered)


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
