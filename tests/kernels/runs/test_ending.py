"""How a run is ended that does not end by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from nbtools.ground import aio
from nbtools.kernels.runs.ending import stoppable, supervise


async def _nothing() -> None:
    return None


def test_a_run_that_ends_by_itself_is_left_alone() -> None:
    calls: list[str] = []

    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, done.set_result, None)
        return await supervise(done, timeout=5, grace=1, interrupt=_noting(calls, "i"), kill=_noting(calls, "k"))

    assert aio.run(work()) is None
    assert calls == []


def test_a_stop_that_comes_with_the_end_is_too_late() -> None:
    calls: list[str] = []

    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        how: dict[str, Any] = {"interrupt": _noting(calls, "i"), "kill": _noting(calls, "k")}
        task = asyncio.ensure_future(supervise(done, timeout=5, grace=1, **how))
        await asyncio.sleep(0)
        done.set_result(None)
        task.cancel()
        return await task

    assert aio.run(work()) is None
    assert calls == []


def _noting(calls: list[str], name: str, then: Any = None) -> Any:
    async def note() -> None:
        calls.append(name)
        if then is not None:
            then()

    return note


def test_a_timeout_interrupts_and_then_waits_for_the_end() -> None:
    calls: list[str] = []

    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        interrupt = _noting(calls, "i", lambda: done.set_result(None))
        return await supervise(done, timeout=0.01, grace=1, interrupt=interrupt, kill=_noting(calls, "k"))

    assert aio.run(work()) == "timeout"
    assert calls == ["i"]


def test_what_ignores_interrupts_is_killed_after_the_grace() -> None:
    calls: list[str] = []

    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        kill = _noting(calls, "k", lambda: done.set_result(None))
        return await supervise(done, timeout=0.01, grace=0.04, interrupt=_noting(calls, "i"), kill=kill)

    assert aio.run(work()) == "timeout"
    assert calls == ["i", "i", "k"]


def test_a_second_cancellation_kills_at_once() -> None:
    calls: list[str] = []

    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        interrupted = asyncio.Event()
        kill = _noting(calls, "k", lambda: done.set_result(None))
        interrupt = _noting(calls, "i", interrupted.set)
        task = asyncio.ensure_future(supervise(done, timeout=None, grace=60, interrupt=interrupt, kill=kill))
        await asyncio.sleep(0)
        task.cancel()
        await interrupted.wait()
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert aio.run(work()) == "stopped"
    assert calls == ["i", "k"]


def test_runaway_output_ends_the_run() -> None:
    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        runaway = asyncio.Event()
        runaway.set()
        kill = _noting([], "k", lambda: done.set_result(None))
        return await supervise(done, timeout=None, grace=0, interrupt=_nothing, kill=kill, runaway=runaway)

    assert aio.run(work()) == "output_limit"


def test_steps_that_fail_do_not_stop_the_next_step() -> None:
    async def broken() -> None:
        raise OSError("gone")

    async def work() -> Any:
        done = asyncio.get_running_loop().create_future()
        kill = _noting([], "k", lambda: done.set_result(None))
        return await supervise(done, timeout=0.01, grace=0, interrupt=broken, kill=kill)

    assert aio.run(work()) == "timeout"


def test_a_cancellation_on_another_loop_still_brings_the_result() -> None:
    async def last_words() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return "last words"
        return "never"

    async def elsewhere() -> str:
        task = asyncio.ensure_future(stoppable(last_words()))
        for _ in range(3):
            await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert asyncio.run(elsewhere()) == "last words"


def test_who_ends_in_the_time_of_grace_is_asked_once_and_not_killed() -> None:
    calls: list[str] = []

    async def work() -> Any:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        interrupt = _noting(calls, "i", lambda: loop.call_later(0.02, done.set_result, None))
        return await supervise(done, timeout=0.01, grace=60, interrupt=interrupt, kill=_noting(calls, "k"))

    assert aio.run(work()) == "timeout"
    assert calls == ["i"]
