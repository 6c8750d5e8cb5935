"""Executors that keep one waiting: each is asked for the names that may be its own, and says itself what it lacks."""

from __future__ import annotations

from nbtools.contract.execute import CompositeExecutor, LocalExecutor
from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import ToolCall
from nbtools.errors import ToolNotFound


def double(x: int) -> int:
    """Double it."""
    return 2 * x


class Remote:
    """A server whose tools are fetched when they are looked at."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.fetches = prefix, 0
        self._near = LocalExecutor(Registry([double]).prefixed(prefix))

    def tools(self) -> Registry:
        self.fetches += 1
        return self._near.tools()

    def listed(self) -> Registry:
        return self._near.tools() if self.fetches else Registry([])

    def missing(self, name: str) -> ToolNotFound:
        return ToolNotFound(f"{self.prefix} has no {name}")

    async def acall(self, call: ToolCall) -> ToolResult:
        if call.tool not in self._near.tools():
            return self._near.door.refuse(call, self.missing(call.tool))
        return await self._near.acall(call)


def _composed() -> tuple[CompositeExecutor, Remote, Remote]:
    short, long = Remote("a_"), Remote("a_b_")
    return CompositeExecutor([LocalExecutor([double]), short, long]), short, long


def _ask(executor: CompositeExecutor, name: str) -> ToolResult:
    return executor.call(ToolCall(tool=name, arguments={"x": 4}))


def test_a_near_tool_is_called_and_found_without_asking_who_is_far() -> None:
    executor, short, long = _composed()
    assert _ask(executor, "double").data == 8
    assert "double" in executor.tools()
    assert (short.fetches, long.fetches) == (0, 0)


def test_of_prefixes_that_begin_alike_the_server_that_has_the_tool_gets_the_call() -> None:
    executor, short, long = _composed()
    assert (_ask(executor, "a_double").data, _ask(executor, "a_b_double").data) == (8, 8)
    assert [call.tool for call in short._near.door.recorder.recent()] == ["a_double"]
    assert [call.tool for call in long._near.door.recorder.recent()] == ["a_b_double"]
    assert executor.tools()["a_b_double"].name == "a_b_double"
    assert executor.tools().names == ("double", "a_double", "a_b_double")


def test_the_last_server_of_a_prefix_says_why_it_lacks_a_tool() -> None:
    executor, _, _ = _composed()
    refused = _ask(executor, "a_b_treble").error
    assert refused is not None
    assert (refused.code, refused.message) == ("TOOL_NOT_FOUND", "a_b_ has no a_b_treble")
    assert "a_b_treble" not in executor.tools()


def test_a_name_of_nobody_is_compared_with_what_was_fetched_so_far() -> None:
    executor, short, _ = _composed()
    assert _ask(executor, "b_double").text.endswith("Did you mean 'double'?)")
    short.tools()
    assert "'a_double'" in _ask(executor, "ar_double").text
