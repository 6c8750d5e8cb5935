"""What every executor promises: it names its tools, and a call always comes back as a result."""

from __future__ import annotations

from typing import Any

import pytest

from nbtools.contract.execute import CompositeExecutor, Executor, LocalExecutor
from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import ToolCall, tool
from nbtools.errors import ExecutionFailed
from nbtools.ground import aio


@tool(read_only=True)
def double(x: int) -> int:
    """Double it."""
    return 2 * x


@tool
def fail() -> None:
    """Fail as expected."""
    raise ExecutionFailed("it broke", hint="mend it")


@tool
def bug() -> None:
    """Fail unexpectedly."""
    raise RuntimeError("oops")


@pytest.fixture(params=["local", "composite", "nested"])
def executor(request: pytest.FixtureRequest) -> Executor:
    match request.param:
        case "local":
            return LocalExecutor([double, fail, bug])
        case "composite":
            return CompositeExecutor([LocalExecutor([double]), LocalExecutor([fail, bug])])
        case _:
            return CompositeExecutor([CompositeExecutor([LocalExecutor([double, fail])]), LocalExecutor([bug])])


def _call(executor: Executor, name: str, arguments: dict[str, Any] | None = None, **how: Any) -> ToolResult:
    return aio.run(executor.acall(ToolCall(tool=name, arguments=arguments or {}, **how)))


def test_the_tools_are_a_registry(executor: Executor) -> None:
    found = executor.tools()
    assert isinstance(found, Registry)
    assert found.names == ("double", "fail", "bug")


def test_a_good_call_has_data_and_the_calls_own_id(executor: Executor) -> None:
    result = _call(executor, "double", {"x": 2}, call_id="mine")
    assert (result.ok, result.tool, result.call_id, result.data) == (True, "double", "mine", 4)


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("double", {}, "INVALID_ARGUMENTS"),
        ("double", {"x": 1, "y": 2}, "INVALID_ARGUMENTS"),
        ("fail", {}, "EXECUTION_FAILED"),
        ("bug", {}, "INTERNAL"),
        ("nothing", {}, "TOOL_NOT_FOUND"),
    ],
)
def test_a_failure_is_a_result_and_never_an_exception(
    executor: Executor, name: str, arguments: dict[str, Any], code: str
) -> None:
    result = _call(executor, name, arguments)
    assert not result.ok
    assert result.error is not None
    assert result.error.code == code
    assert result.text


def test_calls_run_side_by_side(executor: Executor) -> None:
    import asyncio

    async def many() -> list[ToolResult]:
        calls = [ToolCall(tool="double", arguments={"x": number}) for number in range(20)]
        return list(await asyncio.gather(*(executor.acall(call) for call in calls)))

    assert [result.data for result in aio.run(many())] == [2 * number for number in range(20)]
