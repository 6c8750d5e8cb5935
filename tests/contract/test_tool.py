"""One typed, documented function is a tool: name, description, schema, effects, pickling."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from typing import Annotated, Any

import jsonschema
import pytest
from pydantic import Field

from nbtools.contract.execute import LocalExecutor
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Context, Effects, ToolCall, tool, tool_of
from nbtools.errors import Cancelled, InternalError, InvalidArguments
from nbtools.ground.telemetry import fresh_id


@tool(read_only=True, idempotent=True, title="Add up", examples=({"a": 1, "b": 2},), timeout=5)
def add(a: int, b: Annotated[int, Field(ge=0)] = 1) -> int:
    """Add two numbers.

    Parameters
    ----------
    a
        The first.
    b
        The second, not negative.
    """
    return a + b


@tool
async def fetch(url: str, *, ctx: Context) -> str:
    """Fetch a page.

    Parameters
    ----------
    url
        Where it is.
    """
    await asyncio.sleep(0)
    return f"{ctx.caller} wants {url}"


def test_the_function_stays_itself() -> None:
    assert add(2, 3) == 5
    assert add.__name__ == "add"
    assert list(inspect.signature(add).parameters) == ["a", "b"]


def test_name_title_description_and_effects_are_derived() -> None:
    made = tool_of(add)
    assert (made.name, made.title, made.description, made.timeout) == ("add", "Add up", "Add two numbers.", 5)
    assert made.effects == Effects(read_only=True, idempotent=True)
    assert made.effects.names() == ("read_only", "idempotent")
    assert tool_of(fetch).effects.names() == ("undeclared",)


def test_the_schema_is_derived_and_admits_no_others() -> None:
    schema = tool_of(add).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "description": "The second, not negative.", "minimum": 0, "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_the_context_is_handed_in_and_invisible() -> None:
    made = tool_of(fetch)
    assert list(made.schema["properties"]) == ["url"]
    context = Context(call=ToolCall(tool="fetch", caller="model"))
    assert made.is_async
    assert asyncio.run(made.invoke({"url": "here"}, context)) == "model wants here"


def test_a_name_may_be_given() -> None:
    @tool(name="other_name")
    def function() -> None:
        """Do nothing."""

    assert tool_of(function).name == "other_name"
    assert tool_of(function).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_plain_function_becomes_a_tool_on_asking() -> None:
    def plain(x: int) -> int:
        """Return it."""
        return x

    assert tool_of(plain) is tool_of(plain)
    assert tool_of(tool_of(plain)) is tool_of(plain)


@pytest.mark.parametrize("what", [3, "name", None])
def test_what_cannot_be_called_is_no_tool(what: Any) -> None:
    with pytest.raises(TypeError, match="neither a function nor a tool"):
        tool_of(what)


def test_parameters_without_usable_names_are_refused_at_once() -> None:
    def starred(*args: int) -> None: ...

    def double_starred(**kwargs: int) -> None: ...

    def by_position(x: int, /) -> None: ...

    for function in (starred, double_starred, by_position):
        with pytest.raises(TypeError, match="plain named parameters only"):
            tool(function)


def test_a_parameter_without_type_is_named() -> None:
    @tool
    def untyped(x, y: int = 1):  # type: ignore[no-untyped-def]
        """Do it."""

    with pytest.raises(TypeError, match="parameter 'x' has no type"):
        tool_of(untyped).schema  # noqa: B018 - reading it is the act


def test_the_signature_line_shows_what_is_required() -> None:
    assert tool_of(add).signature_line == "add(a, b=…)"


def test_a_decorated_tool_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(tool_of(add)))
    assert again is tool_of(add)


def test_a_configured_tool_says_why_it_cannot_be_pickled() -> None:
    import dataclasses

    with pytest.raises(TypeError, match="send its configuration instead"):
        pickle.dumps(dataclasses.replace(tool_of(add), name="renamed"))


def test_a_service_is_made_when_it_is_used() -> None:
    made: list[str] = []

    class Notes:
        def __init__(self) -> None:
            made.append("notes")

    context = Context(call=ToolCall(tool="add"), services={Notes: Notes})
    assert made == []
    assert isinstance(context.use(Notes), Notes)
    with pytest.raises(InternalError, match="add needs dict"):
        context.use(dict)


def test_output_goes_to_whoever_asked_for_it() -> None:
    seen: list[tuple[str, str, Any]] = []
    call = ToolCall(tool="add", on_output=lambda *item: seen.append(item))
    Context(call=call).emit("stdout", "hello")
    Context(call=call).emit("display", data={"text/plain": "x"})
    assert seen == [("stdout", "hello", None), ("display", "", {"text/plain": "x"})]
    Context(call=ToolCall(tool="add")).emit("stdout", "nobody listens")


def test_a_tool_calls_another_as_its_child() -> None:
    asked: list[ToolCall] = []

    async def perform(call: ToolCall) -> ToolResult:
        asked.append(call)
        return ToolResult(ok=True, tool=call.tool, call_id=call.call_id)

    call = ToolCall(tool="outer", arguments={"x": 1}, run_id="r", caller="model", timeout=3)
    asyncio.run(Context(call=call, perform=perform).call_tool("inner", {"y": 2}))
    (inner,) = asked
    assert (inner.tool, inner.arguments, inner.parent_id, inner.run_id) == ("inner", {"y": 2}, call.call_id, "r")
    assert (inner.caller, inner.timeout) == ("model", None)
    assert inner.call_id != call.call_id
    with pytest.raises(InternalError, match="cannot call other tools"):
        asyncio.run(Context(call=call).call_tool("inner", {}))


def test_a_model_and_an_mcp_client_count_as_models() -> None:
    callers = ["python", "magic", "form", "cli", "model", "workflow", "mcp"]
    by_model = [name for name in callers if Context(call=ToolCall(tool="x", caller=name)).by_model]  # type: ignore[arg-type]
    assert by_model == ["model", "mcp"]


def test_ids_are_sixteen_hexadecimal_digits_and_differ() -> None:
    ids = {fresh_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(made) == 16 and int(made, 16) >= 0 for made in ids)


def test_a_result_type_that_only_type_checkers_know_says_nothing_of_the_data() -> None:
    space: dict[str, Any] = {"tool": tool}
    code = """
from __future__ import annotations
@tool
def double(x: int) -> Unknown:
    'Double a number.'
    return 2 * x
@tool
def half(x: Unknown) -> int:
    'Halve a number.'
"""
    exec(code, space)
    assert tool_of(space["double"]).returns() is Any
    assert LocalExecutor([space["double"]]).call(ToolCall(tool="double", arguments={"x": 2})).data == 4
    with pytest.raises(NameError, match=r"tool 'half': the type 'Unknown' of a parameter does not exist at run time"):
        _ = tool_of(space["half"]).schema


def test_a_slip_in_on_error_is_refused_where_the_tool_is_made() -> None:
    with pytest.raises(InvalidArguments, match="on_error is 'explode'"):

        @tool(on_error="explode")  # type: ignore[call-overload]  # that is the slip
        def leave() -> None:
            """Leave."""


def test_what_a_tool_says_of_its_end_stands_behind_its_time() -> None:
    @tool(read_only=True)
    async def waiting() -> str:
        """Wait."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise Cancelled("it was stopped.", data={"notes": ["1 thread was still running"]}) from None
        return ""

    result = LocalExecutor([waiting]).call(ToolCall(tool="waiting", timeout=0.02))
    assert result.error is not None
    assert result.error.message == "timed out after 0.02 s; 1 thread was still running"
