"""The line of elapsed time that long work shows at a terminal: what it says, and that it breaks no line of output."""

from __future__ import annotations

import asyncio
import io
import sys
import types
from collections.abc import Awaitable, Callable

import pytest

from nbtools.jupyter.display import streaming


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


Watch = Callable[[float, Callable[[streaming.Live, Callable[[], Awaitable[None]]], Awaitable[None]]], str]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Return what watches some work for so many seconds of its clock, and returns what the terminal got."""

    def watched(
        seconds: float, work: Callable[[streaming.Live, Callable[[], Awaitable[None]]], Awaitable[None]]
    ) -> str:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        monkeypatch.setattr(sys, "stderr", terminal)
        begun, ticks = iter([0.0]), asyncio.Event()

        def now(_: str) -> str:
            ticks.set()
            return "now"

        async def tick() -> None:
            for _ in range(2):  # the first one may have begun before
                ticks.clear()
                await ticks.wait()

        clock = types.SimpleNamespace(monotonic=lambda: next(begun, seconds), strftime=now)
        monkeypatch.setattr(streaming, "time", clock)
        loop = types.SimpleNamespace(ensure_future=asyncio.ensure_future, sleep=lambda _: asyncio.sleep(0))
        monkeypatch.setattr(streaming, "asyncio", loop)  # the test does not wait for its seconds
        shown = streaming.Live("look", types.SimpleNamespace())
        asyncio.run(shown.watch(work(shown, tick)))
        return terminal.getvalue()

    return watched


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0 s"), (59.5, "59 s"), (60.5, "1 min 00 s"), (3_725.5, "62 min 05 s")]
)
def test_elapsed_time_is_in_seconds_and_then_in_minutes(watch: Watch, seconds: float, text: str) -> None:
    written = watch(seconds, lambda _, tick: tick())
    assert f"\rlook · running for {text} at now\x1b[K" in written
    assert written.endswith("\r\x1b[K"), "it is taken away at the end"


def test_the_line_is_not_written_within_a_line_of_output(watch: Watch) -> None:
    async def work(shown: streaming.Live, tick: Callable[[], Awaitable[None]]) -> None:
        shown("stdout", "half a line")
        await tick()

    assert watch(1.5, work) == ""
