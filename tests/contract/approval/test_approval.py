"""What an answer of the gate can say besides yes and no: changes, "later", and a reason; and what is kept of it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbtools.contract.approval.approval_request import ApprovalRequest, _state
from nbtools.contract.approval.gate import AskFunction, AskTerminal, Reply, Rule
from nbtools.contract.consequence import deleted, whole_file
from nbtools.contract.door import Door
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import ToolCall, tool, tool_of
from nbtools.ground import aio

CALL = ToolCall(tool="wipe", arguments={"name": "a", "times": 1}, caller="model")
DONE: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@tool(destructive=True)
def wipe(name: str, times: int = 1) -> str:
    """Wipe something.

    Parameters
    ----------
    name
        What.
    times
        How often.
    """
    DONE.append((name, times))
    return f"wiped {name}"


def _door(answer: Any, **options: Any) -> Door:
    return Door(approver=AskFunction(lambda _: answer), **options)


def _admit(door: Door, call: ToolCall = CALL) -> ToolResult:
    return aio.run(door.admit(tool_of(wipe), call))


def test_a_call_runs_with_the_changes_of_who_approved_it() -> None:
    door = _door(Reply(answer="once", arguments={"name": "b", "times": 2}, by="ada"))
    result = _admit(door)
    assert DONE == [("b", 2)]
    assert result.text.startswith("The approver of this call changed its arguments.")
    assert '"name": "b"' in result.text
    kept = door.recorder.recent()[-1].to_dict()
    assert kept["arguments"] == {"name": "b", "times": 2}
    assert kept["approval"]["proposed"] == {"name": "a", "times": 1}
    assert kept["approval"]["by"] == "ada"


def test_changes_are_validated_like_any_arguments() -> None:
    result = _admit(_door(Reply(answer="once", arguments={"name": "b", "times": "often"})))
    assert result.error is not None
    assert result.error.code == "INVALID_ARGUMENTS"
    assert DONE == []


def test_changes_do_not_lead_past_a_rule_that_denies() -> None:
    rules = [Rule(action="deny", tool="wipe", arguments={"name": "root"})]
    result = _admit(_door(Reply(answer="once", arguments={"name": "root"}), rules=rules))
    assert result.error is not None
    assert result.error.code == "PERMISSION_DENIED"
    assert DONE == []


def test_a_yes_without_changes_is_kept_without_any() -> None:
    door = _door(Reply(answer="once", arguments={"name": "a", "times": 1}))
    assert _admit(door).text == "wiped a"
    assert "changed" not in door.recorder.recent()[-1].to_dict()["approval"]


def test_later_runs_nothing_and_records_nothing() -> None:
    door = _door("later")
    result = _admit(door)
    assert result.error is not None
    assert "waits for approval" in result.error.message
    assert (DONE, door.recorder.recent()) == ([], [])


def test_the_reason_of_a_no_is_told_and_recorded() -> None:
    door = _door(Reply(answer="no", reason="that is the only copy", by="ada"))
    result = _admit(door)
    assert result.error is not None
    assert "the answer was no: that is the only copy." in result.error.message
    assert "only copy" in str(door.recorder.recent()[-1].message)


@pytest.mark.parametrize("said", [Reply(answer="perhaps"), Reply(answer="no"), "perhaps", None])  # type: ignore[arg-type]  # on purpose
def test_what_is_no_clear_yes_is_a_no_in_a_reply_too(said: Any) -> None:
    assert _admit(_door(said)).ok is False
    assert DONE == []


def test_changes_that_hold_all_session_hold_for_what_ran() -> None:
    answers: list[Any] = [Reply(answer="content", arguments={"name": "b", "times": 1}), "no"]
    door = Door(approver=AskFunction(lambda _: answers.pop(0)))
    assert _admit(door).ok
    assert _admit(door, CALL.but(arguments={"name": "b"})).ok, "that is the content that was approved"
    assert not _admit(door).ok, "what was proposed first was not"


def _terminal(*lines: str) -> Callable[[ApprovalRequest], Any]:
    said = iter(lines)
    return AskTerminal(lambda _: next(said), io.StringIO()).approve


@pytest.mark.parametrize(
    ("lines", "done"),
    [
        (("e", '"c"', "3"), [("c", 3)]),
        (("e", "", "5"), [("a", 5)]),
        (("e", "plain text", ""), [("plain text", 1)]),
        (("y",), [("a", 1)]),
        (("n not now",), []),
        (("a bad idea, not now", "y but elsewhere, not now", "n not now"), []),
        (("this: not now", "y, not now", "yes not now"), []),
        (("l",), []),
    ],
)
def test_a_terminal_edits_refuses_and_puts_off(lines: tuple[str, ...], done: list[tuple[str, int]]) -> None:
    door = Door(approver=AskFunction(_terminal(*lines)))
    result = _admit(door)
    assert done == DONE
    assert ("not now" in result.text) == lines[-1].startswith("n")


def test_what_a_save_stores_is_not_kept_with_its_approval() -> None:
    from nbtools import Workbench

    reply = Reply(answer="once", arguments={"key": "k", "value": "the other diary", "ttl": 1})
    with Workbench(memory_url=":memory:", approver=AskFunction(lambda _: reply)) as wb:
        assert wb.call("memory_save", {"key": "k", "value": "the diary", "ttl": 1}, caller="model").ok
        (kept,) = wb.call_records()
    assert kept["approval"]["changed"]["value"]["bytes"] == len('"the other diary"')
    assert "diary" not in str(kept)


def test_who_approves_changes_nothing_but_by_a_reply() -> None:
    def change(request: ApprovalRequest) -> Any:
        request.prepared.values["text"] = "other"  # type: ignore[index]  # that is the attempt
        return "once"

    assert _admit(Door(approver=AskFunction(change))).error is not None
    assert DONE == []


def test_a_caller_cannot_say_how_its_call_was_approved() -> None:
    door = Door(rules=[Rule(action="allow")])
    _admit(door, CALL.but(approval={"answer": "once", "by": "ada"}))
    assert "approval" not in door.recorder.recent()[-1].to_dict()


def test_a_path_in_changes_stays_within_the_allowed_folders(tmp_path: Path) -> None:
    from nbtools import Workbench

    (tmp_path / "a.txt").write_text("a")
    reply = Reply(answer="once", arguments={"path": "/etc/passwd", "content": "x"})
    with Workbench(memory_url=":memory:", allowed_paths=str(tmp_path), approver=AskFunction(lambda _: reply)) as wb:
        asked = {"path": str(tmp_path / "a.txt"), "content": "b"}
        result = wb.call("file_write", asked, caller="model")
    assert result.error is not None
    assert result.error.code == "PATH_NOT_ALLOWED"
    assert (tmp_path / "a.txt").read_text() == "a"


def test_a_file_too_large_to_hash_is_another_one_though_its_size_and_time_are_set_back(tmp_path: Path) -> None:
    file, other = tmp_path / "large", tmp_path / "other"
    for path, text in ((file, "good"), (other, "evil")):
        path.write_text(text)
        os.truncate(path, 65 * 2**20)  # with a hole in it
    before, was = _state(file), file.stat()
    assert _state(file) == before
    other.replace(file)
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert _state(file) != before


def test_a_file_that_would_be_deleted_is_shown_by_its_beginning(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("".join(f"{number}\n" for number in range(345)), encoding="utf-8")
    lost = deleted(target)
    assert lost.title == "rows.csv (345 lines) is deleted"
    assert lost.text.splitlines() == [*(f"-{number}" for number in range(20)), "[… 325 more lines not shown …]"]
    target.write_text("one\ntwo\n", encoding="utf-8")
    assert deleted(target).text.splitlines() == ["-one", "-two"]


def test_what_is_lost_and_what_comes_are_shown_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, key = tmp_path / "a.env", "sk-ant-0123456789abcdefghij"
    monkeypatch.setenv("MY_API_KEY", key)
    file.write_text(f"KEY={key}\nold\n")
    for shown in (deleted(file).to_dict(), whole_file(file, f"KEY={key}\nnew\n").to_dict()):
        assert "old" in shown["text"]
        assert key not in shown["text"]
