"""Our tools as LangChain's: the same names, schemas, texts, errors and artifacts."""

from __future__ import annotations

import asyncio

import pytest

from nbtools.contract.execute import LocalExecutor
from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Context, tool
from nbtools.errors import ExecutionFailed

messages = pytest.importorskip("langchain_core.messages")


@tool(read_only=True)
def add(a: int, b: int = 1, *, ctx: Context) -> int:
    """Add two numbers.

    Parameters
    ----------
    a
        The first.
    b
        The second.
    """
    if b == 0:
        raise ExecutionFailed(f"a {ctx.caller} adds nothing", hint="Give another number.")
    return a + b


def _asked(**arguments: object) -> dict[str, object]:
    return {"type": "tool_call", "id": "1", "name": "add", "args": arguments}


def test_name_description_and_schema_stay_what_they_are() -> None:
    (made,) = Registry([add]).to_langchain()
    assert (made.name, made.description) == ("add", "Add two numbers.")
    assert made.args["a"]["description"] == "The first."
    assert "ctx" not in made.args


def test_a_call_gives_text_as_content_and_the_result_as_artifact() -> None:
    (made,) = Registry([add]).to_langchain()
    assert made.invoke({"a": 1, "b": 2}) == "3"
    message = made.invoke(_asked(a=1, b=2))
    assert isinstance(message, messages.ToolMessage)
    assert message.content == "3"
    assert isinstance(message.artifact, ToolResult)
    assert message.artifact.data == 3


def test_it_is_awaited_on_any_loop() -> None:
    (made,) = Registry([add]).to_langchain()
    assert asyncio.run(made.ainvoke({"a": 1})) == "2"


def test_a_failure_is_told_to_the_model_with_its_hint() -> None:
    (made,) = Registry([add]).to_langchain()
    message = made.invoke(_asked(a=1, b=0))
    assert message.status == "error"
    assert "EXECUTION_FAILED" in message.content
    assert "Give another number." in message.content
    assert "a model adds nothing" in message.content


def test_calls_go_through_the_executor_that_is_given() -> None:
    executor = LocalExecutor([add])
    (made,) = executor.tools().to_langchain(executor.acall)
    made.invoke({"a": 1})
    assert [(record.tool, record.caller) for record in executor.door.recorder.recent()] == [("add", "model")]
