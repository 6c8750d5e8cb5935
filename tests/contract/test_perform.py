"""What is not a tool goes through the door all the same: its value, its error, and what the record says of it."""

from __future__ import annotations

from typing import Any

import pytest

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import AskFunction
from nbtools.contract.door import Door
from nbtools.contract.execute import perform
from nbtools.contract.tool import Effects, ToolCall
from nbtools.errors import ApprovalDenied, ExecutionFailed, InternalError, NbtoolsError, SqlFailed
from nbtools.ground import aio

READS = Effects(read_only=True)


def done(door: Door, work: Any, effects: Any = READS, **how: Any) -> Any:
    call = ToolCall(tool="look", arguments={"at": 1}, caller="model")
    return aio.run(perform(door, call, work, effects=effects, **how))


def records(door: Door) -> list[tuple[str, str | None]]:
    return [(record.tool, record.code) for record in door.recorder.recent()]


def test_the_value_comes_back_itself_with_the_text_of_its_result() -> None:
    door, value = Door(), object()

    async def far() -> int:
        return 7

    found, result = done(door, lambda: value, text_of=lambda each: f"is {each is value}")
    assert found is value
    assert (result.ok, result.text, result.tool) == (True, "is True", "look")
    assert done(door, far)[0] == 7
    assert records(door) == [("look", None)] * 2


def test_an_error_keeps_its_class_and_loses_its_secrets() -> None:
    door = Door()

    def fail(error: Exception) -> Any:
        def work() -> None:
            raise error

        return work

    own = SqlFailed("no table for sk-ant-0123456789abcdefghij", hint="look at sk-ant-0123456789abcdefghij")
    with pytest.raises(SqlFailed) as caught:
        done(door, fail(own))
    assert caught.value is own
    assert "0123456789" not in f"{own} {own.hint}"
    unknown = KeyError("oops")
    with pytest.raises(InternalError) as other:
        done(door, fail(unknown))
    assert other.value.__cause__ is unknown
    assert records(door) == [("look", own.code), ("look", InternalError.code)]


def test_an_error_that_the_value_tells_is_on_record_and_the_value_comes_back() -> None:
    door = Door()

    def error_of(value: str) -> NbtoolsError | None:
        return ExecutionFailed(f"it {value}") if value == "broke" else None

    value, result = done(door, lambda: "broke", error_of=error_of)
    assert (value, result.ok, result.error.message) == ("broke", False, "it broke")
    assert done(door, lambda: "went", error_of=error_of)[1].ok
    assert records(door) == [("look", ExecutionFailed.code), ("look", None)]


def test_what_it_does_to_the_world_is_judged_also_where_who_calls_decides() -> None:
    asked: list[ApprovalRequest] = []
    done_so: list[str] = []

    def refuse(request: ApprovalRequest) -> str:
        asked.append(request)
        return "no"

    door = Door(approver=AskFunction(refuse))
    for effects in (Effects(destructive=True), lambda ctx: Effects(destructive=ctx.caller == "model")):
        with pytest.raises(ApprovalDenied):
            done(door, lambda: done_so.append("wiped"), effects)
    assert (len(asked), done_so) == (2, [])
    assert done(door, lambda: "read", lambda ctx: Effects(read_only=ctx.caller == "model"))[0] == "read"
    assert len(asked) == 2
