"""Every call goes through one door: validate, gate, limits, run, span, record, result."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import AskFunction, Rule
from nbtools.contract.door import CallLimits, Door
from nbtools.contract.execute import CompositeExecutor, LocalExecutor
from nbtools.contract.result import Artifact, Output, ToolResult
from nbtools.contract.tool import CallJournal, Context, ToolCall, tool
from nbtools.errors import ExecutionFailed, InvalidArguments, SqlFailed, ToolNotFound
from nbtools.ground import aio, telemetry
from tests.conftest import with_enough_time


class Store:
    def __init__(self) -> None:
        self.items: dict[str, str] = {}


@tool(read_only=True)
def double(x: int) -> int:
    """Double it."""
    return 2 * x


@tool
async def greet(name: str, *, ctx: Context) -> str:
    """Say hello."""
    await asyncio.sleep(0)
    return f"hello {name} from a {ctx.caller}"


@tool(destructive=True)
def put(key: str, value: str, *, ctx: Context) -> Output:
    """Keep it."""
    ctx.use(Store).items[key] = value
    return Output(data={"key": key}, text=f"kept {key}")


@tool
def fail(how: str) -> None:
    """Fail."""
    raise {"expected": ExecutionFailed("it broke", hint="mend it", data={"stdout": "so far"}), "bug": KeyError("oops")}[
        how
    ]


@tool(timeout=0.05)
async def endless() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


def executor(**how: Any) -> LocalExecutor:
    store = Store()
    door = Door(services={Store: lambda: store}, **how)
    return LocalExecutor([double, greet, put, fail, endless], door=door)


def call(tool_name: str, arguments: dict[str, Any] | None = None, **how: Any) -> ToolCall:
    return ToolCall(tool=tool_name, arguments=arguments or {}, **how)


def test_a_result_has_data_text_id_and_duration() -> None:
    asked = call("double", {"x": 21})
    result = executor().call(asked)
    assert (result.ok, result.tool, result.call_id, result.data, result.text) == (
        True,
        "double",
        asked.call_id,
        42,
        "42",
    )
    assert result.error is None
    assert result.duration_s > 0


def test_async_tools_and_threads_serve_alike() -> None:
    assert executor().call(call("greet", {"name": "you"}, caller="magic")).text == "hello you from a magic"


def test_wrong_arguments_are_a_result_that_names_them_all() -> None:
    result = executor().call(call("double", {"y": 1}))
    assert result.error is not None
    assert result.error.code == "INVALID_ARGUMENTS"
    assert "x: required, but not given" in result.error.message
    assert "y: unknown argument" in result.error.message
    with pytest.raises(InvalidArguments):
        result.raise_for_error()


def test_an_unknown_tool_offers_the_nearest_and_is_recorded() -> None:
    made = executor()
    result = made.call(call("duble"))
    assert result.error is not None
    assert (result.error.code, result.error.hint) == ("TOOL_NOT_FOUND", "Did you mean 'double'?")
    assert [record.code for record in made.door.recorder.recent()] == ["TOOL_NOT_FOUND"]


def test_a_tool_that_is_not_enabled_says_which_are() -> None:
    made = LocalExecutor([double, greet], enabled=["greet"])
    result = made.call(call("double", {"x": 1}))
    assert result.error is not None
    assert (result.error.code, result.error.hint) == ("TOOL_NOT_ENABLED", "Enabled are greet.")
    with pytest.raises(ToolNotFound):
        LocalExecutor([double], enabled=["duble"])


def test_an_expected_failure_keeps_its_partial_output() -> None:
    result = executor().call(call("fail", {"how": "expected"}))
    assert (result.ok, result.data) == (False, {"stdout": "so far"})
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.hint) == ("EXECUTION_FAILED", "it broke", "mend it")
    with pytest.raises(ExecutionFailed) as caught:
        result.raise_for_error()
    assert caught.value.data == {"stdout": "so far"}
    assert caught.value.tried == "calling fail"


def test_a_fault_of_the_tool_is_told_apart_and_carries_its_traceback() -> None:
    result = executor().call(call("fail", {"how": "bug"}))
    assert result.error is not None
    assert result.error.code == "INTERNAL"
    assert "fail raised KeyError: 'oops'" in result.error.message
    assert "Traceback" in result.data["traceback"]


@pytest.mark.parametrize(("timeout", "seconds"), [(None, "0.05"), (0.02, "0.02")])
def test_a_call_that_outlives_its_time_is_a_timeout(timeout: float | None, seconds: str) -> None:
    result = executor().call(call("endless", timeout=timeout))  # which beats the tool's own
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("TIMEOUT", f"timed out after {seconds} s")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_timeout_out_of_range_is_refused(timeout: float) -> None:
    result = executor().call(call("endless", timeout=timeout))
    assert result.error is not None
    assert result.error.code == "INVALID_ARGUMENTS"


def test_a_tool_with_its_own_timeout_is_given_the_time_to_end_in_order() -> None:
    @tool
    async def script(timeout: float) -> Output:
        """Run for a while, then say what there is."""
        await asyncio.sleep(timeout)
        raise SqlFailed("its own words", data={"rows": 3})

    made = LocalExecutor([script], door=Door(limits=CallLimits(grace=30)))
    result = made.call(call("script", {"timeout": 0.01}))
    assert result.error is not None
    assert (result.error.code, result.data) == ("SQL_FAILED", {"rows": 3})


def test_too_much_output_is_refused_with_its_beginning() -> None:
    @tool
    def much() -> str:
        """Return much."""
        return "x" * 50_000

    result = LocalExecutor([much], door=Door(limits=CallLimits(output_bytes=10_000))).call(call("much"))
    assert result.error is not None
    assert result.error.code == "LIMIT_EXCEEDED"
    assert len(result.data["text"]) == 2_000


def test_a_model_is_asked_for_what_destroys_and_a_person_is_not() -> None:
    arguments = {"key": "a", "value": "b"}
    assert executor().call(call("put", arguments)).ok
    for caller in ("model", "mcp"):
        result = executor().call(call("put", arguments, caller=caller))
        assert result.error is not None
        assert result.error.code == "APPROVAL_DENIED"
        assert "no one is at the keyboard" in result.error.message
        assert result.error.hint
    assert executor().call(call("double", {"x": 1}, caller="model")).ok


def test_the_arguments_are_validated_before_anybody_is_asked() -> None:
    asked: list[Any] = []
    made = executor(approver=AskFunction(lambda request: asked.append(request) or True))
    assert not made.call(call("put", {"key": "a"}, caller="model")).ok
    assert asked == []
    assert made.call(call("put", {"key": "a", "value": "b"}, caller="model")).ok
    assert asked[0].call.arguments == {"key": "a", "value": "b"}


def test_always_this_session_is_remembered_for_the_tool() -> None:
    asked: list[Any] = []
    made = executor(approver=AskFunction(lambda request: asked.append(request) or "tool"))
    for value in "bcd":
        assert made.call(call("put", {"key": "a", "value": value}, caller="model")).ok
    assert len(asked) == 1


def test_this_exact_call_is_remembered_for_its_content_alone() -> None:
    asked: list[Any] = []
    made = executor(approver=AskFunction(lambda request: asked.append(request) or "content"))
    for value in "bbc":
        made.call(call("put", {"key": "a", "value": value}, caller="model"))
    assert len(asked) == 2


def test_a_no_is_a_denied_approval_and_a_policy_a_denied_permission() -> None:
    said_no = executor(approver=AskFunction(lambda _: False)).call(
        call("put", {"key": "a", "value": "b"}, caller="model")
    )
    assert said_no.error is not None
    assert (said_no.error.code, "the answer was no" in said_no.error.message) == ("APPROVAL_DENIED", True)
    denied = executor(rules=[Rule(action="deny", tool="dou*")]).call(call("double", {"x": 1}))
    assert denied.error is not None
    assert denied.error.code == "PERMISSION_DENIED"


def test_every_call_is_a_span_and_a_record() -> None:
    made = executor()
    result = made.call(call("put", {"key": "a", "value": "b"}, run_id="run", caller="cli"))
    (record,) = made.door.recorder.recent()
    assert (record.call_id, record.run_id, record.tool, record.caller) == (result.call_id, "run", "put", "cli")
    assert (record.arguments, record.ok, record.code) == ({"key": "a", "value": "b"}, True, None)
    timed = next(s for s in telemetry.recent() if s.facts.get("gen_ai.tool.call.id") == result.call_id)
    assert timed.name == "execute_tool put"
    assert timed.facts["gen_ai.operation.name"] == "execute_tool"
    assert timed.outcome == "ok"


def test_a_failed_call_is_told_by_span_and_record() -> None:
    made = executor()
    result = made.call(call("fail", {"how": "expected"}))
    assert made.door.recorder.recent()[0].code == "EXECUTION_FAILED"
    timed = next(s for s in telemetry.recent() if s.facts.get("gen_ai.tool.call.id") == result.call_id)
    assert timed.outcome == "EXECUTION_FAILED"


def test_secrets_are_masked_in_data_text_error_and_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-12345678")

    @tool
    def leak(how: str) -> dict[str, str]:
        """Leak it."""
        if how == "raise":
            raise ExecutionFailed("the key sk-12345678 is wrong", hint="not sk-12345678", data={"out": "sk-12345678"})
        return {"key": "sk-12345678"}

    made = LocalExecutor([leak])
    results = [made.call(call("leak", {"how": how})) for how in ("return", "raise", "sk-12345678")]
    assert "sk-12345678" not in str([result.to_dict() for result in results])
    assert "sk-12345678" not in str([record.to_dict() for record in made.door.recorder.recent()])


def test_a_cancelled_call_is_recorded_and_cancels_on() -> None:
    made = executor()
    begun = threading.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    made = LocalExecutor([wait])

    async def main() -> None:
        task = asyncio.ensure_future(made.acall(call("wait")))
        await aio.in_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    aio.run(main())
    assert [record.code for record in made.door.recorder.recent()] == ["CANCELLED"]


class Size(enum.Enum):
    SMALL = "small"


class Model(BaseModel):
    when: dt.date


@pytest.mark.parametrize(
    ("returned", "data", "text"),
    [
        (None, None, "done"),
        ("", "", ""),
        ("word", "word", "word"),
        (True, True, "true"),
        (1.5, 1.5, "1.5"),
        (float("nan"), None, "null\n(NaN and infinity are null)"),
        ({"a": [1, -float("inf")]}, {"a": [1, None]}, '{"a": [1, null]}\n(NaN and infinity are null)'),
        ([1, (2, 3)], [1, [2, 3]], "[1, [2, 3]]"),
        ({1: "ä"}, {"1": "ä"}, '{"1": "ä"}'),
        (Path("/a/b"), "/a/b", "/a/b"),
        (dt.date(2024, 5, 1), "2024-05-01", "2024-05-01"),
        (decimal.Decimal("1.50"), 1.5, "1.5"),
        (Size.SMALL, "small", "small"),
        (Model(when=dt.date(2024, 5, 1)), {"when": "2024-05-01"}, '{"when": "2024-05-01"}'),
        (np.arange(3), [0, 1, 2], "[0, 1, 2]"),
        (np.float64(0.5), 0.5, "0.5"),
        (pd.DataFrame({"a": [1, None]}), [{"a": 1.0}, {"a": None}], "     a\n0  1.0\n1  NaN"),
        (
            pd.DataFrame({"columns": [1], "isoformat": [2]}),
            [{"columns": 1, "isoformat": 2}],
            "   columns  isoformat\n0        1          2",
        ),
        (pd.Series([1, 2], index=["columns", "tolist"]), {"columns": 1, "tolist": 2}, '{"columns": 1, "tolist": 2}'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_tools_return_becomes_json_values(returned: Any, data: Any, text: str) -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return returned

    result = LocalExecutor([give]).call(call("give"))
    assert result.error is None
    assert (result.data, result.text) == (data, text)


def test_what_is_no_json_is_the_tools_fault_and_named() -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return {"rows": [object()]}

    result = LocalExecutor([give]).call(call("give"))
    assert result.error is not None
    assert "result.rows[0] is a object, which is not JSON" in result.error.message


def test_artifacts_come_with_success_and_with_failure(tmp_path: Path) -> None:
    (tmp_path / "made.png").write_bytes(b"png")
    artifact = Artifact.from_path(tmp_path / "made.png")

    @tool
    def draw(well: bool) -> Output:
        """Draw."""
        if not well:
            raise ExecutionFailed("half done", data={"artifacts": (artifact,), "stdout": "x"})
        return Output(text="drawn", artifacts=(artifact,))

    made = LocalExecutor([draw])
    good, bad = made.call(call("draw", {"well": True})), made.call(call("draw", {"well": False}))
    assert good.artifacts == bad.artifacts == (artifact,)
    assert bad.data == {"stdout": "x", "artifacts": [artifact.to_dict()]}
    assert made.door.recorder.recent()[0].artifacts[0]["sha256"] == artifact.sha256


def test_a_models_null_for_an_argument_without_null_means_not_given() -> None:
    @tool(read_only=True)
    def look(path: str, limit: int = 10, name: str | None = "x") -> list[Any]:
        """Look."""
        return [path, limit, name]

    made = LocalExecutor([look])
    given = {"path": "a", "limit": None, "name": None}
    assert made.call(call("look", given, caller="model")).data == ["a", 10, None]
    assert not made.call(call("look", given, caller="python")).ok
    assert not made.call(call("look", {"path": None}, caller="model")).ok


def test_tools_that_call_tools_leave_a_tree_of_records() -> None:
    @tool
    async def both(x: int, *, ctx: Context) -> list[Any]:
        """Call another, and one that does not exist."""
        good = await ctx.call_tool("double", {"x": x})
        bad = await ctx.call_tool("nothing", {})
        return [good.data, bad.ok]

    made = LocalExecutor([both, double])
    result = made.call(call("both", {"x": 2}, run_id="r"))
    assert result.data == [4, False]
    told = [(record.tool, record.parent_id, record.run_id) for record in made.door.recorder.recent()]
    assert told == [("double", result.call_id, "r"), ("nothing", result.call_id, "r"), ("both", None, "r")]


def test_a_composite_refuses_a_name_offered_twice_when_it_is_made() -> None:
    with pytest.raises(InvalidArguments, match="'double' is offered twice"):
        CompositeExecutor([LocalExecutor([double]), LocalExecutor([double])])
    with pytest.raises(InvalidArguments):
        CompositeExecutor([])


def test_a_composite_routes_by_name_in_order() -> None:
    first, second = LocalExecutor([double]), LocalExecutor([greet])
    made = CompositeExecutor([first, second])
    assert made.tools().names == ("double", "greet")
    assert made.call(call("greet", {"name": "you"})).ok
    assert len(second.door.recorder.recent()) == 1
    assert first.door.recorder.recent() == []


def test_a_composite_offers_the_nearest_name_of_all_its_executors() -> None:
    made = CompositeExecutor([LocalExecutor([double, greet], enabled=["double"]), LocalExecutor([endless])])
    refused = made.call(call("endles"))
    assert refused.error is not None
    assert (refused.error.code, refused.error.hint) == ("TOOL_NOT_FOUND", "Did you mean 'endless'?")
    assert "Did you mean 'endless'?" in refused.text
    disabled = made.call(call("greet", {"name": "you"})).error
    assert disabled is not None
    assert disabled.code == "TOOL_NOT_ENABLED"


def test_a_result_that_a_tool_passes_on_gets_this_calls_name() -> None:
    @tool
    def relay() -> ToolResult:
        """Relay."""
        return ToolResult(ok=True, tool="other", call_id="other", data=1, text="one")

    asked = call("relay")
    result = LocalExecutor([relay]).call(asked)
    assert (result.tool, result.call_id, result.data) == ("relay", asked.call_id, 1)


class _Grumpy:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _endless() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (_endless(), "nested more than 200 levels deep"),
        ({"a": [10**6_000]}, "result.a[0] is an integer of 19,932 bits"),
        (b"\xff", "result is a bytes"),
        ({"a": _Grumpy()}, "result.a is a _Grumpy"),
        ((number for number in range(3)), "result is a generator"),
    ],
    ids=["endless", "integer", "bytes", "grumpy", "generator"],
)
def test_what_cannot_be_written_as_json_is_a_result_too(returned: Any, said: str) -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return returned

    made = LocalExecutor([give])
    result = made.call(call("give"))
    assert result.error is not None
    assert result.error.code == "INTERNAL"
    assert said in result.error.message
    assert [record.code for record in made.door.recorder.recent()] == ["INTERNAL"]


@pytest.mark.parametrize("returned", [["x" * 100] * 1_000, "x" * 100_000, {"a": [{}] * 100_000}])
def test_what_is_far_too_large_is_refused_while_it_is_copied(returned: Any) -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return returned

    result = LocalExecutor([give], door=Door(limits=CallLimits(output_bytes=50_000))).call(call("give"))
    assert result.error is not None
    assert result.error.code == "LIMIT_EXCEEDED"
    assert "50,000 are allowed" in result.error.message


def test_an_error_is_told_at_a_bearable_length_and_without_secrets() -> None:
    said = "password=hunter2 and more\n" * 100_000

    def fail() -> None:
        """Fail with many words."""
        raise ExecutionFailed(said, hint=said)

    result = LocalExecutor([fail]).call(ToolCall(tool="fail"))
    assert result.error is not None
    assert result.error.message.endswith(f"… ({len(said):,} characters)")
    assert len(result.text) < 30_000
    assert "hunter2" not in result.text


def test_a_call_with_very_many_unknown_arguments_is_refused_at_once() -> None:
    result = LocalExecutor([double]).call(
        ToolCall(tool="double", arguments={f"argument {i}": i for i in range(20_000)})
    )
    assert result.error is not None
    assert "more problems" in result.error.message
    assert len(result.error.message) < 10_000
    assert LocalExecutor([double]).call(ToolCall(tool="x" * 5_000_000)).error is not None


def test_an_error_whose_details_are_no_json_is_told_all_the_same() -> None:
    @tool
    def fail() -> None:
        """Fail."""
        raise ExecutionFailed("it broke", data={"line": 3, "frame": {1, 2}, "odd": object(), "worse": _Grumpy()})

    result = LocalExecutor([fail]).call(call("fail"))
    assert result.error is not None
    assert result.error.message == "it broke"
    assert result.data["line"] == 3
    assert result.data["odd"].startswith("<object")
    assert result.data["worse"] == "<_Grumpy>"


def test_an_approver_that_fails_lets_nothing_through() -> None:
    ran = []

    @tool(destructive=True)
    def wipe() -> None:
        """Wipe."""
        ran.append(1)

    def broken(request: Any) -> bool:
        raise OSError("no terminal")

    made = LocalExecutor([wipe], door=Door(approver=AskFunction(broken)))
    result = made.call(call("wipe", caller="model"))
    assert result.error is not None
    assert "no terminal" in result.error.message
    assert not ran
    assert len(made.door.recorder.recent()) == 1


def test_the_time_of_asking_is_not_counted_out_of_the_time_of_the_call() -> None:
    def texts(seconds: float) -> list[str]:
        @tool(destructive=True)
        async def wipe(timeout: float = seconds) -> str:
            """Wipe it."""
            return "wiped"

        asked = AskFunction(lambda _: time.sleep(1.2 * seconds) is None)
        made = LocalExecutor([wipe], door=Door(approver=asked, limits=CallLimits(timeout=seconds, grace=0.0)))
        calls = ({}, {"arguments": {"timeout": seconds}}, {"timeout": seconds})
        return [made.call(ToolCall(tool="wipe", caller="model", **given)).text for given in calls]

    # The work itself takes no time, but on a busy machine more than the least of these.
    with_enough_time(texts, lambda it: it == ["wiped"] * 3, 0.05)


def test_what_may_change_something_is_written_down_before_it_is_done_and_after_it() -> None:
    kept: list[tuple[str, Any]] = []
    store = Store()

    async def started(call_id: str) -> None:
        if call_id == "full":
            raise ExecutionFailed("the disk is full")
        kept.append(("started", dict(store.items)))

    async def ended(call_id: str, result: ToolResult) -> None:
        kept.append((result.error.code if result.error else "ended", dict(store.items)))

    @tool
    async def both(*, ctx: Context) -> str:
        """Call another tool, which is a part of this call."""
        return (await ctx.call_tool("put", {"key": "b", "value": "2"})).text

    def approve(request: ApprovalRequest) -> str:
        kept.append(("asked", dict(store.items)))
        return "no" if request.call.arguments["key"] == "no" else "once"

    door = Door(services={Store: lambda: store}, approver=AskFunction(approve))
    executor = LocalExecutor([double, put, both], door=door)

    def call(name: str, arguments: dict[str, Any], **more: Any) -> ToolResult:
        kept.clear()
        return executor.call(
            ToolCall(tool=name, arguments=arguments, journal=CallJournal(started=started, ended=ended), **more)
        )

    assert call("put", {"key": "a", "value": "1"}, caller="model").ok
    assert kept == [("asked", {}), ("started", {}), ("ended", {"a": "1"})]
    assert not call("put", {"key": "no", "value": "1"}, caller="model").ok
    assert kept == [("asked", {"a": "1"}), ("APPROVAL_DENIED", {"a": "1"})]
    assert call("double", {"x": 2}).ok
    assert kept == [("ended", {"a": "1"})]
    assert call("both", {}).text == "kept b"
    assert [what for what, _ in kept] == ["started", "ended"]
    assert call("put", {"key": "c", "value": "1"}, call_id="full").error.message == "the disk is full"
    assert "c" not in store.items
