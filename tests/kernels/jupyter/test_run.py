"""When a run is over whose kernel says too little: once nothing comes any more, and never while something does."""

from __future__ import annotations

import asyncio
from typing import Any

from nbtools.ground import aio
from nbtools.kernels import Execution
from nbtools.kernels.inside.hooks import REPORT
from nbtools.kernels.jupyter.kernel import JupyterRun
from nbtools.kernels.jupyter.messages import Message
from nbtools.kernels.runs.output import Collector

SHOWN = [str(number) for number in range(30)]


def test_a_run_ends_in_silence_and_not_while_its_messages_are_read() -> None:
    async def run_one() -> list[str]:
        pieces, waiting = [], list(SHOWN)

        def look() -> None:
            if waiting:
                run.messages += 1
                content = {"data": {"text/plain": waiting.pop(0)}}
                run.take(Message(type="display_data", parent_id="1", content=content))

        run = JupyterRun("1", Collector(lambda piece: pieces.append(piece.text)), look)
        run.end_in_silence(0, run.finish)
        await run.done
        return pieces

    assert aio.run(run_one(), timeout=10) == SHOWN


def test_a_run_ends_though_a_thread_that_it_left_shows_something_for_ever() -> None:
    async def run_one() -> int:
        def look() -> None:
            run.messages += 1

        run = JupyterRun("1", Collector(), look)
        run.end_in_silence(0.0625, run.finish, left=0.25)
        await run.done
        return run.messages

    assert aio.run(run_one(), timeout=10) == 4


_ERROR = {"ename": "E", "evalue": "v", "traceback": ["trace"]}
_FAILED = Message(type="execute_reply", parent_id="1", content={"status": "error", **_ERROR})
_WENT_WELL = Message(type="execute_reply", parent_id="1", content={"status": "ok"})
_IDLE = Message(type="status", parent_id="1", content={"execution_state": "idle"})


def _say(kind: str, **content: Any) -> Message:
    return Message(type=kind, parent_id="1", content=content)


def _told(*messages: Message, ending: str | None = None) -> Execution:
    """Return what becomes of a run that gets these messages."""

    async def run_one() -> Execution:
        run = JupyterRun("1", Collector())
        for message in messages:
            run.take(message)
        await run.done
        return run.execution(ending)

    return aio.run(run_one(), timeout=10)


def test_what_is_cleared_is_forgotten_and_what_is_dropped_is_missed() -> None:
    before = (_say("stream", name="stdout", text="a"), _say("display_data", data={"text/plain": "c"}))
    after = (_say("stream", name="stderr", text="b"), _say("stream", name="stdout", text="d"))
    done = _told(*before, _say("clear_output"), *after, _WENT_WELL, _IDLE, _IDLE)
    assert (done.status, done.stdout, done.stderr, done.displays, done.truncated) == ("ok", "d", "b", (), False)
    assert _told(_say("too_large", bytes=9), _WENT_WELL, _IDLE).truncated
    assert _told(_say("display_data", data={REPORT: {"dropped": 9}}), _WENT_WELL, _IDLE).truncated


def test_the_reply_decides_which_error_ended_the_code() -> None:
    shown = _say("error", **_ERROR)
    assert str(_told(shown, _FAILED, _IDLE).error) == "E: v"
    assert str(_told(_FAILED, _IDLE).error) == "E: v"
    went_on = _told(shown, _WENT_WELL, _IDLE)
    assert (went_on.status, went_on.error, went_on.stderr) == ("ok", None, "trace\n")
    report = _say("display_data", data={REPORT: {"exit_code": 0}})
    ended = _told(shown, report, _FAILED, _IDLE)
    assert (ended.status, ended.exit_code) == ("ok", 0)


def test_an_interrupt_that_takes_the_reply_along_ends_the_run() -> None:
    assert _told(_IDLE, ending="stopped").status == "stopped"


def test_a_run_waits_for_a_long_message_that_is_still_read() -> None:
    async def run_one() -> bool:
        run, read = JupyterRun("1", Collector()), asyncio.Event()

        async def take() -> None:
            await read.wait()
            run.taking = None

        run.taking = asyncio.ensure_future(take())
        run.finish()
        await asyncio.sleep(0)
        was_done = run.done.done()
        read.set()
        await run.done
        return was_done

    assert not aio.run(run_one(), timeout=10)
