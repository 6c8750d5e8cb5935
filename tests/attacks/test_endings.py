"""Whatever a tool raises ends its own call and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from nbtools.contract.execute import LocalExecutor
from nbtools.contract.tool import ToolCall, tool
from nbtools.errors import Cancelled


@tool
def double(x: int) -> int:
    """Double a number."""
    return x * 2


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), StopIteration("s"), GeneratorExit()])
def test_what_ends_programs_ends_only_the_call_and_keeps_its_name(raised: BaseException) -> None:
    @tool
    def leave() -> None:
        """Leave."""
        raise raised

    result = LocalExecutor([leave]).call(ToolCall(tool="leave"))
    assert result.error is not None
    assert result.error.message.startswith(f"leave raised {type(raised).__name__}")


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt("stop"), asyncio.CancelledError(), BaseException("odd")]
)
@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in a task of its own"])
def test_whatever_an_async_tool_raises_ends_its_call_alone(
    raised: BaseException, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def end() -> None:
        raise raised

    @tool
    async def leave() -> None:
        """Leave."""
        await (asyncio.gather(end()) if inside else end())

    made = LocalExecutor([leave, double])
    result = made.call(ToolCall(tool="leave"))
    assert result.error is not None
    assert (result.error.code, result.error.message.partition(":")[0]) == (
        "INTERNAL",
        f"leave raised {type(raised).__name__}",
    )
    assert made.call(ToolCall(tool="double", arguments={"x": 2})).data == 4
    assert [record.tool for record in made.door.recorder.recent()] == ["leave", "double"]


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_an_exception_whose_own_words_end_programs_ends_its_call_alone(ending: BaseException) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ending

    @tool
    def leave() -> None:
        """Leave."""
        raise Odd

    made = LocalExecutor([leave])
    result = made.call(ToolCall(tool="leave"))
    assert result.error is not None
    assert result.error.message == "leave raised Odd: <Odd>"
    assert [record.code for record in made.door.recorder.recent()] == ["INTERNAL"]


def test_a_tool_that_cancels_itself_is_recorded_and_told_as_an_error() -> None:
    @tool
    async def leave() -> None:
        """Leave."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    made = LocalExecutor([leave])
    with pytest.raises(Cancelled):
        made.call(ToolCall(tool="leave"))
    assert [record.code for record in made.door.recorder.recent()] == ["CANCELLED"]


def test_a_chain_of_exceptions_is_told_without_secrets_also_where_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hJ7kQ2mZx9LpW4vTq8ZkWm2LpT9vRx4N"
    monkeypatch.setenv("MY_API_KEY", secret)

    @tool
    def connect(filler: int) -> None:
        """Connect."""
        try:
            raise ConnectionError(f"Authorization: Basic {secret}, {{'password': 'hunter2horse'}}")
        except ConnectionError as exc:
            exc.add_note(f"tried with {secret}")
            raise ValueError("x" * filler) from exc

    made = LocalExecutor([connect])
    pieces = {secret[at : at + 8] for at in range(len(secret) - 7)} | {"hunter2horse"}
    # Of the 32 letters of the secret, some place leaves at least eight.
    for filler in (0, *range(5_000, 8_000, 24)):
        result = made.call(ToolCall(tool="connect", arguments={"filler": filler}))
        told = f"{result.to_dict()} {made.door.recorder.recent(1)[0].to_dict()}"
        assert not [piece for piece in pieces if piece in told]
        assert len(result.data["traceback"]) > 500
