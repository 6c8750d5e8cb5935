"""The record of calls: short, without secrets, handed on by a thread of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.record import CallRecord, CallRecorder
from nbtools.contract.result import Artifact, ErrorInfo, ToolResult
from nbtools.contract.tool import ToolCall
from nbtools.errors import InvalidArguments


def record(call_id: str = "c", **arguments: Any) -> CallRecord:
    call = ToolCall(tool="t", arguments=arguments, call_id=call_id, caller="magic")
    return CallRecord.from_result(call, ToolResult(ok=True, tool="t", call_id=call_id), 1.0)


def test_a_record_is_json_and_short() -> None:
    made = record(text="x" * 10_000, many=list(range(1_000)), odd=object(), deep={"a": {"b": [1]}})
    told = json.loads(json.dumps(made.to_dict()))["arguments"]
    assert told["text"].endswith("… (10,000 characters)")
    assert told["many"][-1] == "… 900 more"
    assert told["odd"].startswith("<object")
    assert told["deep"] == {"a": {"b": [1]}}


def test_a_record_of_very_many_texts_is_short_all_the_same() -> None:
    text = "password=hunter2 and more\n" * 200
    made = record(
        rows=[{f"column {i}": text for i in range(60)} for _ in range(60)], **{f"a{i}": i for i in range(500)}
    )
    told = json.dumps(made.to_dict())
    assert len(told) < 60_000
    assert "more" in made.arguments["…"]
    assert "hunter2" not in told


def test_the_name_of_a_tool_is_recorded_at_a_bearable_length() -> None:
    name = "x" * 1_000_000
    made = CallRecord.from_result(ToolCall(tool=name), ToolResult(ok=False, tool=name, call_id="c"), 1.0)
    assert made.tool == "x" * 200


@pytest.mark.parametrize(
    "name", ["api_key", "apiKey", "X-API-Key", "Authorization", "gateway_token", "X-Auth-Token", "dbPassword", "SECRET"]
)
def test_arguments_with_secret_names_are_masked(name: str) -> None:
    assert record(headers={name: "abc"}).arguments == {"headers": {name: "***"}}
    assert record(**{name: ""}).arguments == {name: ""}, "that nothing was given is not a secret"


@pytest.mark.parametrize("name", ["key", "keys", "max_tokens", "sort_key", "keyword", "keywords", "monkey"])
def test_arguments_that_only_sound_secret_are_told(name: str) -> None:
    assert record(**{name: "penguins/note"}).arguments == {name: "penguins/note"}


def test_credentials_inside_of_texts_are_masked_in_arguments_and_messages() -> None:
    call = ToolCall(tool="sql_query", arguments={"connection": "postgresql://u:hunter2@h/d", "query": "select 1"})
    error = ErrorInfo(code="SQL_FAILED", message="no way to postgresql://u:hunter2@h/d", hint=None, retryable=False)
    made = CallRecord.from_result(call, ToolResult(ok=False, tool="sql_query", call_id="c", error=error), 0.0)
    assert made.arguments == {"connection": "postgresql://u:***@h/d", "query": "select 1"}
    assert made.message == "no way to postgresql://u:***@h/d"


@pytest.mark.parametrize("value", ["a note", {"rows": [1, 2]}, "\u00e9\u00e9"])
def test_what_a_memory_save_stores_is_recorded_by_size_and_hash(value: Any) -> None:
    call = ToolCall(tool="memory_save", arguments={"key": "k", "value": value, "tags": ["t"]})
    made = CallRecord.from_result(call, ToolResult(ok=True, tool="memory_save", call_id="c"), 0.0)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    told = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    assert made.arguments == {"key": "k", "value": told, "tags": ["t"]}


def test_what_no_memory_can_store_is_recorded_as_it_was_given() -> None:
    call = ToolCall(tool="memory_save", arguments={"value": {"when": complex(1, 2)}})
    made = CallRecord.from_result(call, ToolResult(ok=False, tool="memory_save", call_id="c"), 0.0)
    assert made.arguments == {"value": {"when": "(1+2j)"}}


def test_a_failure_is_told_by_code_and_message() -> None:
    info = ErrorInfo(code="TIMEOUT", message="late")
    call = ToolCall(tool="t", parent_id="p", run_id="r")
    made = CallRecord.from_result(call, ToolResult(ok=False, tool="t", call_id=call.call_id, error=info), 1.0)
    assert (made.ok, made.code, made.message, made.parent_id, made.run_id) == (False, "TIMEOUT", "late", "p", "r")


def test_records_reach_the_sink_in_order_and_beside_the_caller() -> None:
    seen: list[tuple[str, int]] = []
    here = threading.get_ident
    recorder = CallRecorder(lambda records: seen.extend((told["call_id"], here()) for told in records))
    for number in range(50):
        recorder.append(record(str(number)))
    assert recorder.flush()
    assert [call_id for call_id, _ in seen] == [str(number) for number in range(50)]
    assert threading.get_ident() not in {thread for _, thread in seen}
    recorder.close()


def test_a_sink_that_fails_takes_nothing_away_and_is_remembered() -> None:
    def broken(records: list[dict[str, Any]]) -> None:
        raise OSError("disk full")

    recorder = CallRecorder(broken)
    recorder.append(record())
    assert not recorder.flush()
    assert isinstance(recorder.problem, OSError)
    assert len(recorder.recent()) == 1
    assert "1 are not on record yet (disk full)" in recorder.summary()
    recorder.close()
    assert (recorder.lost, recorder.unwritten()) == (1, [])
    assert "1 will never be on record (disk full)" in recorder.summary()


def test_a_sink_that_takes_long_is_waited_for_as_long_as_is_said() -> None:
    begun, free = threading.Event(), threading.Event()

    def slow(records: list[dict[str, Any]]) -> None:
        begun.set()
        free.wait(60)

    recorder = CallRecorder(slow)
    recorder.append(record())
    assert begun.wait(60)
    assert recorder.flush(0.01) is False
    free.set()
    assert recorder.flush(60) is True
    recorder.close()


def test_a_record_has_the_hashes_of_files_and_the_approval_where_there_was_one() -> None:
    artifact = Artifact(path="a.png", mime="image/png", size=3, sha256="ab")
    call = ToolCall(tool="t", arguments={}, approval={"by": "x"})
    result = ToolResult(ok=True, tool="t", call_id="c", artifacts=(artifact,))
    told = CallRecord.from_result(call, result, 1.0).to_dict()
    assert told["artifacts"] == [{"path": "a.png", "mime": "image/png", "size": 3, "sha256": "ab"}]
    assert told["approval"] == {"by": "x"}
    assert CallRecord.from_result(call, None, 1.0).artifacts == ()
    assert "approval" not in record().to_dict()


def test_what_is_left_out_of_a_record_is_counted() -> None:
    told = record(fields={str(number): 1 for number in range(1_000)}, rows=[1] * 1_000).arguments
    for value, more in ((told["fields"], told["fields"].get("…")), (told["rows"], told["rows"][-1])):
        assert str(more).endswith(f"{1_000 - (len(value) - 1):,} more")


def test_records_that_found_no_store_are_written_when_there_is_one() -> None:
    kept: list[str] = []
    tries: list[int] = []
    is_full = True

    def sink(records: list[dict[str, Any]]) -> None:
        tries.append(len(records))
        if is_full:
            raise OSError("disk full")
        kept.extend(told["call_id"] for told in records)

    recorder = CallRecorder(sink, most_waiting=150)
    for number in range(200):
        recorder.append(record(str(number)))
    assert not recorder.flush()
    assert len(tries) <= 20  # a store that fails is not asked for each record
    assert [told["call_id"] for told in recorder.unwritten()] == [str(number) for number in range(50, 200)]
    assert "150 are not on record yet" in recorder.summary()
    assert "50 will never be on record" in recorder.summary()
    is_full = False
    recorder.append(record("200"))
    recorder.close()
    assert kept == [str(number) for number in range(51, 201)]
    assert recorder.summary() == "of this process's calls, 51 will never be on record"
    assert recorder.problem is None


def test_records_that_come_together_are_handed_on_together() -> None:
    batches: list[int] = []
    recorder = CallRecorder(lambda records: batches.append(len(records)))
    for number in range(250):
        recorder.append(record(str(number)))
    assert recorder.flush()
    assert sum(batches) == 250
    assert len(batches) < 25
    assert max(batches) <= 100
    recorder.close()


def test_a_record_that_the_sink_refuses_takes_no_other_with_it() -> None:
    kept: list[str] = []

    def picky(records: list[dict[str, Any]]) -> None:
        if any(told["call_id"] == "3" for told in records):
            raise InvalidArguments("refused")
        kept.extend(told["call_id"] for told in records)

    recorder = CallRecorder(picky)
    for number in range(6):
        recorder.append(record(str(number)))
    assert recorder.flush()
    assert kept == ["0", "1", "2", "4", "5"]
    assert recorder.summary() == "of this process's calls, 1 will never be on record"
    recorder.close()


def test_a_recorder_that_was_closed_takes_records_again() -> None:
    kept: list[str] = []
    recorder = CallRecorder(lambda records: kept.extend(told["call_id"] for told in records))
    for number in range(3):
        recorder.append(record(str(number)))
        recorder.close()
    assert kept == ["0", "1", "2"]


def test_without_a_sink_records_are_kept_in_memory_up_to_a_thousand() -> None:
    recorder = CallRecorder()
    for number in range(1_005):
        recorder.append(record(str(number)))
    assert [made.call_id for made in recorder.recent(2)] == ["1003", "1004"]
    assert len(recorder.recent()) == 1_000
    assert recorder.flush()


@pytest.mark.processes
def test_what_is_left_is_handed_on_when_the_process_ends() -> None:
    code = """
        import time
        from nbtools.contract.record import CallRecord, CallRecorder
        from nbtools.contract.result import ToolResult
        from nbtools.contract.tool import ToolCall
        def slow(records):
            time.sleep(0.2)
            print(*(told["call_id"] for told in records), flush=True)
        recorder = CallRecorder(slow)
        for number in range(5):
            call = ToolCall(tool="t", call_id=str(number))
            recorder.append(CallRecord.from_result(call, ToolResult(ok=True, tool="t", call_id=call.call_id), 1.0))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "1", "2", "3", "4"], done.stderr


@pytest.mark.slow
def test_a_call_whose_process_is_killed_is_on_record_without_an_end(tmp_path: Path) -> None:
    code = """
        import sys, time
        from nbtools import Workbench, tool
        @tool(read_only=True)
        def sleepy(seconds: float) -> str:
            '''Sleep.'''
            time.sleep(seconds)
            return "awake"
        wb = Workbench(memory_url=sys.argv[1], tools=[sleepy])
        assert wb.call("sleepy", {"seconds": 0.4}).ok
        print(*((call["ok"], call["duration_s"] > 0.4) for call in wb.call_records()), flush=True)
        wb.call("sleepy", {"seconds": 60})
    """
    memory = str(tmp_path / "m.duckdb")
    command = [sys.executable, "-c", textwrap.dedent(code), memory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["(True,", "True)"], "an end takes the place of its beginning"
        with Workbench(memory_url=memory) as wb:
            deadline = time.monotonic() + 60
            while len(wb.call_records()) < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
            process.kill()
            process.wait(60)
            last, *_ = wb.call_records()
            assert (last["tool"], last["arguments"], last["ok"], last["duration_s"]) == (
                "sleepy",
                {"seconds": 60},
                None,
                None,
            )
            assert "its end is not on record" in last["message"]
